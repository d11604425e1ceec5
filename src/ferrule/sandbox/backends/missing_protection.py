"""When a machine enforces less than the policy requires: the error, and one question to a person.

Without a terminal it is an error: a command without the required protections is not run just
because nobody was there to say no. With one, a person is asked once in a session, by the same
approver as for any other call, and the answer holds until the session ends. No policy answers yes
in place of a person: the risk is critical, which `--yes-to` does not cover.
"""

from __future__ import annotations

import asyncio
import hashlib
from typing import Literal

from ferrule.core.calls import Call, compact
from ferrule.core.errors import FerruleError
from ferrule.core.frozen import frozen
from ferrule.core.identity import Identity
from ferrule.permissions.approvals import Answer, ApprovalRequest, Approver, question_tool
from ferrule.permissions.grant_proposals import Offer
from ferrule.sandbox.policy import Applied, Aspect, Policy
from ferrule.tools.definition import Risk, SideEffect

Mode = Literal["required", "ask", "off"]
MODES: tuple[Mode, ...] = ("required", "ask", "off")
"""What happens when protections are missing.

`required`: an error. `ask`: a question, where somebody can be asked. `off`: nothing, and commands
run as they are.
"""


@frozen
class Rung:
    """A sandbox backend by name, and what it enforces under the policy in question."""

    name: str
    applied: Applied


@frozen
class Missing:
    """A protection that is required and missing: why, and one step that would change it."""

    aspect: Aspect
    why: str
    step: str


class SandboxGap(FerruleError):
    """This machine cannot enforce the protections that commands require.

    `missing` says which. `rung` is the best backend there is: it confines commands if a person lets
    them run anyway.
    """

    code = "sandbox_gap"
    exit_code = 7

    def __init__(self, missing: tuple[Missing, ...], rung: Rung, *, detail: str = "") -> None:
        reasons = "; ".join(f"{one.aspect} ({one.why})" for one in missing)
        steps = list(dict.fromkeys(one.step for one in missing if one.step))
        detail = detail or (
            "this machine cannot confine commands as required "
            f"(backend `{rung.name}`); missing: {reasons}"
        )
        super().__init__(detail, hint="; or: ".join(steps[:2]), retryable=False)
        self.missing = missing
        self.rung = rung


class Consent:
    """A person's answer about running commands with missing protections. One for each session.

    `answer` is the last one, for the journal; None while nobody was asked. Concurrent commands wait
    for one question.
    """

    def __init__(self, approver: Approver, identity: Identity) -> None:
        self._approver = approver
        self._identity = identity
        self._lock = asyncio.Lock()
        self._accepted: frozenset[Aspect] = frozenset()
        self._refused: frozenset[Aspect] = frozenset()
        self.answer: Answer | None = None

    async def given(self, gap: SandboxGap, policy: Policy) -> bool:
        """Return whether commands may run although these protections are missing.

        Asks once; asks again if more is missing than an answer covered.
        """
        missing = frozenset(one.aspect for one in gap.missing)
        async with self._lock:
            if missing and missing <= self._accepted:
                return True
            if self.answer is not None and self._refused and self._refused <= missing:
                return False
            self.answer = await self._approver.ask(question(gap, policy, self._identity))
            is_accepted = self.answer.choice != "deny"
            nothing = frozenset[Aspect]()
            self._accepted = missing if is_accepted else nothing
            self._refused = nothing if is_accepted else missing
            return is_accepted


async def settle(policy: Policy, gap: SandboxGap, mode: Mode, consent: Consent | None) -> Rung:
    """Return the backend to run commands with although it enforces less.

    Args:
        consent: Who can be asked; None if nobody can.

    Raises:
        SandboxGap: Commands may not run. Its detail says what the person answered.
    """
    if mode == "off":
        return gap.rung
    if mode == "required" or consent is None:
        raise gap
    if await consent.given(gap, policy):
        return gap.rung
    note = consent.answer.note if consent.answer else ""
    raise SandboxGap(gap.missing, gap.rung, detail=f"{gap.detail}; {note or 'a person said no'}")


def question(gap: SandboxGap, policy: Policy, identity: Identity) -> ApprovalRequest:
    """Build the question as approvers take it: yes for this session, or no."""
    without = ", ".join(str(one.aspect).replace("_", " ") for one in gap.missing)
    values = {"workspace": str(policy.root), "without": [str(one.aspect) for one in gap.missing]}
    arguments = compact(values)
    return ApprovalRequest(
        call=Call("sandbox-gap", QUESTION.name, arguments),
        tool=QUESTION,
        risk=str(Risk.CRITICAL),
        reason=f"commands would run without: {without}; run them anyway?",
        labels=("not_confined",),
        preview=_preview(gap.rung.applied, gap.missing),
        offers=(Offer("session", f"run commands without {without}"),),
        digest=hashlib.sha256(arguments.encode()).hexdigest(),
        identity=identity,
        values=values,
    )


def _preview(applied: Applied, missing: tuple[Missing, ...]) -> str:
    lines = [f"{aspect}: {applied.holds.get(aspect, 'no')}" for aspect in Aspect]
    steps = [f"to get {one.aspect}: {one.step}" for one in missing if one.step]
    return "\n".join([f"sandbox backend here: {applied.rung}", *lines, *steps])


QUESTION = question_tool(
    "unconfined_commands",
    "Run commands although this machine cannot confine them as required.",
    SideEffect.EXECUTE,
)
"""What the question is about, in the form that approvers know."""
