"""What bash did against what the reading of the same text said it would do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ferrule.permissions.command_analysis.analysis import CommandAnalysis
from ferrule.permissions.command_analysis.path_arguments import possible_folders
from ferrule.permissions.command_analysis.program_facts import RUNNERS, program_name
from ferrule.permissions.command_analysis.shell_words import ANY, BRACE, ONE, UNKNOWN, Word
from ferrule.permissions.command_analysis.syntax import CommandPart
from ferrule.permissions.command_analysis.working_directory import absolute_folders

from .oracle import Event

WORLD = "/tmp/fuzz"
ROOT = f"{WORLD}/box"
HOME = f"{WORLD}/home"
STUBS = f"{WORLD}/stubs/"

_TAKES_FILES = frozenset(("source", ".", "bash", "sh", "cat"))
"""Programs of which a word names a file that is read, without the shell opening it."""
_RUNS_FILES = frozenset(("source", ".", "bash", "sh"))
_SYNONYMS = {
    "source": ("source", "."),
    "test": ("test", "["),
    "mapfile": ("mapfile", "readarray"),
    # Bash declares an array for the others: `readonly R=(a b)` is `declare -gG R` inside.
    "declare": ("declare", "typeset", "readonly", "export", "local"),
    "popd": ("popd",),
    "compgen": ("compgen",),
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """`said` is `problem`, `doubt` or `clear`; `unsaid` are the events that a clear reading does
    not hold.
    """

    said: str
    unsaid: tuple[Event, ...] = ()


def judge(analysis: CommandAnalysis, events: Iterable[Event]) -> Verdict:
    """Compare. Where the reading asks, nothing can be missing from it."""
    if analysis.problem or analysis.over_limit:
        return Verdict("problem")
    if analysis.doubts:
        return Verdict("doubt")
    anywhere = possible_folders(analysis.parts, ROOT)
    unsaid = tuple(event for event in events if not _said(analysis, event, anywhere))
    return Verdict("clear", unsaid)


def _said(analysis: CommandAnalysis, event: Event, anywhere: list[str]) -> bool:
    parts = [part for part in analysis.parts if _may_be_in(part, event, anywhere)]
    if event.kind == "E":
        path = event.fields[0]
        # With `PATH=evil` or an empty one, the name is found below or in the folder itself.
        if (path.startswith("evil/") or "/" not in path) and any(
            "PATH=" in text
            for p in analysis.parts
            for text in (*p.assignments, *(word.text for word in p.words))
        ):
            event = Event("E", (STUBS + program_name(path), *event.fields[1:]))
        return any(_starts(part, event) for part in parts)
    if event.kind == "B":
        if event.fields == ("read",):
            return True  # what `select` does
        # `declare` alone lists with `set`, `pushd` goes with `cd`.
        return event.fields[0] in ("echo", "test", "shift", "wait", "set", "cd") or any(
            _is_builtin(part, event.fields) for part in analysis.parts
        )
    if event.kind in "WR":
        return _opened(parts, event)
    if event.kind == "N":
        return "network_exfil" in analysis.labels
    return any(part.wrapped_program == "enable" for part in analysis.parts)


def _may_be_in(part: CommandPart, event: Event, anywhere: list[str]) -> bool:
    """True if the folder of an event is one that the part was said to start in."""
    return (event.folder or ROOT) in absolute_folders(part, ROOT, anywhere)


def _starts(part: CommandPart, event: Event) -> bool:
    """True if this part is the program that was started, or a runner that names it."""
    path = event.fields[0]
    words = (path, *event.fields[2:])
    starts: list[Sequence[Word]] = [part.words, part.words_after_wrappers]
    if part.program in RUNNERS:
        starts += [part.words[index:] for index in range(1, len(part.words))]
    if program_name(path) in ("from_file", "from_value", "bash", "ok") and any(
        program_name(w.text) in _RUNS_FILES for w in part.words
    ):
        return True
    if (
        any(value.startswith(("BASH_ENV=", "ENV=")) for value in part.assignments)
        and program_name(path) == "from_file"
    ):
        return True
    fed = any(said and said[0].text == "xargs" for said in starts) or part.wrapped_program in (
        "mapfile",
        "readarray",
    )
    return any(
        _is_program(said, path) and _match(said[1:], words[1:], fed) for said in starts if said
    )


def _is_program(said: Sequence[Word], path: str) -> bool:
    word = said[0]
    if not word.is_known:
        return False
    if "/" in word.text:
        return word.text == path
    return path in (STUBS + word.text, "/usr/bin/" + word.text, "/bin/" + word.text)


def _is_builtin(part: CommandPart, fields: tuple[str, ...]) -> bool:
    names = _SYNONYMS.get(fields[0], (fields[0],))
    starts: list[Sequence[Word]] = [part.words, part.words_after_wrappers]
    if part.program in RUNNERS:
        starts += [part.words[index:] for index in range(1, len(part.words))]
    # Assignments of `declare` and the like are no words of the reading: the name of the built-in
    # must do.
    return any(said and said[0].is_known and said[0].text in names for said in starts)


def _opened(parts: Iterable[CommandPart], event: Event) -> bool:
    path = event.fields[0]
    for part in parts:
        for redirect in part.redirects:
            if (redirect.write or event.kind == "R") and _pattern((redirect.target,)).fullmatch(
                _joined((path,))
            ):
                return True
        if event.kind == "R" and any(
            program_name(w.text) in _TAKES_FILES for w in part.words if w.is_known
        ):
            return True
    return False


def _match(said: Sequence[Word], words: Sequence[str], fed: bool = False) -> bool:
    more = (Word(UNKNOWN, "", True),) if fed else ()
    return _pattern((*said, *more)).fullmatch(_joined(words)) is not None


def _joined(words: Sequence[str]) -> str:
    return "".join(f"\x1e{word}" for word in words)


@lru_cache(maxsize=4096)
def _pattern(said: tuple[Word, ...]) -> re.Pattern[str]:
    """Words as an expression over words, each led by a separator."""
    out: list[str] = []
    for word in said:
        whole = (
            word.splits
            or BRACE in word.text
            or word.text in (UNKNOWN, ANY)
            or ANY in word.text
            or ONE in word.text
        )
        text = "".join(_mark(character) for character in word.text)
        # What splits may be no word or several; what expands may be several, each of any text.
        out.append(r"(?:\x1e[^\x1e]*)*" if whole else rf"\x1e{text}")
    return re.compile("".join(out), re.DOTALL)


def _mark(character: str) -> str:
    return r"[^\x1e]*" if character in (UNKNOWN, ANY, ONE, BRACE) else re.escape(character)


def describe(events: Iterable[Event]) -> Iterator[str]:
    """Events for a person."""
    for event in events:
        place = f" in {event.folder}" if event.folder else ""
        yield f"{event.kind} {' '.join(event.fields)}{place}"
