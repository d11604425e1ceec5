"""Test doubles for programs that use Ferrule: a clock that never waits, a recording approver."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ferrule.core.vocabulary import ApprovalChoice
from ferrule.permissions.approvals import ApprovalAnswer, ApprovalRequest


class FakeClock:
    """A clock that moves only by `sleep` and `advance`; `slept` lists the waits in seconds."""

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._ms = float(start_ms)
        self.slept: list[float] = []

    def now(self) -> float:
        return self._ms / 1000

    def monotonic(self) -> float:
        return self._ms / 1000

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Move the time forward."""
        self._ms += seconds * 1000


class RecordingApprover:
    """Answers approval requests from a list (the last answer repeats) or by a function.

    `requests` keeps all requests.
    """

    def __init__(
        self,
        answers: Iterable[ApprovalChoice] | Callable[[ApprovalRequest], ApprovalAnswer] = ("once",),
    ) -> None:
        self._choose = answers if callable(answers) else None
        self._answers = [] if callable(answers) else list(answers)
        self.requests: list[ApprovalRequest] = []

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer:
        self.requests.append(request)
        if self._choose is not None:
            return self._choose(request)
        choice = self._answers[min(len(self.requests), len(self._answers)) - 1]
        offered = next((offer.rule for offer in request.offers if offer.choice == choice), "")
        return ApprovalAnswer(choice, offered, by="test")
