"""What a catalog of 1,000 tools costs: bytes of a request with and without tool search, and whether
what was sent stays as it was.

The tools are those of `search_files.py`. The server is that of `stub.py` with a script of its own:
thirty rounds, in ten of which the model searches. Between two requests the parts of the first are
compared with the same parts of the second: what the first had must be the beginning of what the
second has, or a provider's cache ends there.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import search
import stub

from ferrule import Agent, Limits, OpenAIChat, ToolCalling, tool
from ferrule.tools.definition import Loading, Tool
from ferrule.tools.search.index import ToolIndex

TOOLS, ROUNDS, EVERY = 1000, 30, 3
FINDER = "find_tool"
"""What the search is called: the catalog has a tool called `tool_search`."""
QUERIES = (
    "area of a triangle",
    "weather forecast for a city",
    "convert currency",
    "book a flight",
    "play a song",
    "find a restaurant nearby",
    "solve a quadratic equation",
    "stock price of a company",
    "court case details",
    "translate a text",
)
Row = tuple[str, str, str, str]
Parts = dict[str, bytes]


async def measured() -> list[Row]:
    """Rows for the table of `run.py`; one row that says why where the catalog cannot be had."""
    wheel = search.fetched()
    if wheel is None:
        return [("a catalog of 1,000 tools", "not measured", f"{search.PACKAGE} cannot be had", "")]
    with zipfile.ZipFile(wheel) as archive:
        tools, _ = search.catalog(archive, ("simple_python", "multiple", "live_multiple"))
    tools = [
        replace(one, loading=Loading.DEFERRED, side_effect=peek.side_effect)
        for one in tools[:TOOLS]
    ]
    off = await requests(tools, rounds=1, search=False)
    on = await requests(tools, rounds=ROUNDS, search={"mode": "client", "name": FINDER})
    return [*sizes(off, on), *stability(on), *timed(tools)]


def sizes(off: list[bytes], on: list[bytes]) -> Iterator[Row]:
    first, last, all_sent = len(on[0]), len(on[-1]), len(off[0])
    yield (
        f"{TOOLS} deferred tools: bytes of a request",
        f"{first:,}",
        f"search off {all_sent:,}; share {100 * first / all_sent:.1f} %",
        "<= 3 %",
    )
    tools = len(parts(on[-1])["tools"])
    yield (
        f"the same after {ROUNDS} rounds with {len(QUERIES)} searches, bytes",
        f"{last:,}",
        f"tools alone {tools:,}; share {100 * tools / len(parts(off[0])['tools']):.1f} %",
        "",
    )


def stability(on: list[bytes]) -> Iterator[Row]:
    changed = dict.fromkeys(("tools", "system", "messages"), 0)
    rows = [parts(body) for body in on]
    for earlier, later in pairwise(rows):
        for part in changed:
            changed[part] += len(earlier[part]) - common(earlier[part], later[part])
    grown = sum(a["tools"] != b["tools"] for a, b in pairwise(rows))
    yield (
        f"{len(on)} requests, {grown} of which brought tools: earlier bytes that changed",
        ", ".join(f"{part} {count}" for part, count in changed.items()),
        "",
        "0",
    )


def timed(tools: list[Tool], repeats: int = 9) -> Iterator[Row]:
    """CPU time of this process; the least of several, since what else the machine does makes it
    only longer.
    """
    built: list[float] = []
    first: list[float] = []
    joined: list[float] = []
    for _ in range(repeats):
        begin = time.process_time()
        index = ToolIndex(tools[:-1])
        index.prepare()
        middle = time.process_time()
        index.search(QUERIES[0])
        end = time.process_time()
        index.add(tools[-1])
        joined.append((time.process_time() - end) * 1000)
        built.append((middle - begin) * 1000)
        first.append((end - middle) * 1000)
    yield f"index of {len(tools)} tools, CPU ms", *shown(built), "<= 150"
    yield "the first search, CPU ms", *shown(first), "<= 5"
    yield f"one tool more in an index of {len(tools)}, CPU ms", *shown(joined, 2), ""


def shown(times: list[float], digits: int = 1) -> tuple[str, str]:
    return f"{min(times):.{digits}f}", f"median {statistics.median(times):.{digits}f}"


# ---- the parts of a request


def parts(body: bytes) -> Parts:
    """Tools, system text and the other messages, each as compact JSON without the bracket that
    closes it.
    """
    given = json.loads(body)
    system = [one for one in given["messages"] if one["role"] == "system"]
    others = [one for one in given["messages"] if one["role"] != "system"]
    found = {"tools": given.get("tools", []), "system": system, "messages": others}
    return {name: encoded(rows) for name, rows in found.items()}


def encoded(rows: list[Any]) -> bytes:
    return json.dumps(rows, ensure_ascii=False, separators=(",", ":")).encode()[:-1]


def common(earlier: bytes, later: bytes) -> int:
    """Bytes at the beginning that both have."""
    pairs = enumerate(zip(earlier, later, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(earlier), len(later)))


# ---- a session against the stub


@tool(side_effect="none")
async def peek(n: int = 0) -> str:
    """Look at a number."""
    return str(n)


class Recording(stub.Server):
    """The stub, which keeps what it was sent and has the model search in every third round."""

    bodies: list[bytes]
    rounds: int

    def answer(self, head: bytes, body: bytes) -> None:
        if head.startswith(b"get "):
            super().answer(head, body)
            return
        self.bodies.append(body)
        self.transport.write(stub.whole(self.message(json.loads(body))))

    def message(self, request: dict[str, Any]) -> dict[str, Any]:
        done = sum(one["role"] == "assistant" for one in request["messages"])
        if done >= self.rounds:
            return {"role": "assistant", "content": "done"}
        offered = [one["function"]["name"] for one in request["tools"]]
        if done % EVERY == 0 and FINDER in offered:
            asked = {"query": QUERIES[done // EVERY % len(QUERIES)], "limit": 3}
            function = {"name": FINDER, "arguments": json.dumps(asked)}
        else:
            function = {"name": "peek", "arguments": json.dumps({"n": done})}
        call = {"id": f"call_{done:04d}", "type": "function", "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [call]}


async def requests(tools: list[Tool], *, rounds: int, search: Any) -> list[bytes]:
    """The bodies of a session's requests, in order."""
    bodies: list[bytes] = []
    served = type("Served", (Recording,), {"bodies": bodies, "rounds": rounds})
    server = await asyncio.get_running_loop().create_server(served, "127.0.0.1", 0)
    base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    wire = OpenAIChat("stub", base_url=base_url, api_key="none")
    limits = Limits(max_turns=rounds + 1)
    agent = Agent(
        wire,
        [peek, *tools],
        tool_calling=ToolCalling(mode="native", search=search),
        limits=limits,
        instructions="Answer briefly.",
    )
    try:
        await agent.run("Go.")
    finally:
        server.close()
    return bodies


if __name__ == "__main__":
    for cells in asyncio.run(measured()):
        print("  ".join(cells))
