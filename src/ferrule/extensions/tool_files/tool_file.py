"""Parse a tool file: Markdown with parameters and a Starlark script, and a description as its text.

    ---
    parameters:
      command: { type: string, required: true }
    script: |
      def run(args):
          return exec.run("bash", ["-lc", args["command"]], 15000)
    timeout_ms: 30000
    ---
    Run a shell command.

Source: requirement 003. The name is the file's stem. `strict`, `side_effect`, `risk`, `network`,
`policy`, `examples` and `tests` are ours. Unknown keys are warnings. `policy` is the same as for
every source of tools (`tools.reliability`): attempts, waits, and the timeout by that name or as
`timeout_ms`. With `async: true` a call is answered at once and the script goes on
(`tools.background_launch`). The same keys, with `name` and `description`, make a tool inline.

A script that names `http` or `delegate` is `external`, whatever it declares, so that a person is
asked before it runs. A file that declares less gets a warning, which is a problem for those who
check it. Everything else a script does goes through tools that have their own gate.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any, Literal, get_args

from ferrule.core.calls import encode_json
from ferrule.core.errors import ConfigError
from ferrule.core.value_class import frozen
from ferrule.engine.web.domains import AllowedDomains
from ferrule.extensions.front_matter import (
    FileWarning,
    find_unknown_keys,
    get_bool,
    get_choice,
    get_field,
    get_text,
    get_texts,
    parse_document,
    read_output_schema,
)
from ferrule.extensions.starlark.script import Script
from ferrule.storage.settings.yaml_tree import Node, to_plain
from ferrule.tools.define import compile_schema
from ferrule.tools.definition import Risk, SideEffect
from ferrule.tools.names import check_name
from ferrule.tools.reliability import Reliability, read_policy

from .parameters import parse_parameters

KEYS = (
    "parameters",
    "script",
    "timeout_ms",
    "policy",
    "async",
    "strict",
    "side_effect",
    "risk",
    "network",
    "examples",
    "output",
    "tests",
)
NO_SCRIPT = (
    "there is no `script`: the tool does nothing without a function of its name in a file of "
    "`tools.python`"
)
INLINE_KEYS = ("name", "description", *KEYS)
_EXTERNAL_NAMES = frozenset({"http", "delegate"})
_EXTERNAL_NAME = re.compile(r"\b(?:http|delegate)\b")
_RUN = re.compile(r"^(def[ \t]+run[ \t]*\(|run[ \t]*=)", re.MULTILINE)
_BLOCK = re.compile(r"[|>][-+0-9]*\s*(#.*)?$")

Outcome = Literal["returns", "contains", "fails"]
"""How a test of a tool file says what comes of the call."""

OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)


@frozen
class ToolCase:
    """One entry of `tests`: arguments, files and answers of built-ins, and how `run` should end.

    `expects` names which of `returns` (the whole value), `contains` (text in what the model sees)
    and `fails` (text in the message, or the error's type) was given, or is "". `leaves` are
    contents of files afterwards, None for a file that must not exist. `asks` maps a built-in to
    arguments it must have been called with at least once.
    """

    where: str
    arguments: Mapping[str, Any]
    answers: Mapping[str, Any]
    returns: Any = None
    fails: str | None = None
    name: str = ""
    expects: Outcome | Literal[""] = "returns"
    contains: str = ""
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    leaves: Mapping[str, str | None] = field(default_factory=dict[str, str | None])
    asks: Mapping[str, list[Any]] = field(default_factory=dict[str, list[Any]])

    def check_value(self, value: Any) -> str:
        """Say what is wrong with a value that `run` returned, or return ""."""
        shown = value if isinstance(value, str) else encode_json(value)
        match self.expects:
            case "fails":
                return f"the test should have failed with `{self.fails}`, and returned {value!r}"
            case "returns" if value != self.returns:
                return f"the test returned {value!r}, not {self.returns!r}"
            case "contains" if self.contains not in shown:
                return (
                    f"the test returned {shown[:2000]!r}, which does not contain {self.contains!r}"
                )
            case _:
                return ""


@frozen
class ToolFile:
    """A tool as it was written.

    Without a `script`, its handler is a Python function. With `timeout_ms` 0 the script is not
    stopped until its run ends. `schema` is that of the arguments. `domains` None means: what the
    run may reach.
    """

    name: str
    description: str
    file: str
    schema: Mapping[str, Any]
    script: Script | None
    timeout_ms: int
    side_effect: SideEffect
    risk: Risk | None
    strict: bool = False
    is_async: bool = False
    domains: AllowedDomains | None = None
    examples: tuple[Mapping[str, Any], ...] = ()
    cases: tuple[ToolCase, ...] = ()
    warnings: tuple[FileWarning, ...] = ()
    policy: Reliability = Reliability()
    """Attempts and waits. Its timeout is in `timeout_ms`."""
    output: Mapping[str, Any] | None = None
    """The schema of what `run` returns."""


def parse_tool(data: bytes, file: str) -> ToolFile:
    """Parse a tool file; `file` is its name as people see it.

    Raises:
        ConfigError: The file is invalid. The message has file, line and column.
    """
    document = parse_document(data, file)
    name = find_tool_name(file)
    return _tool(name, document.body or name, document.fields, data, KEYS)


def find_tool_name(file: str) -> str:
    """Return the name of the tool that this file defines: the file's name without `.md`."""
    return file.rpartition("/")[2].removesuffix(".md")


def parse_inline(node: Node, data: bytes) -> ToolFile:
    """Parse a tool within another file, from a mapping with `name` and `description`.

    `data` is the whole file. Raises ConfigError.
    """
    if node.pairs is None:
        raise node.error(
            "a tool must be a mapping", hint="write `- name: my_tool`, and its keys below"
        )
    name = get_text(node, "name")
    if not name:
        raise node.error("a tool without a name", hint="give it a `name`")
    return _tool(name, get_text(node, "description") or name, node, data, INLINE_KEYS)


def _tool(name: str, description: str, node: Node, data: bytes, known: tuple[str, ...]) -> ToolFile:
    try:
        check_name(name)
    except ConfigError as error:
        raise node.error(error.detail, hint=error.hint) from None
    strict = get_bool(node, "strict")
    schema, warnings = parse_parameters(get_field(node, "parameters"), strict=strict)
    script = _script(node, data)
    warnings += find_unknown_keys(node, known, "a tool")
    warnings += _script_warnings(node, script)
    understatement = find_understatement(node, script)
    if understatement:
        warnings.append(understatement)
    risk = get_choice(node, "risk", tuple(map(str, Risk)))
    policy = _policy(node)
    output = read_output_schema(node)
    _check_schema(node, name, "parameters", schema)
    _check_schema(node, name, "output", output)
    return ToolFile(
        name=name,
        description=description,
        file=node.file,
        schema=schema,
        script=script,
        timeout_ms=_timeout(node, name, policy),
        side_effect=_side_effect(node, script),
        risk=Risk(risk) if risk else None,
        strict=strict,
        is_async=get_bool(node, "async"),
        domains=_domains(node),
        examples=_examples(node),
        cases=_cases(node),
        warnings=tuple(warnings),
        policy=replace(policy, timeout=None),
        output=output,
    )


def _check_schema(node: Node, tool: str, key: str, schema: Mapping[str, Any] | None) -> None:
    """Raise a ConfigError with the place of `key` if its schema is no JSON Schema."""
    if schema is None:
        return
    try:
        compile_schema(tool, dict(schema), f"`{key}`")
    except ConfigError as error:
        place = get_field(node, key) or node
        raise place.error(error.detail, hint=error.hint) from error


def _script(node: Node, data: bytes) -> Script | None:
    source = get_text(node, "script")
    found = get_field(node, "script")
    if found is None or not source.strip():
        return None
    lines = data.split(b"\n")
    opening = lines[found.line - 1] if found.line <= len(lines) else b""
    # The text of a block scalar begins in the line after its `|`.
    is_block = _BLOCK.match(opening.decode("utf-8", "replace")[found.column - 1 :]) is not None
    return Script(source, found.file, found.line + 1 if is_block else found.line)


def _script_warnings(node: Node, script: Script | None) -> list[FileWarning]:
    if script is None:
        return [FileWarning(node.where, NO_SCRIPT)]
    if not _RUN.search(script.source):
        place = get_field(node, "script") or node
        return [FileWarning(place.where, "the script defines no function `run(args)`")]
    return []


def _policy(node: Node) -> Reliability:
    found = get_field(node, "policy")
    if found is None:
        return Reliability()
    return read_policy(to_plain(found), f"{found.where}: `policy`")


def _timeout(node: Node, name: str, policy: Reliability) -> int:
    found = get_field(node, "timeout_ms")
    if found is None:
        return round((policy.timeout or 0) * 1000)
    if policy.timeout is not None:
        raise found.error(
            f"tool `{name}`: its timeout is given twice", hint="`policy.timeout_ms` is the same"
        )
    if type(found.value) is not int:
        raise found.error(f"tool `{name}`: timeout_ms must be a whole number of milliseconds")
    if found.value < 0:
        raise found.error(f"tool `{name}`: timeout_ms must be >= 0", hint="0 means: no timeout")
    return found.value


def _side_effect(node: Node, script: Script | None) -> SideEffect:
    declared = get_choice(node, "side_effect", tuple(map(str, SideEffect)))
    if is_external(script):
        return SideEffect.EXTERNAL
    return SideEffect(declared) if declared else SideEffect.UNDECLARED


def is_external(script: Script | None) -> bool:
    """Return whether a script names `http` or `delegate`, even if only to give it another name."""
    if script is None:
        return False
    try:
        tree = ast.parse(script.source)  # Starlark's grammar lies within Python's
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _EXTERNAL_NAME.search(script.source) is not None
    return any(isinstance(node, ast.Name) and node.id in _EXTERNAL_NAMES for node in ast.walk(tree))


def find_understatement(node: Node, script: Script | None) -> FileWarning | None:
    """Return a warning if the declared side effect is less than what the script names."""
    declared = get_field(node, "side_effect")
    if declared is None or declared.value == SideEffect.EXTERNAL or not is_external(script):
        return None
    message = (
        f"`side_effect: {declared.value}` is less than what the script names (`http` or "
        "`delegate`): it is `external`"
    )
    return FileWarning(declared.where, message)


def _domains(node: Node) -> AllowedDomains | None:
    entries = get_texts(node, "network")
    if entries is None:
        return None
    if not entries:
        # `network: []` means no host at all. Without the key, the limits of the run apply.
        return AllowedDomains(((),))
    try:
        return AllowedDomains.parse(entries)
    except ConfigError as error:
        place = get_field(node, "network") or node
        raise place.error(error.detail, hint=error.hint) from None


def _examples(node: Node) -> tuple[Mapping[str, Any], ...]:
    """Parse the examples: `{request, arguments}` each, or only the mapping of arguments."""
    found: list[Mapping[str, Any]] = []
    for item in _entries(node, "examples"):
        given = to_plain(item)
        arguments = given.get("arguments")
        if not isinstance(arguments, dict):
            given = {"arguments": given}
        found.append({"request": str(given.get("request", "")), "arguments": given["arguments"]})
    return tuple(found)


_CASE_KEYS = (
    "name",
    "arguments",
    "answers",
    "files",
    "returns",
    "contains",
    "fails",
    "leaves",
    "asks",
)


def _cases(node: Node) -> tuple[ToolCase, ...]:
    return tuple(_case(item) for item in _entries(node, "tests"))


def _case(item: Node) -> ToolCase:
    unknown = find_unknown_keys(item, _CASE_KEYS, "a test")
    if unknown:
        raise ConfigError(str(unknown[0]))
    given: dict[str, Any] = to_plain(item)
    outcomes: list[Outcome] = [outcome for outcome in OUTCOMES if outcome in given]
    if len(outcomes) > 1 or not {*outcomes, "leaves", "asks"} & given.keys():
        raise item.error(
            "a test says either what `run` `returns`, text it `contains` or the text it `fails` "
            "with",
            hint="or what it `leaves` in files and what it `asks` for",
        )
    expects: Outcome | Literal[""] = outcomes[0] if outcomes else ""
    asks = _read_mapping(item, "asks")
    if not all(isinstance(arguments, list) for arguments in asks.values()):
        raise item.error(
            "`asks` maps a built-in to the list of its arguments",
            hint="asks: { fs.read: [notes.txt] }",
        )
    return ToolCase(
        where=item.where,
        arguments=_read_mapping(item, "arguments"),
        answers=_read_mapping(item, "answers"),
        returns=given.get("returns"),
        fails=str(given["fails"]) if "fails" in given else None,
        name=get_text(item, "name"),
        expects=expects,
        contains=str(given.get("contains", "")),
        files=_texts(item, "files"),
        leaves=_texts(item, "leaves", allow_none=True),
        asks=asks,
    )


def _texts(node: Node, name: str, *, allow_none: bool = False) -> dict[str, Any]:
    """Return a mapping from paths below the folder of a test to texts."""
    found = _read_mapping(node, name)
    for path, text in found.items():
        if not isinstance(text, str) and not (allow_none and text is None):
            raise node.error(f"`{name}`: what `{path}` holds must be text", hint="put it in quotes")
        if path.startswith("/") or ".." in path.split("/") or not path.strip("/."):
            raise node.error(
                f"`{name}`: `{path}` does not name a file below the folder of the test"
            )
    return found


def _entries(node: Node, name: str) -> list[Node]:
    found = get_field(node, name)
    if found is None:
        return []
    if found.items is None or any(item.pairs is None for item in found.items):
        raise found.error(f"`{name}` must be a list of mappings")
    return found.items


def _read_mapping(node: Node, name: str) -> dict[str, Any]:
    found = get_field(node, name)
    if found is None:
        return {}
    if found.pairs is None:
        raise found.error(f"`{name}` must be a mapping")
    return to_plain(found)
