"""Wrappers that only start another program: `timeout 5 npm test` is judged as `npm test`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ferrule.permissions.command_variables import explain_meaning

from .program_facts import STRIPPED, program_name, word_set
from .shell_words import UNKNOWN, Word


def strip_wrappers(words: tuple[Word, ...]) -> tuple[Word, ...]:
    """Return the words after wrappers, with an unknown word for those that `xargs` will add.

    A wrapper with an option that is unknown here is kept: an allow rule must then name it.
    """
    adds_words = False
    while len(words) > 1 and words[0].is_known and words[0].text in STRIPPED:
        rest = words[1:]
        skip = _own_arguments(words[0].text, [word.text for word in rest])
        if skip is None or skip >= len(rest) or not rest[skip].is_known:
            break
        adds_words = adds_words or words[0].text == "xargs"
        words = rest[skip:]
    return (*words, Word(UNKNOWN, "…", True)) if adds_words else words


def _own_arguments(wrapper: str, rest: list[str]) -> int | None:
    """Return how many words belong to the wrapper; None if that is uncertain."""
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
        index = _timeout_arguments(rest)
    return None if index >= len(rest) or rest[index].startswith("-") else index


def _timeout_arguments(rest: list[str]) -> int:
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
    if index < len(rest) and re.fullmatch(r"[\d.]+[smhd]?", rest[index]):
        return index + 1
    return len(rest)


_PREFIXES = STRIPPED | word_set(
    "env exec setsid sudo doas ionice chrt taskset unshare setarch prlimit strace ltrace"
)


def runs_unknown_program(words: tuple[Word, ...]) -> bool:
    """Return whether words run another word as a program that is unknown (`nice "$X"`)."""
    before = ""
    for word in words:
        if not word.is_known:
            return True
        # The word after `-a` may be its value, and the next one the program.
        value = re.fullmatch(r"-\w*[A-Za-z]|--[a-z-]+", before)
        if (
            word.text not in _PREFIXES
            and not value
            and (not before or not ("=" in word.text or re.match(r"-|\d", word.text)))
        ):
            return False
        before = word.text
    return False


def find_environment_doubts(words: Sequence[Word]) -> Iterator[str]:
    """Yield why a shell that these words run may expand or find something else than ours would.

    `env -i bash -c 'cat ~/x'` reads the home folder of the system's list of users, and
    `env HOME=/etc …` any folder.
    """
    program = ""
    for word in words:
        name, is_assigned, _ = word.text.partition("=")
        if is_assigned and (why := explain_meaning(name, is_spelled_out=True)):
            yield why
        elif word.text.startswith("-") and program in ("env", "exec"):
            yield f"`{program} {word.text}` may take variables from the shell that it runs"
        elif word.text in ("sudo", "doas", "su", "runuser"):
            yield f"`{word.text}` may give the shell that it runs another home folder"
        if program_name(word.text) in _PREFIXES:
            program = program_name(word.text)
