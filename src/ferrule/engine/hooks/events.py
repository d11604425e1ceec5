"""Hooks on events: their payloads, their answers, and the hook itself.

    event                   blocking it means                          may be changed
    session.start           no run of the session starts               -
    session.end             (too late)                                 -
    turn.start              the message is refused                     text
    turn.end                the model continues, with the reason as    -
                            its message
    tool.pre                the call gets `permission_denied`          arguments
    tool.post               the result is withheld                     result
    completion.pre          the model is not asked, the run fails      messages
    completion.post         the answer is withheld, its calls are      text, calls
                            refused
    output                  the value goes back to the model with      value
                            the reason
    delegation.pre          nothing is delegated                       request
    delegation.post         the answer is withheld                     result
    delegation.post_verify  the work did not pass its check            -
    error                   (too late)                                 -
    custom.*                the emitter is told                        data

The payload of `tool.pre` is `ToolPre` and so on; that of `error` is `Failed`, that of
`delegation.post_verify` `DelegationVerified`.

Names, order and meaning follow requirement 003 (lower priority number first, the first block wins,
changes chain). Unlike there, a hook that fails is a refusal wherever a refusal has an effect
(`GATING`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from copy import deepcopy
from dataclasses import KW_ONLY, field, fields, replace
from typing import Any, ClassVar, Literal, Self

from ferrule.core.errors import ConfigError
from ferrule.core.identity import Identity
from ferrule.core.lazy_patterns import compile_lazily
from ferrule.core.similar_names import suggest_names
from ferrule.core.value_class import frozen
from ferrule.core.vocabulary import AnswerStop, PermissionMode, RunStop
from ferrule.tools.definition import Tool
from ferrule.tools.json_conversion import to_json_value

OnError = Literal["block", "allow", "ask"]

DEFAULT_PRIORITY = 100
DEFAULT_TIMEOUT = 30.0
"""Seconds."""

_NAME = compile_lazily(r"[A-Za-z0-9_][A-Za-z0-9_.:/ -]{0,127}")
_CUSTOM = compile_lazily(r"custom\.(\*|[a-z0-9_]+(\.[a-z0-9_]+)*)")


class NotJson(ValueError):
    """A hook gave an invalid answer. The hook counts as broken."""


@frozen
class Payload:
    """What a hook is told. `event` is the event's name, `changeable` what an answer may change.

    `agent_type` and `agent_id` say in which sub-agent it happens: its name and its session. Both
    are "" in a person's own session.
    """

    event: ClassVar[str] = ""
    changeable: ClassVar[frozenset[str]] = frozenset()
    agent_type: str = field(default="", kw_only=True)
    agent_id: str = field(default="", kw_only=True)

    def as_dict(self) -> dict[str, Any]:
        """Return a copy with JSON values only, as scripts, commands and `when` see it."""
        return {
            part.name: json_value(getattr(self, part.name)) for part in fields(self) if part.repr
        }

    def copy(self) -> Self:
        """Return a deep copy that a hook may modify."""
        return replace(
            self,
            **{part.name: deepcopy(getattr(self, part.name)) for part in fields(self) if part.repr},
        )

    def replace(self, change: Mapping[str, Any]) -> Self:
        """Return a copy with what an answer changes.

        A script may return the whole payload: unchanged values are ignored. Raises NotJson for what
        may not be changed, or not like this.
        """
        before = self.as_dict()
        news = {
            key: value for key, value in change.items() if key not in before or before[key] != value
        }
        self.check(news)
        wrong = sorted(set(news) - self.changeable)
        if wrong:
            can = ", ".join(f"`{name}`" for name in sorted(self.changeable)) or "nothing"
            raise NotJson(f"it changes `{wrong[0]}`; of `{self.event}` can be changed: {can}")
        return replace(self, **news)

    def check(self, news: dict[str, Any]) -> None:
        """Raise NotJson for a new value of the wrong form, and rename aliases."""
        _require_type(news, "text", str)


@frozen
class SessionStart(Payload):
    """A session begins, or goes on in another process."""

    event: ClassVar[str] = "session.start"
    source: Literal["startup", "resume"] = "startup"
    """`startup` or `resume`."""
    model: str = ""


@frozen
class SessionEnd(Payload):
    """A session was closed; nothing follows in this process."""

    event: ClassVar[str] = "session.end"
    reason: str = "closed"


@frozen
class TurnStart(Payload):
    """A person's message, before anything is done with it."""

    event: ClassVar[str] = "turn.start"
    changeable: ClassVar[frozenset[str]] = frozenset({"text"})
    text: str = ""


