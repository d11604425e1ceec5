"""From an OpenAPI document to a manifest: which operations, under which names, at which server,
with whose credentials.

    choice = Choice(server="https://api.example.com/v1", include_tags=("pets",))
    manifest, notices = import_document(document, choice)

The manifest is plain values, as `reading.read_manifest` reads them. Secrets are references that the
person fills: `${PETSTORE_API_KEY}` for the scheme `api_key` of a document called Petstore, unless
`auth` says another one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import urljoin, urlsplit

from ferrule.connectors.cleaning import clean
from ferrule.connectors.http.schemas import checking
from ferrule.connectors.json_values import list_of, mapping_of, text_of
from ferrule.core.errors import ConfigError, ToolDefinitionError

from .document import Broken, Document, Object, Operation
from .operations import Entry, entry_of

MANY = 20
"""Tools from which on they are found by search instead of being shown, where nobody says otherwise.
"""
MAX_TOOLS = 512
_NAME = re.compile(r"[^A-Za-z0-9_.-]+")
_VARIABLE = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True, slots=True)
class Choice:
    """What a person wants of a document. Patterns may hold `*`; operations are named by
    `operationId` or as `GET /pets/{id}`.

    `server` is one of the document's addresses, or another one. `auth` maps security schemes to
    references. `hosts` are opened besides the server's own. `results` checks answers against the
    document; services often do not keep to it.
    """

    namespace: str = ""
    server: str = ""
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    auth: Mapping[str, str] = field(default_factory=dict[str, str])
    tags: tuple[str, ...] = ()
    without_tags: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    deprecated: bool = True
    loading: str = ""
    hosts: tuple[str, ...] = ()
    results: bool = False

    def takes(self, operation: Operation) -> bool:
        """Whether an operation is wanted."""
        names = (text_of(operation.fields.get("operationId")), operation.key)
        if operation.fields.get("deprecated") is True and not self.deprecated:
            return False
        if _any(operation.tags, self.without_tags) or _any(names, self.without):
            return False
        wanted = self.tags or self.operations
        return not wanted or _any(operation.tags, self.tags) or _any(names, self.operations)


def _any(names: tuple[str, ...], patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for name in names for pattern in patterns)


def import_document(
    document: Document, choice: Choice = Choice()
) -> tuple[dict[str, Any], list[str]]:
    """The manifest, and sentences about what was left out. Raises ConfigError where nothing can be
    made of it.
    """
    return _Import(document, choice).manifest()


class _Import:
    def __init__(self, document: Document, choice: Choice) -> None:
        self._document = document
        self._choice = choice
        self._namespace = choice.namespace or _slug(document.title) or "api"
        self._auth: dict[str, dict[str, str]] = {}
        self._notices: list[str] = []
        self._names: dict[str, int] = {}

    def manifest(self) -> tuple[dict[str, Any], list[str]]:
        tools: list[dict[str, Any]] = []
        for operation in self._document.operations():
            if not self._choice.takes(operation):
                continue
            if len(tools) == MAX_TOOLS:
                raise ConfigError(
                    f"{self._document.file}: more than {MAX_TOOLS} operations",
                    hint="choose some, by tag or by name",
                )
            try:
                tools.append(self._tool(operation))
            except (Broken, ToolDefinitionError) as problem:
                self._notices.append(
                    f"`{clean(operation.key)[:120]}` is left out: {clean(str(problem))[:300]}"
                )
        self._notices += [
            f"`{clean(key)[:120]}` is left out: tools have no such method"
            for key in self._document.skipped()
        ]
        if not tools:
            why = "; ".join(self._notices[:3]) or "nothing is chosen"
            raise ConfigError(f"{self._document.file}: no operation becomes a tool: {why}")
        loading = self._choice.loading or ("deferred" if len(tools) > MANY else "always")
        tools = [
            {**tool, **({"loading": loading} if loading != "always" else {})} for tool in tools
        ]
        made: dict[str, Any] = {"namespace": self._namespace}
        if self._choice.hosts:
            made["hosts"] = list(self._choice.hosts)
        if self._auth:
            made["auth"] = self._auth
        return {**made, "tools": tools}, self._notices

    def _tool(self, operation: Operation) -> dict[str, Any]:
        auth = self._security(operation)
        entry = entry_of(
            self._document, operation, self._server(operation), results=self._choice.results
        )
        _fit(entry)
        self._notices += entry.notices
        made = {"name": self._name(operation), **entry.fields}
        if auth:
            self._auth |= auth
            made["auth_ref"] = list(auth) if len(auth) > 1 else next(iter(auth))
        return made

    def _name(self, operation: Operation) -> str:
        """`operationId`, or method and path; valid, and unlike all others."""
        said = text_of(operation.fields.get("operationId")) or f"{operation.method}{operation.path}"
        name = _NAME.sub("_", said).strip("_.-")[:100] or operation.method
        name = name if name[0].isalpha() or name[0] == "_" else f"_{name}"
        self._names[name] = number = self._names.get(name, 0) + 1
        if number == 1:
            return name
        return self._name_beside(f"{name}_{number}")

    def _name_beside(self, name: str) -> str:
        while name in self._names:
            name += "_"
        self._names[name] = 1
        return name

    # ---- servers

    def _server(self, operation: Operation) -> str:
        """The address in front of an operation's path. Raises Broken."""
        chosen = self._choice.server
        if chosen and "://" in chosen:
            return self._filled({"url": chosen})
        places = (operation.fields, operation.shared, self._document.root)
        listed = [[mapping_of(one) for one in list_of(place.get("servers"))] for place in places]
        described = next((servers for servers in listed if servers), [{"url": "/"}])
        url = self._filled(described[0])
        if "://" not in url:
            raise Broken(
                f"its server is `{clean(url)[:60]}`, which is no whole address: say which "
                "`server` it is"
            )
        return urljoin(url, chosen) if chosen else url

    def _filled(self, server: Object) -> str:
        variables = mapping_of(server.get("variables"))

        def value(found: re.Match[str]) -> str:
            about = mapping_of(variables.get(found[1]))
            said = self._choice.variables.get(found[1], text_of(about.get("default")))
            allowed = [one for one in list_of(about.get("enum")) if isinstance(one, str)]
            if not said or (allowed and said not in allowed):
                wanted = f"one of {', '.join(allowed[:8])}" if allowed else "a value"
                raise Broken(f"the variable `{clean(found[1])[:40]}` of its server needs {wanted}")
            return said

        url = _VARIABLE.sub(value, text_of(server.get("url")))
        try:
            parts = urlsplit(url)
        except ValueError:
            raise Broken("its server's address cannot be read") from None
        if parts.query or parts.fragment or "{" in url or "}" in url:
            raise Broken("its server's address has a query, a fragment or places")
        return url

    # ---- security

    def _security(self, operation: Operation) -> dict[str, dict[str, str]]:
        """The auth entries of an operation: of the first alternative that can be had, those that
        the person named first. Raises Broken.
        """
        given = operation.fields.get("security", self._document.root.get("security"))
        alternatives = [mapping_of(one) for one in list_of(given)]
        if not alternatives:
            return {}
        alternatives.sort(
            key=lambda one: 0 if one and all(name in self._choice.auth for name in one) else 1
        )
        problem = Broken("its security cannot be used")
        for one in alternatives:
            try:
                return {_entry_name(name): self._scheme(name) for name in one}
            except Broken as found:
                problem = found
        raise problem

    def _scheme(self, name: str) -> dict[str, str]:
        components = mapping_of(self._document.root.get("components"))
        scheme = self._document.followed(mapping_of(components.get("securitySchemes")).get(name))
        shown = clean(name)[:60]
        secret = self._choice.auth.get(name) or f"${{{_variable(self._namespace, name)}}}"
        kind, how = text_of(scheme.get("type")), text_of(scheme.get("scheme")).lower()
        key, where = text_of(scheme.get("name")), text_of(scheme.get("in"))
        if kind == "apiKey" and where == "cookie":
            return {"kind": "cookie", "cookie": key, "secret": secret}
        if kind == "apiKey" and where in ("header", "query"):
            return {"kind": "api_key", where: key, "secret": secret}
        if (kind == "http" and how == "bearer") or kind in ("oauth2", "openIdConnect"):
            return {"kind": "bearer", "secret": secret}
        if kind == "http" and how == "basic":
            user = self._choice.auth.get(f"{name}.username", "user")
            return {"kind": "basic", "username": user, "secret": secret}
        raise Broken(f"its security scheme `{shown}` is of a kind that is not supported")


