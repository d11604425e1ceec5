"""Merging the layers of settings, and what a repository may not do with them."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self, cast

from ferrule.core.errors import ConfigError
from ferrule.core.value_class import frozen
from ferrule.core.vocabulary import RuleLayer
from ferrule.permissions.rules import PermissionRule, RuleList, parse_rule

from .mistakes import Mistakes
from .restrictions import NARROWER_CHOICES, restricts
from .table import BY_KEY, FOLDER_SETTINGS, GLOBAL_KEYS, MAP_SETTINGS, SETTINGS, Setting, find_row
from .values import Entries, Entry, OwnEntries, TrustedEntries

LayerName = Literal["default", "user", "project", "environment", "flags"]
LAYER_ORDER: tuple[LayerName, ...] = ("default", "user", "project", "environment", "flags")
"""The layers, the weakest first."""

_RULES: dict[LayerName, RuleLayer] = {
    "user": "user",
    "project": "project",
    "environment": "flags",
    "flags": "flags",
}
_RULE_LISTS = ("permissions.allow", "permissions.ask", "permissions.deny")
"""The settings that are permission rules."""

# Maps have no value of their own: their entries have keys like `models.<name>.<key>`.
_OWN_VALUE = tuple(setting for setting in SETTINGS if setting.kind not in MAP_SETTINGS)
_IN_MAPS = {kind: {row.key: row for row in rows} for kind, rows in MAP_SETTINGS.items()}


@frozen
class Origin:
    """Where a value comes from: layer and place (`file:line:column`, a variable, a flag)."""

    layer: LayerName = "default"
    where: str = ""

    def __str__(self) -> str:
        return f"{self.layer} ({self.where})" if self.where else self.layer


@dataclass(slots=True)
class MergedSettings:
    """Values and origins by key.

    `notices` says what a repository wanted but did not get. `mistakes` collects what is wrong;
    whoever merges raises them when all layers are in.
    """

    values: dict[str, Any] = field(default_factory=lambda: {s.key: s.default for s in _OWN_VALUE})
    origins: dict[str, Origin] = field(
        default_factory=lambda: {s.key: Origin() for s in _OWN_VALUE}
    )
    rules: list[PermissionRule] = field(default_factory=list[PermissionRule])
    notices: list[str] = field(default_factory=list[str])
    mistakes: Mistakes = field(default_factory=Mistakes)

    def add_own(self, entries: OwnEntries) -> None:
        """Add a stronger layer of the person's. Rules that cannot be parsed are left out."""
        for key in _list_keys(entries):
            entry = entries[key]
            if key in _RULE_LISTS:
                self._add_rules(entries.layer, key, entry, entries.root, self.mistakes)
            self._set(entries.layer, key, find_setting(key), entry.value, entry.where)

    def add_trusted(self, entries: TrustedEntries) -> None:
        """Add the settings of a repository that a person trusted, as far as one may set them.

        What it must not set and rules that cannot be parsed are left out and collected in
        `mistakes`.
        """
        self._add_repository(entries)

    @classmethod
    def check(cls, entries: Entries, mistakes: Mistakes) -> Self:
        """Return what settings of a repository would set by themselves, for whoever writes them.

        Args:
            entries: Settings that nobody has trusted; they set nothing of a run.
            mistakes: Where mistakes are collected.
        """
        made = cls(mistakes=mistakes)
        made._add_repository(entries)
        return made

    def _add_repository(self, entries: Entries) -> None:
        for key in _list_keys(entries):
            if key in _RULE_LISTS:
                self._add_rules("project", key, entries[key], "", self.mistakes)
            with self.mistakes.collect():
                self._add_from_project(key, find_setting(key), entries[key])

    def add_restrictions(self, entries: Entries) -> list[str]:
        """Add what only restricts from the settings of a repository that nobody trusts.

        Mistakes in it are notices: it must not keep anybody from working.

        Returns:
            The keys that now hold a restriction of it.
        """
        mistakes = Mistakes()
        held: list[str] = []
        for key in filter(restricts, _list_keys(entries)):
            if key.startswith("permissions.") and key != "permissions.reads":
                known = self.rules
                self.rules = []
                self._add_rules("project", key, entries[key], "", mistakes)
                new = [rule for rule in self.rules if rule not in known]
                self.rules = [*known, *new]
                is_narrower = bool(new)
            else:
                is_narrower = self._restrict(key, entries[key])
            if is_narrower:
                held.append(key)
        self.notices += map(str, mistakes.errors)
        return held

    def _restrict(self, key: str, entry: Entry) -> bool:
        """Set a value as far as it is narrower. Return whether it is."""
        setting = find_setting(key)
        current = self._current(key)
        value, _ = _tighten(setting, current, entry.value)
        if setting.project == "extend":
            value = tuple(dict.fromkeys((*current, *value)))
        if value == current:
            return False
        self.values[key] = value
        self.origins[key] = Origin("project", entry.where)
        return True

    def open_folder(self, root: Path, *, keeps_mode: bool = True) -> None:
        """Add what the person set for one workspace: what commands may reach, and the mode.

        Args:
            root: The workspace.
            keeps_mode: Whether the mode counts.
        """
        real = os.path.realpath(root)
        for setting in FOLDER_SETTINGS:
            ending = f".{setting.key}"
            for name, value in list(self.values.items()):
                if not name.startswith("folders.") or not name.endswith(ending):
                    continue
                folder = name.removeprefix("folders.").removesuffix(ending)
                if os.path.realpath(Path(folder).expanduser()) != real:
                    continue
                key = setting.key
                if key != "mode":
                    key = f"sandbox.{key}"
                    value = tuple(dict.fromkeys((*self.values[key], *value)))
                elif not keeps_mode:
                    continue
                self.values[key] = value
                self.origins[key] = self.origins[name]

    def _set(self, layer: LayerName, key: str, setting: Setting, value: Any, where: str) -> None:
        if setting.project == "extend":
            value = tuple(dict.fromkeys((*self.values[key], *value)))
        self.values[key] = value
        self.origins[key] = Origin(layer, where)

    def _add_from_project(self, key: str, setting: Setting, entry: Entry) -> None:
        if setting.project == "never":
            raise _build_refusal(entry.where, f"`{key}` cannot be set by a repository")
        if _opens_default(setting, entry.value):
            raise _build_refusal(
                entry.where, f"`{key}` = `{entry.value}` cannot be chosen by a repository"
            )
        current = self._current(key)
        value, problem = _tighten(setting, current, entry.value)
        if problem:
            self.notices.append(f"{entry.where}: `{key}`: {problem}")
        if value != current or not problem:
            self._set("project", key, setting, value, entry.where)

    def _current(self, key: str) -> Any:
        """Return the value in force; for a model without its own, that of all models."""
        current = self.values.get(key)
        if current is None and key not in BY_KEY:
            same = GLOBAL_KEYS.get(key.rpartition(".")[2])
            current = self.values[same] if same else None
        return current

    def _add_rules(
        self, layer: LayerName, key: str, entry: Entry, root: str, mistakes: Mistakes
    ) -> None:
        name = cast(RuleList, key.rpartition(".")[2])
        places = entry.parts or (entry.where,) * len(entry.value)
        for text, where in zip(entry.value, places, strict=True):
            with mistakes.collect():
                self.rules.append(_parse_rule(text, where, name, _RULES[layer], root))


