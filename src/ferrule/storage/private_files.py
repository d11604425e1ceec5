"""Files that a person alone decides by: a file that somebody else can write is an error.

`PrivateFile` is JSON in a known version; `read_own_files` reads what the person wrote.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from ferrule.core.calls import parse_json
from ferrule.core.errors import ConfigError
from ferrule.core.value_class import frozen
from ferrule.permissions.filesystem.opened_files import open_for_reading

from . import paths

_VERSION = 1


@frozen
class PrivateFile:
    """One such file. A file that cannot be used is a ConfigError with this `code`, never ignored.

    `remedy` says what to do about a damaged one. `follow_links`: its last part may be a link.
    """

    path: Path
    code: str
    remedy: str
    follow_links: bool = False

    def read(self) -> dict[str, Any] | None:
        """Return its values; None if there is no such file. Raises ConfigError."""
        try:
            file = open_for_reading(self.path, follow_links=self.follow_links)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._make_error(f"{error.strerror}", "check this file") from error
        with file:
            status = os.fstat(file.fileno())
            if status.st_uid != os.getuid() or status.st_mode & 0o022:
                raise self._make_error(
                    "others can write it", "check who changed it, then `chmod 600` it"
                )
            try:
                values: Any = parse_json(file.read())
                version = values["version"]
                if version > _VERSION:
                    raise self._make_error("it was written by a newer version", "use that version")
            except (ValueError, LookupError, TypeError) as error:
                raise self.report_damage() from error
        return cast("dict[str, Any]", values)

    def write(self, values: Mapping[str, Any]) -> None:
        """Replace the file: readers see the old values or the new ones."""
        stored = {"version": _VERSION, **values}
        paths.write_private(self.path, json.dumps(stored, indent=1, sort_keys=True) + "\n")

    @contextmanager
    def lock(self) -> Generator[None]:
        """Keep other processes from changing the file."""
        paths.make_private_folder(self.path.parent)
        lock = self.path.with_name(self.path.name + ".lock")
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def report_damage(self) -> ConfigError:
        """Return the error for values that do not have the form of such a file."""
        return self._make_error("it is damaged", self.remedy)

    def _make_error(self, reason: str, hint: str) -> ConfigError:
        return ConfigError(f"`{self.path}` cannot be used: {reason}", code=self.code, hint=hint)


def read_own_files(folder: Path, files: Iterable[Path]) -> dict[str, bytes]:
    """Return the files that there are of a person's settings folder, by their names below it.

    Raises:
        ConfigError: Somebody else, other than root, can write one.
    """
    found: dict[str, bytes] = {}
    for path in files:
        if not path.is_file():
            continue
        status = path.stat()
        if status.st_uid not in (os.getuid(), 0) or status.st_mode & 0o022:
            raise ConfigError(
                f"`{path}`: others can write it", hint=f"check it, then `chmod go-w {path}`"
            )
        found[path.relative_to(folder).as_posix()] = path.read_bytes()
    return found
