"""Reload: a session continues with another agent: other tools, hooks, rules and settings.

What stays is what the session is: its journal and lease, its history, its system text, its memory
with its background tasks, its observers and its approver. What is new comes from the agent; the
model is asked anew, with the whole history.

* It happens between messages: `Agent.take_over` refuses while something runs.
* The system text stays, and unchanged tools keep their places, their names in requests and their
  bytes (`continue_catalog`). New or changed ones come last; what else a model should know is in its
  next message.
* A session grant for a tool that has changed is dropped: it was given to another tool.
* New hooks get no `session.start`, which is over; removed hooks are not asked again, not even at
  the session's end.
* What a script registered for the session is lost, as when a session is resumed, and the model is
  told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ferrule.core.errors import ConfigError
from ferrule.core.events import JournalRecord
from ferrule.permissions.rules import PermissionRule, matches_tool
from ferrule.tools.catalog import Catalog
from ferrule.tools.definition import Tool
from ferrule.tools.names import make_free_api_name

from .driver import Driver
from .registration.registration import SOURCE
from .registration.session_catalog import SessionCatalog
from .session import Session

_FORGOTTEN = "What was registered in this session is gone with the files that brought it: {}."


class ContinuedCatalog(Catalog):
    """A catalog in the order of an earlier one, with its names in requests for unchanged tools."""

    def __init__(self, tools: Iterable[Tool], before: Catalog) -> None:
        old_names = before.api_names()
        now = {tool.full_name: tool for tool in tools}
        self._kept = {
            tool.full_name: old_names[tool.full_name]
            for tool in before
            if tool.full_name in now and is_same_tool(tool, now[tool.full_name])
        }
        super().__init__(now.values())

    def _name_table(self) -> dict[str, str]:
        if self._by_api_name is None:
            named = dict(self._kept)
            taken = set(self._kept.values())
            for name in self._tools:
                if name not in named:
                    named[name] = make_free_api_name(name, taken)
                    taken.add(named[name])
            self._by_api_name = {api_name: name for name, api_name in named.items()}
        return self._by_api_name

    def api_names(self) -> dict[str, str]:
        """See `Catalog.api_names`; in the order of this catalog."""
        return {name: api_name for api_name, name in self._name_table().items()}

    def __iter__(self) -> Iterator[Tool]:
        tools = self._tools
        order = (*self._kept, *(name for name in tools if name not in self._kept))
        return iter(tuple(tools[name] for name in order))


def is_same_tool(one: Tool, other: Tool) -> bool:
    """Whether a model and a person would see no difference between two tools of one name."""

    def describe_tool(tool: Tool) -> tuple[object, ...]:
        effects = (tool.side_effect, tool.risk, tool.source, tool.loading, tuple(tool.touches))
        return tool.description, tool.schema_json(), tuple(map(repr, tool.examples)), effects

    return describe_tool(one) == describe_tool(other)


def continue_catalog(tools: Catalog, before: Catalog) -> Catalog:
    """Return these tools for sessions that had `before`.

    Unchanged tools keep their places, the others come last.
    """
    return ContinuedCatalog(tools, before)


def take_over_session(
    session: Session[Any],
    make: Callable[[str, str, Driver], Session[Any]],
    *,
    changed: Iterable[str] = (),
) -> None:
    """Replace a session's driver by that of a session which `make` builds.

    Args:
        session: The session.
        make: Builds a session from an id, a system text and the driver that it takes over from.
        changed: Names of tools whose grants end.

    Raises:
        ConfigError: The session is busy; then nothing has changed.
    """
    old = session.driver
    if old.machine.is_active or old.machine.open_calls():
        raise ConfigError(
            "the session is busy: what changed takes effect with its next message", code="busy"
        )
    made = make(session.id, session.system, old)
    new = made.driver
    _hand_over(old, new)
    _restore_grants(old, new, tuple(changed))
    _restore_history(new)
    session.continue_as(made)


def _hand_over(old: Driver, new: Driver) -> None:
    catalog = old.dispatcher.catalog
    lost = catalog.added if isinstance(catalog, SessionCatalog) else ()
    for extension in old.extensions:
        extension.release()
    for extension in new.extensions:
        extension.take_over(old)
    if lost:
        listed = ", ".join(f"`{tool.full_name}`" for tool in lost)
        new.inbox.put(_FORGOTTEN.format(listed), SOURCE)


def _restore_grants(old: Driver, new: Driver, changed: tuple[str, ...]) -> None:
    def is_affected(rule: PermissionRule) -> bool:
        return not rule.kind and any(matches_tool(rule, name) for name in changed)

    new.dispatcher.gate.start_as(old.dispatcher.gate)
    for rule in old.dispatcher.gate.grants.rules:
        if rule.layer == "session" and not is_affected(rule):
            new.dispatcher.gate.grant(rule.text)


def _restore_history(new: Driver) -> None:
    records: Iterable[JournalRecord] = ()
    if new.dispatcher.tool_discovery is not None and new.log.is_recorded:
        records = new.log.journal.records(new.log.identity.session)
    new.restore_calls(record.event for record in records)
