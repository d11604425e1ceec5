"""`command_json`: runs a program that writes JSON, and gives the value."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

from ferrule.core.errors import FerruleError

from .scripts import Record, Runner
from .steps import Spec, command_step

_INLINE = 16 * 1024 * 1024
_SHOWN = 400


class CommandFailed(FerruleError):
    """A command did not give what it was run for.

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
    stream: Literal["stdout", "stderr"] = "stdout",
    result: Literal["value", "record"] = "value",
    allow_empty: bool = False,
    name: str = "json",
    **step: Any,
) -> Any:
    """Run a command and parse what it wrote (RFC 8259, so NaN and Infinity are no JSON).

    `options` are further fields of the request. `allow_empty`: output of blanks is None. `step` are
    options of `command_step` (`retry`, `classify`, ...), which go by how the command ended, not by
    what it wrote. Raises CommandFailed; with `result="record"` nothing is raised and the answer is
    `{ok, value, error: None | {code, message}, step}`.
    """
    given = dict(options or {})
    own = dict(spec.get("capture") or {}) if isinstance(spec, Mapping) else {}
    given["capture"] = {"max_inline_bytes": _INLINE, **own, **(given.get("capture") or {})}
    ran = await command_step(name, spec, given, runner=runner, **step)
    try:
        value = _parsed(ran, stream, allow_empty)
    except CommandFailed as failed:
        if result == "record":
            error = {"code": failed.code, "message": failed.detail}
            return {"ok": False, "value": None, "error": error, "step": ran}
        raise
    return {"ok": True, "value": value, "error": None, "step": ran} if result == "record" else value


def _parsed(step: Record, stream: str, allow_empty: bool) -> Any:
    said = f"`{step['name']}`"
    if not step["ok"]:
        how = step.get("error") or f"{step['status']}, exit code {step['exit_code']}"
        end = step["failure_tail"].strip()[-_SHOWN:]
        detail = f"{said} failed: {how}" + (f"\n{end}" if end and end != how else "")
        raise CommandFailed(detail, step=step, hint="its `step` has the whole record")
    size = step["cut_outputs"].get(stream)
    if size is not None:
        # Before anything is parsed: the middle is missing, and what is left could be JSON by
        # chance.
        raise CommandFailed(
            f"{said} wrote {size} bytes to {stream}, more than is read of it",
            code="output_too_large",
            step=step,
            hint=(
                "raise `capture.max_inline_bytes` (and the runner's own), or have the command "
                "write less"
            ),
        )
    text = step["outputs"][stream]
    if not text.strip():
        if allow_empty:
            return None
        raise CommandFailed(
            f"{said} wrote nothing to {stream}",
            code="empty_output",
            step=step,
            hint="pass `allow_empty=True` for None",
        )
    try:
        return json.loads(text.removeprefix("\ufeff"), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        detail = f"{said} wrote no JSON to {stream}: {error}; it begins {text[:_SHOWN]!r}"
        raise CommandFailed(detail, code="invalid_json", step=step) from None


def _no_constant(name: str) -> Any:
    raise ValueError(f"`{name}` is not JSON")
