"""What can happen in a run. Events are the only input of the machine and the only content of the
journal.

Every event has a `kind` (its name in the journal) and is a flat value of JSON-able fields, calls
and results. Readers are tolerant: an unknown kind is kept as `Unknown`, an unknown field is
dropped, a missing field takes its default. Writers are strict. `FORMAT` counts incompatible
changes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import field, fields
from json.encoder import encode_basestring
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple, cast, get_args

from .calls import Call, ErrorType, Result, compact
from .errors import ConfigError
from .frozen import frozen
from .limits import Limits
from .record_events import (
    CallConfined,
    ConsentAnswered,
    FilesSeen,
    SessionArchived,
    ToolSearchQuery,
    ToolSearchResult,
)

FORMAT = 1
"""Version of the event format. Files of every earlier version load forever (tests/corpus)."""


@frozen
class Usage:
    """Tokens as the provider counts them; `cached` is the part of `input` that came from its cache,
    `written` the part that went into it (some providers bill that higher), `reasoning` the part of
    `output` that nobody reads. `cost` is the price of all in billionths of a US dollar, counted
    where a run's money is bounded (`engine.budgets`).
    """

    input: int = 0
    output: int = 0
    cached: int = 0
    written: int = 0
    reasoning: int = 0
    cost: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input + other.input, self.output + other.output, self.cached + other.cached,
            self.written + other.written, self.reasoning + other.reasoning, self.cost + other.cost,
        )  # fmt: skip


@frozen
class ProviderToolCall:
    """What a provider did with a tool that it runs itself (`models.hosted_tools`). A record:
    nothing is dispatched for it.

    The ids and the type are the provider's; `tool_kind` is one word (search, fetch, execute, mcp,
    tool_search, ...), `name` the tool (`server.tool` of a remote MCP server), `provider_metadata`
    its own JSON, bounded. Of a search for tools, `arguments` are all it was asked with, as JSON,
    and `references` the full names of the tools that it found.
    """

    provider_tool_id: str
    call_id: str = ""
    provider_tool_type: str = ""
    tool_kind: str = "other"
    name: str = ""
    status: str = ""
    provider_metadata: str = "{}"
    executor: str = "provider_native"
    arguments: str = ""
    references: tuple[str, ...] = ()


@frozen
class Access:
    """What a call touches, as workspace path prefixes; `""` is everything.

    Two calls conflict if one writes a prefix that the other reads or writes (in either direction
    of containment). Calls that do not conflict may run together.
    """

    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()

    def conflicts(self, other: Access) -> bool:
        if not self.writes and not other.writes:
            return False
        return (
            ALONE in (self, other)
            or _meet(self.writes, other.writes)
            or _meet(self.writes, other.reads)
            or _meet(self.reads, other.writes)
        )


def _meet(some: tuple[str, ...], others: tuple[str, ...]) -> bool:
    return any(_overlap(a, b) for a in some for b in others)


def _overlap(a: str, b: str) -> bool:
    return not a or not b or a == b or a.startswith(b + "/") or b.startswith(a + "/")


EVERYTHING = Access(reads=(), writes=("",))
"""Alone among what touches anything: for tools that said nothing, for commands, for the outside
world.
"""
ALONE = Access(reads=("",), writes=("",))
"""Alone in its round, also beside what touches nothing: for `parallel=False`."""


@frozen
class SessionOpened:
    """First event of a session: what it was opened with. `system` is the system text, kept for its
    life.

    The session of a sub-agent names itself (`agent`) and whoever delegated: session (`parent`) and
    call (`parent_call`). A fork names the session and the event that it goes on from (`forked`,
    `<session>:<number>`).
    """

    kind: ClassVar[str] = "session.opened"
    model: str = ""
    workspace: str = ""
    mode: str = "default"
    system: str = ""
    tools: tuple[str, ...] = ()
    results: str = "value"
    parent: str = ""
    format: int = FORMAT
    parent_call: str = ""
    agent: str = ""
    forked: str = ""


@frozen
class RunStarted:
    """A person's message opens a run. Its limits are part of it: a journal must rebuild to the same
    state whatever the settings say by then. So are `join` (`core.joins`, 0: all) and the tools it
    requires (`core.required_tools`).
    """

    kind: ClassVar[str] = "run.started"
    text: str
    model: str = ""
    limits: Limits = Limits()
    join: int = 0
    require: tuple[str, ...] = ()


@frozen
class ContextAdded:
    """Text a person put into the history without asking for an answer (`/read`, `/run` in a
    chat).
    """

    kind: ClassVar[str] = "context.added"
    text: str


@frozen
class DirectCall:
    """A person (or a program) runs a tool without a model: slash commands, `ferrule tools call`, a
    nested call.
    """

    kind: ClassVar[str] = "call.direct"
    call: Call
    by: str = "person"


@frozen
class ModelAnswered:
    """One whole answer of a model. `stop` is `end`, `calls`, `length` (cut) or `filter`.

    `way` says how calls were made (native, constrained, text, commands); `raw` is the provider's
    own JSON where it must be replayed byte for byte; `provider_calls` are those that the provider
    carried out itself.
    """

    kind: ClassVar[str] = "model.answered"
    text: str = ""
    calls: tuple[Call, ...] = ()
    reasoning: str = ""
    usage: Usage = Usage()
    stop: str = "end"
    way: str = "native"
    raw: str | None = None
    provider_calls: tuple[ProviderToolCall, ...] = ()


@frozen
class ModelFailed:
    """The model gave no usable answer. `code` is the ProviderError's; `detail` is for people."""

    kind: ClassVar[str] = "model.failed"
    code: str
    detail: str
    hint: str = ""


