"""Calls that are expected, and texts."""

from __future__ import annotations

from typing import Any

import pytest

from ferrule.core.calls import encode_json
from ferrule.core.errors import ConfigError
from ferrule.evaluation.call_matching import find_call_problems, matches_call
from ferrule.evaluation.cases import ExpectedCall, ExpectedText
from ferrule.evaluation.evidence import Evidence, MadeCall, ToolFacts
from ferrule.evaluation.output_checks import (
    CheckFunctions,
    ask_function,
    find_text_problems,
)


def made(tool: str, outcome: str = "success", **arguments: Any) -> MadeCall:
    return MadeCall(tool, arguments, encode_json(arguments), outcome)


@pytest.mark.parametrize(
    ("expected", "call", "fits"),
    [
        (ExpectedCall("read_file"), made("read_file", path="a"), True),
        (ExpectedCall("read_*"), made("read_file"), True),
        (ExpectedCall("read_file"), made("list_files"), False),
        (ExpectedCall("read_file", {"path": "a"}), made("read_file", path="a"), True),
        (ExpectedCall("read_file", {"path": "a"}), made("read_file", path="a", line=1), False),
        (ExpectedCall("read_file", {"path": "a", "line": 1}), made("read_file", path="a"), False),
        (ExpectedCall("read_file", {}), made("read_file"), True),
        (ExpectedCall("f", {"n": 1}), made("f", n=1.0), True),
        (ExpectedCall("f", {"n": 1}), made("f", n=True), False),
        (ExpectedCall("f", {"n": "1"}), made("f", n=1), False),
        (ExpectedCall("f", include={"path": "a"}), made("f", path="a", line=1), True),
        (ExpectedCall("f", include={"path": "a"}), made("f", line=1), False),
        (ExpectedCall("f", match={"path": r"\.py$"}), made("f", path="a.py"), True),
        (ExpectedCall("f", match={"path": r"\.py$"}), made("f", path="a.pyc"), False),
        (ExpectedCall("f", match={"n": "^4"}), made("f", n=42), True),
        (ExpectedCall(either=(ExpectedCall("f"), ExpectedCall("g"))), made("g"), True),
        (ExpectedCall("f"), made("f", "permission_denied"), False),
        (ExpectedCall("f", succeeds=None), made("f", "permission_denied"), True),
        (ExpectedCall("f", succeeds=False), made("f", "timeout"), True),
        (ExpectedCall("f", succeeds=False), made("f"), False),
        (ExpectedCall("f", {"a": 1}), MadeCall("f", None, "{"), False),
    ],
)
def test_a_call_is_the_expected_one(expected: ExpectedCall, call: MadeCall, fits: bool) -> None:
    assert matches_call(expected, call) is fits


def test_defaults_may_be_left_out_or_given_and_paths_are_compared_by_what_they_name() -> None:
    tools = {"f": ToolFacts({"depth": 2}, frozenset({"path"}))}
    exact = ExpectedCall("f", {"path": "a/b"})
    assert matches_call(exact, made("f", path="./a/b/"), tools)
    assert matches_call(exact, made("f", path="a/b", depth=2), tools)
    assert not matches_call(exact, made("f", path="a/b", depth=3), tools)
    assert not matches_call(exact, made("f", path="a/c"), tools)
    assert matches_call(ExpectedCall("f", {"path": "a", "depth": 2}), made("f", path="a"), tools)


def test_calls_come_in_the_given_order_and_others_may_lie_between() -> None:
    wanted = [ExpectedCall("a"), ExpectedCall("b")]
    assert find_call_problems(wanted, [made("a"), made("x"), made("b")]) == []
    (problem,) = find_call_problems(wanted, [made("b"), made("a")])
    assert problem.startswith("expected b (it was made, but not in this place); made: b {}, a {}")
    assert find_call_problems(wanted, [made("b"), made("a")], order="any") == []
    surplus = find_call_problems(wanted, [made("a"), made("x"), made("b")], other_calls=False)
    assert surplus == ["unexpected call x {}"]
    assert find_call_problems([], [], other_calls=False) == []


def test_a_call_that_fits_two_expectations_goes_to_the_one_that_has_no_other() -> None:
    wanted = [ExpectedCall("read_*"), ExpectedCall("read_file")]
    assert find_call_problems(wanted, [made("read_file"), made("read_tail")], order="any") == []
    assert len(find_call_problems(wanted, [made("read_file")], order="any")) == 1


@pytest.mark.parametrize(
    ("text", "expected", "said"),
    [
        (" one\n", ExpectedText(equals="one"), ""),
        ("two", ExpectedText(equals="one"), "must be 'one', found 'two'"),
        ("one two", ExpectedText(contains=("one", "three")), "must contain 'three'"),
        ("one two", ExpectedText(lacks=("two",)), "must not contain 'two'"),
        ("a1", ExpectedText(regex=r"\d$"), ""),
        ("a", ExpectedText(regex=r"\d$"), "must match"),
        ('{"n": 1}', ExpectedText(schema={"type": "object", "required": ["n"]}), ""),
        ('{"n": "x"}', ExpectedText(schema={"properties": {"n": {"type": "integer"}}}), "`n`"),
        ("no", ExpectedText(schema={"type": "object"}), "must be JSON"),
        (None, ExpectedText(equals="x"), "is not there"),
        ("x", None, "must not be"),
        (None, None, ""),
    ],
)
def test_a_text_is_what_is_expected(
    text: str | None, expected: ExpectedText | None, said: str
) -> None:
    problems = find_text_problems(text, expected)
    assert (said in problems[0]) if said else problems == []


async def test_a_function_says_why_a_text_does_not_pass() -> None:
    async def is_long(text: str, evidence: Evidence) -> str:
        return "" if len(text) > 3 else f"{text} is short"

    def fails(text: str, evidence: Evidence) -> bool:
        if text != "x":
            raise AssertionError("no x")
        raise KeyError("y")

    assert await ask_function(is_long, "long", Evidence()) == ""
    assert await ask_function(is_long, "no", Evidence()) == "no is short"
    assert await ask_function(lambda text, _: text == "a", "a", Evidence()) == ""
    assert await ask_function(lambda text, _: text == "a", "b", Evidence()) != ""
    assert await ask_function(lambda *_: None, "b", Evidence()) == ""
    assert await ask_function(fails, "a", Evidence()) == "no x"
    assert "KeyError" in await ask_function(fails, "x", Evidence())


def test_code_that_a_file_names_is_loaded_only_from_modules_that_a_person_named(
    tmp_path: Any,
) -> None:
    ran = tmp_path / "ran"
    file = tmp_path / "checks.py"
    file.write_text(f"open({str(ran)!r}, 'w').close()\ndef good(text, evidence): return True\n")
    with pytest.raises(ConfigError, match="nobody said it may run"):
        CheckFunctions().load("checks:good")
    with pytest.raises(ConfigError, match="nobody said it may run"):
        CheckFunctions([str(file)]).load("os:system")
    assert not ran.exists()
    assert CheckFunctions([str(file)]).load("checks:good")("x", Evidence()) is True
    assert ran.exists()
    with pytest.raises(ConfigError, match="has no function `bad`"):
        CheckFunctions([str(file)]).load("checks:bad")
    assert CheckFunctions(None).load("posixpath:join")
