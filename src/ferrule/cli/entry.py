"""The console script. It answers `ferrule --version` before anything else is loaded."""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING, Any, NoReturn, cast

from .import_path import find_left_out, protect_imports

if TYPE_CHECKING:
    import io


OBJECTS_BEFORE_COLLECTION = 100_000
"""How many new objects there may be before Python looks for garbage; its own number is 700.

More than the 72,000 that a question with all tools makes.
"""

WINDOWS = (
    "ferrule: on Windows it runs in WSL, where commands can be confined: `wsl --install`, then "
    "install and run it there"
)


def main() -> None:
    """Run the command line and end the process with its exit code."""
    _open_closed_streams()
    # A character that the terminal's encoding lacks is escaped instead of ending the program.
    cast("io.TextIOWrapper[Any]", sys.stdout).reconfigure(errors="backslashreplace")
    if sys.argv[1:] == ["--version"]:
        from ferrule._version import __version__

        try:
            sys.stdout.write(f"ferrule {__version__}\n")
            sys.stdout.flush()
        except OSError:
            pass  # the command line tries again, and explains why it fails
        else:
            return
    if sys.platform == "win32":
        sys.exit(WINDOWS)
    _check_current_folder()
    refused = protect_imports(sys.argv[1:])
    if refused:
        _refuse(refused)
    # Nearly everything that is made while a command starts stays: looking for garbage in it took
    # a twelfth of the time to the first answer.
    gc.set_threshold(OBJECTS_BEFORE_COLLECTION)
    try:
        from .exit_codes import run
    except ModuleNotFoundError as error:
        _refuse(find_left_out(error.name or "") or _explain_missing(error))

    try:
        code = run(sys.argv[1:])
    finally:
        # Python looks for garbage several times more while it ends. Nothing is gained: all of it
        # goes with the process. It took a fifth of the processor time of a short command.
        gc.freeze()
    _drop_unwritten_output()
    sys.exit(code)


def _check_current_folder() -> None:
    """Refuse to begin in a folder that was removed: no path could be resolved there."""
    try:
        os.getcwd()  # noqa: PTH109  pathlib is not loaded yet
    except OSError as error:
        named = os.environ.get("PWD", ".")
        _refuse(f"the current folder `{named}` is gone ({error.strerror}); go to another one: `cd`")


def _open_closed_streams() -> None:
    """Open standard streams that are closed (`>&-`) on the null device.

    Otherwise the next file that is opened, say the journal, would get the number of the stream, and
    every program that is started would write to it.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(descriptor, True)
            setattr(sys, name, os.fdopen(descriptor, mode, encoding="utf-8"))


def _refuse(why: str) -> NoReturn:
    sys.stderr.write(f"ferrule: {why}\n")
    sys.exit(2)


def _explain_missing(error: ModuleNotFoundError) -> str:
    """Return which line installs a missing library. Raises the error if no extra has it."""
    from ferrule.core.extras import describe_missing

    missing = describe_missing(error)
    if missing is None:
        raise error
    return f"{missing.detail}\nhint: {missing.hint}"


def _drop_unwritten_output() -> None:
    """Drop what standard output did not take: Python would try again while it ends."""
    try:
        sys.stdout.flush()
    except OSError:
        from ferrule.runtime.lazy_group import drop_output

        drop_output()
