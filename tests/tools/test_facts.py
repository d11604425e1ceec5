"""Facts of a call: taken once, by its id, and no more of them than anybody needs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.core.identity import Identity
from ferrule.tools.context import Context
from ferrule.tools.result_facts import KEPT, leave, take

WHO = Identity("t", "u", "s", "r")


@pytest.mark.proves("tool.facts")
def test_facts_are_taken_once_by_the_id_of_their_call() -> None:
    first = Context(WHO, "a")
    second = Context(WHO, "b", first.memory)
    leave(first, {"exit_code": 1})
    leave(second, {"exit_code": 2})
    assert take(first, "b") == {"exit_code": 2}
    assert take(first, "a") == {"exit_code": 1}
    assert take(first, "a") is None
    assert take(Context(WHO, "c"), "a") is None


@pytest.mark.proves("tool.facts")
@given(st.lists(st.sampled_from("abcdefgh"), max_size=20), st.integers(0, 3 * KEPT))
def test_the_newest_facts_are_kept_and_their_number_is_bounded(
    names: list[str], others: int
) -> None:
    context = Context(WHO, "")
    for name in [*names, *map(str, range(others)), "last"]:
        context.call_id = name
        leave(context, {"of": name})
    (kept,) = context.memory.values()
    assert len(kept) == min(KEPT, len(set(names)) + others + 1)
    assert take(context, "last") == {"of": "last"}
