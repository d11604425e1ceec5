"""Where changes come from: the history of a repository, successive versions of packages.

Packages are fetched by pip, as wheels: nothing of them is run.
"""

from __future__ import annotations

import random
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

from .changes import Change, find_changes

PACKAGES = (
    ("attrs", "23.2.0", "24.3.0"),
    ("click", "8.1.7", "8.2.1"),
    ("flask", "3.0.3", "3.1.1"),
    ("httpx", "0.27.2", "0.28.1"),
    ("jinja2", "3.1.2", "3.1.6"),
    ("packaging", "23.2", "25.0"),
    ("requests", "2.31.0", "2.32.3"),
    ("rich", "13.7.1", "14.0.0"),
    ("starlette", "0.37.2", "0.46.2"),
    ("urllib3", "2.1.0", "2.4.0"),
)
SUFFIXES = (".py", ".md", ".toml", ".yaml", ".yml", ".css", ".js", ".html", ".pyi", ".rst", ".txt")


def from_history(root: Path, seed: int) -> Iterator[Change]:
    """Yield changes of a repository's commits, in an order that the seed decides."""
    log = _git(root, "log", "--no-merges", "--diff-filter=M", "--name-only", "--format=commit %H")
    pairs: list[tuple[str, str]] = []
    commit = ""
    for line in log.splitlines():
        if line.startswith("commit "):
            commit = line.removeprefix("commit ")
        elif line.endswith(SUFFIXES):
            pairs.append((commit, line))
    random.Random(seed).shuffle(pairs)
    for commit, path in pairs:
        try:
            before = _git(root, "show", f"{commit}~1:{path}")
            after = _git(root, "show", f"{commit}:{path}")
        except (subprocess.CalledProcessError, UnicodeDecodeError):
            continue
        yield from find_changes(f"{commit[:8]} {path}", before, after)


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=root, check=True, capture_output=True
    ).stdout.decode()


def from_packages(folder: Path, seed: int) -> Iterator[Change]:
    """Yield changes between two versions of each package, package by package in turn."""
    pairs: list[tuple[str, str, str]] = []
    for name, old, new in PACKAGES:
        before = _read_wheel(folder, name, old)
        after = _read_wheel(folder, name, new)
        pairs += [
            (f"{name} {old}-{new} {path}", before[path], after[path])
            for path in sorted(before.keys() & after.keys())
            if before[path] != after[path]
        ]
    random.Random(seed).shuffle(pairs)
    for source, before_text, after_text in pairs:
        yield from find_changes(source, before_text, after_text)


def _find_wheels(folder: Path, name: str, version: str) -> list[Path]:
    prefix = f"{name}-{version}-"
    return [path for path in folder.glob("*.whl") if path.name.lower().startswith(prefix)]


def _read_wheel(folder: Path, name: str, version: str) -> dict[str, str]:
    found = _find_wheels(folder, name, version)
    if not found:
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:",
             "--platform", "any", "--dest", str(folder), f"{name}=={version}"],
            check=True,
        )  # fmt: skip
        found = _find_wheels(folder, name, version)
    texts: dict[str, str] = {}
    with zipfile.ZipFile(found[0]) as wheel:
        for path in wheel.namelist():
            if path.endswith(SUFFIXES) and ".dist-info/" not in path:
                try:
                    texts[path] = wheel.read(path).decode()
                except UnicodeDecodeError:
                    continue
    return texts
