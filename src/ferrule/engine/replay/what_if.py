"""What other rules would have decided about calls that were made: nothing runs, nobody is asked.

    for judged in what_if(past_calls(journal), lambda workspace: gate, catalog):
        if judged.stricter: ...

A call is judged by its arguments as they would run today, with the catalog's tool of that name. If
there is none any more, it is judged by name, side effect and risk as recorded, so that rules for
paths and commands do not apply (`known` is False then). Grants that a person gave then are not
taken into account: an *ask* means that a person would have been asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Literal, cast

from ferrule.core.value_class import frozen
from ferrule.permissions.rule_evaluation import PermissionGate
from ferrule.storage.audit.audit import GateDecision
from ferrule.storage.audit.past_calls import PastCall
from ferrule.tools.catalog import Catalog
from ferrule.tools.definition import Risk, SideEffect, Tool

Verdict = Literal["allow", "ask", "deny", "invalid"]


@frozen
class PolicyComparison:
    """One call: whether it ran then, and what the other rules decide.

    `invalid` means that its arguments do not fit today's tool.
    """

    call: PastCall
    ran: bool
    verdict: Verdict
    reason: str
    rule: str
    known: bool

    @property
    def stricter(self) -> bool:
        """Whether it ran then and would not run unasked now."""
        return self.ran and self.verdict != "allow"

    @property
    def looser(self) -> bool:
        """Whether it was refused then and would run now."""
        return not self.ran and self.verdict == "allow"


def what_if(
    calls: Iterable[PastCall], gate_of: Callable[[str], PermissionGate], catalog: Catalog
) -> Iterator[PolicyComparison]:
    """Judge calls one by one.

    `gate_of` returns the gate for a workspace, by its path ("" if the session had none).
    """
    gates = cache(gate_of)
    for call in calls:
        decided = call.audit.decisions[-1] if call.audit.decisions else None
        ran = call.audit.started is not None or call.audit.outcome == "success"
        tool = catalog.get(call.tool)
        known = tool is not None
        tool = tool or _stand_in(call.tool, decided)
        yield _judge(call, ran, gates(call.audit.workspace), tool, known)


def _judge(
    call: PastCall, ran: bool, gate: PermissionGate, tool: Tool, known: bool
) -> PolicyComparison:
    values, problems = _check(tool, call.arguments, known)
    if problems:
        return PolicyComparison(call, ran, "invalid", "; ".join(problems), "", known)
    decision = gate.decide(tool, values)
    return PolicyComparison(call, ran, decision.verdict, decision.reason, decision.rule, known)


def _check(
    tool: Tool, values: dict[str, Any] | None, known: bool
) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    if values is None:
        return {}, ("the arguments are not a JSON object",)
    if not known:
        return values, ()
    checked = tool.arguments.check(values)
    return checked.values, tuple(checked.problems)


def _stand_in(name: str, decided: GateDecision | None) -> Tool:
    effect = SideEffect.UNDECLARED
    risk = Risk.HIGH
    if decided and decided.effect in set(SideEffect):
        effect = SideEffect(decided.effect)
    if decided and decided.risk in set(Risk):
        risk = Risk(decided.risk)
    return _make_stand_in(name, effect, risk)


@cache
def _make_stand_in(name: str, effect: SideEffect, risk: Risk) -> Tool:
    def refuse_call(**_: Any) -> None:
        raise NotImplementedError(f"`{name}` is known from a journal alone")

    namespace, _, short = name.rpartition("::")
    return Tool(
        name=short,
        description="",
        # Never used: its parameters are unknown.
        arguments=cast("Any", None),
        handler=refuse_call,
        side_effect=effect,
        risk=risk,
        namespace=namespace,
        source="journal",
    )
