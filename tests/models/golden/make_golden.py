"""Writes the golden files of the model clients whose answers go back byte for byte: answers that the
official SDKs' own types took.

    python tests/models/golden/make_golden.py     # needs `anthropic`, `openai` and `google-genai`

Every case becomes `WIRE/CASE.json`, the answer in one piece, and `WIRE/CASE.sse`, the same answer
as it is streamed. Both are spelled as the cases of this file say (compact, or with escapes and
blanks, as servers do), after the SDK's types have validated them whole. The tests of the golden
files need no SDK.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent

USAGE = {
    "input_tokens": 12,
    "cache_read_input_tokens": 2048,
    "cache_creation_input_tokens": 256,
    "output_tokens": 77,
}
DIRECT = {"type": "direct"}


def text(words: str, *citations: dict[str, Any]) -> dict[str, Any]:
    return {"type": "text", "text": words, "citations": list(citations) or None}


def used(id: str, name: str, given: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": given, **more}


def served(id: str, name: str, given: dict[str, Any]) -> dict[str, Any]:
    return {"type": "server_tool_use", "id": id, "name": name, "input": given, "caller": DIRECT}


THINKING = {
    "type": "thinking",
    "thinking": 'First ä,\nthen "b". ☃',
    "signature": "EqQBCkYIBxgCKkD+/Zm9vYmFy==",
}
REDACTED = {
    "type": "redacted_thinking",
    "data": "EmwKAhgBEgy3va3pzix/LafPsn4aDFIT2Xlxh0L5L8rLVyIwxtE3rAFBa8cr3qpPkNRj2YfWXGmKDxH4mPnZ5sQ7",
}
PAGE = {
    "type": "web_search_result",
    "title": "Ghent",
    "url": "https://example.com/g",
    "encrypted_content": "EqgfCioIARgBIiQ3YTAwMjY1Mg==",
    "page_age": "2 days ago",
}
CITED = {
    "type": "web_search_result_location",
    "cited_text": "It rains…",
    "encrypted_index": "Eo8BCioIAhgBIiQyYjQ0==",
    "title": "Ghent",
    "url": "https://example.com/g",
}

MESSAGES: dict[str, tuple[list[dict[str, Any]], str, dict[str, Any]]] = {
    "text": ([text("Drei ☃ 🙂\n\nEnde.")], "end_turn", {}),
    "tools": (
        [
            text("Let me add."),
            used("toolu_01A", "math_add", {"a": 1, "b": 2}),
            used("toolu_01B", "math_add", {"a": 'ä"', "b": [None, 1.5]}, caller=DIRECT),
        ],
        "tool_use",
        {},
    ),
    "thinking": (
        [THINKING, REDACTED, used("toolu_01A", "math_add", {"a": 1, "b": 2})],
        "tool_use",
        {},
    ),
    "interleaved": (
        [
            THINKING,
            text("So:"),
            {**THINKING, "thinking": "More."},
            used("toolu_01A", "math_add", {}),
        ],
        "tool_use",
        {},
    ),
    "cut": ([THINKING, text("so f")], "max_tokens", {}),
    "refusal": ([text("I will")], "refusal", {}),
    "web_search": (
        [
            text("I search."),
            served("srvtoolu_1", "web_search", {"query": "weather ghent"}),
            {
                "type": "web_search_tool_result",
                "tool_use_id": "srvtoolu_1",
                "content": [PAGE],
                "caller": DIRECT,
            },
            text("It rains.", CITED),
        ],
        "end_turn",
        {},
    ),
    "web_search_error": (
        [
            served("srvtoolu_1", "web_search", {"query": "x"}),
            {
                "type": "web_search_tool_result",
                "tool_use_id": "srvtoolu_1",
                "content": {
                    "type": "web_search_tool_result_error",
                    "error_code": "max_uses_exceeded",
                },
            },
            text("No."),
        ],
        "end_turn",
        {},
    ),
    "tool_search": (
        [
            served("srvtoolu_2", "tool_search_tool_bm25", {"query": "add numbers"}),
            {
                "type": "tool_search_tool_result",
                "tool_use_id": "srvtoolu_2",
                "content": {
                    "type": "tool_search_tool_search_result",
                    "tool_references": [{"type": "tool_reference", "tool_name": "math_add"}],
                },
            },
            used("toolu_01A", "math_add", {"a": 1, "b": 2}),
        ],
        "tool_use",
        {},
    ),
    "tool_search_error": (
        [
            served("srvtoolu_2", "tool_search_tool_regex", {"pattern": "("}),
            {
                "type": "tool_search_tool_result",
                "tool_use_id": "srvtoolu_2",
                "content": {
                    "type": "tool_search_tool_result_error",
                    "error_code": "invalid_tool_input",
                    "error_message": "bad pattern",
                },
            },
            text("?"),
        ],
        "end_turn",
        {},
    ),
    "code_execution": (
        [
            served("srvtoolu_3", "bash_code_execution", {"command": "ls"}),
            {
                "type": "bash_code_execution_tool_result",
                "tool_use_id": "srvtoolu_3",
                "content": {
                    "type": "bash_code_execution_result",
                    "stdout": "a\n",
                    "stderr": "",
                    "return_code": 0,
                    "content": [],
                },
            },
            used(
                "toolu_01A",
                "math_add",
                {"a": 1},
                caller={"type": "code_execution_20260120", "tool_id": "srvtoolu_3"},
            ),
        ],
        "tool_use",
        {
            "container": {
                "id": "container_011",
                "expires_at": "2026-12-01T00:00:00Z",
                "skills": None,
            }
        },
    ),
    "mcp": (
        [
            {
                "type": "mcp_tool_use",
                "id": "mcptoolu_1",
                "name": "search",
                "server_name": "docs",
                "input": {"q": "x"},
            },
            {
                "type": "mcp_tool_result",
                "tool_use_id": "mcptoolu_1",
                "is_error": False,
                "content": [text("found")],
            },
            text("Found."),
        ],
        "end_turn",
        {},
    ),
    "pause": ([served("srvtoolu_1", "web_search", {"query": "x"})], "pause_turn", {}),
}
"""Blocks, why it stopped, and what else the message says."""


def said(words: str, id: str = "msg_1", **more: Any) -> dict[str, Any]:
    part = {"type": "output_text", "text": words, "annotations": [], "logprobs": []}
    return {
        "id": id,
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [part],
        **more,
    }


def called(id: str, arguments: str, **more: Any) -> dict[str, Any]:
    return {
        "id": f"fc_{id}",
        "type": "function_call",
        "status": "completed",
        "call_id": id,
        "name": "math_add",
        "arguments": arguments,
        **more,
    }


def thought(id: str, *summary: str) -> dict[str, Any]:
    parts = [{"type": "summary_text", "text": words} for words in summary]
    return {
        "id": id,
        "type": "reasoning",
        "summary": parts,
        "encrypted_content": "gAAAAABo+/Zm9vYmFy==",
    }


ADD_TOOL = {
    "type": "function",
    "name": "math_add",
    "description": "Add.",
    "parameters": {"type": "object"},
    "strict": False,
    "defer_loading": True,
}

RESPONSES: dict[str, tuple[list[dict[str, Any]], str]] = {
    "text": ([said("Drei ☃ 🙂\n\nEnde.")], ""),
    "tools": (
        [
            thought("rs_1", "First ä.", 'Then "b".'),
            said("Let me add.", phase="commentary"),
            called("call_1", '{"a": 1, "b": 2}'),
            called("call_2", '{"a":"ä"}'),
        ],
        "calls",
    ),
    "web_search": (
        [
            {
                "id": "ws_1",
                "type": "web_search_call",
                "status": "completed",
                "action": {"type": "search", "query": "ghent", "queries": ["ghent"]},
            },
            said("It rains."),
        ],
        "",
    ),
    "mcp": (
        [
            {
                "id": "mcpl_1",
                "type": "mcp_list_tools",
                "server_label": "docs",
                "tools": [
                    {
                        "name": "search",
                        "input_schema": {"type": "object"},
                        "annotations": None,
                        "description": None,
                    }
                ],
            },
            {
                "id": "mcp_1",
                "type": "mcp_call",
                "server_label": "docs",
                "name": "search",
                "arguments": '{"q":"ä"}',
                "output": "found",
                "error": None,
                "approval_request_id": None,
            },
            said("Found."),
        ],
        "",
    ),
    "mcp_approval": (
        [
            {
                "id": "mcpr_1",
                "type": "mcp_approval_request",
                "server_label": "docs",
                "name": "delete",
                "arguments": '{"id": 7}',
            }
        ],
        "calls",
    ),
    "tool_search": (
        [
            {
                "id": "tsc_1",
                "type": "tool_search_call",
                "execution": "server",
                "call_id": None,
                "status": "completed",
                "arguments": {"paths": ["math"]},
            },
            {
                "id": "tso_1",
                "type": "tool_search_output",
                "execution": "server",
                "call_id": None,
                "status": "completed",
                "tools": [
                    {
                        "type": "namespace",
                        "name": "math",
                        "description": "Numbers.",
                        "tools": [ADD_TOOL],
                    }
                ],
            },
            called("call_1", '{"a":1}', namespace="math"),
        ],
        "calls",
    ),
    "code": (
        [
            {
                "id": "ci_1",
                "type": "code_interpreter_call",
                "status": "completed",
                "container_id": "cntr_1",
                "code": "print(1)",
                "outputs": [{"type": "logs", "logs": "1\n"}],
            },
            said("1"),
        ],
        "",
    ),
    "program": (
        [
            {
                "id": "prog_1",
                "type": "program",
                "call_id": "call_p",
                "code": "await math_add({a: 1})",
                "fingerprint": "f/+==",
            },
            called("call_1", '{"a":1}', caller={"type": "program", "caller_id": "call_p"}),
        ],
        "calls",
    ),
    "refusal": (
        [
            {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "refusal", "refusal": "I will not."}],
            }
        ],
        "filter",
    ),
    "cut": ([said("so f", status="incomplete")], "length"),
    "compaction": (
        [
            {"id": "cmp_1", "type": "compaction", "encrypted_content": "gAAAAABo+=="},
            said("Going on."),
        ],
        "",
    ),
}
"""Items, and why it stopped."""

SIGNED = {"thoughtSignature": "CiQBKCYIBxgCKkD/+Zm9vYmFyw=="}
THOUGHT = {"text": 'First ä,\nthen "b". ☃', "thought": True}


def called(name: str, given: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"functionCall": {"name": name, "args": given, **more}}


GOOGLE: dict[str, tuple[list[dict[str, Any]], str]] = {
    "text": ([{"text": "Drei ☃ 🙂\n\nEnde."}], "STOP"),
    "tools": (
        [
            {"text": "Let me add."},
            {**called("math_add", {"a": 1, "b": 2}, id="fc_1"), **SIGNED},
            called("math_add", {"a": 'ä"', "b": [None, 1.5]}, id="fc_2"),
        ],
        "STOP",
    ),
    "unnamed": ([{**called("math_add", {"a": 1}), **SIGNED}, called("math_add", {})], "STOP"),
    "thinking": ([THOUGHT, {**called("math_add", {"a": 1, "b": 2}, id="fc_1"), **SIGNED}], "STOP"),
    "signed_text": ([THOUGHT, {"text": "Three"}, {"text": ".", **SIGNED}], "STOP"),
    "signed_end": ([{"text": "Three."}, {"text": "", **SIGNED}], "STOP"),
    "code": (
        [
            {"executableCode": {"language": "PYTHON", "code": "print(1)\n"}},
            {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1\n"}},
            {"text": "1"},
        ],
        "STOP",
    ),
    "cut": ([{"text": "so f"}], "MAX_TOKENS"),
    "refusal": ([{"text": "I will", **SIGNED}], "SAFETY"),
}
"""Parts, and why it stopped."""
GOOGLE_USAGE = {
    "promptTokenCount": 2316,
    "cachedContentTokenCount": 2048,
    "candidatesTokenCount": 70,
    "thoughtsTokenCount": 7,
    "totalTokenCount": 2393,
}

WITH_ESCAPES = {"tools", "mcp", "web_search"}
"""Cases that are spelled as some servers do: everything but ASCII escaped, blanks between the
tokens.
"""


def spelled(case: str, value: Any) -> bytes:
    """A value as its file says it."""
    if case in WITH_ESCAPES:
        return json.dumps(value).encode()
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def respelled(case: str, event: bytes) -> bytes:
    """A streamed event in the spelling of its case."""
    name, _, data = event.partition(b"\ndata: ")
    return name + b"\ndata: " + spelled(case, json.loads(data)) + b"\n\n"


def files() -> dict[str, bytes]:
    """Name and content of every golden file."""
    sys.path[:0] = [str(FOLDER.parent), str(FOLDER.parents[1])]
    import google_double

    from provider_double import (
        make_message,
        make_response,
        messages_stream,
        responses_stream,
    )

    made: dict[str, bytes] = {}
    for case, (content, stop, more) in MESSAGES.items():
        message = make_message(content, stop, USAGE, **more)
        made[f"anthropic/{case}.json"] = spelled(case, message)
        made[f"anthropic/{case}.sse"] = b"".join(
            respelled(case, e) for e in messages_stream(message).pieces
        )
    for case, (output, stop) in RESPONSES.items():
        response = make_response(output, stop, 2316, 77)
        made[f"openai-responses/{case}.json"] = spelled(case, response)
        made[f"openai-responses/{case}.sse"] = b"".join(
            respelled(case, e) for e in responses_stream(response).pieces
        )
    for case, (parts, reason) in GOOGLE.items():
        answer = google_double.make_answer(parts, reason, 0, 0)
        answer["usageMetadata"] = GOOGLE_USAGE
        made[f"google/{case}.json"] = spelled(case, answer)
        made[f"google/{case}.sse"] = b"".join(
            b"data: " + spelled(case, google_double.check_response(one)) + b"\n\n"
            for one in google_double.events_of(answer)
        )
    return made


def main() -> int:
    for name, content in files().items():
        path = FOLDER / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        print(f"{name}: {len(content)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
