"""What pages name exists: commands and their options, settings, variables, targets of make, slash
commands, parameters of public functions, and attributes of public classes and modules.

A page is read as a person reads it: its inline code and its blocks. A word of it is looked up only
where its form says what it is, so a finding is a mistake of the page; what belongs to another
program is in `FOREIGN`, by name.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import click
import pytest
import yaml
from source import MODULES, PACKAGE, ROOT
from test_documents import FENCE, PAGES, Page
from test_settings_named import unknown

import ferrule as library
from ferrule.cli.chat.slash_commands import COMMANDS as SLASH_COMMANDS
from ferrule.cli.root import ferrule as root
from ferrule.core import events
from ferrule.storage.settings.table import (
    ALIASES,
    BY_KEY,
    MODEL_SETTINGS,
    PROVIDER_SETTINGS,
    list_installed,
)

KEYS = {*BY_KEY, *list_installed()}

MADE = {"docs/reference.md", "docs/promises.md", "docs/field-reports.md"} | {
    page.shown for page in PAGES if page.path.parent.name == "reference"
}
"""Made of the code, which has tests of its own."""
THEIRS = re.compile(r"^\| *(?:\\\||[^|\n])*\|", re.MULTILINE)
"""The first column of a table: on a page for those who come from elsewhere, names that they know."""
INLINE = re.compile(r"(?<!`)`([^`\n]+(?:\n[^`\n]+)?)`(?!`)")
COMMAND = re.compile(r"(?:^|^\$ |[|;&(] ?)ferrule (?=[a-z-])")
OPTION = re.compile(r"--[a-z][a-z-]*")
VARIABLE = re.compile(r"\bFERRULE_[A-Z_]+\b")
MAKE = re.compile(r"\bmake (lab NAME=[a-z0-9-]+|[a-z][a-z-]+)")
SLASH = re.compile(r"`/([a-z]+)(?: [^`]*)?`")
CALL = re.compile(r"[A-Za-z_.]+\(.*\)", re.DOTALL)
OF_CLASS = re.compile(r"\b([A-Z][A-Za-z0-9]+)(?:\((?:[^()]|\([^()]*\))*\))?\.([a-z_]+)\b")
OF_OBJECT = re.compile(r"(?<![\w.])([a-z]+)\.([a-z_]+)\(")
IN_MODULE = re.compile(r"\bferrule(?:\.[A-Za-z_]\w*)+")
OBJECTS = {
    "agent": ("Agent",),
    "bus": ("Bus",),
    "context": ("Context",),
    "jobs": ("Jobs",),
    "journal": ("Journal",),
    "run": ("RunResult",),
    "server": ("McpServer", "A2aServer"),
    "session": ("Session",),
}
"""What pages call an object, and its classes."""

FOREIGN = {
    "--build-arg": "Docker and Podman",
    "--jinja": "llama.cpp's server",
    "--dangerously-skip-permissions": "Claude Code",
    "--enable-auto-tool-choice": "vLLM",
    "--tool-call-parser": "vLLM",
    "--ferrule-model": "pytest, from our plugin",
    "--ferrule-tool-mode": "pytest, from our plugin",
    "--ferrule-trials": "pytest, from our plugin",
    "--ferrule-judge": "pytest, from our plugin",
    "--ferrule-offline": "pytest, from our plugin",
}
"""Options that pages name alone, and whose they are."""
FOREIGN_SETTINGS = {
    "tools.built_in": "Harbor's, on the page that says it is not here",
}


@dataclass(frozen=True)
class Finding:
    """A name on a page that there is not."""

    where: str
    name: str

    def __str__(self) -> str:
        return f"{self.where}: {self.name}"


# ---- commands


def check_command(words: list[str]) -> Iterator[str]:
    """What a `ferrule …` line names that there is not. `words` begin behind `ferrule`."""
    context = click.Context(root, info_name="ferrule")
    command: click.Command = root
    path = "ferrule"
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        word = words.pop(0)
        if is_placeholder(word):
            return
        found = command.get_command(context, word)
        if found is None:
            yield f"`{path} {word}` is no command"
            return
        command, path = found, f"{path} {word}"
    options = options_of(command)
    for word in words:
        if word in ("--", "|", ">", "&&", ";"):
            return
        option = OPTION.match(word)
        if option and option[0] not in options:
            yield f"`{path}` has no option {option[0]}"


def is_placeholder(word: str) -> bool:
    """Whether a word stands for any command: `NAME`, `…`."""
    return not re.fullmatch(r"[a-z][a-z0-9-]*", word)


def options_of(command: click.Command) -> set[str]:
    names = {"--help", "-h", "--version"}
    for parameter in command.params:
        names.update((*parameter.opts, *parameter.secondary_opts))
    return names


@cache
def all_options() -> frozenset[str]:
    """The options of all commands."""
    found: set[str] = set()
    waiting: list[click.Command] = [root]
    while waiting:
        command = waiting.pop()
        found |= options_of(command)
        if isinstance(command, click.Group):
            context = click.Context(command)
            names = command.list_commands(context)
            waiting += [one for name in names if (one := command.get_command(context, name))]
    return frozenset(found)


def split(line: str) -> list[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError:
        return line.split()


# ---- the rest


@cache
def variables() -> frozenset[str]:
    """Variables of the environment: those of settings, and those that the sources spell out."""
    found = {f"FERRULE_{key.replace('.', '_').upper()}" for key in BY_KEY}
    for folder in (PACKAGE, ROOT / "tests", ROOT / "benchmarks", ROOT / "evals"):
        for path in folder.rglob("*.py"):
            if path.name != "test_pages_named.py":
                found |= set(VARIABLE.findall(path.read_text(encoding="utf-8")))
    return frozenset(found)


@cache
def targets() -> frozenset[str]:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    rows = tomllib.loads((ROOT / "lab.toml").read_text(encoding="utf-8"))
    made = re.findall(r"^([a-z-]+):", makefile, re.MULTILINE)
    return frozenset((*made, *(f"lab NAME={name}" for name in rows)))


def check_call(code: str) -> Iterator[str]:
    """Parameters that an inline `Name(key=…)` gives a public name, and that it does not have."""
    try:
        tree = ast.parse(code.replace("…", "..."), mode="eval")
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield from check_keywords(node, node.func.id)


def check_keywords(call: ast.Call, name: str) -> Iterator[str]:
    target: Any = getattr(library, name, None)
    if name not in library.__all__ or not callable(target):
        return
    try:
        parameters = inspect.signature(target).parameters
    except ValueError:
        return
    open_ended = [one for one in parameters.values() if one.kind is one.VAR_KEYWORD]
    if any(str(one.annotation) != "Never" for one in open_ended):
        return
    for keyword in call.keywords:
        if keyword.arg and keyword.arg not in parameters:
            yield f"`{name}` has no parameter `{keyword.arg}`"


@cache
def public_classes() -> dict[str, list[type[Any]]]:
    """The classes of public modules by name."""
    found: dict[str, list[type[Any]]] = {}
    for path in sorted(PACKAGE.glob("*.py")) + sorted(PACKAGE.glob("*/__init__.py")):
        name = path.relative_to(PACKAGE.parent).with_suffix("").as_posix().replace("/", ".")
        module = importlib.import_module(name.removesuffix(".__init__"))
        for public in getattr(module, "__all__", ()):
            value = getattr(module, public)
            if isinstance(value, type) and value not in found.get(public, []):
                found.setdefault(public, []).append(value)
    return found


@cache
def attributes_of(owner: type[Any]) -> frozenset[str]:
    """What objects of a class have: names of the class, annotated ones, and those that it sets."""
    found = set(dir(owner))
    for one in owner.__mro__:
        found |= set(vars(one).get("__annotations__", {}))
        if one.__module__.startswith("ferrule"):
            found |= set(re.findall(r"\bself\.(\w+)(?:: [^=\n]+)? =", inspect.getsource(one)))
    return frozenset(found)


def check_attributes(code: str, *, of_others: bool) -> Iterator[str]:
    """Attributes of public classes and modules that there are not. On a page about other programs
    an `Agent` may be theirs, so there only modules are looked up.
    """
    named: list[tuple[tuple[str, ...], str]] = []
    if not of_others:
        named += [((owner,), name) for owner, name in OF_CLASS.findall(code)]
        named += [(OBJECTS.get(owner, ()), name) for owner, name in OF_OBJECT.findall(code)]
    for owners, name in named:
        classes = [kind for owner in owners for kind in public_classes().get(owner, ())]
        if classes and not any(name in attributes_of(kind) for kind in classes):
            yield f"`{owners[0]}` has no `{name}`"
    for path in IN_MODULE.findall(code):
        if not is_spelled_out(path) and not is_importable(path):
            yield f"there is no `{path}`"


@cache
def is_spelled_out(name: str) -> bool:
    """Whether a dotted name is that of a file, or of an event, a gauge or a schema, which the
    sources spell out.
    """
    ends_as_file = name.rpartition(".")[2] in ("json", "yaml", "md", "db")
    forms = (f'"{name}', f'"{name.removeprefix("ferrule.")}', f'"{name.rpartition(".")[0]}.{{')
    return ends_as_file or any(form in module.text for module in MODULES for form in forms)


@cache
def is_importable(path: str) -> bool:
    """Whether a dotted name is a module, or what modules have."""
    try:
        importlib.import_module(path)
    except ImportError:
        owner, _, name = path.rpartition(".")
        return bool(owner) and is_importable(owner) and hasattr(find_object(owner), name)
    return True


def find_object(path: str) -> Any:
    """What a dotted name that is importable stands for."""
    try:
        return importlib.import_module(path)
    except ImportError:
        owner, _, name = path.rpartition(".")
        return getattr(find_object(owner), name)


def check_settings(text: str) -> Iterator[str]:
    """Keys of a YAML block that are no settings."""
    tree: object = yaml.safe_load(text)
    if isinstance(tree, dict):
        yield from check_keys(cast("dict[str, Any]", tree), "")


def check_entries(tree: object) -> Iterator[str]:
    """Commands of ours that entries of other programs' JSON start."""
    if isinstance(tree, list):
        for one in cast("list[object]", tree):
            yield from check_entries(one)
    if not isinstance(tree, dict):
        return
    entry = cast("dict[str, Any]", tree)
    if entry.get("command") == "ferrule":
        yield from check_command(list(entry.get("args", ())))
    for one in entry.values():
        yield from check_entries(one)


