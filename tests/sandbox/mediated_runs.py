"""Runs programs through `mediated.py` and looks at what they left in the folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from ferrule.permissions.protected_names import DEFAULT_NAMES

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Outcome:
    code: int
    output: str
    refused: list[str]
    made: list[tuple[str, str]]

    def made_names(self) -> list[str]:
        return [name for _, name in self.made]


def words(root: Path, report: Path, command: list[str], **record: object) -> list[str]:
    """The command line that runs `command` with `root` as its workspace."""
    text = json.dumps({"roots": [str(root)], **record})
    return [sys.executable, "-I", "-S", str(HERE / "mediated.py"), str(report), text, *command]


def run(root: Path, command: list[str], **record: object) -> Outcome:
    report = root.parent / f"{root.name}.report"
    done = subprocess.run(
        words(root, report, command, **record),
        cwd=root,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={
            "RUSTUP_HOME": str(Path.home() / ".rustup"),
            **os.environ,
            "HOME": str(root.parent),
            "PYTHONDONTWRITEBYTECODE": "1",
            "LC_ALL": "C.UTF-8",
        },
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(report.read_text())
    return Outcome(
        told["code"],
        done.stdout + done.stderr,
        told.get("refused", []),
        [(identity, name) for identity, name in told.get("made", [])],
    )


def shell(root: Path, script: str, **record: object) -> Outcome:
    return run(root, ["bash", "-c", script], **record)


def python(root: Path, script: str, **record: object) -> Outcome:
    return run(root, [sys.executable, "-I", "-S", "-c", script], **record)


def forbidden(root: Path) -> list[str]:
    """What a command could not have created, if the rules held: reserved names, a `.git` that
    is no folder, links below one, and what leads it elsewhere.
    """
    found: list[str] = []
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = Path(folder, name)
            relative = str(path.relative_to(root))
            verdict = DEFAULT_NAMES.check(relative, write=False) or ""
            a_file = name.casefold() == ".git" and (path.is_symlink() or not path.is_dir())
            a_link = path.is_symlink() and ".git" in path.parts[:-1]
            leads = relative.endswith((".git/commondir", ".git/remotes", ".git/branches"))
            if verdict.startswith("reserved") or a_file or a_link or leads:
                found.append(relative)
    return found


def needs(*programs: str) -> list[str]:
    return [program for program in programs if shutil.which(program) is None]
