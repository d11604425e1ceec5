"""A database that is farther away: a TCP relay that holds back what the server says by some milliseconds (a round trip's worth)."""

import argparse
import asyncio
import socket


async def relay(reader, writer, delay):
    loop = asyncio.get_running_loop()

    def put(data):
        if not writer.is_closing():
            writer.write(data) if data else writer.close()

    while True:
        try:
            data = await reader.read(65536)
        except OSError:
            data = b""
        loop.call_later(delay, put, data) if delay else put(data)
        if not data:
            return


async def main(port, to, delay):
    async def serve(reader, writer):
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", to)
        for w in (writer, far_writer):
            w.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.gather(relay(reader, far_writer, 0), relay(far_reader, writer, delay))

    async with await asyncio.start_server(serve, "127.0.0.1", port, backlog=512) as server:
        print("ready", flush=True)
        await server.serve_forever()


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("port", type=int)
    ap.add_argument("to", type=int)
    ap.add_argument("ms", type=float)
    a = ap.parse_args()
    asyncio.run(main(a.port, a.to, a.ms / 1000))
