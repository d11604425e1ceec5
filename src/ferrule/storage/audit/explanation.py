"""Explaining an audited call to a person: why it was allowed or refused, by whom, how it ended."""

from __future__ import annotations

from collections.abc import Iterator

from ferrule.core.refusals import name_answerer
from ferrule.core.vocabulary import Refuser
from ferrule.storage.export.transcripts import format_time

from .audit import ApprovalAnswer, AuditedCall, Confinement, GateDecision, HookAction

RULE_ORIGINS = {
    "builtin": "the gate's own order (no rule)",
    "managed": "a rule of the machine's settings (managed)",
    "flags": "a rule given on the command line (flags)",
    "local": "a rule of this folder's local settings",
    "project": "a rule of the project's settings",
    "user": (
        "a rule of the person's own settings, of their program, or one that they had remembered"
    ),
    "session": "a grant of this session",
}
"""Where a rule came from, by its layer."""
_SCOPE = {
    "once": "yes, this once",
    "session": "yes, for this session",
    "remember": "yes, from now on (remembered)",
    "mode": "yes, and the session went on in another mode",
    "deny": "no",
}
_HOOK = {
    "block": "refused the call",
    "change": "changed the arguments; what ran is",
    "answer": "answered instead of the tool",
    "result": "replaced the result",
}


def explain(call: AuditedCall, *, cap: int = 400) -> list[str]:
    """Return lines for a person, not yet safe for a terminal (`core.invisible_characters.visible`).

    Texts longer than `cap` characters are cut, and the line says so.
    """
    return list(_lines(call, cap))


def _lines(call: AuditedCall, cap: int) -> Iterator[str]:
    yield f"{call.call_id}: {call.tool}, {_verdict(call)}"
    requester = f"the model `{call.model}`" if call.by == "model" else call.by
    yield (
        f"  requested  {format_time(call.requested)} by {requester}, for "
        f"{call.tenant}/{call.user}, "
        f"session {call.session}, event {call.event}"
    )
    yield f"  arguments  {_cut(call.arguments, cap)}"
    yield f"             sha256 {call.arguments_sha256}"
    for gate in call.decisions:
        yield from _decision(gate, cap)
    for answer in call.answers:
        yield from _answer(answer, cap)
    for hook in call.hooks:
        yield from _hook(hook, cap)
    for confined in call.confined:
        yield from _explain_confinement(confined)
    for agent in call.agents:
        yield f"  delegated  to the session {agent}"
    yield from _outcome(call, cap)


def _verdict(call: AuditedCall) -> str:
    """Return the short answer."""
    by = call.settled_by
    gate = call.decisions[-1] if call.decisions else None
    if call.refused_by:
        return f"refused by {_name_refuser(call, call.refused_by)}"
    if gate is None and by == "run":
        return "never decided: the run ended or a limit was reached before"
    if gate is None:
        return "not decided yet"
    if gate.verdict in ("allow", "refuse"):
        decided = "allowed" if gate.verdict == "allow" else "refused"
        return f"{decided} by the rule `{gate.rule}`" if gate.rule else f"{decided} by the gate"
    if by == "person":
        last = [answer for answer in call.answers if not answer.question][-1]
        return f"allowed by {name_answerer(last.by, '')}"
    return "asked about, and not answered"


def _name_refuser(call: AuditedCall, refuser: Refuser) -> str:
    """Return who refused a call, by name where it has one."""
    rule = call.decisions[-1].rule if call.decisions else ""
    hooks = [hook.hook for hook in call.hooks if hook.verdict in ("block", "result")]
    if refuser == "rule" and rule:
        return f"the rule `{rule}`"
    if refuser == "hook" and hooks:
        return f"the hook `{hooks[-1]}`"
    answers = [answer for answer in call.answers if not answer.question]
    return name_answerer(answers[-1].by if answers else "", refuser)


def _decision(gate: GateDecision, cap: int) -> Iterator[str]:
    reason = _cut(gate.reason, cap) or "no reason is recorded"
    yield f"  decision   {gate.verdict}: {reason} (event {gate.event})"
    rule = f"`{gate.rule}`" if gate.rule else "none"
    yield f"             rule {rule}; from {_origin(gate)}"
    facts = [f"mode {gate.mode or 'not recorded'}, side effect {gate.effect}, risk {gate.risk}"]
    if gate.reads and gate.verdict != "refuse":
        facts.append(f"reads {_paths(gate.reads)}")
    if gate.writes and gate.verdict != "refuse":
        facts.append(f"writes {_paths(gate.writes)}")
    yield f"             {'; '.join(facts)}"
    if gate.digest:
        yield f"             bound to arguments {gate.digest}"


def _origin(gate: GateDecision) -> str:
    if gate.layer:
        return RULE_ORIGINS.get(gate.layer, gate.layer)
    if not gate.mode:
        return "not recorded (an older journal)"
    return "nowhere: the rules were not reached"


def _paths(paths: tuple[str, ...]) -> str:
    return ", ".join(f"`{path}`" if path else "everything" for path in paths)


def _answer(answer: ApprovalAnswer, cap: int) -> Iterator[str]:
    scope = _SCOPE.get(answer.scope, answer.scope)
    by = name_answerer(answer.by, answer.refused_by)
    yield f"  answer     {scope}, by {by}, {format_time(answer.time)} (event {answer.event})"
    if answer.question:
        yield f"             to what the tool asked: {_cut(answer.question, cap)}"
    if answer.note:
        yield f"             note: {_cut(answer.note, cap)}"
    if answer.grant:
        yield f"             granted the rule `{answer.grant}`"
    if answer.digest and not answer.question:
        if answer.bound:
            yield "             for these very arguments"
        else:
            yield "             for OTHER arguments: it did not count"


def _hook(hook: HookAction, cap: int) -> Iterator[str]:
    action = _HOOK.get(hook.verdict, hook.verdict)
    if hook.arguments:
        action += f" {_cut(hook.arguments, cap)}"
    yield f"  hook       `{hook.hook}` {action} (event {hook.event})"
    if hook.reason:
        yield f"             {_cut(hook.reason, cap)}"


def _explain_confinement(confined: Confinement) -> Iterator[str]:
    sandbox = "not confined" if confined.sandbox == "none" else f"`{confined.sandbox}`"
    yield f"  sandbox    {sandbox}, for `{confined.program}` (event {confined.event})"
    yield f"             enforced: {', '.join(confined.enforced) or 'nothing'}"
    if confined.not_enforced:
        yield f"             not in full: {', '.join(confined.not_enforced)}"


def _outcome(call: AuditedCall, cap: int) -> Iterator[str]:
    if call.started is not None:
        yield f"  started    {format_time(call.started)}"
    if call.outcome == "open":
        yield "  outcome    open: there is no answer yet"
        return
    if call.outcome == "unknown":
        yield "  outcome    unknown: it started, and nothing says how it ended"
        return
    message = f": {_cut(call.message, cap)}" if call.message else ""
    yield (
        f"  outcome    {call.outcome} after {call.duration_ms} ms, {call.size} bytes{message} "
        f"(event {call.last_event})"
    )
    if call.cause:
        # What was handled, and the members of a group, begin with a word of their own.
        link = "" if call.cause.startswith(("while ", "with ")) else "from "
        yield f"             {link}{_cut(call.cause, cap)}"
    if call.result_sha256:
        yield f"             result sha256 {call.result_sha256}"


def _cut(text: str, cap: int) -> str:
    line = " ".join(text.split())
    if len(line) <= cap:
        return line
    return f"{line[:cap]} [{len(line) - cap} more characters]"
