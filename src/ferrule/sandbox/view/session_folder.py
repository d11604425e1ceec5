"""The folder with the `/tmp` and home of a session's commands, and with what is laid over names."""

from __future__ import annotations

from pathlib import Path

from ferrule.sandbox.temporary_folder import TemporaryFolder

from .layout import SessionPaths


class SessionFolder:
    """A folder that is made when it is first needed.

    `remove` removes it for good, with everything in it.
    """

    def __init__(self) -> None:
        self._folder: TemporaryFolder | None = None

    def make(self) -> SessionPaths:
        """Make the folder, once, and return its paths."""
        if self._folder is None:
            self._folder = TemporaryFolder("session")
            _create_contents(self._folder.base)
        return SessionPaths(str(self._folder.base))

    def remove(self) -> None:
        """Remove the folder, if it was made."""
        if self._folder is not None:
            self._folder.remove()


def _create_contents(base: Path) -> None:
    for name in ("tmp", "home", "view", "held", "held/empty", "held/covers", "held/previews"):
        (base / name).mkdir(mode=0o700)
    for name, mode in (
        ("tmp", 0o1777),
        ("held", 0o755),
        ("held/empty", 0o555),
        ("held/covers", 0o755),
    ):
        (base / name).chmod(mode)
    closed = base / "held/closed"
    closed.touch()
    closed.chmod(0)
