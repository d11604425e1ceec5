"""Files of a person that are no files: a folder in the place of one is an error that names it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ferrule.connectors.a2a import A2aPeer
from ferrule.connectors.a2a.peer_approvals import PeerApprovals
from ferrule.connectors.http.secrets import Secrets
from ferrule.connectors.mcp import McpServer, ServerApprovals
from ferrule.core.errors import ConfigError
from ferrule.permissions.filesystem.opened_files import open_for_reading
from ferrule.permissions.grants import Grants
from ferrule.permissions.repositories import read_text
from ferrule.storage.audit.signing import Signer
from ferrule.storage.trust import TrustStore


def read_server_approval(folder: Path) -> object:
    server = McpServer("git", command=("mcp-server-git",))
    book = ServerApprovals(folder)
    book.approve(server)
    put_folder_in_place_of_file(folder)
    return book.get(server)


def read_peer_approval(folder: Path) -> object:
    (folder / "far.json").mkdir(parents=True)
    return PeerApprovals(folder).get(A2aPeer("far", "https://far.example/card.json"))


def read_trust(folder: Path) -> object:
    store = TrustStore(folder / "trust.json")
    work = folder.parent / "work"
    work.mkdir()
    (work / "ferrule.yaml").write_text("model: scripted:x\n")
    store.trust(work)
    put_folder_in_place_of_file(folder)
    return store.state(work)


def read_secret(folder: Path) -> object:
    (folder / "token").mkdir(parents=True)
    return Secrets(environment={}, folder=folder).look_up("secret:token")


def read_key(folder: Path) -> object:
    (folder / "key").mkdir(parents=True)
    return Signer.load(folder / "key")


def put_folder_in_place_of_file(folder: Path) -> None:
    (file,) = (path for path in folder.iterdir() if path.suffix == ".json")
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize(
    "read",
    [read_server_approval, read_peer_approval, read_trust, read_secret, read_key],
)
def test_a_folder_in_place_of_a_file_is_an_error_and_leaves_nothing_open(
    read: Callable[[Path], object], tmp_path: Path
) -> None:
    before = os.listdir("/proc/self/fd")
    with pytest.raises(ConfigError, match="Is a directory"):
        read(tmp_path / "own")
    assert os.listdir("/proc/self/fd") == before


def test_a_folder_in_place_of_the_grants_grants_nothing(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    (problem,) = Grants.load(tmp_path).problems
    assert "Is a directory" in problem
    assert os.listdir("/proc/self/fd") == before


def test_a_folder_in_place_of_a_file_of_a_repository_is_read_as_nothing(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    assert read_text(str(tmp_path)) == ""
    assert os.listdir("/proc/self/fd") == before


def test_opening_waits_for_no_pipe_and_follows_a_link_only_on_demand(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with open_for_reading(tmp_path / "pipe") as file:
        assert file.read() == b""
    (tmp_path / "file").write_text("one")
    (tmp_path / "link").symlink_to("file")
    with pytest.raises(OSError, match="symbolic links"):
        open_for_reading(tmp_path / "link")
    with open_for_reading(tmp_path / "link", follow_links=True) as file:
        assert file.read() == b"one"
