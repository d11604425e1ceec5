"""Language servers from a person's settings, a map of names to entries.

    plugins:
      diagnostics:
        servers:
          pyright:
            command: pyright-langserver
            args: [--stdio]
            extensionToLanguage: {.py: python, .pyi: python}

The keys are those of Claude Code's `.lsp.json`, as far as they say something about diagnostics:
`command`, `args`, `env`, `extensionToLanguage`, `initializationOptions` and `settings`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from ferrule.core.errors import ConfigError
from ferrule.core.value_class import frozen

_KEYS = (
    "name",
    "command",
    "args",
    "env",
    "extensionToLanguage",
    "initializationOptions",
    "settings",
)


@frozen
class ServerEntry:
    """How a language server is started, and for which files.

    Attributes:
        name: Stands before its diagnostics.
        command: Its program and arguments.
        languages: The protocol's names of the languages of files, by ending.
        env: Further variables.
        options: Sent with the first request.
        settings: What it is told when it asks for its configuration.
    """

    name: str
    command: tuple[str, ...]
    languages: Mapping[str, str]
    env: Mapping[str, str]
    options: object = None
    settings: object = None

    def find_language(self, file: str) -> str | None:
        """Return the language of a file; None if it is not for this server."""
        return next((self.languages[one] for one in self.languages if file.endswith(one)), None)


def read_servers(value: object) -> tuple[ServerEntry, ...]:
    """Return the servers that a setting describes.

    Raises:
        ConfigError: An entry cannot be used.
    """
    if isinstance(value, Mapping):
        entries = cast("Mapping[str, object]", value)
        return tuple(_read_entry(str(name), entry) for name, entry in entries.items())
    listed = cast("list[object]", value) if isinstance(value, (list, tuple)) else []
    return tuple(_read_entry("", entry) for entry in listed)


def _read_entry(name: str, entry: object) -> ServerEntry:
    setting = "`plugins.diagnostics.servers`"
    where = f"{setting}: `{name}`" if name else f"{setting}: an entry"
    if not isinstance(entry, Mapping):
        raise ConfigError(f"{where} is not a map", hint=f"its keys are: {', '.join(_KEYS)}")
    fields = cast("Mapping[str, Any]", entry)
    unknown = [str(key) for key in fields if key not in _KEYS]
    if unknown:
        raise ConfigError(
            f"{where} has the unknown key `{unknown[0]}`", hint=f"known are: {', '.join(_KEYS)}"
        )
    command = fields.get("command")
    own_name = name or fields.get("name")
    if not isinstance(command, str) or not command or not isinstance(own_name, str):
        raise ConfigError(f"{where} needs a name, and a `command`, which is the program alone")
    args: object = fields.get("args") or []
    if not isinstance(args, (list, tuple)):
        raise ConfigError(f"{where}: `args` must be a list")
    languages = _read_texts(fields, "extensionToLanguage", where)
    if not languages or not all(ending.startswith(".") for ending in languages):
        raise ConfigError(
            f"{where} needs `extensionToLanguage`", hint="as in `{.py: python, .pyi: python}`"
        )
    return ServerEntry(
        own_name,
        (command, *map(str, cast("list[object]", args))),
        languages,
        _read_texts(fields, "env", where),
        fields.get("initializationOptions"),
        fields.get("settings"),
    )


def _read_texts(fields: Mapping[str, Any], key: str, where: str) -> dict[str, str]:
    value: object = fields.get(key) or {}
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where}: `{key}` must be a map")
    return {str(one): str(text) for one, text in cast("Mapping[Any, Any]", value).items()}
