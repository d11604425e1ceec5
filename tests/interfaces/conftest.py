"""The command line in this process: scripted models, a folder, and what came out."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ferrule.cli.exit_codes import run
from ferrule.storage import paths

sys.path.insert(0, str(Path(__file__).parent))


@dataclass
class Ran:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


@pytest.fixture(autouse=True)
def as_it_was(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """A home folder without anything in it, no colour asked for or refused, a terminal of the usual
    size, signal handlers put back.
    """
    home = tmp_path_factory.mktemp("person")
    monkeypatch.setenv(
        "FERRULE_CACHE", str(paths.cache())
    )  # Models that were pulled stay where they are.
    monkeypatch.setenv("HOME", str(home))
    for name in ("NO_COLOR", "FORCE_COLOR", "FERRULE_TRACEBACK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace with a file, and the current folder."""
    made = tmp_path / "work"
    made.mkdir()
    (made / "note.txt").write_text("one\ntwo\n")
    monkeypatch.chdir(made)
    return made


@pytest.fixture
def ferrule(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Ran]:
    """`ferrule(*words, stdin=b"")`: run a command; nobody sits at a terminal."""

    def ran(*words: str, stdin: bytes = b"") -> Ran:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        code = run(list(words))
        out, err = capsys.readouterr()
        return Ran(code, out, err)

    return ran


@pytest.fixture
def script(tmp_path: Path) -> Callable[..., str]:
    """`script(*steps)`: the name of a model that says these."""
    count = 0

    def made(*steps: dict[str, Any]) -> str:
        nonlocal count
        count += 1
        file = tmp_path / f"talk{count}.yaml"
        file.write_text(json.dumps(list(steps)))
        return f"scripted:{file}"

    return made


def call(tool: str, say: str = "", **arguments: Any) -> dict[str, Any]:
    """A step of a script that calls one tool."""
    return {"say": say, "call": [{"tool": tool, "arguments": arguments}]}


@pytest.fixture
def a_call() -> Callable[..., dict[str, Any]]:
    return call


@pytest.fixture
def environment() -> dict[str, str]:
    """For real processes: this test's folders, no colour settings."""
    return {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
