"""Resources that the whole process shares: fork servers, pools of workers. Also the process's end.

They are started when they are first needed, nobody in particular owns them, and they end with the
process. Whoever shares one registers here how it is closed.
"""

from __future__ import annotations

import atexit
import gc
import io
import os
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

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


def end_process(code: int = 0) -> NoReturn:
    """End the process: its exit functions run, files are flushed, and nothing is waited for.

    Python itself would end the interpreter first, while threads of libraries go on. A native one
    that asks for the interpreter then aborts the process before Python 3.14, and one that is no
    daemon keeps the process alive.
    """
    atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]  as `multiprocessing` does
    for kind in (io.TextIOWrapper, io.BufferedWriter):
        for file in [each for each in gc.get_objects() if type(each) is kind]:
            # It may be closed, or what it goes to may be gone.
            with suppress(OSError, ValueError):
                file.flush()
    os._exit(code)
