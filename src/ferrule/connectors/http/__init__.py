"""Tools that are HTTP requests, described by manifests or OpenAPI documents.

Arguments are checked and become a request, which is sent under the rules of its file; the answer
becomes a value or a failure.

Packages: `openapi`.
Modules: `auth`, `bodies`, `endpoints`, `fields`, `hosts`, `loading`, `manifest`, `parameters`,
`plugin`, `response`, `requests`, `results`, `schema_cache`, `secrets`, `sender`, `spec`,
`templates`, `tools`, `url_templates`.
"""

from .loading import (
    HttpToolSettings,
    LoadedTools,
    check_repository_manifests,
    http_tools,
    load_tools,
    openapi_tools,
)
from .manifest import parse_manifest, read_manifest
from .secrets import Secrets
from .sender import Sender
from .spec import Manifest
from .tools import make_tools

__all__ = [
    "HttpToolSettings",
    "LoadedTools",
    "Manifest",
    "Secrets",
    "Sender",
    "check_repository_manifests",
    "http_tools",
    "load_tools",
    "make_tools",
    "openapi_tools",
    "parse_manifest",
    "read_manifest",
]
