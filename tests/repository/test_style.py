"""Names, broad handlers and suppressions: what keeps the code honest to read."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from source import MODULES, ROOT

FORBIDDEN_WORDS = ("util", "utils", "manager", "managers", "helper", "helpers")


def names() -> Iterator[tuple[str, str]]:
    for module in MODULES:
        yield module.shown, module.name.rpartition(".")[2]
        for node in ast.walk(module.tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                yield f"{module.shown}:{node.lineno}", node.name


def test_no_name_says_nothing() -> None:
    wrong = [
        f"{where} `{name}`"
        for where, name in names()
        if set(re.findall(r"[A-Z]?[a-z]+", name.replace("_", " ")))
        & {w for f in FORBIDDEN_WORDS for w in (f, f.title())}
    ]
    assert not wrong, "\n".join(wrong)


BROAD = {"Exception", "BaseException"}


def broad(handler: ast.ExceptHandler) -> bool:
    caught = handler.type
    kinds = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return caught is None or any(isinstance(kind, ast.Name) and kind.id in BROAD for kind in kinds)


def test_catching_everything_has_a_reason_and_is_never_silent() -> None:
    wrong: list[str] = []
    for module in MODULES:
        source = module.text.splitlines()
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ExceptHandler) and broad(node):
                said = re.search(r"#\s*noqa: BLE001\s+\S.{9,}$", source[node.lineno - 1])
                # With a cause, nothing of the error is lost.
                raises = any(
                    isinstance(inner, ast.Raise) and (inner.exc is None or inner.cause is not None)
                    for inner in ast.walk(node)
                )
                if not said and not raises:
                    wrong.append(f"{module.shown}:{node.lineno} has no reason")
                if all(isinstance(inner, ast.Pass) for inner in node.body):
                    wrong.append(f"{module.shown}:{node.lineno} is silent")
    assert not wrong, "\n".join(wrong)


def test_every_suppression_carries_its_code_and_a_reason() -> None:
    wrong: list[str] = []
    for module in MODULES:
        for number, line in enumerate(module.text.splitlines(), 1):
            for found in re.finditer(r"#\s*(noqa|type: ignore|pyright: ignore|pragma)(.*)", line):
                kind, rest = found.groups()
                code = r":\s*[A-Z]+\d+(,\s*[A-Z]+\d+)*" if kind == "noqa" else r"\[[\w, -]+\]"
                if not re.match(code, rest):
                    wrong.append(f"{module.shown}:{number} suppresses everything")
                elif kind == "noqa" and not re.match(code + r"[\s(-]+\S", rest):
                    wrong.append(f"{module.shown}:{number} gives no reason")
    assert not wrong, "\n".join(wrong)


def test_no_path_is_resolved_by_what_fails_on_links_in_a_circle() -> None:
    """Until Python 3.13 `Path.resolve` raises RuntimeError there, which nobody expects."""
    wrong = [
        f"{module.shown}:{node.lineno} use os.path.realpath"
        for module in MODULES
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "resolve"
        and not node.args
        and all(keyword.arg == "strict" for keyword in node.keywords)
    ]
    assert not wrong, "\n".join(wrong)


_SECTION = re.compile(r"^(?:Args|Attributes):\n((?:[ ]+.*(?:\n|$)|\n)+)", re.MULTILINE)
_ITEM = re.compile(r"^    \*{0,2}(\w+):", re.MULTILINE)

Documented = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def documented_names(node: Documented) -> list[str]:
    sections = _SECTION.findall(ast.get_docstring(node) or "")
    return [name for section in sections for name in _ITEM.findall(section)]


def argument_names(arguments: ast.arguments) -> set[str]:
    plain = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    starred = [one for one in (arguments.vararg, arguments.kwarg) if one is not None]
    return {one.arg for one in (*plain, *starred)}


def known_names(node: Documented) -> set[str]:
    """Arguments of a function; of a class its fields, attributes and constructor's arguments."""
    if not isinstance(node, ast.ClassDef):
        return argument_names(node.args)
    names: set[str] = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.AnnAssign | ast.Assign):
            targets = [inner.target] if isinstance(inner, ast.AnnAssign) else inner.targets
            names |= {one.id for one in targets if isinstance(one, ast.Name)}
            names |= {one.attr for one in targets if isinstance(one, ast.Attribute)}
        elif isinstance(inner, ast.FunctionDef):
            names.add(inner.name)
            if inner.name == "__init__":
                names |= argument_names(inner.args)
    return names


def test_docstrings_name_arguments_and_attributes_that_exist() -> None:
    wrong: list[str] = []
    for module in MODULES:
        for node in ast.walk(module.tree):
            if isinstance(node, Documented):
                missing = sorted({*documented_names(node)} - known_names(node))
                if missing:
                    wrong.append(f"{module.shown}:{node.lineno} {node.name}: {', '.join(missing)}")
    assert not wrong, "\n".join(wrong)


def is_interpreter(part: ast.expr) -> bool:
    return isinstance(part, ast.FormattedValue) and ast.unparse(part.value) == "sys.executable"


def test_no_text_for_a_shell_has_the_interpreter_unquoted() -> None:
    """A checkout may be in a folder with a blank in its name."""
    wrong: list[str] = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr) and any(map(is_interpreter, node.values)):
                text = ast.unparse(node)
                if " " in text and not re.search(r"""["']\{sys\.executable}["']""", text):
                    wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not wrong, f"shlex.quote(sys.executable) in {wrong}"
