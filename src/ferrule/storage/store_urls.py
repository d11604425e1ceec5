"""Addresses of stores elsewhere, as people write them: told from files, with variables in them, and
never with a password.

`${NAME}` in an address stands for a variable of the environment, percent-encoded as addresses want
it; it is looked up when the store is opened. Settings hold no passwords: one that is written out is
refused.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from ferrule.core.errors import ConfigError

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_PASSWORD = re.compile(r"^[a-z0-9+]+://[^/@]*?:([^/]*)@|[?&]password=([^&]*)", re.IGNORECASE)


def is_address(where: str | Path | None) -> bool:
    """Whether it names a store elsewhere, and no file."""
    return isinstance(where, str) and "://" in where


def filled(address: str, environment: Mapping[str, str] | None = None) -> str:
    """An address with the variables it names. Raises ConfigError for one that is not set."""
    values = os.environ if environment is None else environment

    def value(found: re.Match[str]) -> str:
        if not values.get(found[1]):
            raise ConfigError(
                f"`{shown(address)}` takes a part from `{found[1]}`, which is not set"
            )
        return quote(values[found[1]], safe="")

    return _REFERENCE.sub(value, address)


def no_password(address: str, where: str) -> None:
    """Refuse an address that holds a password instead of naming the variable that does. Raises
    ConfigError.
    """
    found = _PASSWORD.search(address)
    password = (found[1] or found[2] or "") if found else ""
    if password and not _REFERENCE.fullmatch(password):
        raise ConfigError(
            f"{where}: passwords are not kept in settings",
            hint=(
                "name a variable: `postgresql://user:${DB_PASSWORD}@host/database`, or use "
                "~/.pgpass"
            ),
        )


def shown(address: str) -> str:
    """An address for people: without user and password, and without what follows a `?`."""
    scheme, mark, rest = address.partition("?")[0].partition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}"[:200]
