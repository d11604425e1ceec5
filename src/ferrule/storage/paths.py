"""Where Ferrule keeps what is its own: the XDG folders, never inside a workspace.

`FERRULE_STATE`, `FERRULE_CONFIG` and `FERRULE_CACHE` replace a folder (absolute or starting with
`~`). Asking for a path touches nothing; folders come into being, readable by their owner alone,
with the first write. An existing folder keeps its permissions: it may be a person's own choice.
"""

from __future__ import annotations

import os
from pathlib import Path

from ferrule.core.errors import ConfigError, FerruleError


def state() -> Path:
    """Journal, trust, remembered rules: what would be missed if it were gone."""
    return _folder("state")


def config() -> Path:
    """What the person wrote: `ferrule.yaml`."""
    return _folder("config")


def cache() -> Path:
    """What can be made or fetched again."""
    return _folder("cache")


def journal() -> Path:
    """The journal where settings name no other."""
    return state() / "journal.db"


def _folder(kind: str) -> Path:
    name = f"FERRULE_{kind.upper()}"
    if given := os.environ.get(name):
        path = Path(given).expanduser()
        if not path.is_absolute():
            raise ConfigError(f"{name} = `{given}` is not an absolute path")
        return path
    import platformdirs

    return Path(getattr(platformdirs, f"user_{kind}_dir")("ferrule", appauthor=False))


def private_folder(path: Path) -> Path:
    """The folder, made with mode 0700 (parents too) if it is missing.

    Raises FerruleError naming the folder if it cannot be made.
    """
    try:
        for missing in reversed([p for p in (path, *path.parents) if not p.exists()]):
            missing.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise FerruleError(
            f"cannot make the folder `{path}`: {error.strerror}",
            code="folder",
            hint=(
                "set FERRULE_STATE (or FERRULE_CONFIG, FERRULE_CACHE) to a folder that you can "
                "write"
            ),
        ) from error
    return path


def write_private(path: Path, text: str) -> None:
    """Replace a file as a whole, mode 0600: readers see the old text or the new, never half of
    one.
    """
    private_folder(path.parent)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    descriptor = os.open(
        draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
    )
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
