"""What can be said, by hand, about the arguments of a program: one record for each program."""

from __future__ import annotations

from typing import Literal

from ferrule.core.value_class import frozen

from .option_parsing import Style
from .program_facts import word_set

Role = Literal["written", "text", "any"]
"""`written` is a path that is created or changed; `any` may be a path or text."""


TEXT_VALUES = word_set(
    """
    n num number size sizes char chars character sep separator delim delimiter list string str
    strings format fmt fs
    pattern patterns regexp regex type date time when word words message style keydef limit skip
    duration signal
    width cols columns len level depth script program-text term max method lines length count glob
    attr key text label prefix max-args max-chars max-procs max-lines replace mode author trailer
    commit committer
    marker levels days lo-hi mtype unit r end bytes field_list time_style prompt pattern_list
    seconds
    globs num-lines numsuffix encoding name:value var filter markexpr expression ruff rule_code
    line_length
    output_format target-version spec features triple profile-name bin test bench example d t
    """
)
"""Names of values that are not paths."""


@frozen
class ProgramArguments:
    """What the arguments of a program mean. Options are named by one of their spellings."""

    runs: frozenset[str] = frozenset()
    """Options that run, load, delete or send something."""
    writes: frozenset[str] = frozenset()
    """Options whose value is a file that is written."""
    produces: frozenset[str] = frozenset()
    """Options whose value is the file or folder that the program is there to write: `go build -o`.
    It is judged as one that is written, and is within what a rule for the program allows.
    """
    words: frozenset[str] = frozenset()
    """Operands that do more than usual: `clear` of `git stash clear`."""
    text: frozenset[str] = frozenset()
    """Options whose value is text although the name of the value does not say so."""
    operands: tuple[Role, ...] = ("any",)
    """Roles of the operands in order; the last one also applies to all that follow."""
    instead: frozenset[str] = frozenset()
    """Options that replace the first operand, such as a pattern or a script."""
    style: Style = "getopt"
    mixed: bool = True
    most: int = 0
    """More operands than this are hazards; 0 for any number."""
    open_ended: bool = False
    """Unknown options do no harm: they are too many to list, or those of scripts."""
    valued: tuple[tuple[str, str], ...] = ()
    """Options that do more with a value that this expression finds: `--cov-report xml:FILE`."""
    tables: tuple[str, ...] = ()
    """Programs whose tables list its options, if that is not its own: the first decides."""
    starts: frozenset[str] = frozenset()
    """Options behind whose value all belongs to what they start: `python -m MODULE`."""

    @property
    def named(self) -> frozenset[str]:
        """Options that count although the program's table may lack them."""
        return self.runs | self.writes

    @property
    def with_value(self) -> frozenset[str]:
        """Options that certainly take a value."""
        return self.produces.union(name for names, _ in self.valued for name in names.split())


def describe_program(  # noqa: PLR0913  one argument for each field of a record
    runs: str = "",
    writes: str = "",
    *,
    produces: str = "",
    words: str = "",
    text: str = "",
    operands: tuple[Role, ...] = ("any",),
    instead: str = "",
    style: Style = "getopt",
    mixed: bool = True,
    most: int = 0,
    open_ended: bool = False,
    valued: tuple[tuple[str, str], ...] = (),
    tables: str = "",
    starts: str = "",
) -> ProgramArguments:
    """Describe a program; lists of options and words are texts, as they are written most simply."""
    return ProgramArguments(
        word_set(runs),
        word_set(writes),
        word_set(produces),
        word_set(words),
        word_set(text),
        operands,
        word_set(instead),
        style,
        mixed,
        most,
        open_ended,
        valued,
        tuple(tables.split()),
        word_set(starts),
    )