@frozen
class TurnEnd(Payload):
    """The end of a turn.

    `stop` is `done`, `limit` or `failed`. `continued` counts how often a hook has made this turn go
    on. A turn that a person or the caller cancels has no end event: nobody waits for a hook then.
    """

    event: ClassVar[str] = "turn.end"
    text: str = ""
    stop: RunStop = "done"
    code: str = ""
    detail: str = ""
    continued: int = 0


@frozen
class ToolPre(Payload):
    """A call that passed validation and policy.

    `args` is the same as `arguments` (requirement 003 calls it so). `reads`, `writes`, `commands`
    and `urls` are the values of the arguments that the tool declares as paths to read, paths to
    write, commands and addresses. `tool` is for Python hooks only.
    """

    event: ClassVar[str] = "tool.pre"
    changeable: ClassVar[frozenset[str]] = frozenset({"arguments"})
    id: str = ""
    name: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    side_effect: str = ""
    risk: str = ""
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    commands: tuple[str | tuple[str, ...], ...] = ()
    urls: tuple[str, ...] = ()
    tool: Tool | None = field(default=None, repr=False, compare=False)

    @staticmethod
    def of(call_id: str, tool: Tool, values: Mapping[str, Any]) -> ToolPre:
        """Build the payload for a call."""
        touched: dict[str, list[Any]] = {"read": [], "write": [], "command": [], "url": []}
        for subject in tool.subjects(values):
            touched.setdefault(subject.kind, []).append(subject.value)
        found = (tuple(touched[kind]) for kind in ("read", "write", "command", "url"))
        arguments = json_value(dict(values))
        return ToolPre(
            call_id,
            tool.rule_name,
            arguments,
            str(tool.side_effect),
            str(tool.risk),
            *found,
            tool=tool,
        )

    def as_dict(self) -> dict[str, Any]:
        shown = Payload.as_dict(self)
        shown["args"] = json_value(self.arguments)
        return shown

    def check(self, news: dict[str, Any]) -> None:
        if "args" in news:
            if news.get("arguments", news["args"]) != news["args"]:
                raise NotJson("it changes `args` and `arguments` differently; they are the same")
            news["arguments"] = news.pop("args")
        _require_type(news, "arguments", dict)


@frozen
class ToolPost(Payload):
    """A call's result.

    `result` is its value, text or JSON; `error` its type, `none` if it succeeded.
    """

    event: ClassVar[str] = "tool.post"
    changeable: ClassVar[frozenset[str]] = frozenset({"result"})
    id: str = ""
    name: str = ""
    success: bool = True
    result: Any = None
    error: str = "none"
    message: str = ""
    duration_ms: int = 0
    arguments: Mapping[str, Any] | None = None
    """The arguments it ran with; None if they are no longer known."""
    tool: Tool | None = field(default=None, repr=False, compare=False)


@frozen
class CompletionPre(Payload):
    """A request to the model.

    `messages` are objects with `index`, `role` (user, assistant, tool) and `content`; an
    assistant's may have `tool_calls`, a tool's has `tool_call_id` and `name`.

    A change applies to this request only; the session's history stays. A hook may leave messages
    out, change their `content`, and add messages of the role `user` without an `index`.
    """

    event: ClassVar[str] = "completion.pre"
    changeable: ClassVar[frozenset[str]] = frozenset({"messages"})
    turn: int = 1
    messages: tuple[Mapping[str, Any], ...] = ()
    tools: bool = True

    def check(self, news: dict[str, Any]) -> None:
        _require_type(news, "messages", list)


