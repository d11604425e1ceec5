"""Compute the vectors of the tools that ship, as the embedded model reads their descriptions.

They come with Ferrule, so that a first answer does not wait for them. Needed after the description or an example of a tool
has changed: `make lab NAME=tool-vectors`.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import tempfile
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from ferrule import Agent, toolkits
from ferrule.models.client import ToolSpec
from ferrule.runtime.assemble import assemble
from ferrule.tools.definition import Tool
from ferrule_local.client import Local
from ferrule_local.installed_models import installed_path
from ferrule_local.small_models.tool_ranking import ToolRanking
from ferrule_local.vector_cache import SHIPPED, VectorCache

MODEL = "smollm2"


def shipped_tools() -> dict[str, Tool]:
    """Return the tools that settings or programs can offer a model, by name."""
    kits = (toolkits.BROWSE_TOOLS, toolkits.CLOCK_TOOLS, toolkits.FILE_TOOLS, toolkits.SEARCH_TOOLS)
    found: dict[str, Tool] = {}
    with tempfile.TemporaryDirectory() as folder:
        for profile in ("coding", "all"):
            options = {"workspace": folder, "tools__profile": profile}
            assembly = assemble(options, notice=lambda _: None, needs_model=False)
            found |= {tool.full_name: tool for tool in assembly.agent.catalog}
        agent = Agent("scripted:none", [tool for kit in kits for tool in kit])
        found |= {tool.full_name: tool for tool in agent.catalog}
    return found


def list_prompts(tools: Iterable[Tool]) -> list[str]:
    """Return the texts that the model reads before it can choose among these tools."""
    specs = [
        ToolSpec(
            tool.full_name,
            tool.full_name,
            tool.offered_description,
            tool.schema_json(),
            tool.examples,
            side_effect=tool.declared_side_effect,
        )
        for tool in tools
    ]
    return list(dict.fromkeys(ToolRanking(Local(MODEL), specs).list_prompts()))


async def main() -> int:
    """Compute what is missing, and write the file anew."""
    prompts = list_prompts(shipped_tools().values())
    vectors = dict(zip(prompts, await Local(MODEL).embed(prompts, keep=True), strict=True))
    SHIPPED.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        VectorCache(Path(folder), installed_path(MODEL)).put(vectors)
        with closing(sqlite3.connect(Path(folder) / "vectors.sqlite")) as database:
            # Pages in which several vectors fit.
            database.execute("PRAGMA page_size = 32768")
            database.execute("VACUUM INTO ?", (str(SHIPPED),))
    sys.stdout.write(f"{len(vectors)} vectors, {SHIPPED.stat().st_size} bytes\n")
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
