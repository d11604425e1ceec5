"""Which command lines only read: what they print is all that they do.

A line counts only if each of its programs is known to read, nothing of it is a hazard, a redirect
into a file or a variable that is set, and no program is named by a folder of the
workspace or found in one. What such a program may read is not decided here: names are judged by
their words, and the sandbox holds the command to what it shows.
"""

from __future__ import annotations

from functools import cache

from ferrule.tools.definition import Confinement

from .harmless_code import PYTHON, asks_own_server, computes
from .option_meanings import all_programs
from .path_arguments import is_device
from .program_facts import (
    NAMES_PROGRAMS,
    PLAIN,
    WRITERS,
    git_reads,
    git_verb,
    program_name,
    word_set,
)
from .risk_labels import names_only_jobs
from .syntax import CommandAnalysis, CommandPart, Redirect

_READERS = PLAIN | word_set("""
    ack ag awk bat batcat break cd column comm continue date df diff find fold gawk hexdump id jobs
    jq mawk nawk nproc wait
    od paste printenv ps readlink realpath rev rg sed seq sleep sort strings tac tree type uname
    uniq which whoami xxd""")
"""Programs that only read where no hazard (`hazards`) is among their words."""

_GIT_RUNS = ("help", "fsck")
"""Verbs that read, and start a pager of the settings or write what they find."""
_SYSTEM_FOLDERS = ("/bin/", "/usr/bin/")


_ANYWHERE = Confinement()


@cache
def _known_programs() -> frozenset[str]:
    return frozenset(all_programs()) | _READERS | WRITERS | NAMES_PROGRAMS | {"git"}


def is_known_program(name: str) -> bool:
    """Return whether a table says what a program does with its arguments."""
    return not name or name in _known_programs()


def only_reads(analysis: CommandAnalysis, held: Confinement = _ANYWHERE) -> bool:
    """Return whether a command line does nothing but read and print, as far as its text says.

    Args:
        analysis: The line.
        held: What holds it, which says where names of programs lead, and whose `localhost` is.
    """
    if not analysis.parts:
        return False
    return all(
        not any(map(_writes, part.redirects)) and part_only_reads(part, analysis, held)
        for part in analysis.parts
    )


def part_only_reads(part: CommandPart, analysis: CommandAnalysis, held: Confinement) -> bool:
    """Return whether a part of a command line does nothing but read, print and redirect.

    What its redirects write is not decided here.
    """
    if analysis.problem or analysis.over_limit or analysis.call_variables:
        return False
    if part.renamed or part.assignments or not part.words_after_wrappers:
        return False
    wrapping = len(part.words) - len(part.words_after_wrappers) + 1
    if not all(held.runs_machine_program(word.text) for word in part.words[:wrapping]):
        return False
    first = part.words_after_wrappers[0]
    name = program_name(first.text)
    if not first.is_known or first.text not in (name, *(f + name for f in _SYSTEM_FOLDERS)):
        return False
    # An empty hazard is a word that only the shell knows: for these programs, any word will do.
    hazards = [word for word in part.hazards if word or name not in PLAIN]
    if name == "curl" and held.has_loopback:
        return _all_known(part) and asks_own_server(_texts(part))
    if hazards:
        return False
    if PYTHON.fullmatch(name):
        return _all_known(part) and computes(_texts(part))
    if name == "kill":
        return names_only_jobs(_texts(part))
    if name == "git":
        return git_reads(_texts(part)) and git_verb(_texts(part)) not in _GIT_RUNS
    return name in _READERS


def _texts(part: CommandPart) -> list[str]:
    return [word.text for word in part.words_after_wrappers]


def _all_known(part: CommandPart) -> bool:
    return all(word.is_known for word in part.words_after_wrappers)


def _writes(redirect: Redirect) -> bool:
    if not redirect.write:
        return False
    target = redirect.target
    return not (target.is_known and target.text.startswith("/") and is_device(target.text))
