"""Finding tools: the strategies with their exact numbers, and what the ranking of our own does
better.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule import ConfigError, Tool, define_tool
from ferrule.tools.search.bm25 import Bm25
from ferrule.tools.search.default_ranking import value_kinds
from ferrule.tools.search.index import ToolIndex, read_names


def made(name: str, description: str = "-", **parameters: str) -> Tool:
    fields: dict[str, Any] = {
        key: {"type": "string", "description": text} for key, text in parameters.items()
    }
    return define_tool(name, description, parameters=fields, handler=lambda **_: None)


def names(index: ToolIndex, query: str, strategy: Any = "default") -> list[str]:
    return [hit.name for hit in index.search(query, strategy)]


COMMANDS = ToolIndex(
    [
        made("run_command", "Execute a shell process"),
        made("read_command_output", "Read process output"),
    ]
)
MANY = ToolIndex(
    [
        made("email_dispatch", "Dispatch an electronic message.", recipient="Who gets it."),
        made("sendInvoice", "Send an invoice to a customer.", customer="The customer's id."),
        made("getHTTPStatus", "Tell the status code of a web page.", url="Address of the page."),
        made(
            "convert_units", "Convert a value between units of length.", unit="metre, foot or inch"
        ),
        made(
            "weather.forecast",
            "Forecast for a city.",
            city="Name of the city.",
            days="How many days.",
        ),
        made("delete_file", "Remove a file for ever.", path="Path of the file."),
        made("list_files", "List the files of a folder.", path="Path of the folder."),
    ]
)


@pytest.mark.proves("search.hybrid-numbers")
def test_the_numbers_of_the_worked_example_come_out_exactly() -> None:
    alone = COMMANDS.search("command", "bm25")
    assert [(hit.name, round(hit.score, 4)) for hit in alone] == [
        ("read_command_output", 0.1823),
        ("run_command", 0.1823),
    ]
    fused = COMMANDS.search("command", "hybrid")
    assert [(hit.name, round(hit.score, 5)) for hit in fused] == [
        ("run_command", 0.04892),
        ("read_command_output", 0.04865),
    ]


@pytest.mark.proves("search.bm25")
def test_bm25_knows_words_as_they_are_written_and_drops_what_has_none() -> None:
    index = ToolIndex(
        [made("open_file", "Open something"), made("close_file", "Close it"), made("now", "Time")]
    )
    assert names(index, "open file", "bm25") == ["open_file", "close_file"]
    # The spelling of another case is the tool's exact name, which is first in every strategy.
    assert names(index, "openFile", "bm25") == ["open_file"]
    assert names(index, "", "bm25") == []


def test_an_expression_ranks_by_matches_then_by_name_whatever_the_case() -> None:
    assert names(COMMANDS, "READ|output", "regex") == ["read_command_output"]
    assert names(COMMANDS, "command", "regex") == ["read_command_output", "run_command"]
    assert [hit.score for hit in COMMANDS.search("o", "regex")] == [4.0, 2.0]


@pytest.mark.parametrize("query", ["(a", "(?=a)a", r"(a)\1", "a" * 201, "a{1000}{1000}{1000}"])
def test_an_expression_that_cannot_be_used_is_refused_with_its_reason(query: str) -> None:
    with pytest.raises(ValueError, match=r"expression"):
        COMMANDS.search(query, "regex")


def test_an_expression_looks_at_texts_that_hold_half_a_character() -> None:
    assert names(ToolIndex([made("odd", "half \ud83d of one")]), "of", "regex") == ["odd"]


def test_no_expression_can_make_a_search_hang() -> None:
    long = ToolIndex([made("t", "a" * 20_000)])
    assert names(long, "(a|aa)*(a|aa)*z", "regex") == []


@pytest.mark.proves("search.default-ranking")
@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("dispatch a mail to Ada", "email_dispatch"),
        ("which HTTP status has this page", "getHTTPStatus"),
        ("sending invoices", "sendInvoice"),
        ("the weather in Ghent tomorrow", "weather.forecast"),
        ("how long is an inch in metres", "convert_units"),
        ("erase notes.txt", "delete_file"),
        ("what files are in src", "list_files"),
        ("conversion", "convert_units"),
    ],
)
def test_requests_in_other_words_find_the_tool(query: str, first: str) -> None:
    assert names(MANY, query)[0] == first


PEOPLE = ToolIndex(
    [
        made("create_customer", "Creates a new customer."),
        made("remove_customer", "Permanently removes a customer."),
        made("list_pull_requests", "Lists pull requests."),
        made("merge_branch", "Merges a branch into another one."),
        made("rename_branch", "Gives a branch a new name."),
    ]
)


@pytest.mark.proves("search.default-ranking")
@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("get rid of a shopper", "remove_customer"),
        ("show me the open PRs", "list_pull_requests"),
        ("register a buyer", "create_customer"),
    ],
)
def test_words_that_mean_the_same_find_the_tool(query: str, first: str) -> None:
    assert names(PEOPLE, query)[0] == first


@pytest.mark.proves("search.default-ranking")
def test_the_word_itself_counts_more_than_one_that_means_the_same() -> None:
    index = ToolIndex([made("erase_note", "Erase a note."), made("delete_note", "Delete a note.")])
    assert names(index, "delete note") == ["delete_note", "erase_note"]
    assert names(index, "erase note") == ["erase_note", "delete_note"]


def test_each_member_of_a_group_of_synonyms_is_one_to_three_words_and_stands_once() -> None:
    text = (files("ferrule.tools.search") / "synonyms.txt").read_text(encoding="utf-8")
    groups = [line.split(", ") for line in text.splitlines() if line and not line.startswith("#")]
    assert len(groups) == len({frozenset(group) for group in groups})
    for group in groups:
        assert len(set(group)) == len(group) >= 2, group
        assert all(1 <= len(member.split()) <= 3 for member in group), group
        assert all(member == member.lower().strip() for member in group), group


@pytest.mark.proves("search.default-ranking")
def test_what_a_value_looks_like_says_what_the_tool_must_take() -> None:
    index = ToolIndex(
        [made("inspect", "Look at it.", item="An email to look at."), made("probe", "Look at it.")]
    )
    assert names(index, "ada@example.org") == ["inspect"]
    assert value_kinds("from 2026-11-22 at 5pm, see notes.txt") == ["dat", "tim", "fil"]


@pytest.mark.proves("search.default-ranking")
def test_words_of_asking_count_less_than_what_is_asked_for() -> None:
    index = ToolIndex([made("help_me", "Give help."), made("brew_coffee", "Make a cup.")])
    assert names(index, "Please help me, I would like some coffee")[0] == "brew_coffee"


@pytest.mark.parametrize(
    "answer",
    [
        ["run_command"],
        [{"tool_name": "run_command"}],
        [{"name": "run_command"}],
        {"tool_names": ["run_command", "run_command"]},
        {"ranked": [{"name": "run_command", "score": 1}]},
        '{"tool_names": ["run_command"]}',
        ["there_is_no_such_tool", "run_command"],
    ],
)
def test_a_strategy_of_ones_own_may_answer_in_many_shapes(answer: object) -> None:
    def strategy(query: str, tools: Sequence[Tool]) -> object:
        assert [tool.name for tool in tools] == ["read_command_output", "run_command"]
        return answer

    assert names(COMMANDS, "anything", strategy) == ["run_command"]


@pytest.mark.parametrize("answer", [None, 7, "not json", {"other": []}, [1]])
def test_what_is_no_answer_is_an_error(answer: object) -> None:
    with pytest.raises(ConfigError, match="names of tools"):
        read_names(answer)


def test_a_strategy_there_is_not_is_named_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="no search strategy `bm52`"):
        COMMANDS.search("x", "bm52")


@given(st.text(max_size=60), st.sampled_from(["default", "bm25", "hybrid"]))
def test_a_search_gives_the_same_whatever_the_order_of_the_tools(query: str, strategy: str) -> None:
    turned = ToolIndex([*reversed(MANY.tools)])
    assert turned.search(query, strategy) == MANY.search(query, strategy)
    assert len(set(names(MANY, query, strategy))) == len(MANY.search(query, strategy))


@given(
    st.lists(st.lists(st.sampled_from("abcdef"), max_size=8), max_size=8),
    st.lists(st.sampled_from("abcdef")),
)
def test_a_document_without_a_word_of_the_query_has_no_score(
    documents: list[list[str]], query: list[str]
) -> None:
    scores = Bm25(documents).scores(query)
    for number, words in enumerate(documents):
        assert (scores.get(number, 0.0) > 0) == bool(set(words) & set(query))
