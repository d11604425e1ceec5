"""An audited call in words: why it was allowed or refused, by what or whom, what held it, and what
came of it.
"""

from __future__ import annotations

from collections.abc import Iterator

from ferrule.storage.export.transcripts import moment

from .audit import Answered, AuditedCall, Confined, Decided, Hooked

WHERE = {
    "builtin": "the gate's own order (no rule)",
    "managed": "a rule of the machine's settings (managed)",
    "flags": "a rule given on the command line (flags)",
    "local": "a rule of this folder's local settings",
    "project": "a rule of the project's settings",
    "user": "a rule of the person's own settings, of their program, or one that they had it remember",
    "session": "a grant of this session",
}
"""Where a rule came from, by its layer."""
_SCOPE = {
    "once": "yes, this once",
    "session": "yes, for this session",
    "remember": "yes, from now on (remembered)",
    "deny": "no",
}
_HOOK = {
    "block": "refused the call",
    "change": "changed the arguments; what ran is",
    "answer": "had somebody else answer instead of the tool",
    "result": "replaced the result",
}


def explained(call: AuditedCall, *, cap: int = 400) -> list[str]:
    """Lines for a person, not yet safe for a terminal (`export.visible`). Texts longer than `cap`
    characters are cut, and that is said.
    """
    return list(_lines(call, cap))


def _lines(call: AuditedCall, cap: int) -> Iterator[str]:
    yield f"{call.call_id}: {call.tool}, {_verdict(call)}"
    asked = f"the model `{call.model}`" if call.by == "model" else call.by
    owner = f"for {call.tenant}/{call.user}"
    yield (
        f"  asked for  {moment(call.requested)} by {asked}, {owner}, session {call.session}, "
        f"event {call.event}"
    )
    yield f"  arguments  {_cut(call.arguments, cap)}"
    yield f"             sha256 {call.arguments_sha256}"
    for gate in call.decisions:
        yield from _decision(gate, cap)
    for answer in call.answers:
        yield from _answer(answer, cap)
    for word in call.hooks:
        yield from _hook(word, cap)
    for held in call.confined:
        yield from _held(held)
    for agent in call.agents:
        yield f"  delegated  to the session {agent}"
    yield from _outcome(call, cap)


def _verdict(call: AuditedCall) -> str:
    """The short answer."""
    by = call.settled_by
    gate = call.decisions[-1] if call.decisions else None
    if by == "hook":
        name = next(word.hook for word in call.hooks if word.verdict == "block")
        return f"refused by the hook `{name}`"
    if gate is None:
        return (
            "never judged: the run ended or a bound was reached before"
            if by == "run"
            else "not judged yet"
        )
    if gate.verdict == "refuse":
        return f"refused by {f'the rule `{gate.rule}`' if gate.rule else 'the gate'}"
    if gate.verdict == "allow":
        return f"allowed by {f'the rule `{gate.rule}`' if gate.rule else 'the gate'}"
    if by == "person":
        last = [answer for answer in call.answers if not answer.question][-1]
        return f"{'refused' if last.scope == 'deny' else 'allowed'} by {last.by or 'a person'}"
    return "asked about, and not answered"


def _decision(gate: Decided, cap: int) -> Iterator[str]:
    yield (
        f"  decision   {gate.verdict}: {_cut(gate.reason, cap) or 'no reason is recorded'} "
        f"(event {gate.event})"
    )
    unknown = (
        "not recorded (an older journal)"
        if not gate.mode
        else "nowhere: it never came to the rules"
    )
    where = WHERE.get(gate.layer, gate.layer or unknown)
    yield f"             rule {f'`{gate.rule}`' if gate.rule else 'none'}; from {where}"
    touched = "; ".join(
        f"{word} {', '.join(f'`{path}`' if path else 'everything' for path in paths)}"
        for word, paths in (("reads", gate.reads), ("writes", gate.writes))
        if paths and gate.verdict != "refuse"
    )
    facts = f"mode {gate.mode or 'not recorded'}, side effect {gate.effect}, risk {gate.risk}"
    yield f"             {facts}{f'; {touched}' if touched else ''}"
    if gate.digest:
        yield f"             bound to arguments {gate.digest}"


def _answer(answer: Answered, cap: int) -> Iterator[str]:
    said = _SCOPE.get(answer.scope, answer.scope)
    by = answer.by or "a person"
    yield f"  answer     {said}, by {by}, {moment(answer.time)} (event {answer.event})"
    if answer.question:
        yield f"             to what the tool asked: {_cut(answer.question, cap)}"
    if answer.note:
        yield f"             note: {_cut(answer.note, cap)}"
    if answer.grant:
        yield f"             granted the rule `{answer.grant}`"
    if answer.digest and not answer.question:
        yield (
            "             "
            f"{'for these very arguments' if answer.bound else 'for OTHER arguments: it did not count'}"
        )


def _hook(word: Hooked, cap: int) -> Iterator[str]:
    shown = f" {_cut(word.arguments, cap)}" if word.arguments else ""
    yield (
        f"  hook       `{word.hook}` {_HOOK.get(word.verdict, word.verdict)}{shown} (event "
        f"{word.event})"
    )
    if word.reason:
        yield f"             {_cut(word.reason, cap)}"


def _held(held: Confined) -> Iterator[str]:
    what = "nothing held it" if held.sandbox == "none" else f"`{held.sandbox}`"
    yield f"  sandbox    {what}, for `{held.program}` (event {held.event})"
    yield f"             enforced: {', '.join(held.enforced) or 'nothing'}"
    if held.not_enforced:
        yield f"             not in full: {', '.join(held.not_enforced)}"


def _outcome(call: AuditedCall, cap: int) -> Iterator[str]:
    if call.started is not None:
        yield f"  started    {moment(call.started)}"
    if call.outcome == "open":
        yield "  outcome    open: there is no answer yet"
        return
    if call.outcome == "unknown":
        yield "  outcome    unknown: it started, and nothing says how it ended"
        return
    said = f": {_cut(call.message, cap)}" if call.message else ""
    yield (
        f"  outcome    {call.outcome} after {call.duration_ms} ms, {call.size} bytes{said} "
        f"(event {call.last_event})"
    )
    if call.result_sha256:
        yield f"             result sha256 {call.result_sha256}"


def _cut(text: str, cap: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= cap else f"{line[:cap]} [{len(line) - cap} more characters]"
