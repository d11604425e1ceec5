"""Replay: a recorded session goes through today's machine again, offline, with the same outcome.

The journal holds everything that came from outside (answers of models, tools and people); what
follows from it is decided by the machine. So a replay feeds the recording to a new machine and
checks, event by event,

* that each event answers a command which is open at that point: nothing was evaluated, asked, run
  or answered that the machine had not ordered, and nothing that it ordered was left out;
* that each run ends as recorded: stop, text, code, tokens, and the digest of the history, byte for
  byte (`session_log.HistoryDigest`).

It does not show that tools or models would answer the same again. `engine.replay.rerun` asks them.
"""

from __future__ import annotations

from collections.abc import Iterable

from ferrule.core import events
from ferrule.core.commands import (
    AskModel,
    CheckOutput,
    Command,
    EvaluateCall,
    FinishRun,
    RequestApproval,
    ResolveOutcome,
    RunCall,
    StopCall,
)
from ferrule.core.machine import Machine
from ferrule.core.value_class import frozen
from ferrule.engine.session_log import HistoryDigest


@frozen
class Difference:
    """Where a replay differs from the recording: at this event of the session, for this reason."""

    seq: int
    what: str

    def __str__(self) -> str:
        return f"event {self.seq}: {self.what}"


@frozen
class ReplayReport:
    """The report about one session.

    `histories` holds the digest of each finished run, by its id; `unproven` counts the runs whose
    recording has none, since an older version wrote it.
    """

    session: str
    events: int
    runs: int
    histories: dict[str, str]
    unproven: int
    differences: tuple[Difference, ...]

    @property
    def same(self) -> bool:
        """Whether everything came out as recorded."""
        return not self.differences


def replay(records: Iterable[events.JournalRecord]) -> ReplayReport:
    """Replay a whole session, from its first event.

    It stops at the first difference: all later ones follow from it.
    """
    replaying = _Replay()
    for record in records:
        what = replaying.take(record)
        if what:
            replaying.differences.append(Difference(record.seq, what))
            break
    return ReplayReport(
        replaying.session,
        replaying.count,
        replaying.runs,
        replaying.histories,
        replaying.unproven,
        tuple(replaying.differences),
    )


class _Replay:
    def __init__(self) -> None:
        self.session = ""
        self.count = self.runs = self.unproven = 0
        self.histories: dict[str, str] = {}
        self.differences: list[Difference] = []
        self._machine = Machine()
        self._shown = HistoryDigest()
        self._open: list[Command] = []

    def take(self, record: events.JournalRecord) -> str:
        """Process the next event, and return what is wrong with it, or ""."""
        event = record.event
        self.session = record.session
        self.count += 1
        if self.count != record.seq:
            return f"event {self.count} should be here"
        if self.count == 1 and not isinstance(event, events.SessionOpened):
            return f"a session begins with `session.opened`, not with `{event.kind}`"
        if isinstance(event, events.RunStarted):
            self.runs += 1
        if isinstance(event, events.RunFinished):
            return self._finish(record.run, event)
        what = self._match_unordered(event)
        if what:
            return what
        if isinstance(event, (events.Recovered, events.RunStarted)):
            # The commands of a dead process are given again.
            self._open = [command for command in self._open if _is_direct(self._machine, command)]
        commands = self._machine.feed(event)
        if isinstance(event, events.Recovered):
            self._open = []
        self._open += commands
        self._drop_void_commands()
        return ""

    def _match_unordered(self, event: events.Event) -> str:
        """Remove the command that the event answers; return an explanation if there is none."""
        kinds = _ANSWERS.get(type(event))
        if kinds is None:
            return ""
        call_id = _event_call_id(event)
        for command in self._open:
            if isinstance(command, kinds) and call_id in ("", _command_call_id(command)):
                # A call that was only announced is still to be answered.
                if not isinstance(event, events.CallStarted):
                    self._open.remove(command)
                return ""
        about = f" for `{call_id}`" if call_id else ""
        return f"`{event.kind}`{about}, and nothing asked for it then"

    def _drop_void_commands(self) -> None:
        """Remove commands for calls that were stopped or settled, and so have a result."""
        finishing = any(isinstance(command, FinishRun) for command in self._open)
        self._open = [
            command
            for command in self._open
            if isinstance(command, FinishRun)
            or (isinstance(command, (AskModel, CheckOutput)) and not finishing)
            or (
                not isinstance(command, (AskModel, CheckOutput))
                and _is_waiting(self._machine, _command_call_id(command))
            )
        ]

    def _finish(self, run: str, recorded: events.RunFinished) -> str:
        finish = next((command for command in self._open if isinstance(command, FinishRun)), None)
        if finish is None:
            still = (
                ", ".join(sorted({type(command).__name__ for command in self._open})) or "nothing"
            )
            return (
                f"the run ends here as `{recorded.stop}`; in the replay it goes on (open: {still})"
            )
        self._open.remove(finish)
        digest = self._shown.digest(self._machine.history)
        for name in ("stop", "text", "code", "detail", "usage"):
            was, now = getattr(recorded, name), getattr(finish, name)
            if was != now:
                return (
                    f"the run ended with {name} {_shorten(was)}; in the replay with {_shorten(now)}"
                )
        self._machine.feed(recorded)
        if not recorded.history:
            self.unproven += 1
        elif recorded.history != digest:
            return (
                f"the history is another one: digest {digest[:16]}…, recorded "
                f"{recorded.history[:16]}…"
            )
        self.histories[run] = digest
        return ""


_ANSWERS: dict[type, tuple[type, ...]] = {
    events.ModelAnswered: (AskModel,),
    events.ModelFailed: (AskModel,),
    events.OutputChecked: (CheckOutput,),
    events.CallEvaluated: (EvaluateCall, RunCall),
    events.PersonAnswered: (RequestApproval,),
    events.CallStarted: (RunCall,),
    events.CallProbed: (ResolveOutcome,),
    events.ToolAnswered: (RunCall, StopCall, RequestApproval, ResolveOutcome),
}
"""Which commands an event answers.

All other events come from outside without a command: a person, a tool's notice, the end of a
process.
"""


def _event_call_id(event: events.Event) -> str:
    if isinstance(event, events.ToolAnswered):
        return event.result.call_id
    return str(getattr(event, "call_id", ""))


def _command_call_id(command: Command) -> str:
    if isinstance(command, (AskModel, CheckOutput, FinishRun)):
        return ""
    return command.call.id


def _is_waiting(machine: Machine, call_id: str) -> bool:
    slot = machine.find_slot(call_id)
    return slot is not None and slot.result is None


def _is_direct(machine: Machine, command: Command) -> bool:
    slot = machine.find_slot(_command_call_id(command))
    return slot is not None and slot.direct


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
