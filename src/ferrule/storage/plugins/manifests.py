"""Read the manifests of the plugins that ship. Nothing of a plugin is imported for it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import field
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

from ferrule.core.errors import ConfigError
from ferrule.core.value_class import frozen

_SHIPPED = Path(__file__).with_name("shipped.toml")


@frozen
class ManifestEntry:
    """A command or a page that a manifest names: its `module:object`, and one line for people."""

    object: str
    text: str


@frozen
class Manifest:
    """What a plugin is, as `shipped.toml` explains it.

    Attributes:
        name: Its name in settings and messages.
        object: The class, as `module:name`; a module alone has none, and the plugin is what its
            manifest says.
        settings: Its fields, with the keys of a row of the table of settings.
        takes: Fields that other settings of the table set, and their keys.
        when_settings: Settings of which one that has a value also switches it on.
        when_environment: Variables of which one that is set does.
        when_own: Names in the person's settings folder of which one that exists does.
        when_repository: Files of a trusted repository's configuration, or folders that end in `/`,
            of which one that exists does.
        environment: The variables that it may read.
        restricts: Whether it has hooks, so that a run without it would allow more.
        commands: Its terminal commands by name.
        pages: Its pages of the console by name.
        providers: Its providers of models by name, with the fields of `models.registry.Provider`.
        distribution: Where it comes from; "" for a plugin that ships.
        version: The distribution's version.
        places: The folders of its metadata and of its code.
        file: The file of the manifest; "" if it has none.
        problems: What is wrong with it. A plugin with problems is never used, and as nobody can
            tell whether it restricts, no run goes on without it unless it is switched off.
    """

    name: str
    object: str
    help: str
    default: bool
    project: str
    coding: tuple[str, ...] = ()
    all: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    takes: Mapping[str, str] = field(default_factory=dict[str, str])
    when_settings: tuple[str, ...] = ()
    when_environment: tuple[str, ...] = ()
    when_own: tuple[str, ...] = ()
    when_repository: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    restricts: bool = False
    commands: Mapping[str, ManifestEntry] = field(default_factory=dict[str, ManifestEntry])
    pages: Mapping[str, ManifestEntry] = field(default_factory=dict[str, ManifestEntry])
    providers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    distribution: str = ""
    version: str = ""
    places: tuple[str, ...] = ()
    file: str = ""
    problems: tuple[str, ...] = ()

    @property
    def tools(self) -> tuple[str, ...]:
        """The full names of all tools that it may bring."""
        return (*self.coding, *self.all, *self.optional)

    @property
    def is_set_up(self) -> bool:
        """Whether it has a class, which adds something to an agent."""
        return ":" in self.object

    def check(self) -> None:
        """Raise ConfigError, naming all problems, if the manifest has any."""
        if self.problems:
            raise ConfigError(
                f"the manifest of the plugin `{self.name}` of `{self.distribution}` cannot be "
                f"used: {self.file}: {'; '.join(self.problems)}",
                code="plugin_invalid",
                hint=f"correct it, or switch the plugin off: `plugins: {{{self.name}: false}}`",
            )


@cache
def read_shipped_manifests() -> Mapping[str, Manifest]:
    """Return the manifests of the plugins that ship, by name, in the order of set-up."""
    with _SHIPPED.open("rb") as file:
        tables = tomllib.load(file)
    return {name: read_manifest(name, table) for name, table in tables.items()}


def list_coding_tools() -> frozenset[str]:
    """Return the tools of the profile `coding`: one per job."""
    return frozenset(chain.from_iterable(one.coding for one in read_shipped_manifests().values()))


def read_manifest(name: str, table: Mapping[str, Any]) -> Manifest:
    """Return the manifest of a plugin from its table, which is valid (`manifest_keys`)."""
    when = table.get("when", {})
    needs = table.get("needs", {})
    return Manifest(
        name,
        table["object"],
        table["help"],
        table.get("default", False),
        table.get("project", "free"),
        tuple(table.get("coding", ())),
        tuple(table.get("all", ())),
        tuple(table.get("optional", ())),
        table.get("settings", {}),
        table.get("takes", {}),
        tuple(when.get("settings", ())),
        tuple(when.get("environment", ())),
        tuple(when.get("own", ())),
        tuple(when.get("repository", ())),
        tuple(needs.get("environment", ())),
        needs.get("restricts", False),
        _read_entries(table.get("commands", {}), "help"),
        _read_entries(table.get("pages", {}), "title"),
        {key: dict(fields) for key, fields in table.get("providers", {}).items()},
    )


def _read_entries(table: Mapping[str, Mapping[str, str]], text: str) -> dict[str, ManifestEntry]:
    return {name: ManifestEntry(row["object"], row[text]) for name, row in table.items()}
