"""Reading the values of settings: by type from a file, as text from the environment and flags.

Errors name the place (`file:line:column`, the variable, the flag), what was found and what is
expected.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Never, Self, cast

from ferrule.core.errors import ConfigError
from ferrule.core.lazy_patterns import compile_lazily
from ferrule.core.similar_names import ask_about, find_similar_names, suggest_names
from ferrule.core.value_class import frozen
from ferrule.tools.reliability import read_policies, read_policy

from .mistakes import Mistakes
from .table import (
    ALIASES,
    BY_KEY,
    FOREIGN,
    MAP_SETTINGS,
    MODEL_ALIASES,
    MOVED,
    OTHER_VARIABLES,
    PLUGINS_VARIABLE,
    SETTINGS,
    Setting,
    find_row,
    list_installed,
    may_have_fields,
)
from .yaml_tree import Node, parse_yaml

_DURATION = compile_lazily(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)?")
_MAPS = (*MAP_SETTINGS, "actions", "servers", "policy", "policies", "loading")
"""Kinds that only a file can contain."""
_UNITS = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0}
_EXPECTED = {
    "text": "text",
    "flag": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "seconds": "seconds, or a time like `90s`, `5m`",
    "names": "a list of names",
    "path": "a path",
    "thinking": "true, false, `low`, `medium`, `high` or `max`",
}


@frozen
class Entry:
    """A value that a layer sets.

    `where` names the place; `parts` the places of a list's items or a map's entries.
    """

    value: Any
    where: str
    parts: tuple[str, ...] = ()


LIST_SECTIONS = ("tools", "hooks")
"""Sections that may also be lists of what a file defines (`extensions.tool_files.loading`)."""

Entries = dict[str, Entry]
"""What one layer sets, by key; entries of maps by `models.<name>.<key>`."""

OwnLayer = Literal["user", "environment", "flags"]
"""The layers that are the person's own."""


class OwnEntries(Entries):
    """Settings of the person's own: these may loosen a rule.

    Made by `read_own_file`, `read_environment` and `read_flags` alone. A plain `Entries`, which may
    be a repository's, does not pass the type checker in their place.
    """

    layer: OwnLayer
    root: str
    """The folder where `/…` in its rules starts."""

    def __init__(self, _: Never) -> None:
        """Refuse, for the type checker and at run time."""
        raise TypeError("settings of the person are read by `read_own_file` and the like")

    @classmethod
    def _make(cls, layer: OwnLayer, entries: Entries, root: str = "") -> Self:
        made = cls.__new__(cls)
        made.update(entries)
        made.layer = layer
        made.root = root
        return made


class TrustedEntries(Entries):
    """Settings of a repository, from the very bytes that a person trusted.

    Made by `settings.read_trusted` alone.
    """

    def __init__(self, _: Never) -> None:
        """Refuse, for the type checker and at run time."""
        raise TypeError("settings that a person trusted are read by `read_trusted`")

    @classmethod
    def _make(cls, entries: Entries) -> Self:
        made = cls.__new__(cls)
        made.update(entries)
        return made


def read_own_file(data: bytes, file: Path, mistakes: Mistakes) -> OwnEntries:
    """Read the person's own settings. Paths of Python files and of plugins become absolute.

    Args:
        data: What is in the file.
        file: Where it is.
        mistakes: Where mistakes are collected.
    """
    entries = read_tree(parse_yaml(data, str(file)), mistakes)
    folder = file.parent
    entry = entries.get("tools.python")
    if entry is not None:
        # A repository's stay relative to its own folder.
        names = tuple(
            str(folder / Path(name).expanduser()) if name.endswith(".py") else name
            for name in entry.value
        )
        entries["tools.python"] = replace(entry, value=names)
    _resolve_plugin_paths(entries, folder)
    return OwnEntries._make("user", entries, str(folder))  # pyright: ignore[reportPrivateUsage]


def _resolve_plugin_paths(entries: Entries, folder: Path) -> None:
    """Make the paths among the fields of plugins absolute, from the folder where they are written.

    Other settings resolve their paths where they are used. A repository sets none of these.
    """
    for key, entry in entries.items():
        row = find_row(key) if key.startswith("plugins.") else None
        if row is not None and row.kind == "path" and entry.value is not None:
            path = folder.absolute() / Path(entry.value).expanduser()
            entries[key] = replace(entry, value=str(path))


