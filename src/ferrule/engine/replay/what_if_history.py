r"""What other rules would have stopped lately, within limits that a person can wait for.

    rules = parse_rules("deny Bash(git push:*)\nallow Read(docs/**)", root=str(workspace))
    calls = read_past_calls(journal, since=since)
    compared = compare_history(calls, agent.gate, rules, agent.catalog, keep=True)

See `what_if` for what is judged and how. This module adds what a view needs: rules as lines of
text, a count of every outcome, the calls that would come out differently, and limits
(`ComparisonLimits`).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from ferrule.core.errors import ConfigError
from ferrule.core.value_class import frozen
from ferrule.core.vocabulary import PermissionMode
from ferrule.permissions.rule_evaluation import PermissionGate
from ferrule.permissions.rules import PermissionRule, RuleList, RuleSet, parse_rule
from ferrule.storage.audit.past_calls import PastCall
from ferrule.tools.catalog import Catalog

from .what_if import PolicyComparison, what_if

MAX_CALLS = 5_000
MAX_SECONDS = 5.0
MAX_CHANGED = 100
"""Maximum number of calls that are kept of those that would come out differently."""
_LISTS: dict[str, RuleList] = {"deny": "deny", "ask": "ask", "allow": "allow"}


@dataclass(slots=True)
class HistoryComparison:
    """The comparison of two sets of rules.

    Attributes:
        counts: Number of calls that ran and would be `refused` or `asked`, that did not run and
            would (`looser`), whose arguments do not fit today's tool (`invalid`), and that are the
            `same`.
        changed: The first `MAX_CHANGED` calls that would come out differently.
        unknown: Number of calls of tools that no longer exist, judged by name alone.
        cut: Whether there were more calls than were judged.
    """

    looked: int = 0
    counts: Counter[str] = field(default_factory=Counter[str])
    changed: list[PolicyComparison] = field(default_factory=list[PolicyComparison])
    unknown: int = 0
    cut: bool = False


@frozen
class ComparisonLimits:
    """How much is compared: so many calls at the most, and none is begun after so many seconds."""

    calls: int = MAX_CALLS
    seconds: float = MAX_SECONDS
    now: Callable[[], float] = time.monotonic


def parse_rules(text: str, *, root: str = "") -> RuleSet:
    """Parse lines with `deny`, `ask` or `allow`, and a rule (`permissions.rules`).

    `#` begins a comment line. Raises ConfigError naming the line.
    """
    return RuleSet(
        _parse_line(line.strip(), number, root)
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and not line.strip().startswith("#")
    )


def _parse_line(line: str, number: int, root: str) -> PermissionRule:
    word, _, rule = line.partition(" ")
    chosen = _LISTS.get(word.rstrip(":").lower())
    if chosen is None:
        raise ConfigError(
            f"line {number} begins with `{word[:40]}`",
            hint="write `deny`, `ask` or `allow`, then the rule",
        )
    try:
        return parse_rule(rule, chosen, layer="flags", root=root)
    except ConfigError as error:
        raise ConfigError(
            f"line {number}: {error.detail}", code=error.code, hint=error.hint
        ) from error


def compare_history(
    calls: Iterable[PastCall],
    gate: PermissionGate,
    rules: RuleSet,
    catalog: Catalog,
    *,
    keep: bool,
    mode: PermissionMode | None = None,
    limits: ComparisonLimits | None = None,
) -> HistoryComparison:
    """Judge calls by these rules, in addition to those of `gate` (`keep`) or instead of them.

    Protected names and safe mode stay as they are.
    """
    chosen = RuleSet([*gate.rules, *rules]) if keep else rules

    def gate_of(workspace: str) -> PermissionGate:
        return PermissionGate(
            chosen,
            mode=mode or gate.mode,
            root=Path(workspace or gate.context.root),
            names=gate.context.names,
            safe_mode=gate.safe_mode,
            home=Path(gate.context.home),
            outside=gate.context.outside,
            opened=gate.context.opened,
        )

    limits = limits or ComparisonLimits()
    compared = HistoryComparison()
    until = limits.now() + limits.seconds
    for judged in what_if(calls, gate_of, catalog):
        if compared.looked == limits.calls or limits.now() > until:
            compared.cut = True
            break
        compared.looked += 1
        compared.unknown += not judged.known
        word = classify(judged)
        compared.counts[word] += 1
        if word in ("refused", "asked", "looser") and len(compared.changed) < MAX_CHANGED:
            compared.changed.append(judged)
    return compared


def classify(judged: PolicyComparison) -> str:
    """Return the outcome of a call, a key of `HistoryComparison.counts`."""
    if judged.verdict == "invalid":
        return "invalid"
    if judged.stricter:
        return "refused" if judged.verdict == "deny" else "asked"
    return "looser" if judged.looser else "same"