def check_keys(tree: dict[str, Any], above: str) -> Iterator[str]:
    for name, value in tree.items():
        key = f"{above}{name}"
        if key in ("models", "providers"):
            known = MODEL_SETTINGS if key == "models" else PROVIDER_SETTINGS
            names = {setting.key for setting in known} | {"max_tool_calls_per_turn"}
            for own in cast("dict[str, dict[str, Any]]", value).values():
                yield from (f"{key} have no setting `{one}`" for one in own if one not in names)
        elif isinstance(value, dict) and any(one.startswith(f"{key}.") for one in KEYS):
            yield from check_keys(cast("dict[str, Any]", value), f"{key}.")
        elif key not in KEYS and key not in ALIASES:
            yield f"`{key}` is no setting"


def check_inline(code: str, *, of_others: bool = False) -> Iterator[str]:
    """What a piece of inline code names that there is not."""
    code = " ".join(code.split())
    yield from check_attributes(code, of_others=of_others)
    if COMMAND.match(code):
        yield from check_command(split(code)[1:])
    elif code.startswith("--"):
        for option in OPTION.findall(code):
            if option not in all_options() and option not in FOREIGN:
                yield f"no command has the option {option}"
    elif code.startswith("make "):
        yield from (f"`make {one}`" for one in MAKE.findall(code) if one not in targets())
    elif CALL.fullmatch(code):
        yield from check_call(code)
    for name in unknown(f"`{code}`"):
        if name not in FOREIGN_SETTINGS and not is_in_sources(name):
            yield f"`{name}` is no setting"
    yield from check_variables(code)


