"""Diagnostics after edits: only what is new, by the project's own checkers, in bounds."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from ferrule.core.errors import ConfigError
from ferrule.engine.agent import Agent
from ferrule.engine.agent_options import Permissions
from ferrule.extensions.diagnostics.checkers import CHECKERS, read_output
from ferrule.extensions.diagnostics.findings import Diagnostic
from ferrule.extensions.diagnostics.hook import diagnose_changes
from ferrule.extensions.hooks.commands import HookCommandRunner
from ferrule.models.scripted import Scripted
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.plugins import Parts
from ferrule.runtime.assemble import assemble
from ferrule.toolkits.files.tools import edit_file, write_file

BY_NAME = {checker.name: checker for checker in CHECKERS}


def put_checker(folder: Path, name: str, body: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


FIND_BAD = 'for last; do :; done; echo run >> "$HOME/runs"; grep -n bad "$last" | sed "s|^|$last:|; s|:bad|:1: B1 bad word|"'
"""A checker that complains of each line that begins with `bad`."""


class Edited:
    """A session with the hook, in a project that has configured ruff."""

    def __init__(self, root: Path, *, seconds: float = 20.0, checkers: Any = ("auto",)) -> None:
        root.mkdir()
        (root / "ruff.toml").write_text("")
        self.root = root
        self.workspace = Workspace(root)
        # Nothing else than the workspace may be seen in a sandbox, so the programs lie in it.
        self.commands = HookCommandRunner(root)
        self.hook = diagnose_changes(
            checkers, workspace=self.workspace, commands=self.commands, seconds=seconds
        )
        self.agent = Agent(
            Scripted([]),
            [edit_file, write_file],
            workspace=root,
            permissions=Permissions(allow=["Edit"]),
            plugins=[Parts(hooks=[self.hook])],
        )
        self.session = self.agent.session()

    def put_program(self, body: str) -> None:
        folder = self.root / ".venv/bin"
        folder.mkdir(parents=True)
        put_checker(folder, "ruff", body)

    async def write(self, name: str, content: str) -> tuple[str, ...]:
        result = await self.session.call("write_file", path=name, content=content)
        assert result.success, result
        return result.notes

    async def close(self) -> None:
        await self.session.close()
        await self.commands.close()
        self.workspace.close()


async def test_only_what_is_new_since_the_change_goes_with_its_result(tmp_path: Path) -> None:
    edited = Edited(tmp_path / "project")
    edited.put_program(FIND_BAD)
    (edited.root / "a.py").write_text("bad one\nfine\n")
    # What was wrong before is not reported, though it stands on another line now.
    assert await edited.write("a.py", "new\nbad one\n") == ()
    notes = await edited.write("a.py", "new\nbad one\nbad two\nbad two\n")
    assert notes == (
        "[hook diagnostics] new since this change:\n"
        "a.py:3: ruff: B1 bad word two\n"
        "a.py:4: ruff: B1 bad word two",
    )
    assert await edited.write("a.py", "bad two\nbad two\n") == ()
    assert await edited.write("notes.txt", "bad\n") == ()
    assert "b.py:1: ruff" in (await edited.write("b.py", "bad new file\n"))[0]
    await edited.close()


async def test_new_diagnostics_are_bounded(tmp_path: Path) -> None:
    edited = Edited(tmp_path / "project")
    edited.put_program(FIND_BAD)
    (note,) = await edited.write("a.py", "bad\n" * 500)
    assert note.count("\n") == 21
    assert note.endswith("and 480 more")
    await edited.close()


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("sleep 100", "it took longer than 1.5 s"),
        ("echo its configuration is wrong >&2; exit 2", "status 2: its configuration is wrong"),
    ],
)
async def test_a_checker_that_fails_is_left_out_and_the_change_stands(
    tmp_path: Path, body: str, why: str
) -> None:
    edited = Edited(tmp_path / "project", seconds=0.5)
    edited.put_program(body)
    assert await edited.write("a.py", "bad\n") == ()
    assert (edited.root / "a.py").read_text() == "bad\n"
    said = [record.body for record in edited.agent.journal.records(edited.session.id)]
    assert sum("left out of diagnostics from now on" in body and why in body for body in said) == 1
    assert await edited.write("a.py", "bad again\n") == ()
    await edited.close()


async def test_a_checker_is_confined(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("untouched")
    edited = Edited(tmp_path / "project")
    edited.put_program(f"echo changed > '{outside}'; cat .env; echo 'a.py:1:1: X done'")
    (edited.root / ".env").write_text("a.py:9:9: SECRET")
    (note,) = await edited.write("a.py", "x\n")
    assert "X done" in note
    assert "SECRET" not in note
    assert outside.read_text() == "untouched"
    await edited.close()


async def test_without_a_configuration_nothing_runs(tmp_path: Path) -> None:
    edited = Edited(tmp_path / "project")
    edited.put_program(FIND_BAD)
    (edited.root / "ruff.toml").unlink()
    assert await edited.write("a.py", "bad\n") == ()
    (edited.root / "pyproject.toml").write_text("[tool.ruff]\n")
    assert await edited.write("b.py", "bad\n") != ()
    await edited.close()


async def test_the_real_ruff_finds_a_name_that_an_edit_lost(tmp_path: Path) -> None:
    real = shutil.which("ruff", path=str(Path(sys.executable).parent))
    if real is None:
        pytest.skip("ruff is not installed")
    edited = Edited(tmp_path / "project")
    folder = edited.root / ".venv/bin"
    folder.mkdir(parents=True)
    shutil.copy(real, folder / "ruff")
    (edited.root / "a.py").write_text("import os\n\nx = 1\nprint(x)\n")
    (note,) = await edited.write("a.py", "import os\n\nprint(x)\n")
    assert note.splitlines()[1:] == ["a.py:3: ruff: F821 Undefined name `x`"]
    await edited.close()


@pytest.mark.parametrize(
    ("checker", "output", "found"),
    [
        (
            "mypy",
            "src/a.py:3: error: Name 'x' is not defined  [name-defined]",
            Diagnostic("src/a.py", 3, "error: Name 'x' is not defined [name-defined]"),
        ),
        (
            "pyright",
            '  /w/src/a.py:3:7 - error: "x" is not defined (reportUndefinedVariable)',
            Diagnostic("src/a.py", 3, 'error: "x" is not defined (reportUndefinedVariable)'),
        ),
        (
            "tsc",
            "src/a.ts(4,7): error TS2304: Cannot find name 'x'.",
            Diagnostic("src/a.ts", 4, "error TS2304: Cannot find name 'x'."),
        ),
        (
            "eslint",
            "/w/src/a.js\n  3:7  error  'x' is not defined  no-undef\n\n1 problem (1 error)",
            Diagnostic("src/a.js", 3, "error 'x' is not defined no-undef"),
        ),
        (
            "go",
            "# example.com/a\nvet: ./a.go:5:2: undefined: x",
            Diagnostic("a.go", 5, "undefined: x"),
        ),
        (
            "cargo",
            "src/main.rs:2:5: error[E0425]: cannot find value `x` in this scope",
            Diagnostic("src/main.rs", 2, "error[E0425]: cannot find value `x` in this scope"),
        ),
    ],
)
def test_the_output_of_each_checker_is_read(checker: str, output: str, found: Diagnostic) -> None:
    assert read_output(BY_NAME[checker], output, "/w") == (found,)


def test_a_checker_that_there_is_not_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no checker `flake9`"):
        diagnose_changes(
            ["flake9"], workspace=Workspace(tmp_path), commands=HookCommandRunner(tmp_path)
        )


async def test_only_the_person_switches_it_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"workspace": str(tmp_path), "model": "scripted:x"}
    plain = assemble(options, notice=print)
    assert "diagnostics" not in plain.agent.plugins.names
    await plain.close()
    monkeypatch.setenv("FERRULE_PLUGINS_DIAGNOSTICS_CHECKERS", "ruff")
    assembly = assemble(options, notice=print)
    assert "diagnostics" in assembly.agent.plugins.names
    assert [hook.name for hook in assembly.agent.hooks] == ["diagnostics"]
    await assembly.close()
