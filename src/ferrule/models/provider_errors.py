"""What a server's error means: error answers become `ProviderError` with a stable code.

Codes: `context_overflow`, `tools_unsupported`, `choice_unsupported`, `order_refused` (a message
right after results), `model_not_found`, `unauthorized`, `quota`, `rate_limited`, `overloaded`,
`content_filter`, `http_<status>`, `provider` (an error inside an answer). The wording is matched
because servers that call themselves compatible agree on no codes; what matches nothing stays
`http_<status>`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any, cast

from ferrule.core.errors import ProviderError
from ferrule.core.lazy_patterns import compile_lazily
from ferrule.core.messages import REFUSED_CODE, REFUSED_HINT

from .http.retry import RETRY_STATUS, parse_retry_after
from .request_encoding import parse_object

SHOWN_CHARACTERS = 500
"""Characters of a server's own message that an error shows."""

_OVERFLOW = compile_lazily(
    r"context.{0,12}(length|size|window)|maximum context|exceed_context|prompt is too "
    r"long|too many tokens"
    r"|no user query found|input (length|token count) .{0,60}exceed|reduce the length"
    r"|input is too long",
    re.I | re.S,
)
_REFUSED = compile_lazily(
    r"content_?filter|content[ _](management |filtering )?polic(y|ies)|responsibleaipolicy"
    r"|usage polic(y|ies)|data_?inspection_?failed|inappropriate content|prohibited[_ ]content"
    r"|\bmoderation\b|safety (system|filter|polic)|content exists risk|new_sensitive"
    r"|(input|prompt|output|content)[ _](was |is |has been )?(flagged|blocked)",
    re.I,
)
"""Words of refusals by a content filter: Azure, OpenAI, Anthropic, OpenRouter, DashScope, DeepSeek,
MiniMax and Google."""
_TOOLS_UNSUPPORTED = compile_lazily(
    r"not support(ed)?\b.{0,40}\b(tools?|function)|\b(tools?|functions?)( \w+)? "
    r"(is|are|param\w*).{0,40}"
    r"(not (supported|allowed|available|enabled)|requires?)|does(n't| not) support tool"
    r"|tool.{0,40}template"
    r"|template.{0,60}tool|enable-auto-tool-choice|tool-call-parser|--jinja|unknown "
    r"field.{0,10}tools"
    r"|(extra|unexpected|unrecognized|unknown|unsupported)[^.]{0,40}\btools\b"
    r"|\b(tools?|functions?)( us(e|age)| call(s|ing)?)?['\"`]? not "
    r"(supported|allowed|available|implemented|enabled)",
    re.I | re.S,
)
_CHOICE_UNSUPPORTED = compile_lazily(r"tool_?choice", re.I)
_MODEL_NOT_FOUND = compile_lazily(
    r"model.{0,120}(not found|does not exist|not exist|unknown)|model_not_found|invalid model"
    r"|model identifier is invalid"
    r"|not_found_error.{0,10}model",
    re.I | re.S,
)
_UNAUTHORIZED = compile_lazily(r"api key not valid|API_KEY_INVALID", re.I)
_QUOTA = compile_lazily(
    r"insufficient_quota|quota exceeded|billing|insufficient balance|credit balance"
    r"|usage limit (reached|exceeded)|reached your .{0,30}usage limit",
    re.I,
)
_ORDER_REFUSED = compile_lazily(r"role .?user.? after role .?tool", re.I)
_OVERLOADED = compile_lazily(r"overloaded_error|server_overloaded|overloaded", re.I)
_RATE_LIMITED = compile_lazily(r"rate_limit", re.I)


def error_from_response(
    who: str,
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    tools: bool,
) -> ProviderError:
    """Build the error for an HTTP answer that is not a success.

    Args:
        who: The model's name.
        status: The HTTP status.
        headers: The answer's headers, in lower case.
        body: The answer's body.
        tools: Whether the request offered tools.
    """
    message, code = _read_body(body)
    error = _classify(who, status, message, code, tools=tools)
    error.status = status
    error.retry_after = parse_retry_after(headers.get("retry-after"), time.time())
    milliseconds = headers.get("retry-after-ms", "")
    if milliseconds.replace(".", "", 1).isdigit():
        error.retry_after = float(milliseconds) / 1000
    if status in range(300, 400):
        location = headers.get("location", "")
        error.hint = f"it points to `{location}`; redirects are not followed, set that address"
    return error


def find_error(fields: Mapping[str, Any], *, expected: str) -> object:
    """Return the error that a body or an event of status 200 is, or has; None if it has none.

    Servers put it into `error`, `errors`, or into the first choice, or send its fields alone, where
    `expected` is missing.
    """
    if fields.get("error"):
        return fields["error"]
    listed: object = fields.get("errors")
    if isinstance(listed, list) and listed:
        return cast("list[object]", listed)[0]
    choices: object = fields.get("choices")
    if isinstance(choices, list):
        for choice in cast("list[object]", choices):
            if isinstance(choice, dict) and cast("dict[str, object]", choice).get("error"):
                return cast("dict[str, object]", choice)["error"]
    if expected in fields:
        return None
    is_error = fields.get("object") == "error" or fields.get("type") == "error"
    says_why = any(isinstance(fields.get(name), str) for name in ("message", "detail", "msg"))
    if is_error or (says_why and _status_in(fields)):
        return dict(fields)
    return None


