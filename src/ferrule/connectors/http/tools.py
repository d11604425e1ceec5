"""The tools of a manifest as tools of a run, decided on by the gate like all others.

The URL that a call would request is computed while its arguments are checked, and is one of the
checked values, as `URL`: so rules for hosts (`WebFetch(domain:…)`) see it, a person who is asked is
shown it, an approval is bound to it, and exactly that is then requested. It holds no secret: these
are added when the request is sent.

A redirect to another host is decided on by the same rules: if a rule denies that host or asks about
it, the redirect is not followed. A person is not asked in the middle of a call; the file lists
which
hosts are possible at all.

A tool that changes something is never covered by a rule for its host alone: such a rule says that
one may read there. It needs the tool's own name in a rule, or a person's approval (`_NAME`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
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
"""Key of the URL among the checked values. No schema may have a property of this name."""
_NAME = "request tool"
CONTEXT = "ferrule context"
"""The parameter in which handlers get the context."""

MakeSender = Callable[[Reachable], Sender]


def make_tools(
    manifest: Manifest, secrets: Secrets = PERSONS, *, sender: MakeSender = Sender
) -> tuple[Tool, ...]:
    """Return the tools of a manifest.

    Raises:
        ToolDefinitionError: A tool or its schema cannot be used.
    """
    manifest_sender = sender(manifest.reachable)
    return tuple(_make_tool(tool, manifest, secrets, manifest_sender) for tool in manifest.tools)


def _make_tool(spec: HttpTool, manifest: Manifest, secrets: Secrets, sender: Sender) -> Tool:
    check_name(spec.name)
    full_name = f"{manifest.namespace}::{spec.name}" if manifest.namespace else spec.name
    has_effect = spec.side_effect not in (SideEffect.NONE, SideEffect.READ)
    arguments = HttpArguments(
        checking(spec.name, spec.schema),
        spec.endpoint,
        manifest.reachable,
        full_name if has_effect else "",
    )
    output = None if spec.output is None else HttpOutput(spec.name, spec.output)
    handler = _Handler(spec, secrets, sender, output is not None)
    touches = {URL: TOUCHES_URL}
    if has_effect:
        touches[_NAME] = Touch("tool")
    handler.gated_tool = Tool(
        name=spec.name,
        namespace=manifest.namespace,
        description=spec.description,
        arguments=arguments,
        handler=handler,
        output=output,
        side_effect=spec.side_effect,
        risk=spec.risk,
        touches=touches,
        reliability=spec.reliability,
        idempotent=spec.idempotent,
        is_async=True,
        context_parameter=CONTEXT,
        preview=_Preview(spec.endpoint),
        scopes=spec.scopes,
        loading=spec.loading,
        cost=spec.cost,
        latency=spec.latency,
        examples=spec.examples,
        source=f"http {manifest.file}",
        annotations={
            "tags": list(spec.tags),
            "http": {
                "method": spec.endpoint.method,
                "auth": [entry.name for entry in spec.endpoint.auth],
            },
        },
    )
    return handler.gated_tool


class HttpArguments:
    """`tools.definition.Arguments` that also compute the URL of the call.

    What cannot become a request is a problem of the arguments.
    """

    def __init__(
        self, inner: Arguments, endpoint: Endpoint, reachable: Reachable, name: str = ""
    ) -> None:
        self._inner = inner
        self._endpoint = endpoint
        self._reachable = reachable
        self._added = {_NAME: name} if name else {}

    @property
    def schema(self) -> Mapping[str, Any]:
        return self._inner.schema

    def check(self, arguments: Mapping[str, Any]) -> Checked:
        # Computed anew each time: a hook may return the values with what was added to them.
        given = {name: value for name, value in arguments.items() if name not in (URL, _NAME)}
        checked = self._inner.check(given)
        if checked.problems:
            return checked
        try:
            request = prepare(self._endpoint, checked.values)
            parts = urlsplit(request.url)
            is_secure = parts.scheme == "https"
            host = canonical(parts.hostname or "")
            port = parts.port or (443 if is_secure else 80)
            refusal = self._reachable.refusal(is_secure, host, port)
            if refusal:
                raise Unfit(refusal)
        except (Unfit, ValueError) as problem:
            return Checked(checked.values, [*checked.problems, str(problem)], checked.repairs)
        return Checked({**checked.values, URL: request.url, **self._added}, [], checked.repairs)


class HttpOutput:
    """`tools.definition.Output` for a JSON Schema: the answer is checked and passed on as it is."""

    def __init__(self, tool: str, schema: Mapping[str, Any]) -> None:
        problem = problem_of({**schema, "type": "object"})
        if not problem and not bounded(schema):
            problem = "refers to itself, or multiplies"
        if problem:
            raise ToolDefinitionError(f"tool `{tool}`: its output schema {problem}")
        self._validator = validator_of(tool, dict(schema), "output schema")
        self._schema = schema

    @property
    def schema(self) -> Mapping[str, Any]:
        return self._schema

    def encode(self, value: Any) -> tuple[Any, list[str]]:
        if isinstance(value, Chunks):
            return value, ["the answer is not JSON"]
        if isinstance(value, Empty):
            return value, []
        problems: list[str] = []
        for error in list(self._validator.iter_errors(value))[:5]:
            path = "".join(f"[{part!r}]" for part in error.instance_path)
            problems.append(f"{path}: {error.message[:200]}")
        return value, problems


@dataclass(frozen=True, slots=True)
class _Preview:
    """Shows what a call would send, without secrets."""

    endpoint: Endpoint

    async def __call__(self, values: Mapping[str, Any], context: Any) -> str:
        request = prepare(self.endpoint, _without_added(values))
        lines = [f"{request.method} {request.url}"]
        lines += [f"{name}: {value}" for name, value in request.headers.items()]
        lines += [f"Cookie: {name}=…" for name, _ in request.cookies]
        lines += [f"auth: {entry.name}" for entry in self.endpoint.auth]
        if request.body is not None:
            lines += ["", request.body.decode("utf-8", "replace")]
        return "\n".join(lines)


def _without_added(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in (URL, _NAME)}


@dataclass(slots=True)
class _Handler:
    """The handler of a tool: one attempt of a call.

    `gated_tool` is the tool that the handler belongs to, as the gate knows it.
    """

    tool: HttpTool
    secrets: Secrets
    sender: Sender
    has_schema: bool
    gated_tool: Tool | None = None

    async def __call__(self, **values: Any) -> Any:
        endpoint = self.tool.endpoint
        context: Context | None = values.pop(CONTEXT, None)
        request = self._approved_request(values, context)
        auth = self._authenticate(endpoint)
        redactor = Redactor(auth.values)
        request_info = Asked(
            self.tool.name,
            endpoint.method,
            tuple(entry.name for entry in endpoint.auth),
            self._is_repeatable,
            self.has_schema,
        )
        try:
            response = await self.sender.send(
                request, auth, endpoint.max_bytes, self._redirect_rules(values, context)
            )
        except Broke as problem:
            raise broke(request_info, problem, redactor) from None
        except ToolFailed as failed:
            raise ToolFailed(
                failed.error_type, redactor.text(f"`{self.tool.name}`: {failed.message}")
            ) from None
        if context is not None:
            content_type = redactor.text(response.headers.get("content-type", ""))[:200]
            leave(context, {"status": response.status, "content_type": content_type})
        return value_of(request_info, response, redactor)

    def _redirect_rules(self, values: Mapping[str, Any], context: Context | None) -> Refused:
        """Return the session's rules for redirects. Without a session there are none."""
        usable = None if context is None else context.resources.get(Usable)
        tool = self.gated_tool
        if not isinstance(usable, Usable) or tool is None:
            return nobody

        def refuse(url: str) -> str:
            decision = usable.decide(tool, {**values, URL: url})
            is_refused = decision.verdict == "deny" or (decision.verdict == "ask" and decision.rule)
            return f"a redirect leads there, and {decision.reason}" if is_refused else ""

        return refuse

    @property
    def _is_repeatable(self) -> bool:
        return self.tool.idempotent or self.tool.side_effect in (SideEffect.NONE, SideEffect.READ)

    def _approved_request(self, values: dict[str, Any], context: Context | None) -> Prepared:
        """Return the request that was approved.

        Raises:
            ToolFailed: These values would become another request.
        """
        approved_url = values.get(URL)
        try:
            request = prepare(self.tool.endpoint, _without_added(values))
        except Unfit as problem:
            raise ToolFailed(
                ErrorType.VALIDATION_FAILED, f"`{self.tool.name}`: {problem}"
            ) from None
        if approved_url is not None and approved_url != request.url:
            raise ToolFailed(
                ErrorType.INTERNAL_ERROR,
                f"`{self.tool.name}` was not called: its URL is not the one that was allowed",
            )
        if self.tool.endpoint.idempotency_key and context is not None:
            headers = {**request.headers, "Idempotency-Key": _idempotency_key(context)}
            return replace(request, headers=headers)
        return request

    def _authenticate(self, endpoint: Endpoint) -> Applied:
        try:
            return apply(endpoint.auth, self.secrets)
        except ConfigError as error:
            names = " and ".join(f"`{entry.name}`" for entry in endpoint.auth)
            message = f"`{self.tool.name}` was not called: auth_ref {names}: {error.detail}"
            raise ToolFailed(ErrorType.PERMISSION_DENIED, message) from None


def _idempotency_key(context: Context) -> str:
    """Return a key that is the same for every attempt of a call, and for no other call.

    Ids of calls alone recur in other sessions.
    """
    identity = context.identity
    parts = (identity.tenant, identity.user, identity.session, identity.run, context.call_id)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
