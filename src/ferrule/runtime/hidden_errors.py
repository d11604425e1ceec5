"""Log errors that a server's clients are not told of: they are for the owner of the server.

The logger is `ferrule.servers`. Without a configuration of `logging`, Python prints its errors to
standard error.
"""

from __future__ import annotations

import logging
import os

from ferrule.core.errors import FerruleError, LimitReached, OutputInvalid
from ferrule.permissions.redaction import Redactor

LOGGER = logging.getLogger("ferrule.servers")


def is_for_clients(error: FerruleError) -> bool:
    """Whether a client is told the error's text: a limit, an answer that does not fit, a hook's no.

    A hook that broke is not one of them: what went wrong in it is for the owner.
    """
    return isinstance(error, LimitReached | OutputInvalid) or error.code == "hook_blocked"


def log_hidden_error(server: str, error: FerruleError) -> None:
    """Log an error whole, with its hint, of which a client is told the code alone.

    Args:
        server: Which server it is: `openai`, `mcp` and so on.
        error: The error. Secrets of this process are left out.
    """
    text = f"{error.detail} ({error.code})"
    if error.hint:
        text += f"; hint: {error.hint}"
    redacted = Redactor.for_environment(os.environ).redact_text(text)
    LOGGER.error("%s: a request failed: %s", server, redacted)
