"""The official SDK's server with one tool: `official.py FOLDER [PORT]`."""

import sys
from pathlib import Path

from mcp.server.mcpserver import MCPServer

FOLDER = Path(sys.argv[1])
server = MCPServer("official", log_level="ERROR")


@server.tool()
def read_file(path: str) -> str:
    """Read a file."""
    return (FOLDER / path).read_text()


if len(sys.argv) > 2:
    server.run("streamable-http", port=int(sys.argv[2]))
else:
    server.run()
