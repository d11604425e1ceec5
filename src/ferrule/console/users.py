"""Who may use a console: a file with one token per line.

    3Fk0...                      the owner of this process, who is an operator
    ada  9dQe...                 another user, who sees and controls only their own sessions
    eve  x7Zp...  operator       another user, who sees and controls all sessions

Empty lines and lines starting with `#` are ignored. A file that anyone but its owner may read is
refused, because the tokens in it are not secret.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from ferrule.core.errors import ConfigError
from ferrule.runtime.http.http_security import Principal
from ferrule.runtime.http.server import load_token


def load_users(file: Path | None, owner: str) -> tuple[dict[str, Principal], str]:
    """Return the users by their tokens, and the owner's token if it was generated now.

    A generated token is to be shown once. Without a file, the owner is the only user
    (`runtime.http.server.load_token`).

    Raises:
        ConfigError: the file cannot be read, is open to others, or has an invalid line.
    """
    if file is None:
        token, made = load_token(None)
        return {token: Principal(owner, True)}, token if made else ""
    people: dict[str, Principal] = {}
    for number, line in enumerate(_read_token_file(file).splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        token, who = _parse_user(words, owner, f"`{file}`, line {number}")
        if token in people:
            raise ConfigError(f"`{file}`, line {number}: this token is already in use")
        people[token] = who
    if not people:
        raise ConfigError(
            f"no token in `{file}`", hint="add a line with a token for the owner of this server"
        )
    return people, ""


def _parse_user(words: list[str], owner: str, where: str) -> tuple[str, Principal]:
    match words:
        case [token]:
            return token, Principal(owner, True)
        case [user, token] if token != "operator":
            return token, Principal(user, False)
        case [user, token, "operator"]:
            return token, Principal(user, True)
        case _:
            raise ConfigError(f"{where}: expected `token` or `user token [operator]`")


def _read_token_file(file: Path) -> str:
    try:
        with file.open(encoding="utf-8") as opened:
            about = os.fstat(opened.fileno())
            if stat.S_IMODE(about.st_mode) & 0o077:
                raise ConfigError(
                    f"`{file}` is readable by others than its owner", hint=f"`chmod 600 {file}`"
                )
            return opened.read()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the tokens in `{file}`: {error}") from error
