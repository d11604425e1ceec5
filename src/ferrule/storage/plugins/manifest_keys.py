"""The keys of a manifest, each declared once: checks and the table of the documentation use them.

A manifest is checked whole, because it says what a run may go on without: a key that is misspelled
would otherwise be a key that is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, cast

from ferrule.core.lazy_patterns import compile_lazily
from ferrule.core.similar_names import suggest_names
from ferrule.core.value_class import frozen

KeyType = Literal["text", "flag", "names", "texts", "number", "object", "kind", "value", "table"]


@frozen
class ManifestKey:
    """A key that a manifest may have; `*` in it stands for a name that the author chooses."""

    key: str
    type: KeyType
    help: str
    is_required: bool = False
    ships: bool = False
    """Whether only the manifest of a plugin that ships with Ferrule has it."""


@frozen
class SettingKindOfPlugin:
    """A kind of settings that a plugin may have, and the types of their defaults."""

    help: str
    types: tuple[type, ...]


MANIFEST_KEYS: tuple[ManifestKey, ...] = (
    ManifestKey("help", "text", "One sentence about the plugin."),
    ManifestKey(
        "optional",
        "names",
        "All tools that it may bring, so that rules can name them before it is imported. Left out "
        "where they are known only when it runs.",
    ),
    ManifestKey("needs.environment", "names", "The environment variables that it may read."),
    ManifestKey(
        "needs.restricts",
        "flag",
        "Whether its hooks refuse something: then no run goes on without it. Without a manifest, "
        "none does either.",
    ),
    ManifestKey("settings.*.kind", "kind", "See the kinds below.", is_required=True),
    ManifestKey("settings.*.short", "text", "One sentence about the field.", is_required=True),
    ManifestKey("settings.*.long", "text", "More about it."),
    ManifestKey(
        "settings.*.default",
        "value",
        "What the class has if nobody sets the field. Without it, the field may be `null`.",
    ),
    ManifestKey("settings.*.choices", "texts", "The values of a `choice`, or of the `names`."),
    ManifestKey("settings.*.minimum", "number", "The least value of a number."),
    ManifestKey("settings.*.maximum", "number", "The greatest."),
    ManifestKey(
        "commands.*.object", "object", "A click command, as `module:name`.", is_required=True
    ),
    ManifestKey("commands.*.help", "text", "Its line in `ferrule --help`.", is_required=True),
    ManifestKey(
        "pages.*.object", "object", "The function of a page, as `module:name`.", is_required=True
    ),
    ManifestKey("pages.*.title", "text", "Its title, and its name in the menu.", is_required=True),
    ManifestKey(
        "providers.*",
        "table",
        "A provider of models: the fields of `ferrule.models.registry.Provider`, which are checked "
        "when providers are looked up.",
    ),
    ManifestKey("object", "object", "The class, as `module:name`.", is_required=True, ships=True),
    ManifestKey("default", "flag", "Whether it is on by itself.", ships=True),
    ManifestKey("project", "text", "What a repository may do with it.", ships=True),
    ManifestKey("when.settings", "names", "Settings that switch it on.", ships=True),
    ManifestKey("when.environment", "names", "Variables that do.", ships=True),
    ManifestKey("when.own", "names", "Names in the settings folder that do.", ships=True),
    ManifestKey("when.repository", "names", "Files of a repository that do.", ships=True),
    ManifestKey("takes.*", "text", "A setting elsewhere that gives this field.", ships=True),
    ManifestKey("coding", "names", "Tools of every profile.", ships=True),
    ManifestKey("all", "names", "Tools of the profile `all`.", ships=True),
    ManifestKey("settings.*.has_variable", "flag", "Whether a variable sets it.", ships=True),
)

PLUGIN_KINDS: Mapping[str, SettingKindOfPlugin] = {
    "text": SettingKindOfPlugin("a text", (str,)),
    "flag": SettingKindOfPlugin("true or false", (bool,)),
    "integer": SettingKindOfPlugin("a whole number", (int,)),
    "number": SettingKindOfPlugin("a number", (int, float)),
    "seconds": SettingKindOfPlugin("a time: seconds, or `90s`, `5m`", (int, float)),
    "choice": SettingKindOfPlugin("one of `choices`", (str,)),
    "names": SettingKindOfPlugin("a list of texts; of `choices`, if there are any", (list,)),
    "path": SettingKindOfPlugin("the path of a file or folder", (str,)),
    "servers": SettingKindOfPlugin("a map of names to entries, as it is written", (dict, list)),
}

_OBJECT = compile_lazily(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_NAME = compile_lazily(r"[a-z][a-z0-9_-]*")
_NUMBER_KINDS = ("integer", "number", "seconds")
_CHOICE_KINDS = ("choice", "names")
_BY_KEY = {one.key: one for one in MANIFEST_KEYS}


def check_manifest(
    table: Mapping[str, Any], *, ships: bool = False
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the part of a manifest that is valid, and a sentence for each problem.

    Args:
        table: The manifest, as TOML has it.
        ships: Whether it is one of those that ship with Ferrule, which may have more keys.
    """
    check = _ManifestCheck(ships)
    valid = check.check_table("", "", table)
    return valid, tuple(check.problems)


