"""What may be added to a session: hooks, delegation, tools that are registered while it runs.

An extension is an object that is given to the `Driver`. It overrides the methods it needs; a session
without extensions pays for none of them. With several, the last one given is the outermost: its
`before_` methods are called first and its `after_` methods last.
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
        """Get to know the driver. Called once, before anything else, with its log already open."""
        self.driver = driver

    def resources(self) -> Mapping[type, object]:
        """Objects that tools of the session find with `Context.resource`."""
        return {}

    # ---- the session

    def before_open(self, opened: SessionOpened | None) -> SessionOpened | None:
        """Return the session's first event, perhaps changed; None for a session from a journal."""
        return opened

    def after_open(self) -> None:
        """The session has its lease."""

    def rebuild(self, events: Sequence[Event]) -> None:
        """Take from a journal what this extension must know of the session's past."""

    async def start(self) -> None:
        """Called before anything is done in the session, every time. Raising refuses it."""

    def release(self) -> None:
        """Another driver takes the session over: ask to be told of nothing any more."""

    def take_over(self, previous: Driver) -> None:
        """Go on with a session that another driver has begun."""

    # ---- runs

    def before_run(self, started: RunStarted) -> None:
        """A message is about to be worked on."""

    async def before_turns(self, started: RunStarted) -> RunStarted:
        """Return the run's first event, perhaps changed. Called again for each continuation."""
        return started

    async def after_turns(self, finish: Finish, continuations: int, *, last: bool) -> str:
        """Return a text that the model must go on with, or "" if the run is over.

        Args:
            finish: How the run ended.
            continuations: How often this message was already sent on.
            last: Whether a text would be ignored.
        """
        return ""

    def before_resume(self) -> None:
        """A run that another process left open is about to be finished."""

    async def run_ended(self) -> None:
        """A run ended, however it did. Called before its result is returned."""

    # ---- within a run

    def before_event(self, event: Event) -> None:
        """Called for each event before the machine gets it. Must be quick and must not raise."""

    async def open_exchange(self, open: Callable[[], Awaitable[Exchange]]) -> Exchange:
        """Return the conversation with the model; `open` makes a new one."""
        return await open()

    def reset_exchange(self) -> None:
        """The conversation was forgotten: the next question opens another one."""

    async def before_question(self, turn: int) -> list[Command] | None:
        """Return commands to carry out instead of asking the model; None to ask it."""
        return None

    async def after_question(self, commands: list[Command]) -> list[Command]:
        """Return what to do after the model's answer."""
        return commands

    def question_turn(self) -> AbstractAsyncContextManager[object]:
        """Return what is held while a person is asked."""
        return nullcontext()
