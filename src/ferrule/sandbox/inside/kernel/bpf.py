"""Assembles classic BPF programs for seccomp: a list of rules about system calls in, the kernel's
bytes out.

A program is a binary search for the number, which ends where an answer stands or where argument
words are looked at, rule by rule. Besides being short for each call, it is short for the kernel to
look through when it is put on, call by call. Jumps of classic BPF reach 255 instructions ahead, so
a program has at most about twice as many. Only loads of the number and the machine, comparisons and
returns are used outside of rules about arguments, so that the kernel can tell ahead which calls are
always allowed, and never runs the program for these.

Sources: `linux/filter.h`, `linux/bpf_common.h`, `linux/seccomp.h`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import groupby

ALLOW = 0x7FFF0000
NOTIFY = 0x7FC00000
KILL = 0x80000000  # the whole process

_LOAD = 0x20  # ld word, absolute
_AND = 0x54  # alu and, constant
_EQUAL, _GREATER_OR_EQUAL = 0x15, 0x35
_RETURN = 0x06

_NUMBER, _MACHINE, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data

Instruction = tuple[int, int, int, int]
"""Operation, jump if true, jump if false, constant."""

Answer = tuple[Instruction, ...]
"""Instructions that find the answer to a call whose number is in the accumulator; all ways through
them return.
"""
Range = tuple[int, Answer]
"""The first number that the answer is for. It ends where the next range begins."""

_ALLOWED: Answer = ((_RETURN, 0, 0, ALLOW),)
_FURTHEST = 255
_X32 = 0x40000000
"""Where the numbers of the x32 table begin."""


def refuse(error: int) -> int:
    """The answer that makes a call fail with this `errno`."""
    return 0x00050000 | error


class Word:
    """A condition on 32 bits of an argument: `(word & mask)` is, or is not, one of `values`.

    Both machines are little-endian. `high` takes the upper half: the kernel ignores it for
    arguments that are an `int`, and a condition on the lower half is exact for these.
    """

    __slots__ = ("argument", "high", "mask", "one_of", "values")

    def __init__(
        self,
        argument: int,
        *values: int,
        mask: int = 0xFFFFFFFF,
        high: bool = False,
        one_of: bool = True,
    ) -> None:
        self.argument = argument
        self.values = values
        self.mask = mask
        self.high = high
        self.one_of = one_of


class Rule:
    """The answer to a call if all conditions hold. A rule whose conditions do not hold leaves the
    call to later ones.
    """

    __slots__ = ("answer", "number", "when")

    def __init__(self, number: int, answer: int, *when: Word) -> None:
        self.number = number
        self.answer = answer
        self.when = when


def assemble(architecture: int, rules: Iterable[Rule], last: int) -> bytes:
    """The program: another machine or the x32 table ends the process, numbers above `last` do not
    exist.
    """
    program: list[Instruction] = [
        (_LOAD, 0, 0, _MACHINE),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, KILL),
        (_LOAD, 0, 0, _NUMBER),
        *_search(_ranges(rules, last)),
    ]
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in program)


def _ranges(rules: Iterable[Rule], last: int) -> list[Range]:
    """Where in the numbers an answer begins to hold, and how it is found. In order, neighbours
    different.
    """
    absent = ((_RETURN, 0, 0, refuse(38)),)
    begins: dict[int, Answer] = {0: _ALLOWED}
    for number, of_number in groupby(sorted(rules, key=_number), _number):
        if number <= last:
            begins |= {number: _answer(of_number), number + 1: _ALLOWED}
    begins |= {last + 1: absent, _X32: ((_RETURN, 0, 0, KILL),), 0xFFFFFFFF: absent}
    found: list[Range] = []
    for begin, answer in begins.items():
        if not found or found[-1][1] != answer:
            found.append((begin, answer))
    return found


def _number(rule: Rule) -> int:
    return rule.number


def _search(ranges: list[Range]) -> list[Instruction]:
    """`if number >= the first of the upper half: look there; else here`, down to one range."""
    if len(ranges) == 1:
        return [*ranges[0][1]]
    middle = len(ranges) // 2
    lower, upper = _search(ranges[:middle]), _search(ranges[middle:])
    if len(lower) > _FURTHEST:
        raise ValueError("too many rules: a jump of classic BPF cannot reach over half of them")
    return [(_GREATER_OR_EQUAL, len(lower), 0, ranges[middle][0]), *lower, *upper]


def _answer(rules: Iterable[Rule]) -> Answer:
    """The rules of one number, one after another: `for each condition: load, and, compare, skip if
    not; return answer`.
    """
    program: list[Instruction] = []
    for rule in rules:
        body: list[Instruction] = [(_RETURN, 0, 0, rule.answer)]
        for word in reversed(rule.when):
            body = [*_condition(word, len(body)), *body]
        program += body
        if not rule.when:
            return tuple(program)  # later ones are never asked
    return (*program, *_ALLOWED)


def _condition(word: Word, beyond: int) -> list[Instruction]:
    """Fall through if it holds, else jump `beyond` further instructions."""
    offset = _ARGUMENTS + 8 * word.argument + (4 if word.high else 0)
    tests: list[Instruction] = [(_LOAD, 0, 0, offset)]
    if word.mask != 0xFFFFFFFF:
        tests.append((_AND, 0, 0, word.mask))
    for index, value in enumerate(word.values):
        left = len(word.values) - index - 1
        if word.one_of:
            # Found: over the tests that are left. The last one decides.
            tests.append((_EQUAL, left, 0 if left else beyond, value))
        else:
            tests.append((_EQUAL, left + beyond, 0, value))
    return tests
