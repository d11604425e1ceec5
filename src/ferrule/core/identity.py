"""Who a run is for. Rides on the context, is never blank, never comes from a global."""

from __future__ import annotations

from dataclasses import fields, replace

from .errors import ConfigError
from .frozen import frozen


@frozen
class Identity:
    """Tenant, user, session and run. Blank parts (also blanks made of spaces) are refused."""

    tenant: str
    user: str
    session: str
    run: str

    def __post_init__(self) -> None:
        if not (
            self.tenant.strip() and self.user.strip() and self.session.strip() and self.run.strip()
        ):
            blank = [f.name for f in fields(self) if not getattr(self, f.name).strip()]
            raise ConfigError(f"identity without {', '.join(blank)}", code="identity_blank")

    def for_run(self, run: str) -> Identity:
        """The same person and session, another run."""
        return replace(self, run=run)
