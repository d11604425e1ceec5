#!/usr/bin/env python3
"""Calls a second of MCP servers, over standard streams and HTTP, with the official client: one after the other, and 64 at once.

    ENVS/mcp/bin/python mcp_calls.py --ferrule path/to/ferrule [--servers ferrule,official,fast] [--http] [--seconds 4]

The tool is `read_file` of a small file. Ferrule's has its gate, its output bounds and its journal (SQLite) on; the others' is three lines.
"""

import argparse
import asyncio
import contextlib
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from processes import cpu

HERE = pathlib.Path(__file__).resolve().parent
TOKEN = "t" * 40


def command(name, folder, ferrule, port=None):
    if name == "ferrule":
        more = ["--http", "--port", str(port)] if port else []
        return [ferrule, "serve", "mcp", "-C", folder, "--allow", "Read(**)", *more]
    return [
        sys.executable,
        str(HERE / "mcp_servers" / f"{name}.py"),
        folder,
        *([str(port)] if port else []),
    ]


@contextlib.asynccontextmanager
async def over_stdio(argv, env):
    before = set(children())
    began = time.perf_counter()
    async with stdio_client(StdioServerParameters(command=argv[0], args=argv[1:], env=env)) as (
        r,
        w,
    ):
        pid = (set(children()) - before).pop()
        async with ClientSession(r, w) as session:
            await session.initialize()
            yield session, pid, time.perf_counter() - began


@contextlib.asynccontextmanager
async def over_http(argv, env, port):
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared._httpx_utils import create_mcp_http_client

    began = time.perf_counter()
    server = subprocess.Popen(
        argv,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=open(env["LOG"], "wb"),
    )
    try:
        while time.perf_counter() - began < 90:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            await asyncio.sleep(0.02)
        http = create_mcp_http_client(headers={"Authorization": f"Bearer {TOKEN}"})
        async with (
            http,
            streamable_http_client(f"http://127.0.0.1:{port}/mcp", http_client=http) as streams,
        ):
            async with ClientSession(streams[0], streams[1]) as session:
                await session.initialize()
                yield session, server.pid, time.perf_counter() - began
    finally:
        server.terminate()
        server.wait(20)


def children():
    return [
        int(p) for p in pathlib.Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    ]


async def measure(name, transport, a, folder, home):
    env = {**os.environ, "FERRULE_TOKEN": TOKEN, "FERRULE_STATE": home, "LOG": f"{home}/log"}
    if a.profile:
        env["BENCH_PROFILE"] = a.profile
    if transport == "http":
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        opened = over_http(command(name, folder, a.ferrule, port), env, port)
    else:
        opened = over_stdio(command(name, folder, a.ferrule), env)
    async with opened as (session, pid, start):

        async def call():
            began = time.perf_counter()
            got = await session.call_tool("read_file", {"path": "a.txt"})
            assert not got.is_error and "hello" in str(got.content), got
            return time.perf_counter() - began

        for _ in range(30):
            await call()
        out = {"server": name, "transport": transport, "start_ms": start * 1000}
        for many in a.at_once:
            end, times, used, mine = (
                time.perf_counter() + a.seconds,
                [],
                cpu(pid),
                time.process_time(),
            )
            began = time.perf_counter()

            async def work():
                while time.perf_counter() < end:
                    times.append(await call())

            await asyncio.gather(*(work() for _ in range(many)))
            wall = time.perf_counter() - began
            times.sort()
            out |= {
                f"calls_s_{many}": len(times) / wall,
                f"p50_ms_{many}": statistics.median(times) * 1000,
                f"p99_ms_{many}": times[int(len(times) * 0.99)] * 1000,
                f"server_cpu_ms_{many}": (cpu(pid) - used) / len(times) * 1000,
                f"client_cpu_ms_{many}": (time.process_time() - mine) / len(times) * 1000,
            }
        return out


async def main():
    ap = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ap.add_argument("--ferrule", required=True)
    ap.add_argument("--servers", default="ferrule,official,fast")
    ap.add_argument("--transports", default="stdio,http")
    ap.add_argument("--seconds", type=float, default=4)
    ap.add_argument("--at-once", type=int, nargs="*", default=[1, 64])
    ap.add_argument("--profile")
    ap.add_argument("--out")
    a = ap.parse_args()
    found = []
    for transport in a.transports.split(","):
        for name in a.servers.split(","):
            with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as home:
                pathlib.Path(folder, "a.txt").write_text("hello\n" * 20)
                try:
                    one = await measure(name, transport, a, folder, home)
                except BaseException as error:
                    log = pathlib.Path(home, "log")
                    print(
                        name,
                        transport,
                        repr(error)[:500],
                        log.read_text()[-800:] if log.exists() else "",
                        flush=True,
                    )
                    continue
            found.append(one)
            print(
                " ".join(
                    f"{k}={v:.2f}" if isinstance(v, float) else f"{k}={v}" for k, v in one.items()
                ),
                flush=True,
            )
    if a.out:
        pathlib.Path(a.out).write_text(json.dumps(found, indent=1))


asyncio.run(main())
