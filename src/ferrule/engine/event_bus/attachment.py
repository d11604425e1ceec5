"""Puts a session on the bus: its log gets an outlet, and questions to a person are told of before
they are asked.
"""

from __future__ import annotations

from dataclasses import replace

from ferrule.core.frozen import frozen
from ferrule.engine.driver import Driver
from ferrule.engine.hooks.events import Garbage, json_value
from ferrule.permissions.approvals import Answer, ApprovalRequest, Approver

from .bus import Bus, Feed
from .events import ApprovalAsked


@frozen
class Announced:
    """An approver whose questions subscribers see, without secrets. The approver gets the request
    as it is.
    """

    approver: Approver
    feed: Feed

    @property
    def asks_about_unknown(self) -> bool:
        """As the approver says of itself."""
        return bool(getattr(self.approver, "asks_about_unknown", False))

    async def ask(self, request: ApprovalRequest) -> Answer:
        """As `Approver.ask`."""
        if request.identity.session == self.feed.key[2]:
            # A sub-agent's question passes here too: it belongs to the sub-agent's own session.
            self.feed.publish(_shown(request))
        return await self.approver.ask(request)


def change_approver(driver: Driver, approver: Approver) -> None:
    """Have somebody else asked from now on; subscribers go on seeing the questions."""
    known = driver.approver
    driver.approver = (
        replace(known, approver=approver) if isinstance(known, Announced) else approver
    )


def attach(bus: Bus, driver: Driver, recorded: int = 0) -> None:
    """Let subscribers see what happens in a session, which has `recorded` events so far."""
    log = driver.log
    feed = bus.feed(lambda: log.identity, journal=log.journal, recorded=recorded)
    log.outlet = feed
    driver.approver = Announced(driver.approver, feed)


def _shown(request: ApprovalRequest) -> ApprovalAsked:
    try:
        arguments = json_value(dict(request.values))
    except Garbage as garbage:
        # Arguments that have no JSON form: the event says so. The question itself is not held up.
        arguments = {"(not shown)": str(garbage)}
    return ApprovalAsked(
        request.call.id,
        request.tool.full_name,
        request.risk,
        request.reason,
        request.digest,
        request.labels,
        request.preview,
        arguments,
    )
