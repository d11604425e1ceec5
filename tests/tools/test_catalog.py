"""The set of tools of a run."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule import Catalog, Tool, ToolDefinitionError, tool


def named(name: str, **options: Any) -> Tool:
    def act() -> str:
        """Does something."""
        return name

    return tool(name=name, **options)(act)


@pytest.mark.proves("catalog.duplicate-is-an-error")
def test_two_tools_of_one_name_are_an_error_that_names_it() -> None:
    catalog = Catalog([named("look")])
    with pytest.raises(ToolDefinitionError, match="`look`"):
        catalog.add(named("other"), named("look"))
    assert [item.name for item in catalog] == ["look"], "adding is all or nothing"


@pytest.mark.proves("catalog.duplicate-is-an-error")
def test_the_same_name_in_another_namespace_is_another_tool() -> None:
    catalog = Catalog([named("look"), named("look", namespace="web")])
    assert [item.full_name for item in catalog] == ["look", "web::look"]


@given(st.permutations(["delta", "alpha", "web::x", "charlie", "b.c", "b_c"]))
@pytest.mark.proves("catalog.sorted")
def test_the_order_of_registration_changes_nothing_in_requests(order: list[str]) -> None:
    made = [
        named(n.split("::")[-1], namespace=n.split("::")[0] if "::" in n else "") for n in order
    ]
    catalog = Catalog(made)
    assert [item.full_name for item in catalog] == sorted(order)
    assert list(catalog.api_names()) == sorted(order)


def test_a_plain_function_becomes_a_tool() -> None:
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    catalog = Catalog([add])
    found = catalog.get("add")
    assert found is not None and found(a=1, b=2) == 3
    assert "add" in catalog and len(catalog) == 1


@pytest.mark.proves("names.one-to-one")
def test_a_tool_is_found_by_its_full_name_and_by_its_api_name() -> None:
    catalog = Catalog([named("read", namespace="fs"), named("a.b"), named("a_b")])
    for item in catalog:
        assert catalog.get(item.full_name) is item
        assert catalog.get(catalog.api_name(item)) is item
    assert catalog.get("missing") is None


@pytest.mark.proves("names.one-to-one")
def test_a_api_name_asked_for_early_does_not_hide_a_tool_added_later() -> None:
    catalog = Catalog([named("first")])
    assert catalog.api_names() == {"first": "first"}
    catalog.add(named("second", namespace="x"))
    assert catalog.get("x__second") is catalog.get("x::second") is not None


def test_threads_that_add_at_once_lose_nothing() -> None:
    catalog = Catalog()
    ready = threading.Barrier(4)
    seen: list[int] = []

    def add(part: int) -> None:
        ready.wait(10)
        for number in range(100):
            catalog.add(named(f"t{part}.{number}"))
            seen.append(len(list(catalog)))
            assert catalog.get(f"t{part}_{number}") is not None

    threads = [threading.Thread(target=add, args=(part,)) for part in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(catalog) == 400
    assert len(seen) == 400, "a thread failed"
    assert len(catalog.api_names()) == 400


def test_of_two_threads_with_one_name_exactly_one_wins() -> None:
    catalog = Catalog()
    ready = threading.Barrier(2)
    refused: list[str] = []

    def add() -> None:
        ready.wait(10)
        for number in range(50):
            try:
                catalog.add(named(f"same{number}"))
            except ToolDefinitionError as error:
                refused.append(error.detail)

    threads = [threading.Thread(target=add) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert (len(catalog), len(refused)) == (50, 50)


def test_a_reader_keeps_the_tools_it_began_with() -> None:
    catalog = Catalog([named("a"), named("b")])
    reading = iter(catalog)
    assert next(reading).name == "a"
    catalog.add(named("aa"))
    assert [item.name for item in reading] == ["b"]
