"""Files with JSON that is nested too deeply: an error that names the place, never a defect."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ferrule.core.calls import encode_json, parse_json
from ferrule.core.errors import ConfigError, FerruleError, JournalError
from ferrule.core.messages import decode_messages
from ferrule.engine.replay.recording import canonical_json
from ferrule.evaluation.report import Report
from ferrule.permissions.redaction import Redactor
from ferrule.storage.audit.checkpoints import read_checkpoints
from ferrule.storage.audit.export import _Chain, read_export  # pyright: ignore[reportPrivateUsage]
from ferrule.storage.export.jsonl import FORMAT, read_jsonl

DEEP = "[" * 100_000 + "]" * 100_000
HEADER = encode_json({"ferrule": "journal", "format": FORMAT}) + "\n"


def checkpoints(folder: Path) -> object:
    file = folder / "points"
    file.write_text(f"{DEEP}\n")
    return read_checkpoints(file)


def audit_export(folder: Path) -> object:
    return list(read_export([_Chain().add(f'{{"a":{DEEP}}}')]))


def header(_: Path) -> object:
    return list(read_jsonl([f"{DEEP}\n"]))


def line(_: Path) -> object:
    return list(read_jsonl([HEADER, f"{DEEP}\n"]))


def history(_: Path) -> object:
    return decode_messages(DEEP)


def report(_: Path) -> object:
    return Report.from_json(DEEP)


@pytest.mark.parametrize(
    ("read", "kind", "said"),
    [
        (header, JournalError, "line 1: not a Ferrule export"),
        (line, JournalError, "line 2: not JSON"),
        (audit_export, JournalError, "nested too deeply"),
        (checkpoints, JournalError, "is not a checkpoint"),
        (history, ConfigError, "nested too deeply"),
        (report, ConfigError, "nested too deeply"),
    ],
)
def test_a_file_that_is_nested_too_deeply_is_refused(
    tmp_path: Path, read: Callable[[Path], object], kind: type[FerruleError], said: str
) -> None:
    with pytest.raises(kind, match=said):
        read(tmp_path)


def test_texts_of_strangers_that_are_nested_too_deeply_are_plain_texts() -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json(DEEP)
    assert canonical_json(DEEP) == DEEP
    secret = "sk-ant-api03-" + "a1B2" * 20
    redacted: Any = Redactor().redact_text(f'["{secret}",{DEEP}]')
    assert secret not in redacted and DEEP in redacted
