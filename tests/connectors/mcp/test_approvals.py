"""What a person approved, and what happens to servers that nobody approved, or that changed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from conftest_mcp import Place
from hypothesis import given
from hypothesis import strategies as st

from ferrule.connectors.mcp import McpServer, ServerApprovals
from ferrule.connectors.mcp.definitions import Manifest, ToolDefinition
from ferrule.connectors.text_cleaning import clean_text
from ferrule.core.errors import ConfigError

ECHO = ToolDefinition(
    {"name": "echo", "description": "Says it.", "inputSchema": {"type": "object"}}
)


@pytest.mark.parametrize("origin", ["person", "repository"])
async def test_a_server_that_nobody_approved_is_not_started(place: Place, origin: str) -> None:
    spec = place.plain(origin=origin)
    servers = await place.servers(spec)
    assert servers.tools == () and place.seen() == []
    assert any("nobody approved it" in one for one in servers.notices)


async def test_a_server_whose_tools_nobody_looked_at_offers_none(place: Place) -> None:
    spec = place.plain(origin="person")
    place.approvals.approve(spec)
    servers = await place.servers(spec)
    assert servers.tools == () and place.seen() == []
    assert any("its tools were not reviewed" in one for one in servers.notices)


async def test_an_approved_server_is_listed_without_being_started_and_starts_with_its_first_call(
    place: Place,
) -> None:
    spec = place.plain(origin="person")
    place.approvals.approve(spec, Manifest("2026-07-28", (_echo(place),)))
    servers = await place.servers(spec)
    assert [tool.name for tool in servers.tools] == ["plain__echo"]
    assert servers.status()[0].state == "known" and place.seen() == []
    assert (await place.session(servers).call("plain__echo", text="x")).data == "echo: x"
    assert servers.status()[0].state == "ready"


def _echo(place: Place) -> ToolDefinition:
    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    return ToolDefinition(
        {"name": "echo", "description": "Says what it was told.", "inputSchema": schema}
    )


@pytest.mark.parametrize(
    "change",
    [
        {"command": ("sh", "-c", "true")},
        {"env": {"NODE_ENV": "x"}},
        {"network": ("evil.example",)},
        {"readable": ("/root",)},
        {"folder": "/another"},
    ],
)
def test_any_change_of_what_was_approved_asks_again(
    tmp_path: Path, change: dict[str, object]
) -> None:
    book = ServerApprovals(tmp_path)
    spec = McpServer("git", command=("mcp-server-git",), origin="repository", folder="/work")
    book.approve(spec, Manifest(tools=(ECHO,)))
    assert book.get(spec).state == "approved"
    other = replace(spec, **change)  # pyright: ignore[reportArgumentType]  a test's words
    assert book.get(other).state in ("moved", "unknown")
    assert book.get(other).manifest is None


def test_the_difference_of_a_command_is_shown(tmp_path: Path) -> None:
    book = ServerApprovals(tmp_path)
    spec = McpServer("git", command=("mcp-server-git", "--repository", "."))
    book.approve(spec)
    diff = book.diff(replace(spec, command=("mcp-server-git", "--repository", "/")))
    assert "-program     mcp-server-git --repository ." in diff
    assert "+program     mcp-server-git --repository /" in diff


def test_an_approval_that_others_can_write_is_an_error(tmp_path: Path) -> None:
    book, spec = ServerApprovals(tmp_path), McpServer("git", command=("mcp-server-git",))
    book.approve(spec)
    (file,) = tmp_path.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o666)
    with pytest.raises(ConfigError, match="others can write it"):
        book.get(spec)
    file.chmod(0o600)
    written = file.read_text()
    assert '"version": 1\n' in written
    for text, why in (
        ("{", "it is damaged"),
        (written.replace('"version": 1\n', '"version": 2\n'), "it was written by a newer version"),
    ):
        file.write_text(text)
        with pytest.raises(ConfigError, match=why):
            book.get(spec)


def test_a_literal_secret_is_neither_shown_nor_kept_and_still_counts(tmp_path: Path) -> None:
    spec = McpServer(
        "docs", url="https://example.com/mcp", headers={"Authorization": "Bearer abc123"}
    )
    other = replace(spec, headers={"Authorization": "Bearer abc124"})
    book = ServerApprovals(tmp_path)
    book.approve(spec)
    assert "abc123" not in "".join(file.read_text() for file in tmp_path.iterdir())
    assert "abc123" not in book.diff(other)
    assert book.get(other).state == "moved"


texts = st.text(max_size=60)


def _defined(name: str, said: str) -> ToolDefinition:
    return ToolDefinition({"name": name, "description": said, "inputSchema": {"type": "object"}})


definitions = st.builds(_defined, st.sampled_from(["a", "b", "c"]), texts)


@pytest.mark.proves("mcp.rug-pull")
@given(before=definitions, after=definitions)
def test_definitions_have_one_hash_exactly_if_they_say_the_same(
    before: ToolDefinition, after: ToolDefinition
) -> None:
    assert (before.hash == after.hash) == (before.raw == after.raw)


@given(texts)
def test_cleaning_twice_is_cleaning_once(text: str) -> None:
    assert clean_text(clean_text(text)) == clean_text(text)
