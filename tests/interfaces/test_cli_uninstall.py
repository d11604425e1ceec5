"""`ferrule uninstall`: what is on disk, and removing it; and help in groups."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ferrule.cli.root import COMMANDS, GROUPS
from ferrule.storage import paths


@pytest.fixture
def usual(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Ferrule's folders where nobody names others."""
    home = tmp_path / "ada"
    for kind in ("STATE", "CONFIG", "CACHE"):
        monkeypatch.delenv(f"FERRULE_{kind}", raising=False)
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(home / kind.lower()))
    for folder in (paths.state(), paths.config(), paths.cache()):
        folder.mkdir(parents=True)
    (paths.state() / "trust.json").write_text('{"version": 1, "workspaces": {}}\n')
    (paths.state() / "trust.json").chmod(0o600)
    (paths.cache() / "models").mkdir()
    (paths.cache() / "models" / "m.gguf").write_bytes(b"x" * 2_000_000)
    (paths.cache() / "models" / "link").symlink_to(tmp_path)
    (paths.config() / "ferrule.yaml").write_text("model: scripted:none\n")
    return home


def test_a_dry_run_lists_what_is_on_disk_and_changes_nothing(usual: Path, ferrule: Any) -> None:
    before = set(usual.rglob("*"))
    ran = ferrule("uninstall", "--dry-run")
    assert ran.code == 0
    assert f"{paths.cache()}  2 MB" in ran.out and "     2 MB  models" in ran.out
    assert "trust.json" in ran.out and "ferrule.yaml" in ran.out
    assert set(usual.rglob("*")) == before


def test_without_a_terminal_it_removes_nothing_unless_told_to(usual: Path, ferrule: Any) -> None:
    ran = ferrule("uninstall")
    assert ran.code == 7 and paths.state().exists() and "--yes" in ran.err
    assert ferrule("uninstall", "--yes").code == 0
    assert not paths.state().exists() and not paths.cache().exists()
    assert usual.parent.exists()


def test_a_folder_that_a_variable_names_is_listed_and_stays(
    usual: Path, ferrule: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = usual / "documents"
    chosen.mkdir()
    (chosen / "letter.txt").write_text("dear\n")
    monkeypatch.setenv("FERRULE_CACHE", str(chosen))
    ran = ferrule("uninstall", "--yes")
    assert ran.code == 0 and "named by FERRULE_CACHE: stays" in ran.out
    assert (chosen / "letter.txt").exists() and not paths.state().exists()


def test_help_lists_each_command_once_under_a_heading_with_examples(ferrule: Any) -> None:
    listed = [name for names in GROUPS.values() for name in names]
    assert sorted(listed) == sorted(COMMANDS) and len(set(listed)) == len(listed)
    text = ferrule("--help").out
    assert all(f"{heading}:\n" in text for heading in GROUPS)
    assert "  Examples:\n" in text
    assert "…" not in text and "..." not in text.partition("Options:")[2]
    assert max(map(len, text.splitlines())) <= 100
