"""OpenAPI documents (3.0 to 3.2, Swagger 2) as manifests: every operation becomes a tool.

Modules: `document`, `importer`, `operations`, `schemas`, `swagger2`.
"""

from .document import Document, parse_document
from .importer import ImportChoice, import_document

__all__ = ["Document", "ImportChoice", "import_document", "parse_document"]