def is_in_sources(name: str) -> bool:
    """Whether a dotted name is something else than a setting: a module, what a tool's context has,
    an event.
    """
    owner, _, rest = name.partition(".")
    event = "".join(word.title() for word in re.split(r"[._]", name))
    return (
        (PACKAGE / owner / f"{rest}.py").exists()
        or (owner == "context" and hasattr(library.Context, rest))
        or event in vars(events)
        or any(f'"{name}"' in module.text for module in MODULES)
    )


def check_variables(text: str) -> Iterator[str]:
    for name in VARIABLE.findall(text):
        if name not in variables():
            yield f"`{name}` is no variable"


def check_block(info: list[str], body: str) -> Iterator[str]:
    """What a block names that there is not."""
    if "theirs" in info:
        return
    for line in body.replace("\\\n", " ").splitlines():
        if info[:1] not in (["python"], ["text"]):
            for match in COMMAND.finditer(line):
                yield from check_command(split(line[match.end() :]))
        if info[:1] in ([], ["sh"], ["console"]):
            made = re.match(rf"(?:\$ )?{MAKE.pattern}", line)
            if made and made[1] not in targets():
                yield f"`make {made[1]}`"
        yield from check_variables(line)
    if info in (["yaml"], ["yaml", "file=.ferrule/ferrule.yaml"]):
        yield from check_settings(body)
    if info == ["json"]:
        yield from check_entries(json.loads(body))


