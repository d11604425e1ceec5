"""The sandbox's proxy on a port of this machine, for tests: with DNS of the test, and clients that
know nothing else.
"""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType

from ferrule.core.identity import Identity
from ferrule.sandbox.network.allowed_hosts import AllowedHosts
from ferrule.sandbox.network.dialing import Upstream, no_upstream
from ferrule.sandbox.network.proxy import ConnectionAttempt, Proxy, ProxyLimits, proxy_environment

WHO = Identity("here", "person", "session-1", "run-1")
LONG = 30.0
"""Seconds after which a test gives up."""


class Proxied:
    """`contacts` is what the proxy recorded, `looked_up` the names it asked DNS for.

    `names` are the hosts of the test: each with a list of answers, one for each time it is looked
    up (the last one stays).
    """

    def __init__(
        self,
        *network: str,
        names: dict[str, Sequence[Sequence[str]]] | None = None,
        upstream: Upstream = no_upstream,
        patience: ProxyLimits | None = None,
    ) -> None:
        self.contacts: list[ConnectionAttempt] = []
        self.looked_up: list[str] = []
        self.recorded = asyncio.Event()
        self._names = {name: list(answers) for name, answers in (names or {}).items()}
        self.proxy = Proxy(
            AllowedHosts.parse(network),
            self._record,
            upstream=upstream,
            resolve=self._resolve,
            limits=patience,
        )
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])

    async def __aenter__(self) -> Proxied:
        self.listening = self.proxy.serve_listener(self._listener, WHO)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.proxy.close()

    def _record(self, contact: ConnectionAttempt) -> None:
        self.contacts.append(contact)
        self.recorded.set()

    async def _resolve(self, host: str) -> Sequence[str]:
        self.looked_up.append(host)
        answers = self._names.get(host)
        if not answers:
            raise OSError("no such name")
        return answers.pop(0) if len(answers) > 1 else answers[0]

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def ask(self, request: bytes) -> bytes:
        """Send this, and nothing more, and read until the proxy closes."""
        reader, writer = await self.open()
        writer.write(request)
        try:
            return await asyncio.wait_for(reader.read(), LONG)
        finally:
            writer.close()

    async def run(self, *argv: str, folder: str | None = None, **more: str) -> tuple[int, str]:
        """A program whose environment leads to the proxy: exit code and output."""
        with tempfile.TemporaryDirectory() as home:
            environment = {
                "PATH": os.environ["PATH"],
                "HOME": home,
                **proxy_environment(self.port, loopback_outside=True),
                **more,
            }
            process = await asyncio.create_subprocess_exec(
                *argv,
                cwd=folder or home,
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            try:
                out, _ = await asyncio.wait_for(process.communicate(), 4 * LONG)
            except BaseException:
                process.kill()
                await process.wait()
                raise
        assert process.returncode is not None
        return process.returncode, out.decode("utf-8", "replace")

    async def contacted(self, count: int) -> list[ConnectionAttempt]:
        """The first so many records, waiting for them."""
        async with asyncio.timeout(LONG):
            while len(self.contacts) < count:
                self.recorded.clear()
                await self.recorded.wait()
        return self.contacts[:count]


Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Talker:
    """A server that says what a function says. `connections` counts them, `heard` is all they
    brought.
    """

    def __init__(self, talk: Talk, address: str = "127.0.0.1") -> None:
        self._talk, self._address = talk, address
        self._tasks: set[asyncio.Task[None]] = set()
        self.connections = 0
        self.port = 0

    async def __aenter__(self) -> Talker:
        self._server = await asyncio.start_server(self._serve, self._address, 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            await self._talk(reader, writer)
        except (ConnectionError, asyncio.CancelledError):
            # The other side has gone, which the test is about, or the server ends. A cancelled task would
            # be an error in the callback that asyncio hangs on it before Python 3.12.
            return
        finally:
            writer.close()


def http(status: str, body: bytes = b"", *fields: str) -> Talk:
    """Talk that reads one head, gives this answer, and closes."""
    lines = [
        f"HTTP/1.1 {status}",
        f"Content-Length: {len(body)}",
        *fields,
        "Connection: close",
        "",
        "",
    ]

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write("\r\n".join(lines).encode() + body)
        await writer.drain()

    return talk


def text(answer: bytes) -> str:
    """The body of an answer."""
    return answer.partition(b"\r\n\r\n")[2].decode()
