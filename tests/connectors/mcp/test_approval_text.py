"""What a person reads before they approve a server: all that counts, in lines, without JSON."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ferrule.connectors.mcp.approval_text import describe_facts, describe_manifest
from ferrule.connectors.mcp.definitions import Manifest, ToolDefinition
from ferrule.connectors.mcp.spec import McpServer


def describe(**changes: Any) -> list[str]:
    return describe_facts(McpServer("docs", **changes).approval_facts())


def test_a_started_server_is_described_by_what_it_gets() -> None:
    assert describe(
        command=("docs server", "--root", "."),
        env={"ZONE": "UTC", "TOKEN": "${DOCS_TOKEN}", "API_KEY": "abc"},
        network=("a.example", "b.example:443"),
        readable=("/srv/docs",),
        cwd="sub",
        env_file=".env.docs",
    ) == [
        "program     'docs server' --root .",
        "works in    sub",
        "workspace   may be read and written",
        "reads       /srv/docs",
        "hosts       a.example",
        "hosts       b.example:443",
        "env file    .env.docs",
        "variables   API_KEY = (3 characters)",
        "variables   TOKEN = ${DOCS_TOKEN}",
        "variables   ZONE = UTC",
    ]


def test_what_a_server_does_not_get_is_said() -> None:
    lines = describe(command=("docs",), workspace=False)
    assert "hosts       none" in lines and "workspace   is not shown" in lines


def test_a_server_with_an_address_is_described_without_a_program() -> None:
    lines = describe(url="https://docs.example/mcp", headers={"Authorization": "Bearer x"})
    assert lines == [
        "address     https://docs.example/mcp",
        "transport   http",
        "headers     Authorization = (8 characters)",
    ]


def test_a_fact_without_words_of_its_own_is_shown_as_it_is() -> None:
    facts = {"command": ["docs"], "workspace": True, "later": {"a": 1}}
    assert 'later       {"a": 1}' in describe_facts(facts)


def test_a_tool_is_described_by_what_a_model_would_read() -> None:
    schema = {
        "type": "object",
        "properties": {
            "text": {"type": "string", "description": "What to say.\nIn any language."},
            "mode": {"enum": ["loud", "low"], "default": "low"},
            "parts": {"type": "array", "items": {"type": "integer", "minimum": 1}},
        },
        "required": ["text"],
    }
    raw = {"name": "say", "description": "Say it.", "inputSchema": schema}
    made = Manifest("2026-07-28", (ToolDefinition({**raw, "annotations": {"x": True}}),))
    assert describe_manifest(made) == [
        "resources   no",
        "prompts     no",
        "",
        "tool say",
        "  Say it.",
        "  takes object",
        "    text string (required)",
        "        What to say.",
        "        In any language.",
        '    mode of any type one of ["loud", "low"] default "low"',
        "    parts array",
        "      each item integer",
        '          also {"minimum": 1}',
        '  annotations: {"x": true}',
    ]


TEXTS = st.text("abc \n", max_size=8)
SCHEMAS: st.SearchStrategy[Any] = st.recursive(
    st.fixed_dictionaries({}, optional={"type": st.just("string"), "description": TEXTS}),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "type": TEXTS,
            "description": TEXTS,
            "properties": st.dictionaries(TEXTS, inner, max_size=3),
            "required": st.lists(TEXTS, max_size=2),
            "items": inner,
            "anyOf": st.lists(inner, max_size=2),
            "enum": st.lists(TEXTS, max_size=2),
            "title": TEXTS,
        },
    ),
    max_leaves=6,
)


def list_words(value: Any) -> set[str]:
    if isinstance(value, str):
        return set(value.split())
    pairs: Any = value.items() if isinstance(value, dict) else enumerate(value)
    found: set[str] = set()
    for key, one in pairs:
        found |= list_words(str(key) if isinstance(value, dict) else "") | list_words(one)
    return found


@given(schema=SCHEMAS, title=TEXTS)
def test_no_word_of_a_definition_is_left_out_and_none_begins_a_line_of_ours(
    schema: dict[str, Any], title: str
) -> None:
    raw = {"name": "say", "title": title, "description": "d", "inputSchema": schema}
    lines = describe_manifest(Manifest("", (ToolDefinition(raw),)))
    ours = {"properties", "items", "required", "enum", "type", "description"}
    text = "\n".join(lines).replace("\\n", " ")
    assert all(word in text for word in list_words(schema) - ours | set(title.split()))
    heads = [line for line in lines if line and not line.startswith(" ")]
    assert heads == ["resources   no", "prompts     no", "tool say"]
