"""With one host named, that host can be used by ordinary programs, and nothing else answers."""

from __future__ import annotations

import http.server
import os
import shlex
import shutil
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from confined import Confined, find_backend
from test_benign import PACKAGES, PYTHON, _wheel

from ferrule.sandbox.backends.probes import probe
from ferrule.sandbox.policy import SandboxPolicy

pytestmark = pytest.mark.skipif(
    not probe().user_namespaces, reason="no user namespaces: another rung holds here"
)


class Index(http.server.SimpleHTTPRequestHandler):
    """A package index: folders of files. A redirect leads to the machine next door."""

    def do_GET(self) -> None:
        if self.path.startswith("/away/"):
            self.send_response(302)
            self.send_header("Location", self.path.removeprefix("/away/"))
            self.end_headers()
            return
        super().do_GET()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on the terminal."""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="ferrule-network-", dir=Path.home())).resolve()
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def index(folder: Path) -> Iterator[int]:
    """The port of a package index that has one package."""
    (folder / "index/simple").mkdir(parents=True)
    _wheel(folder / "index/simple/tiny")
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(Index, directory=folder / "index")
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[socket.socket]:
    """A listener that nobody named."""
    made = socket.create_server(("127.0.0.1", 0))
    made.setblocking(False)
    yield made
    made.close()


@pytest.fixture(scope="module", params=["namespaces", "bubblewrap", "container"])
def confined(request: pytest.FixtureRequest, folder: Path, index: int) -> Iterator[Confined]:
    shutil.rmtree(folder / "project", ignore_errors=True)
    (folder / "project").mkdir()
    policy = SandboxPolicy(
        folder / "project", readable=(PACKAGES,), network=(f"localhost:{index}",)
    )
    policy = replace(policy, require=frozenset())
    built = Confined(policy, find_backend(request.param, policy))
    yield built
    built.close()


@pytest.mark.proves("sandbox.network.named-host-installs")
def test_a_package_installs_from_the_named_host(
    folder: Path, confined: Confined, index: int
) -> None:
    script = (
        f"{PYTHON} -m venv --without-pip v && PYTHONPATH={shlex.quote(PACKAGES)} {PYTHON} -m pip --python "
        "v/bin/python install -q --no-deps "
        f"--disable-pip-version-check --index-url http://localhost:{index}/simple tiny && "
        "v/bin/python -c 'import tiny; print(tiny.word)'"
    )
    ended, shown = confined.run(script, timeout=120)
    assert ended.exit_code == 0 and b"a tiny word" in shown, shown.decode()


@pytest.mark.proves("sandbox.network.nothing-else")
@pytest.mark.parametrize(
    "script",
    [
        "curl -s -m 5 http://localhost:{other}/",
        "curl -s -m 5 http://127.0.0.1:{other}/",
        "curl -s -m 5 http://127.0.0.1:{index}.nip.io/ ; curl -s -m 5 http://127.1:{other}/",
        "curl -s -m 5 --noproxy '*' http://127.0.0.1:{other}/",
        "curl -s -m 5 -L http://localhost:{index}/away/http://localhost:{other}/",
        "curl -s -m 5 -p -x $http_proxy http://localhost:{other}/",
        "curl -s -m 5 -H 'Host: localhost:{other}' http://localhost:{index}/away/",
        "echo leak > /dev/tcp/127.0.0.1/{other}",
        "echo leak > /dev/udp/127.0.0.1/{other}",
        ("printf 'GET http://localhost:{other}/ HTTP/1.1\\r\\nHost: "
            "localhost:{index}\\r\\n\\r\\n' | {python} -c \"import sys,socket,os,urllib.parse as "
            "u; p=u.urlparse(os.environ['http_proxy']); "
            "s=socket.create_connection((p.hostname,p.port)); "
            "s.sendall(sys.stdin.buffer.read()); print(s.recv(99))\""),
        ("{python} -c \"import socket,os,urllib.parse as u; "
            "p=u.urlparse(os.environ['http_proxy']); "
            "s=socket.create_connection((p.hostname,p.port)); s.sendall(b'CONNECT "
            "127.0.0.1:{other} HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n'); print(s.recv(99)); "
            "s.sendall(b'leak')\""),
    ],
)  # fmt: skip
def test_nothing_else_answers(
    confined: Confined, index: int, elsewhere: socket.socket, script: str
) -> None:
    ended, shown = confined.run(
        script.replace("{other}", str(elsewhere.getsockname()[1]))
        .replace("{index}", str(index))
        .replace("{python}", PYTHON),
        timeout=30,
    )
    assert not ended.timed_out
    with pytest.raises(BlockingIOError):
        elsewhere.accept()
    assert b"HTTP/1.1 200" not in shown, os.fsdecode(shown)
