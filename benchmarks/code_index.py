"""What the code index costs, and ten questions answered with it and with search alone.

    make lab NAME=code-index                                  # installs the sources below build/code-index
    python benchmarks/code_index.py FOLDER --questions FOLDER/python/django --page

The first part makes an index of a folder: files by language, files a second, memory, what turns of
a session take meanwhile, and how long an answer takes after a file was changed (the files are
changed where they lie, and put back). The second asks ten questions about Django, each by two fixed
procedures:

    definition   "show me the whole of X"
        index    find_symbol(X, show_source)
        search   search_files for `def X` or `class X`, then read_file from there, 60 lines at a
                 time, until the definition is over
    users        "which definitions use X"
        index    find_references(X)
        search   search_files for the word X, then file_outline of every file with a hit, to see
                 which definition a line lies in

What is right is found by Python's `ast`, apart from both. Tokens are estimated from the text of
calls and results. Everything runs through a session, as calls of a model would.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import json
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ferrule.engine.agent import Agent
from ferrule.engine.agent_options import Permissions
from ferrule.engine.context.compaction_plan import estimate_text_tokens
from ferrule.engine.session import Session
from ferrule.models.scripted import Scripted, calls, says
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.toolkits import BROWSE_TOOLS, FILE_TOOLS, SEARCH_TOOLS
from ferrule.toolkits.code_index.index import CodeIndex
from ferrule.toolkits.code_index.tools import TOOLS

PAGE = Path(__file__).resolve().parents[1] / "docs/built-in-tools.md"
MARK = "<!-- figures of `make lab NAME=code-index` -->"
PIP_PACKAGES = (
    "django==5.2.19",
    "sympy==1.14.0",
    "transformers==4.57.1",
    "langchain-community==0.3.31",
    "kubernetes==34.1.0",
    "pandas==2.3.3",
    "sqlalchemy==2.0.44",
    "ansible-core==2.19.4",
    "scikit-learn==1.7.2",
)
NPM_PACKAGES = ("three@0.187.0", "react-native@0.86.3")
QUIET_TURNS = 40
MOST_TURNS = 20_000
STEP = 60
"""Lines that the search procedure reads at a time."""
EDITS = 20
QUESTIONS = (
    ("definition", "QuerySet.bulk_create"),
    ("definition", "Model.save_base"),
    ("definition", "URLResolver.resolve"),
    ("definition", "cached_property"),
    ("definition", "make_hashable"),
    ("users", "make_hashable"),
    ("users", "NoReverseMatch"),
    ("users", "construct_instance"),
    ("users", "get_deleted_objects"),
    ("users", "salted_hmac"),
)


def main() -> None:
    """Install what is missing, and print both parts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--install", action="store_true", help="put the sources into the folder")
    parser.add_argument("--questions", type=Path, help="the folder of Django")
    parser.add_argument("--page", action="store_true", help="write the figures into the page")
    given = parser.parse_args()
    if given.install:
        install_sources(given.folder)
    load = os.getloadavg()[0]
    lines = [f"{os.cpu_count()} cores, {load:.0f} processes wanted them when it began"]
    lines += _measure_index(given.folder.resolve())
    print("\n".join(lines), flush=True)
    if given.questions:
        rows = asyncio.run(_ask_questions(given.questions.resolve()))
        print("\n".join(rows))
        lines += ["", *rows]
    if given.page:
        head, _, rest = PAGE.read_text().partition(f"{MARK}\n")
        tail = rest.partition("\n```\n")[2]
        block = "\n".join(lines)
        PAGE.write_text(f"{head}{MARK}\n```text\n{block}\n```\n{tail}")


