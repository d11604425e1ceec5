"""Steps of a script: a named command, tried as often as the caller says, with one record of what
happened.

A record is JSON throughout, so that it can be stored, compared and handed to whoever recovers:

    name, argv or command, cwd, success, ok (the same), status, exit_code, timed_out, outputs
    {stdout, stderr}, ids {command_id, handle_id, audit_id}, live_log (the file that grows while it
    runs), artifacts {output_path, stdout_path, stderr_path, output_sha256, output_capture}, tail
    (the end of its output), failure_tail (the same if it failed, else empty), timings {started_at,
    ended_at in ms since 1970; duration_ms of the last attempt; total_ms, waited_ms of all},
    attempts [{attempt, status, success, exit_code, timed_out, command_id, duration_ms, waited_ms}],
    classification, recovery_hint, error (only if it never started)

Nothing is tried again unless `retry` says so, whatever the exit code: only the caller knows what is
safe to repeat.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from ferrule.core.errors import ConfigError
from ferrule.engine.clock import Clock, SystemClock

from .outputs import whole_start
from .retries import Retry
from .scripts import Record, Runner

Spec = str | Sequence[str] | Mapping[str, Any]
"""What to run: words, a text without a shell, or a request in full (`{"command": ..., "mode":
"shell", ...}`).
"""
Classify = Callable[[Record], Any]
Hint = str | Callable[[Record], Any]

TAIL = 12_000
"""Bytes of a command's output that its step keeps, from the end."""
REFERENCE_TAIL = 4000
"""Bytes of it that a reference keeps."""

_SYSTEM = SystemClock()