@frozen
class CompletionPost(Payload):
    """An answer of the model.

    `calls` are objects with `id`, `name` and `arguments` (JSON text as it came). A hook may leave
    calls out; each call that stays keeps its `id` and `name`.
    """

    event: ClassVar[str] = "completion.post"
    changeable: ClassVar[frozenset[str]] = frozenset({"text", "calls"})
    turn: int = 1
    text: str = ""
    calls: tuple[Mapping[str, Any], ...] = ()
    stop: AnswerStop = "end"
    input_tokens: int = 0
    output_tokens: int = 0

    def check(self, news: dict[str, Any]) -> None:
        _require_type(news, "text", str)
        _require_type(news, "calls", list)


@frozen
class OutputPost(Payload):
    """A typed answer that fits, before the run ends with it.

    `value` is its JSON value; what a hook puts in its place is checked again. Of an output function
    it is what the function returned: it cannot be changed then, and refusing it ends the run.
    """

    event: ClassVar[str] = "output"
    changeable: ClassVar[frozenset[str]] = frozenset({"value"})
    value: Any = None


@frozen
class DelegationPre(Payload):
    """Work that is about to be delegated.

    `request` is what `delegate` was called with, or the like; `session` is the one that the agent
    would have.
    """

    event: ClassVar[str] = "delegation.pre"
    changeable: ClassVar[frozenset[str]] = frozenset({"request"})
    agent: str = ""
    request: Mapping[str, Any] = field(default_factory=dict[str, Any])
    session: str = ""

    def check(self, news: dict[str, Any]) -> None:
        _require_type(news, "request", dict)


@frozen
class DelegationPost(Payload):
    """A sub-agent's result, before the call that asked for it is answered."""

    event: ClassVar[str] = "delegation.post"
    changeable: ClassVar[frozenset[str]] = frozenset({"result"})
    agent: str = ""
    request: Mapping[str, Any] = field(default_factory=dict[str, Any])
    result: Any = None
    session: str = ""


@frozen
class DelegationVerified(Payload):
    """A sub-agent's work was checked (`engine.delegation.verification`).

    Says whether it `passed`, the check's report, and at which attempt.
    """

    event: ClassVar[str] = "delegation.post_verify"
    agent: str = ""
    request: Mapping[str, Any] = field(default_factory=dict[str, Any])
    session: str = ""
    attempt: int = 1
    passed: bool = True
    report: str = ""


@frozen
class Failed(Payload):
    """Something went wrong.

    `where` is `run` (it failed or hit a limit) or `hook` (one is broken).
    """

    event: ClassVar[str] = "error"
    where: Literal["run", "hook"] = "run"
    code: str = ""
    message: str = ""
    hook: str = ""


@frozen
class Custom(Payload):
    """An event of a tool's or a program's own.

    `name` is the full name, such as `custom.deployed`.
    """

    event: ClassVar[str] = "custom.*"
    changeable: ClassVar[frozenset[str]] = frozenset({"data"})
    name: str = "custom.event"
    data: Any = None


PAYLOADS: dict[str, type[Payload]] = {
    kind.event: kind
    for kind in (
        SessionStart,
        SessionEnd,
        TurnStart,
        TurnEnd,
        ToolPre,
        ToolPost,
        CompletionPre,
        CompletionPost,
        OutputPost,
        DelegationPre,
        DelegationPost,
        DelegationVerified,
        Failed,
        Custom,
    )
}

GATING = frozenset(PAYLOADS) - {"session.end", "turn.end", "error"}
"""Events at which a hook that fails is a refusal.

At the others nothing is left to be prevented: the failure is reported.
"""


@frozen
class Action:
    """A hook's answer. Made by `allow`, `block`, `ask`, `modify`, `delegate`.

    `payload` has changed keys of the event's payload. `context` is text for the model (as data),
    `message` text for the person; `stop` ends the run before the model is asked again, with this
    reason.
    """

    verdict: Literal["allow", "block", "ask", "delegate"] = "allow"
    reason: str = ""
    payload: Mapping[str, Any] | None = None
    request: Mapping[str, Any] | None = None
    context: str = ""
    message: str = ""
    stop: str = ""


def allow(*, context: str = "", message: str = "") -> Action:
    """Let it pass. A hook's approval never overrides a deny or ask rule."""
    return Action(context=context, message=message)