def read_tree(root: Node, mistakes: Mistakes | None = None) -> Entries:
    """Read the settings of a file.

    Args:
        root: The file's content.
        mistakes: Where mistakes are collected; without it, they are raised.

    Raises:
        ConfigError: A key is unknown, or a value has a wrong type or is out of range. All such
            places are named.
    """
    entries: Entries = {}
    found = mistakes or Mistakes()
    with found.collect():
        _read_group(root, "", entries, found)
    if mistakes is None:
        found.raise_all()
    return entries


def _read_group(group: Node, prefix: str, entries: Entries, mistakes: Mistakes) -> None:
    if group.pairs is None:
        name = f"`{prefix[:-1]}`" if prefix else "the file"
        raise group.error(f"{name} must contain `key: value` lines")
    for name, (key, value) in group.pairs.items():
        # `reserved: [x]` is short for `reserved: {extend: [x]}`; the long form is a group.
        path = ALIASES.get(prefix + name, prefix + name)
        if path in LIST_SECTIONS and value.items is not None:
            continue
        with mistakes.collect():
            if _is_group(prefix + name) and (find_row(path) is None or value.pairs is not None):
                if value.value is not None:
                    _read_group(value, f"{prefix}{name}.", entries, mistakes)
            else:
                _read_setting(key, prefix + name, value, entries, mistakes)


def _read_setting(key: Node, name: str, value: Node, entries: Entries, mistakes: Mistakes) -> None:
    path = ALIASES.get(name, name)
    setting = find_row(path)
    if setting is None:
        raise unknown_setting_error(key.where, name)
    if setting.kind in MAP_SETTINGS:
        _read_map(setting, value, entries, mistakes)
    elif path in entries:
        raise _build_set_twice_error(key, path, entries)
    else:
        entries[path] = _entry(setting, path, value)


def _build_set_twice_error(key: Node, path: str, entries: Entries) -> ConfigError:
    return key.error(f"`{path}` is set twice", hint=f"it is also set at {entries[path].where}")


def _is_group(path: str) -> bool:
    keys = (*BY_KEY, *ALIASES)
    if path.startswith("plugins."):
        if may_have_fields(path):
            return True
        keys = (*keys, *list_installed())
    return any(key.startswith(path + ".") for key in keys)


def _read_map(setting: Setting, node: Node, entries: Entries, mistakes: Mistakes) -> None:
    by_key = {row.key: row for row in MAP_SETTINGS[setting.kind]}
    aliases = MODEL_ALIASES if setting.kind == "models" else {}
    for name, (_, group) in _require_mapping(node, setting.key).items():
        prefix = f"{setting.key}.{name}"
        for written, (key_node, value) in _require_mapping(group, prefix).items():
            key = aliases.get(written, written)
            with mistakes.collect():
                _check_map_key(key_node, prefix, written, by_key, key)
                if f"{prefix}.{key}" in entries:
                    raise _build_set_twice_error(key_node, f"{prefix}.{key}", entries)
                entries[f"{prefix}.{key}"] = _entry(by_key[key], f"{prefix}.{key}", value)


def _check_map_key(
    node: Node, prefix: str, written: str, by_key: Mapping[str, Setting], key: str
) -> None:
    """Raise ConfigError for a key that an entry of a map cannot have."""
    if written in ("api_key", "key", "token"):
        raise node.error(
            "keys must not be written in files", hint="name the variable: `api_key_env: NAME`"
        )
    if key not in by_key:
        known = [f"{prefix}.{known_key}" for known_key in by_key]
        raise unknown_setting_error(node.where, f"{prefix}.{written}", known)


def _require_mapping(node: Node, path: str) -> dict[str, tuple[Node, Node]]:
    if node.pairs is None:
        raise node.error(f"`{path}` = {_format_value(node.value)}: must contain `key: value` lines")
    return node.pairs


def _entry(setting: Setting, path: str, node: Node) -> Entry:
    if setting.kind == "names" and node.items is not None:
        places = tuple(item.where for item in node.items)
        names = tuple(
            _check_type(setting, path, _plain(item), item.where, item=True) for item in node.items
        )
        return Entry(names, node.where, places)
    if setting.kind == "actions":
        return _actions(setting, path, node)
    if setting.kind == "servers":
        return Entry(_plain(node), node.where)
    if setting.kind == "objects":
        return _objects(path, node)
    if setting.kind == "numbers":
        return _read_numbers(setting, path, node)
    if setting.kind == "members":
        _require_mapping(node, path)
        return Entry(_plain(node), node.where)
    if setting.kind in ("policy", "policies"):
        return _policy(setting, path, node)
    if setting.kind == "loading":
        return _read_loading_modes(path, node)
    return Entry(_check_type(setting, path, node.value, node.where), node.where)


