"""The tool types of the Responses API whose calls we carry out: shells and `apply_patch`.

Their calls are items without a name, whose arguments are an `action` or an `operation`; results
are items of types of their own. Source: OpenAI's API reference and the types of its SDK
(FunctionShellToolParam, ApplyPatchToolParam, LocalShell, and the items of their calls).
"""

from __future__ import annotations

from collections.abc import Mapping
from json.encoder import encode_basestring as quote
from typing import Any, cast

from ferrule.core.calls import encode_json, parse_json
from ferrule.core.messages import ToolMessage

TOOL_TYPES = {
    # Without an environment the provider may choose a container of its own.
    "shell": '{"type":"shell","environment":{"type":"local"}}',
    "apply_patch": '{"type":"apply_patch"}',
    "local_shell": '{"type":"local_shell"}',
}
"""Types, and how a tool of each is sent."""

TYPED_CALLS = {
    "shell_call": "shell",
    "apply_patch_call": "apply_patch",
    "local_shell_call": "local_shell",
}
"""Types of items that are calls of such tools, and the tools' names."""


def is_typed_call(fields: Mapping[str, Any]) -> bool:
    """Return whether an item is a call that is ours to carry out.

    A shell in a container of the provider is the provider's.
    """
    kind = fields.get("type")
    if not isinstance(kind, str) or kind not in TYPED_CALLS:
        return False
    environment = fields.get("environment")
    if not isinstance(environment, dict):
        return True
    return cast("dict[str, Any]", environment).get("type", "local") == "local"


def read_typed_arguments(fields: Mapping[str, Any]) -> str:
    """Return the arguments of a typed call as JSON text."""
    if fields.get("type") == "apply_patch_call":
        operation = fields.get("operation")
        return encode_json(_read_operation(operation))
    action: Any = fields.get("action")
    if not isinstance(action, dict):
        return encode_json({"action": action})
    given = cast("dict[str, Any]", action)
    return encode_json(
        {name: value for name, value in given.items() if name != "type" and value is not None}
    )


def _read_operation(operation: object) -> dict[str, Any]:
    """Return the change of one file as a patch; as it is, and so refused, if it is none."""
    given = cast("dict[str, Any]", operation) if isinstance(operation, dict) else {}
    path, diff = given.get("path"), given.get("diff", "")
    verb = {"create_file": "Add", "update_file": "Update", "delete_file": "Delete"}.get(
        str(given.get("type"))
    )
    is_plain = isinstance(path, str) and isinstance(diff, str) and path.strip() != ""
    # A path of several lines could name further files.
    if verb is None or not is_plain or len(str(path).splitlines()) != 1:
        return {"operation": operation}
    body = "" if verb == "Delete" else _complete_lines(str(diff), is_new=verb == "Add")
    return {"input": f"*** Begin Patch\n*** {verb} File: {path}\n{body}*** End Patch"}


def _complete_lines(diff: str, *, is_new: bool) -> str:
    """Return the lines of a diff that stand in a patch, ended.

    A line that would begin the change of another file cannot be meant: in a hunk it would have a
    mark before it. With a blank before it, it is a line of the text, which then fits or does not.
    """
    lines = diff.removesuffix("\n").split("\n") if diff else []
    marks = ("*** Begin Patch", "*** End Patch", "*** Add ", "*** Update ", "*** Delete ")
    if is_new and not all(line.startswith("+") for line in lines):
        lines = [f"+{line}" for line in lines]
    kept = [f" {line}" if line.startswith((*marks, "*** Move ")) else line for line in lines]
    return "".join(f"{line}\n" for line in kept)


def encode_typed_output(kind: str, message: ToolMessage, more: str) -> str:
    """Encode the result of a typed call as the item that the API wants.

    Args:
        kind: The type of the call's item.
        message: The result.
        more: Further members of the item, as JSON.
    """
    id = quote(message.call_id)
    if kind == "apply_patch_call":
        status = "completed" if message.success else "failed"
        body = f'"call_id":{id},"status":"{status}","output":{quote(message.text)}'
    elif kind == "shell_call":
        body = f'"call_id":{id},"output":{encode_json(_read_outputs(message))}'
    else:
        body = f'"id":{id},"output":{quote(encode_json({"output": message.text}))}'
    return f'{{"type":"{kind}_output",{body}{more}}}'


def _read_outputs(message: ToolMessage) -> list[Any]:
    """Return the outputs that `shell` answered with; any other text as that of one command."""
    try:
        value: Any = parse_json(message.text)
    except ValueError:
        value = None
    outputs: Any = cast("dict[str, Any]", value).get("output") if isinstance(value, dict) else None
    if message.success and isinstance(outputs, list):
        return cast("list[Any]", outputs)
    code = 0 if message.success else 1
    stdout, stderr = (message.text, "") if message.success else ("", message.text)
    outcome = {"type": "exit", "exit_code": code}
    return [{"stdout": stdout, "stderr": stderr, "outcome": outcome}]
