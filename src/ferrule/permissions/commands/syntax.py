"""What a command line is made of: the values that `simple_commands.py` collects and
`permissions/rule_matching.py` judges.
"""

from __future__ import annotations

from ferrule.core.frozen import frozen

from .program_facts import base
from .shell_words import Word

MAX_PARTS = 50
"""Simple commands in one command line. Beyond it the line is denied, not asked for: analysis that
gives up must not become a way around it (the "50 sub-commands" class of conventions §2.2).
"""
MAX_BYTES = 4096
MAX_DEPTH = 40
"""Lists, words and expansions within each other."""


@frozen
class Finding:
    """A file name that the command may not use. `label` is `outside_workspace` or
    `credential_file_read`.

    Not `sure`: it depends on which `cd` before it works.
    """

    label: str
    why: str
    sure: bool = True


@frozen
class Redirect:
    """A file that the shell itself opens."""

    target: Word
    write: bool


@frozen
class Part:
    """One simple command. `words` may be empty (`X=1`, `> file`).

    `stripped` are the words after wrappers that an allow rule looks through. `hazards` are words
    that a rule must spell to cover the part; an empty one cannot be spelled, so only an exact rule
    covers it. `beside` are variables that the call sets and the text does not (`NAME='value'`).
    """

    raw: str
    words: tuple[Word, ...] = ()
    assignments: tuple[str, ...] = ()
    redirects: tuple[Redirect, ...] = ()
    fed_by: tuple[str, ...] = ()
    stripped: tuple[Word, ...] = ()
    hazards: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    folders: tuple[str, ...] | None = ("",)
    renamed: bool = False

    @property
    def argv(self) -> tuple[str | None, ...]:
        """The words, None where only the shell will know."""
        return tuple(word.text if word.known else None for word in self.words)

    @property
    def program(self) -> str:
        """The program's name without its folder; empty if there is none or it is not known."""
        return base(self.words[0].text) if self.words and self.words[0].known else ""

    @property
    def target(self) -> str:
        """The program after wrappers."""
        return base(self.stripped[0].text) if self.stripped and self.stripped[0].known else ""


@frozen
class Analysis:
    """What is known of one command line. `loose` are words outside commands: loop lists, operands,
    values.
    """

    text: str
    parts: tuple[Part, ...] = ()
    loose: tuple[Word, ...] = ()
    labels: frozenset[str] = frozenset()
    problem: str | None = None
    over_limit: str | None = None
    doubts: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    beside: tuple[str, ...] = ()

    @property
    def spelled(self) -> str:
        """The text with the variables that the call sets beside it: what a grant speaks of."""
        return " ".join((*self.beside, self.text))

    @property
    def programs(self) -> tuple[str, ...]:
        """All programs that would start, as they are spelled, wrappers too; `?` where it is not
        known.
        """
        both = ((part.words[0], part.stripped[0]) for part in self.parts if part.words)
        return tuple(dict.fromkeys(w.text if w.known else "?" for pair in both for w in pair))
