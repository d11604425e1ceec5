"""What things cost as the work grows: five sizes of each axis, the slope, and a plot.

    python benchmarks/growth.py [AXIS ...] [--sizes N] [--write]

Each size is measured in a process of its own: seconds of processor time of this process and of what
it started and waited for (so that a busy machine moves them little), its largest memory, and bytes
where something is kept. The slope is that of a straight line through the logarithms, with the
interval of 95 % (Student's t, n - 2 degrees of freedom): 1 is linear, 0 is flat. A row says what it
should be: `linear` is missed by a slope over 1.05, `flat` by one over 0.1, each judged by the lower
end of its interval. With `--write` the figures go to `docs/growth.json`, the table to
`docs/speed.md` and the plots, drawn by matplotlib, to `docs/growth.svg`.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import itertools
import json
import math
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import many_sessions

ROOT = Path(__file__).parents[1]
FIGURES = ROOT / "docs" / "growth.json"
PLOTS = ROOT / "docs" / "growth.svg"
PAGE = ROOT / "docs" / "speed.md"
TABLE = re.compile(r"(?<=<!-- growth -->\n).*?(?=<!-- /growth -->)", re.DOTALL)
LIMITS = {"linear": 1.05, "flat": 0.1}
T_95 = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57}
"""Student's t for an interval of 95 %, by degrees of freedom."""
FLOOR = 2e-5
"""Seconds that count as nothing: a slope through less is noise of the clock."""

Figures = dict[str, float]
Work = Callable[[], Any]


@dataclass(frozen=True)
class Axis:
    """Something that grows.

    Attributes:
        grows: What its sizes count.
        sizes: From small to large.
        measure: Gives the figures of one size, in seconds or bytes by the end of their names.
        expected: For each figure, the word of `LIMITS` that it is held to.
    """

    grows: str
    sizes: tuple[int, ...]
    measure: Callable[[int, Path], Awaitable[Figures]]
    expected: dict[str, str]


