"""`make lab NAME=bench`: what Ferrule itself costs, beside a bare loop over the same HTTP client in the same
run.

Every figure is a median over repeats; the ratio is the one to quote, the milliseconds depend on the
machine. The gate and the journal (in a file) are on. Figures that have an aim show it.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import catalog
import commands
import search
import sessions
import tool_files

HERE = Path(__file__).parent
ROWS: list[tuple[str, str, str, str]] = []


def main() -> None:
    """Print the table."""
    started()
    stub = subprocess.Popen([sys.executable, str(HERE / "stub.py")], stdin=-1, stdout=-1, text=True)
    assert stub.stdout is not None
    base_url = f"http://127.0.0.1:{int(stub.stdout.readline())}/v1"
    try:
        asyncio.run(measured(base_url))
    finally:
        stub.kill()
        stub.wait()
    for figures in asyncio.run(commands.measured()):
        row(*figures)
    for figures in asyncio.run(tool_files.measured()):
        row(*figures)
    for figures in search.measured():
        row(*figures)
    for figures in asyncio.run(catalog.measured()):
        row(*figures)
    for figures in asyncio.run(sessions.measured()):
        row(*figures)
    entered()
    width = [max(len(cells[i]) for cells in ROWS) for i in range(4)]
    for cells in ROWS:
        print("  ".join(cell.ljust(size) for cell, size in zip(cells, width, strict=True)).rstrip())


def row(name: str, value: str, beside: str = "", aim: str = "") -> None:
    ROWS.append((name, value, beside, aim))


def started() -> None:
    """Start-up: processes timed from outside, modules counted inside."""
    row("figure", "ferrule", "beside", "aim")
    python = sys.executable
    bare = spawn([python, "-c", "pass"])
    client = spawn([python, "-c", "import asyncio, json, sqlite3, ssl"])
    library = spawn([python, "-c", "import ferrule"])
    door = spawn([python, "-c", "from ferrule import Agent, OpenAIChat, tool"])
    version = spawn([str(Path(python).parent / "ferrule"), "--version"])
    count = subprocess.run(
        [python, "-c", "import sys, ferrule; print(len(sys.modules))"],
        capture_output=True,
        text=True,
        check=True,
    )
    row("modules after `import ferrule`", count.stdout.strip(), "", "<= 100")
    row("`import ferrule`, process ms", f"{library:.0f}", f"bare interpreter {bare:.0f}")
    row(
        "`from ferrule import Agent, OpenAIChat, tool`, ms",
        f"{door:.0f}",
        f"asyncio + sqlite3 + ssl {client:.0f}",
    )
    row("`ferrule --version`, ms", f"{version:.0f}", f"bare interpreter {bare:.0f}", "< 50")


def spawn(command: list[str]) -> float:
    times: list[float] = []
    for _ in range(7):
        begin = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        times.append((time.perf_counter() - begin) * 1000)
    return statistics.median(times[1:])


def tools() -> dict[str, Callable[..., Any]]:
    def peek(n: int = 0, i: int = 0) -> str:
        """Look at a number."""
        return f"{n}:{i}"

    async def apeek(n: int = 0, i: int = 0) -> str:
        """Look at a number."""
        return f"{n}:{i}"

    def slow(n: int = 0, i: int = 0) -> str:
        """Look at a number for 20 ms."""
        time.sleep(0.02)
        return f"{n}:{i}"

    async def aslow(n: int = 0, i: int = 0) -> str:
        """Look at a number for 20 ms."""
        await asyncio.sleep(0.02)
        return f"{n}:{i}"

    def swallow(text: str = "", i: int = 0) -> str:
        """Take a text."""
        return str(len(text))

    return {f.__name__: f for f in (peek, apeek, slow, aslow, swallow)}


def agent(base_url: str, folder: str, **limits: Any) -> Any:
    from ferrule import Agent, Limits, OpenAIChat, Storage
    from ferrule.tools.decorator import tool_from_function

    made = [tool_from_function(f, side_effect="none") for f in tools().values()]
    wire = OpenAIChat("stub", base_url=base_url, api_key="none")
    bounds = Limits(max_turns=1000, max_calls_per_turn=64, **limits)
    return Agent(
        wire,
        made,
        limits=bounds,
        tool_calling="native",
        storage=Storage(journal=f"{folder}/bench.db"),
    )


async def measured(base_url: str) -> None:
    import bare

    from ferrule.models.http.transport import Transport

    with tempfile.TemporaryDirectory() as folder:
        ours = agent(base_url, folder)
        transport = Transport()

        async def pair(
            name: str,
            script: dict[str, Any],
            *,
            per: int = 1,
            aim: str = "",
            repeats: int = 5,
            stream: bool = False,
        ) -> float:
            prompt = json.dumps(script)

            async def mine() -> None:
                if stream:
                    async for _ in ours.stream(prompt):
                        pass
                else:
                    await ours.run(prompt)

            async def theirs() -> None:
                await bare.run(transport, base_url, prompt, tools(), stream=stream)

            a, b, ratio = await compare(mine, theirs, repeats)
            row(name, f"{a / per:.2f}", f"bare {b / per:.2f}; ratio {ratio:.2f}", aim)
            return a

        await pair(
            "50 rounds, blocking tool, ms per round", {"rounds": 50}, per=51, aim="ratio <= 1.5"
        )
        await pair(
            "50 rounds, async tool, ms per round",
            {"rounds": 50, "tool": "apeek"},
            per=51,
            aim="ratio <= 1.5",
        )
        await pair(
            "32 blocking reads of 20 ms, ms",
            {"rounds": 1, "fan": 32, "tool": "slow"},
            aim="<= 60 ms",
        )
        await pair(
            "32 async reads of 20 ms, ms", {"rounds": 1, "fan": 32, "tool": "aslow"}, aim="<= 60 ms"
        )
        for size in (50_000, 100_000, 200_000):
            script = {"rounds": 1, "tool": "swallow", "argument_bytes": size}
            await pair(
                f"{size // 1000} KB of streamed arguments, ms",
                script,
                aim="linear",
                repeats=3,
                stream=True,
            )
        await pair(
            "10,000 streamed text deltas, ms",
            {"rounds": 0, "text_deltas": 10_000},
            repeats=3,
            stream=True,
        )
        await pair("400 rounds, ms per round", {"rounds": 400, "tool": "apeek"}, per=401, repeats=3)
        await flat(base_url, folder)


async def compare(
    mine: Callable[[], Awaitable[None]], theirs: Callable[[], Awaitable[None]], repeats: int
) -> tuple[float, float, float]:
    """Medians in ms of both, taken in turn, and the median of the pairwise ratios."""
    await mine()
    await theirs()
    pairs: list[tuple[float, float]] = []
    for _ in range(repeats):
        begin = time.perf_counter()
        await mine()
        middle = time.perf_counter()
        await theirs()
        pairs.append(((middle - begin) * 1000, (time.perf_counter() - middle) * 1000))
    return (
        statistics.median(a for a, _ in pairs),
        statistics.median(b for _, b in pairs),
        statistics.median(a / b for a, b in pairs),
    )


async def flat(base_url: str, folder: str) -> None:
    """CPU time of a round between the answer's arrival and the next question, early and late in
    400.

    CPU, because the wall time also holds how long a core that had to wait for a slower server takes
    to wake.
    """
    from ferrule.core.commands import AskModel

    session = agent(base_url, folder).session()
    spent: list[float] = []
    answered: list[float] = []
    steps = session.driver._STEPS
    ask_model = steps[AskModel]

    async def timed(driver: Any, command: Any) -> Any:
        if answered:
            spent.append(time.thread_time() - answered[-1])
        outcome = await ask_model(driver, command)
        answered.append(time.thread_time())
        return outcome

    session.driver._STEPS = {**steps, AskModel: timed}
    await session.run(json.dumps({"rounds": 400, "tool": "apeek"}))
    await session.close()
    early, late = statistics.median(spent[5:55]) * 1e6, statistics.median(spent[-50:]) * 1e6
    row(
        "400 rounds: CPU from answer to next question, us",
        f"{early:.0f} -> {late:.0f}",
        f"ratio {late / early:.2f}",
        "flat",
    )


ENTERED = """
import asyncio, sys
from ferrule import Agent, Scripted, Storage, tool
from ferrule.models.scripted import says, calls
@tool(side_effect="none")
async def peek(n: int) -> str:
    "Look."
    return str(n)
