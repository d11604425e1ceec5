"""The shape of the code, as figures: of this tree, of earlier commits, of other packages.

    python benchmarks/shape.py                     this tree
    python benchmarks/shape.py HEAD~20 HEAD        commits, side by side
    python benchmarks/shape.py --peer h11 --peer starlette    installed packages beside it

What is counted, per tree of Python files:

    lines, files            of the package, with blank lines and docstrings
    single importers        modules under 80 lines that exactly one other module imports
    late imports            statements that import the package itself inside a function
    lazy imports            the same at the top, in `with lazy_imports():`
    per 1,000 lines         conditional expressions, comprehensions, assignments of tuples to tuples
    ruff C901, radon        functions with a complexity above 10 (radon counts `and`, `or` and
                            comprehensions besides, so it finds more)
    long lines              over 100 columns
    participles             functions that are no property, return no bool, and are named by a
                            participle (names that begin with a verb, and asyncio's, are none)
    str vocabularies        fields annotated `str` whose default is one of a few words
    hints that fail         public callables that `typing.get_type_hints` cannot resolve
    cycles                  groups of modules that import each other at the top level
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import io
import json
import pkgutil
import re
import subprocess
import sys
import tarfile
import tempfile
import typing
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
SMALL = 80
COLUMNS = 100


def words(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


IRREGULAR = words(
    """
    begun bought broken brought built caught chosen done drawn driven drunk eaten fallen felt
    filled forgotten found given gone got grown heard held hidden hung kept known laid
    led left lent lost made meant met paid said seen sent shown sold spent stolen stood stuck
    sunk swept taken taught thought thrown told understood woken won worn written
    """
)
"""Participles that do not end in -ed or -ing."""
PLAIN = words(
    """
    need feed seed speed exceed proceed embed read shed bring ring ping
    """
)
"""Words that only look like participles."""
NOUNS = words(
    """
    beginning building encoding ending framing heading mapping meaning recording sampling
    setting spelling spending string timing warning
    """
)
"""Nouns in -ing: exact names of what is returned."""
VERBS = words(
    """
    abandon abort accept acquire adapt add admit advance aim allow analyse announce append
    apply approve archive arrange ask assemble assert assign attach authorize await become
    begin bind block bound bring build cache calculate call can cancel capture change check
    choose claim classify clean clear clone close collect combine compact compare compile
    complete compute conclude configure confine confirm connect consume continue convert copy
    count cover create cut decide declare decode decorate define delegate delete deliver deny
    derive describe detect digest disable discard disconnect discover display do download
    draft drain draw drive drop dump elide embed emit enable encode end enqueue ensure enter
    escape estimate evaluate execute exit expand expect explain export expose extend extract
    fail feed fence fetch fill filter find finish fire fit fix flush fold follow forbid forget
    fork format forward free from fuse gather generate get give grant group guard guess hand
    handle has hash hide hold identify ignore import indent insert inspect install interpret
    invoke is join judge keep kill launch learn leave let link list listen load locate lock
    log look lose lower make map mark mask match may mean measure mend merge mount move name
    narrow negotiate normalize note notify observe offer open order pad parse pass pause
    perform permit pick plan poll post prefer prepare prepend preview print probe promote
    propose prove publish pull put query quote raise range rank reach read rebuild recall
    receive reclaim recognize record recover redact redirect refresh refuse register reject
    release reload remember remove rename render renew reopen repair replace replay report
    repr request require rerun reset resolve restart restore restrict resume retry return
    revoke rewind rewrite run salvage save scan score seal search select send serve set settle
    shape share shorten show shrink shut sign skip sleep sort spawn spell spend split stage
    start stop store stream strip stub submit subscribe substitute suggest summarize supervise
    swap sweep switch take tell tighten to tokenize touch translate trim truncate trust try
    unpack unquote update upgrade upload use validate verify visit wait wake walk warn watch
    weigh widen work wrap write
    """
)
"""What the names of functions begin with; `remove_archived` says what is done, and to what."""


@dataclass
class Module:
    """One file of the package."""

    name: str
    path: Path
    text: str
    tree: ast.Module
    imports: set[str] = field(default_factory=set[str])
    top_imports: set[str] = field(default_factory=set[str])
    late: int = 0
    lazy: int = 0


def read(folder: Path, package: str) -> dict[str, Module]:
    """Return the modules of a package by dotted name."""
    modules: dict[str, Module] = {}
    for path in sorted(folder.rglob("*.py")):
        parts = (package, *path.relative_to(folder).with_suffix("").parts)
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        text = path.read_text("utf-8")
        modules[name] = Module(name, path, text, ast.parse(text))
    for module in modules.values():
        collect_imports(module, package, modules)
    return modules


def collect_imports(module: Module, package: str, modules: dict[str, Module]) -> None:
    """Note which modules of the package this one imports, and how many imports are in functions."""

    def visit(node: ast.AST, *, late: bool, typing_only: bool, lazy: bool = False) -> None:
        own = {nearest(one, modules) for one in imported_names(node, module)}
        own -= {"", module.name}
        if own:
            module.imports |= own
            if late:
                module.late += 1
            elif not typing_only:
                module.top_imports |= own
                module.lazy += lazy
        late = late or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        lazy = isinstance(node, ast.With) and "lazy_imports" in ast.unparse(node.items[0])
        for_types = typing_children(node)
        for child in ast.iter_child_nodes(node):
            visit(child, late=late, typing_only=typing_only or child in for_types, lazy=lazy)

    visit(module.tree, late=False, typing_only=False)


def imported_names(node: ast.AST, module: Module) -> list[str]:
    """Return the dotted names that an import statement of a module may mean."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    is_package = module.path.name == "__init__.py"
    base = module.name.split(".") if is_package else module.name.split(".")[:-1]
    parts = base[: len(base) - node.level + 1] if node.level else []
    if node.module:
        parts.append(node.module)
    start = ".".join(parts)
    return [f"{start}.{alias.name}" for alias in node.names]


