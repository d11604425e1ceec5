"""Connect a session to the bus: its log gets an outlet, and approval requests are announced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ferrule.core.value_class import frozen
from ferrule.engine.driver import Driver
from ferrule.engine.hooks.events import NotJson, json_value
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


def change_approver(driver: Driver, approver: Approver) -> None:
    """Replace the approver; subscribers still see the requests."""
    known = driver.approver
    if isinstance(known, AnnouncingApprover):
        approver = replace(known, approver=approver)
    driver.approver = approver


def attach_session(
    bus: Bus,
    driver: Driver,
    recorded: int = 0,
    find_address: Callable[[str], str] | None = None,
) -> None:
    """Let subscribers see what happens in a session, which has `recorded` events so far.

    `find_address` returns the URL at which the session reaches a model, by the model's name.
    """
    log = driver.log
    feed = bus.feed(lambda: log.identity, journal=log.journal, recorded=recorded)
    feed.find_address = find_address
    log.outlet = feed
    driver.dispatcher.enter_scope = bus.enter_scope
    driver.approver = AnnouncingApprover(driver.approver, feed)


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
