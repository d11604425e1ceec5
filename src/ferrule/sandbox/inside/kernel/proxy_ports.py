"""The connection to Ferrule's proxy from inside a command's network namespace: a listening socket.

A socket belongs to the network namespace it was made in, whoever holds it. So nothing is forwarded
in here: the listening socket goes out over the control channel, Ferrule accepts on it, and what it
accepts are connections of the namespace. No path and no port of the machine lead to it; only
processes of this namespace can connect.

Runs in the first process of the namespace before the command is forked, and the command must not
inherit what `listen` returns. Imports nothing of Ferrule.
"""

from __future__ import annotations

import contextlib
import fcntl
import socket
import struct

PORT = 31280
"""Below the ports that the kernel gives to clients: no earlier connection can have taken it."""
BACKLOG = 128

_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 0x1
_REQUEST = "16sH14x"
"""`struct ifreq` with flags: netdevice(7)."""


def bring_up_loopback() -> None:
    """Bring `lo` up in the network namespace of this process.

    Raises OSError (EPERM without CAP_NET_ADMIN).
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        answer = fcntl.ioctl(sock, _SIOCGIFFLAGS, struct.pack(_REQUEST, b"lo", 0))
        flags = struct.unpack(_REQUEST, answer)[1]
        fcntl.ioctl(sock, _SIOCSIFFLAGS, struct.pack(_REQUEST, b"lo", flags | _IFF_UP))


def listen(port: int = PORT) -> list[socket.socket]:
    """Return sockets that listen on this port of 127.0.0.1, and of ::1 where there is IPv6.

    Raises OSError.
    """
    sockets = [_listen_on(socket.AF_INET, "127.0.0.1", port)]
    with contextlib.suppress(OSError):  # No IPv6 here: then nobody can ask for ::1 either.
        sockets.append(_listen_on(socket.AF_INET6, "::1", port))
    return sockets


def send_sockets(control: socket.socket, message: bytes, sockets: list[socket.socket]) -> None:
    """Send the sockets along with a message on a unix socket, and close them here.

    Raises OSError.
    """
    try:
        socket.send_fds(control, [message], [sock.fileno() for sock in sockets])
    finally:
        for sock in sockets:
            sock.close()


def _listen_on(family: int, address: str, port: int) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind((address, port))
        sock.listen(BACKLOG)
    except BaseException:
        sock.close()
        raise
    return sock
