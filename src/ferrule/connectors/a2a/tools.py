"""A peer's skills as tools of a run: `peer__skill`, decided on by the gate like all others.

A skill does something elsewhere, as far as anybody can tell: `external`. The risk of its tools is
decided by the person (`trust`), never by the peer: a card says nothing that counts. So nothing is
sent twice automatically, unless it surely did not arrive.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ferrule.tools.define import SchemaArguments
from ferrule.tools.definition import READS, Loading, Risk, SideEffect, Tool
from ferrule.tools.reliability import Reliability

from .cards import Skill
from .http import CARD_SECONDS
from .messages import MAX_FILES, MAX_MESSAGE
from .peer_client import PeerClient
from .spec import A2aPeer, Trust

CONTEXT_PARAMETER = "ferrule context"
"""The parameter in which handlers get the context; no argument has this name."""
_GRACE_SECONDS = 10.0
"""Seconds that the dispatcher waits beyond the handler's own timeout, whose message says more."""
_RISKS: dict[Trust, Risk] = {"low": Risk.HIGH, "medium": Risk.MEDIUM, "high": Risk.LOW}
SCHEMA = {
    "type": "object",
    "properties": {
        "message": {
            "type": "string",
            "minLength": 1,
            "maxLength": MAX_MESSAGE,
            "description": (
                "What the agent should do, in full: it knows nothing of this conversation."
            ),
        },
        "data": {
            "type": "object",
            "description": "Values that go along with the message, as JSON.",
        },
        "files": {
            "type": "array",
            "items": {"type": "string"},
            "maxItems": MAX_FILES,
            "description": (
                "Files that go along: paths in the workspace, or names of artifacts (`art-…`)."
            ),
        },
        "task_id": {
            "type": "string",
            "description": (
                "Only to go on with a task that waits for an answer: the `task_id` of its result."
            ),
        },
    },
    "required": ["message"],
    "additionalProperties": False,
}


def full_name(peer: str, skill: Skill) -> str:
    """Return what a skill is called in rules, journals and the catalog."""
    return f"{peer}__{skill.tool_name}"


def is_selected(peer: A2aPeer, skill: str) -> bool:
    """Return whether the person wants a skill, by the peer's own id for it."""
    return (peer.only is None or skill in peer.only) and skill not in peer.without


def make_tools(client: PeerClient, skills: tuple[Skill, ...]) -> tuple[Tool, ...]:
    """Return the tools of a peer that are offered, sorted by name."""
    tools = [_skill_tool(client, skill) for skill in skills if is_selected(client.peer, skill.id)]
    return tuple(sorted(tools, key=lambda tool: tool.name))


def _skill_tool(client: PeerClient, skill: Skill) -> Tool:
    peer = client.peer
    name = full_name(peer.name, skill)
    policy = peer.policies.policy_for(skill.id).fill_from(Reliability(timeout=peer.timeout))
    seconds = policy.timeout or peer.timeout

    async def call(**values: Any) -> Any:
        context = values.pop(CONTEXT_PARAMETER)
        return await client.call(name, skill, values, context, seconds)

    return Tool(
        name=name,
        description=f"The A2A agent `{peer.name}` says: {skill.description}",
        arguments=SchemaArguments(name, SCHEMA),
        handler=call,
        side_effect=SideEffect.EXTERNAL,
        risk=_RISKS[peer.trust],
        touches={"files": READS},
        reliability=replace(policy, timeout=seconds + CARD_SECONDS + _GRACE_SECONDS),
        is_async=True,
        context_parameter=CONTEXT_PARAMETER,
        loading=Loading.DEFERRED if peer.deferred else Loading.ALWAYS,
        source=f"a2a {peer.name}",
        annotations={"a2a": {"peer": peer.name, "skill": skill.id, "hash": skill.hash}},
    )
