"""From inside a network namespace of its own to a named host, and to nothing else: with the real
kernel and real clients.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from proxied import LONG, WHO, Proxied

from ferrule.sandbox.inside.kernel.proxy_ports import listen, send_sockets
from ferrule.sandbox.network.proxy import proxy_environment
from ferrule.testing.http_double import HttpDouble, Reply, Request

PORT = 31_280

ENTER = """
import ctypes, os, socket, sys
from ferrule.sandbox.inside.kernel import proxy_ports as ports
NEW_USER, NEW_NETWORK = 0x10000000, 0x40000000
if ctypes.CDLL(None, use_errno=True).unshare(NEW_USER | NEW_NETWORK):
    sys.exit(77)
ports.bring_up_loopback()
control = socket.socket(fileno=int(sys.argv[1]))
ports.send_sockets(control, b"ports", ports.listen())
control.recv(1)
os.set_inheritable(control.fileno(), False)
os.execvp(sys.argv[2], sys.argv[2:])
"""
"""A first process: makes the namespace, hands the ports out, and becomes the command once they are
served.
"""


@asynccontextmanager
async def enclosed(
    proxied: Proxied, *argv: str, **more: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A program in a network namespace whose port 31280 is served by the proxy."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = {**os.environ, **proxy_environment(PORT), **more}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        ENTER,
        str(theirs.fileno()),
        *argv,
        env=environment,
        pass_fds=[theirs.fileno()],
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    theirs.close()
    with ours:
        message, descriptors, *_ = await asyncio.to_thread(socket.recv_fds, ours, 16, 4)
        if not message:
            out, _ = await process.communicate()
            if process.returncode == 77:
                pytest.skip("no network namespaces here")
            raise AssertionError(out.decode())
        listening = [
            proxied.proxy.serve_listener(socket.socket(fileno=one), WHO) for one in descriptors
        ]
        ours.send(b"!")
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
            for one in listening:
                await one.close()


async def output(process: asyncio.subprocess.Process) -> tuple[int | None, str]:
    out, _ = await asyncio.wait_for(process.communicate(), 2 * LONG)
    return process.returncode, out.decode()


def hello(request: Request) -> Reply:
    return Reply(pieces=[b"hello from outside"], framing="length")


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.proves("sandbox.network.namespace")
async def test_a_command_in_its_own_network_reaches_a_named_host_by_the_proxy_and_nothing_else() -> (
    None
):
    script = """
curl -sS http://site.example:$SITE/
echo; curl -sS -o /dev/null -w '%{http_code}\\n' http://evil.test/
curl -sS -g -x http://[::1]:31280 http://site.example:$SITE/
echo; curl -sS --noproxy '*' -m 5 http://127.0.0.1:$SITE/ && echo REACHED
curl -sS --noproxy '*' -m 5 http://93.184.215.14/ && echo REACHED
curl -sS --noproxy '*' -m 5 http://site.example/ && echo REACHED
true
"""
    async with HttpDouble(hello) as site:
        entries = (f"site.example:{site.port}", f"127.0.0.1:{site.port}")
        async with (
            Proxied(*entries, names={"site.example": [["127.0.0.1"]]}) as proxied,
            enclosed(proxied, "sh", "-c", script, SITE=str(site.port)) as process,
        ):
            code, out = await output(process)
    lines = out.splitlines()
    assert code == 0, out
    assert lines[:3] == ["hello from outside", "403", "hello from outside"]
    assert "REACHED" not in out
    assert len(site.requests) == 2


@pytest.mark.proves("sandbox.network.namespace")
async def test_names_and_datagrams_lead_nowhere() -> None:
    script = """
import socket
for attempt in (
    lambda: socket.getaddrinfo("example.com", 80),
    lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("8.8.8.8", 53)),
    lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).sendto(b"x", ("2001:4860:4860::8888", 53)),
    lambda: socket.create_connection(("169.254.169.254", 80), 5),
    lambda: socket.create_connection(("127.0.0.1", 1), 5),
):
    try:
        attempt()
        print("REACHED")
    except OSError as problem:
        print("no:", problem)
"""
    async with (
        Proxied("site.example") as proxied,
        enclosed(proxied, sys.executable, "-I", "-c", script) as process,
    ):
        code, out = await output(process)
    assert code == 0, out
    assert [line[:3] for line in out.splitlines()] == ["no:"] * 5


async def test_the_port_is_reached_from_its_own_namespace_only_and_ends_with_it() -> None:
    async with Proxied("site.example") as proxied:
        async with enclosed(proxied, "sh", "-c", "echo up; exec sleep 60") as process:
            assert process.stdout is not None
            assert await asyncio.wait_for(process.stdout.readline(), LONG) == b"up\n"
            with pytest.raises(OSError), socket.create_connection(("127.0.0.1", PORT), 5):
                pass
        assert process.returncode == -9


@pytest.mark.proves("sandbox.network.namespace")
async def test_the_command_holds_no_descriptor_of_the_port_and_cannot_take_it() -> None:
    script = f"""
import os, socket
print(sorted(os.readlink(f"/proc/self/fd/{{n}}").split(":")[0] for n in os.listdir("/proc/self/fd") if int(n) > 2 and os.path.exists(f"/proc/self/fd/{{n}}")))
for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, option, 1)
    try:
        sock.bind(("127.0.0.1", {PORT}))
        sock.listen()
        print("TAKEN")
    except OSError as problem:
        print(problem.strerror)
"""
    async with (
        Proxied("site.example") as proxied,
        enclosed(proxied, sys.executable, "-I", "-c", script) as process,
    ):
        code, out = await output(process)
    assert code == 0, out
    assert out.splitlines()[1:] == ["Address already in use"] * 2
    assert out.splitlines()[0] == "[]"


def test_sockets_are_closed_here_once_they_are_handed_out() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        made = listen(0)
        assert all(not os.get_inheritable(sock.fileno()) for sock in made)
        send_sockets(theirs, b"here", made)
        assert all(sock.fileno() == -1 for sock in made)
        message, descriptors, *_ = socket.recv_fds(ours, 16, 4)
        assert message == b"here"
        for descriptor in descriptors:
            with socket.socket(fileno=descriptor) as sock:
                assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1


def test_a_port_that_is_taken_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError):
        listen(taken.getsockname()[1])
