"""Exceptions, in three families that differ in who has to act.

    Signal        the model    raised by a tool or a check; the dispatcher turns it into a result
    Control       the engine   steers the loop; derives from BaseException so that no
                               `except Exception` in a tool can swallow it
    FerruleError  the caller   a person or a program has to change something

A Signal is never seen by the caller of `Agent.run`; a FerruleError is never shown to the model.
Exceptions carry data and do not log.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any, Literal, Self

from .calls import ErrorType
from .output import OUTPUT_INVALID_CODE, OutputAttempt
from .vocabulary import Refuser


class ToolSignal(Exception):
    """Base class of failures that the model is told about. Each becomes exactly one result."""


class ToolFailed(ToolSignal):
    """A call failed. `message` has what was attempted, what was found and what to change.

    Unlike with `RetryCall`, the arguments may have been fine.

    Args:
        error_type: The type in the result.
        message: The error message of the result.
        transient: The same call could work a moment later; short for `kind="transient"`.
        kind: One of `tools.reliability.FAILURE_CLASSES`; `permanent` by default.
        retry_after: Seconds after which the service asked to be called again.
        data: Details of the failed call, as JSON.
        refused_by: Who refused it, if somebody did; the tool itself unless it says otherwise.
    """

    def __init__(
        self,
        error_type: ErrorType,
        message: str,
        *,
        transient: bool = False,
        kind: str = "",
        retry_after: float | None = None,
        data: Mapping[str, Any] | None = None,
        refused_by: Refuser = "tool",
    ) -> None:
        super().__init__(error_type, message)
        is_refusal = error_type is ErrorType.PERMISSION_DENIED
        self.refused_by: Refuser | Literal[""] = refused_by if is_refusal else ""
        self.error_type = error_type
        self.message = message
        self.data = data
        """What is known about the failed call, as JSON: the `data` of its result."""
        self.kind = kind or ("transient" if transient else "permanent")
        """Whether the same call could work a moment later: one of
        `tools.reliability.FAILURE_CLASSES`.

        For a call with an effect, `transient` means that it certainly did not happen; after
        `timeout` and `5xx` that is unknown.
        """
        self.retry_after = retry_after
        """Seconds after which the service asked to be called again, if it said so."""

    @property
    def is_transient(self) -> bool:
        """True if the same call could work a moment later."""
        return self.kind == "transient"

    def __str__(self) -> str:
        return self.message


class RetryCall(ToolFailed):
    """The arguments were understood but should be changed as `message` says."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorType.VALIDATION_FAILED, message)

    def __reduce__(self) -> tuple[object, ...]:
        # The default passes the base's two arguments to `__init__`: copies and pickles would fail.
        return (type(self), (self.message,), self.__dict__)


class FerruleError(Exception):
    """Base class of errors that a person or a program has to act on.

    Attributes:
        detail: What went wrong, for people.
        code: What went wrong, for programs. Stable.
        hint: One next step.
        retryable: Whether trying again could work; None if that is unknown.
        exit_code: The exit code of the command line (1 failed, 2 usage, 4 denied, 5 limit,
            6 provider unavailable, 7 needs input, 124 out of time).
    """

    code = "error"
    exit_code = 1

    def __init__(
        self, detail: str, *, code: str = "", hint: str = "", retryable: bool | None = None
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.code = code or type(self).code
        self.hint = hint
        self.retryable = retryable

    def __str__(self) -> str:
        return f"{self.detail}\nhint: {self.hint}" if self.hint else self.detail

    def reword(self, detail: str, hint: str) -> Self:
        """Return this error in other words. Its class, code and other fields are the same."""
        made = copy(self)
        made.detail, made.hint = detail, hint
        return made

    def __reduce__(self) -> tuple[object, ...]:
        # The default drops keyword-only arguments: copies would lose the code and the hint.
        return (_rebuild, (type(self), self.detail, self.__dict__))


def _rebuild(kind: type[FerruleError], detail: str, state: dict[str, object]) -> FerruleError:
    error = kind.__new__(kind)
    Exception.__init__(error, detail)
    error.__dict__.update(state)
    return error


class ConfigError(FerruleError):
    """A setting, rule, tool definition or file that a person wrote is invalid."""

    code = "config"
    exit_code = 2


class ToolDefinitionError(ConfigError):
    """A tool cannot be registered. Names the tool, and the parameter or key at fault."""

    code = "tool_definition"


class ProviderError(FerruleError):
    """A model could not be reached, refused the request, or gave an unusable answer."""

    code = "provider"
    exit_code = 6

    def __init__(
        self,
        detail: str,
        *,
        code: str = "",
        hint: str = "",
        retryable: bool | None = None,
        status: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(detail, code=code, hint=hint, retryable=retryable)
        self.status = status
        """The HTTP status, if there was one."""
        self.retry_after = retry_after
        """Seconds that the server asked to wait, if it said so."""

    def to_fields(self) -> dict[str, Any]:
        """Return what programs decide by, as JSON: the code, and what is known of the rest."""
        known = {
            "status": self.status,
            "retryable": self.retryable,
            "retry_after": self.retry_after,
        }
        return {"code": self.code, **{k: value for k, value in known.items() if value is not None}}


class ContextLeak(ProviderError):
    """A request was not sent: it contained raw large content that belongs in an artifact."""

    code = "context_leak"
    exit_code = 1


class JournalError(FerruleError):
    """The journal cannot be written, or its hash chain does not verify."""

    code = "journal"
    session = ""
    """The session whose chain does not verify; empty if the error is about something else."""
    event = 0
    """The number of the first event that does not verify; 0 if the error is about no event."""


class SessionNotFound(FerruleError):
    """No session has this id, or this identity may not see it. The error is the same for both."""

    code = "session_not_found"
    exit_code = 2


class LimitReached(FerruleError):
    """A run reached a limit. The session is intact and can be resumed with a higher limit."""

    code = "limit"
    exit_code = 5

    def __init__(self, limit: str, value: float, *, session: str = "", hint: str = "") -> None:
        super().__init__(f"limit reached: {limit} = {value:g}", code=f"limit_{limit}", hint=hint)
        self.exit_code = 124 if limit == "max_seconds" else type(self).exit_code
        self.limit = limit
        """The limit's name: `max_turns`, `max_seconds`, `max_tokens`, `max_cost`, `max_calls`,
        `user_tokens`, `user_cost`, `tenant_tokens`, `tenant_cost`.
        """
        self.value = value
        self.session = session


class OutputInvalid(FerruleError):
    """A run ended without a value that fits the agent's `output_type`."""

    code = OUTPUT_INVALID_CODE
    exit_code = 4

    def __init__(
        self,
        detail: str,
        *,
        attempts: tuple[OutputAttempt, ...] = (),
        session: str = "",
    ) -> None:
        super().__init__(
            detail,
            hint="`Agent(output_retries=...)` allows more corrections; `attempts` has the answers",
        )
        self.attempts = attempts
        """Every answer that did not fit, with its problems, in order."""
        self.session = session


class RunCancelled(FerruleError):
    """A person or the caller stopped the run."""

    code = "cancelled"
    exit_code = 130
