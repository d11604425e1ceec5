"""Secrets of HTTP tools: named in files, read when needed, and removed from what comes back.

    ${GITHUB_TOKEN}   an environment variable
    ${secret:github}  the file `secrets/github` in the person's settings folder, readable by its
                      owner alone

A file holds references, never values. They are looked up when the file is read, so that a missing
one is found at once, and again for each call, so that a new value counts without a restart. A
repository's files get only what the person named for them (`tools.http_secrets`).

What a server sends back is searched for the secrets of the request: as they are, and as JSON, URLs,
HTML and base64 write them. Not protected: a secret that a server splits, encrypts or spells
otherwise.
"""

from __future__ import annotations

import base64
import html
import json
import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, quote_plus

from ferrule.core.errors import ConfigError
from ferrule.core.value_class import frozen
from ferrule.permissions.filesystem.opened_files import open_for_reading
from ferrule.storage import paths

MIN_SECRET = 4
"""Shorter secrets could not be told from other text in an answer."""
MAX_SECRET = 16_384
REPLACEMENT = "[secret]"
_REFERENCE = re.compile(
    r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*|secret:[A-Za-z0-9][A-Za-z0-9_.-]{0,99})\}"
)
_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_FOLDER = "secrets"


@frozen
class Secrets:
    """Where references are looked up.

    Args:
        environment: The variables; those of this process by default.
        folder: The folder of files; the person's own by default.
        allowed: The names that may be used (`NAME`, `secret:name`); None allows all.
    """

    environment: Mapping[str, str] | None = None
    folder: Path | None = None
    allowed: frozenset[str] | None = None

    def restrict(self, names: Iterable[str]) -> Secrets:
        """Return the same, limited to these names."""
        return Secrets(self.environment, self.folder, frozenset(names))

    def look_up(self, name: str) -> str:
        """Return the value of a reference. Raises ConfigError naming it, never its value."""
        if self.allowed is not None and name not in self.allowed:
            hint = f"name it in `tools.http_secrets` of your own settings: `{name}`"
            raise ConfigError(
                f"`${{{name}}}` may not be used by the files of a repository",
                code="http_secret",
                hint=hint,
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
        if not MIN_SECRET <= len(value) <= MAX_SECRET or not _VALUE.fullmatch(value):
            why = (
                f"`${{{name}}}` cannot be a secret: {MIN_SECRET} to {MAX_SECRET} printable ASCII "
                "characters"
            )
            raise ConfigError(why, code="http_secret")
        return value

    def _from_file(self, name: str) -> str:
        file = (self.folder or paths.config() / _FOLDER) / name
        try:
            opened = open_for_reading(file)
        except OSError as error:
            raise ConfigError(
                f"the secret `{name}` cannot be read from `{file}`: {error.strerror}",
                code="http_secret",
            ) from None
        with opened:
            status = os.fstat(opened.fileno())
            if (
                not stat.S_ISREG(status.st_mode)
                or status.st_uid != os.getuid()
                or status.st_mode & 0o077
            ):
                hint = f"`chmod 600 {file}`"
                raise ConfigError(
                    f"`{file}` must be a file that only you can read",
                    code="http_secret",
                    hint=hint,
                )
            return opened.read(MAX_SECRET + 2).decode("utf-8", "replace").strip()


PERSONAL_SECRETS = Secrets()
"""All secrets that the person has."""


def parse_reference(text: str) -> str | None:
    """Return the name in `${NAME}`; None for anything else, such as a literal secret."""
    match = _REFERENCE.fullmatch(text.strip())
    return None if match is None else match["name"]


class Redactor:
    """Removes values from what a server said. Holds secrets, so it is never shown or stored."""

    def __init__(self, values: Iterable[str]) -> None:
        spellings: set[str] = set()
        for value in values:
            spellings.update(spelling.lower() for spelling in _spellings(value))
        self._spellings = sorted(spellings, key=len, reverse=True)

    def __repr__(self) -> str:
        return "Redactor(…)"

    def redact_text(self, text: str) -> str:
        """Return a text without the values, in whatever case."""
        if not self.has_secret(text):
            return text
        return self.redact_bytes(text.encode("utf-8", "surrogatepass")).decode(
            "utf-8", "surrogatepass"
        )

    def has_secret(self, text: str) -> bool:
        """Return whether a text contains any of the values."""
        lower = text.lower()
        return any(spelling in lower for spelling in self._spellings)

    def redact_bytes(self, data: bytes) -> bytes:
        """Return bytes without the values; the same object if there are none.

        It searches plainly: answers are large, and a pattern is a hundred times slower.
        """
        lower = data.lower()
        for spelling in self._spellings:
            encoded = spelling.encode()
            if encoded in lower:
                data = _replace_all(data, lower, encoded)
                lower = data.lower()
        return data

    def redact_json(self, value: Any) -> Any:
        """Return a JSON value without the values, in keys and texts. Changes nothing in place."""
        return _map_texts(value, self.redact_text) if self._spellings else value


def _replace_all(data: bytes, lower: bytes, spelling: bytes) -> bytes:
    pieces: list[bytes] = []
    at = 0
    while (found := lower.find(spelling, at)) >= 0:
        pieces += data[at:found], REPLACEMENT.encode()
        at = found + len(spelling)
    return b"".join((*pieces, data[at:]))


def _map_texts(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        pairs = cast("dict[str, Any]", value).items()
        return {change(name): _map_texts(inner, change) for name, inner in pairs}
    if isinstance(value, list):
        return [_map_texts(inner, change) for inner in cast("list[Any]", value)]
    # A secret made of digits may come back as a number.
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        written = json.dumps(value)
        return value if change(written) == written else REPLACEMENT
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
    return {spelling for spelling in written if len(spelling) >= MIN_SECRET}
