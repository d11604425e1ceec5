"""The console script. `ferrule --version` answers here, before anything else is loaded."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and end the process with its exit code."""
    if sys.argv[1:] == ["--version"]:
        from ferrule._version import __version__

        sys.stdout.write(f"ferrule {__version__}\n")
        return
    from .root import run

    sys.exit(run(sys.argv[1:]))
