"""Runs the parser (`toolkits.code_index.parser`) over contents, and survives what ends it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from ferrule.core.calls import parse_json
from ferrule.core.value_class import frozen
from ferrule.toolkits.process import frame, run_script

from . import languages

_PARSER = Path(__file__).with_name("parser.py")
_SECONDS = 60.0
"""Time for one batch."""
_MAX_OUTPUT = 256 << 20


@frozen
class Definition:
    """A definition of a file: lines from 1, `container` the names around it, `head` its text."""

    name: str
    kind: str
    line: int
    end: int
    container: str
    head: str


@frozen
class FileSymbols:
    """What a file defines and uses (names with their lines). `problem`: why there is nothing."""

    definitions: tuple[Definition, ...] = ()
    uses: dict[str, list[int]] | None = None
    problem: str = ""


async def parse_contents(
    contents: Sequence[tuple[str, bytes]], *, directory: int, nice: int = 0
) -> list[FileSymbols]:
    """Return what is in each content. One that ends the parser has a `problem`.

    Args:
        contents: Names of languages, and sources in them.
        directory: Descriptor of the folder that the process runs in.
        nice: How far the process steps back behind others, 0 to 19.

    Raises:
        ConfigError: tree-sitter is not installed.
        ToolFailed: The parser cannot be started.
    """
    found: list[FileSymbols] = []
    while len(found) < len(contents):
        rest = contents[len(found) :]
        answers, ending = await _run_parser(rest, directory, nice)
        found += answers
        if len(answers) < len(rest):
            # The next content is the one that ended it.
            found.append(FileSymbols(problem=f"the parser ended: {ending}"))
    return found


async def _run_parser(
    contents: Sequence[tuple[str, bytes]], directory: int, nice: int
) -> tuple[list[FileSymbols], str]:
    names = sorted({language for language, _ in contents})
    header = json.dumps({**languages.describe_languages(names), "nice": nice}).encode()
    pieces = [frame(header)]
    for language, content in contents:
        name = language.encode()
        pieces += (bytes([len(name)]), name, frame(content))
    lines, ended = await run_script(
        _PARSER, pieces, directory=directory, timeout=_SECONDS, max_output=_MAX_OUTPUT
    )
    how = "it took too long" if ended.timed_out else ended.signal or f"status {ended.exit_code}"
    return [_read_answer(line) for line in lines[: len(contents)]], how


def _read_answer(line: bytes) -> FileSymbols:
    try:
        answer = cast("dict[str, Any]", parse_json(line))
        if "e" in answer:
            return FileSymbols(problem=str(answer["e"]))
        definitions = tuple(
            Definition(str(name), str(kind), int(first), int(last), str(around), str(head))
            for name, kind, first, last, around, head in answer["d"]
        )
        return FileSymbols(definitions, answer["u"])
    except (ValueError, KeyError, TypeError):
        return FileSymbols(problem="the parser's answer cannot be read")
