"""Questions to a person that wait for an answer in a browser.

A question is answered once, and only for the arguments it was asked about: an answer names their
digest. What may be granted is what the gate offered. Only an operator may give an answer that the
owner's settings would remember, or approve a call of critical risk.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import field
from secrets import token_hex

from ferrule.core.errors import FerruleError
from ferrule.core.value_class import frozen
from ferrule.permissions.approvals import ApprovalAnswer, ApprovalRequest
from ferrule.permissions.grant_proposals import GrantOffer

from .viewer import Viewer

MAX_NOTE = 2_000


class QuestionError(FerruleError):
    """An answer that does not count.

    Codes: `question_gone` (nobody asks that any more), `question_changed` (it is about other
    arguments), `answer_not_offered` (this person may not give that answer).
    """

    code = "question_gone"


@frozen
class Question:
    """A question that waits.

    `session` is the session whose run waits; `request.identity.session` is the one that asks, which
    differs for a sub-agent.
    """

    id: str
    tenant: str
    user: str
    session: str
    request: ApprovalRequest
    asked: int
    answered: asyncio.Future[ApprovalAnswer] = field(compare=False)

    def is_visible_to(self, viewer: Viewer) -> bool:
        """Return whether this viewer may see it, and answer it as far as `offers` allow."""
        return viewer.operator or (viewer.tenant, viewer.user) == (self.tenant, self.user)

    def offers(self, viewer: Viewer) -> tuple[GrantOffer, ...]:
        """Return the approvals this viewer may give."""
        request = self.request
        if request.risk == "critical" and not viewer.operator:
            return ()
        return tuple(
            offer
            for offer in request.offers
            if viewer.operator or offer.choice not in ("remember", "mode")
        )


class OpenQuestions:
    """All questions that wait. Used in the event loop of the runs."""

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        self._waiting: dict[str, Question] = {}
        self._on_change = changed

    def visible_to(self, viewer: Viewer) -> list[Question]:
        """Return the questions this viewer may answer or deny, the oldest first."""
        return [one for one in [*self._waiting.values()] if one.is_visible_to(viewer)]

    def of_session(self, session: str) -> list[Question]:
        """Return the questions asked in a session, or by a sub-agent that works for it."""
        return [
            one
            for one in [*self._waiting.values()]
            if session in (one.session, one.request.identity.session)
        ]

    async def ask(
        self, tenant: str, user: str, session: str, request: ApprovalRequest
    ) -> ApprovalAnswer:
        """Put up a question and wait for its answer. Cancelling withdraws the question."""
        waits: asyncio.Future[ApprovalAnswer] = asyncio.get_running_loop().create_future()
        asked = Question(
            token_hex(8), tenant, user, session, request, int(time.time() * 1000), waits
        )
        self._waiting[asked.id] = asked
        self._on_change()
        try:
            return await waits
        finally:
            del self._waiting[asked.id]
            self._on_change()

    def answer(
        self, viewer: Viewer, name: str, digest: str, choice: str, grant: str = "", note: str = ""
    ) -> Question:
        """Give a person's answer to the call that waits for it.

        Raises:
            QuestionError: the answer does not count, and nothing was decided.
        """
        asked = self._waiting.get(name)
        if asked is None or not asked.is_visible_to(viewer) or asked.answered.done():
            raise QuestionError("this question is no longer open: it was answered or withdrawn")
        if digest != asked.request.digest:
            raise QuestionError(
                "the arguments changed since the question was shown",
                code="question_changed",
                hint="read the question again",
            )
        note = " ".join(note.split())[:MAX_NOTE]
        if choice == "deny":
            said = f"denied by a person: {note}" if note else "denied by a person"
            asked.answered.set_result(ApprovalAnswer("deny", by=viewer.user, note=said))
            return asked
        for offer in asked.offers(viewer):
            if (offer.choice, offer.rule) == (choice, grant):
                asked.answered.set_result(
                    ApprovalAnswer(offer.choice, offer.rule, by=viewer.user, note=note)
                )
                return asked
        raise QuestionError("this answer was not offered", code="answer_not_offered")
