"""Log functions of the program that broke while they decided about a call.

A call whose approver or hook raises is denied, and the model reads why in a sentence. The author of
that function needs more, and may not see the result at all: the traceback goes to the logger
`ferrule.permissions`. Without a configuration of `logging`, Python prints it to standard error.
"""

from __future__ import annotations

import logging

from ferrule.core.errors import FerruleError, ToolFailed

_LOGGER = logging.getLogger("ferrule.permissions")


def log_broken_guard(guard: str, occasion: str, error: BaseException) -> None:
    """Log an error of an approver or a hook with its traceback.

    Errors of ours and timeouts are sentences for people already, and are not logged.

    Args:
        guard: Which function it is, for example ``the hook `count` ``.
        occasion: The call or the event that it was asked about.
        error: What it raised.
    """
    if not isinstance(error, (FerruleError, ToolFailed, TimeoutError)):
        _LOGGER.error("%s broke (%s)", guard, occasion, exc_info=error)
