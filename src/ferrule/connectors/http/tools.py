"""From a manifest to tools of a run, judged by the gate like all others.

What a call would reach is worked out while its arguments are checked, and stands among the checked
values as `URL`: so rules for hosts (`WebFetch(domain:…)`) see it, a person who is asked is shown
it, an approval is bound to it, and what is then requested is exactly that. It holds no secret:
these are added when the request is sent.

A redirect to another host is judged by the same rules: where a rule refuses that host or asks about
it, nothing is followed. What a person was not asked about otherwise is not asked about in the
middle of a call; which hosts there can be at all is what the file lists.

A tool that changes something is never covered by a rule for its host alone: such a rule says that
one may look there. It needs the tool's own name in a rule, or a person's yes (`_NAME`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from ferrule.connectors.schemas import bounded, problem_of
from ferrule.core.calls import ErrorType
from ferrule.core.errors import ConfigError, ToolDefinitionError, ToolFailed
from ferrule.engine.available_tools import Usable
from ferrule.sandbox.network.allowed_hosts import canonical
from ferrule.tools.chunked_output import Chunks
from ferrule.tools.context import Context
from ferrule.tools.define import validator_of
from ferrule.tools.definition import URL as TOUCHES_URL
from ferrule.tools.definition import Arguments, Checked, SideEffect, Tool, Touch
from ferrule.tools.names import check_name
from ferrule.tools.result_facts import leave

from .auth import Applied, apply
from .hosts import Reachable
from .requests import Prepared, prepare
from .results import Asked, Empty, broke, value_of
from .schemas import checking
from .secrets import PERSONS, Redactor, Secrets
from .send import Broke, Refused, Sender, nobody
from .spec import Endpoint, HttpTool, Manifest
from .templates import Unfit

URL = "request url"
"""Where the address stands among the checked values. No schema may have a property of this name."""
_NAME = "request tool"
CONTEXT = "ferrule context"
"""The parameter that handlers get the context under."""

MakeSender = Callable[[Reachable], Sender]


def make_tools(
    manifest: Manifest, secrets: Secrets = PERSONS, *, sender: MakeSender = Sender
) -> tuple[Tool, ...]:
    """The tools of a manifest. Raises ToolDefinitionError, also for a schema that cannot be
    used.
    """
    sending = sender(manifest.reachable)
    return tuple(_tool(one, manifest, secrets, sending) for one in manifest.tools)


def _tool(one: HttpTool, manifest: Manifest, secrets: Secrets, sender: Sender) -> Tool:
    check_name(one.name)
    full_name = f"{manifest.namespace}::{one.name}" if manifest.namespace else one.name
    changes = one.side_effect not in (SideEffect.NONE, SideEffect.READ)
    arguments = HttpArguments(
        checking(one.name, one.schema),
        one.endpoint,
        manifest.reachable,
        full_name if changes else "",
    )
    output = None if one.output is None else HttpOutput(one.name, one.output)
    call = _Call(one, secrets, sender, output is not None)
    call.judged = Tool(
        name=one.name,
        namespace=manifest.namespace,
        description=one.description,
        arguments=arguments,
        handler=call,
        output=output,
        side_effect=one.side_effect,
        risk=one.risk,
        touches={URL: TOUCHES_URL, **({_NAME: Touch("tool")} if changes else {})},
        reliability=one.reliability,
        idempotent=one.idempotent,
        is_async=True,
        context_parameter=CONTEXT,
        preview=_Preview(one.endpoint),
        scopes=one.scopes,
        loading=one.loading,
        cost=one.cost,
        latency=one.latency,
        examples=one.examples,
        source=f"http {manifest.file}",
        annotations={
            "tags": list(one.tags),
            "http": {"method": one.endpoint.method, "auth": [a.name for a in one.endpoint.auth]},
        },
    )
    return call.judged


class HttpArguments:
    """`tools.definition.Arguments` that also work out the address of the call; what cannot become a
    request is a problem of the arguments.
    """

    def __init__(
        self, inner: Arguments, endpoint: Endpoint, reachable: Reachable, name: str = ""
    ) -> None:
        self._inner = inner
        self._endpoint = endpoint
        self._reachable = reachable
        self._ours = {_NAME: name} if name else {}

    @property
    def schema(self) -> Mapping[str, Any]:
        return self._inner.schema

    def check(self, arguments: Mapping[str, Any]) -> Checked:
        # Ours are worked out anew each time: a hook that hands the values back has them among them.
        given = {name: value for name, value in arguments.items() if name not in (URL, _NAME)}
        checked = self._inner.check(given)
        if checked.problems:
            return checked
        try:
            request = prepare(self._endpoint, checked.values)
            parts = urlsplit(request.url)
            secure = parts.scheme == "https"
            host = canonical(parts.hostname or "")
            if why := self._reachable.refusal(secure, host, parts.port or (443 if secure else 80)):
                raise Unfit(why)
        except (Unfit, ValueError) as problem:
            return Checked(checked.values, [*checked.problems, str(problem)], checked.repairs)
        return Checked({**checked.values, URL: request.url, **self._ours}, [], checked.repairs)


class HttpOutput:
    """`tools.definition.Output` for a JSON Schema: what a server answered is checked and handed on
    as it is.
    """

    def __init__(self, tool: str, schema: Mapping[str, Any]) -> None:
        if (why := problem_of({**schema, "type": "object"})) or not bounded(schema):
            raise ToolDefinitionError(
                f"tool `{tool}`: its output schema {why or 'refers to itself, or multiplies'}"
            )
        self._validator = validator_of(tool, dict(schema), "output schema")
        self._schema = schema

    @property
    def schema(self) -> Mapping[str, Any]:
        return self._schema

    def encode(self, value: Any) -> tuple[Any, list[str]]:
        if isinstance(value, Chunks):
            return value, ["the answer is no JSON"]
        if isinstance(value, Empty):
            return value, []
        errors = list(self._validator.iter_errors(value))[:5]
        return value, [
            "".join(f"[{part!r}]" for part in e.instance_path) + f": {e.message[:200]}"
            for e in errors
        ]


@dataclass(frozen=True, slots=True)
class _Preview:
    """What a call would send, without secrets."""

    endpoint: Endpoint

    async def __call__(self, values: Mapping[str, Any], context: Any) -> str:
        request = prepare(self.endpoint, _own(values))
        lines = [f"{request.method} {request.url}"]
        lines += [f"{name}: {value}" for name, value in request.headers.items()]
        lines += [f"Cookie: {name}=…" for name, _ in request.cookies]
        lines += [f"auth: {one.name}" for one in self.endpoint.auth]
        if request.body is not None:
            lines += ["", request.body.decode("utf-8", "replace")]
        return "\n".join(lines)


def _own(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in (URL, _NAME)}


@dataclass(slots=True)
class _Call:
    """The handler: one attempt. `judged` is the tool that it belongs to, as the gate knows it."""

    tool: HttpTool
    secrets: Secrets
    sender: Sender
    has_schema: bool
    judged: Tool | None = None

    async def __call__(self, **values: Any) -> Any:
        endpoint = self.tool.endpoint
        context: Context | None = values.pop(CONTEXT, None)
        request = self._request(values, context)
        auth = self._auth(endpoint)
        redactor = Redactor(auth.values)
        asked = Asked(
            self.tool.name,
            endpoint.method,
            tuple(one.name for one in endpoint.auth),
            self._repeatable,
            self.has_schema,
        )
        try:
            answer = await self.sender.send(
                request, auth, endpoint.max_bytes, self._refused(values, context)
            )
        except Broke as problem:
            raise broke(asked, problem, redactor) from None
        except ToolFailed as failed:
            raise ToolFailed(
                failed.error_type, redactor.text(f"`{self.tool.name}`: {failed.message}")
            ) from None
        if context is not None:
            leave(
                context,
                {
                    "status": answer.status,
                    "content_type": redactor.text(answer.headers.get("content-type", ""))[:200],
                },
            )
        return value_of(asked, answer, redactor)

    def _refused(self, values: Mapping[str, Any], context: Context | None) -> Refused:
        """What the rules of the session say of a further address. Without a session there are
        none.
        """
        usable = None if context is None else context.resources.get(Usable)
        tool = self.judged
        if not isinstance(usable, Usable) or tool is None:
            return nobody

        def refused(url: str) -> str:
            decision = usable.dispatcher().gate.decide(tool, {**values, URL: url})
            stops = decision.verdict == "deny" or (decision.verdict == "ask" and decision.rule)
            return f"a redirect leads there, and {decision.reason}" if stops else ""

        return refused

    @property
    def _repeatable(self) -> bool:
        return self.tool.idempotent or self.tool.side_effect in (SideEffect.NONE, SideEffect.READ)

    def _request(self, values: dict[str, Any], context: Context | None) -> Prepared:
        """The request that was judged. Raises ToolFailed if these values would become another
        one.
        """
        judged, given = values.get(URL), _own(values)
        try:
            request = prepare(self.tool.endpoint, given)
        except Unfit as problem:
            raise ToolFailed(
                ErrorType.VALIDATION_FAILED, f"`{self.tool.name}`: {problem}"
            ) from None
        if judged is not None and judged != request.url:
            raise ToolFailed(
                ErrorType.INTERNAL_ERROR,
                f"`{self.tool.name}` was not asked: its address is not the one that was allowed",
            )
        if self.tool.endpoint.idempotency_key and context is not None:
            return Prepared(
                request.method,
                request.url,
                {**request.headers, "Idempotency-Key": _key(context)},
                request.cookies,
                request.body,
            )
        return request

    def _auth(self, endpoint: Endpoint) -> Applied:
        try:
            return apply(endpoint.auth, self.secrets)
        except ConfigError as error:
            names = " and ".join(f"`{one.name}`" for one in endpoint.auth)
            message = f"`{self.tool.name}` was not asked: auth_ref {names}: {error.detail}"
            raise ToolFailed(ErrorType.PERMISSION_DENIED, message) from None


def _key(context: Context) -> str:
    """The same for every attempt of a call, and for no other call: ids of calls alone come again in
    other sessions.
    """
    who = context.identity
    parts = (who.tenant, who.user, who.session, who.run, context.call_id)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
