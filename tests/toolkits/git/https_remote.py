"""A git server over TLS on loopback, with an authority of its own: `git http-backend` behind it."""

from __future__ import annotations

import base64
import os
import shutil
import ssl
import subprocess
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest

TOKEN = "t0ken-of-a-person"


@dataclass
class HttpsRemote:
    """`repository` is bare and holds what was pushed; `authority` is the file to trust."""

    repository: Path
    authority: Path
    port: int = 0
    asked: list[str] = field(default_factory=list[str])

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}/{self.repository.name}"

    @property
    def url_with_token(self) -> str:
        return self.url.replace("://", f"://x:{TOKEN}@")


@contextmanager
def serve_repository(folder: Path, *, needs_token: bool = False) -> Generator[HttpsRemote]:
    """Serve an empty bare repository in a folder.

    Args:
        folder: An empty folder.
        needs_token: Whether nobody is served without `TOKEN`.
    """
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    remote = HttpsRemote(folder / "r.git", folder / "authority.pem")
    subprocess.run(
        ["git", "init", "-q", "--bare", "-b", "main", str(remote.repository)], check=True
    )
    subprocess.run(
        ["git", "-C", str(remote.repository), "config", "http.receivepack", "true"], check=True
    )
    key = folder / "server.key"
    words = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 "
        f"-subj /CN=x -addext subjectAltName=IP:127.0.0.1 -keyout {key} -out {remote.authority}"
    )
    subprocess.run(
        words.split(),
        check=True,
        capture_output=True,
    )
    server = ThreadingHTTPServer(("127.0.0.1", 0), _make_handler(remote, needs_token))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(remote.authority, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    remote.port = server.server_address[1]
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    try:
        yield remote
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


def _make_handler(remote: HttpsRemote, needs_token: bool) -> type[BaseHTTPRequestHandler]:
    expected = "Basic " + base64.b64encode(f"x:{TOKEN}".encode()).decode()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            return

        def do_GET(self) -> None:
            self._answer(b"")

        def do_POST(self) -> None:
            if self.headers.get("Transfer-Encoding") == "chunked":
                self._answer(self._read_chunks())
            else:
                self._answer(self.rfile.read(int(self.headers.get("Content-Length", 0))))

        def _read_chunks(self) -> bytes:
            found = b""
            while size := int(self.rfile.readline(), 16):
                found += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return found

        def _answer(self, body: bytes) -> None:
            given = self.headers.get("Authorization", "")
            remote.asked.append(f"{self.command} {self.path} {given}".strip())
            if needs_token and given != expected:
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="git"')
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            split = urlsplit(self.path)
            ended = subprocess.run(
                ["git", "http-backend"],
                input=body,
                capture_output=True,
                check=True,
                env={
                    "PATH": os.environ["PATH"],
                    "GIT_PROJECT_ROOT": str(remote.repository.parent),
                    "GIT_HTTP_EXPORT_ALL": "1",
                    "REQUEST_METHOD": self.command,
                    "PATH_INFO": split.path,
                    "QUERY_STRING": split.query,
                    "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                    "CONTENT_LENGTH": str(len(body)),
                    "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                    "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
                    "REMOTE_USER": "p",
                },
            )
            head, _, content = ended.stdout.partition(b"\r\n\r\n")
            headers = dict(line.split(": ", 1) for line in head.decode().splitlines())
            self.send_response(int(headers.pop("Status", "200").split()[0]))
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    return Handler