@frozen
class CallEvaluated:
    """The gate has spoken: `verdict` is `allow`, `ask` or `refuse` (then `result` is the answer).

    `reason` and `rule` say why and which rule, `layer` where that rule stands (`builtin`: the
    gate's own order), `mode` the mode that was in force; `digest` binds an approval to these very
    arguments. `effect` is the tool's side effect, `polls` exempts it from the repeat breaker.
    """

    kind: ClassVar[str] = "call.evaluated"
    call_id: str
    verdict: str
    reason: str = ""
    rule: str = ""
    digest: str = ""
    effect: str = "write"
    risk: str = "medium"
    access: Access = EVERYTHING
    polls: bool = False
    result: Result | None = None
    layer: str = ""
    mode: str = ""

    @property
    def announced(self) -> bool:
        """Whether the call may have an effect: then it is announced in the journal before it
        starts.
        """
        return self.effect not in ("none", "read")


@frozen
class PersonAnswered:
    """`choice` is `once`, `session`, `remember` or `deny`; `grant` the rule that was granted.

    `by` says who: a user name, `no-terminal` (nobody could be asked), `--yes-to`.
    """

    kind: ClassVar[str] = "person.answered"
    call_id: str
    choice: str
    digest: str = ""
    grant: str = ""
    by: str = ""
    note: str = ""


@frozen
class CallStarted:
    """Announces an effect before it starts. Without a later `call.answered` its outcome is unknown.

    Calls that only read are not announced: after a crash they are simply run again.
    """

    kind: ClassVar[str] = "call.started"
    call_id: str
    digest: str = ""


@frozen
class CallProbed:
    """After a recovery: a call that had started is `found` not to have happened (`not_happened`),
    by the tool's `probe` or a person. It runs again.
    """

    kind: ClassVar[str] = "call.probed"
    call_id: str
    found: str = "not_happened"
    by: str = "probe"


@frozen
class ToolAnswered:
    """The one result of a call."""

    kind: ClassVar[str] = "call.answered"
    result: Result


@frozen
class CallHooked:
    """A hook had its say on a call. `verdict` is `block`, `change`, `answer` (instead of the tool)
    or `result` (of the call that ran, another result than the tool's).

    Of a change, `arguments` is what the call would run with from then on, as JSON, and `digest` is
    theirs.
    """

    kind: ClassVar[str] = "call.hooked"
    call_id: str
    hook: str
    verdict: str
    reason: str = ""
    arguments: str = ""
    digest: str = ""


@frozen
class DelegationStarted:
    """A call has a sub-agent do its work; `session` is the sub-agent's own, in the same journal."""

    kind: ClassVar[str] = "delegation.started"
    call_id: str
    session: str
    agent: str = ""


