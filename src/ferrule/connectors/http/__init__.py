"""Tools that are HTTP requests: described by manifests or OpenAPI documents, checked, sent and
answered.

Packages: `openapi`.
Modules: `auth`, `bodies`, `endpoints`, `fields`, `hosts`, `loading`, `manifest`, `parameters`,
`receive`, `requests`, `results`, `schemas`, `secrets`, `send`, `sources`, `spec`, `templates`,
`tools`, `url_templates`.
"""

from .loading import http_tools, openapi_tools
from .manifest import parse_manifest, read_manifest
from .secrets import Secrets
from .send import Sender
from .sources import Loaded, Wanted, check_files, load_tools
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