def spent() -> float:
    """Return the seconds of processor time of this process and of those it has waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


async def cost(work: Work, repeats: int = 5) -> float:
    """Return the median of the seconds of a few times, after one that does not count."""
    times: list[float] = []
    for _ in range(repeats + 1):
        begun = spent()
        done = work()
        if inspect.isawaitable(done):
            await done
        times.append(spent() - begun)
    return statistics.median(times[1:])


# --------------------------------------------------------------------------------------------- axes


def answers(step: Callable[[Any], Any], window: int | None = None) -> Any:
    """Return a model that answers by a function of the history, and keeps nothing.

    Args:
        step: The function. Where no tools are offered, a summary is asked for and given.
        window: Tokens that fit into its context.
    """
    from ferrule.models.client import Capabilities
    from ferrule.models.scripted import Scripted, says

    class Answers(Scripted):
        async def next_step(self, ask: Any) -> Any:
            return step(ask.history) if ask.tools else says("They said words, and heard them.")

    return Answers([], capabilities=Capabilities(True, True, window, False, "script"))


async def turns(size: int, folder: Path, *, compact: bool = False) -> Figures:
    """Runs of one session; each is a message, a call, its result and an answer."""
    from ferrule import Agent, Permissions, Storage
    from ferrule.core.messages import ToolMessage
    from ferrule.models.scripted import calls, says
    from ferrule.tools.decorator import tool

    def echo(text: str) -> str:
        """Say it again."""
        return f"{text} " * 20

    last = 20

    def step(history: Any) -> Any:
        return (
            says("said")
            if isinstance(history[-1], ToolMessage)
            else calls(("echo", {"text": "word"}))
        )

    agent = Agent(
        answers(step, 8_000 if compact else None),
        [tool(side_effect="read")(echo)],
        permissions=Permissions(allow=["echo"]),
        storage=Storage(journal=folder / "turns.db", user="bench"),
        context=None if compact else "off",
    )
    session = agent.session()
    for n in range(size):
        await session.run(f"say word {n}")
    begun = spent()
    for n in range(last):
        await session.run(f"and word {n}")
    turn = (spent() - begun) / last
    await session.close()
    journal = agent.journal

    async def resume() -> None:
        await agent.resume(session.id).close()

    found = {
        "a turn, s": turn,
        "list, s": await cost(journal.sessions),
        "resume, s": await cost(resume),
        "verify, s": await cost(lambda: journal.verify(session.id)),
        "journal, bytes": float(sum(file.stat().st_size for file in folder.glob("turns.db*"))),
    }
    await agent.close()
    journal.close()
    return found


async def compacted_turns(size: int, folder: Path) -> Figures:
    """The same with a window of 8,000 tokens: the history is compacted again and again."""
    return await turns(size, folder, compact=True)


async def sessions(size: int, folder: Path) -> Figures:
    """Sessions of a journal."""
    from ferrule.storage.journal.sqlite import SqliteJournal

    file = folder / "journal.db"
    many_sessions.fill(file, size)
    with SqliteJournal(file) as journal:
        name = f"{size // 2:032x}"[::-1]

        def resume() -> None:
            found = journal.find(name[:12])
            journal.lease(found.session)
            list(journal.records(found.session))
            journal.release(found.session)

        return {
            "first page, s": await cost(lambda: journal.sessions(limit=50)),
            "of one owner, s": await cost(
                lambda: journal.sessions(tenant="local", user="u3", limit=50)
            ),
            "resume, s": await cost(resume),
            "verify one, s": await cost(lambda: journal.verify(name)),
            "journal, bytes": float(file.stat().st_size),
        }


async def catalog(size: int, folder: Path) -> Figures:
    """Tools of an agent: all offered, or found by search."""
    from ferrule import Agent, Storage
    from ferrule.models.scripted import says
    from ferrule.tools.decorator import tool_from_function
    from ferrule.tools.definition import Loading
    from ferrule.tools.search.index import ToolIndex

    def make(number: int) -> Callable[..., str]:
        def work(name: str, count: int = 1) -> str:
            return name * count

        noun = ("invoice", "parcel", "ticket", "meter", "ledger", "route", "badge")[number % 7]
        work.__name__ = work.__qualname__ = f"{noun}_{number}"
        work.__doc__ = f"Look up {noun} number {number} in register {number % 97}."
        return work

    tools = [tool_from_function(make(n), side_effect="read") for n in range(size)]

    async def run(loading: Loading) -> float:
        from dataclasses import replace

        agent = Agent(
            answers(lambda _: says("done")),
            [replace(one, loading=loading) for one in tools[1:]] + tools[:1],
            storage=Storage(journal=":memory:"),
        )
        session = agent.session()
        try:
            return await cost(lambda: session.run("go"))
        finally:
            await session.close()
            await agent.close()

    index = ToolIndex(tools)
    return {
        "a run, deferred, s": await run(Loading.DEFERRED),
        "a run, offered, s": await run(Loading.ALWAYS),
        "index, s": await cost(lambda: ToolIndex(tools)),
        "search, s": await cost(lambda: index.search("parcel in register 12")),
    }


def make_files(root: Path, count: int) -> None:
    """Write so many files of 40 lines, a hundred in a folder; one holds the word `needle`."""
    line = "value = compute(previous, 42)  # a line of source\n"
    for number in range(count):
        folder = root / f"part{number // 100}"
        if number % 100 == 0:
            folder.mkdir(parents=True)
        text = line * 40 + ("needle\n" if number == count // 2 else "")
        folder.joinpath(f"module{number}.py").write_text(text)


@asynccontextmanager
async def open_session(root: Path, folder: Path, tools: list[Any]) -> AsyncIterator[Any]:
    """Yield a session that reads a folder and runs commands there."""
    from ferrule import Agent, Permissions, Storage

    agent = Agent(
        "scripted:none",
        tools,
        workspace=root,
        permissions=Permissions(allow=["Read(**)", "Bash"]),
        storage=Storage(journal=folder / "journal.db"),
    )
    session = agent.session()
    try:
        yield session
    finally:
        await session.close()
        await agent.close()


async def call(session: Any, tool: str, **arguments: Any) -> None:
    """Make a call that must succeed."""
    result = await session.call(tool, **arguments)
    if not result.success:
        raise SystemExit(f"{tool} {arguments}: {result.error_message}")


async def files(size: int, folder: Path) -> Figures:
    """Files of a workspace."""
    from ferrule.toolkits.commands.run_command_tool import run_command
    from ferrule.toolkits.files.browse import file_tree, list_files
    from ferrule.toolkits.files.tools import read_file
    from ferrule.toolkits.search.search_files import search_files

    root = folder / "work"
    root.mkdir()
    make_files(root, size)
    tools = [file_tree, list_files, read_file, search_files, run_command]
    async with open_session(root, folder, tools) as session:
        begun = spent()
        await call(session, "run_command", command="true")
        first = spent() - begun
        return {
            "search, s": await cost(lambda: call(session, "search_files", pattern="needle"), 3),
            "tree, s": await cost(lambda: call(session, "file_tree", path="."), 3),
            "list a folder, s": await cost(lambda: call(session, "list_files", path="part0")),
            "read a file, s": await cost(
                lambda: call(session, "read_file", path="part0/module0.py")
            ),
            "first command, s": first,
        }


async def output(size: int, folder: Path) -> Figures:
    """Bytes that a command writes."""
    from ferrule.toolkits.commands.run_command_tool import run_command

    root = folder / "work"
    root.mkdir()
    async with open_session(root, folder, [run_command]) as session:
        command = f"yes 'a line of forty characters, or nearly so' | head -c {size}"
        result = await session.call("run_command", command=command)
        return {
            "a command, s": await cost(lambda: session.call("run_command", command=command), 3),
            "inline, bytes": float(len(str(result.data))),
        }


async def concurrent(size: int, folder: Path) -> Figures:
    """Runs at once, of one agent; the figure is for one of them."""
    from ferrule import Agent, Storage
    from ferrule.models.scripted import calls, says
    from ferrule.tools.decorator import tool

    @tool(side_effect="read")
    async def peek(n: int) -> str:
        """Look."""
        await asyncio.sleep(0.01)
        return str(n)

    def step(history: Any) -> Any:
        return says("done") if len(history) > 1 else calls(("peek", {"n": 1}))

    agent = Agent(answers(step), [peek], storage=Storage(journal=folder / "journal.db"))

    async def run() -> None:
        await asyncio.gather(*(agent.run("go") for _ in range(size)))

    found = await cost(run, 3) / size
    await agent.close()
    agent.journal.close()
    return {"a run, s": found}


async def rules(size: int, folder: Path) -> Figures:
    """Rules, and as many grants; a call that none of them covers is the dearest."""
    from ferrule.permissions.rule_evaluation import PermissionGate
    from ferrule.permissions.rules import RuleSet
    from ferrule.toolkits.commands.run_command_tool import run_command
    from ferrule.toolkits.files.tools import read_file

    allow = [f"Read(folder{n}/**)" for n in range(size // 2)]
    allow += [f"Bash(program{n}:*)" for n in range(size - size // 2)]
    gate = PermissionGate(RuleSet.parse(allow=allow, deny=["Read(secret/**)"]), root=str(folder))
    granted = PermissionGate(root=folder)
    for rule in allow:
        granted.grant(rule)
    numbers = itertools.count()

    def judge(gate: PermissionGate) -> None:
        # Another command each time: the decision about one is kept.
        gate.decide(run_command, {"command": f"make {next(numbers)}"})

    return {
        "read the rules, s": await cost(lambda: RuleSet.parse(allow=allow)),
        "judge a path, s": await cost(lambda: gate.find_refusal("other/file.py", write=False)),
        "judge a command, s": await cost(lambda: judge(gate)),
        "judge a command among grants, s": await cost(lambda: judge(granted)),
        "first call of a session, s": await cost(
            lambda: gate.for_session().decide(read_file, {"path": "other/file.py"})
        ),
    }


async def artifacts(size: int, folder: Path) -> Figures:
    """Artifacts of a session, of 20 KB each."""
    from ferrule.storage.artifacts.files import FileArtifactStore
    from ferrule.storage.artifacts.store import Scope

    store = FileArtifactStore(folder / "kept")
    scope = Scope("t", "u", "s")
    kept = [store.put(scope, [f"{number}\n".encode() * 4_000]) for number in range(size)]
    found = {
        "keep one, s": await cost(lambda: store.put(scope, [os.urandom(20_000)])),
        "read one, s": await cost(lambda: store.read(scope, kept[-1].reference, 0, 4_000)),
        "list, s": await cost(lambda: store.list(scope)),
    }
    store.close()
    return found


def make_markdown(size: int) -> str:
    """Return so many characters of Markdown."""
    paragraph = "A sentence with `code` and **weight**, then a list.\n\n- one\n- two\n\n"
    return (paragraph * (size // len(paragraph) + 1))[:size]


async def streamed(size: int, folder: Path) -> Figures:
    """Bytes of one answer, streamed as Markdown to a terminal, 20 at a time."""
    from ferrule.cli.chat.markdown import RowRenderer
    from ferrule.cli.chat.markdown_stream import MarkdownStream

    text = make_markdown(size)

    def paint() -> None:
        stream = MarkdownStream(RowRenderer(100, colour=True))
        for at in range(0, len(text), 20):
            stream.add(text[at : at + 20])
            stream.take_finished()
        stream.render_rest()

    return {"paint all, s": await cost(paint, 2)}


async def servers(size: int, folder: Path) -> Figures:
    """MCP servers over stdio, each a program of twenty lines that imports `json` alone.

    The cost of opening them is divided by their number. `ready` is a clock's time for all together.
    """
    from ferrule import Agent, Permissions, Storage
    from ferrule.connectors import McpServer, connect_mcp

    program = folder / "server.py"
    program.write_text(PLAIN_SERVER)
    configured = [
        McpServer(f"s{n}", command=("/usr/bin/python3", "-I", str(program))) for n in range(size)
    ]
    begun, clock = spent(), time.perf_counter()
    async with connect_mcp(configured, workspace=folder) as opened:
        ready = time.perf_counter() - clock
        opening = (spent() - begun) / size
        agent = Agent(
            "scripted:none",
            opened.tools,
            workspace=folder,
            permissions=Permissions(allow=[f"mcp__s{n}" for n in range(size)]),
            storage=Storage(journal=folder / "journal.db"),
        )
        session = agent.session()
        found = {
            "open one, s": opening,
            "ready by the clock, s": ready,
            "a call, s": await cost(lambda: call(session, "s0__echo", text="word")),
        }
        await session.close()
        await agent.close()
    return found


PLAIN_SERVER = """
import json, sys

