"""The head of a GGUF file: what a model on this machine says of itself, read without loading it.

Source: the format's specification in the ggml repository (`docs/gguf.md`), version 2 and 3: a magic
number, counts, then pairs of a key and a typed value, little-endian. Read are the vocabulary and
the kinds of its tokens.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, BinaryIO

_NUMBERS = {
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
_STRING, _ARRAY = 8, 9
_LONGEST, _MOST = 1 << 24, 1 << 24
"""Bytes of one string and elements of one array: a damaged file does not take all memory."""

UNKNOWN, CONTROL, USER_DEFINED = 2, 3, 4
"""Kinds of tokens (`llama_token_type`) that llama.cpp reads out of a text as one."""


def vocabulary(path: Path) -> list[tuple[str, int]]:
    """The tokens of a model file, each with its kind. Raises ValueError if the file is no GGUF or
    is damaged.
    """
    tokens: list[str] = []
    kinds: list[int] = []
    with path.open("rb") as file:
        magic, version, _tensors, pairs = struct.unpack("<4sIQQ", _take(file, 24))
        if magic != b"GGUF" or version not in (2, 3):
            raise ValueError(f"{path} is no GGUF file of version 2 or 3")
        for _ in range(pairs):
            key = _string(file)
            value = _value(file, _number(file, "I"))
            if key == "tokenizer.ggml.tokens":
                tokens = value
            elif key == "tokenizer.ggml.token_type":
                kinds = value
    if len(tokens) != len(kinds):
        raise ValueError(f"{path} has {len(tokens)} tokens and {len(kinds)} kinds of tokens")
    return list(zip(tokens, kinds, strict=True))


def _value(file: BinaryIO, kind: int) -> Any:
    if kind == _STRING:
        return _string(file)
    if kind != _ARRAY:
        return _number(file, _code(kind))
    inner, count = _number(file, "I"), _number(file, "Q")
    if count > _MOST:
        raise ValueError(f"an array of {count} elements")
    if inner == _STRING:
        return [_string(file) for _ in range(count)]
    code = _code(inner)
    return list(struct.unpack(f"<{count}{code}", _take(file, count * struct.calcsize(code))))


def _code(kind: int) -> str:
    if kind not in _NUMBERS:
        raise ValueError(f"a value of the unknown type {kind}")
    return _NUMBERS[kind]


def _number(file: BinaryIO, code: str) -> Any:
    return struct.unpack(f"<{code}", _take(file, struct.calcsize(code)))[0]


def _string(file: BinaryIO) -> str:
    length = _number(file, "Q")
    if length > _LONGEST:
        raise ValueError(f"a string of {length} bytes")
    return _take(file, length).decode("utf-8", "replace")


def _take(file: BinaryIO, length: int) -> bytes:
    data = file.read(length)
    if len(data) != length:
        raise ValueError("the file ends within its head")
    return data
