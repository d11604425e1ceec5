"""What a server writes in one step of the event loop goes out in one packet, and nothing waits."""

from __future__ import annotations

import asyncio
from asyncio.selector_events import _SelectorSocketTransport  # type: ignore[attr-defined]
from typing import Any

import pytest

from ferrule.runtime.http import server

HEAD = b"HTTP/1.1 200 OK\r\n"


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What servers gave to their sockets, write by write."""
    pytest.importorskip("uvicorn")
    writes: list[bytes] = []
    real = _SelectorSocketTransport.write

    def write(transport: Any, data: bytes) -> None:
        if not data.startswith(b"GET "):
            writes.append(bytes(data))
        real(transport, data)

    monkeypatch.setattr(_SelectorSocketTransport, "write", write)
    return writes


async def ask(application: Any, *, until: bytes, then: asyncio.Event | None = None) -> bytes:
    """Ask once, set `then` when `until` has come, and return everything up to the end."""
    with server.listen("127.0.0.1", 0) as listening:
        port = server.bound_port(listening)
        serving = asyncio.create_task(
            server.serve(application, "127.0.0.1", port, listening=listening)
        )
        async with asyncio.timeout(30):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            answer = await reader.readuntil(until)
            if then is not None:
                then.set()
            answer += await reader.read()
        writer.close()
        serving.cancel()
        await asyncio.wait([serving])
    return answer


async def test_head_body_and_end_of_a_response_are_one_write_before_the_connection_closes(
    written: list[bytes],
) -> None:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        await send({"type": "http.response.body", "body": b"two"})

    answer = await ask(application, until=b"two")
    assert answer.startswith(HEAD) and answer.endswith(b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n")
    assert written == [answer]


async def test_a_piece_of_a_stream_does_not_wait_for_the_next(written: list[bytes]) -> None:
    arrived = asyncio.Event()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        await arrived.wait()
        await send({"type": "http.response.body", "body": b"two"})

    answer = await ask(application, until=b"one", then=arrived)
    first, second = written
    assert first.startswith(HEAD) and first.endswith(b"3\r\none\r\n")
    assert second == b"3\r\ntwo\r\n0\r\n\r\n" and answer == first + second


async def test_the_time_for_a_head_ends_with_the_head(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("uvicorn")
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.3)
    over = asyncio.Event()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        # This timer was started after that of the head, so it fires after it.
        asyncio.get_running_loop().call_later(0.3, over.set)
        await over.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"late"})

    assert (await ask(application, until=b"late")).startswith(HEAD)
