"""Approvals that wait for the person of another framework.

A call that needs one is settled as not run, and its framework interrupts its run with a
`PendingApproval`; the answer makes another call. It counts for arguments that were asked about
(their digest), and for the framework's call that asked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ferrule.core.value_class import frozen
from ferrule.core.vocabulary import Refuser
from ferrule.permissions.approval_text import describe_call
from ferrule.permissions.approvals import ApprovalAnswer, ApprovalRequest, Approver
from ferrule.tools.catalog import Catalog

WAITING = "a person is asked; an approval makes a new call"
"""Note of the answer with which a call is settled that waits for an approval."""


@frozen
class PendingApproval:
    """An approval that a call waits for. It holds for these arguments alone.

    Attributes:
        call_id: The framework's id of the call.
        tool: The tool's name, as the framework's model knows it.
        arguments: The arguments as they would run.
        reason: Why a person is asked.
        risk: The risk of the call.
        labels: Risk labels of the call's commands.
        preview: What would happen (a diff, a command line), or empty.
        digest: Binds the answer to these arguments.
        shown: What a person has to see of it: the arguments, and what would happen.
    """

    call_id: str
    tool: str
    arguments: Mapping[str, Any]
    reason: str
    risk: str
    labels: tuple[str, ...]
    preview: str
    digest: str
    shown: str

    def describe(self) -> str:
        """Return the question to the person."""
        return f"Allow `{self.tool}` to run? {self.reason}.\n{self.shown}"

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON values."""
        return {
            "call_id": self.call_id,
            "tool": self.tool,
            "arguments": dict(self.arguments),
            "reason": self.reason,
            "risk": self.risk,
            "labels": list(self.labels),
            "preview": self.preview,
            "digest": self.digest,
        }


@dataclass(slots=True, eq=False)
class Attempt:
    """One call that a framework makes.

    Attributes:
        call_id: The framework's id of the call.
        key: Who makes the call, for the journal: the framework and its call.
        tool: The tool's name, as the framework's model knows it.
        approved: What the framework's person said of what was asked before; None if nothing.
        direct_id: The id of the session's direct call, once there is one.
        pending: The approval that it waits for.
    """

    call_id: str
    key: str
    tool: str
    approved: bool | None
    direct_id: str = ""
    pending: PendingApproval | None = None


class FrameworkApprover:
    """The `Approver` of a guarded session.

    Args:
        framework: The framework's name, for the journal.
        catalog: The tools of the session.
        approver: The agent's own approver, which is asked instead; None if it has none.
    """

    def __init__(self, framework: str, catalog: Catalog, approver: Approver | None) -> None:
        self.attempts: dict[str, Attempt] = {}
        """The calls under way, by the ids of the session's direct calls."""
        self.asked: defaultdict[str, set[str]] = defaultdict(set)
        """The digests that a person was asked about, by the keys of their calls."""
        self.own = approver
        self._framework = framework
        self._catalog = catalog
        self.asks_about_unknown = bool(getattr(approver, "asks_about_unknown", False))

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Implement `Approver.ask`."""
        if self.own is not None:
            return await self.own.ask(request)
        attempt = self.attempts.get(request.call.id)
        if attempt is None or self._catalog.get(request.tool.full_name) is not request.tool:
            # A call within a call, or a question of a handler: what was done before it must not be
            # done again.
            return self._deny(
                f"a running call cannot wait for {self._framework} ({request.reason}); allow it "
                "with a rule, or give the agent an approver"
            )
        if attempt.approved is False:
            return self._deny(f"denied by the person at {self._framework}", "person")
        if attempt.approved and request.digest in self.asked[attempt.key]:
            return ApprovalAnswer("once", by=self._framework)
        attempt.pending = PendingApproval(
            attempt.call_id,
            attempt.tool,
            request.values,
            request.reason,
            request.risk,
            request.labels,
            request.preview,
            request.digest,
            describe_call(request),
        )
        return self._deny(WAITING)

    def _deny(self, note: str, refused_by: Refuser = "nobody") -> ApprovalAnswer:
        return ApprovalAnswer("deny", by=self._framework, note=note, refused_by=refused_by)
