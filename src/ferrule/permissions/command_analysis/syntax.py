"""The results of command analysis, which `rule_matching` compares with rules."""

from __future__ import annotations

from ferrule.core.value_class import frozen

from .program_facts import program_name
from .shell_words import Word

MAX_PARTS = 50
"""The most simple commands in a command line.

A longer line is denied, not asked about: an analysis that gives up must not become a bypass (the
"50 sub-commands" class of conventions §2.2).
"""

MAX_BYTES = 4096
"""The most bytes of a command line."""

MAX_DEPTH = 40
"""The most levels of nested lists, words and expansions."""


@frozen
class Finding:
    """A file name that the command may not use.

    `label` is `outside_workspace`, `credential_file_read` or empty. Without `is_sure`, it depends
    on which `cd` before it succeeds. `place` is the absolute path outside the workspace, if it is
    one, and `is_written` whether it would be written.
    """

    label: str
    why: str
    is_sure: bool = True
    place: str = ""
    is_written: bool = False


@frozen
class Redirect:
    """A file that the shell itself opens."""

    target: Word
    write: bool


@frozen
class CommandPart:
    """One simple command.

    Attributes:
        raw: Its text.
        words: Its words; none for `X=1` or `> file`.
        assignments: Variables set before it (`NAME=value`).
        redirects: Files that the shell opens for it.
        fed_by: Programs before it in a pipeline.
        words_after_wrappers: The words after wrappers, which allow rules look through.
        hazards: Words that a rule must spell out to cover the command. An empty one cannot be
            spelled out, so only an exact rule covers it.
        call_variables: Variables that the call sets and the text does not (`NAME='value'`).
        folders: The folders in which it could start, relative to the line's; None if unknown.
        renamed: Its program may be another one, because an alias was defined.
    """

    raw: str
    words: tuple[Word, ...] = ()
    assignments: tuple[str, ...] = ()
    redirects: tuple[Redirect, ...] = ()
    fed_by: tuple[str, ...] = ()
    words_after_wrappers: tuple[Word, ...] = ()
    hazards: tuple[str, ...] = ()
    call_variables: tuple[str, ...] = ()
    folders: tuple[str, ...] | None = ("",)
    renamed: bool = False

    @property
    def argv(self) -> tuple[str | None, ...]:
        """The words, with None for those that only the shell knows."""
        return tuple(word.text if word.is_known else None for word in self.words)

    @property
    def program(self) -> str:
        """The program's name without its folder; empty if there is none or it is unknown."""
        return program_name(self.words[0].text) if self.words and self.words[0].is_known else ""

    @property
    def wrapped_program(self) -> str:
        """The name of the program after wrappers; empty if there is none or it is unknown."""
        return (
            program_name(self.words_after_wrappers[0].text)
            if self.words_after_wrappers and self.words_after_wrappers[0].is_known
            else ""
        )


@frozen
class CommandAnalysis:
    """What is known about a command line.

    Attributes:
        parts: Its simple commands.
        loose: Words outside simple commands: lists of loops, operands of tests, values.
        labels: Risk labels.
        problem: Why it cannot be judged; a person is asked.
        over_limit: Which limit it exceeds; it is denied.
        doubts: What depends on things that only the shell knows; a person is asked.
        file_doubts: Those of `doubts` that are about nothing but which files it touches.
        value_doubts: Those of `doubts` that are about values in it which only come when it runs.
        findings: File names that it may not use.
        call_variables: Variables that the call sets and the text does not (`NAME='value'`).
    """

    text: str
    parts: tuple[CommandPart, ...] = ()
    loose: tuple[Word, ...] = ()
    labels: frozenset[str] = frozenset()
    problem: str | None = None
    over_limit: str | None = None
    doubts: tuple[str, ...] = ()
    file_doubts: frozenset[str] = frozenset()
    value_doubts: frozenset[str] = frozenset()
    findings: tuple[Finding, ...] = ()
    call_variables: tuple[str, ...] = ()

    @property
    def full_text(self) -> str:
        """The text with the variables that the call sets before it, which a grant covers."""
        return " ".join((*self.call_variables, self.text))

    @property
    def programs(self) -> tuple[str, ...]:
        """All programs that would start, as they are spelled, with wrappers; `?` if unknown."""
        words: list[Word] = []
        for part in self.parts:
            if part.words:
                words += (part.words[0], part.words_after_wrappers[0])
        return tuple(dict.fromkeys(word.text if word.is_known else "?" for word in words))
