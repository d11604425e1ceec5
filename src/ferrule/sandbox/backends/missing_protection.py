"""Where a machine holds less than the policy requires: the error, and the one question to a person.

Without a terminal a gap is an error (`SandboxGap`): a command that nothing holds is not run because
nobody was there to say no. With one, a person is asked once in a session, by the same approver as
for any other call, and the answer holds until the session ends. No policy in place of a person says
yes to it: the risk is critical, which `--yes-to` does not cover.
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
"""What a gap is: an error; a question where somebody can be asked; nothing, and commands run as
they are.
"""


@frozen
class Rung:
    """A way to hold commands, by name, and what it holds under the policy that was asked about."""

    name: str
    applied: Applied


@frozen
class Missing:
    """An aspect that is required and not held: why, and one step that would change it."""

    aspect: Aspect
    why: str
    step: str


class SandboxGap(FerruleError):
    """Commands are required to be held in ways that this machine does not offer.

    `missing` says which, `rung` is the best there is: what holds commands if a person lets them run
    anyway.
    """

    code = "sandbox_gap"
    exit_code = 7

    def __init__(self, missing: tuple[Missing, ...], rung: Rung, *, detail: str = "") -> None:
        said = "; ".join(f"{one.aspect} ({one.why})" for one in missing)
        steps = list(dict.fromkeys(one.step for one in missing if one.step))
        detail = (
            detail
            or f"commands cannot be held as required on this machine (`{rung.name}`): no {said}"
        )
        super().__init__(detail, hint="; or: ".join(steps[:2]), retryable=False)
        self.missing = missing
        self.rung = rung


class Consent:
    """What a person said about running commands with less. One for each session.

    `answer` is the last one, for the journal; None while nobody was asked. Concurrent commands wait
    for one question.
    """

    def __init__(self, approver: Approver, identity: Identity) -> None:
        self._approver = approver
        self._identity = identity
        self._asking = asyncio.Lock()
        self._covered: frozenset[Aspect] = frozenset()
        self._refused: frozenset[Aspect] = frozenset()
        self.answer: Answer | None = None

    async def given(self, gap: SandboxGap, policy: Policy) -> bool:
        """Whether commands may run despite this gap. Asks once; a gap that is wider than an answer
        asks again.
        """
        wanted = frozenset(one.aspect for one in gap.missing)
        async with self._asking:
            if wanted and wanted <= self._covered:
                return True
            if self.answer is not None and self._refused and self._refused <= wanted:
                return False
            self.answer = await self._approver.ask(question(gap, policy, self._identity))
            yes = self.answer.choice != "deny"
            self._covered, self._refused = (
                (wanted, frozenset[Aspect]()) if yes else (frozenset[Aspect](), wanted)
            )
            return yes


async def settle(policy: Policy, gap: SandboxGap, mode: Mode, consent: Consent | None) -> Rung:
    """The rung that commands run on although it holds less, or the gap raised.

    `consent` None: nobody can be asked. Raises SandboxGap; its detail says what the person
    answered.
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
    """The question as approvers take it: yes for this session, or no."""
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
    return "\n".join([f"what holds commands here: {applied.rung}", *lines, *steps])


QUESTION = question_tool(
    "unconfined_commands",
    "Run commands although this machine cannot hold them as required.",
    SideEffect.EXECUTE,
)
"""What the question is about, in the form that approvers know."""
