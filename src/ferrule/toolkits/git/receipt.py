"""Receipts: what an operation of git did, as a value that can be kept and compared.

    operation, status (`ok`, `failed`), exit_category, exit_code     the outcome
    argv, affected_paths                   the last command, and the files that it was about
    refs                                   for operations that change something: before and after
    agent, trace_id, call_id, autonomy_tier                          who acted
    approval, policy                       which checks it passed
    outputs                                each output with its size and SHA-256

A failure has a receipt as well, in the `data` of its result: `exit_category` tells whether it was
refused, met a conflict or ran out of time, `refs` whether anything moved. Invalid arguments attempt
nothing and have none. The id is made of the call and of what was run, so that a replay gives the
same one. A receipt says what the tool knows: that the gate let the call through; who approved it is
in the journal, under the id of the call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Literal

from ferrule.core.calls import encode_json
from ferrule.core.errors import ToolFailed
from ferrule.core.value_class import frozen
from ferrule.tools.context import Context
from ferrule.tools.definition import Risk, Tool

from .attempt import Attempt

SCHEMA = "ferrule.git_receipt.v1"
MAX_PATHS = 200
"""Paths that a receipt names; it says how many more there were."""
MAX_INLINE_BYTES = 32_000
"""Most bytes of text output in a result."""

Category = Literal["success", "nothing_to_do"]


@frozen
class GitOptions:
    """What a set of git tools knows of its run. A resource of the context.

    `agent` names who acts. `autonomy_tier` is the person's name for the freedom of this run;
    without it, receipts say `observe` for reads and `act_with_approval` for changes. `author` is
    (name, address) of commits; None: the person's own git settings.
    """

    agent: str = "agent"
    autonomy_tier: str = ""
    author: tuple[str, str] | None = None

    @staticmethod
    def from_context(context: Context) -> GitOptions:
        """Return the options of this call."""
        found = context.resources.get(GitOptions)
        return found if isinstance(found, GitOptions) else GitOptions()


@dataclass(slots=True)
class Outcome:
    """The outcome of an operation.

    `value` is for the model; `outputs` are hashed; `paths` are files of the workspace.
    """

    value: Mapping[str, Any]
    argv: Sequence[str] = ()
    code: int = 0
    category: Category = "success"
    paths: Sequence[str] = ()
    outputs: Mapping[str, bytes] | None = None


def make_result(tool: Tool, operation: str, context: Context, outcome: Outcome) -> dict[str, Any]:
    """Return the result of an operation: what it found, and its receipt."""
    return {
        "operation": operation,
        **outcome.value,
        "receipt": make_receipt(tool, operation, context, outcome),
    }


def make_failure_result(
    tool: Tool, operation: str, context: Context, error: ToolFailed
) -> dict[str, Any]:
    """Return what is known of an operation that failed: its receipt."""
    attempt = Attempt.from_context(context)
    ended = attempt.describe_end(error)
    shape = make_receipt(tool, operation, context, Outcome({}, ended["argv"]))
    return {"operation": operation, "receipt": {**shape, **ended}}


def make_receipt(tool: Tool, operation: str, context: Context, outcome: Outcome) -> dict[str, Any]:
    """Return the receipt of an operation."""
    options = GitOptions.from_context(context)
    changes = not tool.is_repeatable
    paths = list(dict.fromkeys(outcome.paths))
    shape: dict[str, Any] = {
        "schema": SCHEMA,
        "receipt_id": "",
        "operation": operation,
        "status": "ok",
        "exit_category": outcome.category,
        "exit_code": outcome.code,
        "argv": list(outcome.argv),
        "affected_paths": paths[:MAX_PATHS],
        "agent": options.agent,
        "trace_id": context.identity.run,
        "call_id": context.call_id,
        "autonomy_tier": options.autonomy_tier or ("act_with_approval" if changes else "observe"),
        "outputs": [_describe_output(name, data) for name, data in (outcome.outputs or {}).items()],
        "approval": {
            "needed": tool.risk is not Risk.SAFE,
            "given_by": "gate",
            "recorded_under": context.call_id,
        },
        "policy": {
            "side_effect": str(tool.side_effect),
            "risk": str(tool.risk),
            "repository_programs": "none",
        },
    }
    refs = Attempt.from_context(context).refs
    if refs:
        shape["refs"] = refs
    if len(paths) > MAX_PATHS:
        shape["affected_paths_left_out"] = len(paths) - MAX_PATHS
    identified = [
        context.identity.session,
        context.identity.run,
        context.call_id,
        operation,
        *outcome.argv,
    ]
    digest = sha256(encode_json(identified).encode("utf-8", "replace")).hexdigest()
    shape["receipt_id"] = f"git_{digest[:20]}"
    return shape


def _describe_output(name: str, data: bytes) -> dict[str, Any]:
    return {
        "name": name,
        "bytes": len(data),
        "sha256": sha256(data).hexdigest(),
        "inline": len(data) <= MAX_INLINE_BYTES,
    }


def cut_inline(text: str) -> str:
    """Cut a text for a result on a character boundary, with a note."""
    data = text.encode("utf-8", "replace")
    if len(data) <= MAX_INLINE_BYTES:
        return data.decode()
    head = data[:MAX_INLINE_BYTES].decode("utf-8", "ignore")
    return (
        f"{head}\n[cut at {MAX_INLINE_BYTES} bytes of {len(data)}; ask for less: paths, a smaller "
        "`max_count`, `stat`]"
    )
