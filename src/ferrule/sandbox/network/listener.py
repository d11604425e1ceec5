"""A listening socket being served: connections are taken while there is room, and room is made when
there is none.

Clients keep connections open in case they need them again. Where all places are taken, somebody
waits in the kernel's queue and a connection has been silent for a while, that one is cut: its
client opens another when it needs one. Without this, a program with many idle connections would
wait for itself.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

from .proxy_peer import Peer

SPARE_SECONDS = 10.0
"""A connection that was silent for so long may be cut for another. An answer that takes longer to
begin can be hit, too.
"""
AGAIN_SECONDS = 0.25
"""Until it is looked again whether there is room."""

Serve = Callable[[Peer], Coroutine[Any, Any, None]]


class Listening:
    """A listening socket, for one command. `close` ends it and its connections."""

    def __init__(self, sock: socket.socket, most: int, serve: Serve, kept: set[Listening]) -> None:
        self._loop = asyncio.get_running_loop()
        self._sock, self._most, self._serve, self._kept = sock, most, serve, kept
        self._serving: dict[asyncio.Task[None], Peer] = {}
        self._pause: asyncio.TimerHandle | None = None
        sock.setblocking(False)
        kept.add(self)
        self._resume()

    @property
    def crowded(self) -> bool:
        """More than half of the places are taken: then no connection is kept for a next request."""
        return len(self._serving) > self._most // 2

    async def close(self) -> None:
        """Idempotent. Returns when all of it is closed."""
        self._rest()
        self._sock.close()
        self._kept.discard(self)
        tasks = list(self._serving)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _take(self) -> None:
        """Somebody waits. Accepts on the spot: a task that is cancelled while it waits could lose a
        socket.
        """
        if len(self._serving) >= self._most:
            self._make_room()
            return
        try:
            client, _ = self._sock.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError:
            self._rest(
                AGAIN_SECONDS
            )  # No descriptors or memory left: until somebody closes something.
            return
        peer = Peer(client)
        task = self._loop.create_task(self._serve(peer))
        self._serving[task] = peer
        task.add_done_callback(self._done)

    def _make_room(self) -> None:
        self._rest(AGAIN_SECONDS)
        quietest = min(self._serving.values(), key=lambda peer: peer.quiet_since)
        if self._loop.time() - quietest.quiet_since >= SPARE_SECONDS:
            quietest.cut()

    def _resume(self) -> None:
        if self._sock.fileno() >= 0:
            self._loop.add_reader(self._sock, self._take)

    def _rest(self, seconds: float | None = None) -> None:
        """Take nothing more, for a time or for good."""
        if self._pause:
            self._pause.cancel()
        if self._sock.fileno() >= 0:
            self._loop.remove_reader(self._sock)
        self._pause = None if seconds is None else self._loop.call_later(seconds, self._resume)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._serving.pop(task).close()
        self._resume()
        if not task.cancelled() and (problem := task.exception()):
            self._loop.call_exception_handler(
                {
                    "message": "a connection of the sandbox's proxy failed",
                    "exception": problem,
                    "task": task,
                }
            )
