"""The column "in a repository" of the table of settings, tried: each key, with and without trust.

The page is read as a person reads it; what it says of a key is compared with what a repository that
sets the key gets.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ferrule.core.errors import ConfigError
from ferrule.storage.settings.restrictions import NARROWER_CHOICES
from ferrule.storage.settings.settings import PROJECT_FILE, Settings, load_settings
from ferrule.storage.settings.table import (
    FOLDER_SETTINGS,
    MODEL_SETTINGS,
    PROVIDER_SETTINGS,
    SETTINGS,
    Setting,
)
from ferrule.storage.trust import TrustStore

PAGE = Path(__file__).parents[2] / "docs/settings.md"
ROW = re.compile(r"^\| `([a-z0-9_.]+)` \|(?:[^|]*)\|(?:[^|]*)\| ([^|]+) \|", re.MULTILINE)
SECTIONS: dict[str, tuple[str, tuple[Setting, ...]]] = {
    "Settings": ("", SETTINGS),
    "Per model": ("models.", MODEL_SETTINGS),
    "Per provider": ("providers.", PROVIDER_SETTINGS),
    "Per workspace": ("folders.", FOLDER_SETTINGS),
}
NAMES = {"models.": "openai:gpt", "providers.": "openai"}
RULES = ("Read(a)", "Bash(ls:*)")
HTTP = {"file": "api.yaml"}
VALUES: dict[str, tuple[Any, Any]] = {
    "text": ("a:one", "a:two"),
    "flag": (True, False),
    "names": (["a", "b"], ["b", "c"]),
    "path": ("/one", "/two"),
    "thinking": (True, "low"),
    "actions": ({"/one": ["read"]}, {"/two": ["read"]}),
    "servers": ({"one": {"command": "one"}}, {"two": {"command": "two"}}),
    "policy": ({"max_attempts": 1}, {"max_attempts": 2}),
    "policies": ({"a": {"max_attempts": 1}}, {"b": {"max_attempts": 2}}),
    "objects": ([{"type": "one"}], [{"type": "two"}]),
    "numbers": ({"1": 1}, {"1": 2}),
    "members": ({"one": 1}, {"one": 2}),
    "loading": (
        [{"name": "a", "loading_mode": "always"}],
        [{"name": "b", "loading_mode": "deferred"}],
    ),
}
"""Two values of each kind: one of the person, one that a repository wants; and the other way."""
OF_KEY: dict[str, tuple[Any, Any]] = {
    "permissions.allow": (RULES[:1], RULES[1:]),
    "permissions.ask": (RULES[:1], RULES[1:]),
    "permissions.deny": (RULES[:1], RULES[1:]),
    "tools.openapi": ({"one": HTTP}, {"two": HTTP}),
    "a2a_peers": ({"one": {"url": "https://one"}}, {"two": {"url": "https://two"}}),
    "model_options": (["top_p=0.5"], ["top_p=0.6"]),
    "tools.join": ("all", "first_success"),
    "tools.memory": ("state", "/two"),
    "tools.http_secrets": (["A"], ["B"]),
    "artifacts.store": ("/one", "/two"),
}


@dataclass(frozen=True)
class Case:
    """A key of the page, with what the page says."""

    key: str
    row: Setting
    says: str


def cases() -> list[Case]:
    found: list[Case] = []
    for section in re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE):
        for title, (prefix, rows) in SECTIONS.items():
            if section.startswith(title) and prefix != "folders.":
                by_key = {row.key: row for row in rows}
                found += [
                    Case(_full(prefix, key), by_key[key], says.strip())
                    for key, says in ROW.findall(section)
                    if by_key[key].kind not in ("models", "providers", "folders")
                ]
    return found


def _full(prefix: str, key: str) -> str:
    return f"{prefix}{NAMES[prefix]}.{key}" if prefix else key


def values(case: Case) -> tuple[Any, Any]:
    row = case.row
    if case.key in OF_KEY:
        return OF_KEY[case.key]
    if row.kind == "choice":
        ordered = NARROWER_CHOICES.get(row.key, {})
        wider = row.default if row.default in ordered else row.choices[0]
        narrower = sorted(ordered.get(wider, {row.choices[-1]}))
        return wider, narrower[0]
    if row.kind == "names" and row.choices:
        return list(row.choices[:2]), list(row.choices[1:3])
    if row.kind in ("integer", "number", "seconds"):
        low = row.minimum if row.minimum and row.minimum > 0 else 1
        if row.maximum is not None and row.maximum <= 2:
            return 0.5, 0.4
        return int(low) + 2, int(low) + 1
    return VALUES[row.kind]


def write(file: Path, key: str, value: Any) -> None:
    groups = key.split(".")
    if groups[0] in ("models", "providers"):
        groups = [groups[0], *key.removeprefix(f"{groups[0]}.").rsplit(".", 1)]
    for group in reversed(groups):
        value = {group: value}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(value))


def read(found: Settings, case: Case) -> Any:
    if case.key in ("permissions.allow", "permissions.ask", "permissions.deny"):
        name = case.key.rpartition(".")[2]
        return sorted(rule.text for rule in found.rules if rule.list == name)
    return plain(found.values.get(case.key))


def plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: plain(one) for key, one in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, (tuple, list)):
        return [plain(one) for one in value]  # pyright: ignore[reportUnknownVariableType]
    return value


def attempt(case: Case, place: Path, own: Any, wanted: Any, *, trusted: bool) -> tuple[Any, Any]:
    """Return the value without the repository, and with it: an error's code where there is one."""
    user = place / "own.yaml"
    write(user, case.key, own)
    root = place / "work"
    root.mkdir()
    before = read(load_settings(workspace=root, user_file=user, environment={}), case)
    write(root / PROJECT_FILE, case.key, wanted)
    if trusted:
        TrustStore().trust(root)
    try:
        after = load_settings(workspace=root, user_file=user, environment={})
    except ConfigError as error:
        return before, error.code
    return before, read(after, case)


