"""The history of a session: its messages, calls and media, and the receipts of its runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

from ferrule.core.calls import ToolCall
from ferrule.core.events import RunFinished, RunStarted
from ferrule.core.media import MediaReference
from ferrule.core.messages import Message
from ferrule.core.value_class import frozen

from .driver import Driver
from .message_history import MessageHistory


@frozen
class SessionHistory(Sequence[Message]):
    """The messages of a session so far, as the model is sent them.

    It is a sequence: `session.history[-1]` is the last message, `len` their number.
    """

    driver: Driver

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | Sequence[Message]:
        return self.driver.machine.history[index]

    def __len__(self) -> int:
        return len(self.driver.machine.history)

    def __repr__(self) -> str:
        return repr(self.driver.machine.history)

    def __iter__(self) -> Iterator[Message]:
        return iter(self.driver.machine.history)

    def add_context(self, text: str) -> None:
        """Add text as the person's message, without asking for an answer."""
        self.driver.add_context(text)

    def list_run_messages(self) -> list[str]:
        """Return the person's message of each finished run, in order."""
        texts: list[str] = []
        text = ""
        log = self.driver.log
        for record in log.journal.records(log.identity.session) if log.is_recorded else ():
            if isinstance(record.event, RunStarted):
                text = record.event.text
            elif isinstance(record.event, RunFinished):
                texts.append(text)
        return texts

    def find_call(self, call_id: str) -> ToolCall | None:
        """Return a call of the current run by its id; None if there is none."""
        slot = self.driver.machine.find_slot(call_id)
        return None if slot is None else slot.call

    def forget_call(self, call_id: str) -> None:
        """Drop the arguments and the result of a finished call, which the journal has.

        For programs that make direct calls for days: the session keeps both in memory.
        """
        self.driver.machine.forget_call(call_id)

    def read_media(self, one: MediaReference) -> bytes:
        """Return the bytes of a medium of a result. Raises ProviderError if they are gone."""
        return self.driver.open_media().read(one)

    def keep_media(self, one: MediaReference, read: Callable[[MediaReference], bytes]) -> None:
        """Keep a medium of another session. Raises ConfigError if its bytes are not its own."""
        self.driver.open_media().copy_from(one, read)

    def copy_media(self, earlier: MessageHistory) -> None:
        """Keep the media of an earlier conversation as this session's own.

        Raises ConfigError if their bytes are not to be had.
        """
        for one in earlier.list_media():
            self.keep_media(one, earlier.get_media)

    def receipts(self) -> list[dict[str, Any]]:
        """Return the receipt of each run so far: digests, approvals, effects and cost, no data.

        See `storage.audit.receipts`.
        """
        from ferrule.storage.audit.receipts import build_receipts

        log = self.driver.log
        if not log.is_recorded:
            return []
        return list(build_receipts(log.journal.records(log.identity.session)))
