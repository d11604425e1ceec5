"""Asking a person: what is shown, what comes back, and what happens where nobody can be asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Literal, Protocol

from ferrule.core.calls import Call
from ferrule.core.errors import ConfigError
from ferrule.core.frozen import frozen
from ferrule.core.identity import Identity
from ferrule.tools.definition import Checked, Risk, SideEffect, Tool

from .gate import Offer
from .rules import FAMILIES, names_tool, parse_rule

Choice = Literal["once", "session", "remember", "deny"]


@frozen
class ApprovalRequest:
    """One question. The answer counts only for arguments with this `digest`.

    `values` are the arguments as they would run, checked and after hooks; `call` holds what the
    model sent.

    `preview` is the whole of what would happen (a unified diff, a command line) or empty; an
    interface that shortens it says so. `offers` hold, per choice, the grant that would keep this
    call from asking again.
    """

    call: Call
    tool: Tool
    risk: str
    reason: str
    labels: tuple[str, ...]
    preview: str
    offers: tuple[Offer, ...]
    digest: str
    identity: Identity
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    died: bool = False
    """The call had started when its process ended, and nobody knows what it did: a yes runs it
    again.
    """


@frozen
class Answer:
    """What was said. `grant` is the rule of the chosen offer, `by` who said it, `note` why."""

    choice: Choice
    grant: str = ""
    by: str = ""
    note: str = ""


class Approver(Protocol):
    """Puts a question to a person (or to a policy that stands in for one).

    With an attribute `asks_about_unknown` that is true it is also asked about calls whose outcome
    is unknown (`ApprovalRequest.died`).

    Contract: `ask` answers exactly once per request and grants only rules of `request.offers`; it
    may raise a FerruleError, which counts as no. Cancelling it withdraws the question: nothing is
    granted.
    """

    async def ask(self, request: ApprovalRequest) -> Answer: ...


def question_tool(name: str, description: str, effect: SideEffect) -> Tool:
    """What a question that is about no call is put as, since approvers know calls. It is in no
    catalog, and its risk is critical, which no policy in place of a person (`--yes-to`) covers.
    """
    return Tool(
        name=name,
        description=description,
        arguments=_Unchecked(),
        handler=_never,
        side_effect=effect,
        risk=Risk.CRITICAL,
        is_async=True,
    )


class _Unchecked:
    schema: Mapping[str, Any] = {"type": "object"}

    def check(self, arguments: Any) -> Checked:
        return Checked(dict(arguments), [], [])


async def _never() -> None:
    """The question has the form of a call; there is nothing to run."""


class NobodyToAsk:
    """Where nobody can be asked: no terminal, or a program without an approver. An ask is a no, and
    the answer says so.
    """

    async def ask(self, request: ApprovalRequest) -> Answer:
        wider = next((offer.rule for offer in request.offers if offer.rule), "")
        step = f"allow it with the rule `{wider}`" if wider else "run it where a person can answer"
        note = (
            f"Denied: no one was available to approve it ({request.reason}); {step}, or pass "
            "`approver=` in a program"
        )
        return Answer("deny", by="no-terminal", note=note)


class AllowThese:
    """`--yes-to PATTERN`: says yes, once, to tools of these names (`*` is a wildcard); asks
    `otherwise` for the rest.

    It answers questions only: what a rule or a built-in refusal denies is never asked. It never
    says yes to critical risk, nor to doing again what may have been done. Raises ConfigError for a
    pattern that is no tool name.
    """

    def __init__(self, patterns: Sequence[str], otherwise: Approver | None = None) -> None:
        self._rules = tuple(parse_rule(pattern) for pattern in patterns)
        for rule in self._rules:
            if rule.specifier is not None or rule.tool in FAMILIES:
                raise ConfigError(
                    f"--yes-to `{rule.text}`: found a rule where the name of a tool belongs",
                    hint=f"put `{rule.text}` into permissions.allow, or name the tool",
                )
        self._otherwise = otherwise or NobodyToAsk()
        self.asks_about_unknown = bool(getattr(self._otherwise, "asks_about_unknown", False))

    async def ask(self, request: ApprovalRequest) -> Answer:
        named = next(
            (rule for rule in self._rules if names_tool(rule, request.tool.full_name)), None
        )
        if named is None or request.risk == "critical" or request.died:
            return await self._otherwise.ask(request)
        return Answer("once", by=f"--yes-to {named.text}")
