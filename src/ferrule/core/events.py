"""Events: everything that can happen in a session, and nothing else enters machine or journal.

Every event has a `kind` (its name in the journal) and is a flat value of JSON values, calls and
results. It is read by the types of its fields. Readers are tolerant: an unknown kind is kept as
`Unknown`, an unknown field is dropped, and a missing field takes its default; an event with a value
of another type, or with a word that is not in the field's vocabulary (`core.vocabulary`), is kept
as `Unknown` too. Writers are strict. `FORMAT` counts incompatible changes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import MISSING, field
from enum import StrEnum
from itertools import chain
from json.encoder import encode_basestring
from operator import attrgetter
from types import NoneType, UnionType
from typing import (
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    NoReturn,
    Union,
    get_args,
    get_origin,
)

from .calls import ToolCall, ToolResult, encode_json, parse_json
from .errors import ConfigError
from .limits import Limits
from .media import MediaReference
from .output import OutputRequest
from .record_events import (
    CallConfined,
    ConsentAnswered,
    FilesSeen,
    SessionArchived,
    ToolSearchQuery,
    ToolSearchResult,
    WorkspaceKept,
)
from .value_class import frozen, list_fields
from .vocabulary import (
    AnswerStop,
    ApprovalChoice,
    CallVerdict,
    CompactionKind,
    CompactionReason,
    HookVerdict,
    LimitName,
    PermissionMode,
    ProviderToolKind,
    Refuser,
    ResultForm,
    Risk,
    RuleLayer,
    RunStop,
    SideEffect,
    ToolMode,
)

FORMAT = 2
"""The version of the event format. Journals and exports of another one are refused."""


@frozen
class Usage:
    """Tokens as the provider counts them.

    Attributes:
        input: Tokens of the request.
        output: Tokens of the answer.
        cached: The part of `input` that came from the provider's cache.
        written: The part of `input` that was written to the cache (some providers charge more).
        reasoning: The part of `output` that is hidden reasoning.
        cost: The price of all, in billionths of a US dollar; None if a part was not counted, as
            where money is not limited (`engine.budgets`).
    """

    input: int = 0
    output: int = 0
    cached: int = 0
    written: int = 0
    reasoning: int = 0
    cost: int | None = None

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input=self.input + other.input,
            output=self.output + other.output,
            cached=self.cached + other.cached,
            written=self.written + other.written,
            reasoning=self.reasoning + other.reasoning,
            cost=_add_costs(self, other),
        )

    @property
    def is_empty(self) -> bool:
        """Whether no token was used."""
        return not (self.input or self.output)


def _add_costs(one: Usage, other: Usage) -> int | None:
    if one.cost is None and one.is_empty:
        return other.cost
    if other.cost is None and other.is_empty:
        return one.cost
    return None if one.cost is None or other.cost is None else one.cost + other.cost


Spent = tuple[str, Usage]
"""Tokens and the model that took them, "" for those of a sub-agent."""


@frozen
class ProviderToolCall:
    """A call of a tool that the provider runs itself (`models.hosted_tools`).

    This is only a record: nothing is dispatched for it. The ids and the type are the provider's.

    Attributes:
        tool_kind: One word: search, fetch, execute, mcp, tool_search, ...
        name: The tool (`server.tool` of a remote MCP server).
        provider_metadata: The provider's own JSON, bounded in size.
        arguments: For a search for tools, all its arguments as JSON.
        references: For a search for tools, the full names of the tools that it found.
    """

    provider_tool_id: str
    call_id: str = ""
    provider_tool_type: str = ""
    tool_kind: ProviderToolKind = "other"
    name: str = ""
    status: str = ""
    provider_metadata: str = "{}"
    executor: Literal["provider_native"] = "provider_native"
    arguments: str = ""
    references: tuple[str, ...] = ()


@frozen
class Access:
    """What a call reads and writes, as workspace path prefixes; `""` is everything.

    Two calls conflict if one writes a prefix that contains, or lies in, a prefix that the other
    reads or writes. Calls that do not conflict may run together.
    """

    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()

    def conflicts_with(self, other: Access) -> bool:
        """Return whether the two calls must run one after the other."""
        if not self.writes and not other.writes:
            return False
        return (
            EXCLUSIVE in (self, other)
            or _any_overlap(self.writes, other.writes)
            or _any_overlap(self.writes, other.reads)
            or _any_overlap(self.reads, other.writes)
        )


def _any_overlap(prefixes: tuple[str, ...], others: tuple[str, ...]) -> bool:
    return any(_overlap(one, other) for one in prefixes for other in others)


def _overlap(one: str, other: str) -> bool:
    if not one or not other or one == other:
        return True
    return one.startswith(other + "/") or other.startswith(one + "/")


EVERYTHING = Access(reads=(), writes=("",))
"""Conflicts with every call that touches anything: for commands and the network."""

EXCLUSIVE = Access(reads=("",), writes=("",))
"""Conflicts with every call, also with one that touches nothing: for `parallel=False`."""


@frozen
class SessionOpened:
    """The first event of a session: what it was opened with.

    `system` is the system text, which stays the same for the whole session. The session of a
    sub-agent names the sub-agent (`agent`) and the delegating session (`parent`) and call
    (`parent_call`). A fork names the session and event it continues from (`forked`, as
    `<session>:<number>`).
    """

    kind: ClassVar[str] = "session.opened"
    model: str = ""
    workspace: str = ""
    mode: PermissionMode = "default"
    system: str = ""
    tools: tuple[str, ...] = ()
    results: ResultForm = "value"
    parent: str = ""
    format: int = FORMAT
    parent_call: str = ""
    agent: str = ""
    forked: str = ""


@frozen
class RunStarted:
    """A person's message starts a run.

    The limits, `join` (`core.join_policy`; 0 means all), the required tools
    (`core.required_tools`) and the wanted output (`core.output`) are part of the event: a journal
    must rebuild to the same state whatever the settings say later. So are the `instructions` that
    functions of the program gave for this run: a replay calls none of them. `media` are the
    pictures, sounds and documents of the message, as references.
    """

    kind: ClassVar[str] = "run.started"
    text: str
    model: str = ""
    limits: Limits = Limits()
    join: int = 0
    require: tuple[str, ...] = ()
    output_request: OutputRequest | None = None
    instructions: str = ""
    media: tuple[MediaReference, ...] = field(default=(), metadata={"omit_empty": True})


@frozen
class HistoryGiven:
    """A session began with messages of an earlier conversation (`core.messages`)."""

    kind: ClassVar[str] = "history.given"
    messages: str


@frozen
class ContextAdded:
    """A person added text to the history without asking for an answer (`/read` in a chat)."""

    kind: ClassVar[str] = "context.added"
    text: str


@frozen
class DirectCall:
    """A person or a program called a tool: slash commands, `ferrule tools call`, nested calls."""

    kind: ClassVar[str] = "call.direct"
    call: ToolCall
    by: str = "person"


@frozen
class ModelAnswered:
    """One complete answer of a model. `stop` is `end`, `calls`, `length` (cut) or `filter`.

    `tool_mode` says how the model called tools; `raw` is the provider's own JSON if it must be
    replayed byte for byte; `provider_calls` are those that the provider ran itself; `output` is the
    value that the model gave apart from its text, as JSON (`models.output_modes`); `model` is the
    model that answered, if it is not the run's (`engine.model_fallbacks`).
    """

    kind: ClassVar[str] = "model.answered"
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    usage: Usage = Usage()
    stop: AnswerStop = "end"
    tool_mode: ToolMode = "native"
    raw: str | None = None
    provider_calls: tuple[ProviderToolCall, ...] = ()
    output: str = ""
    model: str = ""
    response_id: str = field(default="", compare=False)
    """The provider's id of the answer, "" if it gave none."""
    response_model: str = field(default="", compare=False)
    """The exact model that the provider says answered."""


