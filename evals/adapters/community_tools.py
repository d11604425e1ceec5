"""LangChain's community tools behind the gate: loaded, called, refused. Run by `make lab NAME=adapters`.

It runs in LangChain's environment. Each row is a tool from `langchain-community` as its users make
it, a call that it can answer without the network (or from a server on this machine), and a part of
its answer. What is printed is the row, whether the call came out, and whether it stands in the
journal.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

warnings.simplefilter("ignore")

from langchain_community.tools import (  # noqa: E402
    CopyFileTool,
    DeleteFileTool,
    FileSearchTool,
    InfoSQLDatabaseTool,
    JsonGetValueTool,
    JsonListKeysTool,
    ListDirectoryTool,
    ListSQLDatabaseTool,
    MoveFileTool,
    QuerySQLDatabaseTool,
    ReadFileTool,
    RequestsGetTool,
    SleepTool,
    WriteFileTool,
)
from langchain_community.tools.json.tool import JsonSpec  # noqa: E402
from langchain_community.utilities import SQLDatabase, TextRequestsWrapper  # noqa: E402

from ferrule import Agent, Permissions, Storage  # noqa: E402
from ferrule.adapters.langchain import convert_tools  # noqa: E402
from ferrule.replay import replay  # noqa: E402
from ferrule.storage.audit.verification import verify_sessions  # noqa: E402


class Greeting(BaseHTTPRequestHandler):
    """A server on this machine that says hello."""

    def do_GET(self) -> None:
        """Say hello."""
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello from loopback")

    def log_message(self, *args: Any) -> None:
        """Say nothing else."""


@contextmanager
def serve_greeting() -> Iterator[str]:
    """Serve on a free port."""
    server = HTTPServer(("127.0.0.1", 0), Greeting)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


def rows(folder: Path, address: str) -> list[tuple[Any, dict[str, Any], str]]:
    """Return each tool with a call and a part of its answer."""
    root = str(folder)
    with closing(sqlite3.connect(folder / "shop.db")) as connection, connection:
        connection.execute("create table stock (article text, pieces integer)")
        connection.execute("insert into stock values ('bolt', 12)")
    database = SQLDatabase.from_uri(f"sqlite:///{folder}/shop.db")
    spec = JsonSpec(dict_={"shop": {"bolts": 12}})
    requests = TextRequestsWrapper()
    return [
        (WriteFileTool(root_dir=root), {"file_path": "a.txt", "text": "bolts"}, "written"),
        (ReadFileTool(root_dir=root), {"file_path": "a.txt"}, "bolts"),
        (
            CopyFileTool(root_dir=root),
            {"source_path": "a.txt", "destination_path": "b.txt"},
            "copied",
        ),
        (
            MoveFileTool(root_dir=root),
            {"source_path": "b.txt", "destination_path": "c.txt"},
            "moved",
        ),
        (FileSearchTool(root_dir=root), {"pattern": "*.txt"}, "c.txt"),
        (ListDirectoryTool(root_dir=root), {}, "a.txt"),
        (DeleteFileTool(root_dir=root), {"file_path": "c.txt"}, "deleted"),
        (ListSQLDatabaseTool(db=database), {"tool_input": ""}, "stock"),
        (InfoSQLDatabaseTool(db=database), {"table_names": "stock"}, "CREATE TABLE"),
        (
            QuerySQLDatabaseTool(db=database),
            {"query": "select pieces from stock"},
            "12",
        ),
        (JsonListKeysTool(spec=spec), {"tool_input": 'data["shop"]'}, "bolts"),
        (JsonGetValueTool(spec=spec), {"tool_input": 'data["shop"]["bolts"]'}, "12"),
        (SleepTool(), {"sleep_time": 0}, "slept"),
        (
            RequestsGetTool(requests_wrapper=requests, allow_dangerous_requests=True),
            {"url": address},
            "hello from loopback",
        ),
    ]


def say(line: str) -> None:
    """Print a line at once: what runs beside it prints, too."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def main() -> int:
    """Call every tool, and one that a rule denies. Return 1 if something is not as it should be."""
    wrong = 0
    with tempfile.TemporaryDirectory() as made, serve_greeting() as address:
        folder = Path(made, "work")
        folder.mkdir()
        table = rows(folder, address)
        tools = convert_tools(tool for tool, _, _ in table)
        agent = Agent(
            "scripted:none",
            tools,
            permissions=Permissions(ask=["file_delete"]),
            storage=Storage(journal=Path(made, "journal.db")),
        )
        session = agent.session()
        for tool, (theirs, arguments, part) in zip(tools, table, strict=True):
            result = await session.call_tool(tool.name, arguments)
            denied = tool.name == "file_delete"
            right = (
                (str(result.error_type) == "permission_denied")
                if denied
                else part.lower() in str(result.data).lower()
            )
            wrong += not right
            said = "denied, as the rule says" if denied and right else str(result.to_text())[:60]
            say(f"{'ok ' if right else 'BAD'} {type(theirs).__name__:22} {tool.name:24} {said!r}")
        await session.close()
        assert (folder / "c.txt").exists(), "a denied tool ran"
        records = list(agent.journal.records(session.id))
        intact = verify_sessions(agent.journal).is_intact and replay(records).same
        wrong += not intact
        say(json.dumps({"tools": len(table), "wrong": wrong, "journal intact": intact}))
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
