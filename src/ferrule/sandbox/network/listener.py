"""Serves a listening socket: accepts connections while there is room, and makes room if needed.

Clients keep connections open in case they need them again. Where all places are taken, another
client waits in the kernel's queue and a connection has been silent for a while, that one is cut:
its client opens another when it needs one. Without this, a program with many idle connections would
wait for itself.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

from .proxy_peer import Peer

SPARE_SECONDS = 10.0
"""A connection that was silent for so long may be cut for another.

This can also hit an answer that takes longer to begin.
"""
RETRY_SECONDS = 0.25
"""Seconds until it is checked again whether there is room."""

Serve = Callable[[Peer], Coroutine[Any, Any, None]]


class ProxyListener:
    """A listening socket, for one command. `close` ends it and its connections."""

    def __init__(
        self, sock: socket.socket, most: int, serve: Serve, kept: set[ProxyListener]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self._max_connections = most
        self._serve = serve
        self._siblings = kept
        self._connections: dict[asyncio.Task[None], Peer] = {}
        self._resume_timer: asyncio.TimerHandle | None = None
        sock.setblocking(False)
        kept.add(self)
        self._resume()

    @property
    def is_crowded(self) -> bool:
        """Whether more than half of the places are taken: then no idle connection is kept."""
        return len(self._connections) > self._max_connections // 2

    async def close(self) -> None:
        """Close everything, and return when that is done. Idempotent."""
        self._pause_accepting()
        self._sock.close()
        self._siblings.discard(self)
        tasks = list(self._connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _accept(self) -> None:
        """Accept a waiting client.

        Accepts without waiting: a task that is cancelled while it waits could lose a socket.
        """
        if len(self._connections) >= self._max_connections:
            self._make_room()
            return
        try:
            client, _ = self._sock.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError:
            # No descriptors or memory left: until somebody closes something.
            self._pause_accepting(RETRY_SECONDS)
            return
        peer = Peer(client)
        task = self._loop.create_task(self._serve(peer))
        self._connections[task] = peer
        task.add_done_callback(self._finish_connection)

    def _make_room(self) -> None:
        self._pause_accepting(RETRY_SECONDS)
        quietest = min(self._connections.values(), key=lambda peer: peer.quiet_since)
        if self._loop.time() - quietest.quiet_since >= SPARE_SECONDS:
            quietest.shut_down()

    def _resume(self) -> None:
        if self._sock.fileno() >= 0:
            self._loop.add_reader(self._sock, self._accept)

    def _pause_accepting(self, seconds: float | None = None) -> None:
        """Accept nothing more, for a time or for good."""
        if self._resume_timer:
            self._resume_timer.cancel()
        if self._sock.fileno() >= 0:
            self._loop.remove_reader(self._sock)
        self._resume_timer = (
            None if seconds is None else self._loop.call_later(seconds, self._resume)
        )

    def _finish_connection(self, task: asyncio.Task[None]) -> None:
        self._connections.pop(task).close()
        self._resume()
        problem = None if task.cancelled() else task.exception()
        if problem:
            self._loop.call_exception_handler(
                {
                    "message": "a connection of the sandbox's proxy failed",
                    "exception": problem,
                    "task": task,
                }
            )
