"""The plugin `instructions`: what `AGENTS.md` and other instruction files tell the model.

They are text only and permit nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from ferrule.core.value_class import frozen
from ferrule.engine.plugins.protocol import Parts, PartsInternals, Setup
from ferrule.storage import paths

from .instructions import FILE_NAME, MAX_BYTES, read_instructions


@frozen
class InstructionFiles:
    """The text of the instruction files of the workspace and of the person.

    Attributes:
        fallbacks: Names that are looked for in a folder without `AGENTS.md`.
        max_bytes: Most bytes of all files together.
    """

    name: ClassVar[str] = "instructions"
    fallbacks: tuple[str, ...] = ("CLAUDE.md",)
    max_bytes: int = MAX_BYTES

    def setup(self, setup: Setup) -> Parts:
        """Read the files. Raises ConfigError if a fallback is not a plain file name."""
        if setup.workspace is None:
            return Parts()
        workspace = setup.workspace.root
        own = _list_own_files() if setup.internals.settings_folder is not None else ()
        found = read_instructions(
            workspace,
            self.fallbacks,
            max_bytes=self.max_bytes,
            names=setup.internals.names,
            refuses=setup.internals.rules.find_refusal,
            own_files=own,
        )
        for warning in found.warnings:
            setup.notice(str(warning))
        names = (FILE_NAME, *self.fallbacks)
        folders = (workspace, *workspace.parents)
        watched = (folder / name for folder in folders for name in names)
        return Parts(instructions=found.text, internals=PartsInternals(watched=(*watched, *own)))


def _list_own_files() -> tuple[Path, ...]:
    """Return where a person may have instructions of their own, the first one first."""
    return (
        paths.config() / FILE_NAME,
        Path.home() / ".agents" / FILE_NAME,
        paths.claude() / "CLAUDE.md",
    )
