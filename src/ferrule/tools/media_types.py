"""What bytes are: the type, measures and wholeness of a picture, sound or document, by content.

Only what model providers take is known; all else is an error that says what was found. A file that
was cut, or a picture that moves, is refused here: a provider would answer with less than the person
meant, or with an error of its own.

Sources: PNG (W3C, third edition), GIF89a, JPEG (ITU T.81), WebP (RFC 9649), RIFF, ISO 32000 (PDF).
"""

from __future__ import annotations

import io
import struct
from base64 import b64decode
from collections.abc import Callable

from ferrule.core.errors import ConfigError
from ferrule.core.media import MediaKind
from ferrule.core.value_class import frozen

MAX_BYTES = 32 << 20
"""No medium may be larger: base64 makes a third more of it, and requests end at 50 MB."""
MAX_PIXELS = 100_000_000
_OFFICE = "application/vnd.openxmlformats-officedocument."
_OFFICE_TYPES = {
    "word/": f"{_OFFICE}wordprocessingml.document",
    "xl/": f"{_OFFICE}spreadsheetml.sheet",
    "ppt/": f"{_OFFICE}presentationml.presentation",
}


class MediaInvalid(ConfigError):
    """A picture, sound or document cannot be given to a model."""

    code = "media_invalid"


@frozen
class MediaType:
    """What bytes are; `width` and `height` are pixels of a picture, else 0."""

    media_kind: MediaKind
    mime: str
    width: int = 0
    height: int = 0


def detect_type(data: bytes, name: str) -> MediaType:
    """Return what bytes are.

    Args:
        data: The whole file.
        name: What an error calls it.

    Raises:
        MediaInvalid: It is empty, too large, cut, moving, or nothing that a provider takes.
    """
    if not data:
        raise MediaInvalid(f"{name} is empty", hint="give a file with content")
    if len(data) > MAX_BYTES:
        raise MediaInvalid(
            f"{name} has {len(data)} bytes; the most is {MAX_BYTES}",
            hint="scale it down, or give a part of it",
        )
    for is_type, read in _READERS:
        if is_type(data):
            try:
                found = read(data, name)
            except (IndexError, struct.error) as error:
                raise _cut(name) from error
            if found.width * found.height > MAX_PIXELS:
                raise MediaInvalid(
                    f"{name} has {found.width} x {found.height} pixels; the most is {MAX_PIXELS}",
                    hint="scale it down",
                )
            return found
    return _read_text(data, name)


def decode_medium(data: object, name: str) -> bytes:
    """Return what base64 text of a protocol holds.

    Args:
        data: The text.
        name: What an error calls it.

    Raises:
        MediaInvalid: It is no base64, or nothing that `detect_type` takes.
    """
    if not isinstance(data, str) or len(data) > MAX_BYTES * 4 // 3 + 4:
        size = len(data) * 3 // 4 if isinstance(data, str) else 0
        what = f"has {size} bytes; the most is {MAX_BYTES}" if size else "has no data"
        raise MediaInvalid(f"{name} {what}")
    try:
        content = b64decode(data, validate=True)
    except ValueError as error:
        raise MediaInvalid(f"{name} is not base64") from error
    detect_type(content, name)
    return content


def looks_like_medium(start: bytes) -> bool:
    """Return whether a file begins as a picture, a sound or a PDF does, and not as text."""
    if b"\0" not in start:
        return start.startswith(b"%PDF-")
    return any(is_type(start) for is_type, read in _READERS if read not in (_read_zip, _read_pdf))


def _cut(name: str) -> MediaInvalid:
    return MediaInvalid(f"{name} is cut off: its end is missing", hint="get the whole file again")


def _moving_error(name: str) -> MediaInvalid:
    return MediaInvalid(
        f"{name} is animated, and a model sees only one picture", hint="give single frames of it"
    )


def _read_png(data: bytes, name: str) -> MediaType:
    width, height = struct.unpack_from(">II", data, 16)
    at = 8
    while True:
        length, kind = struct.unpack_from(">I4s", data, at)
        if at + 12 + length > len(data):
            raise _cut(name)
        if kind == b"acTL":
            raise _moving_error(name)
        if kind == b"IEND":
            return MediaType("image", "image/png", width, height)
        at += 12 + length


def _read_jpeg(data: bytes, name: str) -> MediaType:
    at = 2
    width = height = 0
    while True:
        marker, length = struct.unpack_from(">HH", data, at)
        if marker == 0xFFDA:
            break
        if 0xFFC0 <= marker <= 0xFFCF and marker not in (0xFFC4, 0xFFC8, 0xFFCC):
            height, width = struct.unpack_from(">HH", data, at + 5)
        at += 2 + length
    # In the picture's own data an 0xFF is always followed by 0: this is its end.
    if data.find(b"\xff\xd9", at) < 0 or not width:
        raise _cut(name)
    return MediaType("image", "image/jpeg", width, height)


