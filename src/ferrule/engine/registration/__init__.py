"""Tools, hooks and agents that are added to a session while it runs.

Modules: `registration` (the plugin, what may be added, the driver extension), `session_catalog`
(the session's tools), `growing_exchange` (how the model learns of them).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ferrule.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from .registration import RegistrationLimits
    from .session_catalog import SessionCatalog

__all__ = ["RegistrationLimits", "SessionCatalog"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {".registration": ("RegistrationLimits",), ".session_catalog": ("SessionCatalog",)},
)
