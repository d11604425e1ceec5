"""The two checkers of arguments agree: the one without a library and the one with pydantic."""

from __future__ import annotations

import inspect
import json
from enum import Enum
from typing import Any, Literal, Union

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferrule.tools.parameters import Parameter
from ferrule.tools.plain_schemas import NotPlain, PlainArguments, compile_type
from ferrule.tools.pydantic_schemas import PydanticArguments


class Colour(Enum):
    RED = "red"
    GREEN = "green"


class Size(Enum):
    ONE = 1
    TWO = 2


# Not among them: choices that are numbers. Pydantic takes `true` for a choice of 1; we do not (see
# below).
leaves: st.SearchStrategy[Any] = st.sampled_from(
    [str, int, float, bool, None, Any, Colour, Literal["a", "B"], Literal["x", None]]
)


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        inner.map(lambda t: list[t]),
        inner.map(lambda t: dict[str, t]),
        st.lists(inner, min_size=2, max_size=3).map(lambda types: Union[tuple(types)]),  # noqa: UP007  (made from data)
    )


types = st.recursive(leaves, nested, max_leaves=4)

texts = st.sampled_from(
    [
        "",
        "a",
        "A",
        "b",
        "red",
        "RED",
        " green",
        "1",
        "1.5",
        "true",
        "no",
        "[]",
        "[1]",
        '{"a": 1}',
        "{",
        "null",
    ]
)
numbers = st.sampled_from([0, 1, 2, -3, 2**63, 1.0, 1.5, -0.0, 1e300])
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", "1"]), inner, max_size=2)
    ),
    max_leaves=5,
)


def parameter(hint: Any, **fields: Any) -> Parameter:
    return Parameter("value", hint, hint, "", fields.pop("required", True), **fields)


def both(hint: Any) -> tuple[PlainArguments, PydanticArguments]:
    one = parameter(hint)
    return PlainArguments("t", [one]), PydanticArguments("t", [one])


@settings(max_examples=300, deadline=None)
@given(types, values)
def test_both_checkers_take_the_same_values_as_they_are(hint: Any, value: Any) -> None:
    plain, modelled = (checker.check({"value": value}) for checker in both(hint))
    as_it_is = not plain.problems and not plain.repairs
    strictly = not modelled.problems and not modelled.repairs
    assert as_it_is == strictly
    if as_it_is:
        assert plain.values == modelled.values


@settings(max_examples=300, deadline=None)
@given(types, values)
def test_a_value_is_taken_repaired_and_reported_or_refused_with_its_name(
    hint: Any, value: Any
) -> None:
    checked = PlainArguments("t", [parameter(hint)]).check({"value": value})
    if checked.problems:
        assert all("`value" in problem for problem in checked.problems)
        return
    # What came of a repair is a value that needs none.
    raw = json.loads(json.dumps(checked.values["value"], default=lambda member: member.value))
    again = PlainArguments("t", [parameter(hint)]).check({"value": raw})
    assert (again.problems, again.repairs) == ([], [])


@settings(max_examples=300, deadline=None)
@given(types, values)
def test_the_schema_says_what_is_taken_as_it_is(hint: Any, value: Any) -> None:
    plain = PlainArguments("t", [parameter(hint)])
    jsonschema_rs.meta.validate(plain.schema)
    checked = plain.check({"value": value})
    if not checked.problems and not checked.repairs:
        assert jsonschema_rs.validator_for(dict(plain.schema)).is_valid({"value": value})


@pytest.mark.parametrize(
    ("hint", "given_", "taken"),
    [
        (int, "5", 5),
        (int, 5.0, 5),
        (float, "1.5", 1.5),
        (bool, "True", True),
        (Literal["add", "remove"], "ADD", "add"),
        (Colour, "Red", Colour.RED),
        (list[int], "[1, 2]", [1, 2]),
        (dict[str, int], '{"a": 1}', {"a": 1}),
        (list[int], ["1"], [1]),
    ],
)
def test_what_models_often_get_wrong_is_repaired_and_said(
    hint: Any, given_: Any, taken: Any
) -> None:
    checked = PlainArguments("t", [parameter(hint)]).check({"value": given_})
    assert (checked.values["value"], checked.problems, len(checked.repairs)) == (taken, [], 1)
    assert "`value" in checked.repairs[0]


@pytest.mark.proves("tools.bad-arguments-named")
@pytest.mark.parametrize(
    ("hint", "given_", "said"),
    [
        (str, True, "`value` must be a string, found boolean true"),
        (int, "many", '`value` must be an integer, found string "many"'),
        (list[int], [1, "x"], '`value`[1] must be an integer, found string "x"'),
        (dict[str, bool], {"a": 1}, "`value`.a must be true or false, found integer 1"),
        (Literal["a", "b"], "c", '`value` must be one of "a", "b", found string "c"'),
        (bool, 1, "`value` must be true or false, found integer 1"),
        (int, True, "`value` must be an integer, found boolean true"),
    ],
)
def test_a_problem_says_where_what_was_expected_and_what_was_found(
    hint: Any, given_: Any, said: str
) -> None:
    assert PlainArguments("t", [parameter(hint)]).check({"value": given_}).problems == [said]


def test_a_long_wrong_value_is_shortened_in_the_problem() -> None:
    (problem,) = PlainArguments("t", [parameter(int)]).check({"value": "x" * 1000}).problems
    assert len(problem) < 150


def test_equal_choices_of_different_types_are_different() -> None:
    checker = PlainArguments("t", [parameter(Literal[1, True])])
    assert checker.check({"value": 1}).values["value"] is not True
    assert checker.check({"value": True}).values["value"] is True


def test_a_choice_whose_case_is_ambiguous_is_not_repaired() -> None:
    assert (
        PlainArguments("t", [parameter(Literal["a", "A", "b"])]).check({"value": "B"}).problems
        != []
    )


def test_a_truth_value_is_not_a_member_of_an_enumeration_of_numbers() -> None:
    assert PlainArguments("t", [parameter(Size)]).check({"value": True}).problems != []
    assert PlainArguments("t", [parameter(Size)]).check({"value": 1}).values["value"] is Size.ONE


class Unplain: ...


@pytest.mark.parametrize(
    "hint", [Unplain, set[str], tuple[int, ...], dict[int, str], bytes, inspect.Parameter]
)
def test_types_that_need_a_library_are_left_to_it(hint: Any) -> None:
    with pytest.raises(NotPlain):
        compile_type(hint)
