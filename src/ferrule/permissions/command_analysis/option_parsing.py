"""Parses argument lists as programs do: which words are options, their values, and operands.

The options of each program come from `option_tables.json`, which is generated from the programs'
own help. Abbreviations work as in getopt: any unambiguous prefix of a long option is that option.
What a table does not contain is never guessed: from there on nothing is *sure*, and callers must
assume the worst about each word.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Literal

from ferrule.core.value_class import frozen

Style = Literal["getopt", "single", "npm"]
"""How a program spells long options: `single` with one dash (go, find), `npm` with one or two."""


@frozen
class Option:
    """An option of a program.

    Attributes:
        names: Its spellings.
        takes: `=` if it takes a value, `?` if it may have an attached one.
        value: What the value is. `NAME+FILE` are two values, each a word of its own.
    """

    names: tuple[str, ...]
    takes: Literal["", "=", "?"] = ""
    value: str = ""


@frozen
class ParsedArgument:
    """The meaning of one word: the options it could be, or an operand if `options` is None.

    `index` and `value_index` are positions in the words; `value` is the option's value, or the
    operand.
    """

    index: int
    options: tuple[Option, ...] | None
    value: str | None = None
    value_index: int = -1
    sure: bool = True


class OptionTable:
    """The options of one program."""

    def __init__(self, text: str, source: str) -> None:
        self.source = source
        self.options: dict[str, Option] = {}
        for token in text.split():
            option = _parse(token)
            self.options.update(dict.fromkeys(option.names, option))
        self._long = sorted(name for name in self.options if name.startswith("--"))

    def find(self, name: str, style: Style) -> tuple[Option, ...]:
        """Return the options that this spelling of a long option could mean."""
        if name in self.options:
            return (self.options[name],)
        if style == "single":
            other = name[1:] if name.startswith("--") else f"-{name}"
            return (self.options[other],) if other in self.options else ()
        found = {option.names: option for option in self._find_by_prefix(name)}
        if not found and name.startswith("--no-") and f"--{name[5:]}" in self.options:
            return (Option((name,)),)
        return tuple(found.values())

    def _find_by_prefix(self, name: str) -> Iterator[Option]:
        for known in self._long:
            if known.startswith(name):
                yield self.options[known]


def _parse(token: str) -> Option:
    for place, letter in enumerate(token):
        # The first spelling may be `-?`.
        if letter in "=?" and token[place - 1] != "-":
            takes: Literal["=", "?"] = "=" if letter == "=" else "?"
            return Option(tuple(token[:place].split(",")), takes, token[place + 1 :].lower())
    return Option(tuple(token.split(",")))


@cache
def _rows() -> dict[str, dict[str, str]]:
    return json.loads(Path(__file__).with_name("option_tables.json").read_bytes())


@cache
def table_of(program: str) -> OptionTable | None:
    """Return the options of a program (`sort`) or a verb (`git log`); None if unknown."""
    row = _rows().get(program)
    return None if row is None else OptionTable(row["options"], row["source"])


def parse_arguments(
    words: Sequence[str], table: OptionTable, style: Style = "getopt", *, mixed: bool = True
) -> list[ParsedArgument]:
    """Parse the arguments of a program (without its name).

    After an option that the table does not contain, nothing is sure.

    Args:
        words: The arguments.
        table: The program's options.
        style: How it spells long options.
        mixed: Options may follow operands.
    """
    found: list[ParsedArgument] = []
    index = 0
    sure = True
    while index < len(words):
        word = words[index]
        if word == "--":
            found += [
                ParsedArgument(at, None, words[at], at, sure) for at in range(index + 1, len(words))
            ]
            break
        if not word.startswith("-") or word == "-":
            found.append(ParsedArgument(index, None, word, index, sure))
            if not mixed:
                found += [
                    ParsedArgument(at, None, words[at], at, sure)
                    for at in range(index + 1, len(words))
                ]
                break
            index += 1
            continue
        if word.startswith("--") or style != "getopt":
            read_now = list(_long(words, index, table, style))
        else:
            read_now = list(_bundle(words, index, table))
        for argument in read_now:
            sure = sure and argument.sure
            found.append(argument if sure else _unsure(argument))
        index = max(index, read_now[-1].value_index) + 1
    return found


def _unsure(argument: ParsedArgument) -> ParsedArgument:
    return ParsedArgument(
        argument.index, argument.options, argument.value, argument.value_index, False
    )


def _long(
    words: Sequence[str], index: int, table: OptionTable, style: Style
) -> Iterator[ParsedArgument]:
    name, equals, value = words[index].partition("=")
    options = table.find(name, style)
    if style == "npm" and not name.startswith("--") and name not in table.options:
        options = (*table.find(f"-{name}", style), *_letters(name, table))
    if len(options) != 1:
        yield ParsedArgument(index, options, value if equals else None, index, False)
        return
    option = options[0]
    if equals:
        yield ParsedArgument(index, options, value, index)
        return
    kinds = option.value.split("+") if option.takes == "=" else []
    for at, kind in enumerate(kinds[: len(words) - index - 1], start=index + 1):
        yield ParsedArgument(index, (Option(option.names, "=", kind),), words[at], at)
    if not kinds or index + 1 == len(words):
        yield ParsedArgument(index, options)


def _letters(name: str, table: OptionTable) -> Iterator[Option]:
    for letter in name[1:]:
        if f"-{letter}" in table.options:
            yield table.options[f"-{letter}"]


def _bundle(words: Sequence[str], index: int, table: OptionTable) -> Iterator[ParsedArgument]:
    """Parse `-abc` or `-ofile`: each letter is an option until one takes the rest as value."""
    word = words[index]
    if word[1:].isdigit():
        yield ParsedArgument(index, ())  # `head -20`: a number
        return
    for place in range(1, len(word)):
        option = table.options.get(f"-{word[place]}")
        rest = word[place + 1 :]
        if option is None:
            # It could be a flag, or take the rest as value: all letters that follow count.
            letters = tuple(_letters(word[place:], table))
            yield ParsedArgument(index, letters, rest, index, False)
            return
        if option.takes == "=" and not rest and index + 1 < len(words):
            yield ParsedArgument(index, (option,), words[index + 1], index + 1)
            return
        if option.takes and rest:
            yield ParsedArgument(index, (option,), rest, index)
            return
        yield ParsedArgument(index, (option,))
