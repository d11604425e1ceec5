"""The servers that there are, as processes that attacks can be tried on, and the bytes that are
sent to them.

They are the real commands, on a free port, with a scripted model. Only their patience is shorter
than usual, so that a client that never finishes is given up while we wait.
"""

from __future__ import annotations

import contextlib
import http.client
import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from ferrule.storage.journal.sqlite import SqliteJournal

TOKEN = "the-token-of-the-owner"
BOBS = "the-token-of-bob-himself"
CANARY = "canary-7f3a"
IMPATIENT = """
import sys
from ferrule.runtime.http import http_security as interface, server as serving
serving.HEAD_SECONDS, interface.BODY_SECONDS = 1.5, 4.0
from ferrule.cli.entry import main
main()
"""
SCRIPT = json.dumps([{"say": "done"}] * 20)
PICTURES = 48 << 20
"""The most bytes of a request where pictures come in base64."""
UPLOADS = 33 << 20
"""The most bytes of a form with files."""
LISTS = json.dumps([{"call": [{"tool": "list_files", "arguments": {}}]}, {"say": "done"}] * 20)

Sent = dict[str, Any]


@dataclass
class Interface:
    """A server, and the request that makes it work."""

    name: str
    command: tuple[str, ...]
    deed: Callable[[], Sent]
    look: Callable[[], Sent]
    """A request that does nothing, and is answered with 200."""
    needs: str
    most: int
    """The most bytes that the body of that request may have."""
    script: str = SCRIPT
    options: tuple[str, ...] = ("--allow", "Read")
    port: int = 0
    process: subprocess.Popen[str] | None = None
    folder: Path = Path()
    reading: threading.Thread | None = None
    said: list[str] = field(default_factory=list[str])
    """Lines that it has written, on either stream."""

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def sessions(self) -> int:
        """How many there are in its journal."""
        path = self.folder / "journal.db"
        if not path.exists():
            return 0
        with SqliteJournal(path) as journal:
            return len(journal.sessions())


def posted(path: str, body: Any, **headers: str) -> Sent:
    encoded = body if isinstance(body, bytes) else json.dumps(body).encode()
    return {
        "method": "POST",
        "path": path,
        "body": encoded,
        "headers": {"content-type": "application/json", **headers},
    }


def got(path: str) -> Sent:
    return {"method": "GET", "path": path, "body": b"", "headers": {}}


def spoken_to(method: str, **parameters: Any) -> Sent:
    """A request to the MCP server, in the version without a handshake."""
    about = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "attack", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**parameters, "_meta": about}}
    named = {"mcp_name": str(parameters["name"])} if "name" in parameters else {}
    kinds = "application/json, text/event-stream"
    return posted(
        "/mcp", body, accept=kinds, mcp_protocol_version="2026-07-28", mcp_method=method, **named
    )


def said_to_agent(method: str, parameters: Any) -> Sent:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters}
    return posted("/a2a", body, a2a_version="1.0")


_threads = count(1)


def said_in_thread(thread: str = "", *messages: str) -> Sent:
    """A run of AG-UI in a thread, by default a new one."""
    told = [{"id": f"m{at}", "role": "user", "content": text} for at, text in enumerate(messages)]
    thread = thread or f"attack-{next(_threads)}"
    return posted("/run", {"threadId": thread, "runId": "r1", "messages": told})


def all_interfaces() -> list[Interface]:
    form = {"content_type": "application/x-www-form-urlencoded"}
    message = {"role": "ROLE_USER", "messageId": "m1", "parts": [{"text": "go"}]}
    chat = {"model": "ferrule", "messages": [{"role": "user", "content": "go"}]}
    return [
        Interface(
            "console",
            ("console",),
            lambda: posted("/playground", b"text=go", **form),
            lambda: got("/runs"),
            "jinja2",
            UPLOADS,
            LISTS,
        ),
        Interface(
            "a2a",
            ("a2a",),
            lambda: said_to_agent("SendMessage", {"message": message}),
            lambda: said_to_agent("GetTask", {"id": "none"}),
            "a2a",
            PICTURES,
        ),
        Interface(
            "ag-ui",
            ("ag-ui",),
            lambda: said_in_thread("", "go"),
            lambda: said_in_thread("look"),
            "starlette",
            8 << 20,
            LISTS,
        ),
        Interface(
            "openai",
            ("openai",),
            lambda: posted("/v1/chat/completions", chat),
            lambda: got("/v1/models"),
            "starlette",
            PICTURES,
        ),
        Interface(
            "mcp",
            ("mcp", "--http"),
            lambda: spoken_to("tools/call", name="list_files", arguments={}),
            lambda: spoken_to("tools/list"),
            "mcp",
            1 << 20,
        ),
    ]


