"""Run the command line: how an exception becomes a message and an exit code.

Exit codes: 0 done, 1 failed, 2 usage error, 3 finished but the last tool result was a failure, 4
denied by policy, 5 limit reached, 6 provider unavailable, 7 needs input, 124 timeout, 130 SIGINT,
143 SIGTERM.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
import traceback
from typing import Any

import click

from ferrule.core.errors import FerruleError, OutputInvalid
from ferrule.core.extras import describe_missing

from .root import ferrule
from .terminal import escape_invisible


def run(arguments: list[str]) -> int:
    """Run the command line and return the exit code.

    Errors go to standard error with a hint; with FERRULE_TRACEBACK=1 the traceback comes before it
    and the exit code stays the same.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _exit_on_signal)
    try:
        outcome = ferrule.main(arguments, prog_name="ferrule", standalone_mode=False)
        sys.stdout.flush()  # what cannot be written is an error here, not when Python ends
    except click.exceptions.Abort:
        return 130
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except Exception as error:  # noqa: BLE001  boundary: people get a sentence, not a traceback
        return _report(error)
    return outcome if isinstance(outcome, int) else 0


def _report(error: Exception) -> int:
    """Print an error with its hint. Return the exit code."""
    if os.environ.get("FERRULE_TRACEBACK"):
        traceback.print_exception(error)
    error = describe_missing(error) or error
    if isinstance(error, FerruleError):
        detail, hint, code = error.detail, error.hint, error.exit_code
        if isinstance(error, OutputInvalid):
            hint = "simplify the schema, choose another `--output-mode`, or another model"
    elif isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EPIPE, errno.EIO):
        # Only the output itself: writing to the journal or to files raises errors of its own.
        detail = f"the output could not be written: {error.strerror}"
        hint = "check where it goes: the disk may be full, or the pipe closed"
        code = 1
    else:
        detail = f"a defect in Ferrule: {type(error).__name__}: {error}"
        hint = "set FERRULE_TRACEBACK=1 to see where, and please report it"
        code = 1
    sys.stderr.write(f"error: {escape_invisible(detail)}\n")
    if hint:
        sys.stderr.write(f"hint: {escape_invisible(hint)}\n")
    return code


def _exit_on_signal(number: int, frame: Any) -> None:
    raise SystemExit(128 + number)
