"""The head of a GGUF file: what a local model says of itself, read without loading it.

Source: the format's specification in the ggml repository (`docs/gguf.md`), versions 2 and 3: a
magic number, counts, then pairs of a key and a typed value, little-endian. Only the vocabulary and
the kinds of its tokens are read.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, BinaryIO

_NUMBER_FORMATS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_STRING = 8
_ARRAY = 9
_MAX_STRING_BYTES = 1 << 24
_MAX_ARRAY_ELEMENTS = 1 << 24
"""A damaged file must not take all memory."""

UNKNOWN = 2
CONTROL = 3
USER_DEFINED = 4
"""Kinds of tokens (`llama_token_type`) that llama.cpp reads out of a text as one token."""


def read_vocabulary(path: Path) -> list[tuple[str, int]]:
    """Return the tokens of a model file, each with its kind.

    Raises:
        ValueError: The file is not GGUF, or is damaged.
    """
    tokens: list[str] = []
    kinds: list[int] = []
    with path.open("rb") as file:
        magic, version, _tensors, pairs = struct.unpack("<4sIQQ", _read_exactly(file, 24))
        if magic != b"GGUF" or version not in (2, 3):
            raise ValueError(f"{path} is not a GGUF file of version 2 or 3")
        for _ in range(pairs):
            key = _read_string(file)
            value = _read_value(file, _read_number(file, "I"))
            if key == "tokenizer.ggml.tokens":
                tokens = value
            elif key == "tokenizer.ggml.token_type":
                kinds = value
    if len(tokens) != len(kinds):
        raise ValueError(f"{path} has {len(tokens)} tokens and {len(kinds)} kinds of tokens")
    return list(zip(tokens, kinds, strict=True))


def _read_value(file: BinaryIO, kind: int) -> Any:
    if kind == _STRING:
        return _read_string(file)
    if kind != _ARRAY:
        return _read_number(file, _number_format(kind))
    inner = _read_number(file, "I")
    count = _read_number(file, "Q")
    if count > _MAX_ARRAY_ELEMENTS:
        raise ValueError(f"an array has {count} elements")
    if inner == _STRING:
        return [_read_string(file) for _ in range(count)]
    code = _number_format(inner)
    return list(
        struct.unpack(f"<{count}{code}", _read_exactly(file, count * struct.calcsize(code)))
    )


def _number_format(kind: int) -> str:
    if kind not in _NUMBER_FORMATS:
        raise ValueError(f"a value of the unknown type {kind}")
    return _NUMBER_FORMATS[kind]


def _read_number(file: BinaryIO, code: str) -> Any:
    return struct.unpack(f"<{code}", _read_exactly(file, struct.calcsize(code)))[0]


def _read_string(file: BinaryIO) -> str:
    length = _read_number(file, "Q")
    if length > _MAX_STRING_BYTES:
        raise ValueError(f"a string has {length} bytes")
    return _read_exactly(file, length).decode("utf-8", "replace")


def _read_exactly(file: BinaryIO, length: int) -> bytes:
    data = file.read(length)
    if len(data) != length:
        raise ValueError("the file ends within its head")
    return data
