"""Approvals by the person at the MCP client, asked with a form of one field.

An approval counts once, for exactly these arguments (their digest), and for the request that was
asked about: the state with which the client comes back is sealed and bound to both. It never
becomes a rule, neither for the session nor for later. Calls of critical risk, and calls that may
have run before, are never asked of a client; those need a person where the server runs. A client
that cannot ask its person gets a denial that names the rule which would allow the call.

How the question travels depends on the version of the protocol. With a handshake it is asked while
the call waits. Without one, the call is settled as not run (the journal says that the client is
asked) and the request is answered with the question; the answer makes another call with the same
arguments, which finds it. So a client that never comes back blocks nothing. Calls within a call
wait in both versions: what was done before them must not be done again.

What a client shows its person, and whether it asks them at all, is up to the client: whoever
connects one trusts it with these answers.
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
"""Characters of the arguments that a question shows; it says how many are left out."""
CURRENT: ContextVar[Request | None] = ContextVar("ferrule_mcp_request", default=None)
"""The request that the current task works for. A sub-agent's calls are not known by their ids."""


class ClientApprover:
    """The `Approver` of an MCP client's session."""

    async def ask(self, request: ApprovalRequest) -> Answer:
        """Implement `Approver.ask`."""
        if request.risk == "critical" or request.died:
            return _no("this needs a person where the server runs, not a client's answer")
        asked = (UNDER_WAY.get() or {}).get(request.call.id) or CURRENT.get()
        if asked is None or not asked.peer.can("elicitation"):
            said = f"this needs a person's approval ({request.reason})"
            return _no(f"{said}, and this client cannot ask for it; {_step(request)}")
        if not asked.peer.modern or request.call.id != asked.call:
            try:
                return await answered(asked, request.digest, question(request))
            finally:
                asked.answered()
        known: Answer | None = asked.said.get(request.digest)
        if known is None:
            asked.wanted = (request.digest, question(request))
            return _no("the person at the client is being asked; an approval makes a new call")
        return known


def question(request: ApprovalRequest) -> Question:
    """Return the question to the person."""
    field = {
        "type": "boolean",
        "title": "Run it",
        "description": "Once, with exactly these arguments.",
    }
    return elicitation(_told(request), {"run": field})


async def answered(asked: Request, digest: str, asking: Question) -> Answer:
    """Ask the question and wait for the answer. Never raises for what a client does."""
    name = f"approve_{digest[:16]}"
    try:
        answer = (await asked.ask({name: asking}, ahead=False))[name]
    except (NoAnswer, Lacking, TimeoutError) as error:
        return _no(f"the client was asked and gave no answer: {str(error) or 'it took too long'}")
    content: dict[str, Any] = answer.get("content") or {}
    if answer.get("action") == "accept" and content.get("run") is True:
        return Answer("once", by=BY)
    return _no("denied by the person at the client")


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
