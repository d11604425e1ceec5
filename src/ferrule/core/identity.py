"""Who a run is for. Part of the context, never blank, and never taken from a global."""

from __future__ import annotations

from dataclasses import fields, replace

from .errors import ConfigError
from .value_class import frozen


@frozen
class Identity:
    """Tenant, user, session and run. Raises ConfigError if one is empty or only spaces."""

    tenant: str
    user: str
    session: str
    run: str

    def __post_init__(self) -> None:
        blank = [item.name for item in fields(self) if not getattr(self, item.name).strip()]
        if blank:
            raise ConfigError(
                f"identity: {', '.join(blank)} must not be empty",
                code="identity_blank",
                hint="give every part a name, like `local`",
            )

    def for_run(self, run: str) -> Identity:
        """Return the identity of another run in the same session."""
        return replace(self, run=run)
