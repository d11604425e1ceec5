"""Assembles classic BPF programs for seccomp: rules about system calls in, the kernel's bytes out.

A program is a binary search for the call's number. It ends at an answer, or where argument words
are tested, rule by rule. That is short for each call, and also for the kernel, which looks through
the program call by call when it is installed. Jumps of classic BPF reach 255 instructions ahead, so
a program has at most about twice as many. Outside of rules about arguments only loads of the number
and the machine, comparisons and returns are used: so the kernel can tell ahead which calls are
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
_EQUAL = 0x15
_GREATER_OR_EQUAL = 0x35
_RETURN = 0x06

_NUMBER, _MACHINE, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data

Instruction = tuple[int, int, int, int]
"""Operation, jump if true, jump if false, constant."""

Answer = tuple[Instruction, ...]
"""Instructions that find the answer to a call whose number is in the accumulator.

Every path through them returns.
"""
Range = tuple[int, Answer]
"""The first number that the answer is for. It ends where the next range begins."""

_ALLOWED: Answer = ((_RETURN, 0, 0, ALLOW),)
_MAX_JUMP = 255
_X32 = 0x40000000
"""Where the numbers of the x32 table begin."""


def refuse(error: int) -> int:
    """Return the answer that makes a call fail with this `errno`."""
    return 0x00050000 | error


class ArgumentTest:
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
    """The answer to a call if all conditions hold. Otherwise later rules decide."""

    __slots__ = ("answer", "conditions", "number")

    def __init__(self, number: int, answer: int, *conditions: ArgumentTest) -> None:
        self.number = number
        self.answer = answer
        self.conditions = conditions


def assemble(architecture: int, rules: Iterable[Rule], last: int) -> bytes:
    """Return the program.

    Another machine or the x32 table ends the process; numbers above `last` do not exist.
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
    """Return the numbers from which each answer holds, in order, with different neighbours."""
    absent = ((_RETURN, 0, 0, refuse(38)),)
    answers: dict[int, Answer] = {0: _ALLOWED}
    for number, of_number in groupby(sorted(rules, key=_number), _number):
        if number <= last:
            answers |= {number: _answer(of_number), number + 1: _ALLOWED}
    answers |= {last + 1: absent, _X32: ((_RETURN, 0, 0, KILL),), 0xFFFFFFFF: absent}
    ranges: list[Range] = []
    for first, answer in answers.items():
        if not ranges or ranges[-1][1] != answer:
            ranges.append((first, answer))
    return ranges


def _number(rule: Rule) -> int:
    return rule.number


def _search(ranges: list[Range]) -> list[Instruction]:
    """Return a binary search: if the number is in the upper half, look there, else here."""
    if len(ranges) == 1:
        return [*ranges[0][1]]
    middle = len(ranges) // 2
    lower = _search(ranges[:middle])
    upper = _search(ranges[middle:])
    if len(lower) > _MAX_JUMP:
        raise ValueError("too many rules: a jump of classic BPF cannot reach over half of them")
    return [(_GREATER_OR_EQUAL, len(lower), 0, ranges[middle][0]), *lower, *upper]


def _answer(rules: Iterable[Rule]) -> Answer:
    """Return the instructions for the rules of one number, one after another.

    For each condition: load, mask, compare, skip if it does not hold; then return the answer.
    """
    program: list[Instruction] = []
    for rule in rules:
        body: list[Instruction] = [(_RETURN, 0, 0, rule.answer)]
        for word in reversed(rule.conditions):
            body = [*_condition(word, len(body)), *body]
        program += body
        if not rule.conditions:
            return tuple(program)  # later ones are never asked
    return (*program, *_ALLOWED)


def _condition(word: ArgumentTest, skipped: int) -> list[Instruction]:
    """Return a test that falls through if the condition holds, else skips `skipped` more."""
    offset = _ARGUMENTS + 8 * word.argument + (4 if word.high else 0)
    tests: list[Instruction] = [(_LOAD, 0, 0, offset)]
    if word.mask != 0xFFFFFFFF:
        tests.append((_AND, 0, 0, word.mask))
    for index, value in enumerate(word.values):
        remaining = len(word.values) - index - 1
        if word.one_of:
            # If equal, skip the remaining tests. The last one decides.
            tests.append((_EQUAL, remaining, 0 if remaining else skipped, value))
        else:
            tests.append((_EQUAL, remaining + skipped, 0, value))
    return tests
