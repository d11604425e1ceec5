"""Servers out of files: what is read, what is refused, and what a repository may not say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ferrule.connectors.mcp import McpServer, load_servers
from ferrule.connectors.mcp.configuration import read_server
from ferrule.connectors.mcp.spec import fill_variables
from ferrule.core.errors import ConfigError
from ferrule.storage.settings.settings import load_settings
from ferrule.storage.trust import TrustStore

ENTRY = {"command": "mcp-server-git", "args": ["--repository", "."], "env": {"TZ": "UTC"}}


def in_repository(root: Path, entries: dict[str, Any]) -> None:
    (root / ".mcp.json").write_text(json.dumps({"mcpServers": entries}))


def test_a_repositorys_file_does_nothing_before_it_is_trusted(tmp_path: Path) -> None:
    root = tmp_path / "work"
    root.mkdir()
    in_repository(root, {"git": ENTRY})
    trust = TrustStore(tmp_path / "trust.json")
    assert load_servers(trust.read(root)).servers == ()
    trust.trust(root)
    (server,) = load_servers(trust.read(root)).servers
    assert (server.command, server.origin, server.folder) == (
        ("mcp-server-git", "--repository", "."),
        "repository",
        str(root),
    )
    in_repository(root, {"git": ENTRY, "more": ENTRY})
    assert load_servers(trust.read(root)).servers == ()


@pytest.mark.parametrize("key", ["hints", "identity", "oauth"])
def test_a_repository_may_not_say_who_is_believed_or_told(key: str) -> None:
    with pytest.raises(ConfigError, match="cannot be set by a repository"):
        read_server("x", {**ENTRY, key: True}, "x", origin="repository")


def test_a_repositorys_server_gets_only_variables_that_the_person_allows() -> None:
    entry = {"command": "x", "env": {"TOKEN": "${GITHUB_TOKEN}", "WHERE": "${HOME}"}}
    parent = {"GITHUB_TOKEN": "ghp", "HOME": "/home/a", "PATH": "/bin"}
    theirs = read_server("x", entry, "x", origin="repository")
    assert theirs is not None
    with pytest.raises(ConfigError, match="refers to `GITHUB_TOKEN`"):
        fill_variables(theirs, environment=parent)
    assert fill_variables(theirs, environment=parent, allowed=("GITHUB_TOKEN",)).env == {
        "TOKEN": "ghp",
        "WHERE": "/home/a",
    }
    own = read_server("x", entry, "x")
    assert own is not None and fill_variables(own, environment=parent).env["TOKEN"] == "ghp"
    assert "ghp" not in repr(fill_variables(own, environment=parent))


def test_a_repositorys_server_cannot_make_programs_load_something() -> None:
    theirs = read_server(
        "x", {"command": "x", "env": {"LD_PRELOAD": "./evil.so"}}, "x", origin="repository"
    )
    assert theirs is not None
    with pytest.raises(ConfigError, match="LD_PRELOAD"):
        fill_variables(theirs)


def test_the_persons_own_file_and_settings_are_read_and_problems_do_not_take_others_along(
    tmp_path: Path,
) -> None:
    (tmp_path / "mcp.json").write_text(
        json.dumps(
            {
                "mcpServers": {
                    "git": ENTRY,
                    "bad": {"comand": "x"},
                    "off": {**ENTRY, "disabled": True},
                }
            }
        )
    )
    (tmp_path / "ferrule.yaml").write_text(
        "mcp_servers:\n"
        "  - name: github\n    transport: http\n    url: http://localhost:3030/mcp\n"
        "  - name: local_fs\n    transport: stdio\n    command: [mcp-filesystem, /tmp/project]\n"
        "    policy: {max_attempts: 3}\n"
    )
    settings = load_settings(user_file=tmp_path / "ferrule.yaml", workspace=tmp_path)
    loaded = load_servers(None, tmp_path, settings["mcp_servers"])
    assert [one.name for one in loaded.servers] == ["github", "local_fs", "git"]
    assert loaded.servers[0].transport == "http" and loaded.servers[1].command == (
        "mcp-filesystem",
        "/tmp/project",
    )
    assert loaded.servers[1].policies.default.max_attempts == 3
    assert len(loaded.problems) == 1 and "unknown key `comand`" in loaded.problems[0]


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({}, "has neither `command` nor `url`"),
        ({"command": "x", "url": "https://a/b"}, "has both `command` and `url`"),
        ({"type": "http", "command": "x"}, "needs a `url`"),
        ({"url": "http://example.com/mcp"}, "in the clear"),
        ({"url": "https://me:secret@example.com/mcp"}, "is not a valid URL"),
        ({"url": "file:///etc/passwd"}, "is not a valid URL"),
        ({"command": "x", "env": {"A": [1]}}, "a mapping of names to texts"),
        ({"command": "x", "era": "2024-11-05"}, "era `2024-11-05`"),
        ({"command": "x", "connect_timeout": 0}, "must be seconds"),
        ({"command": "x", "policy": {"retry_on": ["always"]}}, "found `always`"),
        ({"url": "https://a/b", "oauth": {"client_secret": "abc"}}, "holds a secret"),
        ({"url": "https://a/b", "headers": {"X Y": "1"}}, "not a valid header name"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_reason(entry: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_server("x", entry, "x")


@pytest.mark.parametrize("name", ["", "a__b", "a.b", "x" * 33, "1a", "a b", "a_"])
def test_names_that_would_not_be_told_apart_from_tools_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be the name of a server"):
        McpServer(name, command=("x",))


def test_a_server_with_an_address_is_reached_over_http_whatever_its_entry_says() -> None:
    assert McpServer("far", url="https://mcp.example.org/", transport="stdio").transport == "http"
    assert McpServer("near", command=("server",)).transport != "http"