def _objects(path: str, node: Node) -> Entry:
    """Read maps that each have a `type`; `models.hosted_tools` reads the rest of them."""
    if node.items is None:
        raise node.error(f"`{path}` must be a list of maps, each with a `type`")
    for item in node.items:
        kind = (item.pairs or {}).get("type")
        if kind is None or not isinstance(kind[1].value, str):
            raise item.error(
                f"`{path}`: an entry without a `type`", hint="as in `{type: web_search}`"
            )
    return Entry(tuple(_plain(item) for item in node.items), node.where)


def _read_numbers(setting: Setting, path: str, node: Node) -> Entry:
    """Read a map from whole numbers to numbers, as `{50256: -100}`."""
    found: dict[str, float] = {}
    for name, (key_node, value) in _require_mapping(node, path).items():
        if not name.isascii() or not name.isdigit():
            raise key_node.error(f"`{path}`: found `{name}`; each key is a whole number")
        number = _accept(replace(setting, kind="number"), value.value, item=False)
        if number is None:
            raise value.error(f"`{path}.{name}` = {_format_value(value.value)}: must be a number")
        _check_range(setting, f"{path}.{name}", number, value.where)
        found[name] = number
    return Entry(found, node.where)


def _policy(setting: Setting, path: str, node: Node) -> Entry:
    value = _plain(node)
    if value is None:
        return Entry(None, node.where)
    if setting.kind == "policy":
        read_policy(value, f"{node.where}: `{path}`")
    else:
        read_policies(None, value, node.where)
    return Entry(value, node.where)


def _read_loading_modes(path: str, node: Node) -> Entry:
    """Read a list of entries as `(name, mode)`; the default mode is `always`."""
    if node.items is None:
        raise node.error(
            f"`{path}`: must be a list of entries",
            hint="as in `- {name: x, loading_mode: deferred}`",
        )
    found: list[tuple[str, str]] = []
    for item in node.items:
        pairs = _require_mapping(item, path)
        for key, (key_node, _) in pairs.items():
            if key not in ("name", "loading_mode"):
                raise key_node.error(
                    f"`{path}`: unknown key `{key}`", hint="an entry has `name` and `loading_mode`"
                )
        name = _value_of(pairs, "name")
        mode = _value_of(pairs, "loading_mode")
        if not isinstance(name, str) or not name.strip():
            raise item.error(f"`{path}`: an entry without a tool", hint="write `name: …`")
        if mode not in ("", None, "always", "deferred"):
            raise pairs["loading_mode"][1].error(
                f"`{path}`: `{name}` has loading_mode {_format_value(mode)}",
                hint="use `always` or `deferred`",
            )
        found.append((name, mode or "always"))
    return Entry(tuple(found), node.where, tuple(item.where for item in node.items))


def _value_of(pairs: dict[str, tuple[Node, Node]], key: str) -> Any:
    return pairs[key][1].value if key in pairs else ""


def _plain(node: Node) -> Any:
    """Return a value without places, for others to read (`connectors.mcp.configuration`)."""
    if node.pairs is not None:
        return {name: _plain(value) for name, (_, value) in node.pairs.items()}
    if node.items is not None:
        return [_plain(item) for item in node.items]
    return node.value


def _actions(setting: Setting, path: str, node: Node) -> Entry:
    pairs: list[tuple[str, tuple[str, ...]]] = []
    for prefix, (_, actions) in _require_mapping(node, path).items():
        found = actions.items if actions.items is not None else [actions]
        for item in found:
            if item.value not in setting.choices:
                raise item.error(
                    f"`{path}`: found {_format_value(item.value)}",
                    hint=f"use {_join_choices(setting.choices)}",
                )
        pairs.append((prefix, tuple(cast(str, item.value) for item in found)))
    return Entry(tuple(pairs), node.where)


def _check_type(setting: Setting, path: str, value: Any, where: str, *, item: bool = False) -> Any:
    """Check a value as YAML (or a program) gives it.

    Text is never taken for a number, nor a number for text.
    """
    if value is None and setting.is_optional and not item:
        return None
    if setting.kind == "names" and isinstance(value, list | tuple) and not item:
        items = cast(Sequence[Any], value)
        return tuple(_check_type(setting, path, one, where, item=True) for one in items)
    accepted = _accept(setting, value, item)
    if accepted is None:
        expected = _describe_expected(setting, item)
        raise ConfigError(f"{where}: `{path}` = {_format_value(value)}: must be {expected}")
    if isinstance(accepted, str) and "\0" in accepted:
        raise ConfigError(f"{where}: `{path}` holds a NUL character, which no name or text has")
    _check_range(setting, path, accepted, where)
    if item and setting.key == "redaction.patterns":
        _check_pattern(path, accepted, where)
    return accepted


