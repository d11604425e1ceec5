"""`make lab`: list the rows of `lab.toml`, or run one. ARGS of the environment goes to its commands."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from difflib import get_close_matches
from pathlib import Path
from textwrap import fill

ROOT = Path(__file__).parent.parent
ROWS = tomllib.loads((ROOT / "lab.toml").read_text(encoding="utf-8"))


def main(words: list[str]) -> int:
    """Return the exit status of the first command that fails, 0 if none does."""
    if not words:
        list_rows()
        return 0
    (name,) = words
    if name not in ROWS:
        near = get_close_matches(name, ROWS) or ["`make lab` lists them"]
        print(f"there is no row `{name}` in lab.toml; {near[0]}?", file=sys.stderr)
        return 2
    for command in ROWS[name]["run"]:
        # As text, so that quotes in ARGS are read by the shell.
        line = command.replace("$ARGS", os.environ.get("ARGS", ""))
        print(f"+ {line}", file=sys.stderr, flush=True)
        ended = subprocess.run(["sh", "-c", line], cwd=ROOT, check=False)
        if ended.returncode:
            return ended.returncode
    return 0


def list_rows() -> None:
    """Print the names and what they print."""
    width = max(map(len, ROWS)) + 2
    for name, row in ROWS.items():
        print(fill(f"{name:{width}}{row['prints']}", 100, subsequent_indent=" " * width))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
