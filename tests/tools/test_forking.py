"""What a fork must not catch in the middle: quiet locks, and locks of the standard library."""

from __future__ import annotations

import gc
import re
import threading
from pathlib import Path

import ferrule
from ferrule.tools import forking
from ferrule.tools.forking import cached_property


def test_a_quiet_lock_that_is_made_while_a_fork_begins_waits_for_it() -> None:
    made: list[object] = []
    thread = threading.Thread(target=lambda: made.append(forking.make_rlock(is_quiet=True)))
    forking._before_fork()  # pyright: ignore[reportPrivateUsage]
    try:
        thread.start()
        thread.join(0.2)
        assert made == []
    finally:
        forking._after_fork_in_parent()  # pyright: ignore[reportPrivateUsage]
    thread.join()
    assert len(made) == 1


def test_what_an_owner_leaves_is_closed_under_its_lock() -> None:
    class Owner:
        pass

    owner, lock = Owner(), forking.make_rlock(is_quiet=True)
    closed = threading.Event()
    forking.finalize_quietly(owner, lock, closed.set)

    def forget() -> None:
        nonlocal owner
        del owner
        gc.collect()

    thread = threading.Thread(target=forget)
    with lock:
        thread.start()
        thread.join(0.2)
        assert not closed.is_set()
    thread.join()
    assert closed.is_set()


def test_a_kept_property_is_computed_once_and_holds_no_lock() -> None:
    class Shelf:
        asked = 0

        @cached_property
        def books(self) -> list[str]:
            """The books."""
            self.asked += 1
            return ["Moby Dick"]

    shelf = Shelf()
    assert shelf.books is shelf.books and shelf.asked == 1
    assert Shelf.__dict__["books"].__doc__ == "The books."
    assert not hasattr(Shelf.__dict__["books"], "lock")


def test_no_module_takes_the_one_that_locks() -> None:
    """`functools.cached_property` of Python 3.11 holds a lock of the process while it computes."""
    taken = re.compile(
        r"from functools import [^\n]*\bcached_property|functools\.cached_property\b(?!`)"
    )
    folder = Path(ferrule.__file__).parent
    modules = [path for path in folder.rglob("*.py") if path.name != "forking.py"]
    assert len(modules) > 500
    assert [str(path) for path in modules if taken.search(path.read_text())] == []
