"""Forked processes: what belongs to the parent alone is left to it, and locks are free again.

A fork copies one thread. So a child inherits locks that other threads held, pools whose threads are
gone, and connections that are its parent's. Servers that load a program before they fork (gunicorn
with `preload_app`, Celery's prefork pool, multiprocessing) run agents in such children.

Standard library modules like `logging` do the same, with the same methods.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast
from weakref import WeakSet

if TYPE_CHECKING:
    from functools import cached_property as cached_property

    Finalizer: TypeAlias = weakref.finalize[..., Any]
else:
    Finalizer = weakref.finalize  # It takes no types at run time.

    class cached_property:
        """A property that is computed once and kept in the object's dictionary.

        As `functools.cached_property`, which in Python 3.11 holds a lock of the whole process while
        it computes: a child forked in that moment would wait for it for ever. Here nothing is
        locked, as from Python 3.12 on; two threads may both compute a value that nobody has yet.
        """

        def __init__(self, function):
            update_wrapper(self, function)
            self.function = function

        def __set_name__(self, owner, name):
            self.name = name

        def __get__(self, instance, owner=None):
            if instance is None:
                return self
            value = instance.__dict__[self.name] = self.function(instance)
            return value


HELD_SECONDS = 30.0
"""Seconds that a fork waits for a lock that must be free then."""


class _RenewableLock(Protocol):
    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool: ...

    def release(self) -> None: ...

    def _at_fork_reinit(self) -> None: ...


class InheritedByForks(Protocol):
    """An object that must drop something in a forked child."""

    def after_fork(self) -> None:
        """Called in the child, while it has one thread. Must not wait for anything."""
        ...


_locks: WeakSet[_RenewableLock] = WeakSet()
_quiet_locks: WeakSet[_RenewableLock] = WeakSet()
_making_quiet_locks = threading.Lock()
_held: list[_RenewableLock] = []
_objects: WeakSet[InheritedByForks] = WeakSet()


def make_lock() -> threading.Lock:
    """Return a lock that is free in a forked child."""
    lock = threading.Lock()
    _locks.add(cast("_RenewableLock", lock))
    return lock


def make_rlock(*, is_quiet: bool = False) -> threading.RLock:
    """Return a reentrant lock that is free in a forked child.

    With `is_quiet` no other thread holds it during a fork: what it protects is whole in the child.
    SQLite, for example, remembers for the whole process which locks of a file are taken, and has
    mutexes of its own that a child could not free. Everything of SQLite is used under such a lock,
    opening and closing, too (`finalize_quietly`).
    """
    lock = threading.RLock()
    _locks.add(cast("_RenewableLock", lock))
    if is_quiet:
        with _making_quiet_locks:  # a fork that has begun is waited for
            _quiet_locks.add(cast("_RenewableLock", lock))
    return lock


def finalize_quietly(
    owner: object, lock: threading.RLock, close: Callable[[], object]
) -> Finalizer:
    """Close something under a quiet lock once its owner is gone."""

    def close_under_lock() -> None:
        with lock:
            close()

    return weakref.finalize(owner, close_under_lock)


def watch_forks(inherited: InheritedByForks) -> None:
    """Have an object's `after_fork` called in each forked child, as long as the object exists."""
    _objects.add(inherited)


def _before_fork() -> None:
    # First: a lock that another thread made after the list was read could be held at the fork.
    _making_quiet_locks.acquire()
    for lock in list(_quiet_locks):
        if lock.acquire(timeout=HELD_SECONDS):
            _held.append(lock)


def _after_fork_in_parent() -> None:
    while _held:
        _held.pop().release()
    _making_quiet_locks.release()


def _after_fork_in_child() -> None:
    _held.clear()
    _making_quiet_locks._at_fork_reinit()  # type: ignore[attr-defined]
    for lock in list(_locks):
        lock._at_fork_reinit()  # pyright: ignore[reportPrivateUsage]  `logging` and `threading` renew their locks by it
    for inherited in list(_objects):
        inherited.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )
