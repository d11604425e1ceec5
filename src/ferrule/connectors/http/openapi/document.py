"""An OpenAPI document as it was written, bounded, with its local references followed.

Source: OpenAPI Specification 2.0 (`swagger2`), 3.0.4, 3.1.1 and 3.2.0. A document may come from
anybody: it has at most `MAX_BYTES` of JSON (YAML: what `storage.settings.yaml_tree` reads),
`MAX_DEPTH` levels and `MAX_NODES` values; nothing in it is fetched; a reference that leads out of
the document, in a circle or to nothing is a problem of the operation that has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast
from urllib.parse import unquote

from ferrule.connectors.json_values import list_or_empty, mapping_or_empty, text_or_empty
from ferrule.core.errors import ConfigError
from ferrule.core.value_class import frozen
from ferrule.storage.settings.yaml_tree import parse_json, parse_yaml, to_plain

from .swagger2 import convert_swagger

MAX_BYTES = 16 << 20
MAX_DEPTH = 64
MAX_NODES = 1_000_000
MAX_HOPS = 16
"""The most references that lead to references."""
METHODS = ("get", "put", "post", "delete", "patch")
"""The methods of a path that tools can have."""
_UNSUPPORTED_METHODS = ("head", "options", "trace")

Object = Mapping[str, Any]


class UnusablePart(Exception):
    """A part of the document cannot be used. The message says why."""


@frozen
class Operation:
    """One operation, with what its path says for all its operations. `key` is `GET /pets/{id}`."""

    method: str
    path: str
    fields: Object
    shared: Object

    @property
    def key(self) -> str:
        return f"{self.method.upper()} {self.path}"

    @property
    def tags(self) -> tuple[str, ...]:
        return tuple(tag for tag in list_or_empty(self.fields.get("tags")) if isinstance(tag, str))


@frozen
class Document:
    """A document. `file` is its name as people see it."""

    file: str
    root: Object

    @property
    def title(self) -> str:
        return text_or_empty(mapping_or_empty(self.root.get("info")).get("title"))

    @property
    def is_version_3_0(self) -> bool:
        """Whether it is 3.0, whose schemas are not yet JSON Schema."""
        return text_or_empty(self.root.get("openapi")).startswith("3.0")

    def operations(self) -> Iterator[Operation]:
        """Yield all operations in order. A path that is a broken reference has none."""
        for path, item in mapping_or_empty(self.root.get("paths")).items():
            try:
                shared = self.resolve(item)
            except UnusablePart:
                continue
            for method in METHODS:
                if isinstance(shared.get(method), Mapping):
                    yield Operation(method, path, mapping_or_empty(shared[method]), shared)

    def unsupported_operations(self) -> Iterator[str]:
        """Yield the operations with other methods."""
        for path, item in mapping_or_empty(self.root.get("paths")).items():
            yield from (
                f"{method.upper()} {path}"
                for method in _UNSUPPORTED_METHODS
                if method in mapping_or_empty(item)
            )

    def resolve(self, value: Any) -> Object:
        """Return an object, or the one that it refers to. Raises UnusablePart."""
        for _ in range(MAX_HOPS):
            found = mapping_or_empty(value)
            reference = found.get("$ref")
            if not isinstance(reference, str):
                return found
            value = self.resolve_reference(reference)
        raise UnusablePart("its references lead in a circle")

    def resolve_reference(self, reference: str) -> Any:
        """Return what a local pointer names (RFC 6901). Raises UnusablePart."""
        if not reference.startswith("#/"):
            raise UnusablePart(
                f"it refers to `{reference[:100]}`, and only `#/…` is followed: nothing is fetched"
            )
        node: Any = self.root
        for part in reference[2:].split("/"):
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(node, Mapping) and key in node:
                node = cast("Object", node)[key]
                continue
            index = int(key[:6]) if key.isascii() and key.isdigit() else -1
            if not 0 <= index < len(list_or_empty(node)):
                raise UnusablePart(f"it refers to `{reference[:100]}`, which does not exist")
            node = list_or_empty(node)[index]
        return node


def parse_document(data: bytes, file: str) -> Document:
    """Parse an OpenAPI or Swagger 2 document.

    Raises:
        ConfigError: It is neither, of another version, or out of bounds.
    """
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{file}: {len(data)} bytes, the bound is {MAX_BYTES}")
    is_json = data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{"
    value = parse_json(data, file) if is_json else to_plain(parse_yaml(data, file))
    if not isinstance(value, dict):
        raise ConfigError(f"{file}: it is not an OpenAPI document: a mapping is expected")
    _check_size(value, file)
    root = cast("dict[str, Any]", value)
    version = root.get("openapi")
    is_swagger = str(root.get("swagger")) in ("2.0", "2")
    if not is_swagger and not str(version).startswith(("3.0", "3.1", "3.2")):
        found = "no `openapi` and no `swagger`"
        if "openapi" in root:
            found = f"`openapi: {version}`"
        elif "swagger" in root:
            found = f"`swagger: {root['swagger']}`"
        raise ConfigError(
            f"{file}: found {found}",
            hint="OpenAPI 3.0 to 3.2 and Swagger 2 can be read; converters for older ones exist",
        )
    if not isinstance(root.get("paths"), Mapping):
        raise ConfigError(f"{file}: there are no `paths`")
    return Document(file, convert_swagger(root) if is_swagger else root)


def _check_size(root: Any, file: str) -> None:
    # Counted in layers, without recursion.
    layer = [root]
    depth = 0
    count = 0
    while layer:
        count += len(layer)
        depth += 1
        if depth > MAX_DEPTH or count > MAX_NODES:
            raise ConfigError(f"{file}: more than {MAX_DEPTH} levels or {MAX_NODES} values")
        nested: list[Any] = []
        for value in layer:
            if isinstance(value, dict):
                nested += cast("dict[str, Any]", value).values()
            elif isinstance(value, list):
                nested += cast("list[Any]", value)
        layer = nested
