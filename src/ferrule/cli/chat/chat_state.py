"""The state of a chat that its commands work on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from ferrule.cli.live_output import LiveOutput
from ferrule.cli.terminal_agent import TerminalAssembly
from ferrule.core.events import ModelAnswered, NoticeGiven, RunStarted
from ferrule.engine.live_events import Live
from ferrule.engine.session import Session

from .status import RunStatus
from .typed_ahead import has_typed

Choose = Callable[[str, Sequence[tuple[str, str]]], Awaitable[str]]
"""Has one of some (value, label) pairs chosen; returns "" for none."""


async def _make_no_choice(title: str, options: Sequence[tuple[str, str]]) -> str:
    return ""


async def _give_no_answer(text: str) -> str:
    return ""


@dataclass(slots=True)
class Chat:
    """The state of a chat.

    Attributes:
        session: The current session; `switch` replaces it.
        status: What the status line says.
        choose: Shows a picker.
        ask: Asks a question in one line; raises EOFError for no answer.
        next_message: Sent as soon as the command that set it has ended.
        stop_turn: Cancels the model's turn; None while there is none.
        has_ended_work: Whether something ended in the background that the model was not yet
            told of.
        wake: Called when that happens.
    """

    assembly: TerminalAssembly
    session: Session
    show: LiveOutput = field(init=False)
    status: RunStatus = field(init=False)
    choose: Choose = _make_no_choice
    ask: Callable[[str], Awaitable[str]] = _give_no_answer
    next_message: str = ""
    stop_turn: Callable[[], object] | None = None
    has_ended_work: bool = False
    wake: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self.status = RunStatus(lambda: self.session.mode, has_typed=has_typed)
        self.show = LiveOutput(
            self.assembly.terminal,
            lambda call_id: self.session.history.find_call(call_id),  # noqa: PLW0108  the session may change
            live=True,
        )

    def follow_session(self) -> None:
        """Show the session's events, and count them, from now on."""
        self.session.observe(self.status)
        self.session.observe(self.show)
        self.session.observe(self._note_ended_work)

    def _note_ended_work(self, item: Live) -> None:
        match item:
            case NoticeGiven(ended=True):
                self.has_ended_work = True
                self.wake()
            case ModelAnswered() | RunStarted():
                # A request takes along what had ended before it.
                self.has_ended_work = self.session.has_waiting_notices
            case _:
                pass

    async def switch(self, other: Session) -> None:
        """Close the current session and go on with another one."""
        mode = self.session.mode
        await self.assembly.close_session(self.session)
        self.session = other
        if other.mode != mode:
            other.set_mode(mode)
        self.follow_session()