def start(interface: Interface, folder: Path) -> None:
    interface.folder = folder
    (folder / "work").mkdir(exist_ok=True)
    (folder / "work" / "note.txt").write_text(CANARY)
    for number in range(400):
        # So many that a list of them is a large result.
        (folder / "work" / f"{number:03}{'x' * 120}").touch()
    (folder / "token").write_text(
        f"{TOKEN}\nbob {BOBS}\n" if interface.name == "console" else TOKEN
    )
    (folder / "token").chmod(0o600)
    (folder / "script.json").write_text(interface.script)
    words = [
        sys.executable,
        "-c",
        IMPATIENT,
        "serve",
        *interface.command,
        "--port",
        "0",
        "--token-file",
        str(folder / "token"),
        "--model",
        f"scripted:{folder / 'script.json'}",
        "--journal",
        str(folder / "journal.db"),
        "-C",
        str(folder / "work"),
        *interface.options,
    ]
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("FERRULE", "XDG"))
    }
    interface.process = subprocess.Popen(
        words,
        cwd=folder / "work",
        env={**kept, "HOME": str(folder)},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def found(interface: Interface) -> None:
    """Wait until it says where it is."""
    assert interface.process is not None and interface.process.stdout is not None
    for line in interface.process.stdout:
        interface.said.append(line)
        if match := re.search(r"http://127\.0\.0\.1:(\d+)", line):
            interface.port = int(match[1])
            break
    else:
        raise AssertionError(f"{interface.name} did not start: {''.join(interface.said)}")
    # Read on, or a server that has much to say waits for us.
    interface.reading = threading.Thread(
        target=interface.said.extend, args=(interface.process.stdout,), daemon=True
    )
    interface.reading.start()


def end(interface: Interface) -> int:
    """Tell a server to end, and wait until it has; its exit code."""
    assert interface.process is not None and interface.process.stdout is not None
    if interface.process.poll() is None:
        interface.process.send_signal(signal.SIGTERM)
    code = interface.process.wait(timeout=60)
    if interface.reading is not None:
        interface.reading.join(timeout=60)
    interface.process.stdout.close()
    return code


@contextlib.contextmanager
def running(
    interfaces: Sequence[Interface], folder: Callable[[str], Path]
) -> Iterator[dict[str, Interface]]:
    """Those of them that can be had here, by name."""
    interfaces = [
        interface
        for interface in interfaces
        if importlib.util.find_spec(interface.needs) and importlib.util.find_spec("uvicorn")
    ]
    try:
        for interface in interfaces:
            start(interface, folder(interface.name))
        for interface in interfaces:
            found(interface)
        yield {interface.name: interface for interface in interfaces}
    finally:
        for interface in interfaces:
            if interface.process is not None:
                end(interface)


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: str


def spelled(interface: Interface, sent: Sent, **headers: str | list[str] | None) -> bytes:
    """A request as it goes over the wire; `headers` in the place of the right ones, None for
    none.
    """
    whole: dict[str, Any] = {
        "host": interface.host,
        "authorization": f"Bearer {TOKEN}",
        "content-length": str(len(sent["body"])),
        **{name.replace("_", "-"): value for name, value in {**sent["headers"], **headers}.items()},
    }
    lines = [f"{sent['method']} {sent['path']} HTTP/1.1"]
    for name, value in whole.items():
        several = value if isinstance(value, list) else [] if value is None else [value]
        lines += [f"{name}: {one}" for one in several]
    return "\r\n".join([*lines, "", ""]).encode() + sent["body"]


def exchanged(interface: Interface, *pieces: bytes) -> Answer | None:
    """What comes back on one connection; None if it was closed without an answer."""
    with socket.create_connection(("127.0.0.1", interface.port), timeout=30) as speaking:
        with contextlib.suppress(ConnectionError):
            for piece in pieces:
                speaking.sendall(piece)
        answer = http.client.HTTPResponse(speaking, method="GET")
        try:
            answer.begin()
        except (ConnectionError, http.client.BadStatusLine):
            return None
        headers = {name.lower(): value for name, value in answer.getheaders()}
        try:
            return Answer(answer.status, headers, answer.read().decode(errors="replace"))
        except (ConnectionError, http.client.IncompleteRead):
            return Answer(answer.status, headers, "")


def wait_for_run(interface: Interface, answer: Answer) -> str:
    """Watch the run that a page of the console began until it is over; its session."""
    session = answer.headers["location"].rpartition("/")[2]
    with socket.create_connection(("127.0.0.1", interface.port), timeout=60) as watching:
        watching.sendall(spelled(interface, got(f"/stream?session={session}&cursor=0")))
        told = b""
        while b"event: run.finished" not in told:
            more = watching.recv(65_536)
            assert more, told
            told += more
    return session
