"""Swagger 2 documents as OpenAPI 3.0 documents, so that one importer reads both.

Source: OpenAPI Specification 2.0. Operations, parameters, responses, servers and security schemes
are rewritten. Schemas stay where they are, below `definitions`: references are local pointers and
lead there in either version. What refers to nothing stays as it is, and is a problem of the
operation that has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ferrule.connectors.json_values import list_or_empty, mapping_or_empty, text_or_empty

Object = Mapping[str, Any]

_METHODS = ("get", "put", "post", "delete", "patch", "head", "options")
_IN_SCHEMA = frozenset(
    {
        "type",
        "format",
        "items",
        "default",
        "enum",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "minLength",
        "maxLength",
        "pattern",
        "minItems",
        "maxItems",
        "uniqueItems",
        "x-nullable",
    }
)
"""Keys of a parameter that OpenAPI 3 has in its schema."""
_STYLES = {"ssv": "spaceDelimited", "pipes": "pipeDelimited"}
_FORM = "application/x-www-form-urlencoded"
_MULTIPART = "multipart/form-data"


def convert_swagger(root: Object) -> dict[str, Any]:
    """Return the document as OpenAPI 3.0. It shares what is not rewritten with `root`."""
    return _Conversion(root).convert()


class _Conversion:
    def __init__(self, root: Object) -> None:
        self._root = root

    def convert(self) -> dict[str, Any]:
        schemes = mapping_or_empty(self._root.get("securityDefinitions"))
        paths = mapping_or_empty(self._root.get("paths"))
        return {
            **self._root,
            "openapi": "3.0.4",
            "servers": list(self._servers(self._root.get("schemes"))),
            "components": {
                "securitySchemes": {name: _scheme(value) for name, value in schemes.items()}
            },
            "paths": {path: self._path(mapping_or_empty(item)) for path, item in paths.items()},
        }

    def _servers(self, schemes: Any) -> list[dict[str, str]]:
        host = text_or_empty(self._root.get("host"))
        base = text_or_empty(self._root.get("basePath")).rstrip("/")
        if not host:
            return [{"url": base or "/"}]
        named = [one for one in list_or_empty(schemes) if one in ("https", "http")]
        return [
            {"url": f"{one}://{host}{base}"} for one in sorted(named, reverse=True) or ["https"]
        ]

    def _path(self, item: Object) -> dict[str, Any]:
        converted: dict[str, Any] = {}
        for key, value in item.items():
            if key in _METHODS and isinstance(value, Mapping):
                converted[key] = self._operation(mapping_or_empty(value), item)
            elif key != "parameters":
                converted[key] = value
        return converted

    def _operation(self, given: Object, item: Object) -> dict[str, Any]:
        """Return an operation with the parameters of its path, which it may replace."""
        own = [self._resolve(one) for one in list_or_empty(given.get("parameters"))]
        names = {(one.get("name"), one.get("in")) for one in own}
        shared = (self._resolve(one) for one in list_or_empty(item.get("parameters")))
        listed = [*(one for one in shared if (one.get("name"), one.get("in")) not in names), *own]
        converted: dict[str, Any] = {**given, "responses": self._responses(given)}
        parameters: list[dict[str, Any]] = []
        form: list[Object] = []
        for parameter in listed:
            place = parameter.get("in")
            if place == "body":
                converted["requestBody"] = self._body(given, parameter)
            elif place == "formData":
                form.append(parameter)
            else:
                parameters.append(_parameter(parameter))
        converted["parameters"] = parameters
        if form:
            converted["requestBody"] = self._form(given, form)
        if "schemes" in given:
            converted["servers"] = self._servers(given["schemes"])
        return converted

    def _resolve(self, value: Any) -> Object:
        found = mapping_or_empty(value)
        reference = text_or_empty(found.get("$ref"))
        kind, _, name = reference.removeprefix("#/").partition("/")
        if kind not in ("parameters", "responses"):
            return found
        return mapping_or_empty(mapping_or_empty(self._root.get(kind)).get(name)) or found

    def _media_types(self, given: Object, key: str) -> list[str]:
        listed = list_or_empty(given.get(key)) or list_or_empty(self._root.get(key))
        return [one for one in listed if isinstance(one, str)]

    def _body(self, given: Object, parameter: Object) -> dict[str, Any]:
        types = self._media_types(given, "consumes") or ["application/json"]
        content = {media: {"schema": parameter.get("schema")} for media in types}
        body: dict[str, Any] = {"content": content, "required": parameter.get("required") is True}
        return {**body, **_description(parameter)}

    def _form(self, given: Object, fields: list[Object]) -> dict[str, Any]:
        has_file = any(one.get("type") == "file" for one in fields)
        types = self._media_types(given, "consumes")
        media = _MULTIPART if has_file or (_MULTIPART in types and _FORM not in types) else _FORM
        names = [text_or_empty(one.get("name")) for one in fields]
        required = [
            name for name, one in zip(names, fields, strict=True) if one.get("required") is True
        ]
        schema = {
            "type": "object",
            "properties": {
                name: {**_schema(one), **_description(one)}
                for name, one in zip(names, fields, strict=True)
                if name
            },
            "required": required,
        }
        return {"content": {media: {"schema": schema}}, "required": bool(required)}

    def _responses(self, given: Object) -> dict[str, Any]:
        types = self._media_types(given, "produces") or ["application/json"]
        converted: dict[str, Any] = {}
        for status, value in mapping_or_empty(given.get("responses")).items():
            response = self._resolve(value)
            converted[status] = dict(response)
            if "schema" in response:
                content = {media: {"schema": response["schema"]} for media in types}
                converted[status]["content"] = content
        return converted


def _parameter(given: Object) -> dict[str, Any]:
    converted = {key: value for key, value in given.items() if key not in _IN_SCHEMA}
    schema = _schema(given)
    if schema:
        converted["schema"] = schema
    if given.get("type") == "array":
        form = text_or_empty(given.get("collectionFormat"))
        if form in _STYLES and given.get("in") == "query":
            converted["style"] = _STYLES[form]
        converted["explode"] = form == "multi"
    return converted


def _schema(given: Object) -> dict[str, Any]:
    schema = {key: value for key, value in given.items() if key in _IN_SCHEMA}
    if schema.get("type") == "file":
        return {"type": "string", "format": "binary"}
    if schema.pop("x-nullable", False) is True:
        schema["nullable"] = True
    return schema


def _description(given: Object) -> dict[str, Any]:
    return {"description": given["description"]} if "description" in given else {}


def _scheme(value: Any) -> Object:
    given = mapping_or_empty(value)
    if given.get("type") == "basic":
        return {"type": "http", "scheme": "basic"}
    return given
