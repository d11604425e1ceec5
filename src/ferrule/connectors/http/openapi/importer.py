"""An OpenAPI document as a manifest: which operations, their names, the server, the credentials.

    choice = Choice(server="https://api.example.com/v1", tags=("pets",))
    manifest, notices = import_document(document, choice)

The manifest is plain values, as `manifest.read_manifest` reads them. Secrets are references that
the person fills: `${PETSTORE_API_KEY}` for the scheme `api_key` of a document called Petstore,
unless `auth` says another one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import urljoin, urlsplit

from ferrule.connectors.http.manifest import MAX_TOOLS
from ferrule.connectors.http.schema_cache import cached_arguments
from ferrule.connectors.json_values import list_or_empty, mapping_or_empty, text_or_empty
from ferrule.connectors.text_cleaning import clean_text
from ferrule.core.errors import ConfigError, ToolDefinitionError
from ferrule.core.value_class import frozen

from .document import Document, Object, Operation, UnusablePart
from .operations import EntryOptions, ToolEntry, build_entry
from .schemas import ALL_BOUNDS

_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9_.-]+")
_URL_VARIABLE = re.compile(r"\{([^{}]*)\}")


@frozen
class ImportChoice:
    """What a person wants of a document.

    Patterns may contain `*`; operations are named by `operationId` or as `GET /pets/{id}`.

    Args:
        server: One of the document's addresses, or another one. To a host alone the document's
            own path is added, if it names no host itself.
        variables: Values for the variables of the server's address.
        auth: Security schemes mapped to references.
        tags: Tags whose operations are imported.
        without_tags: Tags whose operations are left out.
        operations: Operations to import.
        without: Operations to leave out.
        deprecated: Whether deprecated operations are imported.
        hosts: Hosts that are opened besides the server's own.
        results: Whether to check answers against the document, which services often violate.
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

    def includes(self, operation: Operation) -> bool:
        """Return whether an operation is wanted."""
        names = (text_or_empty(operation.fields.get("operationId")), operation.key)
        if operation.fields.get("deprecated") is True and not self.deprecated:
            return False
        if _any_matches(operation.tags, self.without_tags) or _any_matches(names, self.without):
            return False
        wanted = self.tags or self.operations
        return (
            not wanted
            or _any_matches(operation.tags, self.tags)
            or _any_matches(names, self.operations)
        )


def _any_matches(names: tuple[str, ...], patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for name in names for pattern in patterns)


def import_document(
    document: Document, choice: ImportChoice = ImportChoice()
) -> tuple[dict[str, Any], list[str]]:
    """Return the manifest, and sentences about what was left out.

    Raises:
        ConfigError: No operation can become a tool, or there are too many.
    """
    return _Import(document, choice).manifest()


class _NoServer(Exception):
    """The document does not say on which host its operations are."""

    def __init__(self, url: str) -> None:
        self.url = url


class _Import:
    def __init__(self, document: Document, choice: ImportChoice) -> None:
        self._document = document
        self._choice = choice
        self._namespace = choice.namespace or _namespace_from(document.title) or "api"
        self._auth: dict[str, dict[str, str]] = {}
        self._notices: list[str] = []
        self._names: dict[str, int] = {}

    def manifest(self) -> tuple[dict[str, Any], list[str]]:
        tools = list(self._make_tools())
        self._notices += [
            f"`{clean_text(key)[:120]}` is left out: tools do not have this method"
            for key in self._document.unsupported_operations()
        ]
        if not tools:
            why = "; ".join(self._notices[:3]) or "no operation is chosen"
            raise ConfigError(f"{self._document.file}: no operation becomes a tool: {why}")
        if self._choice.loading == "deferred":
            tools = [{**tool, "loading": "deferred"} for tool in tools]
        manifest: dict[str, Any] = {"namespace": self._namespace}
        if self._choice.hosts:
            manifest["hosts"] = list(self._choice.hosts)
        if self._auth:
            manifest["auth"] = self._auth
        manifest["tools"] = tools
        return manifest, self._notices

    def _make_tools(self) -> Iterator[dict[str, Any]]:
        chosen = (one for one in self._document.operations() if self._choice.includes(one))
        count = 0
        for operation in chosen:
            if count == MAX_TOOLS:
                raise ConfigError(
                    f"{self._document.file}: more than {MAX_TOOLS} operations",
                    hint="choose some, by tag or by name",
                )
            try:
                yield self._make_tool(operation)
                count += 1
            except _NoServer as problem:
                raise ConfigError(
                    f"{self._document.file}: its server is `{clean_text(problem.url)[:60]}`, "
                    "without a host",
                    hint="say where it is: `--server https://HOST` (in settings: `server`)",
                ) from problem
            except (UnusablePart, ToolDefinitionError) as problem:
                self._notices.append(
                    f"`{clean_text(operation.key)[:120]}` is left out: "
                    f"{clean_text(str(problem))[:300]}"
                )

    def _make_tool(self, operation: Operation) -> dict[str, Any]:
        auth = self._auth_entries(operation)
        entry = self._build_entry(operation, has_auth=bool(auth))
        self._notices += entry.notices
        tool = {"name": self._unique_name(operation), **entry.fields}
        if auth:
            self._auth |= auth
            tool["auth_ref"] = list(auth) if len(auth) > 1 else next(iter(auth))
        return tool

    def _build_entry(self, operation: Operation, *, has_auth: bool) -> ToolEntry:
        """Build an entry, with its schema more and more open until it is within bounds.

        Raises:
            UnusablePart: The operation cannot be a tool.
            ToolDefinitionError: Its schema cannot be used, however open.
        """
        server = self._server_url(operation)
        for bounds in ALL_BOUNDS:
            entry = build_entry(
                self._document,
                operation,
                server,
                EntryOptions(self._choice.results, has_auth, bounds),
            )
            try:
                _drop_unusable_patterns(entry)
            except ToolDefinitionError:
                if bounds is ALL_BOUNDS[-1]:
                    raise
                continue
            return entry
        raise AssertionError("there are bounds")

    def _unique_name(self, operation: Operation) -> str:
        """Return `operationId`, or method and path, as a valid and unique name."""
        wanted = text_or_empty(operation.fields.get("operationId"))
        wanted = wanted or f"{operation.method}{operation.path}"
        name = _NOT_IN_NAME.sub("_", wanted).strip("_.-")[:100] or operation.method
        if not (name[0].isalpha() or name[0] == "_"):
            name = f"_{name}"
        number = self._names.get(name, 0) + 1
        self._names[name] = number
        if number == 1:
            return name
        return self._next_free_name(f"{name}_{number}")

    def _next_free_name(self, name: str) -> str:
        while name in self._names:
            name += "_"
        self._names[name] = 1
        return name

    # ---- servers

    def _server_url(self, operation: Operation) -> str:
        """Return the URL in front of an operation's path. Raises UnusablePart."""
        chosen = self._choice.server
        places = (operation.fields, operation.shared, self._document.root)
        listed = (list_or_empty(place.get("servers")) for place in places)
        server = mapping_or_empty(
            next((servers for servers in listed if servers), [{"url": "/"}])[0]
        )
        if "://" in chosen:
            url = self._fill_url({"url": chosen})
            path = text_or_empty(server.get("url"))
            # A host alone: a path that the document has instead of a server still holds.
            is_whole = "://" in path or urlsplit(url).path.strip("/")
            return url if is_whole else urljoin(url, self._fill_url(server))
        url = self._fill_url(server)
        if "://" not in url:
            raise _NoServer(url)
        return urljoin(url, chosen) if chosen else url

    def _fill_url(self, server: Object) -> str:
        variables = mapping_or_empty(server.get("variables"))

        def substitute(match: re.Match[str]) -> str:
            variable = mapping_or_empty(variables.get(match[1]))
            value = self._choice.variables.get(match[1], text_or_empty(variable.get("default")))
            allowed_values = [
                allowed
                for allowed in list_or_empty(variable.get("enum"))
                if isinstance(allowed, str)
            ]
            if not value or (allowed_values and value not in allowed_values):
                wanted = f"one of {', '.join(allowed_values[:8])}" if allowed_values else "a value"
                raise UnusablePart(
                    f"the variable `{clean_text(match[1])[:40]}` of its server needs {wanted}"
                )
            return value

        url = _URL_VARIABLE.sub(substitute, text_or_empty(server.get("url")))
        try:
            parts = urlsplit(url)
        except ValueError:
            raise UnusablePart("its server's URL cannot be parsed") from None
        if parts.query or parts.fragment or "{" in url or "}" in url:
            raise UnusablePart("its server's URL has a query, a fragment or placeholders")
        return url

    # ---- security

    def _auth_entries(self, operation: Operation) -> dict[str, dict[str, str]]:
        """Return the auth entries of an operation. Raises UnusablePart.

        They are those of the first alternative that is supported, those that the person named
        first.
        """
        given = operation.fields.get("security", self._document.root.get("security"))
        alternatives = [mapping_or_empty(alternative) for alternative in list_or_empty(given)]
        if not alternatives:
            return {}
        alternatives.sort(key=self._is_named_by_person, reverse=True)
        problem = UnusablePart("its security cannot be used")
        for alternative in alternatives:
            try:
                return {_entry_name(name): self._auth_entry(name) for name in alternative}
            except UnusablePart as error:
                problem = error
        raise problem

    def _is_named_by_person(self, alternative: Object) -> bool:
        return bool(alternative) and all(name in self._choice.auth for name in alternative)

    def _auth_entry(self, name: str) -> dict[str, str]:
        components = mapping_or_empty(self._document.root.get("components"))
        scheme = self._document.resolve(
            mapping_or_empty(components.get("securitySchemes")).get(name)
        )
        shown = clean_text(name)[:60]
        secret = self._choice.auth.get(name) or f"${{{_variable_name(self._namespace, name)}}}"
        kind = text_or_empty(scheme.get("type"))
        http_scheme = text_or_empty(scheme.get("scheme")).lower()
        key = text_or_empty(scheme.get("name"))
        where = text_or_empty(scheme.get("in"))
        if kind == "apiKey" and where == "cookie":
            return {"kind": "cookie", "cookie": key, "secret": secret}
        if kind == "apiKey" and where in ("header", "query"):
            return {"kind": "api_key", where: key, "secret": secret}
        if (kind == "http" and http_scheme == "bearer") or kind in ("oauth2", "openIdConnect"):
            return {"kind": "bearer", "secret": secret}
        if kind == "http" and http_scheme == "basic":
            user = self._choice.auth.get(f"{name}.username", "user")
            return {"kind": "basic", "username": user, "secret": secret}
        raise UnusablePart(f"the kind of its security scheme `{shown}` is not supported")


