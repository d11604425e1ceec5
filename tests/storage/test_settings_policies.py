"""Attempts and times in the settings: checked when they are read, and the person's alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from ferrule.core.errors import ConfigError
from ferrule.storage.settings.settings import Settings, load_settings
from ferrule.storage.trust import TrustStore
from ferrule.tools.reliability import Reliability, read_policies


def with_own(own_folders: Path, text: str) -> Settings:
    """The settings of a person whose file holds this."""
    file = own_folders / "config/ferrule.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    workspace = own_folders / "work"
    workspace.mkdir(exist_ok=True)
    return load_settings(workspace=workspace, environment={})


def test_policies_are_read_as_they_were_written(own_folders: Path) -> None:
    found = with_own(
        own_folders,
        "tools:\n  policy: {timeout_ms: 5000, backoff_mult: 3}\n"
        "  tool_policies:\n    grep_search: {max_attempts: 2}\n",
    )
    chosen = read_policies(found["tools.policy"], found["tools.tool_policies"], "settings")
    assert chosen.policy_for("grep_search") == Reliability(timeout=5, max_attempts=2, factor=3)
    assert with_own(own_folders, "tools: {policy: , tool_policies: }")["tools.policy"] is None


@pytest.mark.proves("reliability.policy-checked")
@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "policy: {retry_on: [often]}",
            r"ferrule\.yaml:1:\d+: `tools\.policy`: `retry_on`: found `often`",
        ),
        (
            "tool_policies: {x: {tries: 3}}",
            r"ferrule\.yaml:1:\d+: `tool_policies\.x`: unknown key `tries`",
        ),
        ("policy: 3", "must hold `key: value` pairs"),
        ("tool_policies: [x]", "must hold `key: value` pairs"),
    ],
)
def test_what_a_policy_cannot_mean_is_an_error_at_its_place_before_anything_runs(
    own_folders: Path, line: str, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        with_own(own_folders, f"tools: {{{line}}}")


@pytest.mark.parametrize("key", ["policy", "tool_policies"])
def test_a_repository_cannot_set_them(tmp_path: Path, own_folders: Path, key: str) -> None:
    (tmp_path / ".ferrule").mkdir()
    (tmp_path / ".ferrule/ferrule.yaml").write_text(f"tools: {{{key}: {{}}}}")
    trust = TrustStore()
    trust.trust(tmp_path)
    with pytest.raises(ConfigError) as raised:
        load_settings(workspace=tmp_path, environment={}, trust=trust)
    assert raised.value.code == "setting_not_for_projects"