@frozen
class OutputChecked:
    """An answer was checked against the output that the run must end with.

    Attributes:
        output: The value that it gives, as compact JSON; empty if it does not fit.
        problems: Why it does not fit, a sentence each: the place, what was found, what is wanted.
        final: No other answer could help: the run ends.
    """

    kind: ClassVar[str] = "output.checked"
    output: str = ""
    problems: tuple[str, ...] = ()
    final: bool = False


@frozen
class ModelFailed:
    """The model gave no usable answer: the fields of its `ProviderError`.

    `detail` is for people. `text` is what of the answer had arrived.
    """

    kind: ClassVar[str] = "model.failed"
    code: str
    detail: str
    hint: str = ""
    status: int | None = None
    retryable: bool | None = None
    retry_after: float | None = None
    text: str = ""


@frozen
class CallEvaluated:
    """The permission decision about a call. After the verdict `refuse`, `result` is its answer.

    Attributes:
        verdict: `allow`, `ask` or `refuse`.
        reason: Why.
        rule: The permission rule that decided, if one did.
        layer: Where that rule comes from; `builtin` if no rule decided.
        mode: The permission mode at that time.
        digest: Binds an approval to these exact arguments.
        effect: The tool's side effect, also of a call that a rule refuses.
        polls: Exempts the call from the repeat breaker.
    """

    kind: ClassVar[str] = "call.evaluated"
    call_id: str
    verdict: CallVerdict
    reason: str = ""
    rule: str = ""
    digest: str = ""
    effect: SideEffect = SideEffect.WRITE
    risk: Risk = Risk.MEDIUM
    access: Access = EVERYTHING
    polls: bool = False
    result: ToolResult | None = None
    layer: RuleLayer | Literal[""] = ""
    mode: PermissionMode | Literal[""] = ""

    @property
    def is_announced(self) -> bool:
        """True if the call may have an effect: its start is announced in the journal."""
        return self.verdict != "refuse" and self.effect not in (SideEffect.NONE, SideEffect.READ)