ECHO = {"name": "echo", "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}}}
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    method, params = asked["method"], asked.get("params", {})
    answer = {"jsonrpc": "2.0", "id": asked["id"]}
    if method == "initialize":
        answer["result"] = {
            "protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
            "serverInfo": {"name": "plain", "version": "1"},
        }
    elif method == "tools/list":
        answer["result"] = {"tools": [ECHO]}
    elif method == "tools/call":
        text = params["arguments"]["text"]
        answer["result"] = {"content": [{"type": "text", "text": text}]}
    elif method == "ping":
        answer["result"] = {}
    else:
        answer["error"] = {"code": -32601, "message": "no such method"}
    print(json.dumps(answer), flush=True)
"""


async def subagents(size: int, folder: Path) -> Figures:
    """Sub-agents of one session, five at a time; the figure is for one of them."""
    from ferrule import Agent, Permissions, Storage, SubAgent
    from ferrule.models.scripted import says
    from ferrule.plugins import Parts

    reader = SubAgent("reader", "Reads.", "You read.")
    agent = Agent(
        answers(lambda _: says("done")),
        plugins=[Parts(agents=[reader])],
        permissions=Permissions(allow=["delegate"]),
        storage=Storage(journal=folder / "journal.db"),
    )
    session = agent.session()

    places = asyncio.Semaphore(5)

    async def read(number: int) -> None:
        async with places:
            result = await session.delegate(f"read page {number}", "reader")
        if not result.success:
            raise SystemExit(f"delegate: {result.error_message}")

    async def delegate() -> None:
        await asyncio.gather(*(read(number) for number in range(size)))

    found = await cost(delegate, 3) / size
    await session.close()
    await agent.close()
    return {"one, s": found}


async def index(size: int, folder: Path) -> Figures:
    """Source files of a code index, each with a class, two functions and uses of others' names."""
    from ferrule.permissions.filesystem.workspace import Workspace
    from ferrule.toolkits.code_index.index import CodeIndex

    for number in range(size):
        package = folder / "work" / f"package{number // 100}"
        package.mkdir(parents=True, exist_ok=True)
        package.joinpath(f"module{number}.py").write_text(
            f"class Model{number}:\n    def save(self):\n        return make_{number // 2}(1)\n\n\n"
            f"def make_{number}(value):\n    return value\n" + "# a line of words\n" * 30
        )
    workspace = Workspace(folder / "work")
    code = CodeIndex(folder / "index.db")

    def refresh() -> None:
        progress = code.refresh(workspace, 600)
        if not progress.complete:
            raise SystemExit(f"index: {progress}")

    begun = spent()
    await asyncio.to_thread(refresh)
    made = spent() - begun
    found = {
        "make it, s": made,
        "find it unchanged, s": await cost(lambda: asyncio.to_thread(refresh), 3),
        "a definition, s": await cost(
            lambda: code.store.find_definitions(f"make_{size // 2}", limit=5)
        ),
        "kept, bytes": float(sum(file.stat().st_size for file in folder.glob("index.db*"))),
    }
    code.close()
    workspace.close()
    return found


@asynccontextmanager
async def browse_console(agent: Any, identify: Callable[[Any], Any]) -> AsyncIterator[Any]:
    """Yield an HTTP client of an agent's console, in this process."""
    from ferrule.web import create_console

    address = "http://console.example"
    mounted = create_console(agent, address=address, identify=identify)
    async with mounted, client(mounted, address) as browser:
        yield browser


async def readers(size: int, folder: Path) -> Figures:
    """People who use the console, each with a session of their own that somebody reads live."""
    from ferrule import Agent, Storage
    from ferrule.models.scripted import says
    from ferrule.web import Principal

    agent = Agent(
        answers(lambda _: says("done")),
        storage=Storage(journal=folder / "journal.db", user="operator"),
    )
    people = {f"person{n}": Principal(f"person{n}") for n in range(size)}

    def identify(request: Any) -> Principal | None:
        return people.get(request.headers.get("x-person", ""))

    async with browse_console(agent, identify) as browser:
        for name in people:
            copy = agent.copy_for_user(name)
            await copy.run("hello")

        async def look(name: str) -> None:
            page = await browser.get("/runs", headers={"x-person": name})
            if page.status_code != 200 or "hello" not in page.text:
                raise SystemExit(f"console: {page.status_code} {page.text[:200]}")

        return {
            "a page of one of them, s": await cost(lambda: look("person0")),
            "a page for each, s": await cost(
                lambda: asyncio.gather(*(look(name) for name in people)), 2
            ),
        }


async def searched(size: int, folder: Path) -> Figures:
    """Sessions of one person in the console's list, and a search in what was said in them."""
    from ferrule import Agent, Storage
    from ferrule.models.scripted import says
    from ferrule.web import Principal

    file = folder / "journal.db"
    many_sessions.fill(file, size)
    agent = Agent(answers(lambda _: says("done")), storage=Storage(journal=file, user="u3"))
    async with browse_console(agent, lambda request: Principal("u3")) as browser:

        async def look(words: str, expected: str) -> None:
            page = await browser.get("/runs/list", params={"words": words})
            if page.status_code != 200 or expected not in page.text:
                raise SystemExit(f"console: {page.status_code} {page.text[:200]}")

        return {
            "the list, s": await cost(lambda: look("", "Please fix bug")),
            "a search, s": await cost(lambda: look("off-by-one loop", "Please fix bug")),
        }


async def shown(size: int, folder: Path) -> Figures:
    """Bytes of an answer in Markdown on its page in the console."""
    from ferrule import Agent, Storage
    from ferrule.models.scripted import says
    from ferrule.web import Principal

    agent = Agent(
        answers(lambda _: says(make_markdown(size))),
        storage=Storage(journal=folder / "journal.db", user="me"),
    )
    async with browse_console(agent, lambda request: Principal("me")) as browser:
        run = await agent.run("go")

        async def look() -> None:
            page = await browser.get(f"/runs/{run.session}")
            if page.status_code != 200 or "sentence" not in page.text:
                raise SystemExit(f"console: {page.status_code} {page.text[:200]}")

        return {"its page, s": await cost(look)}


async def callers(size: int, folder: Path) -> Figures:
    """Clients of the server for chat completions that ask at once; the figure is for one."""
    from ferrule import Agent, Storage
    from ferrule.models.scripted import says
    from ferrule.web import Principal, create_openai_endpoint

    agent = Agent(answers(lambda _: says("done")), storage=Storage(journal=folder / "journal.db"))
    mounted = create_openai_endpoint(
        agent,
        address="http://api.example",
        identify=lambda request: Principal(request.headers["x-person"]),
    )

    async with mounted, client(mounted, "http://api.example") as caller:

        async def ask(number: int) -> None:
            body = {"model": "ferrule", "messages": [{"role": "user", "content": "go"}]}
            answer = await caller.post(
                "/v1/chat/completions", json=body, headers={"x-person": f"person{number}"}
            )
            if answer.status_code != 200 or "done" not in answer.text:
                raise SystemExit(f"chat completions: {answer.status_code} {answer.text[:200]}")

        def ask_all() -> Any:
            return asyncio.gather(*(ask(number) for number in range(size)))

        return {"a request, s": await cost(ask_all, 3) / size}


def client(app: Any, address: str) -> Any:
    """Return an HTTP client of an application in this process."""
    import httpx

    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=address, timeout=None)


