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

from contextvars import ContextVar
from typing import Any

from ferrule.core.invisible_characters import escape_for_approval
from ferrule.core.vocabulary import Refuser
from ferrule.permissions.approval_text import describe_call
from ferrule.permissions.approvals import ApprovalAnswer, ApprovalRequest

from .client import CURRENT_REQUESTS, elicitation
from .peer import NoAnswer
from .requests import CapabilityLacking, ClientRequest, Question

BY = "mcp client"
MAX_MESSAGE = 16_000
"""Characters of the call that a question shows; it says how many are left out."""
CURRENT_REQUEST: ContextVar[ClientRequest | None] = ContextVar("ferrule_mcp_request", default=None)
"""The request that the current task works for. A sub-agent's calls are not known by their ids."""


class ClientApprover:
    """The `Approver` of an MCP client's session."""

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Implement `Approver.ask`."""
        if request.risk == "critical" or request.has_unknown_outcome:
            return _deny("this needs a person where the server runs, not a client's answer")
        asked = (CURRENT_REQUESTS.get() or {}).get(request.call.id) or CURRENT_REQUEST.get()
        if asked is None or not asked.peer.can("elicitation"):
            said = f"this needs a person's approval ({request.reason})"
            return _deny(f"{said}, and this client cannot ask for it; {_next_step(request)}")
        if not asked.peer.is_modern or request.call.id != asked.last_call_id:
            try:
                return await ask_client(asked, request.digest, build_question(request))
            finally:
                asked.on_answered()
        known: ApprovalAnswer | None = asked.approvals.get(request.digest)
        if known is None:
            asked.wanted_approval = (request.digest, build_question(request))
            return _deny("the person at the client is being asked; an approval makes a new call")
        return known


def build_question(request: ApprovalRequest) -> Question:
    """Return the question to the person."""
    field = {
        "type": "boolean",
        "title": "Run it",
        "description": "Once, with exactly these arguments.",
    }
    return elicitation(_question_text(request), {"run": field})


async def ask_client(asked: ClientRequest, digest: str, asking: Question) -> ApprovalAnswer:
    """Ask the question and wait for the answer. Never raises for what a client does."""
    name = f"approve_{digest[:16]}"
    try:
        answer = (await asked.ask({name: asking}, use_given=False))[name]
    except (NoAnswer, CapabilityLacking, TimeoutError) as error:
        return _deny(f"the client was asked and gave no answer: {str(error) or 'it took too long'}")
    content: dict[str, Any] = answer.get("content") or {}
    run = content.get("run")
    if answer.get("action") == "accept" and not isinstance(run, bool):
        return _deny("the client's answer has no `run` that is true or false", "error")
    if answer.get("action") == "accept" and run:
        return ApprovalAnswer("once", by=BY)
    return _deny("denied by the person at the client", "person")


def _deny(note: str, refused_by: Refuser = "nobody") -> ApprovalAnswer:
    return ApprovalAnswer("deny", by=BY, note=note, refused_by=refused_by)


def _next_step(request: ApprovalRequest) -> str:
    rule = (
        next((offer.rule for offer in request.offers if offer.rule), "") or request.tool.full_name
    )
    return (
        f"whoever runs the server can allow it with the rule `{rule}` in `permissions.allow`, or "
        "`--allow`"
    )


def _question_text(request: ApprovalRequest) -> str:
    return (
        f"Allow `{request.tool.full_name}` to run? {escape_for_approval(request.reason)}.\n"
        f"{describe_call(request, MAX_MESSAGE)}"
    )
