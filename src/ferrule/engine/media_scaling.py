"""Scale pictures down, where somebody asked for it (`pip install 'ferrule[pictures]'`).

The type and the measures were found in the bytes before (`tools.media_types`); a picture that turns
out to be another one, or whose pixels would fill the memory, is refused before it is decoded.
Pillow decodes in this process: whoever switches this on trusts its decoders with the pictures.
"""

from __future__ import annotations

import io

from ferrule.core.errors import ConfigError
from ferrule.tools.media_types import MediaInvalid, MediaType

MAX_PIXELS = 50_000_000
"""Pixels of a picture that is decoded: 200 MB of memory."""
_FORMATS = {
    "image/png": "PNG",
    "image/jpeg": "JPEG",
    "image/webp": "WEBP",
    "image/gif": "GIF",
}


def scale_picture(data: bytes, found: MediaType, max_side: int, name: str) -> bytes:
    """Return a picture with at most so many pixels a side, upright, in its own format.

    A GIF becomes a PNG.

    Args:
        data: The picture.
        found: Its type and measures.
        max_side: The most pixels of a side.
        name: What an error calls it.

    Raises:
        ConfigError: Pillow is not installed.
        MediaInvalid: The picture has too many pixels, or cannot be decoded.
    """
    try:
        from PIL import Image, ImageOps
    except ImportError as error:
        raise ConfigError(
            "scaling pictures down needs Pillow", hint='pip install "ferrule[pictures]"'
        ) from error
    if found.width * found.height > MAX_PIXELS:
        raise MediaInvalid(
            f"{name} has {found.width} x {found.height} pixels; at most {MAX_PIXELS} are decoded "
            "to be scaled",
            hint="scale it down with another program",
        )
    form = _FORMATS[found.mime]
    try:
        with Image.open(io.BytesIO(data), formats=[form]) as picture:
            if picture.size != (found.width, found.height):
                raise MediaInvalid(f"{name} says two different sizes of itself")
            picture.draft(None, (max_side, max_side))
            upright = ImageOps.exif_transpose(picture)
            upright.thumbnail((max_side, max_side))
            written = io.BytesIO()
            upright.save(written, format="PNG" if form == "GIF" else form)
    except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError) as error:
        raise MediaInvalid(f"{name} cannot be scaled: {error}", hint="save it again") from error
    return written.getvalue()
