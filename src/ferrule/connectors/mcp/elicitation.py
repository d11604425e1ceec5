"""Questions that a server asks a person while it works (elicitation), and who answers them.

A server may ask with a form (a few values, described by a flat schema) or send the person to a URL.
The question reaches a person through the run that made the call: through `FormFiller`, if the run
was given it, which can take values; else through the run's `Approver`, which says yes or no. Yes
alone is an answer if the form needs no value that it does not provide itself: defaults, and a
single boolean. Without either, the server is told that the person declines. URLs are shown, never
opened by us.

While a person is asked, the time limits of the call stand still.

Never answered, whoever says yes: a form that asks for a secret (the protocol forbids it, since what
is typed passes through here). Which call a question belongs to is known if the server asks within
it (2026-07-28); an older server's question goes to the only running call, and to nobody if there
are several.
"""

from __future__ import annotations

import contextvars
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any

from ferrule.connectors.json_values import list_or_empty, mapping_or_empty, text_or_empty
from ferrule.connectors.text_cleaning import clean_json, clean_text
from ferrule.core.calls import ToolCall, encode_json
from ferrule.core.errors import FerruleError
from ferrule.core.value_class import frozen
from ferrule.permissions.approvals import (
    ApprovalRequest,
    Approver,
    digest_arguments,
    make_question_tool,
)
from ferrule.tools.context import Context
from ferrule.tools.definition import Risk, SideEffect

from .secret_questions import find_secret

_MAX_MESSAGE = 2_000
_MAX_FIELDS = 32
DECLINE: Mapping[str, Any] = {"action": "decline"}


@frozen
class Form:
    """A server's question, with its fields.

    `fields` are JSON Schemas of texts, numbers, booleans and choices, by name.
    """

    server: str
    message: str
    fields: Mapping[str, Mapping[str, Any]]
    required: tuple[str, ...]


@frozen
class FormFiller:
    """Lets a person fill in a form: given to an Agent as a resource.

    `fill` returns the values, or None if the person declines.
    """

    fill: Callable[[Form], Awaitable[Mapping[str, Any] | None]]


_current_call: contextvars.ContextVar[Context | None] = contextvars.ContextVar(
    "ferrule_mcp_call", default=None
)


class ElicitationRouter:
    """Brings the questions of one server to the runs whose calls it is working on."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._running_calls: list[Context] = []

    @contextmanager
    def bind_call(self, context: Context) -> Generator[None]:
        """Mark a call as running: questions asked meanwhile belong to it."""
        token = _current_call.set(context)
        self._running_calls.append(context)
        try:
            yield
        finally:
            self._running_calls.remove(context)
            _current_call.reset(token)

    async def answer(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the result of an elicitation. Never raises: an error on the way is a refusal."""
        context = _current_call.get()
        if context is None and len(self._running_calls) == 1:
            context = self._running_calls[0]
        if context is None:
            return DECLINE
        try:
            with context.timeouts.pause():
                if params.get("mode") == "url":
                    return await self._answer_url(params, context)
                return await self._answer_form(params, context)
        except FerruleError as error:
            context.note(
                "mcp", f"server `{self._server}` asked, and nobody could answer: {error.detail}"
            )
            return DECLINE

    async def _answer_url(self, params: Mapping[str, Any], context: Context) -> Mapping[str, Any]:
        url = clean_text(text_or_empty(params.get("url")))[:_MAX_MESSAGE]
        message = clean_text(text_or_empty(params.get("message")))[:_MAX_MESSAGE]
        values = {"server": self._server, "message": message, "url": url}
        question = f"server `{self._server}` wants you to open {url} yourself: {message}"
        if await _is_accepted(question, values, context):
            return {"action": "accept"}
        return DECLINE

    async def _answer_form(self, params: Mapping[str, Any], context: Context) -> Mapping[str, Any]:
        form = read_form(self._server, params)
        why = refusal_reason(form)
        if why:
            context.note("mcp", f"server `{self._server}` asked {why}; it got no answer")
            return DECLINE
        forms: Any = context.resources.get(FormFiller)
        if forms is not None:
            filled = await forms.fill(form)
            return DECLINE if filled is None else {"action": "accept", "content": dict(filled)}
        content = default_answers(form)
        if content is None:
            context.note(
                "mcp", f"server `{self._server}` asked for values, and nothing here can take them"
            )
            return {"action": "cancel"}
        values = {"server": self._server, "message": form.message, "answer": content}
        question = f"server `{self._server}` asks: {form.message}"
        if await _is_accepted(question, values, context):
            return {"action": "accept", "content": content}
        return DECLINE


def read_form(server: str, params: Mapping[str, Any]) -> Form:
    """Read the parameters of `elicitation/create` as a form, its texts cleaned."""
    schema = mapping_or_empty(params.get("requestedSchema"))
    properties = mapping_or_empty(schema.get("properties"))
    return Form(
        server=server,
        message=clean_text(text_or_empty(params.get("message")))[:_MAX_MESSAGE],
        fields={
            str(name): clean_json(mapping_or_empty(field)) for name, field in properties.items()
        },
        required=tuple(
            name for name in list_or_empty(schema.get("required")) if isinstance(name, str)
        ),
    )


def refusal_reason(form: Form) -> str:
    """Return why a form is not shown to anybody, or an empty string."""
    if len(form.fields) > _MAX_FIELDS:
        return f"for {len(form.fields)} values at once"
    found = find_secret(form.message, form.fields)
    if found:
        return f"for a secret (`{clean_text(found)[:60]}`), which may not be asked for in a form"
    return ""


def default_answers(form: Form) -> dict[str, Any] | None:
    """Return the values that a plain yes stands for, or None where values are missing.

    They are the form's defaults, and true for its only field.
    """
    values = {name: field["default"] for name, field in form.fields.items() if "default" in field}
    if len(form.fields) == 1 and not values:
        (name,) = form.fields
        if form.fields[name].get("type") == "boolean":
            values = {name: True}
    if set(form.required) - values.keys():
        return None
    return values


async def _is_accepted(question: str, values: Mapping[str, Any], context: Context) -> bool:
    approver: Any = context.resources.get(Approver)
    if approver is None:
        return False
    request = ApprovalRequest(
        call=ToolCall(f"{context.call_id}-asked", QUESTION_TOOL.name, encode_json(values)),
        tool=QUESTION_TOOL,
        risk=str(Risk.CRITICAL),
        reason=question,
        labels=("mcp",),
        preview=encode_json(values),
        offers=(),
        digest=digest_arguments(QUESTION_TOOL.name, values),
        identity=context.identity,
        values=values,
    )
    answer = await approver.ask(request)
    return answer.choice != "deny"


QUESTION_TOOL = make_question_tool(
    "answer_mcp_server", "Answer a question of an MCP server.", SideEffect.EXTERNAL
)
"""The tool that a question is presented as, in the form that approvers know."""
