"""The base of what may be added to a session: hooks, delegation, registration of tools.

An extension is an object that is given to the `Driver`. It overrides the methods it needs; a
session without extensions pays for none of them. With several, the last one given is the outermost:
its `before_` methods are called first and its `after_` methods last.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING

from ferrule.core.commands import Command, Finish
from ferrule.core.events import Event, RunStarted, SessionOpened
from ferrule.models.client import Exchange

if TYPE_CHECKING:
    from .driver import Driver


class DriverExtension:
    """The base of all extensions: every method does nothing."""

    driver: Driver

    def attach(self, driver: Driver) -> None:
        """Set the driver. Called once, before anything else, with its log already open."""
        self.driver = driver

    def resources(self) -> Mapping[type, object]:
        """Objects that tools of the session find with `Context.resource`."""
        return {}

    # ---- the session

    def before_open(self, opened: SessionOpened | None) -> SessionOpened | None:
        """Return the session's first event, perhaps changed; None for a session from a journal."""
        return opened

    def after_open(self) -> None:
        """Called once the session has its lease."""

    def rebuild(self, events: Sequence[Event]) -> None:
        """Restore from a journal what this extension must know of the session's past."""

    async def start(self) -> None:
        """Called before anything is done in the session, every time. Raising refuses it."""

    def release(self) -> None:
        """Release the session, which another driver takes over: stop all notifications."""

    def take_over(self, previous: Driver) -> None:
        """Continue a session that another driver has started."""

    # ---- runs

    def before_run(self, started: RunStarted) -> None:
        """Called before a message is worked on."""

    async def before_turns(self, started: RunStarted) -> RunStarted:
        """Return the run's first event, perhaps changed. Called again for each continuation."""
        return started

    async def after_turns(self, finish: Finish, continuations: int, *, last: bool) -> str:
        """Return a text with which the run must continue, or "" if it is over.

        Args:
            finish: How the run ended.
            continuations: How often this run was already continued.
            last: Whether a text would be ignored.
        """
        return ""

    def before_resume(self) -> None:
        """Called before a run is finished that another process left open."""

    async def run_ended(self) -> None:
        """Called when a run has ended for whatever reason, before its result is returned."""

    # ---- within a run

    def before_event(self, event: Event) -> None:
        """Called for each event before the machine gets it. Must be quick and must not raise."""

    async def open_exchange(self, open: Callable[[], Awaitable[Exchange]]) -> Exchange:
        """Return the exchange with the model; `open` makes a new one."""
        return await open()

    def reset_exchange(self) -> None:
        """Called when the exchange is forgotten: the next request opens another one."""

    async def before_question(self, turn: int) -> list[Command] | None:
        """Return commands to carry out instead of asking the model; None to ask it."""
        return None

    async def after_question(self, commands: list[Command]) -> list[Command]:
        """Return what to do after the model's answer."""
        return commands

    def question_turn(self) -> AbstractAsyncContextManager[object]:
        """Return a context manager that is held while a person is asked."""
        return nullcontext()
