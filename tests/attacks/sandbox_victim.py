"""The process outside: `python sandbox_victim.py NAME ROOT OUT MARKER`.

Writes one line of JSON with where it can be reached, then answers each line of its standard input
with what arrived. It listens on TCP (v4, v6), UDP, an abstract socket and a socket file in the
workspace, and holds canaries in its memory, its environment, an open descriptor, System V shared
memory, a POSIX message queue and /dev/shm.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import socket
import sys
import threading

_, _, root, out, marker = sys.argv
library = ctypes.CDLL(None, use_errno=True)
canary = f"KEY={marker}_victim".encode()

kept = ctypes.create_string_buffer(canary, 64)

os.chdir(out)
secret = os.open(f"{out}/notes.txt", os.O_RDWR)

library.shmat.restype = ctypes.c_void_p
shared = library.shmget(0, 4096, 0o1000 | 0o666)
ctypes.memmove(library.shmat(shared, None, 0), canary + b"\0", len(canary) + 1)

queue = f"/{marker}"
descriptor = library.mq_open(queue.encode(), os.O_CREAT | os.O_RDWR, 0o666, None)
for _ in range(4):
    library.mq_send(descriptor, canary, len(canary), 0)

shared_file = f"/dev/shm/ferrule-{os.getpid()}"
with open(shared_file, "wb") as file:
    file.write(canary)


def listening(family: int, address: object) -> socket.socket:
    made = socket.socket(family)
    made.bind(address)
    made.listen(64)
    return made


four = listening(socket.AF_INET, ("127.0.0.1", 0))
abstract = listening(socket.AF_UNIX, f"\0{marker}-abstract")
os.chdir(root)
named = listening(socket.AF_UNIX, "project.sock")
os.chmod("project.sock", 0o666)
os.chdir(out)
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagrams.bind(("127.0.0.1", 0))
listeners = [four, abstract, named]
six_port = 1
try:
    six = listening(socket.AF_INET6, ("::1", 0))
    six_port = six.getsockname()[1]
    listeners.append(six)
except OSError:
    pass

arrived: list[str] = []
lock = threading.Lock()


def serve() -> None:
    open_ones: set[socket.socket] = set()
    while True:
        ready, _, _ = select.select([*listeners, datagrams, *open_ones], [], [])
        with lock:
            for one in ready:
                if one is datagrams:
                    arrived.append(f"datagram: {datagrams.recv(999)!r}")
                elif one in open_ones:
                    try:
                        data = one.recv(999)
                    except ConnectionError:
                        data = b""
                    if data:
                        arrived.append(f"bytes: {data[:60]!r}")
                    else:
                        open_ones.discard(one)
                        one.close()
                else:
                    connection, _ = one.accept()
                    arrived.append("a connection")
                    try:
                        connection.sendall(canary)
                        connection.shutdown(socket.SHUT_WR)
                    except OSError:
                        connection.close()
                        continue
                    open_ones.add(connection)


threading.Thread(target=serve, daemon=True).start()
print(
    json.dumps(
        {
            "victim": os.getpid(),
            "secretfd": secret,
            "udpfd": datagrams.fileno(),
            "port": four.getsockname()[1],
            "port6": six_port,
            "udp": datagrams.getsockname()[1],
            "abstract": f"{marker}-abstract",
            "socket": f"{root}/project.sock",
            "shm": shared,
            "queue": queue[1:],
            "shmfile": shared_file,
            "address": f"{ctypes.addressof(kept)}, 64",
        }
    ),
    flush=True,
)
for _ in sys.stdin:
    # What was sent before the question is counted: the kernel has it, the thread may not have.
    threading.Event().wait(0.002)
    while select.select([*listeners, datagrams], [], [], 0)[0]:
        threading.Event().wait(0.002)
    with open(shared_file, "rb") as file:
        if file.read() != canary:
            arrived.append("the shared memory file was written")
    with open(shared_file, "wb") as file:
        file.write(canary)
    with lock:
        said, arrived[:] = list(arrived), []
    print(json.dumps(said), flush=True)
