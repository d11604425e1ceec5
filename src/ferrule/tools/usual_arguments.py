"""Arguments under the names that models know from other tools: taken, with a note.

    {"file_path": "a.py", "start_line": 3}   is   {"path": "a.py", "line_start": 3}

Only for tools that ship: what a person's own tool is sent stays what the model wrote. A name counts
only where the tool has none of that name and its own was not given, so nothing is guessed. Texts
that say why a call is made (`description`) are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

from .definition import Arguments, CheckedArguments, Tool

_PATHS = (
    "file_path filepath filePath file filename file_name target_file absolute_path relative_path "
    "relative_workspace_path dir_path directory_path directory folder"
)
USUAL_NAMES: Mapping[str, tuple[str, ...]] = {
    name: tuple(others.split())
    for name, others in {
        "path": _PATHS,
        "command": "cmd shell_command command_line script",
        "cwd": "workdir working_directory working_dir directory dir_path",
        "background": "run_in_background is_background",
        "timeout": "timeout_seconds timeout_secs timeout_s",
        "content": "contents file_text file_content text",
        "old_string": "old_str old_text oldString oldText search",
        "new_string": "new_str new_text newString newText replace replacement",
        "new_content": "content new_str new_string new_text insert_text text",
        "line_start": "start_line first_line from_line start",
        "line_end": "end_line last_line to_line end",
        "line_count": "lines count n limit",
        "pattern": "query regex regexp search_pattern search",
        "file_filter": "include glob include_pattern file_pattern",
        "case_insensitive": "ignore_case -i",
        "context_lines": "context -C -A -B",
        "max_results": "limit head_limit max_count",
        "max_entries": "limit",
        "show_hidden": "hidden all",
        "input": "patch patch_text diff",
        "patch": "input patch_text diff",
        "source": "src source_path old_path from",
        "target": "destination dest dst target_path new_path to",
        "artifact": "ref reference artifact_ref",
    }.items()
}
"""Names that other tools give to a parameter, by the name that ours have."""
REASONS = ("description", "explanation", "reason", "reasoning", "justification", "thought")
"""Arguments that say why a call is made."""
_SHOWN_ANYWAY = ("output_mode", "-n", "line_numbers", "show_line_numbers")
"""Arguments of searches for what ours always shows: rows with their numbers."""
_MEANT = frozenset({"command", "timeout"})
"""Arguments whose values other tools write in another form or unit."""
_SHELLS = frozenset({"bash", "/bin/bash", "/usr/bin/bash"})
_READS_TEXT = ({"-c"}, {"-lc"}, {"-l", "-c"})
_MAX_SECONDS = 3600
"""What commands take at most; a larger `timeout` is what others write: milliseconds."""


def accept_usual_arguments(tool: Tool) -> Tool:
    """Return a tool whose calls may use the usual names."""
    return replace(tool, arguments=UsualArguments(tool.arguments))


class UsualArguments:
    """Arguments that are also taken under usual names. What a model is shown stays the same."""

    def __init__(self, own: Arguments) -> None:
        self._own = own

    @property
    def schema(self) -> Mapping[str, Any]:
        """The schema of the tool, without the other names."""
        return self._own.schema

    def check(self, arguments: Mapping[str, Any]) -> CheckedArguments:
        """Check arguments under their own names or usual ones; each of those is a repair."""
        properties = cast("Mapping[str, Any]", self.schema.get("properties", {}))
        if all(name in properties for name in arguments) and not _MEANT.intersection(arguments):
            return self._own.check(arguments)
        given: dict[str, Any] = {}
        notes: list[str] = []
        for name, value in arguments.items():
            if name in properties:
                given[name] = value
            elif name in REASONS and isinstance(value, str):
                notes.append(f"`{name}` is not used")
            elif name in _SHOWN_ANYWAY and "context_lines" in properties:
                notes.append(f"`{name}` is not used: rows come with file and number")
            elif own := _find_own(name, properties, {**arguments, **given}):
                given[own] = value
                notes.append(f"`{name}` is `{own}` here")
            else:
                given[name] = value
        notes += filter(None, (_read_offset(given, properties), _read_timeout(given, properties)))
        notes += _read_shell(given, properties)
        checked = self._own.check(given)
        checked.repairs[:0] = notes
        return checked


def _find_own(name: str, properties: Mapping[str, Any], taken: Mapping[str, Any]) -> str:
    """Return the parameter that a usual name means; "" if there is none that is still free."""
    for own, others in USUAL_NAMES.items():
        if own in properties and own not in taken and name in others:
            return own
    return ""


def _read_timeout(given: dict[str, Any], properties: Mapping[str, Any]) -> str:
    """Take a timeout in milliseconds for the seconds of ours. Return what was done, or "".

    A family's own `timeout` of whole milliseconds is what its models write, and stays.
    """
    if "command" not in properties or not _takes_fractions(properties.get("timeout", {})):
        return ""
    name = "timeout_ms" if "timeout_ms" in given else "timeout"
    value = given.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return ""
    if name == "timeout" and value <= _MAX_SECONDS:
        return ""
    if name not in properties and "timeout" in given:
        return ""
    del given[name]
    given["timeout"] = value / 1000
    return f"`{name}`: {value} is read as milliseconds; `timeout` is in seconds here"


def _takes_fractions(schema: Mapping[str, Any]) -> bool:
    """Return whether a parameter is a number that need not be whole."""
    kinds = [schema, *schema.get("anyOf", ())]
    return any("number" in one.get("type", ()) for one in kinds)


def _read_shell(given: dict[str, Any], properties: Mapping[str, Any]) -> Iterator[str]:
    """Take what other shells have as arguments for words of the command line. Yield what was done.

    A list that only has bash read a text is that text: a login shell would forget the session's
    PATH. All else only for a shell without such arguments, whose command line can say the same.
    """
    command = given.get("command")
    if "restart" not in properties:
        return
    if isinstance(command, list) and (text := _find_shell_text(cast("list[object]", command))):
        given["command"] = command = text
        yield "`command` is read by bash here; give the text alone"
    if not isinstance(command, str):
        return
    for name in (*USUAL_NAMES["background"], "background"):
        if name not in properties and isinstance(given.get(name), bool):
            if given.pop(name):
                given["command"] = f"{command.rstrip().removesuffix('&').rstrip()} &"
            yield f"`{name}` is ` &` at the end of the command here"
    for name in (*USUAL_NAMES["timeout"], "timeout", "timeout_ms"):
        has_own = "timeout" in properties or name in properties
        if not has_own and type(given.get(name)) in (int, float):
            del given[name]
            yield f"`{name}` is not used; `timeout 60 COMMAND` bounds a command"


def _find_shell_text(words: list[object]) -> str:
    """Return the text in `["bash", "-lc", TEXT]`; "" if the list is another one."""
    *options, text = words or [""]
    if len(options) < 2 or options[0] not in _SHELLS or set(options[1:]) not in _READS_TEXT:
        return ""
    return text if isinstance(text, str) else ""


def _read_offset(given: dict[str, Any], properties: Mapping[str, Any]) -> str:
    """Take `offset` and `limit` for the lines of a read. Return what was done, or ""."""
    if not {"line_start", "line_end"} <= set(properties) or "new_content" in properties:
        return ""
    numbers = [given.get(name) for name in ("offset", "limit")]
    wanted = {name for name in ("offset", "limit") if name in given and name not in properties}
    if not wanted or not all(number is None or type(number) is int for number in numbers):
        return ""
    if {"line_start", "line_end"} & set(given):
        return ""
    offset, limit = numbers
    first = max(1, offset or 1)
    given["line_start"] = first
    if limit is not None:
        given["line_end"] = first + max(1, limit) - 1
    for name in wanted:
        del given[name]
    return "`offset` and `limit` are `line_start` and `line_end` here, lines from 1"
