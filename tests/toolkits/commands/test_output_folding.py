"""What a model reads of a command's output: as a terminal leaves it, repetitions counted."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ferrule.core.identity import Identity
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.sandbox.sandbox import Sandbox
from ferrule.toolkits.commands import run_command
from ferrule.toolkits.commands.output_folding import fold_output
from ferrule.tools.context import Context
from unheld import share_unheld


@pytest.mark.parametrize(
    ("text", "folded", "said"),
    [
        ("plain\ntext\n", "plain\ntext\n", ""),
        ("\x1b[1;31mred\x1b[0m \x1b]8;;http://x\x1b\\link\x1b]8;;\x07\n", "red link\n", "4 terminal codes left out"),
        ("10%\r20%\r100%\nok\n", "100%\nok\n", "2 overwritten lines left out"),
        ("a\r\nb\r\n", "a\r\nb\r\n", ""),
        ("x\r\r\ny", "x\r\ny", ""),
        ("same\n" * 9, "same\n" * 9, ""),
        ("a\n" + "same\n" * 12 + "b\n", "a\nsame\n[the line above 12 times]\nb\n", "10 repeated lines left out"),
        ("", "", ""),
    ],
)  # fmt: skip
def test_progress_colours_and_repetitions_are_folded(text: str, folded: str, said: str) -> None:
    assert fold_output(text) == (folded, said)


def test_a_result_says_what_was_left_out_and_scripts_get_everything(tmp_path: Path) -> None:
    resources: dict[type, Any] = {Sandbox: share_unheld(), Workspace: Workspace(tmp_path)}
    context = Context(Identity("t", "u", "s", "r"), "call_1", resources=resources)

    def run(command: object) -> str:
        values = run_command.arguments.check({"command": command}).values
        return asyncio.run(run_command.handler(**values, context=context))

    assert run(r"printf '1%%\r\033[1m2%%\033[0m\n'") == (
        "2%\n[2 terminal codes, 1 overwritten line left out; `> FILE` keeps an output whole]"
    )
    assert run(["printf", r"1%%\r\033[1m2%%\033[0m\n"]) == "1%\r\x1b[1m2%\x1b[0m\n"
