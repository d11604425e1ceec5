"""Tools that are HTTP requests, described by manifests or OpenAPI documents.

Arguments are checked and become a request, which is sent under the rules of its file; the answer
becomes a value or a failure.

Packages: `openapi`.
Modules: `auth`, `bodies`, `endpoints`, `fields`, `hosts`, `loading`, `manifest`, `parameters`,
`receive`, `requests`, `results`, `schemas`, `secrets`, `send`, `spec`, `templates`,
`tools`, `url_templates`.
"""

from .loading import Loaded, Wanted, check_files, http_tools, load_tools, openapi_tools
from .manifest import parse_manifest, read_manifest
from .secrets import Secrets
from .send import Sender
from .spec import Manifest
from .tools import make_tools

__all__ = [
    "Loaded",
    "Manifest",
    "Secrets",
    "Sender",
    "Wanted",
    "check_files",
    "http_tools",
    "load_tools",
    "make_tools",
    "openapi_tools",
    "parse_manifest",
    "read_manifest",
]