@frozen
class DelegationFinished:
    """The sub-agent's work is over: `stop` as in `RunFinished`. Its `usage` counts as the run's
    that delegated.
    """

    kind: ClassVar[str] = "delegation.finished"
    call_id: str
    session: str
    stop: str = "done"
    usage: Usage = Usage()


@frozen
class Noticed:
    """Something a person should know and the machine does not act on: a fallback, a truncation, a
    retry.
    """

    kind: ClassVar[str] = "notice"
    topic: str
    text: str


@frozen
class NoticeGiven:
    """Words for the model while it works: the end of a background command, a person's word on the
    way.

    It reads them with the results of the round, before its next answer; where no run is under way
    they wait for the next one. `source` is `person`, whose own words they are, or the name of a
    tool: then they are data. `at_once`: the model is about to be asked, and reads them with this
    question.
    """

    kind: ClassVar[str] = "notice.given"
    text: str
    source: str = "person"
    at_once: bool = False


@frozen
class ContextCompacted:
    """From its next question on the model is sent less than the session holds (`core.compaction`).
    Nothing leaves the journal.

    Messages are counted from 1 in the whole history. Of the results `elided`, the model reads the
    texts in `stubs`; of the messages 1 to `through` (0: none) it is sent the person's words in
    `kept` and, behind them, `text`, a summary that `model` made. `made` is `elided` or `summary`;
    `why` is `window` (`before` tokens were more than `share` of the `window`), `overflow` (the
    provider refused the question) or `person`. Tokens are estimates, `window` is 0 where nobody
    knows it; `usage` is what the summary took, `note` why there is none although there should be.
    """

    kind: ClassVar[str] = "context.compacted"
    made: str = "elided"
    why: str = "window"
    elided: tuple[int, ...] = ()
    stubs: tuple[str, ...] = ()
    through: int = 0
    kept: tuple[int, ...] = ()
    text: str = ""
    model: str = ""
    before: int = 0
    after: int = 0
    window: int = 0
    share: float = 0.0
    usage: Usage = Usage()
    note: str = ""


@frozen
class ContextRestored:
    """A person undid what was compacted: the model is sent the whole history again."""

    kind: ClassVar[str] = "context.restored"
    by: str = ""


@frozen
class Cancelled:
    """Stop. With a `call_id`, only that call; else the run."""

    kind: ClassVar[str] = "cancelled"
    reason: str = ""
    call_id: str = ""


@frozen
class LimitHit:
    """A bound outside the machine's own counting (seconds, tokens) was reached."""

    kind: ClassVar[str] = "limit.hit"
    limit: str
    value: float


@frozen
class Recovered:
    """The process that drove this run is gone and another took over: open calls must be settled.

    With `asks` it is found out what became of calls that had started (`CallProbed`, or their
    result); without, as in older journals, they are unknown.
    """

    kind: ClassVar[str] = "run.recovered"
    reason: str = ""
    asks: bool = False


@frozen
class RunFinished:
    """Last event of a run. `stop` is `done`, `limit`, `cancelled`, `failed`; `code` the error's.

    `history` is the digest of all that the model was shown and said by then
    (`engine.session_log.Shown`); empty in older journals.
    """

    kind: ClassVar[str] = "run.finished"
    stop: str
    text: str = ""
    code: str = ""
    detail: str = ""
    usage: Usage = Usage()
    history: str = ""


@frozen
class Unknown:
    """An event of a kind this version does not know: kept, counted, written back unchanged."""

    kind: ClassVar[str] = "unknown"
    name: str
    body: dict[str, Any] = field(default_factory=dict[str, Any])


Event = (
    SessionOpened
    | RunStarted
    | ContextAdded
    | DirectCall
    | ModelAnswered
    | ModelFailed
    | CallEvaluated
    | PersonAnswered
    | CallStarted
    | CallProbed
    | ToolAnswered
    | CallHooked
    | CallConfined
    | FilesSeen
    | ConsentAnswered
    | SessionArchived
    | ToolSearchQuery
    | ToolSearchResult
    | DelegationStarted
    | DelegationFinished
    | Noticed
    | NoticeGiven
    | ContextCompacted
    | ContextRestored
    | Cancelled
    | LimitHit
    | Recovered
    | RunFinished
    | Unknown
)

