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

from ferrule.core.calls import ToolCall, encode_json
from ferrule.core.errors import FerruleError
from ferrule.core.identity import Identity
from ferrule.core.value_class import frozen
from ferrule.permissions.approvals import (
    ApprovalAnswer,
    ApprovalRequest,
    Approver,
    make_question_tool,
)
from ferrule.permissions.grant_proposals import GrantOffer
from ferrule.sandbox.policy import AppliedProtections, Protection, SandboxPolicy
from ferrule.tools.definition import Risk, SideEffect

SandboxMode = Literal["required", "ask", "off"]
"""What happens when protections are missing.

`required`: an error. `ask`: a question, where somebody can be asked. `off`: nothing, and commands
run as they are.
"""


@frozen
class SandboxBackend:
    """A sandbox backend by name, and what it enforces under the policy in question."""

    name: str
    protections: AppliedProtections


@frozen
class MissingProtection:
    """A protection that is required and missing: why, and one step that would change it."""

    protection: Protection
    why: str
    step: str


class MissingProtections(FerruleError):
    """This machine cannot enforce the protections that commands require.

    `missing` says which. `backend` is the best one there is: it confines commands if a person lets
    them run anyway.
    """

    code = "sandbox_gap"
    exit_code = 7

    def __init__(
        self, missing: tuple[MissingProtection, ...], backend: SandboxBackend, *, detail: str = ""
    ) -> None:
        reasons = "; ".join(f"{one.protection} ({one.why})" for one in missing)
        steps = list(dict.fromkeys(one.step for one in missing if one.step))
        detail = detail or (
            "this machine cannot confine commands as required "
            f"(backend `{backend.name}`); missing: {reasons}"
        )
        super().__init__(detail, hint="; or: ".join(steps[:2]), retryable=False)
        self.missing = missing
        self.backend = backend


class ReducedProtectionApproval:
    """A person's answer about running commands with missing protections. One for each session.

    `answer` is the last one, for the journal; None while nobody was asked. Concurrent commands wait
    for one question.
    """

    def __init__(self, approver: Approver, identity: Identity) -> None:
        self._approver = approver
        self._identity = identity
        self._lock = asyncio.Lock()
        self._accepted: frozenset[Protection] = frozenset()
        self._refused: frozenset[Protection] = frozenset()
        self.answer: ApprovalAnswer | None = None

    async def request(self, error: MissingProtections, policy: SandboxPolicy) -> bool:
        """Return whether commands may run although these protections are missing.

        Asks once; asks again if more is missing than an answer covered.
        """
        missing = frozenset(one.protection for one in error.missing)
        async with self._lock:
            if missing and missing <= self._accepted:
                return True
            if self.answer is not None and self._refused and self._refused <= missing:
                return False
            self.answer = await self._approver.ask(
                build_approval_request(error, policy, self._identity)
            )
            is_accepted = self.answer.choice != "deny"
            nothing = frozenset[Protection]()
            self._accepted = missing if is_accepted else nothing
            self._refused = nothing if is_accepted else missing
            return is_accepted


async def accept_or_raise(
    policy: SandboxPolicy,
    error: MissingProtections,
    mode: SandboxMode,
    approval: ReducedProtectionApproval | None,
) -> SandboxBackend:
    """Return the backend to run commands with although it enforces less.

    Args:
        policy: What commands may do.
        error: What the machine cannot enforce of it, and what it can use instead.
        mode: The setting: `off` accepts less, `required` never does, others ask.
        approval: Who can be asked; None if nobody can.

    Raises:
        MissingProtections: Commands may not run. Its detail says what the person answered.
    """
    if mode == "off":
        return error.backend
    if mode == "required" or approval is None:
        raise error
    if await approval.request(error, policy):
        return error.backend
    note = approval.answer.note if approval.answer else ""
    raise MissingProtections(
        error.missing, error.backend, detail=f"{error.detail}; {note or 'a person said no'}"
    )


def build_approval_request(
    error: MissingProtections, policy: SandboxPolicy, identity: Identity
) -> ApprovalRequest:
    """Build the question as approvers take it: yes for this session, or no."""
    without = ", ".join(str(one.protection).replace("_", " ") for one in error.missing)
    values = {
        "workspace": str(policy.root),
        "without": [str(one.protection) for one in error.missing],
    }
    arguments = encode_json(values)
    return ApprovalRequest(
        call=ToolCall("sandbox-gap", APPROVAL_TOOL.name, arguments),
        tool=APPROVAL_TOOL,
        risk=str(Risk.CRITICAL),
        reason=f"commands would run without: {without}; run them anyway?",
        labels=("not_confined",),
        preview=_preview(error.backend.protections, error.missing),
        offers=(GrantOffer("session", f"run commands without {without}"),),
        digest=hashlib.sha256(arguments.encode()).hexdigest(),
        identity=identity,
        values=values,
    )


def _preview(applied: AppliedProtections, missing: tuple[MissingProtection, ...]) -> str:
    lines = [f"{aspect}: {applied.enforcement.get(aspect, 'no')}" for aspect in Protection]
    steps = [f"to get {one.protection}: {one.step}" for one in missing if one.step]
    return "\n".join([f"sandbox backend here: {applied.backend}", *lines, *steps])


APPROVAL_TOOL = make_question_tool(
    "unconfined_commands",
    "Run commands although this machine cannot confine them as required.",
    SideEffect.EXECUTE,
)
"""What the question is about, in the form that approvers know."""
