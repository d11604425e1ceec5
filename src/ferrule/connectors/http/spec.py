"""A manifest after it was read and checked: the endpoints of its tools, and what they share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

from ferrule.core.value_class import frozen
from ferrule.tools.definition import Loading, Risk, SideEffect
from ferrule.tools.reliability import Reliability

from .auth import Auth
from .bodies import BodyTemplate
from .hosts import ReachableHosts
from .parameters import Parameter
from .templates import Template
from .url_templates import UrlTemplate

Method = Literal["GET", "POST", "PUT", "DELETE", "PATCH"]
METHODS: tuple[Method, ...] = ("GET", "POST", "PUT", "DELETE", "PATCH")
Origin = Literal["person", "repository"]

TIMEOUT = 30.0
"""Seconds that one attempt may take by default."""
DEFAULT_MAX_BYTES = 8 << 20
"""Bytes of a decompressed answer by default."""
MAX_BYTES_LIMIT = 64 << 20
"""The largest `max_bytes` that a tool may set."""


@frozen
class Endpoint:
    """One request as a template.

    `auth` are entries of the file's `auth` section, `max_bytes` bounds the answer.
    """

    method: Method
    url: UrlTemplate
    parameters: tuple[Parameter, ...] = ()
    headers: tuple[tuple[str, Template], ...] = ()
    body: BodyTemplate | None = None
    auth: tuple[Auth, ...] = ()
    idempotency_key: bool = False
    max_bytes: int = DEFAULT_MAX_BYTES


@frozen
class HttpTool:
    """A tool of a manifest.

    `schema` and `output` are JSON Schemas; `where` is the tool's place in the file.
    """

    name: str
    description: str
    endpoint: Endpoint
    schema: Mapping[str, Any]
    output: Mapping[str, Any] | None = None
    side_effect: SideEffect = SideEffect.EXTERNAL
    risk: Risk = Risk.MEDIUM
    idempotent: bool = False
    reliability: Reliability = Reliability(timeout=TIMEOUT)
    loading: Loading = Loading.ALWAYS
    scopes: frozenset[str] = frozenset()
    tags: tuple[str, ...] = ()
    cost: str = ""
    latency: str = ""
    examples: tuple[Mapping[str, Any], ...] = ()
    where: str = ""


@frozen
class Manifest:
    """A file's tools, and what they share."""

    file: str
    tools: tuple[HttpTool, ...] = ()
    namespace: str = ""
    reachable: ReachableHosts = field(default_factory=ReachableHosts)
    origin: Origin = "person"
