"""Which distributions bring plugins is remembered by the folders that they are in."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from ferrule.storage.plugins import metadata_index
from ferrule.storage.plugins.installed import find_installed_manifests
from ferrule.storage.plugins.metadata_index import find_metadata

LONG_AGO = 1_000_000_000


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "state"
    folder.mkdir()
    monkeypatch.setenv("FERRULE_STATE", str(folder))
    return folder


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The one folder of `sys.path`."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.setattr(sys, "path", [str(folder)])
    return folder


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folders whose metadata was read."""
    folders: list[str] = []
    search = metadata_index._search

    def note(folder: str) -> object:
        folders.append(folder)
        return search(folder)

    monkeypatch.setattr(metadata_index, "_search", note)
    return folders


def install(site: Path, name: str, group: str = "ferrule.plugins") -> None:
    folder = site / f"{name}-1.dist-info"
    folder.mkdir()
    (folder / "entry_points.txt").write_text(f"[{group}]\n{name} = {name}:Plugin\n")
    change(site)


def change(site: Path, seconds: int = 0) -> None:
    """Let the folder have changed at a time of its own, long ago."""
    moment = LONG_AGO + seconds + len(list(site.iterdir()))
    os.utime(site, (moment, moment))


def test_metadata_is_read_once_until_the_folder_changes(
    state: Path, site: Path, searched: list[str]
) -> None:
    install(site, "pond")
    install(site, "other", "console_scripts")
    first = [find_metadata() for _ in range(3)]
    assert first == [[(str(site), "pond-1.dist-info")]] * 3
    assert searched == [str(site)]
    install(site, "lake")
    names = [name for _, name in find_metadata()]
    assert names == ["lake-1.dist-info", "pond-1.dist-info"]
    (site / "pond-1.dist-info/entry_points.txt").unlink()
    (site / "pond-1.dist-info").rmdir()
    change(site, 100)
    assert [name for _, name in find_metadata()] == ["lake-1.dist-info"]
    assert len(searched) == 3


def test_a_folder_that_changed_just_now_is_read_again(
    state: Path, site: Path, searched: list[str]
) -> None:
    install(site, "pond")
    os.utime(site)
    assert find_metadata() == find_metadata() == [(str(site), "pond-1.dist-info")]
    assert len(searched) == 2 and list(state.iterdir()) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "[" * 100_000,
        "{",
        '{"SITE": 3}',
        '{"SITE": {"changed": "x", "names": []}}',
        "\x00\udcff",
    ],
)
def test_an_index_that_cannot_be_read_is_made_again(state: Path, site: Path, text: str) -> None:
    install(site, "pond")
    file = state / "installed-plugins.json"
    file.write_text(text.replace("SITE", str(site)), "utf-8", "surrogateescape")
    assert find_metadata() == [(str(site), "pond-1.dist-info")]
    assert json.loads(file.read_text())[str(site)]["names"] == ["pond-1.dist-info"]


def test_the_index_of_another_environment_stays(
    state: Path, site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, searched: list[str]
) -> None:
    install(site, "pond")
    find_metadata()
    second = tmp_path / "second"
    second.mkdir()
    change(second)
    monkeypatch.setattr(sys, "path", [str(second)])
    assert find_metadata() == []
    monkeypatch.setattr(sys, "path", [str(site)])
    assert find_metadata() and searched == [str(site), str(second)]


def test_no_folder_of_state_is_made_for_it(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(site, "pond")
    monkeypatch.setenv("FERRULE_STATE", str(tmp_path / "none/there"))
    assert find_metadata() == [(str(site), "pond-1.dist-info")]
    assert not (tmp_path / "none").exists()


def test_a_kept_name_leads_nowhere_but_into_its_folder(
    state: Path, site: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    install(elsewhere, "pond")
    install(site, "lake")
    find_metadata()
    file = state / "installed-plugins.json"
    kept = json.loads(file.read_text())
    kept[str(site)]["names"].append("../elsewhere/pond-1.dist-info")
    file.write_text(json.dumps(kept))
    find_installed_manifests.cache_clear()
    try:
        assert list(find_installed_manifests()) == ["lake"]
    finally:
        find_installed_manifests.cache_clear()