steps = [step for n in (1, 2) for step in (calls(("peek", {"n": n})), says("done"))]
agent = Agent(Scripted(steps), [peek], storage=Storage(journal=":memory:"))
seen = set()
def hook(frame, event, arg):
    code = frame.f_code
    if event == "call" and "/ferrule/" in code.co_filename and not code.co_name.startswith("<"):
        seen.add((code.co_filename, code.co_qualname))
async def main():
    session = agent.session()
    counts = []
    for _ in range(2):
        seen.clear()
        sys.setprofile(hook)
        await session.run("go")
        sys.setprofile(None)
        counts.append((len(seen), len({name for name, _ in seen})))
    print(*counts[0], *counts[1])
asyncio.run(main())
"""


def entered() -> None:
    """Package functions entered and files touched by a run with one call, counted by a profile
    hook.
    """
    first, files, later, later_files = counted()
    row(
        "package functions entered by a one-call run; files",
        f"{later}; {later_files}",
        f"first run of a process {first}; {files}",
        "<= 60; 12",
    )


def counted() -> list[int]:
    """Functions and files of a process's first run, then of a later one."""
    out = subprocess.run(
        [sys.executable, "-c", ENTERED], capture_output=True, text=True, check=True
    )
    return [int(number) for number in out.stdout.split()]


if __name__ == "__main__":
    main()
