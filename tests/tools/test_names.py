"""Names in requests: what providers accept, one to one."""

from __future__ import annotations

import re
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.core.errors import ToolDefinitionError
from ferrule.tools.names import check_name, make_api_names

ACCEPTED = re.compile(r"[A-Za-z0-9_-]{1,64}")

words = st.text("ab._-", min_size=1, max_size=6) | st.text(min_size=1, max_size=80)
names = st.one_of(words, st.tuples(words, words).map("::".join))


@given(st.sets(names, min_size=1, max_size=12))
@pytest.mark.proves("names.one-to-one", "names.accepted-by-providers")
def test_api_names_are_accepted_and_one_to_one(full: set[str]) -> None:
    model_client = make_api_names(full)
    assert model_client.keys() == full
    assert len(set(model_client.values())) == len(full)
    assert all(ACCEPTED.fullmatch(name) for name in model_client.values())


@given(st.lists(names, min_size=1, max_size=8, unique=True), st.randoms(use_true_random=False))
@pytest.mark.proves("names.order-does-not-matter")
def test_the_order_of_the_tools_changes_no_name(full: list[str], random: object) -> None:
    shuffled = list(full)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert make_api_names(full) == make_api_names(shuffled)


@given(st.sets(st.from_regex(ACCEPTED, fullmatch=True), min_size=1, max_size=8), names)
def test_a_name_that_providers_accept_stays_as_it_is(full: set[str], other: str) -> None:
    assert {
        name: model_client
        for name, model_client in make_api_names({*full, other}).items()
        if name in full
    } == {n: n for n in full}


@pytest.mark.proves("names.namespace")
def test_a_namespace_and_a_server_are_joined_by_two_underscores() -> None:
    assert make_api_names(["github::create_issue"]) == {
        "github::create_issue": "github__create_issue"
    }


@pytest.mark.proves("names.one-to-one")
def test_a_tool_that_imitates_the_hash_of_another_does_not_get_its_name() -> None:
    imitation = f"a_b_{sha256(b'a.b').hexdigest()[:8]}"
    model_client = make_api_names(["a.b", "a_b", imitation])
    assert model_client["a_b"] == "a_b"
    assert model_client[imitation] == imitation
    assert model_client["a.b"] not in ("a_b", imitation)


@pytest.mark.proves("names.accepted-by-providers")
def test_a_long_name_is_cut_and_stays_unique() -> None:
    one, other = "n" * 100 + "1", "n" * 100 + "2"
    model_client = make_api_names([one, other])
    assert len(set(model_client.values())) == 2
    assert all(len(name) == 64 for name in model_client.values())


@pytest.mark.parametrize("name", ["", "9lives", "a b", "a/b", "a::b", "ä", "x" * 129, "a\nb", "-x"])
def test_a_name_that_cannot_be_used_is_refused(name: str) -> None:
    with pytest.raises(ToolDefinitionError):
        check_name(name)


@pytest.mark.parametrize("name", ["a", "_a", "read_file", "a.b-c", "x" * 128])
def test_a_usable_name_passes(name: str) -> None:
    check_name(name)