def install_sources(folder: Path) -> None:
    """Install packages whose sources are more than 10,000 files. Nothing of them is run."""
    python = folder / "python"
    if not python.exists():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile"]
        subprocess.run([*pip, "--target", python, *PIP_PACKAGES], check=True)
    script = folder / "npm"
    if shutil.which("npm") and not script.exists():
        script.mkdir()
        for package in NPM_PACKAGES:
            name = package.partition("@")[0]
            packed = subprocess.run(
                ["npm", "pack", "--silent", package], cwd=script, check=True, capture_output=True
            )
            archive = script / packed.stdout.decode().split()[-1]
            with tarfile.open(archive) as tar:
                tar.extractall(script / name, filter="data")
            archive.unlink()


# What it costs


def _measure_index(root: Path) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        index = CodeIndex(Path(folder) / "index.db")
        workspace = Workspace(root)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        watch = _ParserWatch()
        quiet, busy, seconds = asyncio.run(_measure_turns(root, index, workspace))
        watch.stop()
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        files = index.store.files().values()
        languages = Counter(file.language for file in files if not file.problem)
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
        yield f"{len(files):,} source files, {sum(languages.values()):,} of them parsed"
        yield "  " + ", ".join(f"{name} {count:,}" for name, count in languages.most_common())
        bytes_read = sum(file.size for file in files)
        yield (
            f"first reading       {seconds:.0f} s beside turns of a session: "
            f"{len(files) / seconds:.0f} files/s, {bytes_read / seconds / 1e6:.1f} MB/s"
        )
        yield (
            f"memory              this process {(after - before) / 1024:.0f} MiB more at its peak, "
            f"the parser {watch.peak / 1024:.0f} MiB, the file {size / 1e6:.0f} MB"
        )
        yield f"a turn without it   {_describe_times(quiet)}"
        yield f"a turn beside it    {_describe_times(busy)}"
        begun = time.perf_counter()
        worked = time.process_time()
        index.refresh(workspace, 600)
        worked = 1000 * (time.process_time() - worked)
        waited = 1000 * (time.perf_counter() - begun)
        yield f"nothing changed     compared in {waited:.0f} ms, {worked:.0f} ms of it our processor time"
        yield _measure_freshness(root, index, workspace)
        index.close()
        workspace.close()


def _describe_times(seconds: list[float]) -> str:
    ordered = sorted(1000 * one for one in seconds)
    high = ordered[int(len(ordered) * 0.95)]
    median = statistics.median(ordered)
    return f"{median:.0f} ms median, {high:.0f} ms p95 ({len(ordered)} turns)"


def _measure_freshness(root: Path, index: CodeIndex, workspace: Workspace) -> str:
    """Change files in turn, ask for what is new each time, and put them back."""
    times: list[float] = []
    worked: list[float] = []
    right = 0
    for number, path in enumerate(sorted(root.rglob("*.py"))[::500][:EDITS]):
        content = path.read_bytes()
        name = f"added_by_edit_{number}"
        try:
            path.write_bytes(content + f"\n\ndef {name}(): ...\n".encode())
            begun = time.perf_counter()
            before = time.process_time()
            index.refresh(workspace, 60)
            found = index.store.find_definitions(name, limit=5)
            times.append(time.perf_counter() - begun)
            worked.append(time.process_time() - before)
            right += len(found) == 1
        finally:
            path.write_bytes(content)
    median = 1000 * statistics.median(times)
    ours = 1000 * statistics.median(worked)
    return (
        f"after an edit       {right} of {len(times)} answers have it, median {median:.0f} ms, "
        f"{ours:.0f} ms of it our processor time"
    )


