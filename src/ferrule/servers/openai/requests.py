"""Parse one request for a chat completion, as a whole, before any model is asked.

A client's tools are strangers' schemas: limited like those of servers (`connectors.schemas`).
`strict` of a function is accepted but not guaranteed: whether arguments fit depends on the model
and its tool mode; the client must check them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from ferrule.connectors.schemas import arguments_of
from ferrule.core.calls import compact
from ferrule.core.errors import ToolDefinitionError
from ferrule.models.answer_folding import mend
from ferrule.models.client import ToolSpec

from .errors import Refused
from .messages import Told, mapping, parse_messages
from .parameters import Sampling, parse_sampling

MOST_TOOLS = 128
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_EMPTY: Mapping[str, Any] = {"type": "object", "properties": {}}


@dataclass(frozen=True, slots=True)
class Asked:
    """What a client asks for.

    `tools` are those the model may call; `must` requires a call of one of them; `may` False
    prevents any call. `schema` is the schema of the reply.
    """

    model: str
    told: Told
    sampling: Sampling = Sampling()
    stream: bool = False
    include_usage: bool = False
    tools: tuple[ToolSpec, ...] = ()
    may: bool = True
    must: bool = False
    parallel: bool = True
    schema: Mapping[str, Any] | None = None


def parse_request(body: bytes) -> Asked:
    """Parse the body of `POST /v1/chat/completions`. Raises Refused, naming the field at fault."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Refused(f"the body is not JSON: {error}") from error
    fields = mapping(value, "the body")
    model = fields.get("model")
    if not isinstance(model, str) or not model:
        raise Refused("`model` must name a model; `GET /v1/models` lists them", param="model")
    stream = _flag(fields, "stream")
    options = mapping(fields.get("stream_options") or {}, "stream_options")
    for name in options.keys() - {"include_usage", "include_obfuscation"}:
        raise Refused(f"`stream_options.{name}` is not supported here", param="stream_options")
    tools = _tools(fields.get("tools"))
    may, must, tools = _choice(fields.get("tool_choice"), tools)
    return Asked(
        model,
        parse_messages(fields.get("messages")),
        parse_sampling(fields),
        stream,
        stream and _flag(options, "include_usage"),
        tools,
        may,
        must,
        _flag(fields, "parallel_tool_calls", default=True),
        _schema(fields.get("response_format")),
    )


def _flag(fields: Mapping[str, Any], name: str, *, default: bool = False) -> bool:
    value = fields.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise Refused(f"`{name}` must be true or false", param=name)
    return value


def _tools(value: object) -> tuple[ToolSpec, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise Refused("`tools` must be a list", param="tools")
    listed = cast("list[Any]", value)
    if len(listed) > MOST_TOOLS:
        raise Refused(f"{len(listed)} tools are more than {MOST_TOOLS}", param="tools")
    specs = tuple(_tool(one, f"tools[{place}]") for place, one in enumerate(listed))
    if len({spec.name for spec in specs}) != len(specs):
        raise Refused("two tools have the same name", param="tools")
    return specs


def _tool(value: object, where: str) -> ToolSpec:
    fields = mapping(value, where)
    if fields.get("type") != "function":
        raise Refused(
            f"{where} is of the type {fields.get('type')!r}; only functions are supported",
            param=f"{where}.type",
        )
    function = mapping(fields.get("function"), f"{where}.function")
    name = function.get("name")
    description = function.get("description") or ""
    if not isinstance(name, str) or not _NAME.match(name):
        raise Refused(
            f"{where} needs a name of at most 64 letters, digits, `_` and `-`",
            param=f"{where}.function.name",
        )
    schema = mapping(function.get("parameters") or _EMPTY, f"{where}.function.parameters")
    try:
        arguments_of(name, schema)
    except ToolDefinitionError as error:
        raise Refused(error.detail, param=f"{where}.function.parameters") from error
    return ToolSpec(name, name, mend(str(description)), mend(compact(schema)))


def _choice(value: object, tools: tuple[ToolSpec, ...]) -> tuple[bool, bool, tuple[ToolSpec, ...]]:
    """Return whether a tool may be called, whether one must, and the tools."""
    if value in (None, "auto"):
        return True, False, tools
    if value == "none":
        return False, False, tools
    if value == "required":
        if not tools:
            raise Refused(
                "`tool_choice` requires a call, and there are no `tools`", param="tool_choice"
            )
        return True, True, tools
    fields = mapping(value, "tool_choice")
    name = mapping(fields.get("function") or {}, "tool_choice.function").get("name")
    chosen = tuple(spec for spec in tools if spec.name == name)
    if fields.get("type") != "function" or not chosen:
        raise Refused(
            "`tool_choice` must be auto, none, required, or a function in `tools`",
            param="tool_choice",
        )
    return True, True, chosen


def _schema(value: object) -> Mapping[str, Any] | None:
    if value is None:
        return None
    fields = mapping(value, "response_format")
    if fields.get("type") == "text":
        return None
    if fields.get("type") == "json_object":
        return {"type": "object"}
    if fields.get("type") != "json_schema":
        raise Refused(
            "`response_format` must be text, json_object or json_schema",
            param="response_format.type",
        )
    where = "response_format.json_schema.schema"
    wanted = mapping(fields.get("json_schema"), "response_format.json_schema")
    schema = mapping(wanted.get("schema"), where)
    try:
        arguments_of("the reply", {**schema, "type": "object"})
    except ToolDefinitionError as error:
        raise Refused(
            f"the schema of the reply cannot be used: {error.detail}", param=where
        ) from error
    return schema
