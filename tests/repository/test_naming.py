"""Names: one word for each idea, as `docs/concepts.md` has it, and verbs for what acts."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module

import pytest
import shape
from source import MODULES, ROOT, Module

from ferrule.storage.settings.table import MODEL_SETTINGS, PROVIDER_SETTINGS, SETTINGS

GIVEN = {
    "abort": "asyncio's word for closing a transport at once",
    "multi_round_requests": "the word of the MCP specification",
    "round_number": "the number is rounded",
}
"""Names that others gave, or in which a word means something else."""


def forbidden_words() -> dict[str, str]:
    """Return the words of the glossary's last column, each with the word to use."""
    found: dict[str, str] = {}
    glossary = (ROOT / "docs/concepts.md").read_text("utf-8").partition("## Glossary")[2]
    for line in glossary.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4:
            found |= dict.fromkeys(re.findall(r"`(\w+)`", cells[3]), cells[0])
    return found


FORBIDDEN = forbidden_words()


def split_name(name: str) -> list[str]:
    """Return the words of a name, in lower case: `SubAgent`, `sub_agent`, `sub-agent`."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name)]


def find_forbidden(name: str) -> list[str]:
    """Return what is wrong with a name, each with the word to use."""
    if name in GIVEN:
        return []
    joined = f"_{'_'.join(split_name(name))}_"
    return [
        f"`{name}`: not `{word}`; the glossary's word is `{good}`"
        for word, good in FORBIDDEN.items()
        if f"_{word}_" in joined
    ]


def names_of(module: Module) -> Iterator[str]:
    """Yield the public names of a module: its own, classes, functions, parameters and fields."""
    yield module.name.rpartition(".")[2]
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ClassDef):
            yield node.name
            fields = [one.target for one in node.body if isinstance(one, ast.AnnAssign)]
            yield from (one.id for one in fields if isinstance(one, ast.Name))
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if is_function and not node.name.startswith(("_", "test_")):
            yield node.name
            arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            yield from (one.arg for one in arguments)


def options() -> Iterator[str]:
    """Yield the long options of the command line, as they are declared."""
    for module in MODULES:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("option"):
                values = [one.value for one in node.args if isinstance(one, ast.Constant)]
                for value in values:
                    if isinstance(value, str):
                        yield from re.findall(r"--[a-z][a-z-]+", value)


def test_modules_classes_functions_and_parameters_have_the_words_of_the_glossary() -> None:
    assert len(FORBIDDEN) > 60 and FORBIDDEN["rung"] == "sandbox backend"
    wrong = [
        f"{module.shown}: {problem}"
        for module in MODULES
        for name in dict.fromkeys(names_of(module))
        for problem in find_forbidden(name)
    ]
    assert wrong == []


def test_settings_and_options_have_the_words_of_the_glossary() -> None:
    keys = [one.key for one in (*SETTINGS, *MODEL_SETTINGS, *PROVIDER_SETTINGS)]
    flags = sorted(set(options()))
    assert len(keys) > 90 and {"--model", "--yes"} <= set(flags)
    assert [problem for name in (*keys, *flags) for problem in find_forbidden(name)] == []


def test_exported_names_have_the_words_of_the_glossary() -> None:
    exported = import_module("ferrule").__all__
    assert [problem for name in exported for problem in find_forbidden(name)] == []


def test_what_acts_is_named_by_a_verb() -> None:
    wrong = [
        f"{module.name}: `{node.name}` is a participle; say what it does"
        for module in MODULES
        for node in shape.participle_functions(module.tree)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "name", ["_told", "shown", "_pool_named", "reasoning", "started_calls_kept"]
)
def test_participles_are_known(name: str) -> None:
    assert shape.is_participle(name)


@pytest.mark.parametrize(
    "name", ["remove_archived", "add_reasoning", "_find_setting", "_set", "read"]
)
def test_verbs_are_no_participles(name: str) -> None:
    assert not shape.is_participle(name)


def test_every_word_that_others_gave_is_still_used() -> None:
    used = {name for module in MODULES for name in names_of(module)}
    assert set(GIVEN) <= used
