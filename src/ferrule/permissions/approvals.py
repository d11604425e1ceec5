"""Approvals: what a person is asked, what they answer, and what happens if no one can be asked.

An approval is bound to the digest of the exact arguments that a person saw (`digest`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, field, is_dataclass
from typing import Any, Literal, Protocol, cast

from ferrule.core.calls import ToolCall
from ferrule.core.errors import ConfigError
from ferrule.core.identity import Identity
from ferrule.core.value_class import frozen
from ferrule.core.vocabulary import ApprovalChoice, Refuser
from ferrule.tools.definition import CheckedArguments, Risk, SideEffect, Tool, Touch

from .grant_proposals import GrantOffer
from .rules import RULE_FAMILIES, matches_tool, parse_rule


@frozen
class ApprovalRequest:
    """A question about one call. The answer counts only for arguments with this `digest`.

    Attributes:
        call: The call as the model sent it.
        risk: The risk of the call.
        reason: Why a person is asked.
        labels: Risk labels of the call's commands.
        preview: All of what would happen (a unified diff, a command line), or empty. An interface
            that shortens it says so, and shows the arguments that it does not
            (`approval_text.describe_call`).
        offers: The answers besides no, each with its grant. Never empty: where a question is about
            no rule (a hook asks, an outcome is unknown), a yes for this once is offered.
        values: The arguments as they would run, validated and after hooks.
        has_unknown_outcome: The call had started when its process ended, and its outcome is
            unknown: a yes runs it again.
        preview_error: Why there is no preview: the call would fail now, or it could not be made.
    """

    call: ToolCall
    tool: Tool
    risk: str
    reason: str
    labels: tuple[str, ...]
    preview: str
    offers: tuple[GrantOffer, ...]
    digest: str
    identity: Identity
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    has_unknown_outcome: bool = False
    preview_error: str = ""

    def __post_init__(self) -> None:
        if not self.offers:
            object.__setattr__(self, "offers", (GrantOffer("once", ""),))


@frozen
class ApprovalAnswer:
    """The answer: `grant` is the rule of the chosen offer, `by` who answered, `note` why.

    `refused_by` is who said no; other than `person` where nobody was asked. `hint` says what a
    person can do about it; a model, which cannot, is told the note alone.
    """

    choice: ApprovalChoice
    grant: str = ""
    by: str = ""
    note: str = ""
    refused_by: Refuser = "person"
    hint: str = ""

    @property
    def refuser(self) -> Refuser | Literal[""]:
        """Who denied the call; empty if it was approved."""
        return self.refused_by if self.choice == "deny" else ""


class Approver(Protocol):
    """Puts a question to a person, or to a policy in place of one.

    An approver with a true attribute `asks_about_unknown` is also asked about calls whose outcome
    is unknown (`ApprovalRequest.has_unknown_outcome`).

    Contract: `ask` answers exactly once per request and grants only rules of `request.offers`. It
    may raise a FerruleError, which counts as a no. Cancelling it withdraws the question: nothing is
    granted.
    """

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer: ...


def make_question_tool(
    name: str, description: str, effect: SideEffect, touches: Mapping[str, Touch] | None = None
) -> Tool:
    """Return a tool that stands for a question which is about no call.

    `touches` says which of its values deny rules are asked about, as for any tool.

    Approvers know only calls. The tool is in no catalog, and its risk is critical, which no policy
    in place of a person (`--yes-to`) covers.
    """
    return Tool(
        name=name,
        description=description,
        arguments=_UncheckedArguments(),
        handler=_do_nothing,
        side_effect=effect,
        risk=Risk.CRITICAL,
        is_async=True,
        touches=touches or {},
    )


class _UncheckedArguments:
    schema: Mapping[str, Any] = {"type": "object"}

    def check(self, arguments: Any) -> CheckedArguments:
        return CheckedArguments(dict(arguments), [], [])


async def _do_nothing() -> None:
    """The question only has the form of a call: there is nothing to run."""


class DenyingApprover:
    """Denies every request, for use without a terminal or an approver. The answer says so."""

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer:
        # What a question of critical risk offers is no permission rule.
        offers = () if request.risk == "critical" else request.offers
        rule = next((offer.rule for offer in offers if offer.rule), "")
        step = f"allow it with the rule `{rule}`" if rule else "run it where a person can answer"
        note = f"no one was available to approve it ({request.reason})"
        return ApprovalAnswer("deny", by="no-terminal", note=note, refused_by="nobody", hint=step)


class AllowlistApprover:
    """Says yes, once, to tools whose names match (`--yes-to PATTERN`); `*` is a wildcard.

    It only answers questions: what a rule or a built-in refusal denies is never asked. It never
    says yes to critical risk, nor to running a call again whose outcome is unknown.

    Args:
        patterns: Patterns for full names of tools.
        otherwise: Is asked about the rest; by default everything else is denied.

    Raises:
        ConfigError: A pattern is not a tool name.
    """

    def __init__(self, patterns: Sequence[str], otherwise: Approver | None = None) -> None:
        self._rules = tuple(parse_rule(pattern) for pattern in patterns)
        for rule in self._rules:
            if rule.specifier is not None or rule.tool in RULE_FAMILIES:
                raise ConfigError(
                    f"--yes-to `{rule.text}`: found a rule instead of a tool name",
                    hint=f"put `{rule.text}` into permissions.allow, or name the tool",
                )
        self._otherwise = otherwise or DenyingApprover()
        self.asks_about_unknown = bool(getattr(self._otherwise, "asks_about_unknown", False))

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer:
        if request.risk != "critical" and not request.has_unknown_outcome:
            for rule in self._rules:
                if matches_tool(rule, request.tool.full_name):
                    return ApprovalAnswer("once", by=f"--yes-to {rule.text}")
        return await self._otherwise.ask(request)


# ---- the digest that an approval is bound to

_encode_canonical = json.JSONEncoder(
    sort_keys=True, ensure_ascii=True, separators=(",", ":")
).encode


def digest_arguments(tool_name: str, values: Mapping[str, Any]) -> str:
    """Return the SHA-256 (hex) over a tool's name and arguments. An approval holds only for it.

    The arguments are encoded as canonical JSON: keys sorted, no spaces. A value that is not JSON is
    replaced by its type and plain form.
    """
    try:
        text = _encode_canonical([tool_name, values])
    except (TypeError, ValueError):
        text = _encode_canonical([tool_name, _to_plain(values)])
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _to_plain(value: Any) -> Any:
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, Mapping):
        pairs = cast("Mapping[Any, Any]", value)
        return {_plain_key(key): _to_plain(item) for key, item in pairs.items()}
    if isinstance(value, (list, tuple)):
        return [_to_plain(item) for item in cast("list[Any]", value)]
    if isinstance(value, (set, frozenset)):
        members = cast("set[Any]", value)
        return sorted(json.dumps(_to_plain(item), sort_keys=True) for item in members)
    type_name = type(value).__name__
    if is_dataclass(value) and not isinstance(value, type):
        return {type_name: _to_plain(asdict(value))}
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return {type_name: _to_plain(dump())}
    if isinstance(value, bytes):
        return {type_name: value.hex()}
    return {type_name: str(value)}


def _plain_key(key: Any) -> str:
    return f"{key}" if isinstance(key, str) else f"{type(key).__name__}:{key}"
