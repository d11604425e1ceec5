"""The plugins of a run: those that the settings switch on, made of what the settings say."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from ferrule.core.errors import ConfigError
from ferrule.engine.plugins.plugin_set import PluginSet, set_up_plugins, setup_for_program
from ferrule.engine.plugins.protocol import Plugin, Setup
from ferrule.models.registry import create_model_client
from ferrule.storage.plugins.installed import find_installed_manifests, is_within
from ferrule.storage.plugins.manifests import Manifest, read_shipped_manifests
from ferrule.storage.said_notices import say_first_time
from ferrule.storage.settings.merge import LAYER_ORDER
from ferrule.storage.settings.settings import Settings
from ferrule.tools.definition import Tool

from .shipped_tools import names_added_by_runs


def set_up_chosen(settings: Settings, setup: Setup) -> PluginSet:
    """Set up the plugins that the settings switch on. Others are not imported.

    Raises:
        ConfigError: A plugin's settings cannot be used, or two plugins are in conflict.
    """
    chosen = [one for one in list_manifests(settings) if is_on(one, settings)]
    plugins: list[Plugin] = []
    for manifest in chosen:
        if manifest.distribution:
            _announce(manifest, setup.notice)
        try:
            plugins.append(_load(manifest, settings))
        except Exception as error:
            if not manifest.distribution:
                raise
            if _is_required(manifest, settings):
                raise _explain_failure(manifest, error) from error
            setup.notice(f"{_explain_failure(manifest, error).detail}; it is left out")
    added = set_up_plugins(
        plugins,
        setup,
        environments={one.name: one.environment for one in chosen},
        optional=[one.name for one in chosen if not _is_required(one, settings)],
    )
    _refuse_shipped_names(added)
    return added


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
    installed = find_installed_manifests().values()
    return [*shipped, *(one for one in installed if not is_within(one, _list_writable(settings)))]


def list_withheld(settings: Settings) -> list[str]:
    """Return a sentence for each installed plugin that is left out for where it lies."""
    if not settings["plugins.installed"]:
        return []
    return [
        f"the plugin `{one.name}` of `{one.distribution}` is not used: it is installed in a folder "
        f"that commands can write ({', '.join(one.places)}); install Ferrule and it somewhere "
        "else: `uv tool install ferrule --with PACKAGE`"
        for one in find_installed_manifests().values()
        if is_within(one, _list_writable(settings))
    ]


def is_on(manifest: Manifest, settings: Settings) -> bool:
    """Return whether a plugin is part of a run.

    The strongest layer that says something of it decides: `plugins.NAME` switches it on or off, and
    one of its fields switches it on.
    """
    key = f"plugins.{manifest.name}"
    explicit = _strength(settings, key)
    fields = [_strength(settings, f"{key}.{name}") for name in manifest.settings]
    if max((explicit, *fields)) > 0:
        return settings[key] if explicit >= max(fields, default=0) else True
    if manifest.when_setting and settings[manifest.when_setting]:
        return True
    return manifest.default or any(os.environ.get(name) for name in manifest.when_environment)


def load_shipped_tools(**fields: Mapping[str, Any]) -> tuple[Tool, ...]:
    """Return the tools of the plugins that are on by default, and of those that are named.

    Args:
        fields: The fields of plugins, by the plugin's name.
    """
    chosen = [one for one in read_shipped_manifests().values() if one.default or one.name in fields]
    plugins = [load_class(one)(**fields.get(one.name, {})) for one in chosen]
    return set_up_plugins(plugins, setup_for_program("", None, create_model_client)).tools


def _list_writable(settings: Settings) -> tuple[str | Path, ...]:
    return (settings.workspace, *settings["sandbox.writable"])


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


def _explain_failure(manifest: Manifest, error: Exception) -> ConfigError:
    return ConfigError(
        f"the plugin `{manifest.name}` of `{manifest.distribution}` cannot be loaded: "
        f"{type(error).__name__}: {error}",
        code="plugin_failed",
        hint=f"switch it off: `plugins: {{{manifest.name}: false}}` or `--no-plugins`",
    )


def _strength(settings: Settings, key: str) -> int:
    return LAYER_ORDER.index(settings.origin(key).layer)


def _load(manifest: Manifest, settings: Settings) -> Plugin:
    prefix = f"plugins.{manifest.name}"
    keys = {name: f"{prefix}.{name}" for name in manifest.settings}
    return load_class(manifest)(
        **{name: settings.values[key] for name, key in keys.items() if key in settings.values}
    )


def load_class(manifest: Manifest) -> Callable[..., Plugin]:
    """Return the class of a plugin, which is imported for it."""
    module, _, name = manifest.object.partition(":")
    return cast("Callable[..., Plugin]", getattr(import_module(module), name))
