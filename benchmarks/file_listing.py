"""How fast `file_tree`, `list_files` and `git_command` are on 100,000 files, beside fd and git.

    python benchmarks/file_listing.py [FILES] [--fd PROGRAM] [--folder FOLDER]

Makes a repository of that many files in 1,000 folders, and a folder that holds as many. Each row is
a call of a tool through a session (gate and journal in memory), in turn with the program that a
person would use, in one run; the figure is the median of the ratios. `file_tree` stops at its bound,
as it does for a model; fd, which has none, lists everything. fd is `fd-find` in Debian. Sorted by
size, `list_files` looks at every file, as `ls -lS` does. The first call of each is not counted: the
kernel reads the folders then, for whoever comes first.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from ferrule import Agent, Permissions
from ferrule.engine.session import Session
from ferrule.toolkits.files.browse import file_tree, list_files
from ferrule.toolkits.git.git_command import git_command

PAIRS = 5
FOLDERS = 1_000


def main() -> int:
    """Print one row for each tool."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="?", type=int, default=100_000)
    parser.add_argument("--fd", default=shutil.which("fdfind") or shutil.which("fd"))
    parser.add_argument("--folder", type=Path, help="made if it is missing, and kept")
    arguments = parser.parse_args()
    if not arguments.fd:
        print("fd is not installed: apt-get install fd-find, or pass --fd PROGRAM")
        return 1
    fd: str = arguments.fd
    for program in (fd, "git"):
        shown = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
        print(shown.stdout.strip())
    if arguments.folder is not None:
        if not arguments.folder.exists():
            _make_repository(arguments.folder, arguments.files)
        asyncio.run(_measure(arguments.folder, fd))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        _make_repository(Path(folder), arguments.files)
        asyncio.run(_measure(Path(folder), fd))
    return 0


def _make_repository(root: Path, files: int) -> None:
    for number in range(FOLDERS):
        folder = root / "src" / f"part{number % 30:02}" / f"folder{number:03}"
        folder.mkdir(parents=True)
        for each in range(files // FOLDERS):
            (folder / f"file{each:03}.txt").write_text("text\n")
    flat = root / "flat"
    flat.mkdir()
    for number in range(files):
        (flat / f"file{number:06}.txt").touch()
    (root / ".gitignore").write_text("/flat\n")
    identity = ("-c", "user.name=bench", "-c", "user.email=bench@example.com")
    for step in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-qm", "files"]):
        subprocess.run(["git", *step], cwd=root, check=True)


async def _measure(root: Path, fd: str) -> None:
    agent = Agent(
        "scripted:none",
        [file_tree, list_files, git_command],
        workspace=root,
        permissions=Permissions(allow=["Read(**)", "git_command"]),
    )
    session = agent.session()
    try:
        await _compare(session, root, "file_tree", {"path": "src"}, [fd, ".", "src"])
        most = {"path": "src", "max_entries": 5000}
        await _compare(session, root, "file_tree", most, [fd, ".", "src"])
        listing = [fd, "--no-ignore", "--max-depth", "1", ".", "flat"]
        await _compare(session, root, "list_files", {"path": "flat"}, listing)
        by_size = {"path": "flat", "sort_by": "size"}
        await _compare(session, root, "list_files", by_size, ["ls", "-lS", "flat"])
        status = {"subcommand": "status", "args": ["--short"]}
        await _compare(session, root, "git_command", status, ["git", "status", "--short"])
    finally:
        await session.close()
        await agent.close()


async def _compare(
    session: Session, root: Path, tool: str, arguments: dict[str, object], command: Sequence[str]
) -> None:
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(PAIRS + 1):
        begun = time.perf_counter()
        result = await session.call(tool, **arguments)
        ours.append(time.perf_counter() - begun)
        if not result.success:
            raise SystemExit(f"{tool}: {result.error_message}")
        begun = time.perf_counter()
        subprocess.run(command, cwd=root, stdout=subprocess.DEVNULL, check=True)
        theirs.append(time.perf_counter() - begun)
    del ours[0], theirs[0]
    ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
    shown = " ".join([Path(command[0]).name, *command[1:]])
    print(
        f"{tool} {arguments}: {statistics.median(ours) * 1000:.0f} ms beside "
        f"{statistics.median(theirs) * 1000:.0f} ms of `{shown}`, {ratio:.1f} times"
    )


if __name__ == "__main__":
    sys.exit(main())
