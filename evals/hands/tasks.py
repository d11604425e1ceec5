"""Tasks in files: the folder they begin in, what a strong model calls, and how it must end."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).with_name("tasks")
AUTHOR = {
    "GIT_AUTHOR_NAME": "Ann",
    "GIT_AUTHOR_EMAIL": "ann@example.org",
    "GIT_COMMITTER_NAME": "Ann",
    "GIT_COMMITTER_EMAIL": "ann@example.org",
}


@dataclass(frozen=True)
class Task:
    """One task.

    Attributes:
        title: What the table calls it.
        prompt: What a person asks for.
        turns: The calls of each answer. A call names what it does (`shell`, `read`, `edit`,
            `write`, `search`, `list`) and may say what its result must have (`want`, a regular
            expression).
        check: A script for bash that must succeed in the folder afterwards.
        files: Files the folder begins with.
        make: A script for bash that makes the rest.
    """

    title: str
    prompt: str
    turns: list[list[dict[str, Any]]]
    check: str
    files: dict[str, str] = field(default_factory=dict[str, str])
    make: str = ""

    def prepare(self, folder: Path) -> None:
        """Make the folder a model begins in."""
        for name, text in self.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        _run_script(self.make, folder).check_returncode()

    def is_done(self, folder: Path) -> bool:
        """Whether the work was done."""
        return _run_script(self.check, folder).returncode == 0


def _run_script(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env={**os.environ, **AUTHOR, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def load_tasks(names: list[str]) -> list[Task]:
    """Return the tasks whose files have these names, or all."""
    files = [FOLDER / f"{name}.yaml" for name in names] or sorted(FOLDER.glob("*.yaml"))
    return [Task(**yaml.safe_load(file.read_text())) for file in files]
