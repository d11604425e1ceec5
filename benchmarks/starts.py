"""What people wait for when something starts, in seconds of processor time and of the clock.

    python benchmarks/starts.py [--rounds N] [--openapi DOCUMENT]

Rows are measured in turn, each in fresh processes, and medians are printed. Processor time is that
of the process with all it started, up to the moment that somebody has what they waited for: a
prompt in a terminal, a page, an answer. `official client` is the `mcp` package alone, which lists
the tools of the same server; `ten servers` are opened together.
"""

from __future__ import annotations

import argparse
import os
import pty
import re
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

FERRULE = str(Path(sys.executable).with_name("ferrule"))
TICKS = os.sysconf("SC_CLK_TCK")
PATIENCE = 60.0
"""Seconds for anything here to start."""

Taken = tuple[float, float]
"""Seconds of processor time, and of the clock."""

SERVER = '''
from mcp.server.mcpserver import MCPServer

server = MCPServer("words")

@server.tool()
def count(text: str) -> int:
    """How many words there are."""
    return len(text.split())

server.run()
'''

FIRST_COMMAND = """
from ferrule import Agent, Permissions
import asyncio

async def main():
    from ferrule.toolkits.commands.run_command_tool import run_command
    agent = Agent("scripted:none", [run_command], workspace=".", permissions=Permissions(allow=["Bash"]))
    session = agent.session()
    result = await session.call("run_command", command="true")
    assert result.success, result
    print("ready", flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""

OUR_CLIENT = """
import asyncio, sys
from ferrule.connectors import McpServer, connect_mcp

async def main():
    command = (sys.executable, "server.py")
    seen = (sys.prefix, sys.base_prefix)
    servers = [McpServer(f"s{n}", command=command, readable=seen) for n in range(int(sys.argv[1]))]
    async with connect_mcp(servers, workspace=".") as opened:
        assert len(opened.tools) == len(servers)
        print("ready", flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""

OFFICIAL_CLIENT = """
import asyncio, sys
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

async def main():
    command = StdioServerParameters(command=sys.executable, args=["server.py"])
    async with stdio_client(command) as streams, ClientSession(*streams) as session:
        await session.initialize()
        assert (await session.list_tools()).tools
        print("ready", flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""

OPENAPI = """
import sys
from ferrule.connectors import openapi_tools

tools = openapi_tools(sys.argv[1])
assert tools
print("ready", flush=True)
sys.stdin.read()
"""


def measure(
    command: list[str], is_ready: Callable[[bytes], bool], folder: Path, *, terminal: bool = False
) -> Taken:
    """Start a command, wait until it is ready, and end it with all it started.

    Args:
        command: The command.
        is_ready: Whether what it wrote so far says that it is.
        folder: Where it starts, and its home.
        terminal: Whether it gets a terminal.
    """
    ours, theirs = pty.openpty() if terminal else os.pipe()
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "TERM": "xterm-256color",
        "OPENAI_API_KEY": "none",
        "OPENAI_BASE_URL": "http://127.0.0.1:9/v1",
    }
    begun = time.perf_counter()
    process = subprocess.Popen(
        command,
        stdin=theirs if terminal else subprocess.PIPE,
        stdout=theirs,
        stderr=theirs,
        cwd=folder / "work",
        env=environment,
        start_new_session=True,
    )
    os.close(theirs)
    written = b""
    try:
        while not is_ready(written):
            if time.perf_counter() - begun > PATIENCE or process.poll() is not None:
                raise SystemExit(f"{command} was not ready: {written.decode(errors='replace')}")
            if select.select([ours], [], [], 0.005)[0]:
                written += os.read(ours, 65536)
        return read_processor_time(process.pid), time.perf_counter() - begun
    finally:
        for one in (*find_descendants(process.pid), process.pid):
            with_pid_gone(one)
        process.wait()
        os.close(ours)


def with_pid_gone(pid: int) -> None:
    """End a process, if it is still there."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def find_descendants(pid: int) -> list[int]:
    """Return the processes that a process started, and those that they started."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(word) for word in task.read_text().split()]
        except OSError:
            continue
        for child in children:
            found += [*find_descendants(child), child]
    return found


def read_processor_time(pid: int) -> float:
    """Return the seconds of a process, of those it waited for and of those that still run."""
    total = 0.0
    for one in (pid, *find_descendants(pid)):
        try:
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(int(field) for field in fields[11:15]) / TICKS
    return total


def says_ready(written: bytes) -> bool:
    """Whether the line `ready` was written."""
    return b"ready" in written


def shows_prompt(written: bytes) -> bool:
    """Whether the terminal has painted the prompt."""
    return "›".encode() in written


def serves_page(written: bytes) -> bool:
    """Whether the address that a server printed answers with a page."""
    address = re.search(rb"http://127\.0\.0\.1:\d+\S*", written)
    if address is None:
        return False
    # Signing in sets a cookie, and leads to the page.
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    try:
        with browser.open(address[0].decode(), timeout=5) as page:
            return b"</html>" in page.read()
    except OSError:
        return False


def rows(openapi: str) -> dict[str, Callable[[Path], Taken]]:
    """Return what is measured, by name."""
    python = sys.executable

    def in_python(program: str, *arguments: str) -> Callable[[Path], Taken]:
        command = [python, "-c", program, *arguments]
        return lambda folder: measure(command, says_ready, folder)

    found: dict[str, Callable[[Path], Taken]] = {
        "ferrule chat, to the prompt": lambda folder: measure(
            [FERRULE, "chat", "-m", "openai:gpt-5.2"], shows_prompt, folder, terminal=True
        ),
        "ferrule serve console, to the first page": lambda folder: measure(
            [FERRULE, "serve", "console", "-m", "openai:gpt-5.2", "--port", "0"],
            serves_page,
            folder,
        ),
        "a program, to its first command in a sandbox": in_python(FIRST_COMMAND),
        "a Python MCP server, official client": in_python(OFFICIAL_CLIENT),
        "a Python MCP server": in_python(OUR_CLIENT, "1"),
        "ten Python MCP servers together": in_python(OUR_CLIENT, "10"),
    }
    if openapi:
        found["an OpenAPI document"] = in_python(OPENAPI, str(Path(openapi).resolve()))
    return found


def main() -> None:
    """Measure, and print a line for each row: the first start, and the median of the next ones."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--openapi", default="", help="an OpenAPI document")
    chosen = parser.parse_args()
    measured = rows(chosen.openapi)
    with tempfile.TemporaryDirectory(prefix="ferrule-starts-") as name:
        folder = Path(name)
        (folder / "work").mkdir()
        (folder / "work" / "server.py").write_text(SERVER)
        taken: dict[str, list[Taken]] = {row: [] for row in measured}
        for _ in range(chosen.rounds + 1):
            for row, start in measured.items():
                taken[row].append(start(folder))
    print(f"{chosen.rounds} starts of each after the first; load {os.getloadavg()[0]:.1f}")
    print(f"{'':48}{'first: processor, clock':>26}{'then: processor, clock':>26}")
    for row, (first, *rest) in taken.items():
        processor, clock = (statistics.median(column) for column in zip(*rest, strict=True))
        begun = f"{first[0]:.2f}, {first[1]:.2f}"
        print(f"{row:48}{begun:>26}{f'{processor:.2f}, {clock:.2f}':>26}")


if __name__ == "__main__":
    main()
