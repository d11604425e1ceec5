"""The providers of models that installed plugins bring, as their manifests have them.

`models.registry` makes rows of its list from them; nothing is imported before a model is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ferrule.core.errors import ConfigError
from ferrule.core.limits import DEFAULT_TURNS
from ferrule.core.value_class import frozen

from .installed import find_installed_manifests
from .manifests import Manifest


@frozen
class AddedProvider:
    """A provider of a plugin: the plugin's manifest, and the fields of a row of the list."""

    manifest: Manifest
    fields: Mapping[str, Any]


def find_added_providers() -> Mapping[str, AddedProvider]:
    """Return the providers of installed plugins by name, whether or not the plugins are on.

    Raises:
        ConfigError: Two plugins bring the same one, or a plugin's manifest cannot be read.
    """
    found: dict[str, AddedProvider] = {}
    for manifest in find_installed_manifests().values():
        for name, fields in manifest.providers.items():
            if name in found:
                raise ConfigError(
                    f"two plugins bring the provider `{name}`: `{found[name].manifest.name}` and "
                    f"`{manifest.name}`",
                    code="plugin_conflict",
                    hint=f"uninstall one: `pip uninstall {manifest.distribution}`",
                )
            found[name] = AddedProvider(manifest, fields)
    return found


def default_turns(model: str) -> int:
    """Return the turns of a message where nothing is set, by the full name of the model."""
    added = find_added_providers().get(model.partition(":")[0])
    return DEFAULT_TURNS if added is None else added.fields.get("turns", DEFAULT_TURNS)
