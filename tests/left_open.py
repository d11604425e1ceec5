"""What a module of tests leaves open: descriptors, threads, processes, tasks, temporary files.

A person's program has Ferrule in it for days: whatever is opened has an owner that closes it, also
after an error. What the process shares is closed first (`tools.process_resources`).
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ferrule.engine.threads import THREAD_NAME
from ferrule.tools.process_resources import close_process_resources

END_SECONDS = 10.0
"""How long is waited for what is about to end: a thread, or a process that another one ends."""
POLL_SECONDS = 0.02

_ENDED = "which has ended and was not waited for"
_ENDED_SCRIPT = f"monty, {_ENDED}"

_kept_descriptors: set[tuple[str, str]] = set()
_kept_children: set[int] = set()
_temporary: dict[str, None] = {}
"""Temporary files and folders that this process has made, in order."""


def _note_temporary(event: str, arguments: tuple[object, ...]) -> None:
    if event in ("tempfile.mkdtemp", "tempfile.mkstemp"):
        _temporary[str(arguments[0])] = None


sys.addaudithook(_note_temporary)


def list_temporary() -> set[str]:
    """Return what this process has made in the folder for temporary files and not removed.

    What pytest gives to tests is below a folder of its own, which pytest removes.
    """
    for path in [path for path in _temporary if not os.path.lexists(path)]:
        _temporary.pop(path, None)
    parent = os.path.realpath(tempfile.gettempdir())
    return {path for path in _temporary if os.path.realpath(os.path.dirname(path)) == parent}


@contextmanager
def kept_by_process() -> Iterator[None]:
    """Let what is opened in this block stay open: it belongs to the test process on purpose.

    It is for fixtures of the session, and for what libraries start once in a process.
    """
    before = LeftOpen()
    yield
    for path in before.new_temporary():
        _temporary.pop(path)
    _kept_descriptors.update(before.new_descriptors())
    _kept_children.update(before.new_children())


def list_model_server_ports() -> set[str]:
    """Return the ports of llama.cpp's servers in this process.

    One for each model file stays for all its clients (`ferrule_local.client`).
    """
    client = sys.modules.get("ferrule_local.client")
    servers = [] if client is None else client._RUNNING_SERVERS.values()
    return {server.listening_address.rpartition(":")[2] for server in servers}


def list_descriptors() -> dict[str, str]:
    """Return `number -> what it leads to` of this process's descriptors."""
    found: dict[str, str] = {}
    for number in os.listdir("/proc/self/fd"):
        try:
            # A file whose folder was removed since then is still the same.
            found[number] = os.readlink(f"/proc/self/fd/{number}").removesuffix(" (deleted)")
        except FileNotFoundError:
            continue  # the folder that was just listed
    return found


def list_children() -> dict[int, str]:
    """Return `process id -> command line` of this process's children."""
    found: dict[int, str] = {}
    for task in Path("/proc/self/task").iterdir():
        try:
            children = (task / "children").read_text().split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # the thread has ended
        for child in children:
            try:
                words = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
                name = Path(f"/proc/{child}/comm").read_text(errors="replace").strip()
            except (FileNotFoundError, ProcessLookupError):
                continue
            line = b" ".join(words).decode(errors="replace").strip()
            found[int(child)] = line or f"{name}, {_ENDED}"
    return found


def name_sockets() -> dict[str, tuple[str, str]]:
    """Return `target of a descriptor -> its name, its port` of all sockets of TCP and Unix."""
    found: dict[str, tuple[str, str]] = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            port, peer = (str(int(field.rpartition(":")[2], 16)) for field in fields[1:3])
            found[f"socket:[{fields[9]}]"] = (f"a socket, port {port}, of its peer {peer}", port)
    for line in Path("/proc/self/net/unix").read_text().splitlines()[1:]:
        fields = line.split()
        name = fields[7] if len(fields) > 7 else "without a name"
        found[f"socket:[{fields[6]}]"] = (f"a Unix socket {name}", "")
    return found


class AsyncioErrors(logging.Handler):
    """Collects what asyncio only logs: tasks that nobody ended, exceptions that nobody saw."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


class LeftOpen:
    """Compares what is open now with what was open when this was made."""

    def __init__(self) -> None:
        self._descriptors = set(list_descriptors().items())
        self._threads = set(threading.enumerate())
        self._children = list_children()
        self._temporary = list_temporary()

    def new_temporary(self) -> list[str]:
        """Return the paths of temporary files and folders."""
        return sorted(list_temporary() - self._temporary)

    def new_descriptors(self) -> list[tuple[str, str]]:
        """Return `(number, what it leads to)`."""
        return sorted(set(list_descriptors().items()) - self._descriptors - _kept_descriptors)

    def new_children(self) -> dict[int, str]:
        """Return `process id -> command line`.

        One ended process of Monty is none of them. Its library waits for a process that it has let
        go when its runtime turns the next time, and an idle runtime does not turn: under load the
        last one of a module was met so in two of seven runs of all tests, never two.
        """
        known = {*self._children, *_kept_children}
        found = {child: words for child, words in list_children().items() if child not in known}
        ended = [child for child, words in found.items() if words == _ENDED_SCRIPT]
        if len(ended) == 1:
            del found[ended[0]]
        return found

    def find(self) -> list[str]:
        """Return the name of each thing that was not open before."""
        found = [
            f"thread `{one.name}`"
            for one in threading.enumerate()
            if one not in self._threads and one.name != THREAD_NAME
        ]
        found += [f"process {child} `{words}`" for child, words in self.new_children().items()]
        found += [f"temporary `{path}`" for path in self.new_temporary()]
        return found + self._find_descriptors()

    def _find_descriptors(self) -> list[str]:
        new = self.new_descriptors()
        if not new:
            return []
        sockets = name_sockets()
        ports = list_model_server_ports()
        found: list[str] = []
        for number, target in new:
            name, port = sockets.get(target, (target, ""))
            if not port or port not in ports:
                found.append(f"descriptor {number}: {name}")
        return found


@contextmanager
def nothing_left_open() -> Iterator[None]:
    """Raise AssertionError if something is open afterwards that was not before.

    What nothing refers to any more is collected first: objects close what they own when they go.
    What is about to end has `END_SECONDS`. A library with a runtime of its own (Monty's is tokio)
    waits for a child whose end it missed when it hears of another one: it is told of one.
    """
    errors = AsyncioErrors()
    logger = logging.getLogger("asyncio")
    logger.addHandler(errors)
    before = LeftOpen()
    try:
        yield
        close_process_resources()
        gc.collect()
        found = before.find()
        deadline = time.monotonic() + END_SECONDS
        while found and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
            gc.collect()
            signal.raise_signal(signal.SIGCHLD)
            found = before.find()
        found += errors.messages
    finally:
        logger.removeHandler(errors)
        # What is alive now is a module, a cache or a fixture of the session. The syntax trees of the
        # whole package are among them: a collection that walks them takes a second, after each module.
        gc.freeze()
    assert not found, "left open: " + "; ".join(found)
