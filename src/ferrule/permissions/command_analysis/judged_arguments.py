"""What each argument of a known program is: an option that does more than usual, a path, text.

`option_parsing` reads the words and `option_meanings` says what they mean; here both come together.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache, lru_cache

from ferrule.core.value_class import frozen

from .option_meanings import plain_name, program_of
from .option_parsing import Option, OptionTable, ParsedArgument, parse_arguments, table_of
from .program_arguments import TEXT_VALUES, ProgramArguments, Role
from .started_programs import VERBS_BEFORE_PROGRAMS
from .subcommands import canonical_subcommand


@frozen
class JudgedArgument:
    """One option or operand of an argument list.

    Attributes:
        index: The position of its word.
        value_index: The position of its value; the same unless the value is a word of its own.
        value: The option's value, or the operand.
        role: Whether the value is a path that is written, text, or either.
        hazard: It does more than the program's name says.
        sure: The option is known.
        operand: It is not an option.
        names: All spellings of the option, or of those that it could be.
    """

    index: int
    value_index: int
    value: str | None
    role: Role
    hazard: bool
    sure: bool
    operand: bool
    names: frozenset[str] = frozenset()


def judge_arguments(
    program: str, words: Sequence[str], verb: str = ""
) -> tuple[JudgedArgument, ...]:
    """Judge the arguments of a program, without its name; none if nothing is known about them.

    For git, `verb` is its verb and `words` are the arguments behind that.
    """
    program = plain_name(program)
    if program_of(program, verb) is None:
        return ()
    return _judge(program, tuple(words), verb)


@lru_cache(maxsize=256)  # called for hazards, then for paths
def _judge(program: str, words: tuple[str, ...], verb: str) -> tuple[JudgedArgument, ...]:
    known = program_of(program, verb)
    if known is None:
        return ()
    table, start, mixed = _table(program, words, verb, known)
    arguments = parse_arguments(words[start:], table, known.style, mixed=mixed and known.mixed)
    given = any(_gives(known, argument) for argument in arguments)
    closed = table.source == "getopt" or bool(known.named and not known.open_ended)
    judged: list[JudgedArgument] = []
    number = 0
    for index in range(start):
        does_more = canonical_subcommand(program, words[index]) in known.words
        judged.append(JudgedArgument(index, index, words[index], "text", does_more, True, True))
    for argument in arguments:
        if argument.options is None:
            first = number == 0 and start == 0
            judged.append(_judge_operand(program, known, argument, number + given, start, first))
            number += 1
            continue
        judged.append(_judge_option(program, verb, argument, start, closed))
        if not known.starts.isdisjoint(judged[-1].names):
            break
        hidden = argument.value or ""
        if argument.value_index > argument.index and hidden.startswith("-") and len(hidden) > 1:
            # If the table is wrong about the value, this is an option: it counts as one, too.
            for other in parse_arguments((hidden,), table, known.style):
                extra = _judge_option(program, verb, other, start + argument.value_index, False)
                judged.append(extra)
    return tuple(judged)


_BEFORE_PROGRAMS = VERBS_BEFORE_PROGRAMS | {"docker run", "docker exec"}


def _table(
    program: str, words: Sequence[str], verb: str, known: ProgramArguments
) -> tuple[OptionTable, int, bool]:
    """Return the table, the length of the verb, and whether options may follow operands."""
    programs = known.tables or (program,)
    names = (known.named, known.with_value)
    bare = OptionTable("", "", *names)
    if verb:
        return table_of(f"{program} {verb}", named=names[0]) or bare, 0, True
    for length in (2, 1):
        behind = " ".join(words[:length])
        if len(words) < length:
            continue
        table = table_of(f"{programs[0]} {behind}", named=names[0], with_value=names[1])
        if table is not None:
            return table, length, f"{program} {behind}" not in _BEFORE_PROGRAMS
    return table_of(*programs, named=names[0], with_value=names[1]) or bare, 0, True


def _gives(known: ProgramArguments, argument: ParsedArgument) -> bool:
    return any(not known.instead.isdisjoint(option.names) for option in argument.options or ())


def _judge_operand(
    program: str,
    known: ProgramArguments,
    argument: ParsedArgument,
    number: int,
    start: int,
    first: bool,
) -> JudgedArgument:
    role = known.operands[min(number, len(known.operands) - 1)]
    value = argument.value or ""
    does_more = canonical_subcommand(program, value) in known.words
    verb = does_more and (first or not argument.sure)
    hazard = role == "written" or verb or bool(known.most and number >= known.most)
    at = argument.index + start
    return JudgedArgument(at, at, value, role, hazard, argument.sure, True)


def _judge_option(
    program: str, verb: str, argument: ParsedArgument, start: int, closed: bool
) -> JudgedArgument:
    options = argument.options or ()
    meanings = [_explain_option(program, verb, option) for option in options]
    unknown = closed and not options and not argument.sure
    hazard = unknown or any(does_more for does_more, _ in meanings)
    hazard = hazard or any(_does_more_with(program, option, argument) for option in options)
    role = meanings[0][1] if len(meanings) == 1 else "any"
    if program == "curl" and role == "text" and (argument.value or "").startswith("@"):
        role = "any"  # `-H @file` sends the content of the file
    value_index = argument.value_index + start if argument.value_index >= 0 else -1
    return JudgedArgument(
        argument.index + start,
        value_index,
        argument.value,
        role,
        hazard,
        argument.sure,
        False,
        frozenset(name for option in options for name in option.names),
    )


def _does_more_with(program: str, option: Option, argument: ParsedArgument) -> bool:
    """Return whether an option does more with its value, or could if the value is uncertain."""
    known = program_of(program)
    for names, pattern in known.valued if known is not None else ():
        if not set(names.split()).isdisjoint(option.names):
            value = argument.value
            return not argument.sure if value is None else re.search(pattern, value) is not None
    return False


@cache
def _explain_option(program: str, verb: str, option: Option) -> tuple[bool, Role]:
    """Return whether an option does more than the program's name says, and what its value is."""
    known = program_of(program, verb)
    if known is None:
        return False, "any"
    names = set(option.names)
    if not known.writes.isdisjoint(names):
        return True, "written"
    if not known.produces.isdisjoint(names):
        return False, "written"
    runs = not known.runs.isdisjoint(names)
    named_text = not known.text.isdisjoint(names)
    # Docker calls every value `string` or `list`, paths too.
    by_name = option.value in TEXT_VALUES and program != "docker"
    if named_text or (by_name and not runs):
        return runs, "text"
    return runs, "any"