AXES = {
    "turns": Axis(
        "turns of a session",
        (10, 50, 250, 1_500, 10_000),
        turns,
        {
            "a turn, s": "flat",
            "list, s": "linear",
            "resume, s": "linear",
            "verify, s": "linear",
            "journal, bytes": "linear",
        },
    ),
    "compacted": Axis(
        "turns of a session that is compacted",
        (10, 50, 250, 1_000, 4_000),
        compacted_turns,
        {"a turn, s": "flat", "resume, s": "linear"},
    ),
    "sessions": Axis(
        "sessions of a journal",
        (100, 1_000, 10_000, 100_000, 1_000_000),
        sessions,
        {
            "first page, s": "flat",
            "of one owner, s": "flat",
            "resume, s": "flat",
            "verify one, s": "flat",
            "journal, bytes": "linear",
        },
    ),
    "catalog": Axis(
        "tools of a catalog",
        (10, 100, 500, 2_000, 10_000),
        catalog,
        {
            "a run, deferred, s": "flat",
            "a run, offered, s": "linear",
            "index, s": "linear",
            "search, s": "linear",
        },
    ),
    "files": Axis(
        "files of a workspace",
        (1_000, 5_000, 30_000, 180_000, 1_000_000),
        files,
        {
            "search, s": "linear",
            "tree, s": "linear",
            "list a folder, s": "flat",
            "read a file, s": "flat",
            "first command, s": "flat",
        },
    ),
    "output": Axis(
        "bytes of a command's output",
        (1_000, 30_000, 1_000_000, 30_000_000, 1_000_000_000),
        output,
        {"a command, s": "linear", "inline, bytes": "linear"},
    ),
    "concurrent": Axis("runs at once", (1, 10, 50, 400, 2_000), concurrent, {"a run, s": "flat"}),
    "rules": Axis(
        "rules and grants",
        (10, 100, 500, 2_000, 10_000),
        rules,
        {
            "read the rules, s": "linear",
            "judge a path, s": "flat",
            "judge a command, s": "flat",
            "judge a command among grants, s": "flat",
            "first call of a session, s": "flat",
        },
    ),
    "artifacts": Axis(
        "artifacts of a session",
        (10, 50, 250, 1_000, 4_000),
        artifacts,
        {"keep one, s": "flat", "read one, s": "flat", "list, s": "linear"},
    ),
    "streamed": Axis(
        "bytes of a streamed answer",
        (1_000, 5_000, 25_000, 100_000, 400_000),
        streamed,
        {"paint all, s": "linear"},
    ),
    "servers": Axis(
        "MCP servers",
        (1, 3, 10, 20, 40),
        servers,
        {"open one, s": "flat", "ready by the clock, s": "linear", "a call, s": "flat"},
    ),
    "subagents": Axis(
        "sub-agents of a session", (1, 5, 20, 80, 200), subagents, {"one, s": "flat"}
    ),
    "index": Axis(
        "files of a code index",
        (100, 500, 2_000, 8_000, 20_000),
        index,
        {
            "make it, s": "linear",
            "find it unchanged, s": "linear",
            "a definition, s": "flat",
            "kept, bytes": "linear",
        },
    ),
    "readers": Axis(
        "people who use the console",
        (1, 10, 50, 250, 1_000),
        readers,
        {"a page of one of them, s": "flat", "a page for each, s": "linear"},
    ),
    "searched": Axis(
        "sessions of a person in the console",
        (100, 1_000, 10_000, 50_000, 200_000),
        searched,
        {"the list, s": "flat", "a search, s": "linear"},
    ),
    "shown": Axis(
        "bytes of an answer on a page of the console",
        (1_000, 10_000, 50_000, 200_000, 1_000_000),
        shown,
        {"its page, s": "linear"},
    ),
    "callers": Axis(
        "clients that ask a server at once",
        (1, 10, 50, 250, 1_000),
        callers,
        {"a request, s": "flat"},
    ),
}