def _check_pattern(path: str, pattern: str, where: str) -> None:
    from ferrule.tools.safe_patterns import compile_regex  # few settings have any

    try:
        compile_regex(pattern)
    except ValueError as error:
        raise ConfigError(f"{where}: `{path}`: {error}") from None


def _accept(setting: Setting, value: Any, item: bool) -> Any:
    """Return the value in the setting's type, or None if it does not fit."""
    kind = setting.kind
    match value:
        case bool() if {"on", "off"} <= {*setting.choices}:
            # YAML reads `on` and `off` as truth values.
            return "on" if value else "off"
        case bool():
            return value if kind in ("flag", "thinking") else None
        case int():
            return {"integer": value, "number": float(value), "seconds": float(value)}.get(kind)
        case float():
            return value if kind in ("number", "seconds") and math.isfinite(value) else None
        case str():
            return _accept_text(setting, value, item)
        case _:
            return None


def _describe_expected(setting: Setting, item: bool) -> str:
    choices = f"one of {_join_choices(setting.choices)}"
    if item and setting.choices:
        return choices
    return _EXPECTED.get("text" if item else setting.kind, choices)


def _accept_text(setting: Setting, text: str, item: bool) -> Any:
    if setting.kind in ("choice", "thinking") or (item and setting.choices):
        return text if text in setting.choices else None
    if item or setting.kind in ("text", "path"):
        # A path stays text here; it becomes a Path only at the end.
        return text if text.strip() else None
    if setting.kind == "seconds":
        match = _DURATION.fullmatch(text.strip())
        return float(match[1]) * _UNITS[match[2] or ""] if match else None
    return None


