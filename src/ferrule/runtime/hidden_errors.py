"""Log errors that a server's clients are not told of: they are for the owner of the server.

The logger is `ferrule.servers`. Without a configuration of `logging`, Python prints its errors to
standard error.
"""

from __future__ import annotations

import logging
import os
import traceback

from ferrule.core.errors import FerruleError, LimitReached, OutputInvalid
from ferrule.core.extras import describe_missing
from ferrule.permissions.redaction import Redactor

LOGGER = logging.getLogger("ferrule.servers")


DEFECT = "defect"
"""The code that a client is told of an error that is none of ours."""


def is_for_clients(error: FerruleError) -> bool:
    """Whether a client is told the error's text: a limit, an answer that does not fit, a hook's no.

    A hook that broke is not one of them: what went wrong in it is for the owner.
    """
    return isinstance(error, LimitReached | OutputInvalid) or error.code == "hook_blocked"


def log_hidden_error(server: str, error: Exception) -> None:
    """Log an error whole, of which a client is told the code alone.

    Args:
        server: Which server it is: `openai`, `mcp` and so on.
        error: One of ours is logged with its hint. Of any other, such as a fault of a program's own
            tool or model client, where it happened is logged too. Secrets of this process are left
            out.
    """
    error = describe_missing(error) or error
    if isinstance(error, FerruleError):
        text = f"{error.detail} ({error.code})"
        if error.hint:
            text += f"; hint: {error.hint}"
    else:
        text = "".join(traceback.format_exception(error)).rstrip()
    redacted = Redactor.for_environment(os.environ).redact_text(text)
    LOGGER.error("%s: a request failed: %s", server, redacted)