@frozen
class PersonAnswered:
    """A person's answer to an approval request: `once`, `session`, `remember` or `deny`.

    `grant` is the rule that was granted. `by` says who answered: a user name, `no-terminal` (nobody
    could be asked) or `--yes-to`. `shown` is the digest of what the person was shown
    (`engine.approval_requests`); empty if nothing of it can change. `refused_by` says who refused,
    and `hint` what a person can do about it.
    """

    kind: ClassVar[str] = "person.answered"
    call_id: str
    choice: ApprovalChoice
    digest: str = ""
    grant: str = ""
    by: str = ""
    note: str = ""
    shown: str = ""
    refused_by: Refuser | Literal[""] = ""
    hint: str = ""


@frozen
class CallStarted:
    """A call with an effect is about to start.

    Without a later `call.answered` its outcome is unknown. Calls that only read are not announced:
    after a crash they simply run again.
    """

    kind: ClassVar[str] = "call.started"
    call_id: str
    digest: str = ""


@frozen
class CallProbed:
    """After a recovery, a call that had started was found not to have happened. It runs again.

    `found` is `not_happened`; `by` is the tool's `probe` or a person.
    """

    kind: ClassVar[str] = "call.probed"
    call_id: str
    found: Literal["not_happened"] = "not_happened"
    by: str = "probe"


@frozen
class ToolAnswered:
    """The one result of a call."""

    kind: ClassVar[str] = "call.answered"
    result: ToolResult


@frozen
class CallHooked:
    """A hook changed or blocked a call.

    `verdict` is `block`, `change`, `answer` (instead of the tool) or `result` (another result than
    the tool's). After a change, `arguments` are the new ones as JSON and `digest` is theirs.
    """

    kind: ClassVar[str] = "call.hooked"
    call_id: str
    hook: str
    verdict: HookVerdict
    reason: str = ""
    arguments: str = ""
    digest: str = ""


@frozen
class DelegationStarted:
    """A call started a sub-agent. `session` is the sub-agent's session, in the same journal."""

    kind: ClassVar[str] = "delegation.started"
    call_id: str
    session: str
    agent: str = ""


