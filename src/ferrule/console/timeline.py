"""A session as entries of a page, built from its events.

The events come in the form of the bus (`engine.event_bus.events`), which holds no secrets, whether
they come from the bus or from the journal. So a page shows the same while a run continues, after
it, and in another process. Every entry knows the place of the event that changed it last: a reader
that has seen everything up to a place needs only the entries after it, and the work is proportional
to what is new.
"""

from __future__ import annotations

from typing import Any

from ferrule.core import events
from ferrule.core.call_states import assign_call_ids
from ferrule.core.calls import ToolCall, ToolResult
from ferrule.core.notices import PERSON_SOURCE
from ferrule.engine.event_bus.events import DROPPED, ArgumentsPiece, BusEvent, Place

from .entries import Card, End, Entry, Message, Note, Partial, PartialCall
from .typed_output import read_output

MAX_PROGRESS_LINES = 24
"""Lines of a running tool that are kept."""
MAX_PARTIAL_REASONING = 64_000
"""Characters of the reasoning before a streaming answer which are kept: its end."""
MAX_PARTIAL_ARGUMENT = 2_000
"""Characters of an argument that is being written which are kept: its end."""


class Timeline:
    """The entries of one session, as far as it was fed. Feed it every event once, in order."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.cards: dict[str, Card] = {}
        self.opened: events.SessionOpened | None = None
        self.partial = Partial()
        self.place = Place()
        self.cursor = ""
        self.runs = 0
        self.open_run = ""
        """The run that has started and not ended, or ""."""
        self.usage = events.Usage()
        self._recent: dict[int, Entry] = {}
        self._open: dict[str, Card] = {}
        self._ids: set[str] = set()
        self._answers = self._calls = self._began = 0
        self._is_typed = False

    def since(self, place: Place) -> list[Entry]:
        """Return the entries that changed after a place, in order."""
        found: list[Entry] = []
        for entry in reversed(self._recent.values()):
            if entry.changed <= place:
                break
            found.append(entry)
        return sorted(found, key=lambda entry: entry.number)

    def _touch(self, entry: Entry) -> None:
        """Mark an entry as changed now.

        The entries are kept in the order of their changes, so that what is new is found without
        looking at the rest.
        """
        entry.changed = self.place
        self._recent.pop(entry.number, None)
        self._recent[entry.number] = entry

    def feed(self, event: BusEvent) -> None:
        """Add the next event or streamed piece."""
        if event.sequence is None or event.sequence <= self.place:
            return
        if event.kind != DROPPED:
            self.place = event.sequence
            self.cursor = event.cursor
        payload = event.payload
        at = int(event.time * 1000)
        run = event.identity.run if event.identity else ""
        if event.sequence.piece:
            self._add_piece(event.kind, payload)
            return
        self._add_event(events.event_from_json(event.kind, payload), at, run)

    def _add_piece(self, kind: str, payload: dict[str, Any]) -> None:
        if kind == "piece.text":
            self.partial.text.add(str(payload["text"]))
            self.partial.place = self.place
        elif kind == "piece.reasoning":
            reasoning = self.partial.reasoning + str(payload["text"])
            self.partial.reasoning = reasoning[-MAX_PARTIAL_REASONING:]
            self.partial.place = self.place
        elif kind == "piece.arguments":
            self._add_arguments(ArgumentsPiece(**payload))
        elif kind in ("piece.progress", "approval.requested"):
            card = self.cards.get(str(payload["call_id"]))
            if card is not None:
                self._touch(card)
                if kind == "piece.progress" and payload.get("is_tail"):
                    card.progress = str(payload["text"]).splitlines()[-MAX_PROGRESS_LINES:]
                elif kind == "piece.progress":
                    card.progress = [*card.progress, str(payload["text"])][-MAX_PROGRESS_LINES:]
                else:
                    card.preview = str(payload["preview"])

    def _add_arguments(self, piece: ArgumentsPiece) -> None:
        call = self.partial.calls.setdefault(piece.call, PartialCall(piece.tool))
        call.tool = piece.tool
        text = call.arguments.get(piece.name, "") + piece.text
        call.arguments[piece.name] = text[-MAX_PARTIAL_ARGUMENT:]
        self.partial.place = self.place

    def _add_event(self, event: events.Event, at: int, run: str) -> None:
        match event:
            case events.SessionOpened():
                self.opened = event
            case events.RunStarted():
                self._start_run(event, at, run)
            case events.ModelAnswered():
                self._add_answer(event, at, run)
            case events.DirectCall():
                self._add(Card, at, run, event.call, direct=event.by)
            case events.RunFinished():
                self._end_run(event, at, run)
            case events.CallEvaluated() | events.PersonAnswered() | events.CallStarted():
                self._decide(event, at)
            case events.ToolAnswered():
                self._settle(event.result, at, run)
            case (
                events.CallHooked()
                | events.CallConfined()
                | events.ConsentAnswered()
                | events.DelegationStarted()
            ):
                self._add_details(event)
            case _:
                self._add_note(event, at, run)

    def _add(self, cls: Any, at: int, run: str, *values: Any, **more: Any) -> Any:
        entry = cls(len(self.entries), self.place, at, run, *values, **more)
        self.entries.append(entry)
        self._touch(entry)
        if isinstance(entry, Card):
            if (before := self._open.get(entry.call.id)) is not None:
                # Only in a journal that no driver wrote. Later events belong to the later call.
                before.settled = before.settled or "replaced"
                self._close(before)
            self._ids.add(entry.call.id)
            self.cards[entry.call.id] = self._open[entry.call.id] = entry
        return entry

    def _start_run(self, event: events.RunStarted, at: int, run: str) -> None:
        self.runs += 1
        self.open_run = run
        self._began = at
        self._is_typed = event.output_request is not None
        self._answers = 0
        self._calls = 0
        self._start_answer()
        self._add(Message, at, run, "person", event.text, source=event.model, media=event.media)

    def _start_answer(self) -> Partial:
        """Make room for the next answer. Return what had arrived of the last one."""
        before = self.partial
        # It has everything up to here: a page that still has pieces of the last answer drops them.
        self.partial = Partial(before.number + 1, place=self.place)
        return before

    def _add_answer(self, event: events.ModelAnswered, at: int, run: str) -> None:
        arrived = self._start_answer()
        self._answers += 1
        self.usage = self.usage + event.usage
        if event.text or event.reasoning or not event.calls:
            self._add(
                Message, at, run, "model", event.text,
                reasoning=event.reasoning, usage=event.usage, stop=event.stop, arrived=arrived,
            )  # fmt: skip
        for call in assign_call_ids(event, self._ids, self._answers).calls:
            self._calls += 1
            self._add(Card, at, run, call)
        for made in event.provider_calls:
            self._add(
                Note,
                at,
                run,
                "provider tool",
                f"{made.name or made.provider_tool_type}: {made.status}",
            )

    def _keep_cut_answer(self, text: str, at: int, run: str) -> None:
        """Keep what had arrived of an answer when the run was stopped."""
        self._start_answer()
        if text:
            self._add(Message, at, run, "model", f"{text}\n\n[cut here]")

    def _end_run(self, event: events.RunFinished, at: int, run: str) -> None:
        self.open_run = ""
        self._start_answer()
        for card in [one for one in self._open.values() if not one.direct]:
            card.settled = card.settled or event.stop
            self._close(card)
        seconds = (at - self._began) / 1000
        output = read_output(event.output_json) if self._is_typed and event.stop == "done" else None
        cards = (entry for entry in self.entries if isinstance(entry, Card) and entry.run == run)
        denied = sum(card.state == "refused" for card in cards)
        self._add(
            End,
            at,
            run,
            event,
            self.runs,
            self._answers,
            self._calls,
            seconds,
            denied=denied,
            output=output,
        )

    def _decide(self, event: Any, at: int) -> None:
        card = self.cards.get(event.call_id)
        if card is None:
            return
        self._touch(card)
        if isinstance(event, events.CallEvaluated):
            card.evaluated, card.asked = event, at
            if event.verdict == "ask":
                # The arguments or the rules changed, so the earlier answer no longer applies.
                card.answer = None
            if event.result is not None:
                card.result = event.result
                card.ended = at
                self._close(card)
        elif isinstance(event, events.PersonAnswered):
            card.answer, card.answered = event, at
            if event.choice == "deny":
                # No other event follows: the person's answer is the result.
                card.settled = "denied"
                card.ended = at
                self._close(card)
        else:
            card.started = at

    def _settle(self, result: ToolResult, at: int, run: str) -> None:
        card = self.cards.get(result.call_id)
        if card is None:
            card = self._add(Card, at, run, ToolCall(result.call_id, result.tool, ""))
        card.result, card.ended = result, at
        self._close(card)

    def _close(self, card: Card) -> None:
        self._touch(card)
        self._open.pop(card.call.id, None)

    def _add_details(self, event: Any) -> None:
        card = self.cards.get(event.call_id)
        if card is None:
            return
        self._touch(card)
        if isinstance(event, events.CallHooked):
            card.hooks.append(event)
        elif isinstance(event, events.CallConfined):
            card.confined.append(event)
        elif isinstance(event, events.ConsentAnswered):
            card.consents.append(event)
        else:
            card.delegated = event

    def _add_note(self, event: events.Event, at: int, run: str) -> None:
        match event:
            case events.ContextAdded():
                self._add(Message, at, run, "context", event.text)
            case events.HistoryGiven():
                self._add(Message, at, run, "context", event.messages)
            case events.NoticeGiven():
                by = "person" if event.source == PERSON_SOURCE else "context"
                self._add(
                    Message, at, run, by, event.text, source="" if by == "person" else event.source
                )
            case events.Noticed():
                self._add(Note, at, run, event.topic, event.text)
            case events.ModelFailed():
                self._keep_cut_answer(event.text, at, run)
                said = f"{event.detail} {event.hint}".strip()
                self._add(Note, at, run, f"model error ({event.code})", said)
            case events.Recovered() if self.open_run:
                self._add(Note, at, run, "resumed", event.reason or "another process took over")
            case events.LimitHit():
                self._keep_cut_answer(event.text, at, run)
                self._add(Note, at, run, "limit", f"{event.limit}: {event.value:g} reached")
            case events.Cancelled():
                self._keep_cut_answer(event.text, at, run)
                what = f"call {event.call_id}" if event.call_id else "the run"
                self._add(Note, at, run, "stopped", f"{what}: {event.reason}")
            case _:
                pass
