"""Questions to a person that wait for an answer in a browser.

A question is answered once, and only for the arguments that it was asked about: an answer names
their digest. What may be granted is what the gate offered, and less for whoever is not an operator:
what the owner's settings would remember is the owner's to say, and so is critical risk.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from secrets import token_hex

from ferrule.core.errors import FerruleError
from ferrule.permissions.approvals import Answer, ApprovalRequest
from ferrule.permissions.grant_proposals import Offer

from .viewer import Viewer

MOST_NOTE = 2_000


class QuestionError(FerruleError):
    """An answer that does not count: nobody asks that any more (`question_gone`), about something
    else (`question_changed`), or not this person (`answer_not_offered`).
    """

    code = "question_gone"


@dataclass(frozen=True, slots=True)
class Question:
    """One that waits. `session` is whose run stands still, `request.identity.session` the one that
    asks: a sub-agent's differs.
    """

    id: str
    tenant: str
    user: str
    session: str
    request: ApprovalRequest
    asked: int
    answered: asyncio.Future[Answer] = field(compare=False)

    def seen_by(self, viewer: Viewer) -> bool:
        """Whether this person may see it, and answer it as far as `offers` say."""
        return viewer.operator or (viewer.tenant, viewer.user) == (self.tenant, self.user)

    def offers(self, viewer: Viewer) -> tuple[Offer, ...]:
        """What this person may say yes to, and how far."""
        request = self.request
        if request.risk == "critical" and not viewer.operator:
            return ()
        if request.died:
            return (Offer("once", ""),)
        return tuple(
            offer for offer in request.offers if viewer.operator or offer.choice != "remember"
        )


class Questions:
    """All that wait. In the event loop of the runs."""

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        self._waiting: dict[str, Question] = {}
        self._changed = changed

    def seen_by(self, viewer: Viewer) -> list[Question]:
        """Those that this person may answer or deny, the oldest first."""
        return [one for one in [*self._waiting.values()] if one.seen_by(viewer)]

    def of_session(self, session: str) -> list[Question]:
        """What is asked in a session, or by a sub-agent that works for it."""
        return [
            one
            for one in [*self._waiting.values()]
            if session in (one.session, one.request.identity.session)
        ]

    async def ask(self, tenant: str, user: str, session: str, request: ApprovalRequest) -> Answer:
        """Wait for the answer. Cancelling withdraws the question."""
        waits: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        asked = Question(
            token_hex(8), tenant, user, session, request, int(time.time() * 1000), waits
        )
        self._waiting[asked.id] = asked
        self._changed()
        try:
            return await waits
        finally:
            del self._waiting[asked.id]
            self._changed()

    def answer(
        self, viewer: Viewer, name: str, digest: str, choice: str, grant: str = "", note: str = ""
    ) -> Question:
        """Answer a question. Raises QuestionError, and then nothing is decided."""
        asked = self._waiting.get(name)
        if asked is None or not asked.seen_by(viewer) or asked.answered.done():
            raise QuestionError("nobody asks that any more: it was answered, or taken back")
        if digest != asked.request.digest:
            raise QuestionError(
                "the answer is about other arguments than the question",
                code="question_changed",
                hint="look at it again",
            )
        note = " ".join(note.split())[:MOST_NOTE]
        if choice == "deny":
            said = f"denied by a person: {note}" if note else "denied by a person"
            asked.answered.set_result(Answer("deny", by=viewer.user, note=said))
            return asked
        for offer in asked.offers(viewer):
            if (offer.choice, offer.rule) == (choice, grant):
                asked.answered.set_result(
                    Answer(offer.choice, offer.rule, by=viewer.user, note=note)
                )
                return asked
        raise QuestionError("that answer was not offered", code="answer_not_offered")