def typing_children(node: ast.AST) -> list[ast.stmt]:
    """Return the statements of `if TYPE_CHECKING:` that only a type checker reads."""
    is_guard = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
    return typing.cast(ast.If, node).body if is_guard else []


def nearest(name: str, modules: dict[str, Module]) -> str:
    """Return the module that a dotted name belongs to; "" if it is not of this package."""
    while name:
        if name in modules:
            return name
        name = name.rpartition(".")[0]
    return ""


def is_participle(name: str) -> bool:
    """Whether a function's name is a participle, or ends with one and does not begin with a verb."""
    parts = [part for part in name.strip("_").split("_") if part]
    if not parts or (len(parts) > 1 and parts[0] in VERBS):
        return False
    last = parts[-1]
    if last in PLAIN or last in NOUNS:
        return False
    return last in IRREGULAR or bool(re.fullmatch(r"[a-z]{2,}(ed|ing)", last))


PROTOCOL = words(
    """
    buffer_updated connection_lost connection_made data_received pause_reading pause_writing
    resume_reading resume_writing wait_closed
    """
)
"""Names that asyncio gives."""


def participle_functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the functions of a module that act or build something, and are named by a participle."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        marks = [ast.unparse(one) for one in node.decorator_list]
        is_value = any("property" in one or one.endswith(".setter") for one in marks)
        returns = ast.unparse(node.returns) if node.returns else ""
        is_given = node.name in PROTOCOL or re.match(r"__|_*(on|test)_", node.name)
        if not is_value and not is_given and returns != "bool" and is_participle(node.name):
            yield node


def count_participles(modules: dict[str, Module]) -> int:
    """Return how many functions that act are named by a participle."""
    return sum(1 for module in modules.values() for _ in participle_functions(module.tree))


def count_vocabularies(modules: dict[str, Module]) -> int:
    """Return how many class fields are plain `str` with a word of a vocabulary as default."""
    found = 0
    for module in modules.values():
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.ClassDef):
                continue
            for item in node.body:
                if not isinstance(item, ast.AnnAssign) or ast.unparse(item.annotation) != "str":
                    continue
                value = item.value
                is_word = isinstance(value, ast.Constant) and isinstance(value.value, str)
                if is_word and re.fullmatch(r"[a-z][a-zA-Z_-]+", typing.cast(str, value.value)):
                    found += 1
    return found


