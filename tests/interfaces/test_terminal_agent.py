"""What an agent at the terminal is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from ferrule.cli import terminal_agent
from ferrule.runtime.assemble import Assembly, assemble


async def test_the_terminal_has_every_part_of_the_assembly(
    folder: Path, script: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "AGENTS.md").write_text("Say `pond` often.\n")
    made: list[Assembly] = []

    def assemble_and_keep(*given: Any, **more: Any) -> Assembly:
        made.append(assemble(*given, **more))
        return made[-1]

    monkeypatch.setattr(terminal_agent, "assemble", assemble_and_keep)
    options = {"model": script({"say": "hello"}), "plugins": ("index",)}
    assembly = terminal_agent.assemble_at_terminal(options)
    (plain,) = made
    names = [part.name for part in fields(Assembly)]
    assert [name for name in names if getattr(assembly, name) is not getattr(plain, name)] == []
    assert assembly.make_instructions is not None
    assert "index" in assembly.agent.plugins.names
    await assembly.close()
