"""A policy that is changed holds from the next command on, and the session stays what it was."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from backend_sandboxes import Opens, opens, root

from ferrule.sandbox.command import Capture, Command
from ferrule.sandbox.sandbox import Sandbox

__all__ = ["opens", "root"]


async def run(sandbox: Sandbox, folder: Path, script: str) -> tuple[int | None, str]:
    output = Capture(4096, 4096)
    directory = os.open(folder, os.O_RDONLY)
    try:
        command = Command(("sh", "-c", script), "/bin/sh", directory, dict(os.environ), output)
        ended = await sandbox.run(command)
    finally:
        os.close(directory)
    return ended.exit_code, output.text()


async def test_a_changed_policy_holds_from_the_next_command_on(opens: Opens, root: Path) -> None:
    shelf = root.with_name("shelf")
    shelf.mkdir()
    (shelf / "note").write_text("found\n")
    (shelf / ".env").write_text("private\n")
    sandbox = opens(root)
    narrow = sandbox.policy
    assert narrow is not None
    peek = f"cat {shelf}/note {shelf}/.env; echo x > {shelf}/new"
    await run(sandbox, root, "echo kept > ~/mine; echo kept > $TMPDIR/mine")
    code, shown = await run(sandbox, root, peek)
    assert code != 0 and "found" not in shown
    await sandbox.change_policy(replace(narrow, writable=(str(shelf),)))
    code, shown = await run(sandbox, root, f"{peek} && cat ~/mine $TMPDIR/mine")
    assert "found" in shown and "private" not in shown and "kept\nkept\n" in shown
    assert (shelf / "new").read_text() == "x\n"
    (shelf / "new").unlink()
    await sandbox.change_policy(replace(narrow, readable=(str(shelf),)))
    code, shown = await run(sandbox, root, peek)
    assert code != 0 and "found" in shown and "private" not in shown
    assert not (shelf / "new").exists()
    await sandbox.change_policy(narrow)
    code, shown = await run(sandbox, root, f"{peek}; ls {shelf}/..")
    assert code != 0 and "found" not in shown and not (shelf / "new").exists()


async def test_no_policy_is_changed_under_a_running_command(opens: Opens, root: Path) -> None:
    sandbox = opens(root)
    assert sandbox.policy is not None
    directory = os.open(root, os.O_RDONLY)
    command = Command(("sleep", "1000"), "/bin/sleep", directory, dict(os.environ), lambda _: True)
    running = await sandbox.start(command)
    os.close(directory)
    with pytest.raises(RuntimeError, match="nothing runs"):
        await sandbox.change_policy(replace(sandbox.policy, network=("example.com",)))
    await running.end()
