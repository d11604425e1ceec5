"""Wrappers that start another program and change nothing about it: `timeout 5 npm test` is an `npm
test`.
"""

from __future__ import annotations

import re

from .program_facts import STRIPPED, listed
from .shell_words import UNKNOWN, Word


def strip(words: tuple[Word, ...]) -> tuple[Word, ...]:
    """Words after wrappers; where `xargs` will add others, an unknown word stands for them.

    A wrapper with a flag not listed here is left alone: an allow rule must then name the wrapper.
    """
    fed = False
    while len(words) > 1 and words[0].known and words[0].text in STRIPPED:
        rest = words[1:]
        skip = _own_arguments(words[0].text, [word.text for word in rest])
        if skip is None or skip >= len(rest) or not rest[skip].known:
            break
        fed = fed or words[0].text == "xargs"
        words = rest[skip:]
    return (*words, Word(UNKNOWN, "…", True)) if fed else words


def _own_arguments(wrapper: str, rest: list[str]) -> int | None:
    """How many words belong to the wrapper; None if that is not sure."""
    index = 0
    if wrapper in ("nohup", "builtin", "xargs", "command", "time"):
        index = 1 if wrapper == "time" and rest[0] == "-p" else 0
    elif wrapper == "nice":
        if rest[0] == "-n" and len(rest) > 1 and re.fullmatch(r"-?\d+", rest[1]):
            index = 2
        elif re.fullmatch(r"-n-?\d+|-\d+|--adjustment=-?\d+", rest[0]):
            index = 1
    elif wrapper == "stdbuf":
        while index < len(rest) and re.fullmatch(
            r"-[ioe](L|\d+[KMG]?)|--(input|output|error)=(L|\d+)", rest[index]
        ):
            index += 1
    elif wrapper == "timeout":
        index = _timeout(rest)
    return None if index >= len(rest) or rest[index].startswith("-") else index


def _timeout(rest: list[str]) -> int:
    index = 0
    while index < len(rest) and rest[index].startswith("-"):
        if rest[index] in ("-k", "-s", "--kill-after", "--signal"):
            index += 2
        elif re.fullmatch(
            r"--(foreground|preserve-status|verbose|kill-after=\S+|signal=\S+)|-v", rest[index]
        ):
            index += 1
        else:
            return index
    return (
        index + 1
        if index < len(rest) and re.fullmatch(r"[\d.]+[smhd]?", rest[index])
        else len(rest)
    )


_PREFIXES = STRIPPED | listed(
    "env exec setsid sudo doas ionice chrt taskset unshare setarch prlimit strace ltrace"
)


def unknown_program(words: tuple[Word, ...]) -> bool:
    """True if words that run other words as a program (`nice "$X"`) do not say which."""
    before = ""
    for word in words:
        if not word.known:
            return True
        # What stands behind `-a` may be its value, and the program behind that.
        value = re.fullmatch(r"-\w*[A-Za-z]|--[a-z-]+", before)
        if (
            word.text not in _PREFIXES
            and not value
            and (not before or not re.match(r"-|\d|\w+=", word.text))
        ):
            return False
        before = word.text
    return False
