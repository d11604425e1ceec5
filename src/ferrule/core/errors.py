"""Three families of exceptions. Which family says who must act on it.

    Signal        for the model    raised by a tool or a guard; the dispatcher turns it into a result
    Control       for the loop     steers the engine; derives from BaseException so that no
                                   `except Exception` in a tool can swallow it
    FerruleError  for the caller   a person or a program has to change something

A Signal is never seen by the caller of `Agent.run`; a FerruleError is never shown to the model.
Exceptions carry data and do not log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .calls import ErrorType


class Signal(Exception):
    """Something the model should hear about. Becomes exactly one result."""


class ToolFailed(Signal):
    """A call did not work. `message` says what was tried, what was found and what to change.

    Unlike `RetryCall`, the arguments may have been fine: the world said no.
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
    ) -> None:
        super().__init__(error_type, message)
        self.error_type = error_type
        self.message = message
        self.data = data
        """What is known of the failed call, as JSON: the `data` of its result. None for most."""
        self.kind = kind or ("transient" if transient else "permanent")
        """Whether the same call could work a moment later: one of `tools.reliability.CLASSES`. Of a call with an effect,
        `transient` says that it surely did not happen; after `timeout` and `5xx` nobody knows."""
        self.retry_after = retry_after
        """Seconds after which the service wants to be asked again, where it said so."""

    @property
    def transient(self) -> bool:
        """True if the same call could work a moment later."""
        return self.kind == "transient"

    def __str__(self) -> str:
        return self.message


class RetryCall(ToolFailed):
    """The arguments were understood but should be changed as `message` says."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorType.VALIDATION_FAILED, message)

    def __reduce__(self) -> tuple[object, ...]:
        # The default would call us with the two arguments of the base: copies and pickles would
        # fail.
        return (type(self), (self.message,), self.__dict__)


class Control(BaseException):
    """Steers the engine. Not an error, and not for tools to catch."""


class FerruleError(Exception):
    """Something a person or a program has to change.

    `code` is stable and for programs, `detail` is for people, `hint` is one next step,
    `retryable` is None where we cannot tell. `exit_code` is what the command line returns
    (1 failed, 2 usage, 4 denied, 5 limit, 6 provider unavailable, 7 needs input, 124 out of time).
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

    def __reduce__(self) -> tuple[object, ...]:
        # Keyword-only arguments do not survive the default reduce: copies would lose code and hint.
        return (_rebuild, (type(self), self.detail, self.__dict__))


def _rebuild(kind: type[FerruleError], detail: str, state: dict[str, object]) -> FerruleError:
    error = kind.__new__(kind)
    Exception.__init__(error, detail)
    error.__dict__.update(state)
    return error


class ConfigError(FerruleError):
    """A setting, rule, tool definition or file that a person wrote cannot be used as it stands."""

    code = "config"
    exit_code = 2


class ToolDefinitionError(ConfigError):
    """A tool cannot be registered: named, with the parameter or key that is at fault."""

    code = "tool_definition"


class ProviderError(FerruleError):
    """A model could not be reached, refused the request, or answered with something unusable."""

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
        """HTTP status, where there was one."""
        self.retry_after = retry_after
        """Seconds the server asked us to wait."""


class ContextLeak(ProviderError):
    """A question was about to carry raw heavy content that belongs in an artifact. It was not
    sent.
    """

    code = "context_leak"
    exit_code = 1


class JournalError(FerruleError):
    """The journal cannot be written or does not verify. Names the session and the event."""

    code = "journal"
    session = ""
    """The session whose chain does not hold, where that is what it is about."""
    event = 0
    """The first event of it that does not hold; 0 if it is about none."""


class SessionNotFound(FerruleError):
    """No session has this id, or this identity may not see it: the two are not told apart."""

    code = "session_not_found"
    exit_code = 2


class LimitReached(FerruleError):
    """A run hit a limit. The session is intact and can be resumed with a higher one."""

    code = "limit"
    exit_code = 5

    def __init__(self, limit: str, value: float, *, session: str = "", hint: str = "") -> None:
        super().__init__(f"limit reached: {limit} = {value:g}", code=f"limit_{limit}", hint=hint)
        self.exit_code = 124 if limit == "max_seconds" else type(self).exit_code
        self.limit = limit
        """Which one: `max_rounds`, `max_seconds`, `max_tokens`, `max_cost`, `max_calls`."""
        self.value = value
        self.session = session


class RunCancelled(FerruleError):
    """The run was stopped by a person or by its caller."""

    code = "cancelled"
    exit_code = 130
