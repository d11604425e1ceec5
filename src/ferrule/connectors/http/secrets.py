"""Secrets of HTTP tools: named in files, read when they are needed, and taken out of everything
that comes back.

    ${GITHUB_TOKEN}            a variable of the environment
    ${secret:github}           the file `secrets/github` in the person's settings folder, readable by its owner alone

A file holds references, never values. They are looked up when the file is read, so that a missing
one is found at once, and again for each call, so that a new value holds without a restart. A
repository's files get only what the person named for them (`tools.http_secrets`).

What a server sends back is searched for the secrets of the request: as they are, and as JSON, URLs,
HTML and base64 write them. Not
protected: a secret that a server cuts up, encrypts or spells otherwise.
"""

from __future__ import annotations

import base64
import html
import json
import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, quote_plus

from ferrule.core.errors import ConfigError
from ferrule.storage import paths

SHORTEST = 4
"""Characters below which a secret could not be told from other text in an answer."""
LONGEST = 16_384
SHOWN = "[secret]"
_REFERENCE = re.compile(
    r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*|secret:[A-Za-z0-9][A-Za-z0-9_.-]{0,99})\}"
)
_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_FOLDER = "secrets"


@dataclass(frozen=True, slots=True)
class Secrets:
    """Where references are looked up. `allowed` None: all of them; else only these names (`NAME`,
    `secret:name`).

    `environment` and `folder` are the process's and the person's own unless they are given.
    """

    environment: Mapping[str, str] | None = None
    folder: Path | None = None
    allowed: frozenset[str] | None = None

    def only(self, names: Iterable[str]) -> Secrets:
        """The same, kept to these names."""
        return Secrets(self.environment, self.folder, frozenset(names))

    def look(self, name: str) -> str:
        """The value of a reference. Raises ConfigError naming it, never its value."""
        if self.allowed is not None and name not in self.allowed:
            hint = f"name it in `tools.http_secrets` of your own settings: `{name}`"
            raise ConfigError(
                f"`${{{name}}}` is not for the files of a repository", code="http_secret", hint=hint
            )
        if name.startswith("secret:"):
            value = self._from_file(name.removeprefix("secret:"))
        else:
            environment = os.environ if self.environment is None else self.environment
            if name not in environment:
                raise ConfigError(
                    f"the variable `{name}` is not set", code="http_secret", hint="set it"
                )
            value = environment[name].strip()
        if not value:
            raise ConfigError(f"`${{{name}}}` is empty", code="http_secret")
        if not SHORTEST <= len(value) <= LONGEST or not _VALUE.fullmatch(value):
            why = (
                f"`${{{name}}}` cannot be a secret: {SHORTEST} to {LONGEST} printable ASCII "
                "characters"
            )
            raise ConfigError(why, code="http_secret")
        return value

    def _from_file(self, name: str) -> str:
        file = (self.folder or paths.config() / _FOLDER) / name
        try:
            descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError as error:
            raise ConfigError(
                f"the secret `{name}` cannot be read from `{file}`: {error.strerror}",
                code="http_secret",
            ) from None
        with os.fdopen(descriptor, "rb") as opened:
            about = os.fstat(descriptor)
            if (
                not stat.S_ISREG(about.st_mode)
                or about.st_uid != os.getuid()
                or about.st_mode & 0o077
            ):
                hint = f"`chmod 600 {file}`"
                raise ConfigError(
                    f"`{file}` is no file that only you can read", code="http_secret", hint=hint
                )
            return opened.read(LONGEST + 2).decode("utf-8", "replace").strip()


PERSONS = Secrets()
"""All that the person has."""


def reference_of(text: str) -> str | None:
    """The name in `${NAME}`, if that is all there is; None for anything else, a literal secret for
    one.
    """
    found = _REFERENCE.fullmatch(text.strip())
    return None if found is None else found["name"]


class Redactor:
    """Takes values out of what a server said. Holds them: neither shown nor kept."""

    def __init__(self, values: Iterable[str]) -> None:
        spellings = {one.lower() for value in values for one in _spellings(value)}
        self._spellings = sorted(spellings, key=len, reverse=True)

    def __repr__(self) -> str:
        return "Redactor(…)"

    def text(self, text: str) -> str:
        """A text without them, in whatever case."""
        if not self.finds(text):
            return text
        return self.raw(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

    def finds(self, text: str) -> bool:
        """Whether there is anything to take out."""
        lower = text.lower()
        return any(spelling in lower for spelling in self._spellings)

    def raw(self, data: bytes) -> bytes:
        """Bytes without them; the same object if there are none. Plain searching: answers are
        large, and a pattern is a hundred times slower.
        """
        lower = data.lower()
        for spelling in (one.encode() for one in self._spellings):
            if spelling in lower:
                data = _replaced(data, lower, spelling)
                lower = data.lower()
        return data

    def json(self, value: Any) -> Any:
        """A JSON value without them, in keys and texts. Nothing of it is changed in place."""
        return _walked(value, self.text) if self._spellings else value


def _replaced(data: bytes, lower: bytes, spelling: bytes) -> bytes:
    pieces: list[bytes] = []
    at = 0
    while (found := lower.find(spelling, at)) >= 0:
        pieces += data[at:found], SHOWN.encode()
        at = found + len(spelling)
    return b"".join((*pieces, data[at:]))


def _walked(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        pairs = cast("dict[str, Any]", value).items()
        return {change(name): _walked(inner, change) for name, inner in pairs}
    if isinstance(value, list):
        return [_walked(inner, change) for inner in cast("list[Any]", value)]
    # A secret made of digits comes back as a number as easily as in a text.
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        written = json.dumps(value)
        return value if change(written) == written else SHOWN
    return value


def _spellings(value: str) -> set[str]:
    encoded = base64.b64encode(value.encode()).decode()
    written = {
        value,
        quote(value, safe=""),
        quote(value),
        quote_plus(value),
        json.dumps(value)[1:-1],
        json.dumps(value)[1:-1].replace("/", "\\/"),
        html.escape(value),
        encoded.rstrip("="),
        encoded.translate(str.maketrans("+/", "-_")).rstrip("="),
    }
    return {one for one in written if len(one) >= SHORTEST}