def block(reason: str) -> Action:
    """Refuse it. Whoever wanted it reads the reason and the hook's name."""
    return Action("block", reason)


def ask(reason: str) -> Action:
    """Require a person's approval (`tool.pre`; elsewhere this is a refusal)."""
    return Action("ask", reason)


def modify(payload: Mapping[str, Any]) -> Action:
    """Let it pass with changes: keys of the payload with their new values."""
    return Action(payload=payload)


def delegate(request: Mapping[str, Any]) -> Action:
    """Have the call of `tool.pre` answered by another agent instead of running it."""
    return Action("delegate", request=request)


def _ignore_line(line: str) -> None:
    """Drop a line of a hook that nobody listens to."""


@frozen
class Occasion:
    """An event with its circumstances: what, for whom, where.

    Attributes:
        payload: What happened.
        identity: For whom.
        workspace: The folder of the session.
        mode: The permission mode.
        log: Takes a line that a hook writes: it goes to the person and into the journal.
    """

    payload: Payload
    identity: Identity
    workspace: str = ""
    mode: PermissionMode = "default"
    log: Callable[[str], None] = _ignore_line

    @property
    def event(self) -> str:
        """The event's name; for a custom event its own name."""
        return self.payload.name if isinstance(self.payload, Custom) else self.payload.event


@frozen
class EventHook:
    """One hook on events.

    Attributes:
        name: Its name.
        events: The events that it is on.
        run: Returns an `Action`, a dictionary of its shape, or None to let it pass.
        when: Decides whether it is asked at all.
        priority: Lower numbers are asked first.
        timeout: In seconds, for one event. Work in a thread of its own cannot be ended, only left.
        on_error: What it means if the hook fails (`ask` counts as `block` except at `tool.pre`).
        source: Where it is from.

    Raises:
        ConfigError: An event does not exist, or another value is not valid.
    """

    _: KW_ONLY
    name: str
    events: tuple[str, ...]
    run: Callable[[Occasion], Awaitable[object]]
    when: Callable[[Occasion], bool] | None = None
    priority: int = DEFAULT_PRIORITY
    timeout: float = DEFAULT_TIMEOUT
    on_error: OnError = "block"
    source: str = "python"

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ConfigError(
                f"a hook is named {self.name!r}", hint="letters, digits and `_ - . : /`"
            )
        if not self.events:
            raise ConfigError(f"the hook `{self.name}` is on no event")
        for event in self.events:
            check_event(event, f"the hook `{self.name}`")
        if not 0 < self.timeout <= 3600:
            raise ConfigError(
                f"the hook `{self.name}` has {self.timeout:g} s", hint="above 0, up to 3600"
            )
        if self.on_error not in ("block", "allow", "ask"):
            raise ConfigError(
                f"the hook `{self.name}`: on_error = {self.on_error!r}", hint="block, allow or ask"
            )

    def handles(self, event: str) -> bool:
        """Whether the hook is on this event."""
        return event in self.events or (event.startswith("custom.") and "custom.*" in self.events)


def check_event(event: str, who: str) -> None:
    """Raise ConfigError, naming `who` and the nearest event, if there is no such event."""
    if event in PAYLOADS or _CUSTOM.fullmatch(event):
        return
    hint = suggest_names(event, PAYLOADS, f"there are: {', '.join(PAYLOADS)}")
    raise ConfigError(f"{who} is on `{event}`, and there is no such event", hint=hint)


def json_value(value: Any) -> Any:
    """Return a copy made of JSON values.

    Raises NotJson for what has no such form: no hook could check it.
    """
    try:
        return to_json_value(value)
    except TypeError as error:
        raise NotJson(
            f"a value of the type {type(value).__name__} cannot be shown to a hook: {error}"
        ) from error


def _require_type(news: dict[str, Any], name: str, kind: type) -> None:
    if name not in news:
        return
    if not isinstance(news[name], (list, tuple) if kind is list else kind):
        raise NotJson(f"`{name}` must be {_TYPE_NAMES[kind]}, found {type(news[name]).__name__}")
    news[name] = tuple(news[name]) if kind is list else news[name]


_TYPE_NAMES: dict[type, str] = {str: "text", dict: "an object", list: "a list"}
