"""What a server's refusal means: HTTP answers and error objects to `ProviderError` with a stable
code.

Codes: `context_overflow`, `tools_unsupported`, `choice_unsupported`, `model_not_found`,
`unauthorized`, `quota`, `rate_limited`, `overloaded`, `http_<status>`, `provider` (an error inside
an answer). The wording is matched because servers that call themselves compatible agree on no code;
what matches nothing stays `http_<status>`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any, cast

from ferrule.core.errors import ProviderError
from ferrule.core.lazy_patterns import expression

from .http.retry import RETRY_STATUS, parse_retry_after
from .request_encoding import json_object

SHOWN = 500
"""Characters of a server's own words in an error."""

_OVERFLOW = expression(
    r"context.{0,12}(length|size|window)|maximum context|exceed_context|prompt is too "
    r"long|too many tokens"
    r"|no user query found|input length .{0,60}exceed|reduce the length",
    re.I | re.S,
)
_TOOLS = expression(
    r"not support(ed)?\b.{0,40}\b(tools?|function)|\b(tools?|functions?)( \w+)? "
    r"(is|are|param\w*).{0,40}"
    r"(not (supported|allowed|available)|requires?)|does(n't| not) support tool|tool.{0,40}template"
    r"|template.{0,60}tool|enable-auto-tool-choice|tool-call-parser|--jinja|unknown "
    r"field.{0,10}tools"
    r"|(extra|unexpected|unrecognized|unknown|unsupported)[^.]{0,40}\btools\b"
    r"|\b(tools?|functions?)( us(e|age)| call(s|ing)?)?['\"`]? not "
    r"(supported|allowed|available|implemented|enabled)",
    re.I | re.S,
)
_CHOICE = expression(r"tool_?choice", re.I)
_NO_MODEL = expression(
    r"model.{0,120}(not found|does not exist|not exist|unknown)|model_not_found|invalid model"
    r"|not_found_error.{0,10}model",
    re.I | re.S,
)
_QUOTA = expression(
    r"insufficient_quota|quota exceeded|billing|insufficient balance|credit balance", re.I
)
_OVERLOADED = expression(r"overloaded_error|server_overloaded|overloaded", re.I)
_RATE = expression(r"rate_limit", re.I)


def refusal(
    who: str,
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    tools: bool,
    now: float | None = None,
) -> ProviderError:
    """The error for an HTTP answer that is no success. `who` names the model; `tools`: the request
    had some.
    """
    words, code = _words(body)
    retry_after = parse_retry_after(headers.get("retry-after"), time.time() if now is None else now)
    error = _classified(who, status, words, code, tools=tools)
    error.status = status
    error.retry_after = retry_after
    if status in range(300, 400):
        error.hint = (
            f"it points to `{headers.get('location', '')}`; redirects are not followed, set that "
            "address"
        )
    return error


def error_inside(who: str, value: object, *, tools: bool) -> ProviderError:
    """The error for an `error` object where an answer should be, also in the middle of a stream."""
    words, code = _described(value)
    error = _classified(who, 0, words, code, tools=tools)
    error.retryable = False
    return error


def _classified(who: str, status: int, words: str, code: str, *, tools: bool) -> ProviderError:
    said = f"{code} {words}"
    shown = f"{who}: {words[:SHOWN]}" if words else f"{who} answered HTTP {status}"
    if status == 413 or _OVERFLOW.search(said):
        hint = "use a larger window (`num_ctx` on Ollama), start a new session, or send less"
        return ProviderError(shown, code="context_overflow", hint=hint, retryable=False)
    if status in (401, 403):
        return ProviderError(
            shown, code="unauthorized", hint="check the API key and its rights", retryable=False
        )
    if _QUOTA.search(said):
        return ProviderError(
            shown, code="quota", hint="check the account's plan and balance", retryable=False
        )
    if status != 429 and _NO_MODEL.search(said):
        return ProviderError(shown, code="model_not_found", retryable=False)
    if tools and status != 429 and _TOOLS.search(said):
        hint = (
            "the model can still call tools in text: `tool_mode: constrained` or `tool_mode: "
            "text` for it in the settings"
        )
        return ProviderError(shown, code="tools_unsupported", hint=hint, retryable=False)
    if tools and status in (400, 422) and _CHOICE.search(said):
        return ProviderError(shown, code="choice_unsupported", retryable=False)
    if status == 429 or (not status and _RATE.search(code)):
        return ProviderError(shown, code="rate_limited", retryable=True)
    if status == 529 or _OVERLOADED.search(code):
        return ProviderError(shown, code="overloaded", hint="try again in a while", retryable=True)
    if status == 404:
        hint = "check the address: it usually ends in `/v1`"
        return ProviderError(shown, code="http_404", hint=hint, retryable=False)
    return ProviderError(
        shown, code=f"http_{status}" if status else "provider", retryable=status in RETRY_STATUS
    )


def _words(body: bytes) -> tuple[str, str]:
    value = json_object(body)
    if value:
        return _described(value.get("error") or value)
    return body[: SHOWN * 2].decode("utf-8", "replace").strip(), ""


def _described(value: object) -> tuple[str, str]:
    """Message and code of an error in any of the shapes in use: text, `{message, code, type}`,
    `{detail}`.
    """
    if not isinstance(value, dict):
        return str(value), ""
    fields = cast(dict[str, Any], value)
    words: Any = fields.get("message") or fields.get("detail") or fields.get("error") or fields
    code = " ".join(str(fields[name]) for name in ("code", "type") if fields.get(name))
    return words if isinstance(words, str) else str(words), code
