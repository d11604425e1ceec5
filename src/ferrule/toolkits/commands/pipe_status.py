"""Keeps what a pipeline hides from a model: how its producers ended, and what they wrote.

Models end most commands with `| tail -5`, `| head` or `| grep x`. A shell then answers with the
filter's status: a failed build looks like a success, `&&` goes on, and what the filter dropped has
to be produced again. The plain `run_command` therefore adds two things to such a pipeline:

* Its status is that of a producer that failed, else the filter's. So `&&`, `||`, `if` and `set -e`
  go by the producer, as with `pipefail`, but a producer that its filter ended (SIGPIPE) has not
  failed, nor has a `grep` without a match or a `diff` with differences; and where errors are sent
  to /dev/null, or a `grep -q` is the question, the shell's own rule stays.
* A copy of what the producers of the outer pipelines wrote is kept (`output_copies`).

Only what `bash_parser` has read with certainty is changed; anything else runs as it is. The filter
still gets every byte. One process more stands between the two, so a producer learns one write later
that its filter is gone.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator

from ferrule.core.lazy_patterns import compile_lazily
from ferrule.core.value_class import frozen
from ferrule.permissions.command_analysis.bash_parser import (
    AndOr,
    CannotParse,
    Compound,
    Node,
    Parser,
    Pipeline,
    Script,
    Simple,
    TooDeep,
)
from ferrule.permissions.command_analysis.program_facts import program_name, word_set
from ferrule.sandbox.sandbox import Sandbox

from .output_files import plan_output_file
from .plan import CommandPlan, make_printable
from .record import get_exit_code
from .scratch_files import ScratchFile, plan_hidden_file
from .session_commands import CommandHandle, SessionCommands

_FILTERS = word_set("""
    tail head wc sort uniq cat nl tac rev column fold fmt cut tr sed awk gawk mawk jq base64 od
    hexdump xxd grep egrep fgrep rg less more paste expand strings iconv""")
"""Programs whose own status says nothing of what they were fed."""
_SEARCHES = word_set("grep egrep fgrep rg ag ack")
_ANSWERS = _SEARCHES | word_set("diff cmp test [ which pgrep pidof expr")
"""Programs that answer a question with status 1."""
_GIT_ANSWERS = word_set("grep diff")
_RUNS_ANSWERS = word_set("xargs")
_SEES_ADDITIONS = compile_lazily(
    r"PIPESTATUS|FUNCNAME|BASH_|LINENO|__ferrule|\btrap\b|\bset +-\w*[xv]"
)
"""What would show an addition to the text."""
_SILENCED = compile_lazily(r"(?:2|&)>{1,2}\s*/dev/null")
_QUIET = compile_lazily(r"-[a-zA-Z]*q[a-zA-Z]*|--quiet|--silent")
_WALKED = frozenset(("group", "subshell", "if", "loop", "case"))
CHEAP = word_set("""
    cat ls echo printf seq find grep egrep fgrep rg sed head tail wc file stat du df tree env pwd
    date ps""")
"""Producers that can be run again for nothing: no copy is kept."""

_COPY_BLOCKS = 65_536
"""Largest size of a copy, in bash's blocks of 1,024 bytes."""


@frozen
class HonestText:
    """A text whose pipelines answer for their producers.

    `producers` are the texts before the filters, in the order of the numbers in the notes;
    `has_copy` tells whether anything is written to the copy.
    """

    text: str
    producers: tuple[str, ...]
    filters: tuple[str, ...]
    has_copy: bool


def make_honest(text: str, notes: str, copy: str) -> HonestText | None:
    """Return a text for bash whose pipelines answer for their producers; None: it has none.

    Args:
        text: What bash would read.
        notes: Path of a file in which numbers of producers and their statuses are noted.
        copy: Path of the file that gets what the producers of outer pipelines write.
    """
    if "|" not in text or _SEES_ADDITIONS.search(text):
        return None
    try:
        script = Parser(text).script()
    except (CannotParse, TooDeep):
        return None
    found = [
        (place, outer)
        for place, outer in _find_pipelines(script, outer=True)
        if place.end >= 0 and not place.is_prefixed and _has_display_filter(place, text)
    ]
    if not found:
        return None
    insertions: list[tuple[int, int, str]] = []
    producers: list[str] = []
    filters: list[str] = []
    has_copy = False
    for number, (place, outer) in enumerate(found):
        last = _last_producer(place)
        kinds = [_kind(place, index, text) for index in range(len(place.commands))]
        pipe = place.pipes[last]
        if outer and not _is_cheap(place.commands[last]):
            has_copy = True
            insertions.append((pipe, 0, f" {_tee(copy)} |"))
            kinds.insert(last + 1, "t")
        check = f'__ferrule {number} {"".join(kinds)} "${{PIPESTATUS[@]}}"'
        # At one place, an inner pipeline ends before and begins after an outer one.
        size = place.end - place.start
        insertions.append((place.start, -size, "{ "))
        insertions.append((place.end, size, f"; {check}; }}"))
        producers.append(text[place.start : pipe].rstrip("|& \t\n"))
        filters.append(text[pipe : place.end].strip())
    pieces: list[str] = [_make_function(notes)]
    at = 0
    for position, _, added in sorted(insertions, key=lambda one: one[:2]):
        pieces += (text[at:position], added)
        at = position
    pieces.append(text[at:])
    return HonestText("".join(pieces), tuple(producers), tuple(filters), has_copy)


def _find_pipelines(script: Script, *, outer: bool) -> Iterator[tuple[Pipeline, bool]]:
    """Yield pipelines, with whether each is one of the text's own statements."""
    for node in script:
        yield from _find_in_node(node, outer)


