"""The plugin `memory`: notes that a model keeps in a folder of their own."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import ClassVar

from ferrule.core.errors import ConfigError
from ferrule.core.value_class import frozen
from ferrule.engine.plugins.protocol import CatalogChanges, Parts, Setup
from ferrule.storage import paths

from .memory import make_memory_tool


@frozen
class Memory:
    """The tool `memory`.

    Attributes:
        folder: An absolute path of a folder, `state` for one of Ferrule's own for the workspace,
            `no` or None for none.
    """

    name: ClassVar[str] = "memory"
    folder: str | None = "state"

    def setup(self, setup: Setup) -> Parts:
        """Make the folder.

        Raises:
            ConfigError: The folder is in the workspace or around it, or cannot be made.
        """
        if not self.folder or self.folder == "no" or setup.workspace is None:
            return Parts()
        folder = _make_folder(self.folder, setup.workspace.root)
        return Parts(catalog=CatalogChanges(add=lambda _: (make_memory_tool(folder),)))


def _make_folder(chosen: str, workspace: Path) -> Path:
    if chosen == "state":
        digest = hashlib.sha256(os.fsencode(workspace)).hexdigest()[:16]
        folder = paths.state() / "memory" / digest
    else:
        folder = Path(chosen).expanduser()
    if not folder.is_absolute():
        raise ConfigError(
            f"`tools.memory` is `{chosen}`",
            hint="say `state`, or an absolute path of a folder",
        )
    real = Path(os.path.realpath(folder))
    root = Path(os.path.realpath(workspace))
    if real.is_relative_to(root) or root.is_relative_to(real):
        raise ConfigError(
            f"`tools.memory`: `{folder}` and the workspace lie in one another",
            hint="name a folder outside, so that no other tool changes what is remembered",
        )
    paths.make_private_folder(folder)
    return folder
