"""The options of a model: which are set, and whether its provider knows them.

`ModelOptions` (in `client`) is one value for all providers. An option that a provider's API does
not have is an error when a conversation is opened: dropped in silence, it would leave a person
believing in a seed, a bias or a stop text that nobody applies.
"""

from __future__ import annotations

from dataclasses import fields

from ferrule.core.errors import ConfigError

from .client import ModelOptions
from .registry import find_provider

UNIVERSAL_OPTIONS = frozenset({"num_ctx", "timeout", "extra", "provider_tools", "tool_search"})
"""Options that are not the API's to know, or that are checked elsewhere."""


def list_set_options(options: ModelOptions) -> list[str]:
    """Return the names of the options that are set and that a provider must know."""
    names = [item.name for item in fields(options) if item.name not in UNIVERSAL_OPTIONS]
    return [name for name in names if getattr(options, name) not in (None, "", (), {})]


def check_options(model: str, options: ModelOptions) -> None:
    """Check that a model's provider knows the options that are set.

    Args:
        model: The model's full name. A client that is in no table decides for itself.
        options: Its options.

    Raises:
        ConfigError: One of them is not among the options of the provider's API.
    """
    row = find_provider(model)
    if row is None:
        return
    unknown = [name for name in list_set_options(options) if name not in row.options]
    if unknown:
        named = ", ".join(f"`{name}`" for name in unknown)
        known = ", ".join(f"`{name}`" for name in sorted(row.options))
        raise ConfigError(
            f"`{model}` cannot be given {named}: its provider's API has no such option",
            code="model_options",
            hint=f"leave it out for this model; it takes {known}, and what only its provider "
            "knows in `extra`",
        )
