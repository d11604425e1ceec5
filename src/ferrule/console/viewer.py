"""Who looks at a page, and which sessions exist for them."""

from __future__ import annotations

from dataclasses import dataclass

from ferrule.storage.journal.sessions import SessionInfo


@dataclass(frozen=True, slots=True)
class Viewer:
    """Who looks at a page. An operator sees and drives everybody's sessions."""

    user: str
    operator: bool
    tenant: str = "local"
    csrf: str = ""
    """What their unsafe requests must repeat; empty for programs, which bring their token each
    time.
    """

    def sees(self, info: SessionInfo) -> bool:
        """Whether this session exists for them."""
        return self.operator or (info.tenant, info.user) == (self.tenant, self.user)
