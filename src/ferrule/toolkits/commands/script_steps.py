"""Steps of a script: a named command, tried as often as the caller says, with one record.

A record consists of JSON values, so that it can be stored, compared and passed on for recovery:

    name, argv or command, cwd, success, ok (the same), status, exit_code, timed_out, outputs
    {stdout, stderr}, ids {command_id, handle_id, audit_id}, live_log (the file that grows while it
    runs), artifacts {output_path, stdout_path, stderr_path, output_sha256, output_capture}, tail
    (the end of its output), failure_tail (the same if it failed, else empty), timings {started_at,
    ended_at in ms since 1970; duration_ms of the last attempt; total_ms, waited_ms of all},
    attempts [{attempt, status, success, exit_code, timed_out, command_id, duration_ms, waited_ms}],
    classification, recovery_hint, error (only if it never started)

Nothing is retried unless `retry` says so, whatever the exit code: only the caller knows what is
safe to repeat.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from ferrule.core.errors import ConfigError
from ferrule.engine.clock import Clock, SystemClock

from .outputs import drop_cut_start
from .retry_option import Retry
from .scripts import Record, Runner

Spec = str | Sequence[str] | Mapping[str, Any]
"""What to run: words, a text without a shell, or a request in full.

A request in full is a mapping: `{"command": ..., "mode": "shell", ...}`.
"""
Classify = Callable[[Record], Any]
Hint = str | Callable[[Record], Any]

DEFAULT_TAIL_BYTES = 12_000
"""Bytes of a command's output that its step keeps, from the end."""
REFERENCE_TAIL_BYTES = 4000
"""Bytes of a command's output that a reference keeps, from the end."""

_SYSTEM = SystemClock()


