"""A line to the server that breaks when a test says so: a socket between the two that knows what a
message is.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections import deque
from pathlib import Path

PASS, BEFORE, AFTER = "pass", "before", "after"


class Faulty:
    """Listens beside a server's socket and passes on what comes, each message of a client as the
    next word of `plan` says.

    `before`: the connection breaks and the server never sees it. `after`: the server does what it
    says, and the connection breaks before its answer comes back. With `stalled` set nothing is
    passed on, and nothing breaks: `given_up` is set when the client does not wait any more. An
    empty plan passes everything.
    """

    def __init__(self, folder: Path, server: Path) -> None:
        self.plan: deque[str] = deque()
        self.refuses_options = False
        """Whether connections with parameters of their own are refused, as PgBouncer does."""
        self.stalled = threading.Event()
        self.given_up = threading.Event()
        self._server = str(server / ".s.PGSQL.5432")
        self._ended = threading.Event()
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(folder / ".s.PGSQL.5432"))
        self._listening.listen(50)
        self.dsn = f"host={folder} user=ferrule dbname=postgres"
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def close(self) -> None:
        self._ended.set()
        _close(self._listening)  # also ends the thread that waits for the next connection
        self._accepting.join()
        for one in [*self._sockets]:
            _shut_down(one)
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while not self._ended.is_set():
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._pass_on, args=(client,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _wait_for_the_client_to_give_up(self, client: socket.socket) -> None:
        while select.select([client], [], [], 60)[0]:
            if not client.recv(1 << 20):
                self.given_up.set()
                return

    def _choose_word(self, client: socket.socket, data: bytes, *, passes: bool) -> str:
        if self.refuses_options and b"\0options\0" in data:
            client.sendall(_REFUSAL)
            return BEFORE
        return self.plan.popleft() if self.plan and not passes else PASS

    def _pass_on(self, client: socket.socket) -> None:
        server = socket.socket(socket.AF_UNIX)
        self._sockets |= {client, server}
        try:
            server.connect(self._server)
            answer_is_lost = False
            while True:
                ready, _, _ = select.select([client, server], [], [], 60)
                for one in ready:
                    data = one.recv(1 << 20)
                    if not data:
                        return
                    if self.stalled.is_set():
                        self._wait_for_the_client_to_give_up(client)
                        return
                    if one is server:
                        if answer_is_lost:
                            # It is there once the server has done what it was asked; nobody gets to
                            # see it.
                            return
                        client.sendall(data)
                        continue
                    # What is too large for one piece is passed on until the server has something to
                    # say.
                    word = self._choose_word(client, data, passes=answer_is_lost)
                    if word == BEFORE:
                        return
                    answer_is_lost = answer_is_lost or word == AFTER
                    server.sendall(data)
        except (OSError, ValueError):
            return
        finally:
            for one in (client, server):
                _close(one)
                self._sockets.discard(one)


_FIELDS = b"SFATAL\0C08P01\0Munsupported startup parameter: options\0\0"
_REFUSAL = b"E" + (len(_FIELDS) + 4).to_bytes(4, "big") + _FIELDS


def _shut_down(one: socket.socket) -> None:
    """Wake whoever waits at the socket; closing it alone would not."""
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)


def _close(one: socket.socket) -> None:
    _shut_down(one)
    one.close()
