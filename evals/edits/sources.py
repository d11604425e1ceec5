"""Where changes come from: the history of a repository, successive versions of packages.

Packages are fetched by pip, as wheels: nothing of them is run.
"""

from __future__ import annotations

import random
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from itertools import chain, starmap
from pathlib import Path

from .changes import Change, find_changes

PACKAGES = (
    ("anyio", "4.3.0", "4.9.0"),
    ("attrs", "23.2.0", "24.3.0"),
    ("beautifulsoup4", "4.12.3", "4.13.4"),
    ("black", "24.1.0", "25.1.0"),
    ("cattrs", "23.2.3", "24.1.2"),
    ("celery", "5.3.6", "5.5.0"),
    ("click", "8.1.7", "8.2.1"),
    ("djangorestframework", "3.14.0", "3.15.2"),
    ("docutils", "0.20.1", "0.21.2"),
    ("fastapi", "0.110.0", "0.115.12"),
    ("filelock", "3.13.1", "3.18.0"),
    ("flask", "3.0.3", "3.1.1"),
    ("gunicorn", "21.2.0", "23.0.0"),
    ("h11", "0.14.0", "0.16.0"),
    ("httpcore", "1.0.2", "1.0.9"),
    ("httpx", "0.27.2", "0.28.1"),
    ("hypothesis", "6.98.0", "6.131.0"),
    ("importlib-metadata", "7.0.1", "8.6.1"),
    ("ipython", "8.20.0", "8.34.0"),
    ("isort", "5.13.2", "6.0.1"),
    ("jinja2", "3.1.2", "3.1.6"),
    ("jsonschema", "4.21.1", "4.23.0"),
    ("mako", "1.3.0", "1.3.9"),
    ("markdown", "3.5.2", "3.7"),
    ("marshmallow", "3.20.2", "3.26.1"),
    ("more-itertools", "10.2.0", "10.6.0"),
    ("networkx", "3.2.1", "3.4.2"),
    ("openai", "1.30.0", "1.70.0"),
    ("packaging", "23.2", "25.0"),
    ("paramiko", "3.4.0", "3.5.1"),
    ("pip", "24.0", "25.0.1"),
    ("platformdirs", "4.2.0", "4.3.7"),
    ("poetry-core", "1.9.0", "2.1.2"),
    ("prompt-toolkit", "3.0.43", "3.0.50"),
    ("pydantic", "2.6.0", "2.11.0"),
    ("pygments", "2.17.2", "2.19.1"),
    ("pylint", "3.0.3", "3.3.6"),
    ("pyparsing", "3.1.1", "3.2.3"),
    ("pytest", "8.0.0", "8.3.5"),
    ("redis", "5.0.1", "5.2.1"),
    ("requests", "2.31.0", "2.32.3"),
    ("rich", "13.7.1", "14.0.0"),
    ("setuptools", "69.0.3", "78.1.0"),
    ("starlette", "0.37.2", "0.46.2"),
    ("tox", "4.12.1", "4.25.0"),
    ("trio", "0.24.0", "0.29.0"),
    ("typer", "0.9.0", "0.15.2"),
    ("urllib3", "2.1.0", "2.4.0"),
    ("uvicorn", "0.27.0", "0.34.0"),
    ("werkzeug", "3.0.1", "3.1.3"),
)
SUFFIXES = (".py", ".md", ".toml", ".yaml", ".yml", ".css", ".js", ".html", ".pyi", ".rst", ".txt")


def resolve_commit(root: Path, name: str) -> str:
    """Return the first eight digits of a commit."""
    return _git(root, "rev-parse", "--verify", f"{name}^{{commit}}")[:8]


def from_history(root: Path, seed: int, last: str) -> Iterator[Change]:
    """Yield changes of the commits up to one, in an order that the seed decides."""
    log = _git(
        root, "log", "--no-merges", "--diff-filter=M", "--name-only", "--format=commit %H", last
    )
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
    waiting: list[Iterator[Change]] = []
    for name, old, new in PACKAGES:
        before = _read_wheel(folder, name, old)
        after = _read_wheel(folder, name, new)
        pairs = [
            (f"{name} {old}-{new} {path}", before[path], after[path])
            for path in sorted(before.keys() & after.keys())
            if before[path] != after[path]
        ]
        random.Random(f"{seed} {name}").shuffle(pairs)
        waiting.append(chain.from_iterable(starmap(find_changes, pairs)))
    # A change of each in turn: a large package must not crowd out the others.
    while waiting:
        for changes in [*waiting]:
            change = next(changes, None)
            if change is None:
                waiting.remove(changes)
            else:
                yield change


def _find_wheels(folder: Path, name: str, version: str) -> list[Path]:
    prefix = f"{name.replace('-', '_')}-{version}-"
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
