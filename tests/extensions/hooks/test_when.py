"""The language of `when`: what it can say, that it can do nothing else, and that a mistake is
loud.
"""

from __future__ import annotations

import os
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferrule.core.errors import ConfigError
from ferrule.extensions.hooks.conditions import ConditionError, evaluate, parse_condition
from ferrule.tools.safe_patterns import compile_regex, matches_glob

MAX_CHARACTERS = 2000

MANY = int(os.environ.get("FERRULE_FUZZ", "250"))
"""Examples per property; a nightly run sets more."""

PAYLOAD: dict[str, Any] = {
    "name": "run_command",
    "arguments": {"command": "git push --force", "list": [1, 2], "flag": True, "nothing": None},
    "side_effect": "execute",
    "id": "c1",
}


def holds(text: str) -> bool:
    return evaluate(parse_condition(text), "tool.pre", PAYLOAD)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ('name == "run_command"', True),
        ('payload["name"] != "run_command"', False),
        ('event == "tool.pre" and starts(arguments.command, "git ")', True),
        ('glob(arguments["command"], "git push*")', True),
        ('glob(arguments["command"], "push*")', False),
        ('regex(arguments.command, "--force(\\\\s|$)")', True),
        ('name in ["a", "run_command"] or id == "x"', True),
        ('"push" in arguments.command', True),
        ('not has(arguments, "cwd")', True),
        ('get(arguments, "cwd", ".") == "."', True),
        ("length(arguments.list) == 2 and arguments.list[0] < 2 <= arguments.list[1]", True),
        ("arguments.flag", True),
        ("arguments.nothing == None", True),
        ('ends(lower("ABC"), "bc")', True),
        ('name == "a"\n  or name == "run_command"', True),
        ("-1 < 0", True),
    ],
)
def test_a_condition_looks_at_the_payload(text: str, answer: bool) -> None:
    assert holds(text) is answer


@pytest.mark.parametrize(
    "text",
    [
        "arguments.comand == 1",
        "nme == 1",
        "name",
        "name or True",
        "not name",
        "1",
        "arguments < name",
        "name.x == 1",
        'arguments.list["a"] == 1',
        "arguments.list[9] == 1",
        "1 in name",
        "name in 7",
        'glob(arguments, "*")',
        'has(name, "a")',
        "length(7) == 1",
        "-name == 1",
        "lower(arguments)",
    ],
)
def test_a_condition_that_cannot_be_decided_is_an_error_not_a_no(text: str) -> None:
    with pytest.raises(ConditionError):
        holds(text)


@pytest.mark.parametrize(
    "text",
    [
        '__import__("os")',
        'open("x")',
        "name.__class__ == 1",
        "().__class__",
        "[x for x in name]",
        "lambda: 1",
        "name.lower()",
        "(yield)",
        "1 + 1",
        "name * 9",
        "2 ** 99",
        "name if flag else id",
        'f"{name}"',
        "name := 1",
        "{1: 2}",
        "{1}",
        "*name",
        "glob(name)",
        "glob(*name)",
        "glob(text=name)",
        "glob",
        "exec(name)",
        "name is None",
        "b'x' == name",
        "1j == 1",
        'regex(name, "(a")',
        'regex(name, "(?=a)")',
        "_name == 1",
        "payload._x == 1",
        "name) or (True",
        "",
        "  ",
        "a, b",
        "name; 1",
        "name[1:2]",
        "...",
        "await name",
        "~1 == 1",
        "name == 'a' # x\n)or(True",
        "(" * 400 + "1" + ")" * 400,
        "not " * 600 + "flag",
        "1" * 5000,
        "name == \x00",
    ],
)
def test_what_is_no_condition_is_refused_when_it_is_read(text: str) -> None:
    with pytest.raises(ConfigError) as wrong:
        parse_condition(text, "guard.md", 7, 9)
    assert re.match(r"guard\.md:\d+:\d+: ", wrong.value.detail)


def test_the_place_of_a_mistake_is_the_one_in_the_file() -> None:
    for text, place in (
        ("open(1)", "3:7"),
        ("name == 1 + 1", "3:15"),
        ("name ==\n  open(1)", "4:3"),
    ):
        with pytest.raises(ConfigError) as wrong:
            parse_condition(text, "a.md", 3, 7)
        assert wrong.value.detail.startswith(f"a.md:{place}:")


def test_a_name_that_no_event_of_the_hook_has_is_refused_when_it_is_read() -> None:
    parse_condition('event == "turn.start" or name == "x"', events=("tool.pre", "turn.start"))
    with pytest.raises(ConfigError, match="did you mean `name`"):
        parse_condition('side_effect == "x" and nme == "y"', events=("tool.pre",))


WORDS = st.sampled_from(
    [
        "name",
        "arguments",
        "payload",
        "event",
        ".",
        "[",
        "]",
        "(",
        ")",
        '"x"',
        "==",
        "in",
        "not",
        "and",
        "or",
        "1",
        "<",
        ",",
        "glob",
        "regex",
        "has",
        "get",
        "True",
        "None",
        "-",
        "if",
        "else",
        "lambda",
        ":",
        "+",
        "\n",
        "#",
        "__class__",
    ]
)


@settings(max_examples=MANY, deadline=None)
@given(st.lists(WORDS, max_size=14).map(" ".join) | st.text(max_size=60))
def test_any_text_is_an_answer_or_one_of_two_errors(text: str) -> None:
    try:
        answer = holds(text)
    except (ConfigError, ConditionError):
        return
    assert isinstance(answer, bool)


@settings(max_examples=MANY, deadline=None)
@given(st.text(alphabet="ab*?\n.[<", max_size=12), st.text(alphabet="ab*?\n.[<", max_size=8))
def test_a_glob_means_what_its_signs_mean(text: str, pattern: str) -> None:
    spelled = "".join({"*": ".*", "?": "."}.get(sign) or re.escape(sign) for sign in pattern)
    assert matches_glob(text, pattern) is (re.fullmatch(spelled, text, re.DOTALL) is not None)


def test_no_pattern_takes_longer_than_its_text() -> None:
    # With an engine that backtracks, these would not come back.
    assert not compile_regex("(a+)+(b+)+$")("a" * 50_000 + "c")
    assert not compile_regex("(a|aa)*(a|aa)*z")("a" * 50_000)
    assert not matches_glob("a" * 50_000, "*" + "a*" * 40 + "b")
    for bad in ("a{1000}{1000}{1000}", "(", r"(a)\1", "x" * 3000):
        with pytest.raises(ValueError):
            compile_regex(bad)
    with pytest.raises(ConfigError):
        parse_condition("name == " + "1" * MAX_CHARACTERS)