def _drop_unusable_patterns(entry: ToolEntry) -> None:
    """Check that the schema can be used; drop its patterns if they are the reason it cannot.

    Raises:
        ToolDefinitionError: It cannot be used without patterns either.
    """
    schema = entry.fields["input_schema"]
    try:
        cached_arguments("it", schema)
    except ToolDefinitionError:
        schema = _without_keyword(schema, "pattern")
        entry.fields["input_schema"] = schema
        cached_arguments("it", schema)


def _without_keyword(value: Any, key: str) -> Any:
    """Return a schema without a keyword.

    A property may have that name: its value is a schema and not a text.
    """
    if isinstance(value, Mapping):
        pairs = mapping_or_empty(value).items()
        return {
            name: _without_keyword(field, key)
            for name, field in pairs
            if not (name == key and isinstance(field, str))
        }
    if isinstance(value, list):
        return [_without_keyword(item, key) for item in list_or_empty(value)]
    return value


def _namespace_from(title: str) -> str:
    return (
        _NOT_IN_NAME.sub("_", title.lower())
        .replace(".", "_")
        .replace("-", "_")
        .strip("_")[:30]
        .lstrip("0123456789_")
    )


def _entry_name(name: str) -> str:
    valid = _NOT_IN_NAME.sub("_", name).strip("_.-")[:60] or "auth"
    return valid if valid[0].isalpha() or valid[0] == "_" else f"_{valid}"


def _variable_name(namespace: str, scheme: str) -> str:
    return re.sub(r"[^A-Z0-9]+", "_", f"{namespace}_{scheme}".upper()).strip("_")[:100]
