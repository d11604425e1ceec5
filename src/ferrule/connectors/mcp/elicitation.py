"""What a server asks a person while it works (elicitation), and who answers.

A server may ask with a form (a few values, described by a flat schema) or send the person to an
address. It reaches a person through the run that made the call: by `Forms`, if the run was given
it, which can take values; else by the run's `Approver`, which says yes or no. Yes alone is an
answer where the form needs no value that it does not bring itself: defaults, and a single truth
value. Without either the server is told that the person declines. Addresses are shown, never opened
by us.

Never answered, whoever says yes: a form that asks for a secret (the protocol forbids it, since what
is typed goes through here). Which call a question belongs to is known where the server asks within
it (2026-07-28); an older server's question goes to the one call that is under way, and with several
to nobody.
"""

from __future__ import annotations

import contextvars
import re
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ferrule.connectors.cleaning import clean
from ferrule.connectors.json_values import list_of, mapping_of, text_of
from ferrule.core.calls import Call, compact
from ferrule.core.errors import FerruleError
from ferrule.permissions.approval_digest import digest
from ferrule.permissions.approvals import ApprovalRequest, Approver, question_tool
from ferrule.permissions.child_environment import looks_secret
from ferrule.tools.context import Context
from ferrule.tools.definition import Risk, SideEffect

_WORDS = re.compile(
    r"password|passphrase|passcode|secret|api.?key|token|credential|private.?key|pin code|cvv",
    re.IGNORECASE,
)
_MESSAGE = 2_000
_FIELDS = 32
DECLINE: Mapping[str, Any] = {"action": "decline"}


@dataclass(frozen=True, slots=True)
class Form:
    """A server's question with its fields: JSON Schemas of texts, numbers, truth values and
    choices, by name.
    """

    server: str
    message: str
    fields: Mapping[str, Mapping[str, Any]]
    required: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Forms:
    """Whoever can let a person fill in a form: given to an Agent as a resource. `fill` gives the
    values, None for no.
    """

    fill: Callable[[Form], Awaitable[Mapping[str, Any] | None]]


_current: contextvars.ContextVar[Context | None] = contextvars.ContextVar(
    "ferrule_mcp_call", default=None
)


class Asking:
    """The calls of one server that are under way, and the way from its questions to their runs."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._under_way: list[Context] = []

    @contextmanager
    def within(self, context: Context) -> Generator[None]:
        """While a call runs: questions in it are its own."""
        token = _current.set(context)
        self._under_way.append(context)
        try:
            yield
        finally:
            self._under_way.remove(context)
            _current.reset(token)

    async def answer(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        """The result of an elicitation. Never raises: what breaks on the way is a no."""
        context = _current.get() or (self._under_way[0] if len(self._under_way) == 1 else None)
        if context is None:
            return DECLINE
        try:
            if asked.get("mode") == "url":
                return await self._address(asked, context)
            return await self._form(asked, context)
        except FerruleError as error:
            context.note(
                "mcp", f"server `{self._server}` asked, and nobody could answer: {error.detail}"
            )
            return DECLINE

    async def _address(self, asked: Mapping[str, Any], context: Context) -> Mapping[str, Any]:
        url, message = (
            clean(text_of(asked.get("url")))[:_MESSAGE],
            clean(text_of(asked.get("message")))[:_MESSAGE],
        )
        values = {"server": self._server, "message": message, "url": url}
        said = f"server `{self._server}` wants you to open {url} yourself: {message}"
        return {"action": "accept"} if await _yes(said, values, context) else DECLINE

    async def _form(self, asked: Mapping[str, Any], context: Context) -> Mapping[str, Any]:
        form = read_form(self._server, asked)
        if why := refused(form):
            context.note("mcp", f"server `{self._server}` asked {why}; it got no answer")
            return DECLINE
        forms: Any = context.resources.get(Forms)
        if forms is not None:
            filled = await forms.fill(form)
            return DECLINE if filled is None else {"action": "accept", "content": dict(filled)}
        content = brought(form)
        if content is None:
            context.note(
                "mcp", f"server `{self._server}` asked for values, and nothing here can take them"
            )
            return {"action": "cancel"}
        values = {"server": self._server, "message": form.message, "answer": content}
        said = f"server `{self._server}` asks: {form.message}"
        return (
            {"action": "accept", "content": content}
            if await _yes(said, values, context)
            else DECLINE
        )


def read_form(server: str, asked: Mapping[str, Any]) -> Form:
    """A form out of the parameters of `elicitation/create`, its texts cleaned."""
    schema = mapping_of(asked.get("requestedSchema"))
    fields = {
        str(name): mapping_of(one) for name, one in mapping_of(schema.get("properties")).items()
    }
    required = tuple(one for one in list_of(schema.get("required")) if isinstance(one, str))
    return Form(server, clean(text_of(asked.get("message")))[:_MESSAGE], fields, required)


def refused(form: Form) -> str:
    """Why a form is not shown to anybody, or nothing."""
    if len(form.fields) > _FIELDS:
        return f"for {len(form.fields)} values at once"
    for name, one in form.fields.items():
        about = " ".join((name, text_of(one.get("title")), text_of(one.get("description"))))
        if looks_secret(name) or _WORDS.search(about) or one.get("format") == "password":
            return f"for a secret (`{clean(name)[:60]}`), which may not go this way"
    return ""


def brought(form: Form) -> dict[str, Any] | None:
    """The values that a plain yes stands for: the form's defaults, and true for its only field.
    None where values are missing.
    """
    values = {name: one["default"] for name, one in form.fields.items() if "default" in one}
    if len(form.fields) == 1 and not values:
        (name,) = form.fields
        values = {name: True} if form.fields[name].get("type") == "boolean" else {}
    return None if set(form.required) - values.keys() else values


async def _yes(said: str, values: Mapping[str, Any], context: Context) -> bool:
    approver: Any = context.resources.get(Approver)
    if approver is None:
        return False
    request = ApprovalRequest(
        call=Call(f"{context.call_id}-asked", QUESTION.name, compact(values)),
        tool=QUESTION,
        risk=str(Risk.CRITICAL),
        reason=said,
        labels=("mcp",),
        preview=compact(values),
        offers=(),
        digest=digest(QUESTION.name, values),
        identity=context.identity,
        values=values,
    )
    answer = await approver.ask(request)
    return answer.choice != "deny"


QUESTION = question_tool(
    "answer_mcp_server", "Answer a question of an MCP server.", SideEffect.EXTERNAL
)
"""What the question is about, in the form that approvers know."""
