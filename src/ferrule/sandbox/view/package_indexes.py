"""Where a person's package managers look: shown to commands, without what signs in there.

A company's index is in settings below the home. Commands do not see them, since tokens stand beside
it. Taken over are addresses without a user and a password, read as data, in the files that the
programs look for: `~/.config/pip/pip.conf`, `~/.npmrc`. Whether a host may be reached is decided
elsewhere (`sandbox.network`).
"""

from __future__ import annotations

import configparser
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

_PIP_KEYS = ("index-url", "extra-index-url", "trusted-host", "no-index", "timeout")
_NPM_LINE = re.compile(r"\s*((?:@[\w.-]+:)?registry|strict-ssl)\s*=\s*(\S+)\s*")
_PLAIN = re.compile(r"[\w.:/@%+~-]{1,300}")


def extract_pip_settings(text: str) -> str:
    """Return the part of a `pip.conf` that says where packages are; "" if nothing does."""
    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read_string(text)
    except configparser.Error:
        return ""
    lines: list[str] = []
    for section in parser.sections():
        kept = [
            f"{key} = {' '.join(values)}"
            for key, value in parser.items(section)
            if key.replace("_", "-") in _PIP_KEYS and (values := list(_keep_plain(value)))
        ]
        if kept and re.fullmatch(r"[\w-]{1,40}", section):
            lines += [f"[{section}]", *kept]
    return "".join(f"{line}\n" for line in lines)


def extract_npm_settings(text: str) -> str:
    """Return the lines of a `.npmrc` that say where packages are."""
    found = filter(None, map(_NPM_LINE.fullmatch, text.splitlines()))
    return "".join(f"{line[1]}={line[2]}\n" for line in found if is_plain_address(line[2]))


def is_plain_address(value: str) -> bool:
    """Return whether a value names nobody who signs in."""
    if not _PLAIN.fullmatch(value):
        return False
    try:
        return "@" not in urlsplit(value).netloc and not value.startswith("${")
    except ValueError:
        return False


def _keep_plain(value: str) -> Iterator[str]:
    yield from filter(is_plain_address, value.split())


SETTINGS: tuple[tuple[tuple[str, ...], str, Callable[[str], str]], ...] = (
    ((".config/pip/pip.conf", ".pip/pip.conf"), ".config/pip/pip.conf", extract_pip_settings),
    ((".npmrc",), ".npmrc", extract_npm_settings),
)
"""Files of the person, the file in the session's home, and what is taken over."""


def list_settings(home: str, read: Callable[[Path], str]) -> Iterator[tuple[str, str]]:
    """Yield `(file in the session's home, text)` of what is to be written there.

    Args:
        home: The person's home.
        read: Returns the text of a file; "" where there is none, or commands can write it.
    """
    for files, place, extract in SETTINGS:
        texts = (extract(read(Path(home, name))) for name in files)
        text = next(filter(None, texts), "")
        if text:
            yield place, text