def findings(shown: str, text: str) -> list[Finding]:
    """All names on a page that there are not."""
    found: list[Finding] = []
    for match in FENCE.finditer(text):
        line = text[: match.start()].count("\n") + 1
        found += [
            Finding(f"{shown}:{line}", one)
            for one in check_block(match["info"].split(), match["body"])
        ]
    prose = FENCE.sub(lambda match: "\n" * match[0].count("\n"), text)
    of_others = shown.startswith("docs/from/")
    if of_others:
        prose = THEIRS.sub("|", prose)
    for match in INLINE.finditer(prose):
        line = prose[: match.start()].count("\n") + 1
        wrong = check_inline(match[1], of_others=of_others)
        found += [Finding(f"{shown}:{line}", one) for one in wrong]
    return found


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.shown not in MADE], ids=lambda page: page.shown
)
def test_what_a_page_names_exists(page: Page) -> None:
    found = findings(page.shown, page.path.read_text(encoding="utf-8"))
    assert not found, "\n".join(map(str, found))


def test_the_slash_commands_of_the_page_about_the_chat_exist() -> None:
    text = FENCE.sub("", (ROOT / "docs/chat.md").read_text(encoding="utf-8"))
    named = set(SLASH.findall(text))
    assert named and named <= set(SLASH_COMMANDS)


WRONG = {
    "`ferrule mcp serve`": "`ferrule mcp serve` is no command",
    "`ferrule run --no-such-option`": "`ferrule run` has no option --no-such-option",
    "`--no-such-option`": "no command has the option --no-such-option",
    "`limits.max_rounds`": "`limits.max_rounds` is no setting",
    "`FERRULE_MODLE`": "`FERRULE_MODLE` is no variable",
    "`make nothing`": "`make nothing`",
    "`Agent(model, way=1)`": "`Agent` has no parameter `way`",
    "`Agent(model, limits=Limits(rounds=1))`": "`Limits` has no parameter `rounds`",
    "`McpServer(agent).running()`": "`McpServer` has no `running`",
    "`session.no_such()`": "`Session` has no `no_such`",
    "`ferrule.storage.nothing`": "there is no `ferrule.storage.nothing`",
    "```console run\n$ ferrule tool list\n```": "`ferrule tool` is no command",
    "```sh\ngit log | ferrule run --shema x\n```": "`ferrule run` has no option --shema",
    "```yaml\ncommands: {shel: true}\n```": "`commands.shel` is no setting",
    "```yaml\nmodels: {x: {num_ctxt: 1}}\n```": "models have no setting `num_ctxt`",
    '```json\n{"a": [{"command": "ferrule", "args": ["serve", "lsp"]}]}\n```': "`ferrule serve lsp` is no command",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_name_that_there_is_not_is_found(text: str) -> None:
    assert [one.name for one in findings("page", f"Before\n\n{text}\n")] == [WRONG[text]]
