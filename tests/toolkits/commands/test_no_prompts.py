"""No editor, pager or prompt can hang a command."""

from __future__ import annotations

import asyncio
import subprocess
import time
from pathlib import Path

import pytest

from ferrule.core.identity import Identity
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.sandbox.sandbox import Sandbox
from ferrule.toolkits.commands import CommandPolicy, run_command
from ferrule.tools.context import Context
from unheld import share_unheld


def run(folder: Path, command: str) -> str:
    resources: dict[type, object] = {
        Sandbox: share_unheld(),
        Workspace: Workspace(folder),
        CommandPolicy: CommandPolicy(shell_allowed=True, timeout=20),
    }
    context = Context(Identity("t", "u", "s", "r"), "call_1", resources=resources)
    return str(asyncio.run(run_command.handler(command, context=context)))


def test_nothing_waits_for_somebody(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / "a").write_text("a\n")
    user = "git -c user.name=a -c user.email=a@b.c"
    started = time.monotonic()
    assert "Aborting commit due to empty commit message" in run(
        tmp_path, f"git add a; {user} commit"
    )
    assert run(tmp_path, f"{user} commit -qm one && {user} commit --amend -q && echo kept") == (
        "kept\n"
    )
    assert "one" in run(tmp_path, "git log")
    assert run(tmp_path, "read answer; echo \"got '$answer'\"") == "got ''\n"
    assert run(tmp_path, '"$EDITOR" a; "$PAGER" a') == "a\n"
    assert time.monotonic() - started < 20


@pytest.mark.proves("command.environment")
def test_the_note_names_the_variable_that_the_command_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_BASE_URL", "http://127.0.0.1")
    monkeypatch.setenv("SHOP_API_KEY", "x")
    note = "[not passed on from the environment: SHOP_BASE_URL; a person can allow them by name]"
    assert note in run(tmp_path, 'test -n "$SHOP_BASE_URL"')
    assert note in run(tmp_path, 'sh -c "exit 3" "$SHOP_BASE_URL" | cat')
    assert "not passed on" not in run(tmp_path, "exit 3")