def _read_gif(data: bytes, name: str) -> MediaType:
    width, height, flags = struct.unpack_from("<HHB", data, 6)
    at = 13 + _color_table(flags)
    frames = 0
    while data[at] != 0x3B:
        if data[at] == 0x2C:
            frames += 1
            at += 11 + _color_table(data[at + 9])
        elif data[at] == 0x21:
            at += 2
        else:
            raise MediaInvalid(f"{name} is a damaged GIF", hint="save it again, as PNG")
        while data[at]:
            at += 1 + data[at]
        at += 1
    if frames > 1:
        raise _moving_error(name)
    return MediaType("image", "image/gif", width, height)


def _color_table(flags: int) -> int:
    return 3 << ((flags & 7) + 1) if flags & 0x80 else 0


def _read_webp(data: bytes, name: str) -> MediaType:
    if struct.unpack_from("<I", data, 4)[0] + 8 > len(data):
        raise _cut(name)
    kind = data[12:16]
    if kind == b"VP8X":
        if data[20] & 0x02:
            raise _moving_error(name)
        width = int.from_bytes(data[24:27], "little") + 1
        height = int.from_bytes(data[27:30], "little") + 1
    elif kind == b"VP8L":
        bits = struct.unpack_from("<I", data, 21)[0]
        width = (bits & 0x3FFF) + 1
        height = (bits >> 14 & 0x3FFF) + 1
    else:
        width, height = (side & 0x3FFF for side in struct.unpack_from("<HH", data, 26))
    return MediaType("image", "image/webp", width, height)


def _read_wav(data: bytes, name: str) -> MediaType:
    length = struct.unpack_from("<I", data, 4)[0]
    # A recorder that could not go back leaves 0 or the largest number.
    if length not in (0, 0xFFFFFFFF) and length + 8 > len(data):
        raise _cut(name)
    return MediaType("audio", "audio/wav")


def _read_pdf(data: bytes, name: str) -> MediaType:
    if b"%%EOF" not in data[-4096:]:
        raise _cut(name)
    return MediaType("document", "application/pdf")


def _read_zip(data: bytes, name: str) -> MediaType:
    # Imported here: it loads much, and few files are ZIP archives.
    import zipfile

    try:
        members = zipfile.ZipFile(io.BytesIO(data)).namelist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise _cut(name) from error
    for folder, mime in _OFFICE_TYPES.items():
        if any(member.startswith(folder) for member in members):
            return MediaType("document", mime)
    raise MediaInvalid(f"{name} is a ZIP archive", hint="give a file out of it")


def _read_text(data: bytes, name: str) -> MediaType:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise MediaInvalid(
            f"{name} is nothing that models take: it begins with {data[:8].hex(' ')}",
            hint="pictures: PNG, JPEG, GIF, WebP; sounds: WAV, MP3, FLAC, Ogg, M4A; documents: "
            "PDF, text, Word, Excel, PowerPoint",
        )
    is_drawing = "<svg" in text[:4096].lower()
    return MediaType("document", "image/svg+xml" if is_drawing else "text/plain")


def _sound(mime: str) -> Callable[[bytes, str], MediaType]:
    return lambda data, name: MediaType("audio", mime)


def _is_mp3(data: bytes) -> bool:
    # A frame's header: eleven bits, then a version and layer III.
    return data[:3] == b"ID3" or (
        data[0] == 0xFF and data[1:2] in (b"\xfb", b"\xfa", b"\xf3", b"\xf2")
    )


_READERS: tuple[tuple[Callable[[bytes], bool], Callable[[bytes, str], MediaType]], ...] = (
    (lambda data: data[:8] == b"\x89PNG\r\n\x1a\n", _read_png),
    (lambda data: data[:3] == b"\xff\xd8\xff", _read_jpeg),
    (lambda data: data[:6] in (b"GIF87a", b"GIF89a"), _read_gif),
    (lambda data: data[:4] == b"RIFF" and data[8:12] == b"WEBP", _read_webp),
    (lambda data: data[:4] == b"RIFF" and data[8:12] == b"WAVE", _read_wav),
    (lambda data: b"%PDF-" in data[:1024], _read_pdf),
    (lambda data: data[:4] == b"PK\x03\x04", _read_zip),
    (lambda data: data[:4] == b"fLaC", _sound("audio/flac")),
    (lambda data: data[:4] == b"OggS", _sound("audio/ogg")),
    (lambda data: data[4:11] == b"ftypM4A", _sound("audio/mp4")),
    (_is_mp3, _sound("audio/mpeg")),
)