def request_of(spec: Spec, options: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The request that a spec means; `options` are further fields of it. Raises ConfigError for an
    empty one.
    """
    request = (
        dict(spec)
        if isinstance(spec, Mapping)
        else {"command": spec if isinstance(spec, str) else list(spec)}
    )
    request |= options or {}
    if not (request.get("command") or request.get("argv")):
        raise ConfigError("a step runs nothing", hint='give words, ["git", "status"], or a text')
    return request


async def command_step(
    name: str,
    spec: Spec,
    options: Mapping[str, Any] | None = None,
    *,
    runner: Runner,
    retry: Retry | Mapping[str, Any] | None = None,
    classify: Classify | None = None,
    recovery_hint: Hint | None = None,
    tail_bytes: int = TAIL,
    clock: Clock = _SYSTEM,
) -> Record:
    """Run a named step; returns its record, whether it worked or not.

    `classify` gets the record after each attempt, and what it answers is the record's
    `classification`: so `should_retry` can go by it. `recovery_hint` is text, or a function of the
    record of a failed step. Both may be coroutine functions. Raises ConfigError for a spec or retry
    that cannot be meant.
    """
    request, chosen = request_of(spec, options), Retry.of(retry)
    attempts: list[Record] = []
    began, waited = clock.monotonic(), 0
    while True:
        ran = await runner({**request, "tail_bytes": tail_bytes})
        attempts.append(_attempt(len(attempts) + 1, ran, waited))
        record = _record(name, request, ran, tail_bytes)
        record["attempts"] = attempts
        record["timings"]["total_ms"] = round((clock.monotonic() - began) * 1000)
        record["timings"]["waited_ms"] = sum(attempt["waited_ms"] for attempt in attempts)
        record["classification"] = await _answer(classify, record)
        if record["ok"] or len(attempts) >= chosen.max_attempts or not await _again(chosen, record):
            break
        waited = chosen.delay(len(attempts))
        await clock.sleep(waited / 1000)
        await _answer(chosen.before_retry, record)
    hint = recovery_hint if isinstance(recovery_hint, str) else None
    if not record["ok"]:
        record["recovery_hint"] = hint or await _answer(
            None if hint else _function(recovery_hint), record
        )
    return record


def _function(hint: Hint | None) -> Callable[[Record], Any] | None:
    return None if isinstance(hint, str) else hint


async def _again(retry: Retry, record: Record) -> bool:
    if retry.should_retry is None:
        # The same question gets the same no.
        return record["status"] != "blocked"
    return bool(await _answer(retry.should_retry, record))


async def _answer(function: Callable[[Record], Any] | None, record: Record) -> Any:
    if function is None:
        return None
    answer = function(record)
    return await answer if inspect.isawaitable(answer) else answer


def _attempt(number: int, ran: Record, waited: int) -> Record:
    return {
        "attempt": number,
        "status": ran.get("status"),
        "success": bool(ran.get("success")),
        "exit_code": ran.get("exit_code"),
        "timed_out": bool(ran.get("timed_out")),
        "command_id": ran.get("command_id"),
        "duration_ms": ran.get("duration_ms", 0),
        "waited_ms": waited,
    }


def _record(name: str, request: Mapping[str, Any], ran: Record, tail_bytes: int) -> Record:
    ok = bool(ran.get("success"))
    tail = ran.get("tail") or _end(f"{ran.get('stdout', '')}{ran.get('stderr', '')}", tail_bytes)
    artifacts = ("output_path", "stdout_path", "stderr_path", "output_sha256", "output_capture")
    record: Record = {
        "name": name,
        **_what_ran(request, ran),
        "cwd": ran.get("cwd", request.get("cwd", ".")),
        "success": ok,
        "ok": ok,
        "status": ran.get("status", "unknown"),
        "exit_code": ran.get("exit_code"),
        "timed_out": bool(ran.get("timed_out")),
        "outputs": {"stdout": ran.get("stdout", ""), "stderr": ran.get("stderr", "")},
        "cut_outputs": dict(ran.get("cut_outputs") or {}),
        "ids": {key: ran[key] for key in ("command_id", "handle_id", "audit_id") if key in ran},
        "live_log": ran.get("output_path"),
        "artifacts": {key: ran[key] for key in artifacts if key in ran},
        "tail": tail,
        "failure_tail": "" if ok else tail or str(ran.get("error") or ran.get("reason") or ""),
        "timings": {key: ran.get(key) for key in ("started_at", "ended_at", "duration_ms")},
        "attempts": [],
        "classification": None,
        "recovery_hint": None,
    }
    if why := ran.get("error") or ran.get("reason"):
        record["error"] = why
    return record


def _what_ran(request: Mapping[str, Any], ran: Record) -> Record:
    """`argv` for words, `command` for a text."""
    given = next(
        (
            source[key]
            for source in (ran, request)
            for key in ("argv", "command")
            if source.get(key)
        ),
        "",
    )
    return {"command": given} if isinstance(given, str) else {"argv": list(given)}


def _end(text: str, most: int) -> str:
    data = text.encode("utf-8", "replace")
    return (
        text
        if len(data) <= most
        else whole_start(data[len(data) - most :]).decode("utf-8", "replace")
    )


async def command_try(
    alternatives: Iterable[Mapping[str, Any]] | Mapping[str, Spec],
    *,
    runner: Runner,
    clock: Clock = _SYSTEM,
    **common: Any,
) -> Record:
    """Ordered fallbacks: the first step that works.

    `alternatives` are the arguments of a `command_step` each (`name`, `spec`, and any of its
    options), or names with their specs; `common` holds for all. Returns `{ok, name (of the one that
    worked, else None), step (the last that ran), steps (all that ran)}`. Steps that failed before
    the one that worked say `recovered_by`. Raises ConfigError if there is none.
    """
    steps: list[Record] = []
    if isinstance(alternatives, Mapping):
        named = cast("Mapping[str, Spec]", alternatives)
        alternatives = [{"name": name, "spec": spec} for name, spec in named.items()]
    for one in alternatives:
        step = await command_step(runner=runner, clock=clock, **{**common, **one})
        steps.append(step)
        if step["ok"]:
            for failed in steps[:-1]:
                failed["recovered_by"] = step["name"]
            break
    if not steps:
        raise ConfigError("command_try: there is nothing to try", hint="give at least one step")
    ok = steps[-1]["ok"]
    return {"ok": ok, "name": steps[-1]["name"] if ok else None, "step": steps[-1], "steps": steps}


# ---- records of a whole script


def append_step(steps: Sequence[Record], step: Record) -> list[Record]:
    """The steps with one more; the list that was given stays as it is."""
    return [*steps, step]


def unrecovered_failures(steps: Sequence[Record]) -> list[Record]:
    """Steps that failed, and neither a fallback nor a later step of the same name made up for
    it.
    """
    worked: set[str] = set()
    found: list[Record] = []
    for step in reversed(steps):
        if step["ok"]:
            worked.add(step["name"])
        elif step["name"] not in worked and not step.get("recovered_by"):
            found.append(step)
    return found[::-1]


def has_unrecovered_failure(steps: Sequence[Record]) -> bool:
    """True if one of the steps failed for good."""
    return bool(unrecovered_failures(steps))


def last_failed_step(steps: Sequence[Record]) -> Record | None:
    """The last step that failed, recovered or not."""
    return next((step for step in reversed(steps) if not step["ok"]), None)


def step_reference(step: Record, tail_bytes: int = REFERENCE_TAIL) -> Record:
    """A step in short, for whoever is to look into it: how it ended, the end of its output, where
    the rest is.
    """
    kept = (
        "name",
        "argv",
        "command",
        "cwd",
        "ok",
        "status",
        "exit_code",
        "timed_out",
        "classification",
        "recovery_hint",
        "error",
    )
    return {
        **{key: step[key] for key in kept if step.get(key) is not None},
        "attempts": len(step["attempts"]),
        "command_id": step["ids"].get("command_id"),
        "live_log": step["live_log"],
        "tail": _end(step["tail"], tail_bytes),
    }


def command_ok(value: Any = None, *, steps: Sequence[Record] = (), **more: Any) -> Record:
    """The result of a script that worked."""
    return {
        "ok": True,
        "success": True,
        "value": value,
        "steps": [step_reference(step) for step in steps],
        **more,
    }


def command_fail(reason: str, *, steps: Sequence[Record] = (), **more: Any) -> Record:
    """The result of a script that did not: why, and a reference to the step that failed last."""
    failed = last_failed_step(steps)
    return {
        "ok": False,
        "success": False,
        "error": reason,
        "failed_step": step_reference(failed) if failed else None,
        "recovery_hint": failed.get("recovery_hint") if failed else None,
        "steps": [step_reference(step) for step in steps],
        **more,
    }