@frozen
class DelegationFinished:
    """A sub-agent finished; `stop` as in `RunFinished`.

    Its `usage` counts towards the run that delegated.
    """

    kind: ClassVar[str] = "delegation.finished"
    call_id: str
    session: str
    stop: RunStop = "done"
    usage: Usage = Usage()


@frozen
class Noticed:
    """A person should know of something without effect on the run: a fallback, a retry."""

    kind: ClassVar[str] = "notice"
    topic: str
    text: str


@frozen
class NoticeGiven:
    """A text for the model while it works: the end of a background command, a person's message.

    The model reads it with the results of the turn; if no run is active, with the next message.
    `source` is `person`, or the name of a tool, whose text is data. With `at_once` the model is
    about to be asked, and reads the text in this request. `ended`: it says how something ended that
    went on in the background, for which an interface may wake the model.
    """

    kind: ClassVar[str] = "notice.given"
    text: str
    source: str = "person"
    at_once: bool = False
    ended: bool = False


@frozen
class ContextCompacted:
    """The model is sent less than the full history from now on (`core.compaction`).

    Nothing leaves the journal. Messages are numbered from 1 in the full history.

    Attributes:
        made: `elided` or `summary`.
        why: `window` (`before` tokens were more than `share` of the `window`), `overflow` (the
            provider refused the request) or `person`.
        elided: The results that are replaced by `stubs`.
        stubs: The text that replaces each of them.
        through: The messages 1 to this one are replaced by those `kept` and a summary; 0 for none.
        kept: Those of the person's messages that are still sent.
        text: The summary, written by `model`, which follows them.
        before: Tokens before the compaction. All numbers of tokens are estimates.
        after: Tokens after it.
        window: The size of the context window; 0 if unknown.
        usage: Tokens that the summary took.
        note: Why there is no summary although there should be one.
    """

    kind: ClassVar[str] = "context.compacted"
    made: CompactionKind = "elided"
    why: CompactionReason = "window"
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
    """A person undid the compaction: the model is sent the full history again."""

    kind: ClassVar[str] = "context.restored"
    by: str = ""


@frozen
class Cancelled:
    """The run, or only the call `call_id`, was cancelled.

    `text` is what had arrived of an answer that the model was giving.
    """

    kind: ClassVar[str] = "cancelled"
    reason: str = ""
    call_id: str = ""
    text: str = ""


@frozen
class LimitHit:
    """A limit that the machine does not count itself (seconds, tokens) was reached.

    `text` is what had arrived of an answer that the model was giving.
    """

    kind: ClassVar[str] = "limit.hit"
    limit: LimitName
    value: float
    text: str = ""


@frozen
class Recovered:
    """Another process took over this run: its open calls must be settled.

    With `asks`, the driver finds out what happened to calls that had started (`CallProbed`, or
    their result). Without it, as in older journals, their outcome is unknown.
    """

    kind: ClassVar[str] = "run.recovered"
    reason: str = ""
    asks: bool = False


@frozen
class RunFinished:
    """The last event of a run. `stop` is `done`, `limit`, `cancelled` or `failed`.

    `code` is the error code. `history` is the digest of all that the model was shown and said until
    then (`engine.session_log.HistoryDigest`); it is empty in older journals. `output` is the output
    as JSON if `text` is the string that it stands for.
    """

    kind: ClassVar[str] = "run.finished"
    stop: RunStop
    text: str = ""
    code: str = ""
    detail: str = ""
    usage: Usage = Usage()
    history: str = ""
    output: str = ""

    @property
    def output_json(self) -> str:
        """The output of a run that ended with a value, as JSON."""
        return self.output or self.text


@frozen
class Unknown:
    """An event of a kind that this version does not know: kept, counted, written back unchanged."""

    kind: ClassVar[str] = "unknown"
    name: str
    body: dict[str, Any] = field(default_factory=dict[str, Any])


