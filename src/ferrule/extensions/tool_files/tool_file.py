"""A tool as a file: Markdown whose front matter holds parameters and a Starlark script, and whose
text is the description.

    ---
    parameters:
      command: { type: string, required: true }
    script: |
      def run(args):
          return exec.run("bash", ["-lc", args["command"]], 15000)
    timeout_ms: 30000
    ---
    Run a shell command.

Source: requirement 003. The name is the file's stem; `strict`, `side_effect`, `risk`, `network`,
`policy`, `examples` and `tests` are ours. Keys that mean nothing are warnings. `policy` is that of
every source of tools (`tools.reliability`): attempts, waits, and the time by that name or as
`timeout_ms`. With `async: true` a call is answered at once and the script goes on (`tools.launch`).
The same keys, with `name` and `description`, make a tool inline.

A script that names `http` or `delegate` is `external`, whatever it declares, so that a person is
asked before it runs; a file that declares less is warned of, and a problem for who checks it. All
that a script does goes through tools that have their own gate.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from dataclasses import field as part
from typing import Any

from ferrule.core.calls import compact
from ferrule.core.errors import ConfigError
from ferrule.extensions.front_matter import (
    Warned,
    choice_of,
    field,
    parse_document,
    plain,
    text_of,
    texts_of,
    truth_of,
    unknown_keys,
)
from ferrule.extensions.starlark.script import Script
from ferrule.extensions.web.domains import Domains
from ferrule.storage.settings.yaml_tree import Node
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
    "tests",
)
NO_SCRIPT = (
    "there is no `script`: the tool does nothing without a function of its name in a file of "
    "`tools.python`"
)
INLINE_KEYS = ("name", "description", *KEYS)
_REACHING = frozenset({"http", "delegate"})
_NAMES_REACHING = re.compile(r"\b(?:http|delegate)\b")
_RUN = re.compile(r"^(def[ \t]+run[ \t]*\(|run[ \t]*=)", re.MULTILINE)
_BLOCK = re.compile(r"[|>][-+0-9]*\s*(#.*)?$")


@dataclass(frozen=True, slots=True)
class Case:
    """One entry of `tests`: with these arguments, in a folder that holds `files`, with built-ins
    that answer so, `run` ends so.

    `expects` names what was written of `returns` (the whole value), `contains` (text in what the
    model sees) and `fails` (text in the message, or the error's type); empty if nothing was.
    `leaves` are texts of files afterwards, None for one that is not there; `asks` maps a built-in
    to the arguments that it was asked with at least once.
    """

    where: str
    arguments: Mapping[str, Any]
    answers: Mapping[str, Any]
    returns: Any = None
    fails: str | None = None
    name: str = ""
    expects: str = "returns"
    contains: str = ""
    files: Mapping[str, str] = part(default_factory=dict[str, str])
    leaves: Mapping[str, str | None] = part(default_factory=dict[str, str | None])
    asks: Mapping[str, list[Any]] = part(default_factory=dict[str, list[Any]])

    def wrong(self, value: Any) -> str:
        """What is wrong with a value that `run` returned, or nothing."""
        shown = value if isinstance(value, str) else compact(value)
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


@dataclass(frozen=True, slots=True)
class ToolFile:
    """A tool as it was written.

    `script` None: its handler is a function in Python. `timeout_ms` 0: no bound, the script goes on
    until it or its run ends. `schema` is that of the arguments; `domains` None: what the run may
    reach.
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
    domains: Domains | None = None
    examples: tuple[Mapping[str, Any], ...] = ()
    cases: tuple[Case, ...] = ()
    warnings: tuple[Warned, ...] = ()
    policy: Reliability = Reliability()
    """Attempts and waits; its time is in `timeout_ms`."""


def parse_tool(data: bytes, file: str) -> ToolFile:
    """The tool of a file; `file` is its name as people see it. Raises ConfigError with file, line
    and column.
    """
    document = parse_document(data, file)
    name = file.rpartition("/")[2].removesuffix(".md")
    return _tool(name, document.body or name, document.fields, data, KEYS)


def parse_inline(node: Node, data: bytes) -> ToolFile:
    """A tool within another file, from a mapping with `name` and `description`; `data` is the whole
    file.
    """
    if node.pairs is None:
        raise node.error(
            "a tool must be a mapping", hint="write `- name: my_tool`, and its keys below"
        )
    name = text_of(node, "name")
    if not name:
        raise node.error("a tool without a name", hint="give it a `name`")
    return _tool(name, text_of(node, "description") or name, node, data, INLINE_KEYS)


def _tool(name: str, description: str, node: Node, data: bytes, known: tuple[str, ...]) -> ToolFile:
    try:
        check_name(name)
    except ConfigError as error:
        raise node.error(error.detail, hint=error.hint) from None
    strict = truth_of(node, "strict")
    schema, warned = parse_parameters(field(node, "parameters"), strict=strict)
    script = _script(node, data)
    warned += unknown_keys(node, known, "a tool")
    warned += _suspicions(node, script)
    if less := understated(node, script):
        warned.append(less)
    risk = choice_of(node, "risk", tuple(map(str, Risk)))
    policy = _policy(node)
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
        is_async=truth_of(node, "async"),
        domains=_domains(node),
        examples=_examples(node),
        cases=_cases(node),
        warnings=tuple(warned),
        policy=replace(policy, timeout=None),
    )


def _script(node: Node, data: bytes) -> Script | None:
    source = text_of(node, "script")
    found = field(node, "script")
    if found is None or not source.strip():
        return None
    lines = data.split(b"\n")
    opening = lines[found.line - 1] if found.line <= len(lines) else b""
    # The text of a block scalar begins in the line after its `|`.
    below = _BLOCK.match(opening.decode("utf-8", "replace")[found.column - 1 :]) is not None
    return Script(source, found.file, found.line + below)


