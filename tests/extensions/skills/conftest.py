"""A repository, a person's folders, and skills in them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ferrule.engine.agent import Agent
from ferrule.engine.session import Session
from ferrule.extensions.skills.loading import LoadedSkills, load_skills
from ferrule.models.scripted import Scripted
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.storage.trust import TrustStore
from grouped_options import grouped


def skill_text(
    name: str, description: str = "Does things.", body: str = "Do it so.", extra: str = ""
) -> str:
    return f"---\nname: {name}\ndescription: {description}\n{extra}---\n{body}\n"


@dataclass
class Place:
    """`home` holds the person's folders and nothing of the workspace."""

    workspace: Path
    home: Path
    own: Path
    sessions: list[Session] = field(default_factory=list[Session])

    def put(self, name: str, data: str | bytes, *, below: Path | None = None) -> Path:
        """A file of the workspace, or of another folder."""
        path = (below or self.workspace) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return path

    def skill(
        self, folder: str, name: str, *words: str, below: Path | None = None, **options: str
    ) -> Path:
        return self.put(
            f"{folder}/{name}/SKILL.md", skill_text(name, *words, **options), below=below
        )

    def load(self, **options: Any) -> LoadedSkills:
        seen = TrustStore().read(self.workspace)
        return load_skills(self.workspace, seen, self.own, home=self.home, **options)

    def session(self, loaded: LoadedSkills | None = None, **options: Any) -> Session:
        """A session whose only tool is the one of the skills."""
        found = loaded or self.load()
        agent = Agent(
            Scripted([]),
            found.tools,
            **grouped(workspace=self.workspace, journal=SqliteJournal(":memory:"), **options),
        )
        return agent.session()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    workspace, home = tmp_path / "work", tmp_path / "home"
    (workspace / ".git").mkdir(parents=True)
    (home / ".config/ferrule").mkdir(parents=True)
    for folder in (home, home / ".config", home / ".config/ferrule"):
        folder.chmod(0o700)
    monkeypatch.setenv("HOME", str(home))
    return Place(workspace, home, home / ".config/ferrule")


@pytest.fixture(autouse=True)
def umask() -> Any:
    """The person's files are theirs alone, whatever the machine's habit is."""
    import os

    before = os.umask(0o022)
    yield
    os.umask(before)
