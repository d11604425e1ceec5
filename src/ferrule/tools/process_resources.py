"""Resources that the whole process shares: fork servers, pools of workers.

They are started when they are first needed, nobody in particular owns them, and they end with the
process. Whoever shares one registers here how it is closed.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable

_closers: list[Callable[[], object]] = []


def close_at_exit(close: Callable[[], object]) -> None:
    """Have `close` called when the process ends, and by `close_process_resources`.

    It may be called several times: what it closed is started again when it is needed again.
    """
    _closers.append(close)


def close_process_resources() -> None:
    """Close what the process shares; each resource is started again when it is needed again."""
    for close in reversed(_closers):
        close()


atexit.register(close_process_resources)
