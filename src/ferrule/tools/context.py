"""Give a handler access to the run it is part of."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import field
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Generic,
    Protocol,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

from ferrule.core.calls import ToolResult
from ferrule.core.errors import ConfigError
from ferrule.core.events import CallConfined, CallHooked, FilesSeen
from ferrule.core.identity import Identity
from ferrule.core.value_class import mutable

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    DepsT = TypeVarWithDefault("DepsT", default=Any, covariant=True)
else:
    # The default is for type checkers; at run time it would need a library.
    DepsT = TypeVar("DepsT", covariant=True)


class PausableTimeout(Protocol):
    """A limit that can be moved: an `asyncio.Timeout`."""

    def when(self) -> float | None: ...

    def reschedule(self, when: float | None) -> None: ...


class PausableTimeouts:
    """The limits that bound a call's current attempt: the engine's, and those of its handler."""

    def __init__(self) -> None:
        self._limits: list[PausableTimeout] = []
        self._seconds_left: list[tuple[PausableTimeout, float]] = []
        self._pauses = 0

    def add(self, limit: PausableTimeout) -> None:
        """Add a limit that has been entered. One that is over is no longer paused."""
        self._limits.append(limit)

    @contextmanager
    def pause(self) -> Generator[None]:
        """Pause the limits while a person is asked, whose time is not the tool's.

        Several questions at once pause them until the last is answered.
        """
        self._pauses += 1
        if self._pauses == 1:
            self._stop()
        try:
            yield
        finally:
            self._pauses -= 1
            if not self._pauses:
                self._go_on()

    def _stop(self) -> None:
        now = _loop_time()
        for limit in self._limits:
            when = limit.when()
            if when is None:
                continue
            with suppress(RuntimeError):  # it is over
                limit.reschedule(None)
                self._seconds_left.append((limit, when - now))

    def _go_on(self) -> None:
        now = _loop_time()
        for limit, seconds in self._seconds_left:
            with suppress(RuntimeError):  # it is over
                limit.reschedule(now + seconds)
        self._seconds_left.clear()


def _loop_time() -> float:
    # Whoever defines tools need not have loaded it; a call in progress has.
    from asyncio import get_running_loop

    return get_running_loop().time()


T = TypeVar("T")

PROGRESS_TOPIC = "said"
"""Topic of notes that repeat what `progress` has shown; they need not be shown again."""
SANDBOX_TOPIC = "sandbox"
"""Topic of notes about the sandbox of a session's commands, or why no command may run.