class _ManifestCheck:
    """Checks one manifest, and collects its problems."""

    def __init__(self, ships: bool) -> None:
        self.problems: list[str] = []
        self._ships = ships
        self._keys = [one for one in MANIFEST_KEYS if ships or not one.ships]

    def check_table(self, path: str, pattern: str, table: Mapping[str, Any]) -> dict[str, Any]:
        """Return the valid entries of a table. `pattern` is its path with `*` for free names."""
        known = self._list_children(pattern)
        valid: dict[str, Any] = {}
        for name, value in table.items():
            child = name if name in known else "*"
            if child not in known:
                self.problems.append(self._explain_unknown(path, pattern, name))
                continue
            before = len(self.problems)
            checked = self._check_entry(f"{path}{name}", f"{pattern}{child}", value)
            if child == "*" and not _is_free_name(pattern, name):
                self.problems.append(f"`{path}{name}` is not a name: letters, digits and `_`")
            if len(self.problems) == before:
                valid[name] = checked
        missing = [name for name in self._list_required(pattern) if name not in table]
        self.problems += (f"`{path}{name}` is missing" for name in missing)
        return valid

    def _check_entry(self, path: str, pattern: str, value: Any) -> Any:
        key = _BY_KEY.get(pattern)
        if key is not None:
            problem = _TYPE_CHECKS[key.type](value)
            if problem:
                self.problems.append(f"`{path}` must be {problem}")
            return value
        if not isinstance(value, Mapping):
            self.problems.append(f"`{path}` must be a table")
            return value
        row = self.check_table(f"{path}.", f"{pattern}.", cast("Mapping[str, Any]", value))
        if pattern == "settings.*":
            self.problems += (f"`{path}`: {problem}" for problem in _check_setting(row))
        return row

    def _list_children(self, pattern: str) -> set[str]:
        return {
            one.key.removeprefix(pattern).partition(".")[0]
            for one in self._keys
            if one.key.startswith(pattern)
        }

    def _list_required(self, pattern: str) -> list[str]:
        """Return the keys that a table with this pattern must have."""
        names = [one.key.removeprefix(pattern) for one in self._keys if one.is_required]
        return [name for name in names if pattern + name in _BY_KEY and "." not in name]

    def _explain_unknown(self, path: str, pattern: str, name: str) -> str:
        known = sorted(self._list_children(pattern))
        elsewhere = [one.key for one in self._keys if one.key.rpartition(".")[2] == name]
        if any(f"{one.key}.".startswith(f"{pattern}{name}.") for one in MANIFEST_KEYS):
            found = "only plugins that ship with Ferrule have it"
        elif elsewhere:
            found = f"did you mean `{elsewhere[0].replace('*', 'NAME')}`?"
        else:
            listed = ", ".join(f"`{one}`" for one in known)
            found = suggest_names(name, known, f"there is {listed}")
        return f"unknown key `{path}{name}`: {found}"


def _is_free_name(pattern: str, name: str) -> bool:
    """Return whether a name can be that of a field, or of a command or a page."""
    if pattern in ("settings.", "takes."):
        return name.isidentifier()
    return _NAME.fullmatch(name) is not None


def _check_setting(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong among the keys of one field, each of which is valid by itself."""
    kind = row.get("kind", "")
    if kind not in PLUGIN_KINDS:
        return
    choices = row.get("choices", [])
    if kind == "choice" and not choices:
        yield "a `choice` has `choices`"
    if choices and kind not in _CHOICE_KINDS:
        yield f"`choices` have no meaning for the kind `{kind}`"
    bounds = [name for name in ("minimum", "maximum") if name in row]
    if bounds and kind not in _NUMBER_KINDS:
        yield f"`{bounds[0]}` has no meaning for the kind `{kind}`"
    elif len(bounds) == 2 and row["minimum"] > row["maximum"]:
        yield "`minimum` is greater than `maximum`"
    if "default" in row:
        yield from _check_default(kind, row["default"], choices, row)


def _check_default(
    kind: str, default: Any, choices: list[str], row: Mapping[str, Any]
) -> Iterator[str]:
    chosen: list[str] = default if kind == "names" else [default]
    is_number = isinstance(default, int | float) and not isinstance(default, bool)
    fits = isinstance(default, PLUGIN_KINDS[kind].types)
    if kind in _NUMBER_KINDS:
        fits = fits and is_number
    elif kind == "names":
        fits = _is_list_of_texts(default)
    if not fits:
        yield f"the default {default!r} is not {PLUGIN_KINDS[kind].help}"
    elif choices and not {*chosen} <= {*choices}:
        yield f"the default {default!r} is not among the choices"
    elif is_number and not row.get("minimum", default) <= default <= row.get("maximum", default):
        yield f"the default {default} is out of range"


def _check_text(value: Any) -> str:
    return "" if isinstance(value, str) and value.strip() else "a text"


def _check_flag(value: Any) -> str:
    return "" if isinstance(value, bool) else "true or false"


def _check_texts(value: Any) -> str:
    return "" if _is_list_of_texts(value) else "a list of texts"


def _is_list_of_texts(value: Any) -> bool:
    if not isinstance(value, list):
        return False
    return all(isinstance(one, str) and one for one in cast("list[object]", value))


def _check_number(value: Any) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return "" if is_number else "a number"


def _check_object(value: Any) -> str:
    is_object = isinstance(value, str) and _OBJECT.fullmatch(value) is not None
    return "" if is_object else "`module:name`"


def _check_kind(value: Any) -> str:
    if isinstance(value, str) and value in PLUGIN_KINDS:
        return ""
    suggestion = suggest_names(str(value), PLUGIN_KINDS)
    listed = ", ".join(f"`{name}`" for name in PLUGIN_KINDS)
    return f"one of {listed}; found `{value}`{', ' + suggestion if suggestion else ''}"


def _check_table(value: Any) -> str:
    return "" if isinstance(value, Mapping) else "a table"


def _check_nothing(value: Any) -> str:
    return ""


_TYPE_CHECKS: Mapping[KeyType, Callable[[Any], str]] = {
    "text": _check_text,
    "flag": _check_flag,
    "names": _check_texts,
    "texts": _check_texts,
    "number": _check_number,
    "object": _check_object,
    "kind": _check_kind,
    "value": _check_nothing,
    "table": _check_table,
}
