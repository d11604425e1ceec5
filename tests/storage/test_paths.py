"""Where Ferrule keeps what is its own."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from ferrule.core.errors import ConfigError, FerruleError
from ferrule.storage import paths


def test_the_folders_follow_the_xdg_variables(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for kind in ("STATE", "CONFIG", "CACHE"):
        monkeypatch.delenv(f"FERRULE_{kind}", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "s"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "c"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    assert (paths.state(), paths.config(), paths.cache()) == (
        tmp_path / "s/ferrule",
        tmp_path / "c/ferrule",
        tmp_path / "x/ferrule",
    )
    assert (
        paths.default_journal() == tmp_path / "s/ferrule/journal.db"
        and list(tmp_path.iterdir()) == []
    )


def test_own_variables_come_first_and_must_be_absolute(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("FERRULE_STATE", "~/mine")
    assert paths.state() == tmp_path / "mine"
    monkeypatch.setenv("FERRULE_STATE", "mine")
    with pytest.raises(ConfigError, match="FERRULE_STATE"):
        paths.state()


@pytest.mark.proves("state.private")
def test_folders_and_files_are_made_for_the_owner_alone(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        paths.write_private(tmp_path / "a" / "b" / "f.json", "one")
        paths.write_private(tmp_path / "a" / "b" / "f.json", "two")
    finally:
        os.umask(old)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    assert modes == {"a": 0o700, "b": 0o700, "f.json": 0o600}
    assert (tmp_path / "a/b/f.json").read_text() == "two"


def test_an_existing_folder_keeps_its_permissions(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    paths.make_private_folder(tmp_path)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


def test_a_folder_that_cannot_be_made_is_named_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FerruleError, match="file/x") as found:
        paths.make_private_folder(tmp_path / "file" / "x")
    assert "FERRULE_STATE" in found.value.hint


def test_a_write_that_fails_leaves_the_old_file_and_no_draft(tmp_path: Path) -> None:
    target = tmp_path / "f.json"
    target.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        paths.write_private(target, "x" * 100_000 + "\ud800")
    assert target.read_text() == "old" and list(tmp_path.iterdir()) == [target]