def error_from_object(who: str, value: object, *, tools: bool, begun: bool) -> ProviderError:
    """Build the error for an `error` object in place of an answer, or in the middle of a stream.

    Gateways give the status of the server behind them as its `code`. `begun` says whether a part of
    the answer may have been seen: then the request is not sent again.
    """
    message, code = _read_error(value)
    status = _status_in(value)
    error = _classify(who, status, message, code, tools=tools)
    error.status = status or None
    if begun:
        error.retryable = False
    return error


def _status_in(value: object) -> int:
    """Return the HTTP status that an error object has as its code; 0 if it has none."""
    if not isinstance(value, Mapping):
        return 0
    fields = cast(Mapping[str, Any], value)
    if isinstance(fields.get("error"), Mapping):
        return _status_in(fields["error"])
    for name in ("code", "status", "status_code"):
        given = str(fields.get(name))
        if given.isdigit() and 400 <= int(given) < 600:
            return int(given)
    return 0


def build_unreadable_error(
    who: str, data: bytes, what: str = "no answer that can be understood"
) -> ProviderError:
    """Build the error for what a server sent and nothing here can read; it shows the beginning."""
    shown = data[:200].decode("utf-8", "replace")
    return ProviderError(f"{who} sent {what}: {shown}", code="not_understood", retryable=False)


def _classify(who: str, status: int, message: str, code: str, *, tools: bool) -> ProviderError:
    searched = f"{code} {message}"
    # Half of a surrogate pair could not be printed.
    said = message[:SHOWN_CHARACTERS].encode("utf-8", "replace").decode()
    shown = f"{who}: {said}" if said else f"{who} answered HTTP {status}"
    if status == 413 or _OVERFLOW.search(searched):
        hint = "use a larger window (`num_ctx` on Ollama), start a new session, or send less"
        return ProviderError(shown, code="context_overflow", hint=hint, retryable=False)
    if status in (0, 400, 403, 422) and _REFUSED.search(searched):
        return ProviderError(shown, code=REFUSED_CODE, hint=REFUSED_HINT, retryable=False)
    if status in (401, 403) or _UNAUTHORIZED.search(searched):
        return ProviderError(
            shown, code="unauthorized", hint="check the API key and its rights", retryable=False
        )
    if _QUOTA.search(searched):
        return ProviderError(
            shown, code="quota", hint="check the account's plan and balance", retryable=False
        )
    if status != 429 and _MODEL_NOT_FOUND.search(searched):
        return ProviderError(shown, code="model_not_found", retryable=False)
    about_tools = _classify_about_tools(shown, status, searched, offered=tools)
    if about_tools is not None:
        return about_tools
    if status == 429 or (not status and _RATE_LIMITED.search(code)):
        return ProviderError(shown, code="rate_limited", retryable=True)
    if status == 529 or _OVERLOADED.search(code):
        return ProviderError(shown, code="overloaded", hint="try again in a while", retryable=True)
    if status == 404:
        hint = "check the address: it usually ends in `/v1`"
        return ProviderError(shown, code="http_404", hint=hint, retryable=False)
    fallback = f"http_{status}" if status else "provider"
    return ProviderError(shown, code=fallback, retryable=status in RETRY_STATUS)


def _classify_about_tools(
    shown: str, status: int, searched: str, *, offered: bool
) -> ProviderError | None:
    if _ORDER_REFUSED.search(searched):
        return ProviderError(shown, code="order_refused", retryable=False)
    if not offered:
        return None
    if status != 429 and _TOOLS_UNSUPPORTED.search(searched):
        hint = (
            "the model can still call tools in text: `tool_mode: constrained` or `tool_mode: "
            "text` for it in the settings"
        )
        return ProviderError(shown, code="tools_unsupported", hint=hint, retryable=False)
    if status in (400, 422) and _CHOICE_UNSUPPORTED.search(searched):
        return ProviderError(shown, code="choice_unsupported", retryable=False)
    return None


def _read_body(body: bytes) -> tuple[str, str]:
    value = parse_object(body)
    if value:
        return _read_error(value.get("error") or value)
    return body[: SHOWN_CHARACTERS * 2].decode("utf-8", "replace").strip(), ""


def _read_error(value: object) -> tuple[str, str]:
    """Return the message and the code of an error in any of the formats in use.

    They are text, `{message, code, type}` and `{detail}`.
    """
    if not isinstance(value, dict):
        return str(value), ""
    fields = cast(dict[str, Any], value)
    if isinstance(fields.get("error"), dict) and not fields.get("message"):
        return _read_error(fields["error"])
    texts = (fields.get(name) for name in ("message", "detail", "msg", "error"))
    message: Any = next(filter(None, texts), fields)
    code = " ".join(str(fields[name]) for name in ("code", "type") if fields.get(name))
    text = str(message)
    place = fields.get("param")
    if isinstance(place, str) and place and place not in text:
        text = f"{text} (`{place[:100]}`)"
    return text, code
