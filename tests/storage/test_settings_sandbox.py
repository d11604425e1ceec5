"""What a repository may do with the settings of the sandbox: ask for more, never for less."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from ferrule.core.errors import ConfigError
from ferrule.sandbox.backends.reduced_protection import SandboxMode
from ferrule.sandbox.policy import DEFAULT_REQUIRED
from ferrule.storage.settings.settings import Settings, load_settings
from ferrule.storage.settings.table import BY_KEY
from ferrule.storage.trust import TrustStore


def with_project(root: Path, text: str, **environment: str) -> Settings:
    """The settings with a trusted file of the repository."""
    (root / ".ferrule").mkdir(exist_ok=True)
    (root / ".ferrule/ferrule.yaml").write_text(text)
    trust = TrustStore()
    trust.trust(root)
    return load_settings(workspace=root, environment=environment, trust=trust)


@pytest.mark.parametrize(
    "line",
    ['mode: "off"', "readable: [/etc]", "writable: [/]"],
    ids=["off", "readable", "writable"],
)
def test_a_repository_cannot_take_the_sandbox_away_or_open_folders(
    tmp_path: Path, own_folders: Path, line: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        with_project(tmp_path, f"sandbox: {{{line}}}")
    assert raised.value.code == "setting_not_for_projects"


def test_a_repository_can_only_ask_for_more(tmp_path: Path, own_folders: Path) -> None:
    found = with_project(
        tmp_path,
        (
            "sandbox: "
            "{mode: required, require: [memory], network: [evil.example, packages.example], memory: 99999, processes: 7}"
        ),
        FERRULE_SANDBOX_MODE="required",
    )
    assert found["sandbox.mode"] == "required"
    assert set(found["sandbox.require"]) == {*DEFAULT_REQUIRED, "memory"}
    assert found["sandbox.network"] == () and any(
        "evil.example" in notice for notice in found.notices
    )
    assert (found["sandbox.memory"], found["sandbox.processes"]) == (8192, 7)


def test_a_person_can_ask_for_less_and_a_repository_for_more_than_that(
    tmp_path: Path, own_folders: Path
) -> None:
    file = own_folders / "config/ferrule.yaml"
    file.parent.mkdir()
    file.write_text("sandbox: {require: [network], network: [packages.example, example.org]}")
    assert set(load_settings(workspace=tmp_path, environment={})["sandbox.require"]) == {"network"}
    found = with_project(tmp_path, "sandbox: {require: [exec], network: [packages.example]}")
    assert found["sandbox.require"] == ("network", "exec") and found["sandbox.network"] == (
        "packages.example",
    )


@pytest.mark.parametrize("how", ["file", "environment"])
def test_an_aspect_that_does_not_exist_is_an_error_that_lists_them(
    tmp_path: Path, own_folders: Path, how: str
) -> None:
    with pytest.raises(ConfigError, match=r"networking.*one of `file_reads`"):
        if how == "file":
            with_project(tmp_path, "sandbox: {require: [networking]}")
        else:
            load_settings(
                workspace=tmp_path, environment={"FERRULE_SANDBOX_REQUIRE": "network,networking"}
            )


def test_the_table_has_the_modes_that_there_are() -> None:
    assert BY_KEY["sandbox.mode"].choices == get_args(SandboxMode)