# ------------------------------------------------------------------------------------------- slopes


@dataclass(frozen=True)
class Slope:
    """The exponent by which something grows, and half of its interval of 95 %."""

    value: float
    half: float

    def misses(self, expected: str) -> bool:
        """Whether even the lower end is over what is expected."""
        return self.value - self.half > LIMITS[expected]


def fit(sizes: list[int], values: list[float], floor: float = FLOOR) -> Slope:
    """Fit a straight line through the logarithms.

    Args:
        sizes: At least three.
        values: One for each size.
        floor: Below it a value counts as this much.
    """
    xs = [math.log(size) for size in sizes]
    ys = [math.log(max(value, floor)) for value in values]
    slope, start = statistics.linear_regression(xs, ys)
    middle = statistics.fmean(xs)
    rest = sum((y - start - slope * x) ** 2 for x, y in zip(xs, ys, strict=True))
    freedom = len(xs) - 2
    error = math.sqrt(rest / freedom / sum((x - middle) ** 2 for x in xs))
    return Slope(slope, T_95[freedom] * error)


def measure_apart(name: str, size: int) -> Figures:
    """Measure one size in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="ferrule-growth-") as folder:
        command = [sys.executable, __file__, "--one", name, str(size), folder]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name} {size}: exit {done.returncode}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def measure_here(name: str, size: int, folder: str) -> None:
    """Print the figures of one size as JSON."""
    os.environ["FERRULE_STATE"] = str(Path(folder, "state"))
    work = Path(folder, "measured")
    work.mkdir()
    found = asyncio.run(AXES[name].measure(size, work))
    found["memory, bytes"] = read_peak_memory()
    print(json.dumps(found))


def write_table(figures: dict[str, dict[int, Figures]]) -> str:
    """Return the table of the page: the ends of each row, and its slope."""
    lines = ["| what grows | figure | smallest | largest | slope | |", "|---|---|--:|--:|--:|---|"]
    for name, rows in figures.items():
        sizes = sorted(rows)
        grows = f"{AXES[name].grows}, {sizes[0]:,} to {sizes[-1]:,}"
        for figure, expected in AXES[name].expected.items():
            if not all(figure in row for row in rows.values()):
                continue  # measured before there was such a figure
            values = [rows[size][figure] for size in sizes]
            slope = fit(sizes, values)
            verdict = f"{expected}, missed" if slope.misses(expected) else expected
            ends = " | ".join(show(figure, value) for value in (values[0], values[-1]))
            shown = f"{slope.value:.2f} ± {slope.half:.2f}"
            lines.append(
                f"| {grows} | {figure.rpartition(', ')[0]} | {ends} | {shown} | {verdict} |"
            )
            grows = ""
    return "\n".join(["", *lines, "", ""])


def show(figure: str, value: float) -> str:
    """Return a figure with its unit."""
    if figure.endswith("bytes"):
        return f"{value / 1e6:,.1f} MB" if value >= 1e5 else f"{value / 1e3:,.1f} KB"
    return f"{value * 1e3:,.2f} ms"


def read_peak_memory() -> float:
    """Return the largest memory of this process. `ru_maxrss` would be that of its parent, too."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024.0


