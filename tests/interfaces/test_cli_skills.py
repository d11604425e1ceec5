"""`ferrule skills`: what is listed, shown and checked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def skills(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two skills of the folder, and no skills of the person."""
    monkeypatch.setenv("HOME", str(tmp_path))
    put(
        folder / ".agents/skills/pdf/SKILL.md",
        "pdf",
        "allowed-tools: Read Bash(ls)\nlicense: MIT\nmetadata: {by: us}\n",
    )
    put(folder / ".ferrule/skills/deploy/SKILL.md", "deploy", "")
    return folder


def put(path: Path, name: str, extra: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f"---\nname: {name}\ndescription: About\\u001b[2J {name}.\n{extra}---\nDo {name}.\n"
    )


def test_skills_are_listed_with_who_answers_for_them(ferrule: Any, skills: Path) -> None:
    ran = ferrule("skills", "list")
    assert ran.code == 0 and [line.split()[:2] for line in ran.lines] == [["pdf", "repository"]]
    assert "no effect until you trust the folder" in ran.err
    ferrule("trust", "--yes")
    ran = ferrule("skills", "list", "--json")
    assert [(row["name"], row["origin"]) for row in json.loads(ran.out)] == [
        ("deploy", "trusted"),
        ("pdf", "repository"),
    ]


def test_one_skill_is_shown_as_the_model_gets_it(ferrule: Any, skills: Path) -> None:
    ran = ferrule("skills", "show", "pdf")
    assert ran.code == 0 and '<skill name="pdf" by="the repository">\nDo pdf.\n</skill>' in ran.out
    assert "license: MIT\nby: us\n" in ran.out
    assert "asks for the tools Read, Bash(ls); permission rules and you decide" in ran.out
    ran = ferrule("skills", "show", "pfd")
    assert ran.code == 2 and "did you mean `pdf`?" in ran.err
    ran = ferrule("skills", "show", "pdf", "../../../note.txt")
    assert ran.code == 2 and "two" not in ran.out + ran.err


def test_check_says_all_that_is_wrong_also_before_trust(ferrule: Any, skills: Path) -> None:
    assert ferrule("skills", "check").code == 0
    put(skills / ".agents/skills/bad/SKILL.md", "bad", "metadata: [x]\n")
    put(skills / ".ferrule/skills/worse/SKILL.md", "worse", "colour: red\nmetadata: 1\n")
    ran = ferrule("skills", "check", "-C", str(skills))
    assert ran.code == 1 and "2 skills, 2 left out" in ran.err
    assert "error: .agents/skills/bad/SKILL.md:4:11: `metadata` must be" in ran.out
    assert "error: .ferrule/skills/worse/SKILL.md:5:11: `metadata` must be a mapping" in ran.out


def test_a_folder_without_skills_says_so(
    ferrule: Any, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    ran = ferrule("skills", "list")
    assert (ran.code, ran.out) == (0, "") and "no skills found" in ran.err
