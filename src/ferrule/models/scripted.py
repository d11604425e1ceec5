"""A model that says what a script tells it: for tests, demonstrations and dry runs. No network.

    Scripted([calls(("read_file", {"path": "a.txt"})), says("It says hello.")])

A script can also be a file, `scripted:talk.yaml`: a list of steps, each one of

    - say: "text"                 # may carry `reasoning`
    - call: [{tool: read_file, arguments: {path: a.txt}, id: call_1}]   # may carry `say`
    - fail: {code: unreachable, detail: "no server"}
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, cast

from ferrule.core.calls import Call, compact
from ferrule.core.errors import ConfigError, ProviderError
from ferrule.core.events import ModelAnswered, Usage
from ferrule.core.frozen import frozen
from ferrule.core.messages import Message

from .client import Capabilities, ModelOptions, Sink, ToolSpec

Made = tuple[str, Mapping[str, Any] | str] | tuple[str, Mapping[str, Any] | str, str]
"""A call in a script: tool, arguments (an object, or JSON text that may be broken), and an id if it
matters.
"""


UNCOUNTED = Usage()


class ScriptError(ProviderError, AssertionError):
    """The run and the script disagree: `script_over` (asked once too often) or `script_left` (steps
    unused).
    """

    code = "script"


@frozen
class Step:
    """One answer. Made by `says`, `calls` and `fails`."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    reasoning: str = ""
    usage: Usage = UNCOUNTED
    stop: str = ""
    error: ProviderError | None = None


Script = Step | Callable[[Sequence[Message]], "Step | Awaitable[Step]"]
"""A step, or a function of the history that gives one; it may be async and wait for something."""


def says(text: str, *, reasoning: str = "", usage: Usage = UNCOUNTED, stop: str = "end") -> Step:
    """An answer in words."""
    return Step(text, (), reasoning, usage, stop)


def calls(*made: Made, text: str = "", usage: Usage = UNCOUNTED, stop: str = "calls") -> Step:
    """An answer that calls tools. Without an id the machine makes one up."""
    return Step(text, tuple(_call(call) for call in made), "", usage, stop)


def fails(error: ProviderError) -> Step:
    """No answer."""
    return Step(error=error)


def _call(made: Made) -> Call:
    arguments = made[1] if isinstance(made[1], str) else compact(made[1])
    return Call(made[2] if len(made) > 2 else "", made[0], arguments)


@frozen
class Ask:
    """What one `ask` was given."""

    history: tuple[Message, ...]
    tools: bool
    schema: Mapping[str, Any] | None


@frozen
class Opened:
    """What one `open` was given."""

    system: str
    tools: tuple[ToolSpec, ...]
    options: ModelOptions


class Scripted:
    """A wire over a script. All its exchanges take from the same steps, in the order they ask.

    `asks` and `opened` record what the wire was given. `close`, and leaving it as a context
    manager, raise ScriptError if steps are left over, unless the script was broken off by an error
    before.
    """

    def __init__(
        self,
        steps: Iterable[Script],
        *,
        model: str = "scripted:test",
        capabilities: Capabilities | None = None,
    ) -> None:
        self._steps = list(steps)
        self._model = model
        self._capabilities = capabilities or Capabilities(True, True, None, False, "script")
        self._next = 0
        self._broken_off = False
        self.asks: list[Ask] = []
        self.opened: list[Opened] = []

    @staticmethod
    def load(path: str | Path) -> Scripted:
        """A script from a JSON or YAML file. Raises ConfigError, naming the step that is wrong."""
        return Scripted(_load(Path(path)), model=f"scripted:{path}")

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
        self.opened.append(Opened(system, tuple(tools), options))
        return ScriptedExchange(self)

    def finished(self) -> None:
        """Raise ScriptError if steps are left over."""
        left = len(self._steps) - self._next
        if left:
            raise ScriptError(
                f"{self._model}: {left} of {len(self._steps)} steps were not used",
                code="script_left",
            )

    async def close(self) -> None:
        broken_off, self._broken_off = self._broken_off, True
        if not broken_off:
            self.finished()

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

    async def take(self, ask: Ask) -> Step:
        """The next step. For exchanges."""
        self.asks.append(ask)
        if self._next >= len(self._steps):
            self._broken_off = True
            detail = (
                f"{self._model}: asked {len(self.asks)} times, but the script has "
                f"{len(self._steps)} steps"
            )
            raise ScriptError(detail, code="script_over", retryable=False)
        step = self._steps[self._next]
        self._next += 1
        if isinstance(step, Step):
            return step
        try:
            made = step(ask.history)
            return await made if inspect.isawaitable(made) else made
        except BaseException:
            self._broken_off = True
            raise


