"""A model that says what a script tells it: for tests, demonstrations and dry runs. No network.

    Scripted([calls(("read_file", {"path": "a.txt"})), "It says hello."])

A script can also be a file, `scripted:talk.yaml`: a list of steps, each one of

    - say: "text"                 # may have `reasoning`
    - call: [{tool: read_file, arguments: {path: a.txt}, id: call_1}]   # may have `say`
    - fail: {code: unreachable, detail: "no server"}

A file can also be a mapping from names to such lists: `scripted:talks.yaml#name` is one of them. A
list is the script of every name.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, cast, get_args

from ferrule.core.calls import ToolCall, encode_json
from ferrule.core.errors import ConfigError, ProviderError
from ferrule.core.events import ModelAnswered, Usage
from ferrule.core.messages import Message
from ferrule.core.similar_names import find_similar_names
from ferrule.core.value_class import frozen
from ferrule.core.vocabulary import AnswerStop

from .client import Capabilities, ModelOptions, Sink, ToolSpec

ScriptedCall = tuple[str, Mapping[str, Any] | str] | tuple[str, Mapping[str, Any] | str, str]
"""A call in a script: tool, arguments (an object, or JSON text), and optionally an id.

The JSON text may be broken.
"""


NO_USAGE = Usage()


class ScriptError(ProviderError, AssertionError):
    """The run and the script disagree.

    Its code is `script_over` (the model was asked once too often) or `script_left` (unused steps).
    """

    code = "script"


@frozen
class Step:
    """One answer. Made by `says`, `calls` and `fails`."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    usage: Usage = NO_USAGE
    stop: AnswerStop | Literal[""] = ""
    error: ProviderError | None = None


ScriptFunction = Callable[[Sequence[Message]], Step | Awaitable[Step]]
"""A function from the history to a step, which may be async."""

Script = Step | str | ScriptFunction
"""A step; a text, which is answered; or a function from the history to a step, which may be async
and wait for something.
"""


def says(
    text: str, *, reasoning: str = "", usage: Usage = NO_USAGE, stop: AnswerStop = "end"
) -> Step:
    """Return a step that answers with text."""
    return Step(text, (), reasoning, usage, stop)


def calls(
    *scripted: ScriptedCall, text: str = "", usage: Usage = NO_USAGE, stop: AnswerStop = "calls"
) -> Step:
    """Return a step that calls tools. A call without an id gets one from the engine."""
    return Step(text, tuple(_to_call(call) for call in scripted), "", usage, stop)


def fails(error: ProviderError) -> Step:
    """Return a step that raises an error instead of answering."""
    return Step(error=error)


def _to_call(scripted: ScriptedCall) -> ToolCall:
    tool = scripted[0]
    arguments = scripted[1] if isinstance(scripted[1], str) else encode_json(scripted[1])
    id = scripted[2] if len(scripted) > 2 else ""
    return ToolCall(id, tool, arguments)


def _to_step(number: int, step: Script) -> Step | ScriptFunction:
    if isinstance(step, str):
        return says(step)
    if isinstance(step, Step) or callable(step):
        return step
    raise ConfigError(
        f"step {number} of the script is a `{type(step).__name__}`",
        hint="a step is a text, `says(...)`, `calls(...)`, `fails(...)`, or a function",
    )


@frozen
class RecordedAsk:
    """The arguments of one `ask`."""

    history: tuple[Message, ...]
    tools: bool
    schema: Mapping[str, Any] | None


@frozen
class RecordedOpen:
    """The arguments of one `open`."""

    system: str
    tools: tuple[ToolSpec, ...]
    options: ModelOptions


