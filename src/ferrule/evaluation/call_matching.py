"""Compare the calls that were made with those that are expected."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from typing import Any

from ferrule.core.calls import encode_json
from ferrule.tools.safe_patterns import compile_regex, matches_glob

from .cases import CallOrder, ExpectedCall
from .evidence import MadeCall, ToolFacts

_NO_FACTS = ToolFacts()


def matches_call(
    expected: ExpectedCall, call: MadeCall, tools: Mapping[str, ToolFacts] | None = None
) -> bool:
    """Return whether a call is the expected one.

    Args:
        expected: The expected call.
        call: The call that was made.
        tools: Facts about tools, by name.
    """
    if expected.either:
        return any(matches_call(one, call, tools) for one in expected.either)
    if not matches_glob(call.tool, expected.tool):
        return False
    if expected.succeeds is not None and expected.succeeds != (call.outcome == "success"):
        return False
    facts = (tools or {}).get(call.tool, _NO_FACTS)
    return _matches_arguments(expected, call.arguments, facts)


def _matches_arguments(
    expected: ExpectedCall, given: Mapping[str, Any] | None, facts: ToolFacts
) -> bool:
    if given is None:
        return not (expected.arguments is not None or expected.include or expected.match)
    included = all(
        _is_same(given.get(name, facts.defaults.get(name)), value, name in facts.paths)
        for name, value in expected.include.items()
    )
    matched = all(
        compile_regex(pattern)(_to_text(given.get(name, facts.defaults.get(name))))
        for name, pattern in expected.match.items()
    )
    if expected.arguments is None:
        return included and matched
    exact = all(
        _is_same(
            given.get(name, facts.defaults.get(name)),
            expected.arguments.get(name, facts.defaults.get(name)),
            name in facts.paths,
        )
        and (name in facts.defaults or (name in given) == (name in expected.arguments))
        for name in {*given, *expected.arguments}
    )
    return exact and included and matched


def _is_same(given: Any, wanted: Any, is_path: bool) -> bool:
    """Whether two values are the same JSON; paths, whether they name the same."""
    if is_path and isinstance(given, str) and isinstance(wanted, str):
        return posixpath.normpath(given) == posixpath.normpath(wanted)
    if isinstance(given, bool) is not isinstance(wanted, bool):
        return False
    return bool(given == wanted)


def _to_text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else encode_json(value)


def find_call_problems(
    expected: Sequence[ExpectedCall],
    made: Sequence[MadeCall],
    *,
    order: CallOrder = "given",
    other_calls: bool = True,
    tools: Mapping[str, ToolFacts] | None = None,
) -> list[str]:
    """Return a sentence for each expected call that is missing, and for each that is too many."""
    possible = [
        [at for at, call in enumerate(made) if matches_call(one, call, tools)] for one in expected
    ]
    found = _find_in_order(possible) if order == "given" else _find_in_any_order(possible)
    problems = [
        f"expected {describe_expected(one)}" + _explain_missing(one, possible[number])
        for number, one in enumerate(expected)
        if number not in found
    ]
    if problems:
        problems[-1] += f"; made: {describe_calls(made)}"
    if not other_calls:
        used = set(found.values())
        surplus = [call for at, call in enumerate(made) if at not in used]
        problems += [f"unexpected call {call}" for call in surplus]
    return problems


def _explain_missing(expected: ExpectedCall, possible: Sequence[int]) -> str:
    return " (it was made, but not in this place)" if possible else ""


def _find_in_order(possible: Sequence[Sequence[int]]) -> dict[int, int]:
    """Return the place of each expected call, each behind the one before."""
    found: dict[int, int] = {}
    last = -1
    for number, places in enumerate(possible):
        later = [place for place in places if place > last]
        if later:
            last = found[number] = later[0]
    return found


def _find_in_any_order(possible: Sequence[Sequence[int]]) -> dict[int, int]:
    """Return a place of its own for as many expected calls as there can be.

    A bipartite matching by augmenting paths: a call that fits two expectations is given to the one
    that has no other.
    """
    owner: dict[int, int] = {}

    def assign(number: int, tried: set[int]) -> bool:
        for place in possible[number]:
            if place in tried:
                continue
            tried.add(place)
            if place not in owner or assign(owner[place], tried):
                owner[place] = number
                return True
        return False

    for number in range(len(possible)):
        assign(number, set())
    return {number: place for place, number in owner.items()}


def describe_expected(expected: ExpectedCall) -> str:
    """Return an expected call as a person would write it."""
    if expected.either:
        return " or ".join(describe_expected(one) for one in expected.either)
    parts = [expected.tool]
    if expected.arguments is not None:
        parts.append(encode_json(expected.arguments))
    if expected.include:
        parts.append(f"including {encode_json(expected.include)}")
    if expected.match:
        parts.append(f"matching {encode_json(expected.match)}")
    if expected.succeeds is False:
        parts.append("that fails")
    return " ".join(parts)


def describe_calls(made: Sequence[MadeCall]) -> str:
    """Return the calls that were made, shortened."""
    if not made:
        return "none"
    shown = [_describe_call(call) for call in made[:8]]
    more = f", and {len(made) - 8} more" if len(made) > 8 else ""
    return ", ".join(shown) + more


def _describe_call(call: MadeCall) -> str:
    outcome = "" if call.outcome == "success" else f" ({call.outcome})"
    return f"{str(call)[:160]}{outcome}"