def expected(says: str, case: Case, before: Any, wanted: Any) -> Any:
    """What the words of the page mean for a value that a trusted repository wants."""
    match says:
        case "may set it":
            return wanted
        case "may lower it":
            return min(before, wanted)
        case "may turn it off":
            return before and wanted
        case "may turn it on":
            return before or wanted
        case "may narrow it" if case.row.kind == "choice":
            narrower = NARROWER_CHOICES[case.row.key].get(before, frozenset())
            return wanted if wanted in narrower else before
        case "may narrow it":
            return [one for one in wanted if one in before]
        case "may extend it" if case.key.startswith("permissions."):
            return sorted({*before, *wanted})
        case "may widen it" | "may extend it":
            return [*before, *(one for one in wanted if one not in before)]
        case "never":
            return "setting_not_for_projects"
        case _:
            raise AssertionError(f"the page says `{says}` of `{case.key}`")


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["first", "second"])
@pytest.mark.parametrize("case", cases(), ids=lambda case: case.key)
def test_a_repository_gets_what_the_page_says(
    case: Case, order: tuple[int, int], tmp_path: Path
) -> None:
    both = values(case)
    own, wanted = both[order[0]], both[order[1]]
    says, _, without = case.says.partition(", ")
    assert without in ("", "also without trust"), case.says
    (tmp_path / "trusted").mkdir()
    (tmp_path / "untrusted").mkdir()
    before, after = attempt(case, tmp_path / "trusted", own, wanted, trusted=True)
    shown = plain(json.loads(json.dumps(wanted)))
    wanted_value = _parsed(case, tmp_path, wanted) if says == "may set it" else shown
    assert after == expected(says, case, before, wanted_value), "trusted"
    before, after = attempt(case, tmp_path / "untrusted", own, wanted, trusted=False)
    held = expected(says, case, before, wanted_value) if without else before
    assert after == held, "untrusted"


def _parsed(case: Case, place: Path, wanted: Any) -> Any:
    """The value as the settings hold it when the person writes it."""
    write(place / "parsed.yaml", case.key, wanted)
    return read(load_settings(user_file=place / "parsed.yaml", environment={}), case)


def test_every_setting_is_on_the_page() -> None:
    tried = {case.key for case in cases()}
    rows = [("", row) for row in SETTINGS if row.kind not in ("models", "providers", "folders")]
    rows += [("models.", row) for row in MODEL_SETTINGS]
    rows += [("providers.", row) for row in PROVIDER_SETTINGS]
    assert tried == {_full(prefix, row.key) for prefix, row in rows} and len(tried) > 130


def test_a_repository_opens_no_folder(tmp_path: Path) -> None:
    root = tmp_path / "work"
    write(root / PROJECT_FILE, "folders", {str(root): {"writable": ["/"]}})
    TrustStore().trust(root)
    with pytest.raises(ConfigError) as raised:
        load_settings(workspace=root, user_file=tmp_path / "none.yaml", environment={})
    assert raised.value.code == "setting_not_for_projects"
