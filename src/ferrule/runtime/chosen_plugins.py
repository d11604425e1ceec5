"""The plugins of a run: those that the settings switch on, made of what the settings say."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from ferrule.core.errors import ConfigError
from ferrule.core.value_class import frozen
from ferrule.engine.plugins.failures import explain_failure
from ferrule.engine.plugins.loading import load_class
from ferrule.engine.plugins.plugin_set import (
    PluginOptions,
    PluginSet,
    set_up_plugins,
    setup_for_program,
)
from ferrule.engine.plugins.protocol import Parts, Plugin, ProtectsNames, Setup
from ferrule.models.registry import create_model_client
from ferrule.permissions.installed_code import find_writable_place
from ferrule.permissions.provenance import CommandWritable
from ferrule.permissions.rule_evaluation import PermissionGate
from ferrule.storage import paths
from ferrule.storage.plugins.installed import find_installed_manifests
from ferrule.storage.plugins.manifests import Manifest, read_shipped_manifests
from ferrule.storage.said_notices import say_first_time
from ferrule.storage.settings.merge import LAYER_ORDER
from ferrule.storage.settings.settings import Settings
from ferrule.tools.definition import Tool

from .tool_profiles import names_added_by_runs

Fields = Mapping[str, Mapping[str, Any]]
"""Fields of plugins that no setting gives, by the plugin's name."""


@frozen
class ChosenPlugin:
    """A plugin that is on, and what its manifest says of it."""

    manifest: Manifest
    plugin: Plugin


def choose_plugins(
    settings: Settings, notice: Callable[[str], None], fields: Fields
) -> list[ChosenPlugin]:
    """Return the plugins that the settings switch on. Others are not imported.

    Raises:
        ConfigError: A plugin's settings or its manifest cannot be used; or it fails, and it is
            named in the settings or restricts.
    """
    chosen: list[ChosenPlugin] = []
    for manifest in list_manifests(settings):
        given = fields.get(manifest.name, {})
        is_wanted = manifest.name in fields
        if not is_on(manifest, settings, is_wanted=is_wanted):
            continue
        manifest.check()
        if not manifest.is_set_up:
            continue
        if manifest.distribution:
            _announce(manifest, notice)
        try:
            chosen.append(ChosenPlugin(manifest, _load(manifest, settings, given)))
        except Exception as error:
            if not manifest.distribution:
                raise
            module = manifest.object.partition(":")[0]
            problem = explain_failure(manifest.name, manifest.distribution, error, module)
            if _is_required(manifest, settings):
                raise problem from error
            notice(f"{problem.detail}; it is left out")
    return chosen


def list_protected_names(chosen: Iterable[ChosenPlugin], workspace: Path) -> tuple[str, ...]:
    """Return the names in the workspace that the plugins protect from tools and commands."""
    plugins = (one.plugin for one in chosen)
    guards = (plugin for plugin in plugins if isinstance(plugin, ProtectsNames))
    return tuple(chain.from_iterable(guard.list_protected_names(workspace) for guard in guards))


def set_up_chosen(
    settings: Settings,
    chosen: Sequence[ChosenPlugin],
    setup: Setup,
    tools: Iterable[Tool],
    resources: Iterable[object],
) -> PluginSet:
    """Set up the plugins of a run, which has these tools and resources besides.

    Raises:
        ConfigError: A plugin's settings cannot be used, or two plugins are in conflict.
    """
    options = {one.manifest.name: _make_options(one.manifest, settings) for one in chosen}
    plugins = [*(one.plugin for one in chosen), Parts(resources=resources)]
    added = set_up_plugins(plugins, setup, tools=tools, options=options)
    _refuse_shipped_names(added)
    return added


def _make_options(manifest: Manifest, settings: Settings) -> PluginOptions:
    keys = _list_keys(manifest)
    return PluginOptions(
        manifest.environment,
        {name: settings.origin(key).where for name, key in keys.items()},
        not _is_required(manifest, settings),
        manifest.distribution,
    )


def _refuse_shipped_names(added: PluginSet) -> None:
    """Raise ConfigError for an installed plugin with a tool that Ferrule has, perhaps elsewhere."""
    manifests = read_shipped_manifests()
    own = {name for one in manifests.values() for name in one.tools}
    own.update(names_added_by_runs())
    for tool, plugin in added.sources.items():
        if plugin not in manifests and tool in own:
            raise ConfigError(
                f"the plugin `{plugin}` brings a tool `{tool}`, which is the name of one of "
                "Ferrule's",
                code="plugin_conflict",
                hint=f"switch it off: `plugins: {{{plugin}: false}}`, and tell its author",
            )


def list_manifests(settings: Settings) -> list[Manifest]:
    """Return the manifests of a run, in the order of set-up: those that ship come first.

    Plugins in folders that commands can write are left out: they run outside the sandbox.
    """
    shipped = [*read_shipped_manifests().values()]
    if not settings["plugins.installed"]:
        return shipped
    usable = (one for one, place in _list_installed(settings) if place is None)
    return [*shipped, *usable]