def _list_keys(entries: Entries) -> list[str]:
    """Return the keys in their order: a model's own limits are compared with those for all."""
    return sorted(entries, key=lambda key: key not in BY_KEY)


def _parse_rule(
    text: str, where: str, name: RuleList, layer: RuleLayer, root: str
) -> PermissionRule:
    try:
        return parse_rule(text, name, layer=layer, root=root)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error.detail}", code=error.code, hint=error.hint) from error


def find_setting(key: str) -> Setting:
    """Return the row of the table for a key, also for `models.<name>.<key>`."""
    row = find_row(key)
    if row is not None:
        return row
    return _IN_MAPS[key.partition(".")[0]][key.rpartition(".")[2]]


def _tighten(setting: Setting, current: Any, wanted: Any) -> tuple[Any, str]:
    """Return the new value, and why it is not what the repository wanted, or ""."""
    match setting.project:
        case "lower" if wanted is None or (current is not None and wanted > current):
            if wanted == current:
                return current, ""
            limit = "no limit" if wanted is None else f"{wanted:g}"
            return current, f"{limit} was ignored, a repository can only lower it"
        case "off" if _turns_on(current, wanted):
            return current, "a repository can only turn it off"
        case "on" if not wanted and current is True:
            return current, "a repository can only turn it on"
        case "narrow" if setting.kind == "choice":
            narrower = NARROWER_CHOICES[setting.key].get(str(current), frozenset[str]())
            if wanted == current or wanted in narrower:
                return wanted, ""
            return current, f"`{wanted}` was ignored, a repository can only narrow `{current}`"
        case "narrow" if current is not None:
            return _narrow(current, current if wanted is None else wanted)
        case "widen" if current is not None:
            return tuple(dict.fromkeys((*current, *cast(tuple[str, ...], wanted)))), ""
        case _:
            return wanted, ""


def _opens_default(setting: Setting, wanted: Any) -> bool:
    """Whether a choice allows more than what is in force where nobody sets anything."""
    if setting.kind != "choice" or setting.project != "narrow":
        return False
    narrower = NARROWER_CHOICES[setting.key][setting.default]
    return wanted != setting.default and wanted not in narrower


def _turns_on(current: object, wanted: object) -> bool:
    """Whether a flag would be more open than it is. None, what the machine decides, is between."""
    openness = {False: 0, None: 1, True: 2}
    return openness[cast("bool | None", wanted)] > openness[cast("bool | None", current)]


def _narrow(current: tuple[str, ...], wanted: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
    kept = tuple(name for name in wanted if name in current)
    added = [f"`{name}`" for name in wanted if name not in current]
    if not added:
        return kept, ""
    return kept, f"{', '.join(added)} not added, a repository can only narrow it"


def _build_refusal(where: str, what: str) -> ConfigError:
    return ConfigError(
        f"{where}: {what}",
        code="setting_not_for_projects",
        hint="set it in your own settings file, in the environment or with a flag",
    )
