"""Does a file with a secret's name contain nothing but public certificates? Pure.

A virtual environment holds a `cacert.pem` that every HTTPS client reads; a file with that ending
may as well be a private key. So the content decides, and whatever is not surely public counts as
secret:

* text: PEM blocks (RFC 7468) with the labels of public things, each holding DER of the matching
  form, and around them comments without long random words or words such as "password";
* binary: one DER certificate, whole, with nothing behind it. PKCS #12 and key stores are never
  public: what is encrypted in them cannot be seen.

Not protected: a secret that someone hid inside a certificate (in an extension, as a serial number).
"""

from __future__ import annotations

import base64
import binascii
import re

from ferrule.core.lazy_patterns import compile_lazily

LIMIT = 2 * 1024 * 1024
"""Bytes. A larger file counts as secret.

The largest bundles of root certificates have about 0.3 MB.
"""

ENDINGS = (".pem", ".key")
"""Endings of secret names under which public content is found in practice."""

_SEQUENCE = 0x30
_INTEGER = 0x02
_BITS = 0x03

# Certificates, requests and lists of revoked ones (RFC 5280, RFC 2986).
_SIGNED = (_SEQUENCE, _SEQUENCE, _BITS)
_FORMS = {
    "CERTIFICATE": _SIGNED,
    "X509 CERTIFICATE": _SIGNED,
    "CERTIFICATE REQUEST": _SIGNED,
    "NEW CERTIFICATE REQUEST": _SIGNED,
    "X509 CRL": _SIGNED,
    "PUBLIC KEY": (_SEQUENCE, _BITS),
    "RSA PUBLIC KEY": (_INTEGER, _INTEGER),
    "DH PARAMETERS": (_INTEGER, _INTEGER),
}
"""Label of a PEM block, and the tags of what the outermost sequence contains.

A private key has another form under any label.
"""

_BLOCK = compile_lazily(r"-----BEGIN ([A-Z0-9 ]+)-----\s+([A-Za-z0-9+/=\s]+?)-----END \1-----")
_SUSPICIOUS = compile_lazily(
    r"private|secret|passw|passphrase|token|api.?key|bearer|-----", re.IGNORECASE
)
_USUAL_COMMENT = compile_lazily(
    r"=+|#+ (?:Issuer|Subject|Label|Serial): .*|#+ (?:MD5 |SHA1 |SHA256 )?Fingerprint: "
    r"[0-9a-fA-F:]+|#+ SHA(?:1|256): [0-9a-f]+"
)
"""Lines of comments in the bundles that are in use."""
_RANDOM = compile_lazily(r"(?![0-9]+(?![A-Za-z0-9+/_=-]))[A-Za-z0-9+/_=-]{24,}")
"""A long word that is no decimal number (bundles name the serial numbers of certificates)."""


def is_only_public(data: bytes) -> bool:
    """Return whether `data`, a whole file, has public certificates or keys and nothing else."""
    if not data or len(data) > LIMIT or b"PRIVATE KEY" in data:
        return False
    if data[0] == _SEQUENCE:
        return _has_form(data, _SIGNED)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return False
    blocks = _BLOCK.findall(text)
    return (
        bool(blocks)
        and all(_is_public(label, body) for label, body in blocks)
        and _is_harmless_comment(_BLOCK.sub("", text))
    )


def _is_public(label: str, body: str) -> bool:
    form = _FORMS.get(label)
    if form is None:
        return False
    try:
        content = base64.b64decode("".join(body.split()), validate=True)
    except binascii.Error:
        return False
    return _has_form(content, form)


def _is_harmless_comment(text: str) -> bool:
    """Return whether what surrounds the blocks is the usual comment."""
    unusual = "\n".join(line for line in text.splitlines() if not _USUAL_COMMENT.fullmatch(line))
    return "\0" not in text and not _SUSPICIOUS.search(unusual) and not _RANDOM.search(unusual)


def _has_form(data: bytes, form: tuple[int, ...]) -> bool:
    """Return whether DER is one sequence of exactly these elements, to the last byte (X.690)."""
    outer = _parse_element(data, 0)
    if outer is None or outer[0] != _SEQUENCE or outer[2] != len(data):
        return False
    tags: list[int] = []
    position = outer[1]
    while position < len(data):
        inner = _parse_element(data, position)
        if inner is None or inner[2] > len(data):
            return False
        tags.append(inner[0])
        position = inner[2]
    return tuple(tags) == form


def _parse_element(data: bytes, position: int) -> tuple[int, int, int] | None:
    """Return an element's tag, where its content begins and where it ends.

    None if it is not in definite form.
    """
    if position + 2 > len(data):
        return None
    tag = data[position]
    length = data[position + 1]
    start = position + 2
    if length & 0x80:
        count = length & 0x7F
        if not 1 <= count <= 4 or start + count > len(data):
            return None
        length = int.from_bytes(data[start : start + count], "big")
        start += count
    return tag, start, start + length
