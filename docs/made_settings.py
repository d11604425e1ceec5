"""The page about settings. `make_reference.py` writes it, from the table of settings."""

from __future__ import annotations

from ferrule.storage.plugins.installed import find_installed_manifests
from ferrule.storage.settings.restrictions import restricts
from ferrule.storage.settings.table import (
    ALIASES,
    FOLDER_SETTINGS,
    MODEL_ALIASES,
    MODEL_SETTINGS,
    OTHER_VARIABLES,
    PROVIDER_SETTINGS,
    SETTINGS,
    ProjectRight,
    Setting,
    list_plugin_settings,
)


def format_reference(*plugins: str) -> str:
    """Return the settings as Markdown, for the documentation.

    Args:
        plugins: Installed plugins whose settings are part of it.
    """
    added = [
        (
            f"The plugin `{name}` of `{manifest.distribution.replace('_', '-')}`",
            tuple(list_plugin_settings({name: manifest})),
        )
        for name, manifest in find_installed_manifests().items()
        if name in plugins
    ]
    tables = [
        ("Settings", SETTINGS),
        *added,
        ('Per model: `models: {"provider:model": {…}}`', MODEL_SETTINGS),
        ("Per provider: `providers: {name: {…}}`", PROVIDER_SETTINGS),
        ("Per workspace: `folders: {/path: {…}}`", FOLDER_SETTINGS),
    ]
    parts = [
        f"## {title}\n\n{_table(rows, 'models.*.' if rows is MODEL_SETTINGS else '')}"
        for title, rows in tables
    ]
    in_models = {f"models.*.{old}": f"models.*.{new}" for old, new in MODEL_ALIASES.items()}
    aliases = [f"| `{old}` | `{new}` |\n" for old, new in (ALIASES | in_models).items()]
    head = "## Other names\n\n| in a file | means |\n|---|---|\n"
    return "\n".join([*parts, _format_variables(), head + "".join(aliases)])


def _format_variables() -> str:
    """Return the section about environment variables."""
    file_only = ", ".join(f"`{row.key}`" for row in SETTINGS if not row.has_variable)
    rows = "".join(f"| `{name}` | {text} |\n" for name, text in OTHER_VARIABLES.items())
    return (
        "## Environment variables\n\n"
        "A key of the first table is also the variable `FERRULE_` with the key in capitals, with "
        "`_` in place of dots: `FERRULE_LIMITS_MAX_TURNS=20`, `FERRULE_PERMISSIONS_DENY="
        "'Bash(curl:*),Edit(*.lock)'`. It goes before the files, and a flag goes before it. Only "
        f"files can set {file_only}.\n\n"
        "| variable | meaning |\n|---|---|\n"
        f"{rows}\n"
        "The folders are absolute paths. Keys of providers have [variables of their own]"
        "(providers.md). Commands of hooks get `FERRULE_EVENT` and `FERRULE_PROJECT_DIR` (the "
        "workspace), and those that start nothing of the workspace `FERRULE_HOOKS`, a folder with "
        "the hook's trusted files.\n"
    )


def _table(rows: tuple[Setting, ...], prefix: str) -> str:
    lines = ["| key | value | default | in a repository | |", "|---|---|---|---|---|"]
    for row in rows:
        text = " ".join(part for part in (row.short, row.long) if part)
        right = _PROJECT[row.project]
        if restricts(prefix + row.key):
            right += ", also without trust"
        lines.append(f"| `{row.key}` | {_value(row)} | {_default(row)} | {right} | {text} |")
    return "\n".join(lines) + "\n"


_PROJECT: dict[ProjectRight, str] = {
    "free": "may set it",
    "never": "never",
    "lower": "may lower it",
    "off": "may turn it off",
    "on": "may turn it on",
    "narrow": "may narrow it",
    "widen": "may widen it",
    "extend": "may extend it",
}
_VALUE: dict[str, str] = {
    "flag": "true, false",
    "names": "list",
    "seconds": "seconds, or `5m`, `1h`",
    "thinking": "true, false, `low` … `max`",
    "actions": "map: path to list",
    "models": "map",
    "providers": "map",
    "folders": "map",
    "servers": "map, or list",
    "policy": "map",
    "policies": "map: tool to map",
    "objects": "list of maps",
    "numbers": "map: number to number",
    "members": "map",
    "loading": "list of maps",
}


def _value(row: Setting) -> str:
    if row.kind == "choice":
        return ", ".join(f"`{choice}`" for choice in row.choices)
    return _VALUE.get(row.kind, row.kind)


def _default(row: Setting) -> str:
    if row.default is None or row.default == ():
        return ""
    if row.kind == "names":
        return ", ".join(f"`{name}`" for name in row.default)
    if isinstance(row.default, bool):
        return "`true`" if row.default else "`false`"
    return f"`{row.default}`"
