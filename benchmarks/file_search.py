"""How fast `search_files` is beside ripgrep alone, over Python's library with its site-packages.

    python benchmarks/file_search.py [FOLDER]

Both look for the same expression, in turn, in one run: a pair is one search of each, and the figure
is the median of the ratios. Ripgrep follows its own rules alone; `search_files` judges every name by
the rules for tools first, and reads what matched through the workspace.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.permissions.provenance import CommandWritable, TrustedProgram
from ferrule.permissions.rule_evaluation import PermissionGate
from ferrule.permissions.rules import RuleSet
from ferrule.toolkits.search.pattern import read_pattern
from ferrule.toolkits.search.ripgrep import find_ripgrep
from ferrule.toolkits.search.scope import Scope
from ferrule.toolkits.search.search_files import search

PAIRS = 7
EXPRESSION = "GeneratorExit.*raise"
"""Three lines match: `search_files` ends early where many do."""


def main() -> int:
    """Print one row."""
    folder = sys.argv[1] if len(sys.argv) > 1 else sysconfig.get_path("stdlib")
    root = str(Path(folder).resolve())
    program = find_ripgrep(CommandWritable.from_folders(root))
    if program is None:
        print("ripgrep is not installed: pip install 'ferrule[cli]'")
        return 1
    gate = PermissionGate(RuleSet.parse(), root=Path(root))
    workspace = Workspace(root).restrict(gate.find_refusal, lists=gate.only_lists)
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    ours: list[float] = []
    theirs: list[float] = []
    searched = 0
    for _ in range(PAIRS):
        seconds, searched = asyncio.run(_search(workspace, EXPRESSION, program))
        ours.append(seconds)
        begun = time.perf_counter()
        subprocess.run(
            [program, "--no-config", "-n", EXPRESSION, "."],
            cwd=root,
            stdout=subprocess.DEVNULL,
            check=False,
        )
        theirs.append(time.perf_counter() - begun)
    ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
    print(
        f"search_files over {searched} files beside {version.stdout.splitlines()[0]}: "
        f"{statistics.median(ours):.2f} s beside {statistics.median(theirs):.2f} s, "
        f"{ratio:.1f} times (median of {PAIRS} pairs)"
    )
    return 0


async def _search(
    workspace: Workspace, expression: str, program: TrustedProgram
) -> tuple[float, int]:
    pattern = read_pattern(expression, "regex", ignore_case=False)
    begun = time.perf_counter()
    found = await search(workspace, pattern, Scope("."), ripgrep=program)
    return time.perf_counter() - begun, found.searched


if __name__ == "__main__":
    sys.exit(main())