def list_withheld(settings: Settings) -> list[str]:
    """Return a sentence for each installed plugin that is left out for where it lies."""
    if not settings["plugins.installed"]:
        return []
    return [
        f"the plugin `{one.name}` of `{one.distribution}` is not used: commands can write "
        f"`{place}`; install it beside Ferrule, or both somewhere else: "
        "`uv tool install ferrule --with PACKAGE`"
        for one, place in _list_installed(settings)
        if place is not None
    ]


def require_command(name: str, settings: Settings) -> None:
    """Raise ConfigError for a terminal command of a plugin that is not, or cannot be, used here."""
    for one in list_used(settings):
        if name in one.commands:
            one.check()
            return
    raise build_off_error(f"the command `{name}`", settings)


def build_off_error(brought: str, settings: Settings) -> ConfigError:
    """Return the error for something that a plugin brings which is not used here."""
    withheld = " ".join(list_withheld(settings))
    return ConfigError(
        f"the plugin that brings {brought} is not used here",
        code="plugin_off",
        hint=withheld or "`ferrule plugins` shows which are on, and `plugins` in the settings why",
    )


def list_used(settings: Settings) -> list[Manifest]:
    """Return the manifests of the plugins that are on."""
    return [one for one in list_manifests(settings) if is_on(one, settings)]


def is_on(manifest: Manifest, settings: Settings, *, is_wanted: bool = False) -> bool:
    """Return whether a plugin is part of a run.

    The strongest layer that says something of it decides: `plugins.NAME` switches it on or off, and
    one of its fields switches it on. Nothing of that said, an interface that wants it, its default
    and the conditions of its manifest do.
    """
    key = f"plugins.{manifest.name}"
    explicit = _strength(settings, key)
    fields = [_strength(settings, f"{key}.{name}") for name in manifest.settings]
    if max((explicit, *fields)) > 0:
        return settings[key] if explicit >= max(fields, default=0) else True
    return is_wanted or manifest.default or _is_called_for(manifest, settings)


def _is_called_for(manifest: Manifest, settings: Settings) -> bool:
    """Return whether a condition of the manifest holds."""
    own = paths.config()
    repository = settings.repository
    files = repository.files if repository.state == "trusted" else ()
    return (
        any(settings.values.get(key) for key in manifest.when_settings)
        or any(os.environ.get(name) for name in manifest.when_environment)
        or any((own / name).exists() for name in manifest.when_own)
        or any(_is_among(files, name) for name in manifest.when_repository)
    )


def _is_among(files: Iterable[str], name: str) -> bool:
    """Return whether a file is there, or one in the folder if the name ends in `/`."""
    if not name.endswith("/"):
        return name in files
    return any(file.startswith(name) for file in files)


def load_shipped_tools(model: str = "", /, **fields: Mapping[str, Any]) -> tuple[Tool, ...]:
    """Return the tools of the plugins that are on by default, and of those that are named.

    Args:
        model: The model that they are for.
        fields: The fields of plugins, by the plugin's name.
    """
    chosen = [one for one in read_shipped_manifests().values() if one.default or one.name in fields]
    plugins = [load_class(one)(**fields.get(one.name, {})) for one in chosen]
    setup = setup_for_program(model, None, create_model_client, PermissionGate())
    return set_up_plugins(plugins, setup).tools


def _list_installed(settings: Settings) -> Iterator[tuple[Manifest, str | None]]:
    """Yield the manifests of installed plugins, and for each a place of it that commands can write.

    None if there is none. The environment that Ferrule itself runs from is sealed for commands, so
    a plugin there can be used even if that lies in the workspace.
    """
    folders = (Path(folder).expanduser() for folder in settings["sandbox.writable"])
    writable = CommandWritable.from_folders(settings.workspace, *folders)
    for manifest in find_installed_manifests().values():
        yield manifest, find_writable_place(manifest.places, writable)


def _announce(manifest: Manifest, notice: Callable[[str], None]) -> None:
    """Tell the person once of each version of a plugin that runs with their rights."""
    text = (
        f"the plugin `{manifest.name}` of `{manifest.distribution}` {manifest.version} is used; "
        f"`plugins: {{{manifest.name}: false}}` switches it off"
    )
    if say_first_time(text):
        notice(text)


def _is_required(manifest: Manifest, settings: Settings) -> bool:
    """Return whether a run must not go on without a plugin that fails."""
    if not manifest.distribution or manifest.restricts:
        return True
    prefix = f"plugins.{manifest.name}"
    keys = (prefix, *(f"{prefix}.{name}" for name in manifest.settings))
    return any(_strength(settings, key) > 0 for key in keys)


def _strength(settings: Settings, key: str) -> int:
    return LAYER_ORDER.index(settings.origin(key).layer)


def _load(manifest: Manifest, settings: Settings, given: Mapping[str, Any]) -> Plugin:
    keys = _list_keys(manifest)
    values = {name: settings.values[key] for name, key in keys.items() if key in settings.values}
    return load_class(manifest)(**values, **given)


def _list_keys(manifest: Manifest) -> dict[str, str]:
    """Return the settings that give a plugin's fields, by the fields' names."""
    own = {name: f"plugins.{manifest.name}.{name}" for name in manifest.settings}
    return {**own, **manifest.takes}
