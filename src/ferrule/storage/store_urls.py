"""URLs of remote stores: told apart from paths, with variables filled in, never with a password.

`${NAME}` in a URL stands for an environment variable, percent-encoded as URLs require. It is looked
up when the store is opened. Settings hold no passwords: one that is written out is refused.

A module of its own, because the settings need it and the stores would make them slow to load.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from ferrule.core.errors import ConfigError
from ferrule.core.lazy_patterns import compile_lazily

_VARIABLE = compile_lazily(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_PASSWORD = compile_lazily(r"^[a-z0-9+]+://[^/@]*?:([^/]*)@|[?&]password=([^&]*)", re.IGNORECASE)


def is_url(where: str | Path | None) -> bool:
    """Return whether a location is the URL of a remote store rather than a path."""
    return isinstance(where, str) and "://" in where


def expand_variables(url: str, environment: Mapping[str, str] | None = None) -> str:
    """Return a URL with its variables filled in.

    Raises:
        ConfigError: A variable is not set.
    """
    values = os.environ if environment is None else environment

    def fill(match: re.Match[str]) -> str:
        name = match[1]
        if not values.get(name):
            raise ConfigError(
                f"`{redact_url(url)}` uses the environment variable `{name}`, which is not set"
            )
        return quote(values[name], safe="")

    return _VARIABLE.sub(fill, url)


def refuse_password(url: str, where: str) -> None:
    """Refuse a URL that contains a password instead of the name of a variable that holds it.

    Raises:
        ConfigError: The URL contains a password.
    """
    match = _PASSWORD.search(url)
    if match is None:
        return
    password = match[1] or match[2]
    if password and not _VARIABLE.fullmatch(password):
        raise ConfigError(
            f"{where}: settings must not contain a password",
            hint=(
                "name a variable: `postgresql://user:${DB_PASSWORD}@host/database`, or use "
                "~/.pgpass"
            ),
        )


def redact_url(url: str) -> str:
    """Return a URL for display: without user and password, and without what follows a `?`."""
    scheme, mark, rest = url.partition("?")[0].partition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}"[:200]
