"""How well a tool is found among many, and how fast: requests over public function catalogs.

The catalogs are those of the Berkeley Function Calling Leaderboard (Patil et al. 2025), from the
PyPI package `bfcl-eval` (Apache-2.0; fetched once, without what it depends on). Each category is
one catalog of all functions in it; a request counts as found where one of the functions that its
answer calls is among the first results. The weights of the default ranking were fitted to requests
with even numbers (from 0) alone: figures are for those, then for the others, which nothing was
fitted to. A last catalog is Ferrule's own tools with the requests of `evals/tasks.yaml`: nothing
was fitted to it either.

`python benchmarks/search.py --views` says what each view of the default ranking is worth: how many
of all requests are found with it left out. A view that costs nothing to leave out is to go.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ferrule.storage import paths
from ferrule.tools.define import define_tool
from ferrule.tools.definition import Tool
from ferrule.tools.search import default_ranking
from ferrule.tools.search.index import ToolIndex

PACKAGE = "bfcl-eval==2026.3.23"
CATALOGS = {
    "simple": ("simple_python",),
    "multiple": ("multiple",),
    "live simple": ("live_simple",),
    "live multiple": ("live_multiple",),
}
STRATEGIES = ("bm25", "hybrid", "default")
TASKS_FILE = Path(__file__).parent.parent / "evals" / "tasks.yaml"
Row = tuple[str, str, str, str]
Request = tuple[str, set[str]]
"""What somebody asks, and the tools that answer it."""


def measured() -> Iterator[Row]:
    """Rows for the table of `run.py`; one row that says why where the catalogs cannot be had."""
    wheel = fetched()
    if wheel is None:
        yield "recall of tool search", "not measured", f"{PACKAGE} cannot be had", ""
        return
    with zipfile.ZipFile(wheel) as archive:
        for label, files in CATALOGS.items():
            yield compared(f"`{label}`", *catalog(archive, files))
        everything, requests = catalog(archive, ("simple_python", "multiple", "live_multiple"))
    yield compared("Ferrule's own", *own())
    yield from timed(everything[:1000], requests)


def compared(label: str, tools: list[Tool], requests: list[Request]) -> Row:
    index = ToolIndex(tools)
    found = {name: recalls(index, requests, name) for name in STRATEGIES}
    beside = ", ".join(f"{name} {found[name]}" for name in ("bm25", "hybrid"))
    name = f"search {label} ({len(tools)} tools): % found at 1/5, even | odd requests"
    return name, found["default"], beside, "> bm25"


def print_views() -> None:
    """Print how many requests are found first and among five with each view left out."""
    wheel = fetched()
    if wheel is None:
        sys.exit(f"{PACKAGE} cannot be had")
    with zipfile.ZipFile(wheel) as archive:
        sets = [catalog(archive, files) for files in CATALOGS.values()]
    sets.append(own())
    indexes = [(ToolIndex(tools), requests) for tools, requests in sets]
    print(f"{'without':10} even: first  five   odd: first  five   own: first  five")
    for view in ("nothing", *default_ranking.WEIGHTS):
        weights = dict(default_ranking.WEIGHTS)
        default_ranking.WEIGHTS[view] = 0.0
        found = [
            (count_found(index, requests[::2]), count_found(index, requests[1::2]))
            for index, requests in indexes
        ]
        default_ranking.WEIGHTS.clear()
        default_ranking.WEIGHTS.update(weights)
        public, (own_even, own_odd) = found[:-1], found[-1]
        even = [sum(counts) for counts in zip(*(half for half, _ in public), strict=True)]
        odd = [sum(counts) for counts in zip(*(half for _, half in public), strict=True)]
        ours = [one + other for one, other in zip(own_even, own_odd, strict=True)]
        cells = "        ".join(f"{first:8} {five:5}" for first, five in (even, odd, ours))
        print(f"{view:10} {cells}", flush=True)


def timed(tools: list[Tool], requests: list[Request]) -> Iterator[Row]:
    """CPU time: what else the machine does is not counted, though it makes caches cold."""
    index = ToolIndex(tools)
    index.prepare()
    spent: list[float] = []
    for text, _ in requests[:200]:
        started = time.process_time()
        index.search(text)
        spent.append((time.process_time() - started) * 1000)
    name = f"a search among {len(tools)} tools, CPU ms (median)"
    yield (
        name,
        f"{statistics.median(spent):.1f}",
        f"slowest of {len(spent)}: {max(spent):.1f}",
        "<= 5",
    )


def recalls(index: ToolIndex, requests: list[Request], strategy: str) -> str:
    """Shares found first and among five, for requests with even numbers and for the others."""
    halves: list[str] = []
    for half in (requests[::2], requests[1::2]):
        first, five = count_found(index, half, strategy)
        halves.append(f"{100 * first / len(half):.1f}/{100 * five / len(half):.1f}")
    return " | ".join(halves)


def count_found(
    index: ToolIndex, requests: list[Request], strategy: str = "default"
) -> tuple[int, int]:
    """Return how many requests are answered by the first result, and by one of five."""
    hits = [
        ([hit.name for hit in index.search(text, strategy, 5)], wanted) for text, wanted in requests
    ]
    first = sum(bool(wanted & set(names[:1])) for names, wanted in hits)
    five = sum(bool(wanted & set(names)) for names, wanted in hits)
    return first, five


def own() -> tuple[list[Tool], list[Request]]:
    """Tools that ship, and requests that models are tried with."""
    import yaml

    from ferrule.toolkits import clock, commands, tasks
    from ferrule.toolkits.files import browse
    from ferrule.toolkits.files import tools as files
    from ferrule.toolkits.git import git_command
    from ferrule.toolkits.git.tools import git_tools
    from ferrule.toolkits.packs import agent_command_tools, agent_edit_tools, agent_read_tools
    from ferrule.toolkits.search import search_files
    from ferrule.toolkits.stdlib import stdlib_tools

    packs = (
        agent_read_tools(),
        agent_edit_tools(),
        agent_command_tools(),
        git_tools(),
        stdlib_tools(),
    )
    plain = [
        one.TOOLS for one in (browse, clock, commands, files, git_command, search_files, tasks)
    ]
    tools = {one.full_name: one for made in (*packs, *plain) for one in made}
    rows = yaml.safe_load(TASKS_FILE.read_text(encoding="utf-8"))
    asked = [
        (row["request"], {row["tool"], *(one["tool"] for one in row.get("also", ()))})
        for row in rows
    ]
    return list(tools.values()), [(text, wanted) for text, wanted in asked if wanted & set(tools)]


def catalog(archive: zipfile.ZipFile, files: tuple[str, ...]) -> tuple[list[Tool], list[Request]]:
    """All functions of these categories, and requests with the names that answer them."""
    tools: dict[str, Tool] = {}
    requests: list[Request] = []
    for name in files:
        answers = {
            row["id"]: row["ground_truth"]
            for row in lines(archive, f"possible_answer/BFCL_v4_{name}")
        }
        for row in lines(archive, f"BFCL_v4_{name}"):
            for function in row["function"]:
                if function["name"] not in tools:
                    tools[function["name"]] = as_tool(function)
            text = " ".join(one["content"] for one in row["question"][0] if one["role"] == "user")
            wanted = {called for answer in answers.get(row["id"], ()) for called in answer}
            if wanted:
                requests.append((text, wanted))
    return list(tools.values()), requests


def as_tool(function: dict[str, Any]) -> Tool:
    schema = standard(function["parameters"])
    return define_tool(
        function["name"],
        function["description"] or "-",
        parameters=schema,
        handler=lambda **_: None,
    )


def standard(schema: Any) -> Any:
    """Python's names of types as JSON Schema's."""
    names = {
        "dict": "object",
        "float": "number",
        "tuple": "array",
        "list": "array",
        "any": "string",
    }
    if isinstance(schema, list):
        return [standard(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: standard(value) for key, value in schema.items() if key != "default"}
    if isinstance(found.get("type"), str):
        found["type"] = names.get(found["type"].lower(), found["type"].lower())
    return found


def lines(archive: zipfile.ZipFile, name: str) -> list[dict[str, Any]]:
    text = archive.read(f"bfcl_eval/data/{name}.json").decode()
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def fetched() -> Path | None:
    """The wheel, from the cache or the package index."""
    folder = paths.cache() / "bench"
    known = sorted(folder.glob("bfcl_eval-*.whl"))
    if not known:
        folder.mkdir(parents=True, exist_ok=True)
        fetch = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "-q",
            "--no-deps",
            "--dest",
            str(folder),
            PACKAGE,
        ]
        subprocess.run(fetch, check=False, capture_output=True)
        known = sorted(folder.glob("bfcl_eval-*.whl"))
    return known[-1] if known else None


if __name__ == "__main__":
    if "--views" in sys.argv:
        print_views()
        sys.exit()
    for cells in measured():
        print("  ".join(cells))
