"""The providers of models that can be used here: those that ship, and those of plugins in use."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ferrule.models.registry import PROVIDERS, Provider, build_provider_error, list_providers
from ferrule.storage.plugins.added_providers import find_added_providers
from ferrule.storage.settings.settings import Settings

from .chosen_plugins import build_off_error, list_used


def choose_providers(settings: Settings) -> Mapping[str, Provider]:
    """Return the providers that may be used under these settings, by name."""
    used = {manifest.name for manifest in list_used(settings)}
    return {
        name: row for name, row in list_providers().items() if not row.plugin or row.plugin in used
    }


def require_provider(name: str, settings: Settings) -> Provider:
    """Return a provider.

    Raises:
        ConfigError: There is none of that name, or its plugin is not used here.
    """
    if name in PROVIDERS:
        return PROVIDERS[name]
    row = choose_providers(settings).get(name)
    if row is not None:
        return row
    if name in list_providers():
        raise build_off_error(f"the models `{name}:`", settings)
    raise build_provider_error(name)


def read_client_options(name: str, model: str, settings: Settings) -> dict[str, Any]:
    """Return what the settings say to the client of a plugin's provider: the plugin's fields.

    Args:
        name: The provider.
        model: The full name of the model, whose own `num_ctx` comes before the field `n_ctx`.
        settings: The settings.
    """
    manifest = find_added_providers()[name].manifest
    found: dict[str, Any] = {}
    for field, row in manifest.settings.items():
        value = settings.values.get(f"plugins.{manifest.name}.{field}")
        if value is not None:
            found[field] = Path(value).expanduser() if row["kind"] == "path" else value
    if "n_ctx" in manifest.settings:
        window = settings.for_model(model).num_ctx
        found |= {} if window is None else {"n_ctx": window}
    return found
