"""The time and the place."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ConfigError, ToolFailed
from ferrule.core.identity import Identity
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.toolkits.clock import get_current_time, get_working_directory
from ferrule.tools.context import Context


def now(timezone: str | None = None) -> str:
    return asyncio.run(get_current_time.handler(timezone=timezone))


@pytest.mark.parametrize("timezone", [None, "UTC", "Asia/Kolkata"])
def test_the_time_is_iso_8601_with_its_offset(timezone: str | None) -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    shown = datetime.fromisoformat(now(timezone))
    assert before <= shown <= datetime.now(UTC)
    if timezone == "Asia/Kolkata":
        assert shown.utcoffset() == timedelta(hours=5, minutes=30)


@pytest.mark.parametrize(
    "timezone", ["Mars/Olympus", "", "../../etc/passwd", "/etc/passwd", "a\0b", "Europe"]
)
def test_an_unknown_zone_is_refused_with_an_example(timezone: str) -> None:
    with pytest.raises(ToolFailed, match="Europe/Berlin") as raised:
        now(timezone)
    assert raised.value.error_type is ErrorType.VALIDATION_FAILED


def test_asking_for_the_time_again_and_again_is_fine() -> None:
    assert get_current_time.polls
    assert get_current_time.side_effect == "none"
    assert (get_current_time.risk, get_working_directory.risk) == ("safe", "safe")


def test_the_working_directory_is_the_workspace(tmp_path: Path) -> None:
    context = Context(
        Identity("t", "u", "s", "r"), "call_1", resources={Workspace: Workspace(tmp_path)}
    )
    assert asyncio.run(get_working_directory.handler(context=context)) == str(tmp_path)


def test_without_a_workspace_it_says_what_is_missing() -> None:
    with pytest.raises(ConfigError, match="workspace"):
        asyncio.run(
            get_working_directory.handler(context=Context(Identity("t", "u", "s", "r"), "call_1"))
        )
