"""A streamed run with one approval

An agent whose tool writes, an approver in the same program, and a caller who reads the events as
they come. The first run:
"""

from __future__ import annotations

from tracing import Tracer

from ferrule import Agent, ApprovalAnswer, ApprovalRequest, Permissions, Storage, tool
from ferrule.models.scripted import Scripted, calls, says

STEPS = """
engine/agent.py Agent.stream
engine/agent.py Agent.session
engine/session_builder.py build_session
engine/session.py Session.stream
engine/session_log.py SessionLog.observe
engine/driver.py Driver.run
engine/driver.py Driver._ask_exchange
engine/session_log.py SessionLog.show
engine/dispatcher.py Dispatcher.evaluate
permissions/rule_evaluation.py PermissionGate.decide
core/machine.py Machine._on_call_evaluated
engine/driver.py Driver._ask_person
engine/approval_requests.py request_approval
engine/approval_requests.py digest_files
walks/streamed.py Office.ask
permissions/rule_evaluation.py PermissionGate.apply_answer
core/machine.py Machine._on_person_answered
engine/driver.py Driver._run_tool
engine/approval_requests.py has_changed
engine/dispatcher.py Dispatcher.execute
walks/streamed.py note
core/machine.py Machine._on_tool_answered
engine/driver.py Driver._finish
"""


@tool(risk="high", side_effect="write")
def note(text: str) -> str:
    """Write a note."""
    return f"noted {text}"


class Office:
    """Approves every call once."""

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Approve the call that is asked about."""
        return ApprovalAnswer("once", by="office")


async def execute(tracer: Tracer) -> None:
    """Stream two runs of an agent, with one approved call each time."""
    steps = [calls(("note", {"text": "milk"})), says("It is written down.")]
    agent = Agent(
        Scripted([*steps, *steps]),
        [note],
        permissions=Permissions(approver=Office()),
        storage=Storage(journal=":memory:"),
    )
    for name in ("first", "second"):
        events: list[object] = []
        with tracer.record(name):
            async for event in agent.stream("Note that we need milk."):
                events.append(event)
        assert len(events) > 4
    await agent.close()
