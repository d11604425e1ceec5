"""The sandbox as this machine holds it, for the doctor.

The first finding is the way commands are held; then one for each aspect: `sandbox.<aspect>`, whose
detail begins with `yes`, `partly` or `no` and says by what. What is said is what `choose` decides
by, nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from ferrule.sandbox.backends.missing_protection import Mode, SandboxGap
from ferrule.sandbox.backends.probes import Probes
from ferrule.sandbox.backends.selection import Missing, Rung, choose, ladder
from ferrule.sandbox.policy import Aspect, Holds, Policy

from .findings import Finding


def check_required(policy: Policy, probes: Probes, mode: Mode, also: Iterable[Aspect] = ()) -> None:
    """Raises SandboxGap if commands under this policy are not held as it requires, and in these
    ways too.
    """
    asked = frozenset(also)
    wanted = replace(policy, require=policy.require | asked)
    if mode != "off":
        choose(wanted, probes)
        return
    rung = ladder(wanted, probes)[-1]
    why = "`sandbox.mode: off`: commands run with all the rights you have"
    step = "set `sandbox.mode` to `ask` or `required`"
    missing = (Missing(aspect, why, step) for aspect in rung.applied.missing(asked))
    raise SandboxGap(tuple(missing), rung)


def report(policy: Policy, probes: Probes, mode: Mode) -> Iterator[Finding]:
    """What holds commands under this policy here, aspect by aspect."""
    if mode == "off":
        yield Finding(
            "sandbox",
            "note",
            "switched off (`sandbox.mode: off`): commands run with all the rights you have",
        )
        return
    try:
        rung = choose(policy, probes)
    except SandboxGap as gap:
        rung = gap.rung
        yield _gap(gap, mode)
    else:
        yield Finding("sandbox", "ok", f"commands are held by: {rung.name}")
    yield from _aspects(rung, policy)
    if rung.name == "namespaces" and probes.overlay:
        yield Finding(
            "sandbox.preview",
            "ok",
            "yes: a command can be tried on a copy-on-write view (overlayfs)",
        )
    else:
        why = probes.why.get("overlay", "it needs the rung `namespaces`")
        yield Finding(
            "sandbox.preview", "note", f"no: changes cannot be shown before they are made ({why})"
        )


def _gap(gap: SandboxGap, mode: Mode) -> Finding:
    missing = ", ".join(str(one.aspect) for one in gap.missing)
    then = "you are asked once, and where nobody can be asked commands are refused"
    if mode == "required":
        then = "commands are refused"
    steps = f"; to change it: {gap.hint}" if gap.hint else ""
    said = f"not held as required (`{gap.rung.name}`), missing: {missing}; {then}{steps}"
    return Finding("sandbox", "bad" if mode == "required" else "note", said)


def _aspects(rung: Rung, policy: Policy) -> Iterator[Finding]:
    for aspect in Aspect:
        holds = rung.applied.holds.get(aspect, Holds.NO)
        by = rung.applied.how.get(aspect, "")
        wanted = "" if holds is Holds.YES or aspect in policy.require else " (not required)"
        yield Finding(
            f"sandbox.{aspect}", "ok" if holds is Holds.YES else "note", f"{holds}{wanted}: {by}"
        )
