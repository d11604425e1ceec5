"""The folder that a server serves: it is named, or the one that the server was started in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ferrule.core.errors import ConfigError


def require_folder(options: Mapping[str, Any]) -> None:
    """Raise ConfigError if a server would serve the whole machine because nobody named a folder.

    Programs that start servers often do so in `/`.
    """
    if not options.get("workspace") and Path.cwd() == Path(Path.cwd().anchor):
        raise ConfigError(
            "this server was started in `/`, and would have the whole machine as its workspace",
            hint="name the folder: `--workspace FOLDER` (`--workspace /` if you mean it)",
        )
