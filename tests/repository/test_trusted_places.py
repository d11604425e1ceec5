"""Who says that a person named a place: the callers are known, each with its reason.

The types stop a path without an origin. They do not stop a caller from claiming one: a link that a
repository ships, resolved first and called the person's, would open what it leads to.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest
from source import LOCAL
from source import MODULES as FILES
from source import PACKAGE as SOURCE

PERSON: dict[tuple[str, str], str] = {
    ("extensions/hooks/commands.py", "HookCommandRunner._find_shown"): (
        "a path in the command of a hook of the person's own settings, as it is written there"
    ),
    ("permissions/loaded_code.py", "trust_command_line"): (
        "a program that a person's command line names; looked for where commands cannot write"
    ),
    ("permissions/repositories.py", "trust_repository"): (
        "the repository of the workspace, which names the workspace as its work tree itself"
    ),
    (
        "sandbox/backends/container_engine.py",
        "ContainerEngine.from_record",
    ): "what `ferrule doctor` wrote down",
    ("sandbox/backends/container_engine.py", "find_engine"): "named in settings or found on PATH",
    ("sandbox/view/description.py", "list_shown"): "says what is left out, and opens nothing",
    ("sandbox/view/description.py", "_list_read_only"): "says what is shown, and opens nothing",
    ("sandbox/view/openings.py", "_trust_root"): "the workspace, checked for links before",
    ("sandbox/view/openings.py", "_Resolver.add"): "a path of the policy, as a person wrote it",
    ("sandbox/view/environments.py", "_Search._add"): (
        "an interpreter's layout, outside the workspace and what commands can write"
    ),
    ("toolkits/git/remote.py", "_find_authorities"): "named in the person's own git settings",
}
"""Functions that say `Origin.PERSON`, and why what they say it of is no other's choice."""

DEFINED = "permissions/provenance.py"
TRUSTING = {"trust_path", "trust_place", "find_program", "make_bind"}
RESOLVING = {"realpath", "resolve", "readlink"}


def functions(tree: ast.AST, name: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Yield the functions of a module by their qualified names, and the module as ``."""
    if not name:
        yield "", tree
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            inner = f"{name}.{node.name}".lstrip(".")
            if not isinstance(node, ast.ClassDef):
                yield inner, node
            yield from functions(node, inner)


def own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Yield what lies in a function, but not in those inside of it."""
    waiting = list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            waiting += ast.iter_child_nodes(node)


def last_name(node: ast.AST | None) -> str:
    """The last part of a dotted name."""
    return getattr(node, "attr", "") or getattr(node, "id", "")


def claims(tree: ast.AST) -> set[str]:
    """The functions that say who a person is, in any spelling that would do."""
    found: set[str] = set()
    for name, function in functions(tree):
        for node in own_nodes(function):
            is_said = isinstance(node, ast.Attribute) and node.attr == "PERSON"
            of_class = node.func if isinstance(node, ast.Call) else getattr(node, "value", None)
            is_made = (
                isinstance(node, ast.Call | ast.Subscript)
                and last_name(of_class) == "Origin"
                and re.search(r"'(person|PERSON)'", ast.unparse(node)) is not None
            )
            if is_said or is_made:
                found.add(name)
    return found


def aliases(tree: ast.AST) -> list[str]:
    """What is imported under another name, so that `claims` would not see it."""
    known = {*TRUSTING, "Origin", "PERSON"}
    return [
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name in known and (alias.asname or alias.name == "PERSON")
    ]


def resolved_before(tree: ast.AST) -> list[str]:
    """Calls that trust what they resolved themselves: then no link on the way is seen any more."""
    found: list[str] = []
    for name, function in functions(tree):
        nodes = list(own_nodes(function))
        resolved = {
            target.id
            for node in nodes
            if isinstance(node, ast.Assign) and resolves(node.value)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in nodes:
            if isinstance(node, ast.Call) and last_name(node.func) in TRUSTING:
                first = node.args[0] if node.args else node
                names = {one.id for one in ast.walk(first) if isinstance(one, ast.Name)}
                if resolves(first) or names & resolved:
                    found.append(name)
    return found


def resolves(node: ast.AST) -> bool:
    return any(
        isinstance(one, ast.Call) and last_name(one.func) in RESOLVING for one in ast.walk(node)
    )


def name_of(path: object) -> str:
    for base in (SOURCE, LOCAL.parent):
        if base in path.parents:  # pyright: ignore[reportAttributeAccessIssue]
            return str(path.relative_to(base))  # pyright: ignore[reportAttributeAccessIssue]
    return str(path)


def test_only_known_places_say_that_a_person_named_something() -> None:
    files = [(name_of(file.path), file.tree) for file in FILES]
    assert DEFINED in dict(files)
    found = {(name, one) for name, tree in files if name != DEFINED for one in claims(tree)}
    assert found == PERSON.keys()
    assert [name for name, tree in files if aliases(tree)] == []


def test_nothing_is_trusted_that_its_caller_resolved_itself() -> None:
    """`trust_path` looks at each link on the way: a path that was resolved before has none."""
    found = [(name_of(file.path), one) for file in FILES for one in resolved_before(file.tree)]
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "def f(): trust_path(realpath(x), Origin.PERSON, w, reason='')",
        "def f():\n    p = os.path.realpath(x)\n    trust_path(p, Origin.PERSON, w, reason='')",
        "def f():\n    p = Path(x).resolve()\n    make_bind(str(p), w, Origin.PERSON, '')",
        "async def f():\n    p = os.readlink(x)\n    provenance.trust_place(p, origin, w, reason='')",
    ],
)
def test_a_path_that_was_resolved_before_is_found(text: str) -> None:
    assert resolved_before(ast.parse(text)) == ["f"]


@pytest.mark.parametrize(
    "text",
    [
        "def f(): g(x, Origin.PERSON)",
        "def f(): g(x, provenance.Origin.PERSON)",
        "def f():\n    origin = Origin.PERSON\n    g(x, origin)",
        "def f(): g(x, Origin('person'))",
        "def f(): g(x, Origin['PERSON'])",
        "class C:\n    def f(self): g(x, Origin.PERSON)",
    ],
)
def test_each_way_to_claim_it_is_found(text: str) -> None:
    assert {one.split(".")[-1] for one in claims(ast.parse(text))} == {"f"}
