"""The languages of the index: their file endings, grammars and queries.

A grammar is a package of its own on PyPI (extra `index`), and its query a file in `queries`. A
language whose grammar is not installed is left out.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ferrule.core.errors import ConfigError
from ferrule.core.value_class import frozen

INSTALL_HINT = "pip install 'ferrule[index]'"
_QUERIES = Path(__file__).with_name("queries")


@frozen
class Language:
    """A language. `function` of `module` returns its grammar; `query` names a file in `queries`."""

    name: str
    module: str
    endings: tuple[str, ...]
    function: str = "language"
    query: str = ""

    def read_query(self) -> str:
        """Return the query that finds definitions and uses of names."""
        return (_QUERIES / f"{self.query or self.name}.scm").read_text()


LANGUAGES: tuple[Language, ...] = (
    Language("python", "tree_sitter_python", (".py", ".pyi")),
    Language("javascript", "tree_sitter_javascript", (".js", ".jsx", ".mjs", ".cjs")),
    Language(
        "typescript",
        "tree_sitter_typescript",
        (".ts", ".mts", ".cts"),
        function="language_typescript",
    ),
    Language(
        "tsx", "tree_sitter_typescript", (".tsx",), function="language_tsx", query="typescript"
    ),
    Language("go", "tree_sitter_go", (".go",)),
    Language("rust", "tree_sitter_rust", (".rs",)),
    Language("java", "tree_sitter_java", (".java",)),
    Language("c", "tree_sitter_c", (".c",)),
    # A header may be C++, whose grammar reads C too.
    Language(
        "cpp",
        "tree_sitter_cpp",
        (".cpp", ".cc", ".cxx", ".hpp", ".hh", ".hxx", ".h", ".ipp", ".cu"),
    ),
    Language("c_sharp", "tree_sitter_c_sharp", (".cs",)),
    Language("ruby", "tree_sitter_ruby", (".rb", ".rake")),
    Language("php", "tree_sitter_php", (".php",), function="language_php"),
    Language("kotlin", "tree_sitter_kotlin", (".kt", ".kts")),
    Language("swift", "tree_sitter_swift", (".swift",)),
    Language("scala", "tree_sitter_scala", (".scala", ".sc")),
    Language("bash", "tree_sitter_bash", (".sh", ".bash")),
    Language("lua", "tree_sitter_lua", (".lua",)),
)

BY_NAME = {language.name: language for language in LANGUAGES}
_BY_ENDING = {ending: language for language in LANGUAGES for ending in language.endings}


def find_language(path: str) -> Language | None:
    """Return the language of a file by the ending of its name; None if it is not indexed."""
    dot = path.rfind(".")
    language = _BY_ENDING.get(path[dot:].lower()) if dot >= 0 else None
    return language if language is not None and _find_package(language.module) else None


def list_installed() -> tuple[str, ...]:
    """Return the names of the languages whose grammars are installed."""
    return tuple(language.name for language in LANGUAGES if _find_package(language.module))


def describe_languages(names: list[str]) -> dict[str, Any]:
    """Return what the parser is told of these languages, and where their packages are.

    Raises:
        ConfigError: The package `tree-sitter` is missing.
    """
    chosen = [BY_NAME[name] for name in names]
    folders = {_find_package(language.module) for language in chosen}
    library = _find_package("tree_sitter")
    if not library:
        raise ConfigError("the code index needs the package `tree-sitter`", hint=INSTALL_HINT)
    return {
        "paths": sorted(filter(None, {library, *folders})),
        "languages": {
            language.name: [language.module, language.function, language.read_query()]
            for language in chosen
        },
    }


@lru_cache(maxsize=64)
def _find_package(module: str) -> str:
    """Return the folder that contains a package; empty if it is not installed. Imports nothing."""
    found = find_spec(module)
    if found is None or found.origin is None:
        return ""
    return str(Path(found.origin).parent.parent)
