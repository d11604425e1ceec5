"""File tools see the temporary folder of a session's commands under its own name."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from ferrule.core.errors import ToolFailed
from ferrule.core.identity import Identity
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.permissions.rule_evaluation import PermissionGate
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.toolkits.commands import CommandPolicy, run_command
from ferrule.toolkits.commands.confinement import find_confinement
from ferrule.toolkits.commands.scratch_files import ScratchFile
from ferrule.toolkits.files import tools
from ferrule.toolkits.search.search_files import search_files
from ferrule.tools.context import Context


async def test_commands_and_file_tools_share_tmp(tmp_path: Path) -> None:
    root = tmp_path / "work"
    root.mkdir()
    policy = CommandPolicy(confine=SandboxPolicy(root))
    given = {CommandPolicy: policy, Workspace: Workspace(root)}
    found = find_confinement(given)
    if found is None or "/tmp" not in found.own:
        pytest.skip("commands have no `/tmp` of their own on this machine")
    closers: list[Any] = []
    context = Context(
        Identity("t", "u", "s", "r"),
        "call_1",
        resources=given,
        on_close=closers.append,
    )

    async def run(command: str) -> str:
        return str(await run_command.handler(command, context=context))

    def call(tool: Any, **values: Any) -> str:
        return str(tool.handler(**values, context=context))

    try:
        assert "[all 30000 lines: /tmp/out/1.txt]" in await run("seq 1 30000")
        shown = call(tools.read_file, path="/tmp/out/1.txt", line_start=29_999)
        assert shown == "29999: 29999\n30000: 30000\n[lines 29999-30000 of 30000]"
        assert await run("tail -1 /tmp/out/1.txt") == "30000\n"
        found_rows = await search_files.handler("^777$", path="/tmp/out/1.txt", context=context)
        assert "777:777" in found_rows
        call(tools.write_file, path="/tmp/x.sh", content="echo from a file\n")
        assert await run("sh /tmp/x.sh") == "from a file\n"
        call(tools.edit_file, path="/tmp/x.sh", old_string="a file", new_string="here")
        assert await run("sh /tmp/x.sh") == "from here\n"
        made = await run("mktemp -d -p ${TMPDIR:-/tmp}")
        assert made.startswith("/tmp/")
        await run("ln -s /etc/passwd /tmp/link; ln -s / /tmp/top")
        for path in ("/tmp/link", "/tmp/top/etc/passwd", "/tmp/../etc/passwd", "/tmpx"):
            with pytest.raises(ToolFailed):
                call(tools.read_file, path=path)
    finally:
        for closer in reversed(closers):
            await asyncio.shield(closer())


def test_the_gate_knows_tmp_only_where_commands_have_their_own(tmp_path: Path) -> None:
    policy = CommandPolicy(confine=SandboxPolicy(tmp_path))
    given = {CommandPolicy: policy, Workspace: Workspace(tmp_path)}
    found = find_confinement(given)
    if found is None or "/tmp" not in found.own:
        pytest.skip("commands have no `/tmp` of their own on this machine")
    held = PermissionGate(root=tmp_path, resources=given)
    free = PermissionGate(root=tmp_path)
    assert held.decide(tools.read_file, {"path": "/tmp/out/1.txt"}).verdict == "allow"
    assert free.decide(tools.read_file, {"path": "/tmp/out/1.txt"}).verdict == "deny"
    for path in ("/etc/passwd", "/tmp/../etc/passwd", "/var/tmp/x"):
        assert held.decide(tools.read_file, {"path": path}).verdict == "deny"


@pytest.mark.parametrize("folder", ["out", ".copies"])
def test_what_a_command_puts_in_place_of_a_file_or_its_folder_is_not_followed(
    folder: str, tmp_path: Path
) -> None:
    above, outside = tmp_path / "above", tmp_path / "outside"
    above.mkdir()
    outside.mkdir()
    (outside / "1.txt").write_text("the person's own")
    (above / folder).symlink_to(outside)
    kept = ScratchFile(above, folder, "1.txt", "")
    assert not kept.prepare()
    assert kept.open() is None and kept.take(9) is None
    kept.remove()
    for name in ("1.txt", "2.txt"):
        with pytest.raises(OSError):
            ScratchFile(above, folder, name, "").create()
    assert [one.name for one in outside.iterdir()] == ["1.txt"]
    (above / folder).unlink()
    (above / folder).touch()
    assert not kept.prepare() and kept.take(9) is None
    (above / folder).unlink()
    os.close(kept.create())
    assert kept.take(9) == b""
    for plant in (os.symlink, os.link):
        plant(outside / "1.txt", above / folder / "1.txt")
        assert kept.open() is None and kept.take(9) is None
        kept.remove()
    assert (outside / "1.txt").read_text() == "the person's own"


TAKEN_NAMES: dict[str, str] = {
    "link to a file of the workspace": "ln -s $PWD/victim /tmp/out/$i.txt",
    "link to nothing": "ln -s $PWD/made /tmp/out/$i.txt",
    "pipe": "mkfifo /tmp/out/$i.txt",
    "folder": "mkdir /tmp/out/$i.txt",
    "file": "echo planted > /tmp/out/$i.txt",
}


@pytest.mark.parametrize("plant", TAKEN_NAMES.values(), ids=TAKEN_NAMES)
async def test_a_name_of_an_output_that_a_command_has_taken_is_passed_over(
    plant: str, tmp_path: Path
) -> None:
    root = tmp_path / "work"
    root.mkdir()
    (root / "victim").write_text("as it was\n")
    given = {
        CommandPolicy: CommandPolicy(confine=SandboxPolicy(root), timeout=10),
        Workspace: Workspace(root),
    }
    found = find_confinement(given)
    if found is None or "/tmp" not in found.own:
        pytest.skip("commands have no `/tmp` of their own on this machine")
    closers: list[Any] = []
    context = Context(
        Identity("t", "u", "s", "r"), "call_1", resources=given, on_close=closers.append
    )

    async def run(command: str) -> str:
        return str(await run_command.handler(command, context=context))

    try:
        await run(f"mkdir -p /tmp/out; for i in 1 2 3 4; do {plant}; done")
        assert "[all 30000 lines: /tmp/out/5.txt]" in await run("seq 1 30000")
        # The command writes this one itself, so no name of it can be guessed.
        piped = await run("awk 'BEGIN { while (n < 3000) print ++n }' | tail -1")
        assert piped.startswith("3000\n") and "/tmp/out/6.txt" in piped
        counted = await run("wc -l /tmp/out/5.txt /tmp/out/6.txt")
        assert counted.split() == [
            "30000",
            "/tmp/out/5.txt",
            "3000",
            "/tmp/out/6.txt",
            "33000",
            "total",
        ]
    finally:
        for closer in reversed(closers):
            await asyncio.shield(closer())
    assert {one.name: one.read_text() for one in root.iterdir()} == {"victim": "as it was\n"}
