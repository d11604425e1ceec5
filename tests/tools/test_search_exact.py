"""What is exactly a tool's name, summary or description finds that tool first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ferrule.tools.define import define_tool
from ferrule.tools.definition import Tool
from ferrule.tools.search.index import ToolIndex


def make_tool(name: str, description: str) -> Tool:
    return define_tool(name, description, parameters={}, handler=lambda: "")


CATALOG = [
    make_tool("issues_create", "Create an issue\nAny user with read access can do that."),
    make_tool("issues_create_comment", "Create an issue comment. Create an issue, create, issue."),
    make_tool("createIssueType", "Create issue type for an issue: create an issue create issue"),
    make_tool("list_pulls", "List pull requests. Draft ones, too, create an issue."),
    make_tool("pulls", "Pull requests of a list: list pull requests, list pull requests."),
    replace(make_tool("add", "Keep a note."), namespace="notes"),
]


@pytest.mark.parametrize("strategy", ["default", "bm25", "hybrid"])
@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("Create an issue", "issues_create"),
        ("create an  issue!", "issues_create"),
        ("List pull requests", "list_pulls"),
        ("create issue type", "createIssueType"),
        ("issues_create", "issues_create"),
        ("pulls", "pulls"),
        ("add", "notes::add"),
        ("notes::add", "notes::add"),
        ("Keep a note", "notes::add"),
    ],
)
def test_an_exact_name_summary_or_description_is_first(
    strategy: str, query: str, name: str
) -> None:
    index = ToolIndex(CATALOG[:2])
    index.prepare(strategy)
    index.add(*CATALOG[2:])
    assert index.search(query, strategy)[0].name == name


def test_of_two_with_the_same_summary_both_come_before_the_rest() -> None:
    tools = [*CATALOG, make_tool("other_create", "Create an issue")]
    found = [hit.name for hit in ToolIndex(tools).search("create an issue")]
    assert set(found[:2]) == {"issues_create", "other_create"}


def test_words_that_match_nothing_find_nothing() -> None:
    assert ToolIndex(CATALOG).search("zzz") == []
    assert ToolIndex(CATALOG).search("!!!") == []
