"""Who may use a console: a file of tokens, a line each.

    3Fk0...                      the owner of this process, who is an operator
    ada  9dQe...                 somebody else, who sees and drives only their own sessions
    eve  x7Zp...  operator       somebody else who sees and drives all

Empty lines and those that begin with `#` are nothing. A file that others than its owner may read is
refused: tokens in it are not secret.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from ferrule.core.errors import ConfigError
from ferrule.runtime.http.http_security import Who
from ferrule.runtime.http.server import token_of


def people_of(file: Path | None, owner: str) -> tuple[dict[str, Who], str]:
    """Everybody by their token; and the owner's token where it was made just now, to be shown once.
    Raises ConfigError.

    Without a file there is the owner alone (`runtime.http.server.token_of`).
    """
    if file is None:
        token, made = token_of(None)
        return {token: Who(owner, True)}, token if made else ""
    people: dict[str, Who] = {}
    for number, line in enumerate(_read(file).splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        token, who = _person(words, owner, f"`{file}`, line {number}")
        if token in people:
            raise ConfigError(f"`{file}`, line {number}: this token is somebody's already")
        people[token] = who
    if not people:
        raise ConfigError(
            f"`{file}` holds no token", hint="write one line: a token, for the owner of this server"
        )
    return people, ""


def _person(words: list[str], owner: str, where: str) -> tuple[str, Who]:
    match words:
        case [token]:
            return token, Who(owner, True)
        case [user, token] if token != "operator":
            return token, Who(user, False)
        case [user, token, "operator"]:
            return token, Who(user, True)
        case _:
            raise ConfigError(f"{where}: this is no `token` and no `user token [operator]`")


def _read(file: Path) -> str:
    try:
        with file.open(encoding="utf-8") as opened:
            about = os.fstat(opened.fileno())
            if stat.S_IMODE(about.st_mode) & 0o077:
                raise ConfigError(
                    f"others than its owner may use `{file}`", hint=f"`chmod 600 {file}`"
                )
            return opened.read()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the tokens in `{file}`: {error}") from error
