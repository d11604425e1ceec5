"""Settings that the program names to people exist: a hint that leads nowhere is worse than none."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from ferrule.storage.settings.table import (
    ALIASES,
    BY_KEY,
    MODEL_SETTINGS,
    PROVIDER_SETTINGS,
    list_installed,
)

SOURCE = Path(__file__).parents[2] / "src/ferrule"
GROUPS = {key.partition(".")[0] for key in BY_KEY if "." in key}
OWN = {setting.key for setting in (*MODEL_SETTINGS, *PROVIDER_SETTINGS)}
KNOWN = {*BY_KEY, *list_installed(), *ALIASES, *OWN, *GROUPS}
NAMED = re.compile(r"`([a-z_]+(?:\.[a-z_]+)+)\b|`([a-z_]+): ([a-z]+)`")
FILES = (".py", ".db")
"""Endings of names that have the form of a setting and are files."""


def texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Texts of a module that are no docstrings, with their lines."""
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in documentation
        ):
            yield node.lineno, node.value


def unknown(text: str) -> list[str]:
    """Settings that a text names and that there are not."""
    found: list[str] = []
    for match in NAMED.finditer(text):
        dotted, key, _ = match.groups()
        if (
            dotted
            and dotted.partition(".")[0] in GROUPS
            and not dotted.endswith(FILES)
            and dotted not in KNOWN
        ):
            found.append(dotted)
        if key and "setting" in text and key not in KNOWN:
            found.append(key)
    return found


def test_each_setting_that_a_text_of_the_program_names_exists() -> None:
    looked_at = 0
    wrong: list[str] = []
    for file in sorted(SOURCE.rglob("*.py")):
        for line, text in texts(ast.parse(file.read_text(encoding="utf-8"))):
            looked_at += 1
            wrong += [f"{file.relative_to(SOURCE)}:{line}: `{name}`" for name in unknown(text)]
    assert looked_at > 10_000
    assert not wrong, "\n".join(wrong)


def test_a_text_that_names_a_setting_that_there_is_not_is_found() -> None:
    assert unknown("`way: constrained` for it in the settings") == ["way"]
    assert unknown("set `commands.shel: true`") == ["commands.shel"]
    assert unknown("set `commands.shell: true`, `tool_mode: text` in the settings") == []
