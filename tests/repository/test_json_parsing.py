"""JSON that is nested too deeply is an error like any other: no reader of JSON lets it out."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from source import MODULES, Module

_OWN_TEXT = {
    "extensions/starlark/inside/frames.py": "our own frames, in a process of its own",
    "permissions/command_analysis/option_parsing.py": "a table of the package",
    "sandbox/backends/kernel_probe.py": "what this module wrote into its pipe",
    "sandbox/backends/probes.py": "what our own probe printed",
    "sandbox/inside/container/channels.py": "our own frames, in a process of its own",
    "testing/sandbox_conformance.py": "what was encoded in the same line",
    "toolkits/code_index/parser.py": "our own frames, in a process of its own",
    "toolkits/stdlib/json_path.py": "one text or number, cut out by an expression",
}
"""Where `json.loads` may stand unguarded, and what it reads there. All else is `parse_json`."""
_CATCHES = {"RecursionError", "RuntimeError", "Exception", "BaseException"}


def unguarded_parsing(module: Module) -> Iterator[int]:
    """Yield the lines with a call of the parser that may let a RecursionError out."""
    if "json" in module.text:
        yield from _walk(module.tree, is_guarded=False)


def _walk(node: ast.AST, *, is_guarded: bool) -> Iterator[int]:
    if isinstance(node, ast.Try):
        caught = {
            name.id
            for handler in node.handlers
            if handler.type is not None
            for name in ast.walk(handler.type)
            if isinstance(name, ast.Name)
        }
        for child in node.body:
            yield from _walk(child, is_guarded=is_guarded or bool(caught & _CATCHES))
        for child in [*node.handlers, *node.orelse, *node.finalbody]:
            yield from _walk(child, is_guarded=is_guarded)
        return
    is_parsing = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    if is_parsing and not is_guarded:
        called = ast.unparse(node.func)
        if called in ("json.loads", "json.load") or called.endswith(".raw_decode"):
            yield node.lineno
    for child in ast.iter_child_nodes(node):
        yield from _walk(child, is_guarded=is_guarded)


def test_json_is_parsed_where_too_deep_a_nesting_is_an_error() -> None:
    found = {
        module.shown.removeprefix("src/ferrule/"): lines
        for module in MODULES
        if (lines := list(unguarded_parsing(module)))
    }
    unnamed = {name: lines for name, lines in found.items() if name not in _OWN_TEXT}
    assert unnamed == {}, "parse_json (ferrule.core.calls) raises ValueError"
    assert sorted(found) == sorted(_OWN_TEXT), "the list may only get shorter"
