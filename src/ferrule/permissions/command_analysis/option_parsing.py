"""Parses argument lists as programs do: which words are options, their values, and operands.

The options of each program come from `option_tables.json`, which is generated from the programs'
own help. Abbreviations work as in getopt: any unambiguous prefix of a long option is that option.
What a table does not contain is never guessed: from there on nothing is *sure*, and callers must
assume the worst about each word. Options that are only named by hand (`option_meanings`) are found
like all others; whether they take a value is unknown.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
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
        named_only: No help or manual lists it: whether it takes a value is unknown.
    """

    names: tuple[str, ...]
    takes: Literal["", "=", "?"] = ""
    value: str = ""
    named_only: bool = False


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
    """The options of one program.

    Args:
        text: The options, as `option_tables.json` spells them.
        source: Where they come from.
        named: Options that count although the text may lack them.
        with_value: Those that take a value.
    """

    def __init__(
        self,
        text: str,
        source: str,
        named: Iterable[str] = (),
        with_value: Iterable[str] = (),
    ) -> None:
        self.source = source
        self.options: dict[str, Option] = {}
        for token in text.split():
            option = _parse(token)
            for name in option.names:
                self.options.setdefault(name, option)
        for name in with_value:
            self.options.setdefault(name, Option((name,), "="))
        for name in named:
            self.options.setdefault(name, Option((name,), named_only=True))
        # An option that is only named counts as one of the program's where none of its own fits.
        long = [name for name in self.options if name.startswith("--")]
        self._long = sorted(name for name in long if not self.options[name].named_only)
        self._named = sorted(name for name in long if self.options[name].named_only)

    def find(self, name: str, style: Style) -> tuple[Option, ...]:
        """Return the options that this spelling of a long option could mean."""
        if name in self.options:
            return (self.options[name],)
        if style == "single":
            other = name[1:] if name.startswith("--") else f"-{name}"
            return (self.options[other],) if other in self.options else ()
        fits = self._begin(self._long, name) or self._begin(self._named, name)
        found = {option.names: option for option in fits}
        if not found and name.startswith("--no-") and f"--{name[5:]}" in self.options:
            return (Option((name,)),)
        return tuple(found.values())

    def _begin(self, names: Sequence[str], start: str) -> list[Option]:
        return [self.options[known] for known in names if known.startswith(start)]


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
def table_of(
    *programs: str,
    named: frozenset[str] = frozenset(),
    with_value: frozenset[str] = frozenset(),
) -> OptionTable | None:
    """Return the options of a program (`sort`) or a verb (`git log`); None if unknown.

    Args:
        programs: Its name. Of several, the options of all: the first decides what one takes.
        named: Options that count although no help lists them.
        with_value: Those that take a value.
    """
    found = [row for row in map(_rows().get, programs) if row is not None]
    if not found:
        return None
    text = " ".join(row["options"] for row in found)
    return OptionTable(text, found[0]["source"], sorted(named), with_value)


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
    if len(options) != 1 or options[0].named_only:
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
    for place in range(1, len(name)):
        for known in dict.fromkeys((f"-{name[place]}", f"-{name[place : place + 2]}")):
            if known in table.options:
                yield table.options[known]


def _bundle(words: Sequence[str], index: int, table: OptionTable) -> Iterator[ParsedArgument]:
    """Parse `-abc` or `-ofile`: each letter is an option until one takes the rest as value.

    Of zip and a few others, two letters can be one option (`-TT`).
    """
    word = words[index]
    if word[1:].isdigit():
        yield ParsedArgument(index, ())  # `head -20`: a number
        return
    place = 1
    while place < len(word):
        pair = f"-{word[place : place + 2]}"
        name = pair if pair in table.options else f"-{word[place]}"
        option = table.options.get(name)
        place += len(name) - 1
        rest = word[place:]
        if option is None or option.named_only:
            # It could be a flag, or take the rest as value: all letters that follow count.
            letters = tuple(_letters(name + rest, table))
            yield ParsedArgument(index, letters, rest, index, False)
            return
        if option.takes == "=" and not rest and index + 1 < len(words):
            yield ParsedArgument(index, (option,), words[index + 1], index + 1)
            return
        if option.takes and rest:
            yield ParsedArgument(index, (option,), rest, index)
            return
        yield ParsedArgument(index, (option,))
