"""One worker process as its owner sees it.

It belongs to no event loop while it is idle.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import socket
import subprocess
from pathlib import Path
from typing import Any

from ferrule.core.errors import ConfigError
from ferrule.permissions.filesystem.open_beneath import PORTABLE, is_portable
from ferrule.permissions.provenance import UntrustedPath, find_interpreter
from ferrule.sandbox.trusted_process import start_program

from .inside.frames import FRAME_LIMIT, HEADER_SIZE, encode_frame

_FOLDER = str(Path(__file__).parent)
_START = "import sys; sys.path += sys.argv[1:]; from inside.worker import start; start()"
_LIBRARIES = {"starlark": "starlark-pyo3", "re2": "google-re2"}
"""What a worker imports from outside the standard library, and the packages that provide it."""
_PIECE = 1 << 18
READY_SECONDS = 20.0
"""How long a new worker may take to become ready on a busy machine."""


class WorkerEnded(Exception):
    """The worker has exited. `status` is its exit status, negative for a signal."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class WorkerProcess:
    """A worker process.

    `known_scripts` holds the digests of the scripts that it has parsed; `calls` counts its calls.
    """

    def __init__(self) -> None:
        """Start the process.

        Raises:
            ConfigError: A library is missing.
            OSError: No process can be started.
        """
        libraries = _libraries()
        self._socket, worker_end = socket.socketpair()
        try:
            self._process = start_program(
                find_interpreter(),
                ["-I", "-S", "-c", _START, _FOLDER, *libraries],
                environment={PORTABLE: "1"} if is_portable() else {},
                stdin=worker_end.fileno(),
                is_session=True,
            )
        except (OSError, UntrustedPath):
            self._socket.close()
            raise
        finally:
            worker_end.close()
        self._socket.setblocking(False)
        self._buffer = b""
        self._owner = os.getpid()
        self.known_scripts: set[str] = set()
        self.calls = 0

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_usable(self) -> bool:
        """Whether it is alive and ours: a fork of the process that started it must not use it."""
        return self._owner == os.getpid() and self._process.poll() is None

    async def wait_ready(self) -> None:
        """Wait until it has locked itself down. Raises WorkerEnded."""
        try:
            async with asyncio.timeout(READY_SECONDS):
                await self.receive()
        except TimeoutError:
            raise WorkerEnded(self.end()) from None

    async def send(self, message: dict[str, Any]) -> None:
        """Send a message. Raises WorkerEnded, or TooLarge for a message that is too long."""
        try:
            await asyncio.get_running_loop().sock_sendall(self._socket, encode_frame(message))
        except OSError:
            raise WorkerEnded(self.end()) from None

    async def receive(self) -> dict[str, Any]:
        """Return the next message.

        Raises WorkerEnded, also for an invalid message, which ends the process.
        """
        try:
            size = int.from_bytes(await self._exactly(HEADER_SIZE), "big")
            if size > FRAME_LIMIT + 1024:
                raise ValueError(f"a message of {size} bytes")
            message = json.loads(await self._exactly(size))
            if not isinstance(message, dict):
                raise ValueError("a message that is no object")
            return message  # pyright: ignore[reportUnknownVariableType] - JSON
        except (OSError, ValueError, RecursionError):
            raise WorkerEnded(self.end()) from None

    def end(self) -> int:
        """Kill it, wait for it, and return its exit status. Safe to call twice."""
        self._socket.close()
        if self._owner != os.getpid():
            self._process.returncode = 0  # Nobody here can wait for it.
        status = self._process.poll()
        if status is None:
            # It may be exiting by itself, and that status says more than our own signal.
            try:
                status = self._process.wait(0.05)
            except subprocess.TimeoutExpired:
                self._process.kill()
                status = self._process.wait()
        return status

    def kill(self) -> None:
        """End it at once, without waiting for what it has to say."""
        if self._owner == os.getpid() and self._process.poll() is None:
            self._process.kill()
        self.end()

    async def _exactly(self, size: int) -> bytes:
        loop = asyncio.get_running_loop()
        if len(self._buffer) < size:
            pieces, have = [self._buffer], len(self._buffer)
            self._buffer = b""
            while have < size:
                piece = await loop.sock_recv(self._socket, _PIECE)
                if not piece:
                    raise ConnectionError("closed")
                pieces.append(piece)
                have += len(piece)
            self._buffer = b"".join(pieces)
        taken, self._buffer = self._buffer[:size], self._buffer[size:]
        return taken


def _libraries() -> list[str]:
    """Return the folders of the worker's libraries, which are never loaded into this process."""
    folders: list[str] = []
    for name, package in _LIBRARIES.items():
        found = importlib.util.find_spec(name)
        if found is None or not found.origin:
            raise ConfigError(
                f"scripts need the library `{package}`",
                code="missing_extra",
                hint="pip install 'ferrule[files]'",
            )
        folders.append(str(Path(found.origin).parent.parent))
    return list(dict.fromkeys(folders))
