"""OpenAPI documents (3.0 and 3.1) as manifests: every operation becomes a tool.

Modules: `document`, `importer`, `operations`, `schemas`.
"""

from .document import Document, parse_document
from .importer import ImportChoice, import_document

__all__ = ["Document", "ImportChoice", "import_document", "parse_document"]