def _fit(entry: Entry) -> None:
    """Whether its schema can be used; without patterns if these are the reason. Raises
    ToolDefinitionError.
    """
    schema = entry.fields["input_schema"]
    try:
        checking("it", schema)
    except ToolDefinitionError:
        entry.fields["input_schema"] = without = _without(schema, "pattern")
        checking("it", without)


def _without(value: Any, key: str) -> Any:
    """A schema without a keyword. A property may have that name: its value is a schema and not a
    text.
    """
    if isinstance(value, Mapping):
        pairs = mapping_of(value).items()
        return {
            name: _without(one, key)
            for name, one in pairs
            if not (name == key and isinstance(one, str))
        }
    return [_without(one, key) for one in list_of(value)] if isinstance(value, list) else value


def _slug(title: str) -> str:
    return (
        _NAME.sub("_", title.lower())
        .replace(".", "_")
        .replace("-", "_")
        .strip("_")[:30]
        .lstrip("0123456789_")
    )


def _entry_name(name: str) -> str:
    slug = _NAME.sub("_", name).strip("_.-")[:60] or "auth"
    return slug if slug[0].isalpha() or slug[0] == "_" else f"_{slug}"


def _variable(namespace: str, scheme: str) -> str:
    return re.sub(r"[^A-Z0-9]+", "_", f"{namespace}_{scheme}".upper()).strip("_")[:100]
