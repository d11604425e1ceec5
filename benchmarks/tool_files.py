"""What a tool file costs: a call of a small script beside a call of the same function in Python,
through the same session.

`python benchmarks/tool_files.py` prints it. Gate, validation and journal (in a file) are in both.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time

from ferrule import Agent, Storage, tool
from ferrule.extensions.builtins.dispatch import ScriptEnvironment
from ferrule.extensions.starlark.pool import WorkerPool
from ferrule.extensions.tool_files.handlers import make_tool
from ferrule.extensions.tool_files.tool_file import parse_tool
from ferrule.models.scripted import Scripted

CALLS = 10_000
"""Of each, taken in turn, so that what else the machine does falls on both."""
FILE = b"""---
parameters:
  text: { type: string, required: true }
  times: { type: integer, required: true }
side_effect: none
script: |
  def run(args):
      return {"said": " ".join([args["text"]] * args["times"]), "length": len(args["text"])}
---
Say a text several times.
"""


@tool(side_effect="none")
async def say(text: str, times: int) -> dict[str, object]:
    """Say a text several times."""
    return {"said": " ".join([text] * times), "length": len(text)}


async def times(calls: int) -> tuple[float, float]:
    """Medians in ms of a call of the script and of the function."""
    pool = WorkerPool(warm=1)
    scripted = make_tool(parse_tool(FILE, "say_file.md"), ScriptEnvironment(), pool=pool)
    with tempfile.TemporaryDirectory() as folder:
        agent = Agent(Scripted([]), [scripted, say], storage=Storage(journal=f"{folder}/bench.db"))
        session = agent.session()
        spent: dict[str, list[float]] = {"say_file": [], "say": []}
        try:
            for number in range(calls + 20):
                for name, kept in spent.items():
                    begin = time.perf_counter()
                    result = await session.call(name, text="hello", times=number % 5)
                    kept.append((time.perf_counter() - begin) * 1000)
                    assert result.success, result.error_message
        finally:
            await session.close()
            pool.close()
    # The first few start a worker and open the journal.
    return statistics.median(spent["say_file"][20:]), statistics.median(spent["say"][20:])


async def measured(calls: int = CALLS) -> list[tuple[str, str, str, str]]:
    """Rows for the table: figure, Ferrule, beside, aim."""
    script, function = await times(calls)
    beside = f"the same in Python {function:.2f}, added {script - function:.2f}"
    return [("a call of a small tool file, ms", f"{script:.2f}", beside, "added <= 2")]


if __name__ == "__main__":
    for figures in asyncio.run(measured(int(sys.argv[1]) if len(sys.argv) > 1 else CALLS)):
        print("  ".join(figures))