async def _measure_turns(
    root: Path, index: CodeIndex, workspace: Workspace
) -> tuple[list[float], list[float], float]:
    """Return the seconds of turns without the index and while it is made, and what that took."""
    path = str(next(root.rglob("query.py")).relative_to(root))
    reads = calls(
        ("read_file", {"path": path, "line_start": 1, "line_end": 200}),
        ("search_files", {"pattern": "def __init__", "path": str(Path(path).parent)}),
    )
    agent = Agent(
        Scripted([step for _ in range(MOST_TURNS) for step in (reads, says("done"))]),
        [*FILE_TOOLS, *SEARCH_TOOLS],
        workspace=root,
        permissions=Permissions(allow=["Read"]),
    )
    session = agent.session()

    async def take_turn() -> float:
        begun = time.perf_counter()
        result = await session.run("go")
        assert all(one.success for one in result.results)
        # A person reads, a model thinks: turns do not follow each other without a pause.
        seconds = time.perf_counter() - begun
        await asyncio.sleep(0.05)
        return seconds

    await take_turn()
    quiet = [await take_turn() for _ in range(QUIET_TURNS)]
    begun = time.perf_counter()
    number = index.start(workspace)
    busy: list[float] = []
    while not index.wait(number, 0).complete:
        busy.append(await take_turn())
    seconds = time.perf_counter() - begun
    await session.close()
    agent.journal.close()
    return quiet, busy, seconds


class _ParserWatch:
    """The most memory that a parser process has had, in KiB."""

    def __init__(self) -> None:
        self.peak = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            for place in Path("/proc").glob("[0-9]*"):
                try:
                    if b"code_index/parser.py" in (place / "cmdline").read_bytes():
                        found = re.search(r"VmHWM:\s+(\d+)", (place / "status").read_text())
                        self.peak = max(self.peak, int(found[1]) if found else 0)
                except OSError:
                    continue


# Ten questions


class Procedure:
    """A session and what its calls and results amount to."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.calls = 0
        self.tokens = 0

    async def call(self, tool: str, **arguments: Any) -> str:
        """Make a call, and count it."""
        result = await self._session.call(tool, **arguments)
        text = result.to_text()
        self.calls += 1
        self.tokens += estimate_text_tokens(f"{tool}{json.dumps(arguments)}")
        self.tokens += estimate_text_tokens(text)
        return text


async def _ask_questions(root: Path) -> list[str]:
    agent = Agent(
        Scripted([]),
        [*TOOLS, *SEARCH_TOOLS, *FILE_TOOLS, *BROWSE_TOOLS],
        workspace=root,
        permissions=Permissions(allow=["Read"]),
    )
    session = agent.session()
    await session.call("code_outline")
    for _ in range(100):
        if "not complete" not in (await session.call("find_symbol", name="main")).to_text():
            break
    truth = _Truth(root)
    total = [0, 0, 0, 0]
    row = "{:<34} {:>6} {:>8}  {:<6} {:>6} {:>8}  {}"
    rows = [
        row.format("question", "calls", "tokens", "right", "calls", "tokens", "right"),
        row.format("", "index", "", "", "search", "", ""),
    ]
    for kind, name in QUESTIONS:
        indexed = Procedure(session)
        searched = Procedure(session)
        if kind == "definition":
            first = await _define_by_index(indexed, name, truth)
            second = await _define_by_search(searched, name, truth)
        else:
            first = await _use_by_index(indexed, name, truth)
            second = await _use_by_search(searched, name, truth)
        counts = (indexed.calls, indexed.tokens, searched.calls, searched.tokens)
        total = [old + new for old, new in zip(total, counts, strict=True)]
        rows.append(
            row.format(
                f"{kind} {name}", indexed.calls, indexed.tokens, first, searched.calls,
                searched.tokens, second,
            )
        )  # fmt: skip
    rows.append(row.format("all", total[0], total[1], "", total[2], total[3], ""))
    await session.close()
    await agent.close()
    return [line.rstrip() for line in rows]


class _Truth:
    """What Python's own parser says of a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.trees = {
            str(path.relative_to(root)): ast.parse(path.read_bytes())
            for path in sorted(root.rglob("*.py"))
        }

    def define(self, name: str) -> tuple[str, int, int]:
        """Return path, first and last line of the only definition of `Class.method` or a name."""
        found = [
            (path, node.lineno, node.end_lineno or 0)
            for path, tree in self.trees.items()
            for around, node in _definitions(tree, "")
            if f"{around}{node.name}" == name
        ]
        assert len(found) == 1, (name, found)
        return found[0]

    def users(self, name: str) -> set[tuple[str, str]]:
        """Return the files and definitions whose code has a name, but for its own definition."""
        found: set[tuple[str, str]] = set()
        for path, tree in self.trees.items():
            spans = [
                (node.lineno, node.end_lineno or 0, f"{around}{node.name}")
                for around, node in _definitions(tree, "")
            ]
            for node in ast.walk(tree):
                if _has_name(node, name):
                    line = getattr(node, "lineno", 0)
                    inside = [span for span in spans if span[0] <= line <= span[1]]
                    where = max(inside, default=(0, 0, ""))[2]
                    found.add((path, where))
        return found