_BY_KIND: dict[str, Any] = {cls.kind: cls for cls in get_args(Event) if cls is not Unknown}
_NAMES: dict[type, tuple[str, ...]] = {
    cls: tuple(f.name for f in fields(cls))
    for cls in (*_BY_KIND.values(), Call, ProviderToolCall, Result, Usage, Access, Limits)
}
_NESTED: dict[str, Any] = {
    "call": Call,
    "usage": Usage,
    "access": Access,
    "result": Result,
    "limits": Limits,
}


def spell(event: Event) -> tuple[str, str]:
    """`(kind, body)`, the body as compact JSON: what the journal keeps. Raises TypeError for what
    is no JSON.
    """
    if type(event) is Unknown:
        return event.name, compact(event.body)
    return event.kind, _object(event)


def _object(value: Any) -> str:
    # In one pass: a tree of dictionaries for an encoder costs more than all the rest of a small
    # event.
    form, get, spelled = _FORMS[type(value)]
    return form % tuple(
        [spell_one(item) for spell_one, item in zip(spelled, get(value), strict=False)]
    )


def _anything(item: Any) -> str:
    if isinstance(item, str):
        return encode_basestring(item)
    if item is None:
        return "null"
    if type(item) is int:
        return int.__repr__(item)
    if type(item) is tuple:
        items = cast("tuple[Any, ...]", item)
        return f"[{','.join([_anything(one) for one in items])}]" if items else "[]"
    return _object(item) if type(item) in _FORMS else compact(item)


_BY_TYPE: dict[str, Callable[[Any], str]] = {
    "str": encode_basestring,
    "int": int.__repr__,
    "bool": {True: "true", False: "false"}.__getitem__,
}
_FORMS: dict[type, tuple[str, Callable[[Any], tuple[Any, ...]], list[Callable[[Any], str]]]] = {
    cls: (
        "{" + ",".join(f'"{name}":%s' for name in names) + "}",
        # `attrgetter` of one name gives the value alone: the first name is always asked for twice.
        attrgetter(*names, names[0]),
        [_BY_TYPE.get(str(part.type), _anything) for part in fields(cls)],
    )
    for cls, names in _NAMES.items()
}
"""The JSON of a value with gaps, how to get what stands there, and how each of it is spelled."""


def encode(event: Event) -> tuple[str, dict[str, Any]]:
    """`(kind, body)` where body is what the journal keeps, as JSON values."""
    kind, body = spell(event)
    return kind, json.loads(body)


def decode(kind: str, body: dict[str, Any]) -> Event:
    """The event of a journal row. Tolerant: see the head of this file."""
    cls = _BY_KIND.get(kind)
    if cls is None:
        return Unknown(kind, body)
    try:
        return _build(cls, body)
    except (TypeError, ValueError, KeyError, ConfigError):
        # A known kind whose required fields are gone was written by a version we do not understand.
        return Unknown(kind, body)


def _build(cls: Any, body: dict[str, Any]) -> Any:
    values: dict[str, Any] = {}
    for name in _NAMES[cls]:
        if name not in body:
            continue
        item = body[name]
        if name == "calls":
            item = tuple(_build(Call, call) for call in item)
        elif name == "provider_calls":
            item = tuple(_build(ProviderToolCall, call) for call in item)
        elif name in _NESTED and not (item is None and cls is CallEvaluated):
            if type(item) is not dict:
                raise TypeError(f"{name} is not an object")
            item = _build(_NESTED[name], cast("dict[str, Any]", item))
        elif name == "error_type":
            item = ErrorType(item)
        elif isinstance(item, list) and name != "data":
            item = tuple(item)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        values[name] = item
    return cls(**values)


class Record(NamedTuple):
    """An event in its journal: `seq` counts from 1 within the session, `time` is ms since 1970.

    `hash` is the SHA-256 over the hash before it and this row (`storage.journal.hash_chain` gives
    the exact bytes). `body` is the event's JSON as stored (empty if the record comes from no
    journal).
    """

    session: str
    seq: int
    time: int
    run: str
    event: Event
    hash: str
    tenant: str = ""
    user: str = ""
    body: str = ""
