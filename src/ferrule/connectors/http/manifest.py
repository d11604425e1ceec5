"""Manifests: strict YAML files that describe HTTP tools. All their problems are reported at once.

    namespace: github
    hosts: ["*.githubusercontent.com"]
    auth:
      token: {kind: bearer, secret: "${GITHUB_TOKEN}"}
    tools:
      - name: get_issue
        description: One issue of a repository.
        method: GET
        url_template: https://api.github.com/repos/{{owner}}/{{repo}}/issues/{{number}}
        auth_ref: token
        input_schema:
          type: object
          properties: {owner: {type: string}, repo: {type: string}, number: {type: integer}}
          required: [owner, repo, number]

Each problem has its line and column. There are no values of secrets, in any place; no ways for a
template to see more than the arguments; no headers that decide who the server takes us for. An
unknown key, a name that is given twice and a reference to nothing are errors, not warnings. An
endpoint is read in `endpoints.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import PurePath
from typing import Any, cast

from ferrule.connectors.bounded_schemas import MAX_DEPTH, nesting_depth
from ferrule.connectors.text_cleaning import clean_json, clean_text
from ferrule.core.errors import ConfigError
from ferrule.core.similar_names import suggest_names
from ferrule.sandbox.network.allowed_hosts import AllowedHosts
from ferrule.storage.settings.yaml_tree import Node, parse_yaml, to_plain
from ferrule.tools.definition import Loading, Risk, SideEffect
from ferrule.tools.names import check_name, check_namespace
from ferrule.tools.reliability import Reliability, read_policy

from .auth import Auth, resolve_auth
from .endpoints import AUTH_KEYS, read_auth, read_endpoint
from .fields import Fields, Problems
from .hosts import ReachableHosts, check_repository_host, check_url_host, literal_hosts
from .secrets import PERSONAL_SECRETS, Secrets
from .spec import TIMEOUT, HttpTool, Manifest, Method, Origin
from .tools import URL_KEY, make_tools

MAX_TOOLS = 2048
KEYS = ("version", "namespace", "description", "hosts", "auth", "policy", "tools")
TOOL_KEYS = (
    "name",
    "description",
    "method",
    "url_template",
    "parameters",
    "headers",
    "body_template",
    "body_from",
    "body_type",
    "input_schema",
    "output_schema",
    "side_effect",
    "risk",
    "idempotent",
    "idempotency_key",
    "tags",
    "scopes",
    "auth_scopes",
    "loading",
    "policy",
    "auth_ref",
    "examples",
    "cost",
    "latency",
    "max_bytes",
)
_RISKS = tuple(Risk)
_SIDE_EFFECTS = tuple(effect for effect in SideEffect if effect is not SideEffect.UNDECLARED)
_DEFAULT_RISKS: Mapping[Method, Risk] = {"GET": Risk.LOW, "DELETE": Risk.HIGH}
"""The risk of methods for which the file says none; all other methods have `medium`."""


def parse_manifest(
    data: bytes,
    file: str,
    *,
    origin: Origin = "person",
    opened_hosts: Iterable[str] = (),
    secrets: Secrets | None = PERSONAL_SECRETS,
) -> Manifest:
    """Read the manifest in a file's bytes.

    Args:
        data: The bytes of the file.
        file: The name of the file as people see it.
        origin: Who wrote the file, which decides what it may do.
        opened_hosts: Hosts that the person answers for besides those of their own files.
        secrets: Where secrets are looked up; None does not look them up, to check a file on a
            machine that does not have them.

    Raises:
        ConfigError: Has a line for everything that is wrong.
    """
    return read_manifest(
        parse_yaml(data, file), origin=origin, opened_hosts=opened_hosts, secrets=secrets
    )


def read_manifest(
    root: Node,
    *,
    origin: Origin = "person",
    opened_hosts: Iterable[str] = (),
    secrets: Secrets | None = PERSONAL_SECRETS,
) -> Manifest:
    """Read a manifest that was parsed already. Raises like `parse_manifest`."""
    problems = Problems()
    reader = _Reader(problems, origin, AllowedHosts.parse(opened_hosts))
    manifest = reader.manifest(root, secrets)
    problems.raise_all()
    return manifest


class _Reader:
    def __init__(self, problems: Problems, origin: Origin, opened: AllowedHosts) -> None:
        self._problems = problems
        self._origin: Origin = origin
        self._opened = opened
        self._auth: dict[str, Auth] = {}
        self._policy = Reliability(timeout=TIMEOUT)

    def manifest(self, root: Node, secrets: Secrets | None) -> Manifest:
        fields = Fields(root, KEYS, "a manifest", self._problems)
        is_mapping = fields.node.pairs is not None
        if is_mapping and fields.is_given("version") and fields.get("version").value != 1:
            self._problems.add(fields.get("version"), "`version` must be 1, the only one there is")
        namespace = fields.text("namespace")
        if namespace:
            with self._problems.collect(fields.get("namespace")):
                check_namespace(namespace)
        self._read_auth(fields, secrets)
        self._policy = self._read_policy(fields)
        listed = self._read_hosts(fields)
        tools = self._read_tools(fields)
        reachable = self._reachable_hosts(listed, tools)
        manifest = Manifest(
            file=_label(root.file, namespace),
            tools=tuple(tool for _, tool in tools),
            namespace=namespace,
            reachable=reachable,
            origin=self._origin,
        )
        for node, tool in tools:
            with self._problems.collect(node):
                check_url_host(tool.endpoint.url, reachable)
            with self._problems.collect(node):
                self._check_by_making(tool, manifest, node)
        return manifest

    def _check_by_making(self, spec: HttpTool, manifest: Manifest, node: Node) -> None:
        """Make the tool once, to find schemas that cannot be used and examples that do not fit."""
        (tool,) = make_tools(replace(manifest, tools=(spec,)))
        for example in spec.examples:
            problems = tool.arguments.check(example["arguments"]).problems
            if problems:
                self._problems.add(
                    node, f"an example of `{spec.name}` does not fit: {'; '.join(problems[:3])}"
                )

    # ---- what the tools share

    def _read_auth(self, fields: Fields, secrets: Secrets | None) -> None:
        for name, node in fields.get_pairs("auth"):
            entry = Fields(node, AUTH_KEYS, f"the auth entry `{name}`", self._problems)
            # Known even if it cannot be used: a reference to it is no mistake.
            self._auth[name] = Auth(name, "bearer", "")
            with self._problems.collect(node):
                check_name(name)
                auth = read_auth(name, entry)
                if auth is not None:
                    self._auth[name] = auth
                    self._check_secret(auth, node, secrets)

    def _check_secret(self, entry: Auth, node: Node, secrets: Secrets | None) -> None:
        try:
            if secrets is not None:
                resolve_auth([entry], secrets)
        except ConfigError as error:
            self._problems.add(node, f"auth entry `{entry.name}`: {error.detail}", error.hint)

    def _read_hosts(self, fields: Fields) -> list[str]:
        hosts: list[str] = []
        for node in fields.texts("hosts"):
            with self._problems.collect(node):
                AllowedHosts.parse([node.value])
                if self._origin == "repository":
                    check_repository_host(node.value, self._opened)
                hosts.append(node.value)
        return hosts

    def _reachable_hosts(
        self, listed: list[str], tools: list[tuple[Node, HttpTool]]
    ) -> ReachableHosts:
        hosts = AllowedHosts.parse(listed)
        opened = self._opened
        if self._origin == "person":
            opened = AllowedHosts((*hosts.entries, *opened.entries))
        return ReachableHosts(literal_hosts(tool.endpoint.url for _, tool in tools), hosts, opened)

    # ---- tools

    def _read_tools(self, fields: Fields) -> list[tuple[Node, HttpTool]]:
        if fields.node.pairs is not None and not fields.is_given("tools"):
            self._problems.add(fields.node, "there are no `tools`")
        nodes = fields.items("tools")
        if len(nodes) > MAX_TOOLS:
            self._problems.add(nodes[MAX_TOOLS], f"more than {MAX_TOOLS} tools")
        tools: list[tuple[Node, HttpTool]] = []
        first_nodes: dict[str, Node] = {}
        for node in nodes[:MAX_TOOLS]:
            tool = self._read_tool(node)
            if tool is None:
                continue
            if tool.name in first_nodes:
                first_line = first_nodes[tool.name].line
                self._problems.add(
                    node, f"`{tool.name}` is given twice (first in line {first_line})"
                )
                continue
            first_nodes[tool.name] = node
            tools.append((node, tool))
        return tools

    def _read_tool(self, node: Node) -> HttpTool | None:
        problems_before = len(self._problems)
        fields = Fields(node, TOOL_KEYS, "a tool", self._problems)
        name = fields.text("name", required=True)
        if name:
            with self._problems.collect(fields.get("name")):
                check_name(name)
        description = clean_text(fields.text("description", required=True))
        schema = self._read_schema(fields, "input_schema")
        endpoint_and_schema = read_endpoint(fields, schema, self._auth, self._problems)
        output = self._read_schema(fields, "output_schema")
        policy = self._read_policy(fields)
        if endpoint_and_schema is None or len(self._problems) > problems_before:
            return None
        endpoint, schema = endpoint_and_schema
        if URL_KEY in cast("Mapping[str, Any]", schema.get("properties") or {}):
            self._problems.add(node, f"`{URL_KEY}` cannot be the name of an argument")
            return None
        side_effect, risk = self._read_effects(fields, endpoint.method)
        has_idempotency_key = endpoint.idempotency_key
        idempotent = fields.flag(
            "idempotent", has_idempotency_key or endpoint.method in ("PUT", "DELETE")
        )
        return HttpTool(
            name=name,
            description=description,
            endpoint=endpoint,
            schema=schema,
            output=output,
            side_effect=side_effect,
            risk=risk,
            idempotent=idempotent or has_idempotency_key,
            reliability=policy,
            loading=fields.choice("loading", (Loading.ALWAYS, Loading.DEFERRED), Loading.ALWAYS),
            scopes=self._read_scopes(fields),
            tags=tuple(tag.value for tag in fields.texts("tags")),
            cost=fields.text("cost"),
            latency=fields.text("latency"),
            examples=self._read_examples(fields, schema),
            where=node.where,
        )

    def _read_effects(self, fields: Fields, method: Method) -> tuple[SideEffect, Risk]:
        default = SideEffect.READ if method == "GET" else SideEffect.EXTERNAL
        effect = fields.choice("side_effect", _SIDE_EFFECTS, default)
        is_read = effect in (SideEffect.NONE, SideEffect.READ)
        default_risk = _DEFAULT_RISKS.get(method, Risk.LOW if is_read else Risk.MEDIUM)
        risk = fields.choice("risk", _RISKS, default_risk)
        if self._origin == "repository":
            # A repository's file must not lower how often a person is asked.
            minimum = _DEFAULT_RISKS.get(method, Risk.MEDIUM)
            if _RISKS.index(risk) < _RISKS.index(minimum):
                if fields.is_given("risk"):
                    message = (
                        f"a repository cannot set the risk of a {method} to `{risk}`; it is at "
                        f"least `{minimum}`"
                    )
                    self._problems.add(fields.get("risk"), message)
                risk = minimum
        return effect, risk

    def _read_policy(self, fields: Fields) -> Reliability:
        if not fields.is_given("policy"):
            return self._policy
        with self._problems.collect(fields.get("policy")):
            return read_policy(to_plain(fields.get("policy")), "`policy`").fill_from(self._policy)
        return self._policy

    def _read_scopes(self, fields: Fields) -> frozenset[str]:
        if fields.is_given("scopes") and fields.is_given("auth_scopes"):
            self._problems.add(
                fields.get("auth_scopes"),
                "`auth_scopes` is the same as `scopes`; write one of them",
            )
        nodes = (*fields.texts("scopes"), *fields.texts("auth_scopes"))
        return frozenset(node.value for node in nodes)

    def _read_schema(self, fields: Fields, key: str) -> Mapping[str, Any] | None:
        """Return a schema that is a mapping, or JSON text."""
        if not fields.is_given(key):
            return None
        node = fields.get(key)
        value = to_plain(node)
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except (ValueError, RecursionError) as error:
                self._problems.add(node, f"`{key}` is not JSON: {error}")
                return None
        if not isinstance(value, dict) or nesting_depth(value) > MAX_DEPTH:
            message = (
                f"`{key}` must be a JSON Schema: a mapping, or one as JSON text, at most "
                f"{MAX_DEPTH} levels deep"
            )
            self._problems.add(node, message)
            return None
        return cast("Mapping[str, Any]", clean_json(value))

    def _read_examples(
        self, fields: Fields, schema: Mapping[str, Any]
    ) -> tuple[Mapping[str, Any], ...]:
        """Return examples as `{request, arguments}`.

        A mapping without `arguments` is the arguments themselves.
        """
        examples: list[Mapping[str, Any]] = []
        known = [str(name) for name in cast("Mapping[str, Any]", schema.get("properties") or {})]
        for node in fields.items("examples"):
            given = to_plain(node)
            if isinstance(given, dict) and "arguments" not in given:
                given = {"arguments": cast("dict[str, Any]", given)}
            example = cast("dict[str, Any]", given)
            if not isinstance(given, dict) or not isinstance(example["arguments"], dict):
                self._problems.add(node, "an example must be a mapping of arguments")
                continue
            for name in cast("dict[str, Any]", example["arguments"]):
                if name not in known:
                    hint = suggest_names(name, known, f"there are: {', '.join(known) or 'none'}")
                    self._problems.add(
                        node, f"an example has `{name}`, which is not an argument; {hint}"
                    )
            examples.append(
                {"request": str(example.get("request", "")), "arguments": example["arguments"]}
            )
        return tuple(examples)


def _label(file: str, namespace: str) -> str:
    """Return what a file is called where its tools are listed."""
    return namespace or PurePath(file).stem
