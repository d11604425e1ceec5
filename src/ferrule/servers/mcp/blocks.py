"""Content blocks of results and prompts in the protocol's JSON.

Texts, pictures, sound, embedded resources and links to resources.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

Block = Mapping[str, Any]


def text(said: str) -> Block:
    """Return a text block."""
    return {"type": "text", "text": said}


def image(data: bytes, media_type: str = "image/png") -> Block:
    """Return a picture block."""
    return {"type": "image", "data": _base64(data), "mimeType": media_type}


def audio(data: bytes, media_type: str = "audio/wav") -> Block:
    """Return a sound block."""
    return {"type": "audio", "data": _base64(data), "mimeType": media_type}


def embed_content(uri: str, content: str | bytes, media_type: str = "text/plain") -> Block:
    """Return a resource with its content."""
    return {"type": "resource", "resource": contents(uri, content, media_type)}


def link(
    uri: str, name: str, media_type: str = "", size: int | None = None, description: str = ""
) -> Block:
    """Return the address of a resource, to be read with `resources/read`."""
    about = {"mimeType": media_type, "size": size, "description": description}
    return {"type": "resource_link", "uri": uri, "name": name} | {
        key: one for key, one in about.items() if one
    }


def contents(uri: str, content: str | bytes, media_type: str) -> dict[str, Any]:
    """Return the content of a resource: text as it is, bytes in base64."""
    about = {"uri": uri, "mimeType": media_type}
    return (
        {**about, "text": content}
        if isinstance(content, str)
        else {**about, "blob": _base64(content)}
    )


def describe_block(block: Block) -> str:
    """Describe a block for the journal: its kind and its size."""
    kind = str(block.get("type"))
    inner: Mapping[str, Any] = block.get("resource") or block
    size = len(inner.get("data") or inner.get("blob") or "") * 3 // 4 or len(
        inner.get("text") or ""
    )
    return f"{kind} {inner.get('mimeType', '')} {inner.get('uri', '')}".rstrip() + f", {size} bytes"


def block_size(block: Block) -> int:
    """Return the number of characters in the parts of a block that can be large."""
    inner: Mapping[str, Any] = block.get("resource") or block
    return sum(len(inner.get(key) or "") for key in ("data", "blob", "text"))


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
