"""Parse one request for a chat completion, as a whole, before any model is asked.

A client's tools are strangers' schemas: limited like those of servers
(`connectors.bounded_schemas`). `strict` of a function is accepted but not guaranteed: whether
arguments fit depends on the model and its tool mode; the client must check them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, cast

from ferrule.connectors.bounded_schemas import make_arguments
from ferrule.core.calls import encode_json
from ferrule.core.errors import ToolDefinitionError
from ferrule.core.value_class import frozen
from ferrule.models.answer_building import join_surrogates
from ferrule.models.client import ToolSpec
from ferrule.tools.define import compile_schema

from .errors import RequestRefused
from .messages import ParsedMessages, parse_messages, require_mapping
from .parameters import Sampling, parse_sampling

MAX_TOOLS = 128
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_EMPTY: Mapping[str, Any] = {"type": "object", "properties": {}}


@frozen
class ChatRequest:
    """What a client asks for.

    `tools` are those the model may call; `must` requires a call of one of them; `may` False
    prevents any call. `schema` is the schema of the reply.
    """

    model: str
    messages: ParsedMessages
    sampling: Sampling = Sampling()
    stream: bool = False
    include_usage: bool = False
    tools: tuple[ToolSpec, ...] = ()
    may_call: bool = True
    must_call: bool = False
    parallel: bool = True
    schema: Mapping[str, Any] | None = None


def parse_request(body: bytes) -> ChatRequest:
    """Parse the body of `POST /v1/chat/completions`. Raises Refused, naming the field at fault."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RequestRefused(f"the body is not JSON: {error}") from error
    fields = require_mapping(value, "the body")
    model = fields.get("model")
    if not isinstance(model, str) or not model:
        raise RequestRefused(
            "`model` must name a model; `GET /v1/models` lists them", param="model"
        )
    stream = _parse_flag(fields, "stream")
    options = require_mapping(fields.get("stream_options") or {}, "stream_options")
    for name in options.keys() - {"include_usage", "include_obfuscation"}:
        raise RequestRefused(
            f"`stream_options.{name}` is not supported here", param="stream_options"
        )
    tools = _parse_tools(fields.get("tools"))
    may, must, tools = _parse_tool_choice(fields.get("tool_choice"), tools)
    return ChatRequest(
        model,
        parse_messages(fields.get("messages")),
        parse_sampling(fields),
        stream,
        stream and _parse_flag(options, "include_usage"),
        tools,
        may,
        must,
        _parse_flag(fields, "parallel_tool_calls", default=True),
        _parse_schema(fields.get("response_format")),
    )


def _parse_flag(fields: Mapping[str, Any], name: str, *, default: bool = False) -> bool:
    value = fields.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise RequestRefused(f"`{name}` must be true or false", param=name)
    return value


def _parse_tools(value: object) -> tuple[ToolSpec, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise RequestRefused("`tools` must be a list", param="tools")
    listed = cast("list[Any]", value)
    if len(listed) > MAX_TOOLS:
        raise RequestRefused(f"{len(listed)} tools are more than {MAX_TOOLS}", param="tools")
    specs = tuple(_parse_tool(one, f"tools[{place}]") for place, one in enumerate(listed))
    if len({spec.name for spec in specs}) != len(specs):
        raise RequestRefused("two tools have the same name", param="tools")
    return specs


def _parse_tool(value: object, where: str) -> ToolSpec:
    fields = require_mapping(value, where)
    if fields.get("type") != "function":
        raise RequestRefused(
            f"{where} is of the type {fields.get('type')!r}; only functions are supported",
            param=f"{where}.type",
        )
    function = require_mapping(fields.get("function"), f"{where}.function")
    name = function.get("name")
    description = function.get("description") or ""
    if not isinstance(name, str) or not _NAME.match(name):
        raise RequestRefused(
            f"{where} needs a name of at most 64 letters, digits, `_` and `-`",
            param=f"{where}.function.name",
        )
    schema = require_mapping(function.get("parameters") or _EMPTY, f"{where}.function.parameters")
    try:
        make_arguments(name, schema)
    except ToolDefinitionError as error:
        raise RequestRefused(error.detail, param=f"{where}.function.parameters") from error
    return ToolSpec(
        name, name, join_surrogates(str(description)), join_surrogates(encode_json(schema))
    )


def _parse_tool_choice(
    value: object, tools: tuple[ToolSpec, ...]
) -> tuple[bool, bool, tuple[ToolSpec, ...]]:
    """Return whether a tool may be called, whether one must, and the tools."""
    if value in (None, "auto"):
        return True, False, tools
    if value == "none":
        return False, False, tools
    if value == "required":
        if not tools:
            raise RequestRefused(
                "`tool_choice` requires a call, and there are no `tools`", param="tool_choice"
            )
        return True, True, tools
    fields = require_mapping(value, "tool_choice")
    name = require_mapping(fields.get("function") or {}, "tool_choice.function").get("name")
    chosen = tuple(spec for spec in tools if spec.name == name)
    if fields.get("type") != "function" or not chosen:
        raise RequestRefused(
            "`tool_choice` must be auto, none, required, or a function in `tools`",
            param="tool_choice",
        )
    return True, True, chosen


def _parse_schema(value: object) -> Mapping[str, Any] | None:
    if value is None:
        return None
    fields = require_mapping(value, "response_format")
    if fields.get("type") == "text":
        return None
    if fields.get("type") == "json_object":
        return {"type": "object"}
    if fields.get("type") != "json_schema":
        raise RequestRefused(
            "`response_format` must be text, json_object or json_schema",
            param="response_format.type",
        )
    where = "response_format.json_schema.schema"
    wanted = require_mapping(fields.get("json_schema"), "response_format.json_schema")
    schema = require_mapping(wanted.get("schema"), where)
    try:
        compile_schema("the reply", dict(schema))
        make_arguments("the reply", {**schema, "type": "object"})
    except ToolDefinitionError as error:
        raise RequestRefused(
            f"the schema of the reply cannot be used: {error.detail}", param=where
        ) from error
    return schema
