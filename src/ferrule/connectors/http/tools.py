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

from ferrule.connectors.bounded_schemas import make_output
from ferrule.core.calls import ErrorType
from ferrule.core.errors import ConfigError, ToolFailed
from ferrule.core.value_class import frozen
from ferrule.engine.usable_tools import UsableTools
from ferrule.sandbox.network.allowed_hosts import canonicalize_host
from ferrule.tools.context import Context
from ferrule.tools.definition import URL as TOUCHES_URL
from ferrule.tools.definition import Arguments, CheckedArguments, SideEffect, Tool, Touch
from ferrule.tools.names import check_name
from ferrule.tools.result_facts import store_facts

from .auth import RequestAuth, resolve_auth
from .hosts import ReachableHosts
from .requests import PreparedRequest, prepare_request
from .results import RequestInfo, connection_failure, result_value
from .schema_cache import cached_arguments
from .secrets import PERSONAL_SECRETS, Redactor, Secrets
from .sender import NoResponse, RefuseRedirect, Sender, allow_redirect
from .spec import Endpoint, HttpTool, Manifest
from .templates import TemplateError

URL_KEY = "request url"
"""Key of the URL among the checked values. No schema may have a property of this name."""
_NAME = "request tool"
CONTEXT_PARAMETER = "ferrule context"
"""The parameter in which handlers get the context."""

MakeSender = Callable[[ReachableHosts], Sender]


def make_tools(
    manifest: Manifest, secrets: Secrets = PERSONAL_SECRETS, *, sender: MakeSender = Sender
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
        cached_arguments(spec.name, spec.schema),
        spec.endpoint,
        manifest.reachable,
        full_name if has_effect else "",
    )
    output = None if spec.output is None else make_output(spec.name, spec.output)
    handler = _Handler(spec, secrets, sender, output is not None)
    touches = {URL_KEY: TOUCHES_URL}
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
        context_parameter=CONTEXT_PARAMETER,
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
        self, inner: Arguments, endpoint: Endpoint, reachable: ReachableHosts, name: str = ""
    ) -> None:
        self._inner = inner
        self._endpoint = endpoint
        self._reachable = reachable
        self._added = {_NAME: name} if name else {}

    @property
    def schema(self) -> Mapping[str, Any]:
        return self._inner.schema

    def check(self, arguments: Mapping[str, Any]) -> CheckedArguments:
        # Computed anew each time: a hook may return the values with what was added to them.
        given = {name: value for name, value in arguments.items() if name not in (URL_KEY, _NAME)}
        checked = self._inner.check(given)
        if checked.problems:
            return checked
        try:
            request = prepare_request(self._endpoint, checked.values)
            parts = urlsplit(request.url)
            is_secure = parts.scheme == "https"
            host = canonicalize_host(parts.hostname or "")
            port = parts.port or (443 if is_secure else 80)
            refusal = self._reachable.refuse_host(is_secure, host, port)
            if refusal:
                raise TemplateError(refusal)
        except (TemplateError, ValueError) as problem:
            return CheckedArguments(
                checked.values, [*checked.problems, str(problem)], checked.repairs
            )
        return CheckedArguments(
            {**checked.values, URL_KEY: request.url, **self._added}, [], checked.repairs
        )


@frozen
class _Preview:
    """Shows what a call would send, without secrets."""

    endpoint: Endpoint

    async def __call__(self, values: Mapping[str, Any], context: Any) -> str:
        request = prepare_request(self.endpoint, _drop_added(values))
        lines = [f"{request.method} {request.url}"]
        lines += [f"{name}: {value}" for name, value in request.headers.items()]
        lines += [f"Cookie: {name}=…" for name, _ in request.cookies]
        lines += [f"auth: {entry.name}" for entry in self.endpoint.auth]
        if request.body is not None:
            lines += ["", request.body.decode("utf-8", "replace")]
        return "\n".join(lines)


def _drop_added(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in (URL_KEY, _NAME)}


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
        context: Context | None = values.pop(CONTEXT_PARAMETER, None)
        request = self._approved_request(values, context)
        auth = self._authenticate(endpoint)
        redactor = Redactor(auth.secret_values)
        request_info = RequestInfo(
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
        except NoResponse as problem:
            raise connection_failure(request_info, problem, redactor) from None
        except ToolFailed as failed:
            raise ToolFailed(
                failed.error_type, redactor.redact_text(f"`{self.tool.name}`: {failed.message}")
            ) from None
        if context is not None:
            content_type = redactor.redact_text(response.headers.get("content-type", ""))[:200]
            store_facts(context, {"status": response.status, "content_type": content_type})
        return result_value(request_info, response, redactor)

    def _redirect_rules(self, values: Mapping[str, Any], context: Context | None) -> RefuseRedirect:
        """Return the session's rules for redirects. Without a session there are none."""
        usable = None if context is None else context.resources.get(UsableTools)
        tool = self.gated_tool
        if not isinstance(usable, UsableTools) or tool is None:
            return allow_redirect

        def refuse(url: str) -> str:
            decision = usable.decide(tool, {**values, URL_KEY: url})
            is_refused = decision.verdict == "deny" or (decision.verdict == "ask" and decision.rule)
            return f"a redirect leads there, and {decision.reason}" if is_refused else ""

        return refuse

    @property
    def _is_repeatable(self) -> bool:
        return self.tool.idempotent or self.tool.side_effect in (SideEffect.NONE, SideEffect.READ)

    def _approved_request(self, values: dict[str, Any], context: Context | None) -> PreparedRequest:
        """Return the request that was approved.

        Raises:
            ToolFailed: These values would become another request.
        """
        approved_url = values.get(URL_KEY)
        try:
            request = prepare_request(self.tool.endpoint, _drop_added(values))
        except TemplateError as problem:
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

    def _authenticate(self, endpoint: Endpoint) -> RequestAuth:
        try:
            return resolve_auth(endpoint.auth, self.secrets)
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