class Scripted:
    """A model client that follows a script.

    All its exchanges take from the same steps, in the order in which they ask. A function from the
    history to a step, in place of the steps, answers every ask, also that of a run which another
    process began. `asks` and `opened` record the arguments of the calls. `close`, which
    `Agent.close` calls, and leaving the client as a context manager raise ScriptError if steps are
    left over, unless an error ended the script before. `run_sync` only disconnects it, so that
    several runs can follow one script: `assert_finished` checks it then.

    Raises:
        ConfigError: A step is none.
    """

    def __init__(
        self,
        steps: Iterable[Script] | ScriptFunction,
        *,
        model: str = "scripted:test",
        capabilities: Capabilities | None = None,
    ) -> None:
        self._function = steps if callable(steps) else None
        listed = () if callable(steps) else steps
        self._steps = [_to_step(number, step) for number, step in enumerate(listed, 1)]
        self._model = model
        self._capabilities = capabilities or Capabilities(True, True, None, False, "script")
        self._next = 0
        self._is_broken_off = False
        self.asks: list[RecordedAsk] = []
        self.opened: list[RecordedOpen] = []

    @staticmethod
    def load(path: str | Path) -> Scripted:
        """Read a script from a JSON or YAML file.

        Raises:
            ConfigError: The file cannot be read, or a step in it (which is named) is invalid.
        """
        file, _, name = str(path).partition("#")
        if name and Path(path).exists():
            file = str(path)
            name = ""
        return Scripted(_load_steps(Path(file), name), model=f"scripted:{path}")

    @property
    def model(self) -> str:
        return self._model

    @property
    def histories(self) -> list[tuple[Message, ...]]:
        """The history of every ask."""
        return [ask.history for ask in self.asks]

    async def capabilities(self) -> Capabilities:
        return self._capabilities

    def open(
        self, system: str, tools: Sequence[ToolSpec], options: ModelOptions
    ) -> ScriptedExchange:
        self.opened.append(RecordedOpen(system, tuple(tools), options))
        return ScriptedExchange(self)

    def assert_finished(self) -> None:
        """Check that every step was used.

        Raises:
            ScriptError: Steps are left over.
        """
        left = len(self._steps) - self._next
        if left:
            raise ScriptError(
                f"{self._model}: {left} of {len(self._steps)} steps were not used",
                code="script_left",
                hint="leave them out of the script, or find out why the run ended before them",
            )

    async def disconnect(self) -> None:
        """Do nothing: there is no connection, and the script may go on."""

    async def close(self) -> None:
        was_broken_off = self._is_broken_off
        self._is_broken_off = True
        if not was_broken_off:
            self.assert_finished()

    async def __aenter__(self) -> Scripted:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            await self.close()

    async def next_step(self, ask: RecordedAsk) -> Step:
        """Return the next step. Called by exchanges."""
        self.asks.append(ask)
        step = self._function or self._take_step()
        if isinstance(step, Step):
            return step
        try:
            answer = step(ask.history)
            return await answer if inspect.isawaitable(answer) else answer
        except BaseException:
            self._is_broken_off = True
            raise

    def _take_step(self) -> Step | ScriptFunction:
        if self._next >= len(self._steps):
            self._is_broken_off = True
            detail = (
                f"{self._model}: asked {len(self.asks)} times, but the script has "
                f"{len(self._steps)} steps"
            )
            raise ScriptError(detail, code="script_over", retryable=False)
        self._next += 1
        return self._steps[self._next - 1]


class ScriptedExchange:
    """A conversation with a script. `notices` stays empty, as nothing can go wrong."""

    def __init__(self, client: Scripted) -> None:
        self.notices: list[tuple[str, str]] = []
        self._client = client

    async def ask(
        self,
        history: Sequence[Message],
        *,
        tools: bool = True,
        schema: Mapping[str, Any] | None = None,
        sink: Sink | None = None,
    ) -> ModelAnswered:
        """Answer with the next step of the script, streamed word by word."""
        step = await self._client.next_step(RecordedAsk(tuple(history), tools, schema))
        if step.error:
            raise step.error
        if sink:
            for piece in _split_words(step.reasoning):
                sink.add_reasoning(piece)
            for piece in _split_words(step.text):
                sink.add_text(piece)
            for number, call in enumerate(step.calls):
                for piece in _split_words(call.arguments):
                    sink.add_arguments(number, call.tool, piece)
        stop = step.stop or ("calls" if step.calls else "end")
        return ModelAnswered(step.text, step.calls, step.reasoning, step.usage, stop)