def _definitions(node: ast.AST, around: str) -> Iterator[tuple[str, Any]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield around, child
            yield from _definitions(child, f"{around}{child.name}.")
        else:
            yield from _definitions(child, around)


def _has_name(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.Name):
        return node.id == name
    if isinstance(node, ast.Attribute):
        return node.attr == name
    return isinstance(node, ast.alias) and node.name == name


async def _define_by_index(procedure: Procedure, name: str, truth: _Truth) -> str:
    answer = await procedure.call("find_symbol", name=name, show_source=True)
    path, first, last = truth.define(name)
    shown = set(map(int, re.findall(r"^(\d+): ", answer, re.M)))
    return "yes" if path in answer and set(range(first, last + 1)) <= shown else "no"


async def _define_by_search(procedure: Procedure, name: str, truth: _Truth) -> str:
    around, _, last_name = name.rpartition(".")
    path, first, last = truth.define(name)
    pattern = rf"(def|class) {last_name}\b"
    answer = await procedure.call("search_files", pattern=pattern, file_filter="*.py")
    hits = re.findall(r"^(\S+?\.py):(\d+):", answer, re.M)
    for found_path, found_line in hits:
        if around:
            # A method: only its class tells which of them is meant.
            outline = await procedure.call("file_outline", path=found_path)
            if f"class {around}" not in outline:
                continue
        if (found_path, int(found_line)) != (path, first):
            continue
        start = first
        while start <= last:
            await procedure.call(
                "read_file", path=path, line_start=start, line_end=start + STEP - 1
            )
            start += STEP
        return "yes"
    return "no"


async def _use_by_index(procedure: Procedure, name: str, truth: _Truth) -> str:
    answer = await procedure.call("find_references", name=name, max_results=1000)
    found: set[tuple[str, str]] = set()
    path = ""
    for line in answer.splitlines():
        if line.endswith(".py"):
            path = line
        elif row := re.match(r"\d+(?: \((\S+)\))?: ", line):
            found.add((path, row[1] or ""))
    return _compare(found, truth.users(name))


async def _use_by_search(procedure: Procedure, name: str, truth: _Truth) -> str:
    answer = await procedure.call(
        "search_files", pattern=rf"\b{name}\b", file_filter="*.py", max_results=1000
    )
    hits: dict[str, list[int]] = {}
    for path, line in re.findall(r"^(\S+?\.py):(\d+):", answer, re.M):
        hits.setdefault(path, []).append(int(line))
    found: set[tuple[str, str]] = set()
    for path, lines in hits.items():
        outline = await procedure.call("file_outline", path=path)
        rows = re.findall(r"^(\d+): ( *)(?:async )?(?:def|class) (\w+)", outline, re.M)
        found |= {(path, _locate(line, rows)) for line in lines}
    return _compare(found, truth.users(name))


def _locate(line: int, rows: list[tuple[str, str, str]]) -> str:
    """Return the definitions above a line, by the indentation of an outline."""
    around: list[tuple[int, str]] = []
    for number, margin, name in rows:
        if int(number) > line:
            break
        around = [one for one in around if one[0] < len(margin)]
        around.append((len(margin), name))
    return ".".join(name for _, name in around)


def _compare(found: set[tuple[str, str]], right: set[tuple[str, str]]) -> str:
    missing = len(right - found)
    wrong = len(found - right)
    return "yes" if not missing and not wrong else f"-{missing} +{wrong}"


if __name__ == "__main__":
    main()
