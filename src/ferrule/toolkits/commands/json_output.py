"""`command_json`: runs a program that writes JSON, and returns the value."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

from ferrule.core.errors import ConfigError, FerruleError

from .script_steps import Spec, command_step
from .scripts import Record, Runner

_INLINE_BYTES = 16 * 1024 * 1024
_SHOWN_CHARACTERS = 400


class CommandFailed(FerruleError):
    """A command did not produce the value that it was run for.

    `code` is `command_failed`, `empty_output`, `output_too_large` or `invalid_json`; `step` is the
    record of the step.
    """

    code = "command_failed"

    def __init__(
        self, detail: str, *, code: str = "", hint: str = "", step: Record | None = None
    ) -> None:
        super().__init__(detail, code=code, hint=hint, retryable=None)
        self.step: Record = step or {}


async def command_json(
    spec: Spec,
    options: Mapping[str, Any] | None = None,
    *,
    runner: Runner,
    capture: Mapping[str, Any] | None = None,
    stream: Literal["stdout", "stderr"] = "stdout",
    result: Literal["value", "record"] = "value",
    allow_empty: bool = False,
    name: str = "json",
    **step: Any,
) -> Any:
    """Run a command and parse its output (RFC 8259, so NaN and Infinity are not JSON).

    Args:
        spec: What to run.
        options: Further fields of the request.
        runner: Runs the request.
        capture: How much output is kept, such as `{"max_inline_bytes": 65536}`; the same as
            `capture` in `options`, which it overrides.
        stream: The output that is parsed.
        result: `record` returns `{ok, value, error: None | {code, message}, step}` and raises
            nothing.
        allow_empty: Blank output is None.
        name: Name of the step.
        step: Options of `command_step` (`retry`, `classify`, ...). They depend on how the command
            ended, not on what it wrote.

    Raises:
        CommandFailed: The command failed, or its output is not JSON.
        ConfigError: `capture` is not a mapping.
    """
    if capture is not None and not isinstance(capture, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]  said by people
        raise ConfigError(
            f"capture: found a {type(capture).__name__}",
            hint='give a mapping: {"max_inline_bytes": 65536}',
        )
    given = dict(options or {})
    from_spec = dict(spec.get("capture") or {}) if isinstance(spec, Mapping) else {}
    from_options: Mapping[str, Any] = given.get("capture") or {}
    given["capture"] = {
        "max_inline_bytes": _INLINE_BYTES,
        **from_spec,
        **from_options,
        **(capture or {}),
    }
    ran = await command_step(name, spec, given, runner=runner, **step)
    try:
        value = _parse(ran, stream, allow_empty)
    except CommandFailed as failure:
        if result != "record":
            raise
        error = {"code": failure.code, "message": failure.detail}
        return {"ok": False, "value": None, "error": error, "step": ran}
    if result != "record":
        return value
    return {"ok": True, "value": value, "error": None, "step": ran}


def _parse(step: Record, stream: str, allow_empty: bool) -> Any:
    name = f"`{step['name']}`"
    if not step["ok"]:
        how = step.get("error") or f"{step['status']}, exit code {step['exit_code']}"
        end = step["failure_tail"].strip()[-_SHOWN_CHARACTERS:]
        detail = f"{name} failed: {how}"
        if end and end != how:
            detail += f"\n{end}"
        raise CommandFailed(detail, step=step, hint="its `step` has the whole record")
    size = step["cut_outputs"].get(stream)
    if size is not None:
        # Checked before parsing: the middle is missing, and the rest could be JSON by chance.
        raise CommandFailed(
            f"{name} wrote {size} bytes to {stream}, more than is read of it",
            code="output_too_large",
            step=step,
            hint="raise `capture.max_inline_bytes` (and the runner's own), or have the command "
            "write less",
        )
    text = step["outputs"][stream]
    if not text.strip():
        if allow_empty:
            return None
        raise CommandFailed(
            f"{name} wrote nothing to {stream}",
            code="empty_output",
            step=step,
            hint="pass `allow_empty=True` for None",
        )
    try:
        return json.loads(text.removeprefix("\ufeff"), parse_constant=_reject_constant)
    except (ValueError, RecursionError) as error:
        begin = repr(text[:_SHOWN_CHARACTERS])
        detail = f"{name} wrote no JSON to {stream}: {error}; it begins {begin}"
        raise CommandFailed(detail, code="invalid_json", step=step) from None


def _reject_constant(name: str) -> Any:
    raise ValueError(f"`{name}` is not JSON")