def _suspicions(node: Node, script: Script | None) -> list[Warned]:
    found: list[Warned] = []
    if script is None:
        found.append(Warned(node.where, NO_SCRIPT))
    elif not _RUN.search(script.source):
        place = field(node, "script") or node
        found.append(Warned(place.where, "the script defines no function `run(args)`"))
    return found


def _policy(node: Node) -> Reliability:
    found = field(node, "policy")
    if found is None:
        return Reliability()
    return read_policy(plain(found), f"{found.where}: `policy`")


def _timeout(node: Node, name: str, policy: Reliability) -> int:
    found = field(node, "timeout_ms")
    if found is None:
        return round((policy.timeout or 0) * 1000)
    if policy.timeout is not None:
        raise found.error(
            f"tool `{name}`: its time is said twice", hint="`policy.timeout_ms` is the same"
        )
    if type(found.value) is not int:
        raise found.error(f"tool `{name}`: timeout_ms must be a whole number of milliseconds")
    if found.value < 0:
        raise found.error(f"tool `{name}`: timeout_ms must be >= 0", hint="0 means: no bound")
    return found.value


def _side_effect(node: Node, script: Script | None) -> SideEffect:
    said = choice_of(node, "side_effect", tuple(str(one) for one in SideEffect))
    if reaches_out(script):
        return SideEffect.EXTERNAL
    return SideEffect(said) if said else SideEffect.UNDECLARED


def reaches_out(script: Script | None) -> bool:
    """Whether a script names what leads out of the machine, under whatever name it then uses it."""
    if script is None:
        return False
    try:
        tree = ast.parse(script.source)  # Starlark's grammar lies within Python's
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _NAMES_REACHING.search(script.source) is not None
    return any(isinstance(node, ast.Name) and node.id in _REACHING for node in ast.walk(tree))


def understated(node: Node, script: Script | None) -> Warned | None:
    """What is wrong with a declared effect that is less than what the script names; None if it is
    not.
    """
    said = field(node, "side_effect")
    if said is None or said.value == SideEffect.EXTERNAL or not reaches_out(script):
        return None
    message = (
        f"`side_effect: {said.value}` is less than what the script names (`http` or `delegate`): "
        "it is `external`"
    )
    return Warned(said.where, message)


def _domains(node: Node) -> Domains | None:
    entries = texts_of(node, "network")
    if entries is None:
        return None
    if not entries:
        return Domains(
            ((),)
        )  # `network: []` means none; only leaving it out means: what the run may reach.
    try:
        return Domains.parse(entries)
    except ConfigError as error:
        place = field(node, "network") or node
        raise place.error(error.detail, hint=error.hint) from None


def _examples(node: Node) -> tuple[Mapping[str, Any], ...]:
    """`{request, arguments}` each; a mapping without `arguments` is the arguments themselves."""
    found: list[Mapping[str, Any]] = []
    for item in _entries(node, "examples"):
        given = plain(item)
        arguments = given.get("arguments")
        if not isinstance(arguments, dict):
            given = {"arguments": given}
        found.append({"request": str(given.get("request", "")), "arguments": given["arguments"]})
    return tuple(found)


_CASE = ("name", "arguments", "answers", "files", "returns", "contains", "fails", "leaves", "asks")


def _cases(node: Node) -> tuple[Case, ...]:
    return tuple(_case(item) for item in _entries(node, "tests"))


def _case(item: Node) -> Case:
    if wrong := unknown_keys(item, _CASE, "a test"):
        raise ConfigError(str(wrong[0]))
    given: dict[str, Any] = plain(item)
    ends = [key for key in ("returns", "contains", "fails") if key in given]
    if len(ends) > 1 or not {*ends, "leaves", "asks"} & given.keys():
        hint = "or what it `leaves` in files and what it `asks` for"
        raise item.error(
            (
                "a test says either what `run` `returns`, text it `contains` or the text it "
                "`fails` with"
            ),
            hint=hint,
        )
    asks = _mapping(item, "asks")
    if not all(isinstance(one, list) for one in asks.values()):
        raise item.error(
            "`asks` maps a built-in to the list of its arguments",
            hint="asks: { fs.read: [notes.txt] }",
        )
    return Case(
        where=item.where,
        arguments=_mapping(item, "arguments"),
        answers=_mapping(item, "answers"),
        returns=given.get("returns"),
        fails=str(given["fails"]) if "fails" in given else None,
        name=text_of(item, "name"),
        expects=ends[0] if ends else "",
        contains=str(given.get("contains", "")),
        files=_texts(item, "files"),
        leaves=_texts(item, "leaves", none=True),
        asks=asks,
    )


def _texts(node: Node, name: str, *, none: bool = False) -> dict[str, Any]:
    """A mapping of paths below the folder of a test to texts."""
    found = _mapping(node, name)
    for path, text in found.items():
        if not isinstance(text, str) and not (none and text is None):
            raise node.error(f"`{name}`: what `{path}` holds must be text", hint="put it in quotes")
        if path.startswith("/") or ".." in path.split("/") or not path.strip("/."):
            raise node.error(
                f"`{name}`: `{path}` does not name a file below the folder of the test"
            )
    return found


def _entries(node: Node, name: str) -> list[Node]:
    found = field(node, name)
    if found is None:
        return []
    if found.items is None or any(item.pairs is None for item in found.items):
        raise found.error(f"`{name}` must be a list of mappings")
    return found.items


def _mapping(node: Node, name: str) -> dict[str, Any]:
    found = field(node, name)
    if found is None:
        return {}
    if found.pairs is None:
        raise found.error(f"`{name}` must be a mapping")
    return plain(found)
