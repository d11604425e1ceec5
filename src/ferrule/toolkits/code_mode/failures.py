"""How a script can fail: exceptions within it, and uncaught ones as an error of the call."""

from __future__ import annotations

from typing import Any

from ferrule.core.calls import ErrorType
from ferrule.core.value_class import frozen

from .library import import_monty
from .limits import CodeLimits

_EXCEPTIONS = {
    ErrorType.NOT_FOUND: "LookupError",
    ErrorType.VALIDATION_FAILED: "ValueError",
    ErrorType.PARSE_ERROR: "ValueError",
    ErrorType.PERMISSION_DENIED: "PermissionError",
    ErrorType.IO_ERROR: "OSError",
    ErrorType.TIMEOUT: "TimeoutError",
}
"""The exception of a failed call in the script; `RuntimeError` for every other type."""
MAX_MESSAGE = 2_000


@frozen
class FailedCall:
    """A failed call: the exception in the script, and the type of the error."""

    exception: str
    message: str
    error_type: ErrorType


def make_failed_call(function: str, error_type: ErrorType, message: str) -> FailedCall:
    """Return the exception of a failed call: it names the function and the type of the error."""
    return FailedCall(
        _EXCEPTIONS.get(error_type, "RuntimeError"),
        f"{function}: {error_type}: {message[:MAX_MESSAGE]}",
        error_type,
    )


def describe_error(
    error: Any, failed_calls: list[FailedCall], limits: CodeLimits
) -> tuple[ErrorType, str]:
    """Return type and message of an error that Monty raised, with the line of the script."""
    monty = import_monty()
    frames: list[Any] = []
    if isinstance(error, (monty.MontySyntaxError, monty.MontyRuntimeError)):
        frames = error.traceback()
    where = f"line {frames[-1].line}: " if frames else ""
    if isinstance(error, monty.MontySyntaxError):
        return (
            ErrorType.PARSE_ERROR,
            f"{where}the script cannot be read: {str(error)[:MAX_MESSAGE]}; correct it",
        )
    if isinstance(error, monty.MontyConversionError):
        return (
            ErrorType.INTERNAL_ERROR,
            f"a result could not be handed to the script: {str(error)[:MAX_MESSAGE]}; leave that "
            "call out",
        )
    shown = error.display("type-msg") if isinstance(error, monty.MontyRuntimeError) else str(error)
    inner = error.exception()
    exceeded = _exceeded_limit(inner, str(error), limits)
    if exceeded is not None:
        error_type, message = exceeded
        return error_type, f"{where}{message}"
    for failed_call in failed_calls:
        if failed_call.message in shown:
            return failed_call.error_type, f"{where}{shown[: 2 * MAX_MESSAGE]}"
    return ErrorType.VALIDATION_FAILED, f"{where}{shown[:MAX_MESSAGE]}{_hint(shown)}"


def _exceeded_limit(
    inner: BaseException, message: str, limits: CodeLimits
) -> tuple[ErrorType, str] | None:
    if isinstance(inner, TimeoutError) and "time limit exceeded" in message:
        return (
            ErrorType.TIMEOUT,
            f"the script computed for more than {limits.seconds:g} s; do less in one script",
        )
    if isinstance(inner, MemoryError):
        return (
            ErrorType.LIMIT,
            f"the script needed more than {limits.memory} bytes of memory; keep less at a time",
        )
    if isinstance(inner, RecursionError):
        return ErrorType.LIMIT, f"more than {limits.depth} calls within each other; use a loop"
    if isinstance(inner, RuntimeError) and "suspension" in message:
        return (
            ErrorType.LIMIT,
            "the script asked too often for what it does not have; use the functions it has",
        )
    return None


def _hint(shown: str) -> str:
    if "coroutine" in shown:
        return "; in a script that says `await`, every call has to be awaited"
    if "can't be awaited" in shown:
        return "; leave `await` out or use it for calls of the functions"
    if "synchronous context" in shown:
        return "; call it in a loop or comprehension"
    return ""


def describe_crash(error: Any, limits: CodeLimits) -> tuple[ErrorType, str]:
    """Return type and message for a worker that was ended or ended itself."""
    if error.timed_out:
        return (
            ErrorType.TIMEOUT,
            f"the script computed for more than {limits.seconds:g} s and was ended; do less",
        )
    return (
        ErrorType.LIMIT,
        "the interpreter of the script ended early: it needed too much; do less in one script",
    )
