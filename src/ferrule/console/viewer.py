"""Who looks at a page, and which sessions they may see."""

from __future__ import annotations

from ferrule.core.value_class import frozen
from ferrule.storage.journal.sessions import SessionInfo


@frozen
class Viewer:
    """Who looks at a page. An operator sees and controls everyone's sessions."""

    user: str
    operator: bool
    tenant: str = "local"
    csrf: str = ""
    """The token their unsafe requests must repeat. Empty for programs, which send their bearer
    token every time.
    """

    def may_see(self, info: SessionInfo) -> bool:
        """Return whether they may see this session."""
        return self.operator or (info.tenant, info.user) == (self.tenant, self.user)