Event = (
    SessionOpened
    | RunStarted
    | HistoryGiven
    | ContextAdded
    | DirectCall
    | ModelAnswered
    | ModelFailed
    | OutputChecked
    | CallEvaluated
    | PersonAnswered
    | CallStarted
    | CallProbed
    | ToolAnswered
    | CallHooked
    | CallConfined
    | FilesSeen
    | WorkspaceKept
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


def dump_event(event: Event) -> tuple[str, str]:
    """Return `(kind, body)` as the journal keeps them, the body as compact JSON text.

    Raises:
        TypeError: The event contains a value that is not JSON, or a word that its field cannot
            have.
    """
    if type(event) is Unknown:
        return event.name, encode_json(event.body)
    return event.kind, _encode_value(event)


def event_to_json(event: Event) -> tuple[str, dict[str, Any]]:
    """Return `(kind, body)` as the journal keeps them, the body as JSON values."""
    kind, body = dump_event(event)
    return kind, parse_json(body)


def event_from_json(kind: str, body: dict[str, Any]) -> Event:
    """Return the event of a journal row. Tolerant: see the top of this file."""
    cls = _BY_KIND.get(kind)
    if cls is None:
        return Unknown(kind, body)
    try:
        return _decode_value(cls, body)
    except (TypeError, ValueError, ConfigError):
        # A known kind with other fields or words was written by a version that we do not know. To
        # guess what it meant could be to take a refusal for a yes.
        return Unknown(kind, body)


# ---- how each class of values becomes JSON, and is read again


_Codec = tuple[
    str,
    Callable[[Any], tuple[Any, ...]],
    tuple[tuple[object, str, Callable[[Any], str]], ...],
    tuple[tuple[str, Callable[[Any], Any]], ...],
]
"""How values of one class become JSON: a template, a function that returns the fields, and for each
its default, how that is encoded, and what encodes any other value; and how they are read: the names
of the fields, and what decodes each.
"""


class _Codecs(dict[type, _Codec]):
    """The codecs of the classes that were met, made from the types of their fields.

    Made when they are first used, because a short run meets few of them.
    """

    def __missing__(self, cls: type) -> _Codec:
        known = list_fields(cls)
        names = [name for name, _, _, _ in known]
        # `get_type_hints` would compile each hint anew, and most are names or the same few words.
        scope = vars(sys.modules[cls.__module__])
        hints = [
            _BASIC_HINTS.get(text) or scope.get(text) or eval(text, scope)
            for _, text, _, _ in known
        ]
        coders = [_choose_coders(hint) for hint in hints]
        members = ",".join(
            [f'"{name}":%s' for name, _, _, metadata in known if not metadata.get("omit_empty")]
        )
        for place, (name, _, _, metadata) in enumerate(known):
            if metadata.get("omit_empty"):
                # Events without it stay as they are: it is written only if it is there.
                members += "%s"
                coders[place] = (_OptionalMember(name), coders[place][1])
        codec = self[cls] = (
            f"{{{members}}}",
            # With a single name `attrgetter` returns no tuple: the first name is given twice.
            attrgetter(*names, names[0]),
            tuple(
                (default, "" if default is MISSING else encode(default), encode)
                for (_, _, default, _), (encode, _) in zip(known, coders, strict=True)
            ),
            tuple((name, decode) for name, (_, decode) in zip(names, coders, strict=True)),
        )
        return codec


class _OptionalMember:
    """Encodes a tuple as a member with its name, or as nothing if it is empty."""

    def __init__(self, name: str) -> None:
        self._start = f',"{name}":'

    def __call__(self, items: tuple[Any, ...]) -> str:
        return self._start + _encode_any(items) if items else ""


_CODECS = _Codecs()


def _encode_value(value: Any) -> str:
    # In one pass: building dictionaries for an encoder costs more than the rest of a small event.
    # Most fields of most values have their default.
    template, get_fields, encoders, _ = _CODECS[type(value)]
    items = zip(encoders, get_fields(value), strict=False)
    return template % tuple(
        [
            encoded if item is default else encode_field(item)
            for (default, encoded, encode_field), item in items
        ]
    )


def _encode_any(item: object) -> str:
    return _ENCODERS.get(type(item), encode_json)(item)


def _encode_tuple(items: tuple[Any, ...]) -> str:
    return f"[{','.join([_encode_any(item) for item in items])}]"


_ENCODERS: dict[type, Callable[[Any], str]] = {
    str: encode_basestring,
    NoneType: lambda item: "null",
    int: int.__repr__,
    tuple: _encode_tuple,
    # The classes of values that stand in tuples or may be None.
    ToolCall: _encode_value,
    ToolResult: _encode_value,
    ProviderToolCall: _encode_value,
    OutputRequest: _encode_value,
    MediaReference: _encode_value,
}
"""What is no field of one type, by its type; all else as `encode_json` does."""


def _decode_value(cls: Any, body: dict[str, Any]) -> Any:
    decoders = _CODECS[cls][3]
    return cls(**{name: decode(body[name]) for name, decode in decoders if name in body})


class _Words(dict[Any, Any]):
    """The words of a vocabulary, each with what it becomes. Others are a TypeError."""

    def __missing__(self, word: object) -> NoReturn:
        raise TypeError(f"{word!r} is none of {', '.join(map(str, self))}")


def _make_check(*types: type) -> Callable[[Any], Any]:
    """Return what gives an item back if it is exactly of one of these types."""

    def check(item: object) -> object:
        if type(item) in types:
            return item
        raise TypeError(f"{item!r} is no {types[0].__name__}")

    return check


_require_list = _make_check(list)
_require_dict = _make_check(dict)
_BASIC_CODERS: dict[object, tuple[Callable[[Any], str], Callable[[Any], Any]]] = {
    str: (encode_basestring, _make_check(str)),
    int: (int.__repr__, _make_check(int)),
    bool: ({True: "true", False: "false"}.__getitem__, _make_check(bool)),
    float: (_encode_any, _make_check(float, int)),
    NoneType: (_encode_any, _make_check(NoneType)),
    Any: (_encode_any, lambda item: item),
}


_BASIC_HINTS: dict[object, Any] = {
    "str": str,
    "int": int,
    "bool": bool,
    "str | None": str | None,
    "int | None": int | None,
    "float | None": float | None,
    "tuple[str, ...]": tuple[str, ...],
    "tuple[MediaReference, ...]": tuple[MediaReference, ...],
}


def _choose_coders(hint: Any) -> tuple[Callable[[Any], str], Callable[[Any], Any]]:
    """Return how a field of this type is encoded and decoded."""
    if hint in _BASIC_CODERS:
        return _BASIC_CODERS[hint]
    words = _list_words(hint)
    if words:
        encoded = _Words({word: encode_basestring(word) for word in words})
        return encoded.__getitem__, _Words({word: word for word in words}).__getitem__
    origin = get_origin(hint)
    if origin is dict:
        return _encode_any, _require_dict
    if origin is tuple:
        decode_item = _choose_coders(get_args(hint)[0])[1]
        return _encode_any, lambda items: tuple(
            [decode_item(item) for item in _require_list(items)]
        )
    if origin in (Union, UnionType):
        (inner,) = [one for one in get_args(hint) if one is not NoneType]
        decode_inner = _choose_coders(inner)[1]
        return _encode_any, lambda item: None if item is None else decode_inner(item)
    return _encode_value, lambda item: _decode_value(hint, _require_dict(item))


def _list_words(hint: Any) -> tuple[Any, ...]:
    """Return the words of an enum, a `Literal` or a union of such; else none."""
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return tuple(hint)
    if get_origin(hint) is Literal:
        return get_args(hint)
    if get_origin(hint) in (Union, UnionType):
        parts = [_list_words(one) for one in get_args(hint)]
        return tuple(chain(*parts)) if all(parts) else ()
    return ()


class JournalRecord(NamedTuple):
    """An event as one row of a journal.

    Attributes:
        seq: The number of the event in its session, from 1.
        time: Milliseconds since 1970.
        hash: SHA-256 over the hash of the previous row and this row (`storage.journal.hash_chain`
            defines the exact bytes).
        body: The event's JSON as stored; empty if the record does not come from a journal.
    """

    session: str
    seq: int
    time: int
    run: str
    event: Event
    hash: str
    tenant: str
    user: str
    body: str = ""
