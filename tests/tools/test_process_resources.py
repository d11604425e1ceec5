"""How a process ends that threads of libraries are left in."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from ferrule.tools import process_resources

LEAVE = """
import atexit, os, sys, threading
from ferrule.tools.process_resources import end_process

class AbortsTheInterpretersEnd:
    # In place of a native thread that asks for the interpreter while that ends.
    def __del__(self, abort=os.abort):
        abort()

sys.left = AbortsTheInterpretersEnd()
threading.Thread(target=threading.Event().wait).start()
file = open(sys.argv[1], "w")
file.write("written, not flushed")
atexit.register(print, "exit function")
print("printed")
"""


def test_a_process_ends_with_its_code_whatever_threads_are_left_in_it(tmp_path: Path) -> None:
    program = [sys.executable, "-c", f"{LEAVE}end_process(3)", str(tmp_path / "file")]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, "printed\nexit function\n", "")
    assert (tmp_path / "file").read_text() == "written, not flushed"


def test_what_cannot_be_flushed_does_not_keep_a_process_from_ending() -> None:
    full = "file = open('/dev/full', 'w'); file.write('x'); end_process(4)"
    program = [sys.executable, "-c", f"from {process_resources.__name__} import *; {full}"]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (4, "")


def test_an_exit_function_that_fails_is_reported_and_the_process_ends() -> None:
    program = [
        sys.executable,
        "-c",
        f"import atexit; from {process_resources.__name__} import *\n"
        "atexit.register(lambda: 1 / 0); end_process()",
    ]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0
    assert "ZeroDivisionError" in ended.stderr
