"""Fetching and pushing over real TLS, from the sandbox, to a server with an authority of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from https_remote import TOKEN, HttpsRemote, serve_repository

from ferrule.core.calls import ErrorType
from ferrule.sandbox.backends.probes import probe


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if not (probe().namespaces or probe().bwrap):
        pytest.skip(f"no sandbox here leads to a named host: {dict(probe().why)}")
    made = tmp_path / "home"
    made.mkdir()
    monkeypatch.setenv("HOME", str(made))
    monkeypatch.delenv("GIT_SSL_CAINFO", raising=False)
    return made


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[HttpsRemote]:
    folder = tmp_path / "server"
    folder.mkdir()
    with serve_repository(folder) as serving:
        yield serving


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[HttpsRemote]:
    folder = tmp_path / "guarded"
    folder.mkdir()
    with serve_repository(folder, needs_token=True) as serving:
        yield serving


def read_head(remote: HttpsRemote) -> str:
    return (remote.repository / "refs/heads/main").read_text().strip()


def trust(home: Path, remote: HttpsRemote, key: str = '[http]\n\tsslCAInfo = "{0}"\n') -> None:
    (home / ".gitconfig").write_text(key.format(remote.authority, remote.url))


@pytest.mark.parametrize(
    "key", ['[http]\n\tsslCAInfo = "{0}"\n', '[http "{1}"]\n\tsslCAInfo = "{0}"\n']
)
def test_a_push_and_a_fetch_work_with_the_authority_that_the_person_trusts(
    world: Any, home: Path, remote: HttpsRemote, key: str
) -> None:
    trust(home, remote, key)
    world.git("remote", "add", "origin", remote.url)
    world.do("git_push")
    assert read_head(remote) == world.git("rev-parse", "HEAD")
    world.git("update-ref", "-d", "refs/remotes/origin/main")
    world.do("git_fetch")
    assert world.git("rev-parse", "refs/remotes/origin/main") == read_head(remote)


def test_nothing_is_pushed_to_a_server_that_nobody_vouches_for(
    world: Any, home: Path, remote: HttpsRemote
) -> None:
    world.git("remote", "add", "origin", remote.url)
    error, said = world.refused("git_push")
    assert error is ErrorType.IO_ERROR
    assert "certificate" in said
    assert not (remote.repository / "refs/heads/main").exists()


def test_an_authority_that_commands_can_write_vouches_for_nobody(
    world: Any, home: Path, remote: HttpsRemote
) -> None:
    planted = world.root / "authority.txt"
    planted.write_bytes(remote.authority.read_bytes())
    (home / ".gitconfig").write_text(f'[http]\n\tsslCAInfo = "{planted}"\n')
    world.git("remote", "add", "origin", remote.url)
    error, said = world.refused("git_push")
    assert error is ErrorType.PERMISSION_DENIED
    assert str(planted) in said and "commands can write" in said
    assert remote.asked == []


def test_a_repository_names_no_authority(world: Any, home: Path, remote: HttpsRemote) -> None:
    world.git("remote", "add", "origin", remote.url)
    world.git("config", "http.sslCAInfo", str(remote.authority))
    world.git("config", "http.sslVerify", "false")
    assert world.refused("git_push")[0] is ErrorType.IO_ERROR
    assert not (remote.repository / "refs/heads/main").exists()


def test_a_token_in_the_address_is_used_and_shown_nowhere(
    world: Any, home: Path, guarded: HttpsRemote
) -> None:
    trust(home, guarded)
    world.git("remote", "add", "origin", guarded.url)
    error, said = world.refused("git_push")
    assert error is ErrorType.PERMISSION_DENIED and "asks for credentials" in said
    world.git("remote", "set-url", "origin", guarded.url_with_token)
    pushed = world.do("git_push")
    assert read_head(guarded) == world.git("rev-parse", "HEAD")
    assert TOKEN not in str(pushed)
