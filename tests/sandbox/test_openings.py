"""What a person is offered to open for commands: narrow, and never what is private."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from ferrule.sandbox.command import Refusal
from ferrule.sandbox.openings import Opening, find_opening
from ferrule.sandbox.policy import SandboxPolicy


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name in ("work/repo", "state/sub", "data/set", "data/open", "person/.config/app"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("person/.ssh", "person/.mozilla/x", "person/.cache/app", "person/work"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("data/set/keys.env", "data/set/.git/hooks", "data/set/.github/workflows"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "data/open").chmod(0o777)
    (tmp_path / "data/link").symlink_to(tmp_path / "person/.ssh")
    return tmp_path


def find(place: Path, target: str, access: Any = "write", **policy: Any) -> Opening | None:
    made = SandboxPolicy(place / "work/repo", **policy)
    refusal = Refusal(access, target.replace("@", str(place)), "")
    return find_opening(refusal, made, str(place / "person"), (str(place / "state"),))


def test_the_folder_that_a_write_was_for_is_offered(place: Path) -> None:
    assert find(place, "@/data/set/new.txt") == Opening("write", f"{place}/data/set")
    assert find(place, "@/data/set") == Opening("write", f"{place}/data/set")
    assert find(place, "@/data/set", "read") == Opening("read", f"{place}/data/set")
    assert find(place, "@/person/work/new.txt") == Opening("write", f"{place}/person/work")
    assert find(place, "@/person/.cache/app/new") == Opening("write", f"{place}/person/.cache/app")


@pytest.mark.parametrize(
    "target",
    [
        "@/person/new.txt",  # the whole home
        "@/person/.config/app/new.txt",
        "@/person/.mozilla/x/new.txt",
        "@/person/.ssh/new.txt",
        "@/data/link/new.txt",  # a link to ~/.ssh
        "@/data/set/keys.env/new.txt",
        "@/data/set/.git/hooks/post-merge",
        "@/data/set/.github/workflows/ci.yml",
        "@/work/new.txt",  # around the workspace
        "@/work/repo/.git/config",
        "@/state/sub/new.txt",  # Ferrule's own
        "@/data/open/new.txt",  # anybody can write there
        "@/data/set/missing/new.txt",
        "/usr/local/new.txt",
        "/etc/new.txt",
        "/run/docker.sock",
        "/srv",
        "/home/somebody/new.txt",
        "/",
    ],
)
def test_what_is_too_wide_or_private_is_not_offered(place: Path, target: str) -> None:
    assert find(place, target) is None


def test_nothing_is_offered_where_commands_could_put_a_link(place: Path) -> None:
    assert find(place, "@/data/set/x", "read", writable=(f"{place}/data",)) is None
    assert find(place, "@/data/set\u202e/x", "read") is None


@pytest.mark.parametrize(
    ("target", "opens"),
    [
        ("packages.example.org:443", "packages.example.org:443"),
        ("Packages.Example.org.:443", "packages.example.org:443"),
        ("93.184.216.34:8080", "93.184.216.34:8080"),
        ("169.254.169.254:80", ""),
        ("127.0.0.1:80", ""),
        ("192.168.1.1:80", ""),
        ("[::ffff:10.0.0.1]:80", ""),
        ("localhost:80", ""),
        ("db.localhost:80", ""),
        ("printer:80", ""),
        ("2130706433:80", ""),
        ("packages.ex\u0430mple.org:443", ""),
        ("packages.example.org", ""),
    ],
)
def test_hosts_are_offered_with_their_port(place: Path, target: str, opens: str) -> None:
    found = find(place, target, "network")
    assert found == (Opening("network", opens) if opens else None)


def test_an_opening_adds_itself_and_nothing_else(place: Path) -> None:
    policy = SandboxPolicy(place, network=("example.com",), readable=("/opt/x",))
    opened = Opening("network", "packages.example.org:443").add_to(policy)
    assert opened.network == ("example.com", "packages.example.org:443") and opened.readable == (
        "/opt/x",
    )
    assert (
        opened.writable == ()
        and Opening("network", "packages.example.org:443").add_to(opened) is opened
    )
    assert Opening("write", os.sep + "d").line == 'sandbox: {writable: ["/d"]}'
