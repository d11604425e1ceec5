"""What the loops of plain SDKs share: the calls of a message, made together.

A loop has no interrupt of its own. If calls wait for approvals, `dispatch` raises
`ApprovalsPending` with all of them, and is called again with the same message and the answers. The
calls that were made before are not made again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from ferrule.core.calls import ToolResult, parse_json
from ferrule.core.errors import ConfigError, FerruleError, ProviderError
from ferrule.core.media import load_media
from ferrule.core.value_class import frozen
from ferrule.engine.session import Session
from ferrule.engine.threads import run_blocking
from ferrule.models.media_encoding import Protocol, encode_content

from .framework_approvals import PendingApproval
from .guarded_session import GuardedSession

T = TypeVar("T")


class ApprovalsPending(FerruleError):
    """Calls of a message wait for approvals.

    Attributes:
        approvals: What a person must be asked, in the order of the calls.
    """

    code = "approvals_pending"
    exit_code = 7

    def __init__(self, approvals: Sequence[PendingApproval]) -> None:
        named = ", ".join(f"`{one.tool}`" for one in approvals)
        super().__init__(
            f"{named} waits for an approval",
            hint="dispatch the same message again, with `approvals={call_id: True or False}`",
        )
        self.approvals = tuple(approvals)


@frozen
class RequestedCall:
    """A call in a message: the arguments are JSON text or an object, as the protocol has them."""

    id: str
    name: str
    arguments: Mapping[str, Any] | str


Answered = Sequence[tuple[RequestedCall, ToolResult]]
"""The calls of a message with their results."""
ReadCalls = Callable[[Any], list[RequestedCall]]
WriteResults = Callable[[GuardedSession, Answered], Awaitable[list[Any]]]


@dataclass(slots=True)
class LoopTools(Generic[T]):
    """What `guard` gives to a loop: `tools` for its requests, and `dispatch` for its answers."""

    session: Session[Any]
    tools: list[T]
    _guarded: GuardedSession
    _read: ReadCalls
    _write: WriteResults

    async def dispatch(
        self, message: Any, approvals: Mapping[str, bool] | None = None
    ) -> list[Any]:
        """Make the calls of a model's message and return the messages to append after it.

        Args:
            message: The model's message, as the SDK gives it or as JSON.
            approvals: The answers to what `ApprovalsPending` asked, by the ids of the calls.

        Returns:
            The messages; none if it has no calls.

        Raises:
            ApprovalsPending: Calls wait for approvals.
            ConfigError: An answer is for no call of this message.
        """
        calls = self._read(_to_json(message))
        _check_approvals(calls, approvals)
        answered = await _make_calls(self._guarded, calls, approvals)
        return await self._write(self._guarded, answered) if answered else []


def _check_approvals(calls: Sequence[RequestedCall], approvals: Mapping[str, bool] | None) -> None:
    known = [call.id for call in calls]
    unknown = [call_id for call_id in approvals or () if call_id not in known]
    if unknown:
        raise ConfigError(
            f"approvals: the message has no call `{unknown[0]}`",
            hint=f"it has: {', '.join(known) or 'none'}",
        )


async def _make_calls(
    guarded: GuardedSession,
    calls: Sequence[RequestedCall],
    approvals: Mapping[str, bool] | None,
) -> Answered:
    """Make calls together; their session keeps those apart that conflict."""

    async def make_call(call: RequestedCall) -> ToolResult | PendingApproval:
        key = guarded.key(call.id)
        # Only where a message comes again: some servers give the same id to later calls, too.
        kept = None if approvals is None else guarded.find_kept(key)
        if kept is not None:
            return kept
        approved = None
        if approvals is not None and call.id in approvals:
            approved = approvals[call.id] is True
        outcome = await guarded.call(call.name, call.arguments, call.id, approved=approved)
        if isinstance(outcome, PendingApproval):
            guarded.remember_asked(outcome)
        else:
            guarded.keep_result(key, outcome)
        return outcome

    outcomes = await asyncio.gather(*(make_call(call) for call in calls))
    pending = [one for one in outcomes if isinstance(one, PendingApproval)]
    if pending:
        raise ApprovalsPending(pending)
    results = [one for one in outcomes if isinstance(one, ToolResult)]
    return list(zip(calls, results, strict=True))


async def encode_result(
    guarded: GuardedSession,
    protocol: Protocol,
    result: ToolResult,
    encode_text: Callable[[str], str],
) -> list[dict[str, Any]]:
    """Return a result as content blocks of a protocol; what it does not take is described."""
    read = guarded.session.history.read_media
    media = [load_media(one, read) for one in result.media]
    text = result.to_text()
    try:
        blocks = await run_blocking(lambda: encode_content(protocol, text, media, encode_text))
    except ProviderError as error:
        # The text has the caption of each medium.
        blocks = [encode_text(f"{text}\n{error.detail}")]
    return [parse_json(block) for block in blocks]


def _to_json(message: Any) -> Any:
    """Return a message of an SDK as JSON values."""
    dump = getattr(message, "model_dump", None)
    if dump is not None:
        return dump(mode="json")
    if not isinstance(message, Mapping):
        raise ConfigError(
            f"dispatch: {type(message).__name__} is given",
            hint="give the message of the model's answer, as the SDK has it or as JSON",
        )
    return cast("Mapping[str, Any]", message)
