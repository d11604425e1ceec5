"""The repository speaks of Ferrule only: not of the machine it was written on, nor of how."""

from __future__ import annotations

import re
import subprocess

import pytest
from source import ROOT

SKIPPED = {".git", ".venv", "build", "dist", "site", "__pycache__", "node_modules"}
TEXT = {
    ".py",
    ".md",
    ".toml",
    ".yaml",
    ".yml",
    ".txt",
    ".json",
    ".jsonl",
    ".cfg",
    ".ini",
    ".sh",
    "",
}

WORDS = [
    r"/work" + r"/(main|shared)\b",
    r"\.lib" + r"rary/",
    r"\bas an AI\b",
    r"\b(AI|coding) (session|assistant session)\b",
    r"\bmy (session|context window|knowledge cutoff)\b",
    r"\bclaude" + r"\.ai\b",
    r"\bCo-Authored-By\b",
    r"\bpypi" + r"\.org\b",
    r"\bpythonhosted" + r"\.org\b",
    r"\bregistry" + r"\.npmjs\b",
    r"\bdeb" + r"\.debian\.org\b",
]
"""What must not be said. Split where this file would otherwise say it."""


MAY_NAME_REGISTRIES = {
    "tests/repository/test_words.py",
    # What `npx` and `uvx` start downloads from there, through the sandbox's list of hosts.
    "src/ferrule/connectors/mcp/package_runners.py",
}


def texts() -> list[tuple[str, str]]:
    """Every text file that belongs to the repository."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.split("\0")
    paths = [ROOT / name for name in listed if name] or [
        path for path in ROOT.rglob("*") if path.is_file()
    ]
    kept = [
        p
        for p in paths
        if p.suffix in TEXT and p.is_file() and not SKIPPED & set(p.relative_to(ROOT).parts)
    ]
    return [
        (str(path.relative_to(ROOT)), path.read_text(encoding="utf-8", errors="replace"))
        for path in sorted(kept)
    ]


TEXTS = texts()


@pytest.mark.parametrize("word", WORDS)
def test_nothing_in_the_repository_says(word: str) -> None:
    pattern = re.compile(word)
    found = [
        f"{name}:{text[: match.start()].count(chr(10)) + 1} says {match.group()!r}"
        for name, text in TEXTS
        if name not in MAY_NAME_REGISTRIES
        for match in pattern.finditer(text)
    ]
    assert not found, "\n".join(found)


def test_there_are_texts_to_read() -> None:
    assert any(name == "pyproject.toml" for name, _ in TEXTS)