class ScriptedExchange:
    """A conversation with a script. `notices` stays empty: nothing can go wrong on the way."""

    def __init__(self, wire: Scripted) -> None:
        self.notices: list[tuple[str, str]] = []
        self._wire = wire

    async def ask(
        self,
        history: Sequence[Message],
        *,
        tools: bool = True,
        schema: Mapping[str, Any] | None = None,
        sink: Sink | None = None,
    ) -> ModelAnswered:
        step = await self._wire.take(Ask(tuple(history), tools, schema))
        if step.error:
            raise step.error
        if sink:
            for piece in _pieces(step.reasoning):
                sink.reasoning(piece)
            for piece in _pieces(step.text):
                sink.text(piece)
        stop = step.stop or ("calls" if step.calls else "end")
        return ModelAnswered(step.text, step.calls, step.reasoning, step.usage, stop)


def _pieces(text: str) -> list[str]:
    """Word by word, as a model would stream; joined they are the text."""
    words = text.split(" ")
    return [word + " " for word in words[:-1]] + ([words[-1]] if words[-1] else [])


# ---- scripts from files


def _load(path: Path) -> list[Step]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise ConfigError(
            f"the script `{path}` cannot be read: {problem}", code="script"
        ) from problem
    listed = _parse(path, text)
    if not isinstance(listed, list):
        raise ConfigError(f"the script `{path}` must be a list of steps", code="script")
    return [_step(path, number, value) for number, value in enumerate(cast(list[Any], listed), 1)]


def _parse(path: Path, text: str) -> object:
    import yaml

    try:
        return yaml.safe_load(
            text
        )  # JSON is YAML, but for tabs, which YAML refuses between tokens.
    except yaml.YAMLError as problem:
        raise ConfigError(
            f"the script `{path}` cannot be parsed: {problem}", code="script"
        ) from problem


def _step(path: Path, number: int, value: object) -> Step:
    where = f"step {number} of the script `{path}`"
    if not isinstance(value, dict):
        raise ConfigError(
            f"{where} must be a mapping", code="script", hint="`say`, `call` or `fail`"
        )
    fields = cast(dict[str, Any], value)
    unknown = set(fields) - {"say", "call", "fail", "reasoning", "stop"}
    if unknown or not fields.keys() & {"say", "call", "fail"}:
        found = ", ".join(f"`{name}`" for name in fields)
        raise ConfigError(f"{where} has {found}", code="script", hint="`say`, `call` or `fail`")
    if "fail" in fields:
        return fails(_error(where, fields["fail"]))
    made = tuple(_listed_call(where, call) for call in _list(where, fields.get("call", [])))
    reasoning, stop = str(fields.get("reasoning", "")), str(fields.get("stop", ""))
    return Step(str(fields.get("say", "")), made, reasoning, Usage(), stop)


def _list(where: str, value: object) -> list[Any]:
    if isinstance(value, dict):
        return [value]
    if not isinstance(value, list):
        raise ConfigError(f"{where}: `call` must be a call or a list of calls", code="script")
    return cast(list[Any], value)


def _listed_call(where: str, value: object) -> Call:
    fields = cast(dict[str, Any], value) if isinstance(value, dict) else {}
    tool, arguments = fields.get("tool"), fields.get("arguments", {})
    if not isinstance(tool, str) or set(fields) - {"tool", "arguments", "id"}:
        raise ConfigError(
            f"{where}: a call has `tool`, `arguments` and perhaps `id`", code="script"
        )
    text = arguments if isinstance(arguments, str) else compact(arguments)
    return Call(str(fields.get("id", "")), tool, text)


def _error(where: str, value: object) -> ProviderError:
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: `fail` has `code` and `detail`", code="script")
    fields = cast(dict[str, Any], value)
    return ProviderError(
        str(fields.get("detail", "the script says so")),
        code=str(fields.get("code", "")),
        hint=str(fields.get("hint", "")),
    )
