"""Connect a session to the bus: its log gets an outlet, and approval requests are announced."""

from __future__ import annotations

from collections.abc import Callable

from ferrule.core.value_class import frozen
from ferrule.engine.hooks.events import NotJson, json_value
from ferrule.engine.session_log import SessionLog
from ferrule.permissions.approvals import ApprovalAnswer, ApprovalRequest, Approver

from .bus import Bus, Feed
from .events import ApprovalRequested


@frozen
class AnnouncingApprover:
    """An approver whose requests subscribers see, without secrets.

    The approver itself gets the request unchanged.
    """

    approver: Approver
    feed: Feed

    @property
    def asks_about_unknown(self) -> bool:
        """Whether the approver asks a person about unknown outcomes."""
        return bool(getattr(self.approver, "asks_about_unknown", False))

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Announce the request to subscribers, then ask the approver."""
        if request.identity.session == self.feed.key[2]:
            # A sub-agent's question passes here too: it belongs to the sub-agent's own session.
            self.feed.publish(_describe(request))
        return await self.approver.ask(request)


def open_feed(bus: Bus, recorded: int, find_address: Callable[[str], str], log: SessionLog) -> Feed:
    """Return what publishes a session, which has `recorded` events so far, to subscribers.

    `find_address` returns the URL at which the session reaches a model, by the model's name.
    """
    return bus.feed(
        lambda: log.identity, journal=log.journal, recorded=recorded, find_address=find_address
    )


def announce_questions(log: SessionLog, approver: Approver) -> AnnouncingApprover:
    """Return an approver whose questions the subscribers of a session see."""
    assert isinstance(log.outlet, Feed)
    return AnnouncingApprover(approver, log.outlet)


def _describe(request: ApprovalRequest) -> ApprovalRequested:
    try:
        arguments = json_value(dict(request.values))
    except NotJson as garbage:
        # Arguments that have no JSON form: the event says so. The request itself is not held up.
        arguments = {"(not shown)": str(garbage)}
    return ApprovalRequested(
        request.call.id,
        request.tool.full_name,
        request.risk,
        request.reason,
        request.digest,
        request.labels,
        request.preview,
        arguments,
    )
