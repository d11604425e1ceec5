"""Make a case of a recorded session: its messages, its calls, its answer, and a recording."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ferrule.core.calls import encode_json
from ferrule.core.errors import ConfigError
from ferrule.core.events import DelegationStarted
from ferrule.core.invisible_characters import escape_invisible
from ferrule.core.value_class import frozen
from ferrule.engine.replay.recording import Recording
from ferrule.storage.artifacts.store import ArtifactStore
from ferrule.storage.export.bundles import write_bundle
from ferrule.storage.journal.protocols import Journal

from .evidence import Evidence, MadeCall, read_evidence

_NOT_IN_YAML = re.compile(
    r"[^\t\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)


@frozen
class WrittenCase:
    """The files that were written, and what a person should know of them."""

    case: Path
    recording: Path
    messages: int
    calls: int
    notes: tuple[str, ...]


def write_case(
    journal: Journal,
    session: str,
    folder: Path,
    name: str = "",
    artifacts: ArtifactStore | None = None,
) -> WrittenCase:
    """Write a session of the journal as a file of one case, with its recording beside it.

    Args:
        journal: Where it is.
        session: Its id, or the beginning of it.
        folder: Where the files go; made if it is not there.
        name: The case's name; by default `session-` and the beginning of the id.
        artifacts: Large results of the session.

    Raises:
        ConfigError: A file exists already, or the session has no finished run.
        SessionNotFound, JournalError: It cannot be read.
    """
    found = journal.find(session).session
    records = list(journal.records(found))
    recording = Recording.of(records)
    evidence = read_evidence([records])
    messages = [message.text for message in recording.messages if message.limits is not None]
    if not messages or evidence.stop == "open":
        raise ConfigError(f"session `{found}` has no finished run, so nothing can be expected")
    name = name or f"session-{found[:8]}"
    stem = "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in name)
    case = folder / f"{stem}.cases.yaml"
    bundle = folder / f"{stem}.ferrule"
    for path in (case, bundle):
        if path.exists():
            raise ConfigError(f"`{path}` exists already", hint="choose another --name")
    folder.mkdir(parents=True, exist_ok=True)
    sub_agents = [
        record.event.session for record in records if isinstance(record.event, DelegationStarted)
    ]
    write_bundle(bundle, journal, [found, *sub_agents], artifacts)
    body = _describe_case(name, messages, evidence, bundle.name)
    with case.open("x", encoding="utf-8") as file:
        file.write("\n".join(_format_case(body)) + "\n")
    notes = tuple(_list_notes(recording, evidence))
    own = [call for call in evidence.calls if not call.by_sub_agent]
    return WrittenCase(case, bundle, len(messages), len(own), notes)


def _describe_case(
    name: str, messages: list[str], evidence: Evidence, recording: str
) -> Mapping[str, Any]:
    expect: dict[str, Any] = {
        "calls": [_describe_call(call) for call in evidence.calls if not call.by_sub_agent],
        "other_calls": False,
        "output": {"equals": evidence.output},
    }
    if evidence.stop != "done":
        expect["stop"] = evidence.stop
    ran = [call for call in evidence.calls if call.has_run and not call.by_sub_agent]
    approved = [_describe_call(call, succeeds=False) for call in ran if _changes(call)]
    return {
        "name": name,
        "messages": messages,
        "recording": recording,
        **({"approve": approved} if approved else {}),
        "expect": expect,
    }


def _changes(call: MadeCall) -> bool:
    return call.effect not in ("none", "read", "")


def _describe_call(call: MadeCall, *, succeeds: bool = True) -> Mapping[str, Any]:
    described: dict[str, Any] = {"tool": call.tool}
    if call.arguments is not None:
        described["arguments"] = call.arguments
    if succeeds:
        described["succeeds"] = call.outcome == "success"
    return described


def _format_case(case: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of the file. Values are JSON, which is YAML that needs no care."""
    yield "# Made from a recorded session. `ferrule eval FILE --offline` checks it without a model."
    yield "# For other models and live runs, loosen what need not be the same: `contains` for"
    yield "# `equals`, `include` for `arguments`, and give the files it works on as `fixture`."
    yield "cases:"
    for number, (key, value) in enumerate(case.items()):
        indent = "  - " if number == 0 else "    "
        if key != "expect":
            yield from _format_value(f"{indent}{key}", value, 6)
            continue
        yield f"{indent}expect:"
        for inner, part in value.items():
            yield from _format_value(f"      {inner}", part, 8)


def _format_value(head: str, value: Any, indent: int) -> Iterator[str]:
    if isinstance(value, list) and value:
        yield f"{head}:"
        for item in value:  # pyright: ignore[reportUnknownVariableType]  JSON of our own making
            yield f"{' ' * indent}- {_to_yaml(item)}"
    else:
        yield f"{head}: {_to_yaml(value)}"


def _to_yaml(value: Any) -> str:
    """Return a value as JSON, with YAML's escapes for what it does not allow or nobody sees."""
    text = escape_invisible(encode_json(value), escape=_escape)
    return _NOT_IN_YAML.sub(lambda match: _escape(match[0]), text)


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _list_notes(recording: Recording, evidence: Evidence) -> Iterator[str]:
    if any(message.limits is None for message in recording.messages):
        yield "context that was added without a question is in the recording alone"
    if any(message.media for message in recording.messages):
        yield "pictures and the like of its messages are in the recording alone"
    if recording.history:
        yield "the messages it began with are in the recording alone: live, it begins anew"
    if any(_changes(call) and call.has_run for call in evidence.calls):
        yield "calls that were approved then are approved by the case: read `approve`"
