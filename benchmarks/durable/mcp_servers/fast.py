"""fastmcp with one tool: `fast.py FOLDER [PORT]`."""

import sys
from pathlib import Path

from fastmcp import FastMCP

FOLDER = Path(sys.argv[1])
server = FastMCP("fast")


@server.tool
def read_file(path: str) -> str:
    """Read a file."""
    return (FOLDER / path).read_text()


if len(sys.argv) > 2:
    server.run(
        transport="http",
        host="127.0.0.1",
        port=int(sys.argv[2]),
        show_banner=False,
        log_level="ERROR",
    )
else:
    server.run(show_banner=False, log_level="ERROR")
