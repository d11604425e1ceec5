"""Plugins by name: their classes are imported, and compared with what their manifests say."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from importlib import import_module
from typing import Any, cast

from ferrule.core.errors import ConfigError
from ferrule.core.extras import name_missing_extra
from ferrule.core.similar_names import suggest_names
from ferrule.storage.plugins.installed import find_installed_manifests, read_package_manifest
from ferrule.storage.plugins.manifests import Manifest, read_shipped_manifests

from .failures import describe_failure
from .protocol import Plugin

PluginClass = Callable[..., Plugin]


def load_class(manifest: Manifest) -> PluginClass:
    """Return the class of a plugin, which is imported for it.

    Raises:
        ConfigError: The manifest cannot be used, or says something else than the class.
    """
    manifest.check()
    plugin_class = cast("PluginClass", load_object(manifest.object))
    # Those that ship are compared by a test.
    found = [*find_contradictions(manifest, plugin_class)] if manifest.distribution else []
    if found:
        raise ConfigError(
            f"the plugin `{manifest.name}` and its class disagree: {'; '.join(found)}",
            code="plugin_invalid",
            hint=f"correct `{manifest.file or manifest.object}`",
        )
    return plugin_class


def make_plugin(name: str) -> Plugin:
    """Return the plugin with this name, shipped or installed, with the defaults of its fields.

    Raises:
        ConfigError: There is none, it cannot be loaded, or it has fields without a default.
    """
    manifest = find_manifest(name)
    if not manifest.is_set_up:
        manifest.check()
        raise ConfigError(
            f"the plugin `{name}` has no class: it adds nothing to an agent",
            code="plugin_unknown",
            hint="leave it out; its models and commands need no plugin of the agent",
        )
    try:
        return load_class(manifest)()
    except Exception as error:
        module = manifest.object.partition(":")[0]
        raise ConfigError(
            f"the plugin `{name}` cannot be loaded: {describe_failure(error, module)}",
            code="plugin_failed",
            hint=f"import its class, `{manifest.object}`, to give it fields",
        ) from error


def load_object(target: str) -> object:
    """Return the object of `module:name`.

    Raises whatever importing it raises; ExtraMissing if that is a missing extra.
    """
    module, _, name = target.partition(":")
    with name_missing_extra():
        return getattr(import_module(module), name)


def find_contradictions(manifest: Manifest, plugin_class: PluginClass) -> Iterator[str]:
    """Yield a sentence for each contradiction between a manifest and the plugin's class."""
    yield from _find_name_problems(manifest, plugin_class)
    yield from _find_field_problems(manifest, plugin_class)


def _find_name_problems(manifest: Manifest, plugin_class: PluginClass) -> Iterator[str]:
    name = getattr(plugin_class, "name", None)
    if name != manifest.name:
        shown = _name_class(plugin_class)
        yield f"the entry point names it `{manifest.name}`, and `{shown}.name` is {name!r}"


def _find_field_problems(manifest: Manifest, plugin_class: PluginClass) -> Iterator[str]:
    fields = list_fields(plugin_class)
    for field in manifest.settings:
        if field not in fields:
            known = suggest_names(field, fields, f"it has {_join(fields)}")
            yield f"`settings.{field}` is not a field of `{_name_class(plugin_class)}`: {known}"


def _name_class(plugin_class: PluginClass) -> str:
    return getattr(plugin_class, "__name__", str(plugin_class))


def find_manifest_problems(plugin: Plugin, tools: Collection[str]) -> Iterator[str]:
    """Yield what is wrong with the manifest beside a plugin's package, and with its entry points.

    Its commands and pages are imported for it. Without a manifest there is nothing to compare.

    Args:
        plugin: The plugin.
        tools: The full names of all tools that it brings.
    """
    plugin_class = type(plugin)
    package = plugin_class.__module__.partition(".")[0]
    for one in find_installed_manifests().values():
        if one.object == f"{plugin_class.__module__}:{plugin_class.__qualname__}":
            yield from _find_name_problems(one, plugin_class)
    manifest = read_package_manifest(plugin.name, package)
    if not manifest.file:
        return
    yield from (f"`{manifest.file}`: {problem}" for problem in manifest.problems)
    yield from _find_field_problems(manifest, plugin_class)
    yield from _find_default_problems(manifest, plugin_class)
    yield from _find_tool_problems(manifest, tools)
    for entry in (*manifest.commands.values(), *manifest.pages.values()):
        try:
            load_object(entry.object)
        except Exception as error:  # noqa: BLE001  boundary: code of a plugin
            yield f"`{entry.object}` cannot be loaded: {describe_failure(error, package)}"


def _find_default_problems(manifest: Manifest, plugin_class: PluginClass) -> Iterator[str]:
    fields = list_fields(plugin_class)
    for name, row in manifest.settings.items():
        default = fields.get(name, row.get("default"))
        said = row.get("default")
        if _to_plain(default) != said:
            yield f"`settings.{name}.default` is {said!r}, and the class has {default!r}"


def _find_tool_problems(manifest: Manifest, tools: Collection[str]) -> Iterator[str]:
    """Yield the tools that are not named. One that is named may come with other fields."""
    if not manifest.tools:
        return
    others = {*manifest.tools} - {*tools}
    for name in sorted({*tools} - {*manifest.tools}):
        suggestion = suggest_names(name, others)
        yield f"`optional` does not name the tool `{name}`{', ' + suggestion if suggestion else ''}"


def _to_plain(value: object) -> object:
    """Return a default as TOML would have it."""
    return list(cast("tuple[object, ...]", value)) if isinstance(value, tuple) else value


def list_fields(plugin_class: PluginClass) -> dict[str, Any]:
    """Return the fields that a class takes, with their defaults (`inspect.Parameter.empty`)."""
    return {one.name: one.default for one in inspect.signature(plugin_class).parameters.values()}


def find_manifest(name: str) -> Manifest:
    """Return the manifest of the plugin with this name.

    Raises:
        ConfigError: There is none, or installed plugins cannot be told apart.
    """
    known: Mapping[str, Manifest] = {**read_shipped_manifests(), **find_installed_manifests()}
    if name in known:
        return known[name]
    raise ConfigError(
        f"there is no plugin `{name}`",
        code="plugin_unknown",
        hint=suggest_names(name, known, "`ferrule plugins` lists those that ship or are installed"),
    )


def _join(names: Mapping[str, Any]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"
