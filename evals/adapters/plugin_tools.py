"""Tools of plugins for `llm` behind the gate: loaded, called, refused. Run by `make lab NAME=adapters`.

It runs in the environment that has the plugins. Each row is a tool as its plugin registers it, a
call, and a part of its answer. What is printed is the row, whether the call came out, and whether
it stands in the journal.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

from ferrule import Agent, Permissions, Storage
from ferrule.adapters.llm import convert_toolbox, load_plugin_tools
from ferrule.replay import replay
from ferrule.storage.audit.verification import verify_sessions

ROWS: list[tuple[str, dict[str, Any], str]] = [
    ("simple_eval", {"expression": "6 * 7"}, "42"),
    ("quickjs", {"javascript": "function execute() { return 6 * 7 }"}, "42"),
    ("QuickJS_execute_javascript", {"javascript": "var kept = 40"}, ""),
    ("QuickJS_execute_javascript", {"javascript": "kept + 2"}, "42"),
    ("SQLite_query", {"sql": "select pieces from stock"}, "12"),
    ("SQLite_schema", {}, "stock"),
    ("Patch_read", {"file_path": "notes.txt"}, "buy bolts"),
    ("ReadonlyFsTools_grep", {"search_regex": "bolts", "glob_patterns": ["*.txt"]}, "notes.txt"),
    ("Todo_begin", {}, ""),
    ("llm_version", {}, "0."),
]
DENIED = ("Patch_write", {"file_path": "notes.txt", "content": "gone"})


def say(line: str) -> None:
    """Print a line at once: what runs beside it prints, too."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def main() -> int:
    """Call every tool, and one that a rule denies. Return 1 if something is not as it should be."""
    wrong = 0
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made, "work")
        folder.mkdir()
        os.chdir(folder)
        Path("notes.txt").write_text("buy bolts\n")
        with closing(sqlite3.connect("shop.db")) as connection, connection:
            connection.execute("create table stock (article text, pieces integer)")
            connection.execute("insert into stock values ('bolt', 12)")
        from llm_tools_sqlite import SQLite

        tools = [*load_plugin_tools(), *convert_toolbox(lambda: SQLite("shop.db"))]
        agent = Agent(
            "scripted:none",
            tools,
            permissions=Permissions(deny=["Patch_write"]),
            storage=Storage(journal=Path(made, "journal.db")),
        )
        session = agent.session()
        for name, arguments, part in ROWS:
            result = await session.call_tool(name, arguments)
            right = result.success and part in str(result.data)
            wrong += not right
            source = agent.catalog.get(name).source
            say(f"{'ok ' if right else 'BAD'} {source:28} {name:28} {result.to_text()[:50]!r}")
        refused = await session.call_tool(*DENIED)
        kept = Path("notes.txt").read_text() == "buy bolts\n"
        right = str(refused.error_type) == "permission_denied" and kept
        wrong += not right
        say(f"{'ok ' if right else 'BAD'} {'llm_tools_patch':28} {DENIED[0]:28} denied by a rule")
        await session.close()
        records = list(agent.journal.records(session.id))
        intact = verify_sessions(agent.journal).is_intact and replay(records).same
        wrong += not intact
        plugins = sorted({one.source for one in tools if "default" not in one.source})
        say(json.dumps({"plugins": plugins, "wrong": wrong, "journal intact": intact}))
        os.chdir("/")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
