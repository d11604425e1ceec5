"""Manifests: strict YAML files that describe HTTP tools. Everything that is wrong with a file is
said at once, with line and column.

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

What is not here: values of secrets, in any place; ways for a template to see more than the
arguments; headers that decide who the server takes us for. A key that is not known, a name that
stands twice and a reference to nothing are errors, not warnings. An endpoint is read in
`endpoints.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import PurePath
from typing import Any, cast

from ferrule.connectors.cleaning import clean, cleaned
from ferrule.connectors.schemas import MAX_DEPTH, depth_of
from ferrule.core.errors import ConfigError
from ferrule.sandbox.network.allowed_hosts import Hosts
from ferrule.storage.settings.yaml_tree import Node, parse_yaml
from ferrule.tools.definition import Loading, Risk, SideEffect
from ferrule.tools.names import check_name, check_namespace
from ferrule.tools.reliability import Reliability, read_policy

from .auth import Auth, apply
from .endpoints import AUTH, read_auth, read_endpoint
from .fields import Fields, Problems, plain
from .hosts import Reachable, check_address, check_listed, named
from .secrets import PERSONS, Secrets
from .spec import TIMEOUT, HttpTool, Manifest, Method, Origin
from .tools import URL, make_tools

MAX_TOOLS = 512
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
_EFFECTS = tuple(one for one in SideEffect if one is not SideEffect.UNDECLARED)
_LEAST: Mapping[Method, Risk] = {"GET": Risk.LOW, "DELETE": Risk.HIGH}
"""How much a person should mind where the file does not say; medium for all other methods."""


def parse_manifest(
    data: bytes,
    file: str,
    *,
    origin: Origin = "person",
    opened: Iterable[str] = (),
    secrets: Secrets | None = PERSONS,
) -> Manifest:
    """The manifest in a file's bytes; `file` is its name as people see it.

    `opened` are hosts that the person answers for besides those of their own files. `secrets` None
    does not look for them, to check a file where they are not. Raises ConfigError with a line for
    everything that is wrong.
    """
    return read_manifest(parse_yaml(data, file), origin=origin, opened=opened, secrets=secrets)


def read_manifest(
    root: Node,
    *,
    origin: Origin = "person",
    opened: Iterable[str] = (),
    secrets: Secrets | None = PERSONS,
) -> Manifest:
    """The same for a tree that was read already."""
    problems = Problems()
    reader = _Reader(problems, origin, Hosts.parse(opened))
    manifest = reader.manifest(root, secrets)
    problems.raise_all()
    return manifest


class _Reader:
    def __init__(self, problems: Problems, origin: Origin, opened: Hosts) -> None:
        self._problems = problems
        self._origin: Origin = origin
        self._opened = opened
        self._auth: dict[str, Auth] = {}
        self._policy = Reliability(timeout=TIMEOUT)

    def manifest(self, root: Node, secrets: Secrets | None) -> Manifest:
        fields = Fields(root, KEYS, "a manifest", self._problems)
        if (
            fields.node.pairs is not None
            and fields.given("version")
            and fields.get("version").value != 1
        ):
            self._problems.add(fields.get("version"), "`version` must be 1, the only one there is")
        namespace = fields.text("namespace")
        if namespace:
            with self._problems.at(fields.get("namespace")):
                check_namespace(namespace)
        self._read_auth(fields, secrets)
        if fields.given("policy"):
            with self._problems.at(fields.get("policy")):
                self._policy = read_policy(plain(fields.get("policy")), "`policy`").over(
                    self._policy
                )
        listed = self._listed(fields)
        tools = self._tools(fields)
        reachable = self._reachable(listed, tools)
        manifest = Manifest(
            _label(root.file, namespace),
            tuple(one for _, one in tools),
            namespace,
            reachable,
            self._origin,
        )
        for node, one in tools:
            with self._problems.at(node):
                check_address(one.endpoint.address, reachable)
            with self._problems.at(node):
                self._tried(one, manifest, node)
        return manifest

    def _tried(self, one: HttpTool, manifest: Manifest, node: Node) -> None:
        """Make the tool once: what its schemas do not allow is found here, and examples that do not
        fit them.
        """
        from dataclasses import replace

        (tool,) = make_tools(replace(manifest, tools=(one,)))
        for example in one.examples:
            if wrong := tool.arguments.check(example["arguments"]).problems:
                self._problems.add(
                    node, f"an example of `{one.name}` does not fit: {'; '.join(wrong[:3])}"
                )

    # ---- what the tools share

    def _read_auth(self, fields: Fields, secrets: Secrets | None) -> None:
        for name, node in fields.mapping("auth"):
            entry = Fields(node, AUTH, f"the auth entry `{name}`", self._problems)
            # Known even if it cannot be used: who refers to it does nothing wrong.
            self._auth[name] = Auth(name, "bearer", "")
            with self._problems.at(node):
                check_name(name)
                found = read_auth(name, entry)
                if found is not None:
                    self._auth[name] = found
                    self._look_up(found, node, secrets)

    def _look_up(self, entry: Auth, node: Node, secrets: Secrets | None) -> None:
        try:
            if secrets is not None:
                apply([entry], secrets)
        except ConfigError as error:
            self._problems.add(node, f"auth entry `{entry.name}`: {error.detail}", error.hint)

    def _listed(self, fields: Fields) -> list[str]:
        good: list[str] = []
        for node in fields.texts("hosts"):
            with self._problems.at(node):
                Hosts.parse([node.value])
                if self._origin == "repository":
                    check_listed(node.value, self._opened)
                good.append(node.value)
        return good

    def _reachable(self, listed: list[str], tools: list[tuple[Node, HttpTool]]) -> Reachable:
        hosts = Hosts.parse(listed)
        opened = self._opened
        if self._origin == "person":
            opened = Hosts((*hosts.entries, *opened.entries))
        return Reachable(named(one.endpoint.address for _, one in tools), hosts, opened)

    # ---- tools

    def _tools(self, fields: Fields) -> list[tuple[Node, HttpTool]]:
        if fields.node.pairs is not None and not fields.given("tools"):
            self._problems.add(fields.node, "there are no `tools`")
        nodes = fields.items("tools")
        if len(nodes) > MAX_TOOLS:
            self._problems.add(nodes[MAX_TOOLS], f"more than {MAX_TOOLS} tools")
        found: list[tuple[Node, HttpTool]] = []
        first: dict[str, Node] = {}
        for node in nodes[:MAX_TOOLS]:
            one = self._tool(node)
            if one is None:
                continue
            if one.name in first:
                self._problems.add(
                    node, f"`{one.name}` a second time (first in line {first[one.name].line})"
                )
                continue
            first[one.name] = node
            found.append((node, one))
        return found

    def _tool(self, node: Node) -> HttpTool | None:
        before = len(self._problems)
        fields = Fields(node, TOOL_KEYS, "a tool", self._problems)
        name = fields.text("name", needed=True)
        if name:
            with self._problems.at(fields.get("name")):
                check_name(name)
        description = clean(fields.text("description", needed=True))
        schema = self._schema(fields, "input_schema")
        read = read_endpoint(fields, schema, self._auth, self._problems)
        output = self._schema(fields, "output_schema")
        policy = self._of_policy(fields)
        if read is None or len(self._problems) > before:
            return None
        endpoint, schema = read
        if URL in cast("Mapping[str, Any]", schema.get("properties") or {}):
            self._problems.add(node, f"`{URL}` cannot be the name of an argument")
            return None
        side_effect, risk = self._effects(fields, endpoint.method)
        key = endpoint.idempotency_key
        idempotent = fields.flag("idempotent", key or endpoint.method in ("PUT", "DELETE"))
        return HttpTool(
            name,
            description,
            endpoint,
            schema,
            output,
            side_effect,
            risk,
            idempotent or key,
            policy,
            fields.choice("loading", (Loading.ALWAYS, Loading.DEFERRED), Loading.ALWAYS),
            self._scopes(fields),
            tuple(one.value for one in fields.texts("tags")),
            fields.text("cost"),
            fields.text("latency"),
            self._examples(fields, schema),
            node.where,
        )

    def _effects(self, fields: Fields, method: Method) -> tuple[SideEffect, Risk]:
        usual = SideEffect.READ if method == "GET" else SideEffect.EXTERNAL
        effect = fields.choice("side_effect", _EFFECTS, usual)
        reads = effect in (SideEffect.NONE, SideEffect.READ)
        usual_risk = _LEAST.get(method, Risk.LOW if reads else Risk.MEDIUM)
        risk = fields.choice("risk", _RISKS, usual_risk)
        if self._origin == "repository":
            # How much a person is asked is not for a stranger's file to lower.
            least = _LEAST.get(method, Risk.MEDIUM)
            if _RISKS.index(risk) < _RISKS.index(least):
                if fields.given("risk"):
                    self._problems.add(
                        fields.get("risk"),
                        (
                            f"a repository cannot say that a {method} has {risk} risk; `{least}` "
                            "at the least"
                        ),
                    )
                risk = least
        return effect, risk

    def _of_policy(self, fields: Fields) -> Reliability:
        if not fields.given("policy"):
            return self._policy
        with self._problems.at(fields.get("policy")):
            return read_policy(plain(fields.get("policy")), "`policy`").over(self._policy)
        return self._policy

    def _scopes(self, fields: Fields) -> frozenset[str]:
        if fields.given("scopes") and fields.given("auth_scopes"):
            self._problems.add(
                fields.get("auth_scopes"),
                "`auth_scopes` is the same as `scopes`; write one of them",
            )
        return frozenset(
            one.value for key in ("scopes", "auth_scopes") for one in fields.texts(key)
        )

    def _schema(self, fields: Fields, key: str) -> Mapping[str, Any] | None:
        """A schema that is a mapping, or JSON text."""
        if not fields.given(key):
            return None
        node = fields.get(key)
        value = plain(node)
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except (ValueError, RecursionError) as error:
                self._problems.add(node, f"`{key}` is no JSON: {error}")
                return None
        if not isinstance(value, dict) or depth_of(value) > MAX_DEPTH:
            self._problems.add(
                node,
                (
                    f"`{key}` must be a JSON Schema: a mapping, or one as JSON text, {MAX_DEPTH} "
                    "levels at the most"
                ),
            )
            return None
        return cast("Mapping[str, Any]", cleaned(value))

    def _examples(self, fields: Fields, schema: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
        """`{request, arguments}` each; a mapping without `arguments` is the arguments
        themselves.
        """
        found: list[Mapping[str, Any]] = []
        known = [str(name) for name in cast("Mapping[str, Any]", schema.get("properties") or {})]
        for node in fields.items("examples"):
            given = plain(node)
            if isinstance(given, dict) and "arguments" not in given:
                given = {"arguments": cast("dict[str, Any]", given)}
            example = cast("dict[str, Any]", given)
            if not isinstance(given, dict) or not isinstance(example["arguments"], dict):
                self._problems.add(node, "an example must be a mapping of arguments")
                continue
            for name in cast("dict[str, Any]", example["arguments"]):
                if name not in known:
                    near = get_close_matches(name, known, 1)
                    meant = f"; did you mean `{near[0]}`?" if near else ""
                    self._problems.add(
                        node, f"an example has `{name}`, which is no argument{meant}"
                    )
            found.append(
                {"request": str(example.get("request", "")), "arguments": example["arguments"]}
            )
        return tuple(found)


def _label(file: str, namespace: str) -> str:
    """What a file is called where its tools are listed."""
    return namespace or PurePath(file).stem
