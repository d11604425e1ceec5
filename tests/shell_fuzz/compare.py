"""One block of programs, run by bash and read by us; what the rules would have let through."""

from __future__ import annotations

import posixpath
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ferrule.permissions.command_analysis.analysis import analyse_command
from ferrule.permissions.rule_evaluation import PermissionGate
from ferrule.permissions.rules import RuleSet
from ferrule.tools.definition import CheckedArguments, Risk, SideEffect, Tool, Touch

from .grammar import HARMLESS, QUIET, Grammar
from .judge import HOME, ROOT, STUBS, Verdict, describe, judge
from .oracle import LATE, Bash, Event

BLOCK = 200
"""Programs of one block."""


class _Anything:
    schema: dict[str, Any] = {"type": "object"}  # noqa: RUF012

    def check(self, arguments: Any) -> CheckedArguments:
        return CheckedArguments(dict(arguments), [], [])


_RUN = Tool(
    name="run_command", description="", arguments=_Anything(), handler=lambda: None, risk=Risk.HIGH,
    side_effect=SideEffect.EXECUTE, touches={"command": Touch("command")},
)  # fmt: skip


def _gate(**rules: Sequence[str]) -> PermissionGate:
    mode = "bypassPermissions" if "deny" in rules else "default"
    return PermissionGate(RuleSet.parse(**rules), mode=mode, root=Path(ROOT), home=Path(HOME))


_TRUSTING = _gate(
    allow=[
        *(f"Bash({program}:*)" for program in (*HARMLESS, *QUIET)),
        "Edit(./out)",
        "Edit(./out/**)",
    ]
)
_REFUSING = _gate(deny=["Bash(touch:*)"])


def compare_block(
    bash: Bash, seed: int, block: int
) -> tuple[list[dict[str, object]], Counter[str]]:
    """Findings and counts of the programs that this seed and this number draw."""
    grammar = Grammar(random.Random(f"{seed}/{block}"))
    programs = [grammar.program() for _ in range(BLOCK)]
    counts: Counter[str] = Counter()
    findings: list[dict[str, object]] = []
    for program, (status, events) in zip(programs, bash.run(programs), strict=True):
        verdict = judge(analyse_command(program, root=ROOT, home=HOME), events)
        why = [*describe(verdict.unsaid)]
        # What is not clear is asked about: that the gate does so is seen often enough in one block
        # of ten.
        if verdict.said == "clear" or block % 10 == 0:
            why += slipped(program, events)
        if why:
            findings.append({"seed": f"{seed}/{block}", "program": program, "events": why[:6]})
        _count(counts, status, events, verdict)
    counts.update(
        {f"rule {rule}": count for rule, count in grammar.used.items() if rule != "<lambda>"}
    )
    return findings, counts


def slipped(program: str, events: Sequence[Event]) -> Iterator[str]:
    """What ran although the rules say otherwise: allowed for harmless programs alone, or denied."""
    started = [event.fields[0] for event in events if event.kind == "E"]
    allowed = {STUBS + name for name in (*HARMLESS, "nice", "nohup", "timeout", "xargs")}
    out = f"{ROOT}/out"
    written = [path for path in _written(events) if path != out and not path.startswith(f"{out}/")]
    others = [path for path in started if path not in allowed] + written
    if others and _TRUSTING.decide(_RUN, {"command": program}).verdict == "allow":
        yield f"allowed, and did {others[0]}"
    if (
        STUBS + "touch" in started
        and _REFUSING.decide(_RUN, {"command": program}).verdict == "allow"
    ):
        yield "touch is denied, and ran"


def _written(events: Sequence[Event]) -> Iterator[str]:
    """The files that were written, from where they were opened."""
    for event in events:
        if event.kind == "W":
            yield posixpath.normpath(posixpath.join(ROOT, event.folder, event.fields[0]))


def _count(counts: Counter[str], status: int, events: Sequence[Event], verdict: Verdict) -> None:
    fine = status in (0, 1)
    counts["programs"] += 1
    counts["did"] += bool(events)
    counts["started"] += any(event.kind == "E" for event in events)
    counts["late"] += status == LATE
    counts["fine"] += fine
    counts[verdict.said] += 1
    counts["fine problem"] += fine and verdict.said == "problem"