def report(name: str, rows: dict[int, Figures]) -> Iterator[tuple[str, Slope | None, bool]]:
    """Print a table of one axis, and yield each figure with its slope and whether it misses."""
    axis = AXES[name]
    sizes = sorted(rows)
    print(f"\n{axis.grows}: {', '.join(f'{size:,}' for size in sizes)}")
    for figure in rows[sizes[0]]:
        values = [rows[size][figure] for size in sizes]
        shown = "  ".join(f"{show(figure, value):>12}" for value in values)
        slope = fit(sizes, values) if len(sizes) > 2 else None
        expected = axis.expected.get(figure, "")
        missed = bool(slope and expected and slope.misses(expected))
        tail = f"{slope.value:5.2f} ± {slope.half:.2f}" if slope else ""
        print(f"  {figure:22} {shown}   {tail} {expected}{' MISSED' if missed else ''}")
        yield figure, slope, missed


def write(figures: dict[str, dict[int, Figures]]) -> None:
    """Write what is known into the documentation."""
    FIGURES.write_text(json.dumps(figures, indent=1) + "\n")
    table = write_table(figures)
    PAGE.write_text(TABLE.sub(lambda _: table, PAGE.read_text()))
    draw(figures)


def draw(figures: dict[str, dict[int, Figures]]) -> None:
    """Draw one small plot for each axis, both scales logarithmic."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "growth", "font.size": 8, "svg.fonttype": "none"})
    from matplotlib import pyplot

    columns = 2
    height = math.ceil(len(figures) / columns)
    picture, places = pyplot.subplots(
        height, columns, figsize=(9, 2.8 * height), squeeze=False, layout="constrained"
    )
    for place in places.flat[len(figures) :]:
        place.remove()
    for place, (name, rows) in zip(places.flat, figures.items(), strict=False):
        sizes = sorted(rows)
        for figure in rows[sizes[0]]:
            if figure.endswith(", s"):
                values = [max(rows[size][figure], FLOOR) * 1e3 for size in sizes]
                place.loglog(sizes, values, marker="o", markersize=3, label=figure[:-3])
        place.set_title(AXES[name].grows)
        place.set_ylabel("ms of processor time")
        place.grid(visible=True, alpha=0.3)
        place.legend(fontsize=7)
    picture.savefig(PLOTS, metadata={"Date": None})


def main() -> int:
    """Measure what was asked for; the exit status says whether a slope missed what it is held to."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    options.add_argument("axes", nargs="*", metavar="AXIS", help=f"of {', '.join(AXES)}")
    options.add_argument("--sizes", type=int, default=5, help="only so many of the smallest sizes")
    options.add_argument("--write", action="store_true", help="figures and plots into docs/")
    options.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.one:
        measure_here(chosen.one[0], int(chosen.one[1]), chosen.one[2])
        return 0
    unknown = [name for name in chosen.axes if name not in AXES]
    if unknown:
        options.error(f"no axis is called {unknown[0]!r}; there are {', '.join(AXES)}")
    kept = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    measured: dict[str, dict[int, Figures]] = {
        name: {int(size): row for size, row in rows.items()} for name, rows in kept.items()
    }
    missed: list[str] = []
    for name in chosen.axes or AXES:
        rows = {size: measure_apart(name, size) for size in AXES[name].sizes[: chosen.sizes]}
        measured[name] = rows
        missed += [f"{name}: {figure}" for figure, _, bad in report(name, rows) if bad]
        if chosen.write:
            write({name: measured[name] for name in AXES if name in measured})
    print(f"\nmissed: {'; '.join(missed) or 'nothing'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