def _check_range(setting: Setting, path: str, value: Any, where: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    if setting.minimum is not None:
        is_zero_time = value == 0 and setting.kind == "seconds"
        if value < setting.minimum or is_zero_time:
            limit = f"at least {setting.minimum:g}" if setting.minimum else "more than 0"
            raise ConfigError(f"{where}: `{path}` = {value:g}: must be {limit}")
    if setting.maximum is not None and value > setting.maximum:
        raise ConfigError(f"{where}: `{path}` = {value:g}: must be at most {setting.maximum:g}")


# ---- environment and flags


def read_environment(
    environment: Mapping[str, str], mistakes: Mistakes
) -> tuple[OwnEntries, list[str]]:
    """Return the settings and notices.

    An unknown `FERRULE_…` variable may belong to another program, so it is only pointed out.
    """
    by_variable = {setting.variable: setting for setting in SETTINGS if setting.variable}
    moved = {f"FERRULE_{key.upper().replace('.', '_')}": key for key in MOVED if "." in key}
    entries: Entries = {}
    notices: list[str] = []
    for name, text in sorted(environment.items()):
        if not name.startswith("FERRULE_"):
            continue
        setting = by_variable.get(name)
        if setting is not None:
            with mistakes.collect():
                entries[setting.key] = parse_text(setting, text, name)
            continue
        if name == PLUGINS_VARIABLE:
            if not text.strip():
                entries["plugins.installed"] = Entry(False, name)
            with mistakes.collect():
                _read_plugins([one.strip() for one in text.split(",")], name, entries)
            continue
        if name in OTHER_VARIABLES:
            continue
        if name in moved:
            with mistakes.collect():
                raise unknown_setting_error(name, moved[name])
        suggestion = suggest_names(name, by_variable, cutoff=0.8)
        if suggestion:
            notices.append(f"{name} is not a setting; {suggestion}")
    _resolve_plugin_paths(entries, Path.cwd())
    own = OwnEntries._make("environment", entries)  # pyright: ignore[reportPrivateUsage]
    return own, notices


def read_flags(flags: Mapping[str, Any], mistakes: Mistakes) -> OwnEntries:
    """Read settings from the command line or a program, by key.

    Text is parsed, other values are checked; None means not set.
    """
    entries: Entries = {}
    for key, value in flags.items():
        with mistakes.collect():
            _read_flag(key, value, entries)
    _resolve_plugin_paths(entries, Path.cwd())
    return OwnEntries._make("flags", entries)  # pyright: ignore[reportPrivateUsage]


def _read_plugins(given: Iterable[str], where: str, entries: Entries) -> None:
    """Read plugins as the command line has them: `NAME`, `NAME=false` or `NAME.FIELD=VALUE`."""
    for one in filter(None, given):
        name, equals, text = one.partition("=")
        setting = find_row(f"plugins.{name.strip()}")
        if setting is None or setting.kind in _MAPS:
            keys = (key for key in (*BY_KEY, *list_installed()) if key.startswith("plugins."))
            plugins = [key.removeprefix("plugins.") for key in keys]
            raise ConfigError(
                f"{where}: there is no plugin or field of one `{name.strip()}`",
                code="setting_unknown",
                hint=suggest_names(name.strip(), plugins, "`ferrule plugins` lists them"),
            )
        entries[setting.key] = parse_text(setting, text if equals else "true", where)


def _read_flag(key: str, value: Any, entries: Entries) -> None:
    if key == "plugins":
        if value is not None:
            _read_plugins([value] if isinstance(value, str) else value, "--plugin", entries)
        return
    setting = find_row(ALIASES.get(key, key))
    if setting is None or setting.kind in _MAPS:
        raise unknown_setting_error("flags", key)
    where = setting.flag or f"`{setting.key}`"
    if isinstance(value, Path):
        value = str(value)
    if isinstance(value, str):
        entries[setting.key] = parse_text(setting, value, where)
    elif value is not None:
        entries[setting.key] = Entry(_check_type(setting, setting.key, value, where), where)


def parse_text(setting: Setting, text: str, where: str) -> Entry:
    """Parse the value of a text without a type: `10`, `true`, `a, b`, `["a", "b"]`."""
    if setting.kind == "names":
        if text.lstrip().startswith("["):
            node = parse_yaml(text.encode("utf-8", "replace"), where)
            return Entry(_entry(setting, setting.key, node).value, where)
        names = tuple(name.strip() for name in text.split(",") if name.strip())
        return Entry(_check_type(setting, setting.key, names, where), where)
    if setting.kind in ("numbers", "members"):
        node = parse_yaml(text.encode("utf-8", "replace"), where)
        return Entry(_entry(setting, setting.key, node).value, where)
    value: Any = text.strip()
    if setting.kind in ("flag", "integer", "number", "seconds", "thinking"):
        node = parse_yaml(value.encode("utf-8", "replace"), where)
        value = node.value if not isinstance(node.value, dict | list) else text
    return Entry(_check_type(setting, setting.key, value, where), where)


def parse_model_options(given: Iterable[str], table: Iterable[Setting]) -> dict[str, Any]:
    """Return what `NAME=VALUE` says of each option, as the settings per model take it.

    Raises ConfigError for an unknown name or a wrong value.
    """
    known = {setting.key: setting for setting in table}
    found: dict[str, Any] = {}
    for one in given:
        name, equals, text = one.partition("=")
        setting = known.get(name.strip())
        if setting is None or not equals:
            write = f"write NAME=VALUE; the names are {', '.join(known)}"
            near = [f"{key}=VALUE" for key in find_similar_names(name.strip(), known)]
            raise ConfigError(
                f"--option: found `{one}`",
                code="setting_unknown",
                hint=ask_about(near) if near else write,
            )
        found[setting.key] = parse_text(setting, text, "--option").value
    return found


# ---- messages


def unknown_setting_error(where: str, path: str, known: Iterable[str] = ()) -> ConfigError:
    """Return the error for an unknown key, with the nearest known one."""
    candidates = [*known] or [*BY_KEY, *ALIASES]
    last = path.rpartition(".")[2]
    same_last = [key for key in candidates if key.rpartition(".")[2] == last]
    near = same_last[:1] or find_similar_names(path, candidates, cutoff=0.5)
    hint = "`ferrule init` writes a file that lists them all"
    if path in MOVED:
        hint = f"it is `{MOVED[path]}` now (docs/plugins.md)"
    elif path in FOREIGN:
        hint = FOREIGN[path]
    elif near:
        hint = ask_about([ALIASES.get(near[0], near[0])])
    return ConfigError(f"{where}: unknown setting `{path}`", code="setting_unknown", hint=hint)


def _join_choices(choices: Iterable[str]) -> str:
    return ", ".join(f"`{choice}`" for choice in choices)


def _format_value(value: Any) -> str:
    if isinstance(value, dict):
        return "a map"
    if isinstance(value, list | tuple):
        return "a list"
    text = "nothing" if value is None else str(value)
    if isinstance(value, bool):
        text = text.lower()
    if len(text) >= 80:
        text = text[:80] + "…"
    return f"`{text}`"