def count_cycles(modules: dict[str, Module]) -> int:
    """Return how many groups of modules import each other at the top level (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups = 0
    sys.setrecursionlimit(10_000)

    def connect(name: str) -> None:
        nonlocal groups
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in modules[name].top_imports:
            if other not in index:
                connect(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            size = 0
            while True:
                size += 1
                if stack.pop() == name:
                    break
            groups += size > 1

    for name in modules:
        if name not in index:
            connect(name)
    return groups


def ruff_complexity(folder: Path) -> int:
    """Return how many functions ruff finds too complex."""
    command = [
        sys.executable,
        *("-m", "ruff", "check", "--isolated", "--select", "C901", "--output-format", "json"),
        *("--config", "lint.mccabe.max-complexity=10", str(folder)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return len(json.loads(done.stdout or "[]"))


def radon_complexity(modules: dict[str, Module]) -> int | str:
    """Return how many functions and methods radon finds above 10; "-" if it is not installed."""
    try:
        from radon.complexity import cc_visit
        from radon.visitors import Function
    except ImportError:
        return "-"
    # Methods are blocks of their own; what is said of a class is their average.
    return sum(
        isinstance(block, Function) and block.complexity > 10
        for module in modules.values()
        for block in cc_visit(module.text)
    )


def failing_hints(package: str) -> int:
    """Return how many public callables of an importable package have hints that fail."""
    found = importlib.import_module(package)
    return sum(1 for _ in failures(found, package))


def failures(module: typing.Any, package: str) -> Iterator[str]:
    """Yield the names of public callables whose hints cannot be resolved."""
    for name in getattr(module, "__all__", ()):
        value = getattr(module, name)
        if not callable(value) or not getattr(value, "__module__", "").startswith(package):
            continue
        callables = [value]
        if inspect.isclass(value):
            callables += [
                one
                for key, one in vars(value).items()
                if inspect.isfunction(one) and (not key.startswith("_") or key == "__init__")
            ]
        for one in callables:
            try:
                typing.get_type_hints(one)
            except Exception as error:  # any failure is what is counted
                yield f"{name}.{getattr(one, '__name__', '')}: {error}"


def measure(folder: Path, package: str, *, live: bool) -> dict[str, object]:
    """Return the figures of the package in this folder."""
    modules = read(folder, package)
    lines = sum(module.text.count("\n") for module in modules.values())
    importers: dict[str, set[str]] = defaultdict(set)
    for module in modules.values():
        for other in module.imports:
            importers[other].add(module.name)
    small = [
        name
        for name, module in modules.items()
        if len(importers[name]) == 1
        and module.text.count("\n") < SMALL
        and module.path.name != "__init__.py"
    ]
    kinds: Counter[str] = Counter()
    for module in modules.values():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.IfExp):
                kinds["conditional"] += 1
            elif isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
                kinds["comprehension"] += 1
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
                kinds["tuple"] += isinstance(node.targets[0], ast.Tuple)
    per = {kind: round(1000 * count / max(lines, 1), 1) for kind, count in kinds.items()}
    return {
        "lines": lines,
        "files": len(modules),
        "single importers < 80 lines": len(small),
        "late imports of itself": sum(module.late for module in modules.values()),
        "lazy imports of itself": sum(module.lazy for module in modules.values()),
        "conditional expressions / 1,000": per.get("conditional", 0),
        "comprehensions / 1,000": per.get("comprehension", 0),
        "tuple assignments / 1,000": per.get("tuple", 0),
        "complex functions (ruff)": ruff_complexity(folder),
        "complex functions (radon)": radon_complexity(modules),
        "lines over 100 columns": sum(
            len(line) > COLUMNS for module in modules.values() for line in module.text.split("\n")
        ),
        "participle functions": count_participles(modules),
        "str vocabularies": count_vocabularies(modules),
        "public hints that fail": failing_hints(package) if live else "-",
        "import cycles": count_cycles(modules),
    }


def measure_commit(revision: str) -> dict[str, object]:
    """Return the figures of `src/ferrule` at a commit."""
    command = ["git", "archive", revision, "src/ferrule"]
    packed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(folder, filter="data")
        return measure(Path(folder) / "src/ferrule", "ferrule", live=False)


def peer_folder(package: str) -> Path:
    """Return where an installed package is."""
    found = pkgutil.resolve_name(package)
    return Path(found.__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("revisions", nargs="*", help="commits to measure beside this tree")
    parser.add_argument("--peer", action="append", default=[], help="an installed package")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--list-hints", action="store_true", help="name the hints that fail")
    options = parser.parse_args()
    if options.list_hints:
        print(*failures(importlib.import_module("ferrule"), "ferrule"), sep="\n")
        return
    columns = {revision: measure_commit(revision) for revision in options.revisions}
    columns["now"] = measure(ROOT / "src/ferrule", "ferrule", live=True)
    for package in options.peer:
        columns[package] = measure(peer_folder(package), package, live=False)
    if options.json:
        print(json.dumps(columns, indent=1))
        return
    width = max(map(len, columns["now"]))
    print(" " * width, *(f"{name[:12]:>12}" for name in columns))
    for row in columns["now"]:
        print(f"{row:{width}}", *(f"{figures[row]!s:>12}" for figures in columns.values()))


if __name__ == "__main__":
    main()
