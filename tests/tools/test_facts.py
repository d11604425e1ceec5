"""Facts of a call: taken once, by its id, and no more of them than anybody needs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ferrule.core.identity import Identity
from ferrule.tools.context import Context
from ferrule.tools.result_facts import store_facts, take_facts

MAX_CALLS = 64

WHO = Identity("t", "u", "s", "r")


def test_facts_are_taken_once_by_the_id_of_their_call() -> None:
    first = Context(WHO, "a")
    second = Context(WHO, "b", first.memory)
    store_facts(first, {"exit_code": 1})
    store_facts(second, {"exit_code": 2})
    assert take_facts(first, "b") == {"exit_code": 2}
    assert take_facts(first, "a") == {"exit_code": 1}
    assert take_facts(first, "a") is None
    assert take_facts(Context(WHO, "c"), "a") is None


@given(st.lists(st.sampled_from("abcdefgh"), max_size=20), st.integers(0, 3 * MAX_CALLS))
def test_the_newest_facts_are_kept_and_their_number_is_bounded(
    names: list[str], others: int
) -> None:
    context = Context(WHO, "")
    for name in [*names, *map(str, range(others)), "last"]:
        context.call_id = name
        store_facts(context, {"of": name})
    (kept,) = context.memory.values()
    assert len(kept) == min(MAX_CALLS, len(set(names)) + others + 1)
    assert take_facts(context, "last") == {"of": "last"}
