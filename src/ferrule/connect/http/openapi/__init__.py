"""OpenAPI documents (3.0 and 3.1) as manifests: every operation a tool."""

from .document import Document, parse_document
from .importing import Choice, import_document

__all__ = ["Choice", "Document", "import_document", "parse_document"]
