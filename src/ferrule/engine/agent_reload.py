"""Reload: a session continues with another agent: other tools, hooks, rules and settings.

What stays is what the session is: its journal and lease, its history, its system text, its memory
with its background tasks, its observers and its approver. What is new comes from the agent; the
model is asked anew, with the whole history.

* It happens between messages: `Agent.take_over` refuses while something runs.
* The system text stays, and unchanged tools keep their places, their names in requests and their
  bytes (`continued`). New or changed ones come last; what else a model should know is in its next
  message.
* A session grant for a tool that has changed is dropped: it was given to another tool.
* New hooks get no `session.start`, which is over; removed hooks are not asked again, not even at
  the session's end.
* What a script registered for the session is lost, as when a session is resumed, and the model is
  told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ferrule.core.errors import ConfigError
from ferrule.core.machine import Machine
from ferrule.permissions.rules import Rule, names_tool
from ferrule.tools.catalog import Catalog
from ferrule.tools.definition import Tool
from ferrule.tools.names import wire_name_beside

from .driver import Driver
from .registration.registration import SOURCE
from .registration.session_catalog import SessionCatalog
from .session import Session

_FORGOTTEN = "What was registered in this session is gone with the files that brought it: {}."


class ContinuedCatalog(Catalog):
    """A catalog in the order of an earlier one, with its names in requests for unchanged tools."""

    def __init__(self, tools: Iterable[Tool], before: Catalog) -> None:
        wired = before.wire_table()
        now = {tool.full_name: tool for tool in tools}
        self._kept = {
            tool.full_name: wired[tool.full_name]
            for tool in before
            if tool.full_name in now and same(tool, now[tool.full_name])
        }
        super().__init__(now.values())

    def _wire(self) -> dict[str, str]:
        if self._by_wire is None:
            named = dict(self._kept)
            taken = set(self._kept.values())
            for name in self._tools:
                if name not in named:
                    named[name] = wire_name_beside(name, taken)
                    taken.add(named[name])
            self._by_wire = {wire: name for name, wire in named.items()}
        return self._by_wire

    def wire_table(self) -> dict[str, str]:
        """See `Catalog.wire_table`; in the order of this catalog."""
        return {name: wire for wire, name in self._wire().items()}

    def __iter__(self) -> Iterator[Tool]:
        tools = self._tools
        order = (*self._kept, *(name for name in tools if name not in self._kept))
        return iter(tuple(tools[name] for name in order))


def same(one: Tool, other: Tool) -> bool:
    """Whether a model and a person would see no difference between two tools of one name."""

    def seen(tool: Tool) -> tuple[object, ...]:
        effects = (tool.side_effect, tool.risk, tool.source, tool.loading, tuple(tool.touches))
        return tool.description, tool.schema_json(), tuple(map(repr, tool.examples)), effects

    return seen(one) == seen(other)


def continued(tools: Catalog, before: Catalog) -> Catalog:
    """Return these tools for sessions that had `before`.

    Unchanged tools keep their places, the others come last.
    """
    return ContinuedCatalog(tools, before)


def renew(
    session: Session, make: Callable[[str, str, Machine], Session], *, changed: Iterable[str] = ()
) -> None:
    """Replace a session's driver by that of a session which `make` builds.

    Args:
        session: The session.
        make: Builds a session from an id, a system text and a machine.
        changed: Names of tools whose grants end.

    Raises:
        ConfigError: The session is busy; then nothing has changed.
    """
    old = session.driver
    if old.machine.active or old.machine.open_calls():
        raise ConfigError(
            "the session is busy: what changed takes effect with its next message", code="busy"
        )
    made = make(session.id, session.system, old.machine)
    new = made.driver
    _hand_over(old, new)
    _grant_again(old, new, tuple(changed))
    _recall(new)
    session.driver = new
    session.model = made.model
    session.limits = made.limits
    session.join = made.join
    session.require = made.require


def _hand_over(old: Driver, new: Driver) -> None:
    catalog = old.dispatcher.catalog
    lost = catalog.added if isinstance(catalog, SessionCatalog) else ()
    new.log = old.log
    new.memory = old.memory
    new.closers = old.closers
    new.approver = old.approver
    new.elapsed = old.elapsed
    new.inbox.loop = old.inbox.loop
    for extension in old.extensions:
        extension.release()
    for extension in new.extensions:
        extension.take_over(old)
    if lost:
        listed = ", ".join(f"`{tool.full_name}`" for tool in lost)
        new.inbox.tell(_FORGOTTEN.format(listed), SOURCE)


def _grant_again(old: Driver, new: Driver, changed: tuple[str, ...]) -> None:
    def touched(rule: Rule) -> bool:
        return not rule.kind and any(names_tool(rule, name) for name in changed)

    for rule in old.dispatcher.gate.grants.rules:
        if rule.layer == "session" and not touched(rule):
            new.dispatcher.gate.grant(rule.text)


def _recall(new: Driver) -> None:
    """Restore what a new dispatcher must know of the history.

    What was found by tool search, and that old messages were checked when they were new.
    """
    if new.dispatcher.keeper is not None:
        new.dispatcher.keeper.settled = len(new.machine.history)
    searching = new.dispatcher.searching
    if searching is None:
        return
    searching.record = new.log.add
    if new.log.begun:
        session = new.log.identity.session
        searching.recall(record.event for record in new.log.journal.records(session))