def make_request(spec: Spec, options: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the request that a spec means; `options` are further fields of it.

    Raises:
        ConfigError: The spec is empty.
    """
    if isinstance(spec, Mapping):
        request = dict(spec)
    else:
        request = {"command": spec if isinstance(spec, str) else list(spec)}
    request |= options or {}
    if not (request.get("command") or request.get("argv")):
        raise ConfigError("a step runs nothing", hint='give words, ["git", "status"], or a text')
    return request


async def command_step(  # noqa: PLR0913  public: each option of a step by its name
    name: str,
    spec: Spec,
    options: Mapping[str, Any] | None = None,
    *,
    runner: Runner,
    retry: Retry | Mapping[str, Any] | None = None,
    classify: Classify | None = None,
    recovery_hint: Hint | None = None,
    tail_bytes: int = DEFAULT_TAIL_BYTES,
    clock: Clock = _SYSTEM,
) -> Record:
    """Run a named step and return its record, whether it succeeded or not.

    Args:
        name: Name of the step, for people.
        spec: What to run.
        options: Further fields of the request.
        runner: Runs the request.
        retry: When and how often to try again; never by default.
        classify: Gets the record after each attempt; what it returns is the record's
            `classification`, so `should_retry` can use it. May be a coroutine function.
        recovery_hint: A text, or a (coroutine) function of the record of a failed step.
        tail_bytes: Bytes of output that the record keeps, from the end.
        clock: Measures and waits.

    Raises:
        ConfigError: The spec or the retry makes no sense.
    """
    request = make_request(spec, options)
    chosen = Retry.from_value(retry)
    attempts: list[Record] = []
    began = clock.monotonic()
    waited = 0
    while True:
        ran = await runner({**request, "tail_bytes": tail_bytes})
        attempts.append(_make_attempt(len(attempts) + 1, ran, waited))
        record = _make_record(name, request, ran, tail_bytes)
        record["attempts"] = attempts
        record["timings"]["total_ms"] = round((clock.monotonic() - began) * 1000)
        record["timings"]["waited_ms"] = sum(attempt["waited_ms"] for attempt in attempts)
        record["classification"] = await _call(classify, record)
        if (
            record["ok"]
            or len(attempts) >= chosen.max_attempts
            or not await _should_retry(chosen, record)
        ):
            break
        waited = chosen.compute_delay(len(attempts))
        await clock.sleep(waited / 1000)
        await _call(chosen.before_retry, record)
    if not record["ok"]:
        record["recovery_hint"] = await _hint(recovery_hint, record)
    return record


async def _hint(hint: Hint | None, record: Record) -> Any:
    if isinstance(hint, str):
        return hint or None
    return await _call(hint, record)


async def _should_retry(retry: Retry, record: Record) -> bool:
    if retry.should_retry is None:
        # A blocked command would be blocked again.
        return record["status"] != "blocked"
    return bool(await _call(retry.should_retry, record))


async def _call(function: Callable[[Record], Any] | None, record: Record) -> Any:
    if function is None:
        return None
    answer = function(record)
    return await answer if inspect.isawaitable(answer) else answer


def _make_attempt(number: int, ran: Record, waited: int) -> Record:
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


def _make_record(name: str, request: Mapping[str, Any], ran: Record, tail_bytes: int) -> Record:
    ok = bool(ran.get("success"))
    tail = ran.get("tail") or _take_end(
        f"{ran.get('stdout', '')}{ran.get('stderr', '')}", tail_bytes
    )
    artifacts = ("output_path", "stdout_path", "stderr_path", "output_sha256", "output_capture")
    record: Record = {
        "name": name,
        **_command_fields(request, ran),
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
    reason = ran.get("error") or ran.get("reason")
    if reason:
        record["error"] = reason
    return record


def _command_fields(request: Mapping[str, Any], ran: Record) -> Record:
    """Return `argv` for words, `command` for a text."""
    candidates = (ran.get("argv"), ran.get("command"), request.get("argv"), request.get("command"))
    given = next((candidate for candidate in candidates if candidate), "")
    return {"command": given} if isinstance(given, str) else {"argv": list(given)}


def _take_end(text: str, most: int) -> str:
    data = text.encode("utf-8", "replace")
    if len(data) <= most:
        return text
    return drop_cut_start(data[len(data) - most :]).decode("utf-8", "replace")


async def command_try(
    alternatives: Iterable[Mapping[str, Any]] | Mapping[str, Spec],
    *,
    runner: Runner,
    clock: Clock = _SYSTEM,
    **common: Any,
) -> Record:
    """Run alternatives in order until one works.

    Args:
        alternatives: The arguments of a `command_step` each (`name`, `spec`, and any of its
            options), or names with their specs.
        runner: Runs the requests.
        clock: Measures and waits.
        common: Arguments of all steps.

    Returns:
        `{ok, name (of the one that worked, else None), step (the last that ran), steps (all that
        ran)}`. Steps that failed before the one that worked have `recovered_by`.

    Raises:
        ConfigError: There is no alternative.
    """
    steps: list[Record] = []
    if isinstance(alternatives, Mapping):
        named = cast("Mapping[str, Spec]", alternatives)
        alternatives = [{"name": name, "spec": spec} for name, spec in named.items()]
    for alternative in alternatives:
        step = await command_step(runner=runner, clock=clock, **{**common, **alternative})
        steps.append(step)
        if step["ok"]:
            for failed in steps[:-1]:
                failed["recovered_by"] = step["name"]
            break
    if not steps:
        raise ConfigError("command_try: there is nothing to try", hint="give at least one step")
    ok = steps[-1]["ok"]
    name = steps[-1]["name"] if ok else None
    return {"ok": ok, "name": name, "step": steps[-1], "steps": steps}


# ---- records of a whole script


def append_step(steps: Sequence[Record], step: Record) -> list[Record]:
    """Return the steps with one more; the list that was given is not changed."""
    return [*steps, step]


def unrecovered_failures(steps: Sequence[Record]) -> list[Record]:
    """Return the failed steps that no fallback and no later step of the same name repaired."""
    worked: set[str] = set()
    found: list[Record] = []
    for step in reversed(steps):
        if step["ok"]:
            worked.add(step["name"])
        elif step["name"] not in worked and not step.get("recovered_by"):
            found.append(step)
    return found[::-1]


def has_unrecovered_failure(steps: Sequence[Record]) -> bool:
    """Return whether a step failed and was not recovered."""
    return bool(unrecovered_failures(steps))


def last_failed_step(steps: Sequence[Record]) -> Record | None:
    """Return the last step that failed, recovered or not."""
    return next((step for step in reversed(steps) if not step["ok"]), None)


def step_reference(step: Record, tail_bytes: int = REFERENCE_TAIL_BYTES) -> Record:
    """Return a step in short, for whoever investigates it.

    It has the outcome, the end of the output, and where the rest is.
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
        "tail": _take_end(step["tail"], tail_bytes),
    }


def command_ok(value: Any = None, *, steps: Sequence[Record] = (), **more: Any) -> Record:
    """Return the result of a script that succeeded."""
    return {
        "ok": True,
        "success": True,
        "value": value,
        "steps": [step_reference(step) for step in steps],
        **more,
    }


def command_fail(reason: str, *, steps: Sequence[Record] = (), **more: Any) -> Record:
    """Return the result of a script that failed, with a reference to the last failed step."""
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
