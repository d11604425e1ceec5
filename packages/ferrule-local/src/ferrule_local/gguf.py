"""The head of a GGUF file: what a local model says of itself, read without loading it.

Source: the format's specification in the ggml repository (`docs/gguf.md`), versions 2 and 3: a
magic number, counts, then pairs of a key and a typed value, little-endian. What is not asked for is
skipped.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Collection
from pathlib import Path
from typing import Any, BinaryIO

from ferrule.core.value_class import frozen

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
    keys = ("tokenizer.ggml.tokens", "tokenizer.ggml.token_type")
    found = _read_pairs(path, keys)
    tokens: list[str] = found.get(keys[0], [])
    kinds: list[int] = found.get(keys[1], [])
    if len(tokens) != len(kinds):
        raise ValueError(f"{path} has {len(tokens)} tokens and {len(kinds)} kinds of tokens")
    return list(zip(tokens, kinds, strict=True))


@frozen
class ModelFacts:
    """What a model file says of itself.

    Attributes:
        kind: `model`, `mmproj` (a projector for pictures), `adapter`, ...
        architecture: What llama.cpp calls its family.
        context: The context window it was trained with, in tokens; 0 if it does not say.
        license: Its licence, or "".
        template: Its chat template (Jinja), or "".
    """

    kind: str
    architecture: str
    context: int
    license: str
    template: str


def read_facts(path: Path) -> ModelFacts:
    """Return what a model file says of itself.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file is not GGUF, or is damaged.
    """
    found = _read_pairs(path, _FACTS, suffix=".context_length")
    context = next((v for k, v in found.items() if k.endswith(".context_length")), 0)
    architecture = str(found.get("general.architecture", ""))
    is_projector = architecture == "clip"
    return ModelFacts(
        kind="mmproj" if is_projector else str(found.get("general.type", "model")),
        architecture=architecture,
        context=int(context),
        license=str(found.get("general.license", "")),
        template=str(found.get("tokenizer.chat_template", "")),
    )


_FACTS = (
    "general.type",
    "general.architecture",
    "general.license",
    "tokenizer.chat_template",
)

_TOOLS = re.compile(r"\{[%{][^}]*\btools\b")
_REASONING = re.compile(r"enable_thinking|reasoning_content|<think>|\bthinking\b")


def read_template_abilities(template: str) -> list[str]:
    """Return what a chat template has a place for: `tools`, `reasoning`, or only `chat`."""
    if not template:
        return []
    abilities: list[str] = []
    if _TOOLS.search(template):
        abilities.append("tools")
    if _REASONING.search(template):
        abilities.append("reasoning")
    return abilities or ["chat"]


def _read_pairs(path: Path, wanted: Collection[str], suffix: str = "\0") -> dict[str, Any]:
    """Return the values of the wanted keys, and of those that end with a suffix."""
    found: dict[str, Any] = {}
    with path.open("rb") as file:
        magic, version, _tensors, pairs = struct.unpack("<4sIQQ", _read_exactly(file, 24))
        if magic != b"GGUF" or version not in (2, 3):
            raise ValueError(f"{path} is not a GGUF file of version 2 or 3")
        for _ in range(pairs):
            key = _read_string(file)
            kind = _read_number(file, "I")
            if key in wanted or key.endswith(suffix):
                found[key] = _read_value(file, kind)
            else:
                _skip_value(file, kind)
    return found


def _skip_value(file: BinaryIO, kind: int) -> None:
    if kind == _STRING:
        _skip(file, _read_number(file, "Q"))
        return
    if kind != _ARRAY:
        _skip(file, struct.calcsize(_number_format(kind)))
        return
    inner = _read_number(file, "I")
    count = _read_number(file, "Q")
    if count > _MAX_ARRAY_ELEMENTS:
        raise ValueError(f"an array has {count} elements")
    if inner != _STRING:
        _skip(file, count * struct.calcsize(_number_format(inner)))
        return
    for _ in range(count):
        _skip(file, _read_number(file, "Q"))


def _skip(file: BinaryIO, length: int) -> None:
    if length > _MAX_STRING_BYTES * 16:
        raise ValueError(f"a value has {length} bytes")
    file.seek(length, os.SEEK_CUR)


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
