"""Output modes: how a model is held to an answer that fits a JSON Schema.

    schema    the provider's own response schema, beside native tools
    tool      an output tool, which the model calls with the value
    grammar   the reply is constrained by the server; where there are tools, the value is asked for
              once the model calls none any more
    prompt    the answer is described at the end of each message, and the value is read out of the
              reply

Whatever the mode, the engine checks the value: a provider's promise is not relied upon. A mode that
the provider refuses falls to the next one, which is reported as a notice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from ferrule.core.calls import encode_json, parse_json
from ferrule.core.errors import ConfigError, ProviderError
from ferrule.core.events import ModelAnswered
from ferrule.core.messages import Message, UserMessage
from ferrule.core.value_class import frozen
from ferrule.models.client import Capabilities, Exchange, OutputModeOption, Sink, ToolSpec
from ferrule.models.openai.strict_schema import compile_strict

OUTPUT_MODES = ("schema", "tool", "grammar", "prompt")
"""The output modes."""

OUTPUT_TOOL = "final_answer"
"""The name of the output tool, unless another tool has it."""

_TEXT_TOO = "Text that is not JSON is a valid answer, too."
_PLACEHOLDERS = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
}
_MAX_CHOICES = 8
"""Most choices that a form lists."""

_REFUSALS = ("schema_unsupported", "tools_unsupported", "http_400", "http_422", "http_501")
"""Codes of a ProviderError that may mean that the provider does not know a mode."""

OpenExchange = Callable[[str, tuple[ToolSpec, ...]], Awaitable[Exchange]]
"""Opens an exchange with a further section of system text and further tools."""


@frozen
class OutputFormat:
    """What answers must look like.

    Attributes:
        schema: The JSON Schema; its root is an object.
        schema_json: It as compact JSON.
        mode: An output mode, or `auto`.
        takes_text: Whether an answer may be text without JSON instead.
    """

    schema: Mapping[str, Any]
    schema_json: str
    mode: OutputModeOption = "auto"
    takes_text: bool = False


def check_output_mode(mode: str) -> str:
    """Return the mode. Raises ConfigError for one that does not exist."""
    if mode not in ("auto", *OUTPUT_MODES):
        raise ConfigError(
            f"`{mode}` is not an output mode",
            code="output_mode",
            hint=f"use one of auto, {', '.join(OUTPUT_MODES)}",
        )
    return mode


def list_output_modes(
    capabilities: Capabilities, *, has_tools: bool, native: bool = True
) -> list[str]:
    """Return the output modes that a model may manage, best first.

    Args:
        capabilities: What is known of the model.
        has_tools: Whether the run has tools.
        native: Whether tools are offered in the native tool mode.
    """
    modes: list[str] = []
    takes_tools = capabilities.tools is not False and native
    if capabilities.structured and capabilities.structured_with_tools and native:
        modes.append("schema")
    elif capabilities.structured and not (has_tools and takes_tools):
        modes.append("grammar")
    if takes_tools:
        modes.append("tool")
    return [*modes, "prompt"]


def describe_output(output: OutputFormat, mode: str, tool: str) -> str:
    """Return the section of the system text that says how to answer. Byte-stable."""
    if mode == "schema":
        return ""
    if mode == "tool":
        return f"When you know the answer, give it by calling the tool `{tool}`, and only then."
    if mode == "prompt" and write_form(output.schema):
        # A small model repeats a schema that it reads. The form says the same at the end.
        return ""
    text = f" {_TEXT_TOO}" if output.takes_text else ""
    return (
        "# Answering\n\nThe answer, once you know it, is one JSON value that fits this JSON "
        f"Schema, with nothing before or after it:\n{output.schema_json}{text}"
    )


def remind_of_output(output: OutputFormat, *, has_tools: bool) -> str:
    """Return the line at the end of each message that says how to answer in mode `prompt`.

    It is the same for every message, so that what was sent before stays a prefix of what is sent.
    """
    form = write_form(output.schema)
    what = f"one JSON object of this form and nothing else: {form}"
    if not form:
        what = "one JSON value that fits the JSON Schema above, and nothing else."
    start = "Once you know the answer, give it as" if has_tools else "Answer with"
    text = f"\n{_TEXT_TOO}" if output.takes_text else ""
    return f"{start} {what}{text}"


def write_form(schema: Mapping[str, Any]) -> str:
    """Return a schema as an object with a placeholder for each value, such as `{"age": <number>}`.

    Return "" if that would not say all that the schema does.
    """
    fields = cast("Mapping[str, Mapping[str, Any]]", schema.get("properties") or {})
    required = cast("Sequence[str]", schema.get("required") or ())
    if schema.get("type") != "object" or set(required) != set(fields):
        return ""
    if not set(schema) <= {"type", "properties", "required", "additionalProperties"}:
        return ""
    members: list[str] = []
    for name, field in fields.items():
        placeholder = _write_placeholder(field)
        if not placeholder:
            return ""
        members.append(f"{encode_json(name)}: <{placeholder}>")
    return f"{{{', '.join(members)}}}" if members else ""


def _write_placeholder(field: Mapping[str, Any]) -> str:
    """Return what is to stand in a form for a value; "" for what a few words cannot say."""
    if not set(field) <= {"type", "enum", "description"}:
        return ""
    choices = cast("Sequence[Any]", field.get("enum") or ())
    words = _PLACEHOLDERS.get(str(field.get("type")), "")
    if choices:
        words = " or ".join(encode_json(one) for one in choices[:_MAX_CHOICES])
    if not words or len(choices) > _MAX_CHOICES:
        return ""
    description = field.get("description")
    return f"{words}: {description}" if description else words


class OutputExchange:
    """An `Exchange` whose answers are held to a schema in one of the output modes.

    Only questions that ask for the output (`ask(schema=...)`) are; all others pass as they are.
    """

    def __init__(
        self,
        open: OpenExchange,
        output: OutputFormat,
        modes: Sequence[str],
        tools: Sequence[ToolSpec],
        *,
        native: bool = True,
    ) -> None:
        """Nothing is opened before the first question.

        Args:
            open: Opens the exchange of a mode.
            output: What answers must look like.
            modes: The output modes, in the order in which they are tried.
            tools: The tools of the run.
            native: Whether tools are offered in the native tool mode.
        """
        self._open = open
        self._output = output
        self._modes = list(modes)
        self._has_tools = bool(tools)
        self._native = native
        self._tool = _find_free_name(tools)
        self._inner: Exchange | None = None
        self._works = False
        self._strict: Mapping[str, Any] | None = None
        self._reminded: dict[int, tuple[Message, Message]] = {}
        self.notices: list[tuple[str, str]] = []

    @property
    def output_mode(self) -> str:
        """The output mode in use."""
        return self._modes[0]

    async def open(self) -> Exchange:
        """Return the exchange of the mode in use. Raises what opening one raises."""
        if self._inner is None:
            mode = self.output_mode
            section = describe_output(self._output, mode, self._tool)
            specs = (_output_tool(self._output, self._tool),) if mode == "tool" else ()
            self._inner = await self._open(section, specs)
        return self._inner

    async def ask(
        self,
        history: Sequence[Message],
        *,
        tools: bool = True,
        schema: Mapping[str, Any] | None = None,
        sink: Sink | None = None,
    ) -> ModelAnswered:
        """Ask the model; see `Exchange.ask`. With a `schema`, for the output that it stands for."""
        while True:
            inner = await self.open()
            try:
                if schema is None:
                    return await inner.ask(history, tools=tools, sink=sink)
                answer = await self._ask_for_output(inner, history, tools, sink)
                self._works = True
                return answer
            except ProviderError as error:
                if schema is None or not self._may_fall_back(error):
                    raise
                self._fall_back(error, sink)
            finally:
                self.notices += inner.notices
                inner.notices.clear()

    async def _ask_for_output(
        self, inner: Exchange, history: Sequence[Message], tools: bool, sink: Sink | None
    ) -> ModelAnswered:
        mode = self.output_mode
        schema = self._output.schema
        if not tools and mode != "prompt":
            return await self._ask_for_last_answer(inner, history, sink)
        if mode == "schema" and (self._native or not self._has_tools):
            strict = self._strict_schema()
            return await inner.ask(history, tools=tools, schema=strict, sink=sink)
        if mode in ("schema", "grammar") and not self._has_tools:
            return await inner.ask(history, tools=False, schema=schema, sink=sink)
        if mode == "prompt":
            history = [self._remind(message) for message in history]
        answer = await inner.ask(history, tools=tools, sink=sink)
        if mode == "tool":
            return self._take_value(answer)
        if mode == "prompt" or answer.calls or answer.output or answer.stop != "end":
            return answer
        # The model calls no tools any more: now the value is asked for, under the grammar.
        if sink is not None and answer.text:
            sink.add_text("\n\n")
        value = await inner.ask(history, tools=False, schema=schema, sink=sink)
        usage = answer.usage + value.usage
        return replace(value, text=answer.text, output=value.text, usage=usage)

    def _remind(self, message: Message) -> Message:
        """Return a person's message with the reminder; any other as it is.

        The same message gives the same object, so that its encoding is used again.
        """
        if not isinstance(message, UserMessage):
            return message
        known = self._reminded.get(id(message))
        if known is None or known[0] is not message:
            reminder = remind_of_output(self._output, has_tools=self._has_tools)
            known = (message, replace(message, text=f"{message.text}\n\n{reminder}"))
            self._reminded[id(message)] = known
        return known[1]

    async def _ask_for_last_answer(
        self, inner: Exchange, history: Sequence[Message], sink: Sink | None
    ) -> ModelAnswered:
        """Ask without tools. Where the provider takes no schema, the question describes it."""
        try:
            return await inner.ask(history, tools=False, schema=self._output.schema, sink=sink)
        except ProviderError as error:
            if error.code not in _REFUSALS:
                raise
            return await inner.ask(history, tools=False, sink=sink)

    def _strict_schema(self) -> Mapping[str, Any]:
        """Return the schema in the subset that providers promise to keep to, if that is possible.

        What is optional may be null there; the check takes such a null for left out.
        """
        strict = self._strict
        if strict is None:
            strict = self._output.schema
            compiled = compile_strict(self._output.schema_json)
            if compiled.verdict == "rewritten":
                strict = cast("dict[str, Any]", parse_json(compiled.schema))
            self._strict = strict
        return strict

    def _may_fall_back(self, error: ProviderError) -> bool:
        """Return whether an error may say that the mode in use does not work."""
        return len(self._modes) > 1 and not self._works and error.code in _REFUSALS

    def _take_value(self, answer: ModelAnswered) -> ModelAnswered:
        """Return the answer with the arguments of the output tool as its value."""
        given = [call.arguments for call in answer.calls if call.tool == self._tool]
        if not given:
            return answer
        others = tuple(call for call in answer.calls if call.tool != self._tool)
        stop = answer.stop
        if stop == "calls" and not others:
            stop = "end"
        value = given[0] if len(set(given)) == 1 else "\n".join(given)
        return replace(answer, calls=others, output=value, stop=stop, raw=None)

    def _fall_back(self, error: ProviderError, sink: Sink | None) -> None:
        """Go on with the next output mode, and say why."""
        before = self._modes.pop(0)
        self._inner = None
        self._works = False
        text = f"output by {before} is refused ({error.detail}); continuing with {self.output_mode}"
        if sink is not None:
            sink.notice("fallback", text)
        else:
            self.notices.append(("fallback", text))


def _find_free_name(tools: Sequence[ToolSpec]) -> str:
    taken = {name for tool in tools for name in (tool.name, tool.api_name)}
    name = OUTPUT_TOOL
    count = 1
    while name in taken:
        count += 1
        name = f"{OUTPUT_TOOL}_{count}"
    return name


def _output_tool(output: OutputFormat, name: str) -> ToolSpec:
    description = "Give the final answer. Call it once, alone, when you know the answer."
    return ToolSpec(name, name, description, output.schema_json)
