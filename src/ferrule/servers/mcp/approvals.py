"""Calls that need a person's yes: the person at the client is asked, with a form of one field.

A yes counts once, for exactly these arguments (their digest), and for the request that was asked
about: the state with which the client comes back is sealed and bound to both. It is never a rule:
not for the session, not for later. Never asked of a client: critical risk, and doing again what may
have been done; those want a person where the server runs. A client that cannot ask its person gets
a no that names the rule which would allow the call.

How the question travels depends on the version of the protocol. With a handshake it is asked while
the call waits. Without one, the call is settled as not run (the journal says that the client is
asked) and the request is answered with the question; the answer makes another call with the same
arguments, which finds it. So a client that never comes back holds nothing up. Calls within a call
wait in both versions: what was done before them must not be done again.

What a client shows its person, and whether it asks them at all, is the client's: who connects one,
trusts it with these answers.
"""

from __future__ import annotations

import json
from contextvars import ContextVar
from typing import Any

from ferrule.core.invisible_characters import exact
from ferrule.permissions.approvals import Answer, ApprovalRequest

from .client import UNDER_WAY, elicitation
from .peer import NoAnswer
from .requests import Lacking, Question, Request

BY = "mcp client"
MESSAGE = 16_000
"""Characters of what is to run that a question shows; it says what is left out."""
CURRENT: ContextVar[Request | None] = ContextVar("ferrule_mcp_request", default=None)
"""The request that the current task works for: a sub-agent's calls are not known by their ids."""


class ClientApprover:
    """`Approver` of a session that an MCP client has."""

    async def ask(self, request: ApprovalRequest) -> Answer:
        """As `Approver.ask`."""
        if request.risk == "critical" or request.died:
            return _no("this wants a person where the server runs, not a client's answer")
        asked = (UNDER_WAY.get() or {}).get(request.call.id) or CURRENT.get()
        if asked is None or not asked.peer.can("elicitation"):
            said = f"this needs a person's yes ({request.reason}), and this client cannot ask one"
            return _no(f"{said}; {_step(request)}")
        if not asked.peer.modern or request.call.id != asked.call:
            try:
                return await answered(asked, request.digest, question(request))
            finally:
                asked.answered()
        known: Answer | None = asked.said.get(request.digest)
        if known is None:
            asked.wanted = (request.digest, question(request))
            return _no("the person at the client is asked; their answer makes another call")
        return known


def question(request: ApprovalRequest) -> Question:
    """What the person is asked."""
    field = {
        "type": "boolean",
        "title": "Run it",
        "description": "Once, with exactly these arguments.",
    }
    return elicitation(_told(request), {"run": field})


async def answered(asked: Request, digest: str, asking: Question) -> Answer:
    """Put the question and wait for what the person says. Never raises for what a client does."""
    name = f"approve_{digest[:16]}"
    try:
        answer = (await asked.ask({name: asking}, ahead=False))[name]
    except (NoAnswer, Lacking, TimeoutError) as error:
        return _no(f"the client was asked and gave no answer: {str(error) or 'it took too long'}")
    content: dict[str, Any] = answer.get("content") or {}
    if answer.get("action") == "accept" and content.get("run") is True:
        return Answer("once", by=BY)
    return _no("the person at the client said no")


def _no(note: str) -> Answer:
    return Answer("deny", by=BY, note=note)


def _step(request: ApprovalRequest) -> str:
    rule = (
        next((offer.rule for offer in request.offers if offer.rule), "") or request.tool.full_name
    )
    return (
        f"whoever runs the server can allow it with the rule `{rule}` in `permissions.allow`, or "
        "`--allow`"
    )


def _told(request: ApprovalRequest) -> str:
    # The arguments as they would run: a hook may have changed what the client sent.
    arguments = json.dumps(dict(request.values), ensure_ascii=False, default=str)
    shown = exact(request.preview or arguments)
    if len(shown) > MESSAGE:
        shown = f"{shown[:MESSAGE]}\n[shown: {MESSAGE} of {len(shown)} characters]"
    return f"May `{request.tool.full_name}` run? {exact(request.reason)}.\n{shown}"