They are kept in the journal; tool results repeat them where it matters.
"""
ANSWER_TOPIC = "answered"
"""Topic of notes about a person's answer to a handler's question; the person knows the answer."""
HIDDEN_TOPICS = (PROGRESS_TOPIC, SANDBOX_TOPIC, ANSWER_TOPIC)
"""Topics that are in the journal and are not shown to the person who talks with a model."""


@mutable
class Context(Generic[DepsT]):
    """The run as a handler sees it; passed to a parameter annotated with this type.

    The parameter is not part of the schema. `Context[Shop]` says which dependencies the handler
    needs; an agent that has others refuses the tool.

    Attributes:
        identity: The tenant, user, session and run.
        call_id: The id of this call, unique within the session.
        memory: State of the tools of this session (what was last read, the task list). It is lost
            when the session ends or the process restarts.
        resources: Objects the run was given, by type; see `resource`.
        progress: Shows a line to the person, not to the model.
        show_tail: Shows the person the end of what this call has printed so far, in place of what
            was shown before.
        call: Runs another tool on behalf of this call, with the same checks and approvals.
        deadline: Seconds this attempt may take, for handlers that pass a timeout on.
        timeouts: What bounds this attempt; a handler pauses it while it asks a person.
        tell: Gives the model a text, framed as data of this tool, before its next answer, or with
            the next message if no run is active. May be kept and called after this call has ended,
            from any thread.
        tell_end: The same, for how something ended that this call left in the background: an
            interface may wake the model for it.
        note: Writes a notice (topic, text) to the journal, for people and not for the model. It is
            written together with the next events; call it on the run's event loop only.
        on_close: Registers a cleanup for the end of the session. Each is awaited once, the last
            registered first, all within ten seconds.
        record: Writes at once what an auditor of this call must find (a hook's decision, the
            sandbox of a program). Raises JournalError if it cannot; the handler must then stop.
        launched: Whether the call was answered and its work continues as a task
            (`tools.background_launch`). Set by the dispatcher.
        find_sent_result: Returns the text of an earlier call's result as the model is sent it now.
            Empty if it is not, after compaction for example, or if this call is not the model's
            own.
        is_stopped: Tells whether the call was stopped or is over its time. A blocking handler that
            takes long looks at it and returns: nothing can stop its thread.
        was_left: Whether the handler did not end when it was stopped. Set by the engine.
        printed: Output of the call until it was stopped (`keep_printed`).
        outer: The context of the call whose handler makes this one.
        deps: The dependencies that the program gave the run (`Agent(deps_type=...)`); None if it
            gave none.
    """

    identity: Identity
    call_id: str
    memory: dict[str, Any] = field(default_factory=dict[str, Any])
    resources: Mapping[type, object] = field(default_factory=dict[type, object])
    progress: Callable[[str], None] = lambda text: None
    show_tail: Callable[[str], None] = lambda text: None
    call: Callable[[str, dict[str, Any]], Awaitable[ToolResult]] | None = None
    deadline: float | None = None
    tell: Callable[[str], None] = lambda text: None
    tell_end: Callable[[str], None] = lambda text: None
    note: Callable[[str, str], None] = lambda topic, text: None
    on_close: Callable[[Callable[[], Awaitable[None]]], None] = lambda closer: None
    record: Callable[[CallHooked | CallConfined | FilesSeen], None] = lambda event: None
    launched: bool = False
    find_sent_result: Callable[[str], str] = lambda call_id: ""
    timeouts: PausableTimeouts = field(default_factory=PausableTimeouts)
    is_stopped: Callable[[], bool] = lambda: False
    was_left: bool = False
    printed: str = ""
    outer: Context[Any] | None = None
    deps: DepsT = None  # pyright: ignore[reportAssignmentType]  a run without dependencies

    def begin_attempt(self, is_stopped: Callable[[], bool]) -> None:
        """Begin an attempt, which `is_stopped` tells when to end."""
        self.is_stopped = is_stopped

    def mark_launched(self) -> None:
        """Record that the call was answered and its work continues as a task."""
        self.launched = True

    def mark_left(self) -> None:
        """Take note that the handler did not end when it was stopped."""
        self.was_left = True

    def keep_printed(self, text: str) -> None:
        """Keep what the call had printed when it was stopped, for its result and the person."""
        self.printed = text
        if self.outer is not None:
            self.outer.keep_printed(text)

    def resource(self, kind: type[T]) -> T:
        """Return the run's resource of a type, such as `context.resource(Workspace)`.

        Raises:
            ConfigError: The run was given no resource of this type.
        """
        found = self.resources.get(kind)
        if isinstance(found, kind):
            return found
        hint = f"pass a `{kind.__name__}` in `resources=[...]` of the Agent"
        if kind.__name__ == "Workspace":
            # The only resource that an Agent takes by an option of its own.
            hint = "pass `workspace=` to the Agent"
        raise ConfigError(
            f"this tool needs a `{kind.__name__}`, and the run was given none", hint=hint
        )


def is_context(annotation: object) -> bool:
    """Return whether a parameter's annotation is `Context`.

    It may have a type in brackets, be `Annotated`, or a union with None.
    """
    if type(annotation) is type:
        # A class, by far the most common annotation, has no origin to look for.
        return annotation is Context
    bare = _find_bare_type(annotation)
    return bare is Context or get_origin(bare) is Context


def find_deps_type(annotation: object) -> Any:
    """Return the type of dependencies that a `Context[...]` asks for; Any if it asks for none."""
    arguments = get_args(_find_bare_type(annotation))
    wanted = arguments[0] if arguments else Any
    return Any if isinstance(wanted, TypeVar) or wanted is object else wanted


def _find_bare_type(annotation: object) -> object:
    """Return an annotation without `Annotated`, and without the None of a union."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _find_bare_type(get_args(annotation)[0])
    if origin is Union or origin is UnionType:
        others = [one for one in get_args(annotation) if one is not NoneType]
        return _find_bare_type(others[0]) if len(others) == 1 else annotation
    return annotation
