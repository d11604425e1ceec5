"""Read files of cases. Every mistake is reported at once, with its line and the nearest key.

    models: [local:smollm2]            # asked if the command line names none
    trials: 3
    rubrics: {polite: "The answer is polite and says thank you."}
    defaults: {fixture: shop}          # keys of cases that do not say otherwise
    cases:
      - name: reads the notes
        message: What is in notes.txt?
        expect:
          calls: [{tool: read_file, arguments: {path: notes.txt}}]
          output: {contains: milk}
        never: {changes: ["*"]}

Paths are relative to the file and stay below its folder.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, fields
from pathlib import Path
from typing import Any, TypeVar, cast, get_args

from ferrule.core.errors import ConfigError
from ferrule.core.limits import Limits
from ferrule.core.similar_names import suggest_names
from ferrule.core.value_class import frozen
from ferrule.core.vocabulary import SideEffect
from ferrule.permissions.protected_names import DEFAULT_NAMES
from ferrule.storage.settings.mistakes import Mistakes
from ferrule.storage.settings.table import TOOL_MODES, ToolModeSetting
from ferrule.storage.settings.yaml_tree import MAX_BYTES, Node, parse_yaml, to_plain
from ferrule.tools.safe_patterns import compile_regex

from .cases import (
    EFFECT_ORDER,
    CallOrder,
    Case,
    Expectations,
    ExpectedCall,
    ExpectedText,
    Forbidden,
    WantedStop,
)

T = TypeVar("T")

FILE_KEYS = (
    "models",
    "tool_modes",
    "trials",
    "at_least",
    "judge",
    "rubrics",
    "defaults",
    "cases",
)
CASE_KEYS = (
    "name",
    "message",
    "messages",
    "attach",
    "expect",
    "never",
    "fixture",
    "tools",
    "approve",
    "limits",
    "recording",
    "at_least",
)
_SHARED_KEYS = tuple(
    key for key in CASE_KEYS if key not in ("name", "message", "messages", "attach")
)
_EXPECT_KEYS = ("calls", "order", "other_calls", "output", "files", "stop")
_NEVER_KEYS = ("calls", "changes", "effects_above")
_CALL_KEYS = ("tool", "arguments", "include", "match", "either", "succeeds")
_TEXT_KEYS = ("equals", "contains", "lacks", "regex", "schema", "function", "judge")
_LIMIT_KEYS = tuple(one.name for one in fields(Limits))
MAX_TRIALS = 1_000


@frozen
class CaseFile:
    """A file of cases.

    Attributes:
        path: The file.
        cases: Its cases.
        models: The models that are asked if nobody names others.
        tool_modes: The tool modes in which they are asked.
        trials: How often each case is run.
        at_least: The share of all trials that must pass; None: every case decides for itself.
        judge: The model that judges by rubrics, if nobody names another.
        rubrics: Texts of rubrics, by name.
    """

    path: Path
    cases: tuple[Case, ...]
    models: tuple[str, ...] = ()
    tool_modes: tuple[ToolModeSetting, ...] = ()
    trials: int = 1
    at_least: float | None = None
    judge: str = ""
    rubrics: Mapping[str, str] = field(default_factory=dict[str, str])


def load_cases(path: str | Path) -> CaseFile:
    """Read a file of cases.

    Raises:
        ConfigError: It cannot be read, or is wrong: then the message has a line for each mistake.
    """
    file = Path(path)
    try:
        with file.open("rb") as opened:
            data = opened.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"`{file}` cannot be read: {error.strerror}", code="cases") from error
    return _Reading(file).read(parse_yaml(data, str(path)))


class _Reading:
    """Reads one file. What is wrong is collected and left out meanwhile."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._folder = Path(os.path.realpath(file)).parent
        self._mistakes = Mistakes()
        self._rubrics: dict[str, str] = {}

    def read(self, root: Node) -> CaseFile:
        pairs = self._mapping(root, FILE_KEYS, "a file of cases")
        if "cases" not in pairs and not self._mistakes.errors:
            self._add(root, "has no `cases`", "write `cases:` and a list of cases")
        for name, value in self._pairs(pairs.get("rubrics")):
            self._rubrics[name] = self._text(value)
        shared = self._mapping(pairs.get("defaults"), _SHARED_KEYS, "`defaults`")
        cases: list[Case] = []
        for node in self._list(pairs.get("cases")):
            case = self._read_case(node, shared)
            if case is not None:
                cases.append(case)
        self._check_names(cases)
        file = CaseFile(
            self._file,
            tuple(cases),
            self._texts(pairs.get("models")),
            self._read_tool_modes(pairs.get("tool_modes")),
            self._number(pairs.get("trials"), 1, MAX_TRIALS),
            self._share(pairs["at_least"]) if "at_least" in pairs else None,
            self._text(pairs.get("judge")),
            self._rubrics,
        )
        self._mistakes.raise_all()
        if not cases:
            raise ConfigError(f"{self._file}: has no cases", code="cases")
        return file

    def _read_tool_modes(self, node: Node | None) -> tuple[ToolModeSetting, ...]:
        nodes = [node] if node is not None and node.items is None else self._list(node)
        modes = tuple(self._word(one, TOOL_MODES, "auto") for one in nodes)
        return cast("tuple[ToolModeSetting, ...]", modes)

    # ---- cases

    def _read_case(self, node: Node, shared: Mapping[str, Node]) -> Case | None:
        before = len(self._mistakes.errors)
        own = self._mapping(node, CASE_KEYS, "a case")
        pairs = {**shared, **own}
        name = self._text(own.get("name"))
        if not name and before == len(self._mistakes.errors):
            self._add(node, "a case without `name`", "name it: reports call it by its name")
        fixture = self._path(pairs.get("fixture"))
        if fixture is not None and not fixture.is_dir():
            self._add(pairs["fixture"], f"`{fixture}` is not a folder", "name a folder of files")
        recording = self._path(pairs.get("recording"))
        if recording is not None and not recording.is_file():
            self._add(
                pairs["recording"],
                f"`{recording}` is not a file",
                "`ferrule sessions to-case` writes one",
            )
        case = Case(
            name,
            self._read_messages(node, own),
            self._read_expectations(pairs.get("expect")),
            self._read_forbidden(pairs.get("never")),
            fixture,
            self._texts(pairs["tools"]) if "tools" in pairs else None,
            tuple(self._read_call(one, approves=True) for one in self._list(pairs.get("approve"))),
            self._read_limits(pairs.get("limits")),
            recording,
            self._share(pairs["at_least"]) if "at_least" in pairs else 1.0,
            node.line,
            self._read_attached(own.get("attach")),
        )
        return case if before == len(self._mistakes.errors) else None

    def _read_messages(self, node: Node, own: Mapping[str, Node]) -> tuple[str, ...]:
        if "message" in own and "messages" in own:
            self._add(own["messages"], "`message` and `messages` exclude each other", "choose one")
        found = self._texts(own.get("messages") or own.get("message"))
        if not any(found) and own.keys() <= set(CASE_KEYS):
            self._add(node, "a case without `message`", "write what the model is asked")
        return found

    def _read_attached(self, node: Node | None) -> tuple[Path, ...]:
        listed = self._list(node) if node is None or node.items is not None else [node]
        paths: list[Path] = []
        for one in listed:
            path = self._path(one)
            if path is None:
                continue
            refusal = DEFAULT_NAMES.check(str(path.relative_to(self._folder)), write=False)
            if refusal:
                self._add(one, refusal, "attach another file")
            elif not path.is_file():
                self._add(one, f"`{path}` is not a file", "name a picture, a sound or a document")
            else:
                paths.append(path)
        return tuple(paths)

    def _read_limits(self, node: Node | None) -> dict[str, Any]:
        pairs = self._mapping(node, _LIMIT_KEYS, "`limits`")
        given = {name: to_plain(value) for name, value in pairs.items() if name in _LIMIT_KEYS}
        try:
            Limits(**given)
        except (ConfigError, TypeError) as error:
            detail = error.detail if isinstance(error, ConfigError) else "a value is not a number"
            self._add(cast("Node", node), f"`limits`: {detail}", "")
        return given

    def _check_names(self, cases: Iterable[Case]) -> None:
        lines: dict[str, int] = {}
        for case in cases:
            first = lines.setdefault(case.name, case.line)
            if first != case.line:
                node = Node("", str(self._file), case.line, 1)
                self._add(node, f"a second case `{case.name}` (first in line {first})", "rename it")

    # ---- expectations

    def _read_expectations(self, node: Node | None) -> Expectations:
        pairs = self._mapping(node, _EXPECT_KEYS, "`expect`")
        files = {
            name: None if value.value is None else self._read_text(value, judged=False)
            for name, value in self._pairs(pairs.get("files"))
        }
        calls = None
        if "calls" in pairs:
            calls = tuple(self._read_call(one) for one in self._list(pairs["calls"]))
        return Expectations(
            calls,
            cast("CallOrder", self._word(pairs.get("order"), get_args(CallOrder), "given")),
            self._flag(pairs.get("other_calls"), True),
            self._read_text(pairs.get("output"), judged=True),
            files,
            cast("WantedStop", self._word(pairs.get("stop"), get_args(WantedStop), "done")),
        )

    def _read_call(self, node: Node, *, approves: bool = False) -> ExpectedCall:
        if isinstance(node.value, str):
            return ExpectedCall(node.value)
        pairs = self._mapping(node, _CALL_KEYS, "a call")
        either = tuple(self._read_call(one) for one in self._list(pairs.get("either")))
        tool = self._text(pairs.get("tool"))
        if bool(either) == bool(tool) and pairs.keys() <= set(_CALL_KEYS):
            self._add(node, "a call has either `tool` or `either`", "name the tool that is called")
        if approves and "succeeds" in pairs:
            self._add(pairs["succeeds"], "`succeeds` is not known before a call is approved", "")
        match = {name: self._regex(value) for name, value in self._pairs(pairs.get("match"))}
        return ExpectedCall(
            tool,
            self._plain_mapping(pairs["arguments"]) if "arguments" in pairs else None,
            self._plain_mapping(pairs.get("include")),
            match,
            either,
            self._read_success(pairs.get("succeeds")),
        )

    def _read_success(self, node: Node | None) -> bool | None:
        if node is not None and node.value == "any":
            return None
        if node is not None and not isinstance(node.value, bool):
            self._add(node, "must be true, false or any", "")
        return node is None or bool(node.value)

    def _read_text(self, node: Node | None, *, judged: bool) -> ExpectedText:
        known = _TEXT_KEYS if judged else tuple(k for k in _TEXT_KEYS if k != "judge")
        pairs = self._mapping(node, known, "an expected text")
        rubric = self._text(pairs.get("judge"))
        if rubric and rubric not in self._rubrics:
            hint = suggest_names(rubric, self._rubrics, "write it under `rubrics`")
            self._add(pairs["judge"], f"there is no rubric `{rubric}`", hint)
        function = self._text(pairs.get("function"))
        if function and function.count(":") != 1:
            self._add(pairs["function"], f"`{function}` names no function", "`module:function`")
        return ExpectedText(
            self._text(pairs["equals"]) if "equals" in pairs else None,
            self._texts(pairs.get("contains")),
            self._texts(pairs.get("lacks")),
            self._regex(pairs["regex"]) if "regex" in pairs else "",
            self._schema(pairs.get("schema")),
            function,
            rubric,
        )

    def _read_forbidden(self, node: Node | None) -> Forbidden:
        pairs = self._mapping(node, _NEVER_KEYS, "`never`")
        words = tuple(effect.value for effect in EFFECT_ORDER)
        above = self._word(pairs.get("effects_above"), words, "")
        return Forbidden(
            self._texts(pairs.get("calls")),
            self._texts(pairs.get("changes")),
            SideEffect(above) if above else None,
        )

    def _schema(self, node: Node | None) -> Mapping[str, Any] | None:
        if node is None:
            return None
        from ferrule.engine.output.output_type import SchemaType

        schema = self._plain_mapping(node)
        try:
            SchemaType(schema)
        except ConfigError as error:
            self._add(node, error.detail.removeprefix("output_type: "), "")
        return schema

    # ---- values

    def _add(self, node: Node, message: str, hint: str) -> None:
        error = node.error(message, hint=hint)
        self._mistakes.errors.append(ConfigError(error.detail, code="cases", hint=hint))

    def _pairs(self, node: Node | None) -> Iterator[tuple[str, Node]]:
        if node is None:
            return
        if node.pairs is None:
            self._add(node, "must be a mapping of keys to values", "")
        for name, (_, value) in (node.pairs or {}).items():
            yield name, value

    def _mapping(self, node: Node | None, known: tuple[str, ...], what: str) -> dict[str, Node]:
        """Return the values of a mapping by key. Unknown keys are mistakes."""
        found = dict(self._pairs(node))
        for name in found:
            if name not in known:
                hint = suggest_names(name, known, f"known: {', '.join(known)}")
                assert node is not None and node.pairs is not None
                self._add(node.pairs[name][0], f"`{name}` is not a key of {what}", hint)
        return found

    def _plain_mapping(self, node: Node | None) -> dict[str, Any]:
        return {name: to_plain(value) for name, value in self._pairs(node)}

    def _list(self, node: Node | None) -> list[Node]:
        if node is None:
            return []
        if node.items is None:
            self._add(node, "must be a list", "")
        return node.items or []

    def _texts(self, node: Node | None) -> tuple[str, ...]:
        """Return a list of texts; one text alone is a list of one."""
        if node is not None and node.items is None:
            return (self._text(node),)
        return tuple(self._text(one) for one in self._list(node))

    def _text(self, node: Node | None) -> str:
        if node is None:
            return ""
        if isinstance(node.value, (dict, list)) or node.value is None:
            self._add(node, "must be a text", "")
            return ""
        if isinstance(node.value, bool):
            return "true" if node.value else "false"
        return str(node.value)

    def _check(self, node: Node, value: T, problem: str, is_valid: Callable[[T], bool]) -> T:
        if not is_valid(value):
            self._add(node, f"`{to_plain(node)}`: {problem}", "")
        return value

    def _number(self, node: Node | None, default: int, most: int) -> int:
        if node is None:
            return default
        value = node.value if type(node.value) is int else 0
        problem = f"must be a whole number from 1 to {most}"
        return self._check(node, value, problem, lambda number: 0 < number <= most)

    def _share(self, node: Node) -> float:
        value = parse_share(node.value)
        if value is None:
            self._add(node, f"`{to_plain(node)}` is not a share", "write 0.9 or 90%")
        return value or 0.0

    def _flag(self, node: Node | None, default: bool) -> bool:
        if node is None:
            return default
        return self._check(
            node, node.value, "must be true or false", lambda value: isinstance(value, bool)
        )

    def _word(self, node: Node | None, words: tuple[str, ...], default: str) -> str:
        if node is None:
            return default
        value = self._text(node)
        if value not in words:
            hint = suggest_names(value, words, f"known: {', '.join(words)}")
            self._add(node, f"`{value}` is not known here", hint)
            return default
        return value

    def _regex(self, node: Node) -> str:
        pattern = self._text(node)
        try:
            compile_regex(pattern)
        except ValueError as error:
            self._add(node, str(error), "look-around and back-references do not exist here")
        return pattern

    def _path(self, node: Node | None) -> Path | None:
        if node is None:
            return None
        path = Path(os.path.realpath(self._folder / self._text(node)))
        if not path.is_relative_to(self._folder):
            # A file of cases that somebody sent must not have other folders copied or read.
            self._add(node, f"`{path}` is outside of `{self._folder}`", "keep it beside the file")
            return None
        return path


def parse_share(value: object) -> float | None:
    """Return a share such as `0.9` or `90%`; None if it is none."""
    number = value
    if isinstance(value, str):
        text = value.strip()
        try:
            number = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            return None
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        return None
    return float(number) if 0 <= number <= 1 else None
