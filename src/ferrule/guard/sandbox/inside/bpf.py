"""Assembles classic BPF programs for seccomp: a list of rules about system calls in, the kernel's bytes out.

A program is a chain: each rule asks for one number, looks at argument words if it must, and either answers or
lets the next rule ask. Jumps of classic BPF reach 255 instructions ahead; no rule here is nearly that long. Only loads
of the number and the machine, comparisons and returns are used outside of rules about arguments, so that the
kernel can tell ahead which calls are always allowed, and never runs the program for these.

Sources: `linux/filter.h`, `linux/bpf_common.h`, `linux/seccomp.h`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

ALLOW = 0x7FFF0000
NOTIFY = 0x7FC00000
KILL = 0x80000000  # the whole process

_LOAD = 0x20  # ld word, absolute
_AND = 0x54  # alu and, constant
_EQUAL, _GREATER_OR_EQUAL, _ANY_BIT = 0x15, 0x35, 0x45
_RETURN = 0x06

_NUMBER, _MACHINE, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data

Instruction = tuple[int, int, int, int]
"""Operation, jump if true, jump if false, constant."""


def refuse(error: int) -> int:
    """The answer that makes a call fail with this `errno`."""
    return 0x00050000 | error


class Word:
    """A condition on 32 bits of an argument: `(word & mask)` is, or is not, one of `values`.

    Both machines are little-endian. `high` takes the upper half: the kernel ignores it for arguments that are an
    `int`, and a condition on the lower half is exact for these.
    """

    __slots__ = ("argument", "high", "mask", "one_of", "values")

    def __init__(
        self, argument: int, *values: int, mask: int = 0xFFFFFFFF, high: bool = False, one_of: bool = True
    ) -> None:
        self.argument = argument
        self.values = values
        self.mask = mask
        self.high = high
        self.one_of = one_of


class Rule:
    """The answer to a call if all conditions hold. A rule whose conditions do not hold leaves the call to later ones."""

    __slots__ = ("answer", "number", "when")

    def __init__(self, number: int, answer: int, *when: Word) -> None:
        self.number = number
        self.answer = answer
        self.when = when


def assemble(architecture: int, rules: Iterable[Rule], last: int) -> bytes:
    """The program: another machine or the x32 table ends the process, numbers above `last` do not exist."""
    program: list[Instruction] = [
        (_LOAD, 0, 0, _MACHINE),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_EQUAL, 0, 1, 0xFFFFFFFF),
        (_RETURN, 0, 0, refuse(38)),
        (_GREATER_OR_EQUAL, 0, 1, 0x40000000),
        (_RETURN, 0, 0, KILL),
        (_GREATER_OR_EQUAL, 0, 1, last + 1),
        (_RETURN, 0, 0, refuse(38)),
    ]
    for rule in rules:
        program += _rule(rule)
    program.append((_RETURN, 0, 0, ALLOW))
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in program)


def _rule(rule: Rule) -> list[Instruction]:
    """`if number != N skip; for each condition: load, and, compare, skip if not; return answer; load number again`."""
    conditions = [_condition(word) for word in rule.when]
    body: list[Instruction] = []
    after = 1  # the return
    for condition in reversed(conditions):
        body = [*_with_exit(condition, len(body) + after), *body]
    body.append((_RETURN, 0, 0, rule.answer))
    if conditions:
        # The accumulator holds an argument now; the next rule asks for the number.
        body.append((_LOAD, 0, 0, _NUMBER))
    return [(_EQUAL, 0, len(body), rule.number), *body]


def _condition(word: Word) -> tuple[list[Instruction], Word]:
    offset = _ARGUMENTS + 8 * word.argument + (4 if word.high else 0)
    loads: list[Instruction] = [(_LOAD, 0, 0, offset)]
    if word.mask != 0xFFFFFFFF:
        loads.append((_AND, 0, 0, word.mask))
    return loads, word


def _with_exit(condition: tuple[list[Instruction], Word], beyond: int) -> list[Instruction]:
    """The comparisons of one condition: fall through if it holds, else jump `beyond` further instructions."""
    loads, word = condition
    tests: list[Instruction] = []
    count = len(word.values)
    for index, value in enumerate(word.values):
        left = count - index - 1
        if word.one_of:
            # Found: over the tests that are left. The last one decides.
            tests.append((_EQUAL, left, 0 if left else beyond, value))
        else:
            tests.append((_EQUAL, left + beyond, 0, value))
    return [*loads, *tests]
