"""How well a tool is found among many, and how fast: requests over public function catalogs.

The catalogs are those of the Berkeley Function Calling Leaderboard (Patil et al. 2025), from the PyPI package `bfcl-eval`
(Apache-2.0; fetched once, without what it depends on). Each category is one catalog of all functions in it; a request counts as
found where one of the functions that its answer calls is among the first results.
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

from ferrule.store import paths
from ferrule.tools.define import define_tool
from ferrule.tools.definition import Tool
from ferrule.tools.search.index import Index

PACKAGE = "bfcl-eval==2026.3.23"
CATALOGS = {
    "simple": ("simple_python",),
    "multiple": ("multiple",),
    "live multiple": ("live_multiple",),
}
STRATEGIES = ("bm25", "hybrid", "default")
Row = tuple[str, str, str, str]


def measured() -> Iterator[Row]:
    """Rows for the table of `run.py`; one row that says why where the catalogs cannot be had."""
    wheel = fetched()
    if wheel is None:
        yield "recall of tool search", "not measured", f"{PACKAGE} cannot be had", ""
        return
    with zipfile.ZipFile(wheel) as archive:
        for label, files in CATALOGS.items():
            tools, requests = catalog(archive, files)
            index = Index(tools)
            found = {name: recalls(index, requests, name) for name in STRATEGIES}
            beside = ", ".join(f"{name} {found[name]}" for name in ("bm25", "hybrid"))
            yield (
                f"search `{label}` ({len(tools)} tools): recall at 1, at 5",
                found["default"],
                beside,
                "> bm25",
            )
        everything, requests = catalog(archive, ("simple_python", "multiple", "live_multiple"))
    yield from timed(everything[:1000], requests)


def timed(tools: list[Tool], requests: list[tuple[str, set[str]]]) -> Iterator[Row]:
    """CPU time: what else the machine does is not counted."""
    started = time.process_time()
    index = Index(tools)
    index.search(requests[0][0])
    built = time.process_time() - started
    spent: list[float] = []
    for text, _ in requests[:200]:
        started = time.process_time()
        index.search(text)
        spent.append(time.process_time() - started)
    yield f"index of {len(tools)} tools and first search, CPU ms", f"{built * 1000:.0f}", "", "<= 150"
    yield (
        f"a search among {len(tools)} tools, CPU ms (median)",
        f"{statistics.median(spent) * 1000:.1f}",
        "",
        "<= 5",
    )


def recalls(index: Index, requests: list[tuple[str, set[str]]], strategy: str) -> str:
    hits = [[hit.name for hit in index.search(text, strategy, 5)] for text, _ in requests]
    first = sum(bool(wanted & set(names[:1])) for names, (_, wanted) in zip(hits, requests, strict=True))
    five = sum(bool(wanted & set(names)) for names, (_, wanted) in zip(hits, requests, strict=True))
    return f"{100 * first / len(requests):.1f} / {100 * five / len(requests):.1f} %"


def catalog(
    archive: zipfile.ZipFile, files: tuple[str, ...]
) -> tuple[list[Tool], list[tuple[str, set[str]]]]:
    """All functions of these categories, and requests with the names that answer them."""
    tools: dict[str, Tool] = {}
    requests: list[tuple[str, set[str]]] = []
    for name in files:
        answers = {
            row["id"]: row["ground_truth"] for row in lines(archive, f"possible_answer/BFCL_v4_{name}")
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
        function["name"], function["description"] or "-", parameters=schema, handler=lambda **_: None
    )


def standard(schema: Any) -> Any:
    """Python's names of types as JSON Schema's."""
    names = {"dict": "object", "float": "number", "tuple": "array", "list": "array", "any": "string"}
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
        fetch = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--dest", str(folder), PACKAGE]
        subprocess.run(fetch, check=False, capture_output=True)
        known = sorted(folder.glob("bfcl_eval-*.whl"))
    return known[-1] if known else None


if __name__ == "__main__":
    for cells in measured():
        print("  ".join(cells))