def _split_words(text: str) -> list[str]:
    """Split text word by word, as a model would stream it; joined, the pieces are the text."""
    *words, last = text.split(" ")
    pieces = [word + " " for word in words]
    if last:
        pieces.append(last)
    return pieces


# ---- scripts from files


def _load_steps(path: Path, name: str = "") -> list[Step]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        reason = getattr(problem, "strerror", "") or problem
        raise ConfigError(
            f"the script `{path}` cannot be read: {reason}", code="script", hint="check the path"
        ) from problem
    listed = _parse_yaml(path, text)
    if isinstance(listed, dict) and name:
        listed = _select_script(path, cast(dict[str, Any], listed), name)
    if not isinstance(listed, list):
        raise ConfigError(
            f"the script `{path}` must be a list of steps",
            code="script",
            hint="one of several scripts is named: `scripted:FILE#NAME`",
        )
    return [
        _parse_step(path, number, value) for number, value in enumerate(cast(list[Any], listed), 1)
    ]


def _select_script(path: Path, scripts: dict[str, Any], name: str) -> object:
    if name in scripts:
        return scripts[name]
    known = list(map(str, scripts))
    near = find_similar_names(name, known) or known[:3]
    named = ", ".join(f"`scripted:{path}#{one}`" for one in near)
    raise ConfigError(
        f"the script `{path}` has no script `{name}`", code="script", hint=f"there is {named}"
    )


def _parse_yaml(path: Path, text: str) -> object:
    from ferrule.core.extras import require

    require("yaml")
    import yaml

    try:
        # JSON is YAML, except for tabs, which YAML refuses between tokens.
        return yaml.safe_load(text)
    except yaml.YAMLError as problem:
        raise ConfigError(
            f"the script `{path}` cannot be parsed: {problem}", code="script"
        ) from problem


def _parse_step(path: Path, number: int, value: object) -> Step:
    where = f"step {number} of the script `{path}`"
    if not isinstance(value, dict):
        raise ConfigError(
            f"{where} must be a mapping", code="script", hint="write `say`, `call` or `fail`"
        )
    fields = cast(dict[str, Any], value)
    unknown = set(fields) - {"say", "call", "fail", "reasoning", "stop"}
    if unknown or not fields.keys() & {"say", "call", "fail"}:
        found = ", ".join(f"`{name}`" for name in fields)
        raise ConfigError(
            f"{where} has {found}", code="script", hint="write `say`, `call` or `fail`"
        )
    if "fail" in fields:
        return fails(_parse_error(where, fields["fail"]))
    stop = str(fields.get("stop", ""))
    if stop and stop not in get_args(AnswerStop):
        words = ", ".join(f"`{word}`" for word in get_args(AnswerStop))
        raise ConfigError(f"{where} has `stop: {stop}`", code="script", hint=f"use one of {words}")
    listed = _as_list(where, fields.get("call", []))
    return Step(
        text=str(fields.get("say", "")),
        calls=tuple(_parse_call(where, call) for call in listed),
        reasoning=str(fields.get("reasoning", "")),
        stop=cast("AnswerStop", stop),
    )


def _as_list(where: str, value: object) -> list[Any]:
    if isinstance(value, dict):
        return [value]
    if not isinstance(value, list):
        raise ConfigError(f"{where}: `call` must be a call or a list of calls", code="script")
    return cast(list[Any], value)


def _parse_call(where: str, value: object) -> ToolCall:
    fields = cast(dict[str, Any], value) if isinstance(value, dict) else {}
    tool = fields.get("tool")
    arguments = fields.get("arguments", {})
    if not isinstance(tool, str) or set(fields) - {"tool", "arguments", "id"}:
        raise ConfigError(
            f"{where}: a call has `tool`, `arguments` and optionally `id`", code="script"
        )
    text = arguments if isinstance(arguments, str) else encode_json(arguments)
    return ToolCall(str(fields.get("id", "")), tool, text)


def _parse_error(where: str, value: object) -> ProviderError:
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: `fail` has `code` and `detail`", code="script")
    fields = cast(dict[str, Any], value)
    return ProviderError(
        str(fields.get("detail", "the script says so")),
        code=str(fields.get("code", "")),
        hint=str(fields.get("hint", "")),
    )
