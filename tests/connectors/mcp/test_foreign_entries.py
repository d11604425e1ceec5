"""Entries as READMEs print them and other programs keep them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ferrule.connectors.mcp import McpServer
from ferrule.connectors.mcp.configuration import load_servers, read_server
from ferrule.connectors.mcp.other_programs import find_foreign_servers, read_foreign_file
from ferrule.connectors.mcp.package_runners import NPM_HOSTS, PYPI_HOSTS
from ferrule.connectors.mcp.spec import fill_variables
from ferrule.connectors.mcp.stdio import LaunchSettings
from ferrule.core.errors import ConfigError


def read(entry: dict[str, Any], **more: Any) -> McpServer:
    server = read_server("x", entry, "x", **more)
    assert server is not None
    return server


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"command": "npx -y a b"}, {"command": ("npx", "-y", "a", "b")}),
        ({"command": "x", "type": "local"}, {"transport": "stdio"}),
        ({"url": "https://a/b"}, {"transport": "http"}),
        ({"serverUrl": "https://a/b"}, {"url": "https://a/b", "transport": "http"}),
        ({"httpUrl": "https://a/b", "trust": True}, {"url": "https://a/b"}),
        ({"url": "https://a/b", "type": "streamableHttp"}, {"transport": "http"}),
        ({"url": "https://a/b", "transportType": "sse"}, {"transport": "sse"}),
        ({"command": "x", "env": {"A": 1, "B": True}}, {"env": {"A": "1", "B": "true"}}),
        ({"command": "x", "env": {"A": "${env:B}"}}, {"env": {"A": "${B}"}}),
        ({"command": "x", "env": {"A": "${input:my-key}"}}, {"env": {"A": "${MY_KEY}"}}),
        ({"command": "x", "args": ["${workspaceFolder}/a"]}, {"command": ("x", "./a")}),
        ({"command": "x", "args": ["${userHome}"]}, {"command": ("x", "${HOME}")}),
        ({"command": "x", "includeTools": ["a"]}, {"only": ("a",)}),
        ({"command": "x", "disabledTools": ["a"]}, {"without": ("a",)}),
        ({"command": "x", "enabled_tools": ["a"]}, {"only": ("a",)}),
        ({"command": "x", "startup_timeout_sec": 90}, {"connect_timeout": 90.0}),
        ({"command": "x", "env_vars": ["A"]}, {"env": {"A": "${A}"}}),
        (
            {"url": "https://a/b", "bearer_token_env_var": "T"},
            {"headers": {"Authorization": "Bearer ${T}"}},
        ),
        (
            {"url": "https://a/b", "env_http_headers": {"X-Key": "K"}},
            {"headers": {"X-Key": "${K}"}},
        ),
        ({"command": "x", "cwd": "sub", "envFile": "~/e"}, {"cwd": "sub", "env_file": "~/e"}),
        *(
            ({"command": "x", key: "y"}, {"command": ("x",)})
            for key in [
                "version",
                "gallery",
                "dev",
                "icon",
                "iconUrl",
                "id",
                "note",
                "_comment",
                "inputs",
                "fromGalleryId",
                "requestOptions",
                "networkTimeout",
                "title",
                "disabledReason",
                "required",
                "supports_parallel_tool_calls",
            ]
        ),
        ({"command": "npx", "args": ["-y", "a"]}, {"connect_timeout": 180.0}),
        ({"command": "mcp-server-git"}, {"connect_timeout": 30.0}),
    ],
)
def test_a_key_of_another_program_means_what_it_means_there(
    entry: dict[str, Any], expected: dict[str, Any]
) -> None:
    server = read(entry)
    assert {name: getattr(server, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("value", "seconds"), [(60_000, 60.0), (60, 60.0), (0.5, 0.5), (True, None)]
)
def test_a_timeout_is_read_in_seconds_or_milliseconds(value: Any, seconds: float | None) -> None:
    policies = read({"command": "x", "timeout": value}).policies
    assert (policies.default.timeout if seconds else None) == seconds


def test_what_decides_who_is_asked_is_not_taken_over_and_is_said() -> None:
    remarks: list[str] = []
    server = read({"command": "x", "alwaysAllow": ["a"]}, remarks=remarks)
    assert server.hints is False and len(remarks) == 1 and "`alwaysAllow`" in remarks[0]
    remarks.clear()
    read({"command": "x", "alwaysAllow": [], "disabled": False}, remarks=remarks)
    assert remarks == []
    assert read_server("x", {"command": "x", "enabled": False}, "x") is None


def test_an_unknown_key_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="netwrok") as raised:
        read({"command": "x", "netwrok": ["a"]})
    assert raised.value.hint == "did you mean `network`?"


def test_a_file_of_variables_is_the_persons_alone(tmp_path: Path) -> None:
    file = tmp_path / "servers.env"
    file.write_text("# keys\nexport A=1\nB='two words'\nnot a line\n")
    entry = {"command": "x", "envFile": str(file), "env": {"A": "mine"}}
    assert fill_variables(read(entry), environment={}).env == {"A": "mine", "B": "two words"}
    with pytest.raises(ConfigError, match="gets no `envFile`"):
        fill_variables(read(entry, origin="repository", folder="/r"), environment={})


@pytest.mark.parametrize(
    ("command", "hosts"),
    [
        (["npx", "-y", "a"], set(NPM_HOSTS)),
        (["uvx", "a"], set(PYPI_HOSTS)),
        (["python", "-m", "a"], set[str]()),
    ],
)
def test_what_downloads_may_reach_its_registry_and_has_a_cache_of_its_own(
    command: list[str], hosts: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FERRULE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    server = read({"command": command})
    policy = LaunchSettings(tmp_path).policy(server, tmp_path)
    assert set(policy.network) == hosts
    assert set(server.approval_facts().get("downloads from", ())) == hosts
    assert [Path(one).parent for one in policy.scratch] == [tmp_path / "cache/mcp"] * bool(hosts)


def test_a_registry_of_ones_own_is_used_and_its_token_stays_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".npmrc").write_text(
        "//npm.example.com/:_authToken=secret\nregistry=https://npm.example.com/\n"
    )
    server = read({"command": "npx", "args": ["-y", "a"]})
    assert server.approval_facts()["downloads from"] == ["npm.example.com"]
    assert "secret" not in json.dumps(server.approval_facts())


def test_a_container_is_said_to_confine_its_server() -> None:
    entry = {"command": "docker", "args": ["run", "-i", "--rm", "a"]}
    assert read(entry).approval_facts()["confined by"] == "its container, not by the sandbox"
    theirs = read(entry, origin="repository", folder="/r")
    own_program = read({"command": "./docker", "args": ["run", "a"]})
    for server in (theirs, own_program):
        assert not server.needs.is_container and "confined by" not in server.approval_facts()
    assert not read({"command": "./npx", "args": ["a"]}).needs.hosts


def test_the_files_of_six_programs_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "work"
    entry = {"command": "x"}
    files = {
        ".claude.json": {
            "mcpServers": {"a": entry},
            "projects": {
                str(folder): {"mcpServers": {"b": entry}},
                "/x": {"mcpServers": {"no": entry}},
            },
        },
        ".config/Claude/claude_desktop_config.json": {"mcpServers": {"c": entry}},
        ".cursor/mcp.json": {"mcpServers": {"d": entry}},
        "work/.vscode/mcp.json": '{\n// "servers": no\n"servers": {"e": {"command": "a//b",},},}',
        ".config/Code/User/settings.json": {"mcp": {"servers": {"f": entry}}},
        ".codeium/windsurf/mcp_config.json": {"mcpServers": {"g": entry}},
        ".codex/config.toml": '[mcp_servers.h]\ncommand = "x"\n',
        "work/.cursor/mcp.json": "{broken",
    }
    for name, content in files.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content if isinstance(content, str) else json.dumps(content))
    found, problems = find_foreign_servers(folder)
    names = {name: one.program for one in found for name in one.entries}
    assert names == {
        "a": "claude-code",
        "b": "claude-code",
        "c": "claude-desktop",
        "d": "cursor",
        "e": "vscode",
        "f": "vscode",
        "g": "windsurf",
        "h": "codex",
    }
    assert len(problems) == 1 and "work/.cursor/mcp.json" in problems[0]
    assert read_foreign_file(folder / ".vscode/mcp.json", folder)["e"] == {"command": "a//b"}
    only, _ = find_foreign_servers(folder, ("codex",))
    assert [one.program for one in only] == ["codex"]


def test_remarks_are_kept_apart_from_problems(tmp_path: Path) -> None:
    (tmp_path / "mcp.json").write_text(
        json.dumps({"mcpServers": {"a": {"command": "x", "autoApprove": ["t"]}}})
    )
    loaded = load_servers(None, tmp_path)
    assert [one.name for one in loaded.servers] == ["a"] and loaded.problems == ()
    assert len(loaded.remarks) == 1