def _find_in_node(node: Node, outer: bool) -> Iterator[tuple[Pipeline, bool]]:
    if isinstance(node, Pipeline):
        if len(node.commands) > 1:
            yield node, outer
        for command in node.commands:
            yield from _find_in_node(command, False)
    elif isinstance(node, AndOr):
        for command in node.commands:
            yield from _find_in_node(command, outer)
    elif isinstance(node, Compound) and node.kind in _WALKED:
        for script in node.scripts:
            yield from _find_pipelines(script, outer=False)


def _words(node: Node) -> tuple[str, ...]:
    if not isinstance(node, Simple):
        return ()
    return tuple(word.word.text if word.word.is_known else "" for word in node.words)


def _program(node: Node) -> str:
    words = _words(node)
    return program_name(words[0]) if words else ""


def _has_display_filter(place: Pipeline, text: str) -> bool:
    last = place.commands[-1]
    words = _words(last)
    if _program(last) not in _FILTERS:
        return False
    return not (_program(last) in _SEARCHES and any(map(_QUIET.fullmatch, words[1:])))


def _last_producer(place: Pipeline) -> int:
    """Return the index of the last command before the filters that end a pipeline."""
    index = len(place.commands) - 1
    while index > 1 and _program(place.commands[index - 1]) in _FILTERS:
        index -= 1
    return index - 1


def _is_cheap(node: Node) -> bool:
    return _program(node) in CHEAP


def _kind(place: Pipeline, index: int, text: str) -> str:
    """Return how `__ferrule` takes a command's status.

    f: any failure counts (the filter); p: all but SIGPIPE; a: nor 1; x: nor 123; w: nor 124; s:
    none.
    """
    if index == len(place.commands) - 1:
        return "f"
    begin = place.pipes[index - 1] if index else place.start
    if _SILENCED.search(text[begin : place.pipes[index]]):
        return "s"
    command = place.commands[index]
    program = _program(command)
    words = _words(command)
    if program in _ANSWERS or (program == "git" and _GIT_ANSWERS & set(words[1:])):
        return "a"
    if program in _RUNS_ANSWERS and _ANSWERS & set(words[1:]):
        return "x"
    return "w" if program == "timeout" else "p"


def _make_function(notes: str) -> str:
    """Return the function that turns the statuses of a pipeline into one."""
    return (
        "__ferrule() { local n=$1 kinds=$2 code=0 one; shift 2; for one; do "
        'case "${kinds:0:1}$one" in ?0|[paxw]141|a1|x123|w124|t*|s*) ;; '
        f'f*) code=$one;; *) code=$one; echo "$n $one" >>{shlex.quote(notes)} ;; esac; '
        'kinds=${kinds:1}; done 2>/dev/null; return "$code"; }; '
    )


def _tee(copy: str) -> str:
    return (
        "{ set +e; umask 077; command trap '' XFSZ && ulimit -f "
        f"{_COPY_BLOCKS}; command tee -a {shlex.quote(copy)}; "
        'case "$?" in 126|127) command -p cat;; esac; :; } 2>/dev/null'
    )


# ---- in a session

_MAX_NOTES = 4096
_MAX_NAMED = 5


@frozen
class PipeStatus:
    """A command whose pipelines answer for their producers, and where it leaves what they hid."""

    honest: HonestText
    notes: ScratchFile
    copy: ScratchFile

    def collect(self, handle: CommandHandle, sandbox: Sandbox, commands: SessionCommands) -> None:
        """Note which producers failed, and where their output is if a filter hid some of it."""
        for number, code in self._read_notes():
            if number < len(self.honest.producers):
                handle.failed_producers.append((self.honest.producers[number], code))
        if get_exit_code(handle) == 0:
            for producer, code in handle.failed_producers[:_MAX_NAMED]:
                handle.hints.append(f"`{make_printable(producer[:100])}` ended with status {code}")
        if not self.honest.has_copy:
            return
        size, lines = _measure(self.copy)
        if lines <= handle.outputs.combined.line_count and size <= handle.outputs.combined.size:
            self.copy.remove()
            return
        kept = plan_output_file(sandbox, commands)
        if kept is None or not self.copy.move_to(kept):
            self.copy.remove()
            return
        filters = " and ".join(dict.fromkeys(self.honest.filters))
        handle.hints.append(f"all {lines} lines before `{make_printable(filters)}`: {kept.seen}")

    def _read_notes(self) -> list[tuple[int, int]]:
        data = self.notes.take(_MAX_NOTES) or b""
        # Any command could have written there: it is read as data.
        found = dict.fromkeys(re.findall(rb"^(\d{1,4}) (\d{1,3})$", data, re.MULTILINE))
        return [(int(number), int(code)) for number, code in found]


def plan_pipe_status(
    planned: CommandPlan, sandbox: Sandbox, commands: SessionCommands
) -> PipeStatus | None:
    """Plan how a command's pipelines answer for their producers; None if it has none."""
    if not planned.uses_shell or "|" not in planned.text:
        return None
    notes = plan_hidden_file(sandbox, commands.folder)
    # The command itself writes the copy: by a name that an earlier one could guess it would write
    # into whatever that one has put there.
    copy = plan_hidden_file(sandbox, commands.folder)
    if notes is None or copy is None:
        return None
    honest = make_honest(planned.text, notes.seen, copy.seen)
    return None if honest is None else PipeStatus(honest, notes, copy)


def _measure(file: ScratchFile) -> tuple[int, int]:
    """Return the size and the number of lines of a file that a command has written."""
    descriptor = file.open()
    if descriptor is None:
        return 0, 0
    size = 0
    lines = 0
    last = b"\n"
    with os.fdopen(descriptor, "rb") as opened:
        while piece := opened.read(1 << 20):
            size += len(piece)
            lines += piece.count(b"\n")
            last = piece[-1:]
    return size, lines + (last != b"\n")
