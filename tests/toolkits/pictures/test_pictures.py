"""Pictures of web pages and of pages of PDFs: real programs, confined, called through the gate."""

from __future__ import annotations

import asyncio
import http.server
import os
import shutil
import struct
import tempfile
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from ferrule.core.calls import ToolResult
from ferrule.core.media import MediaOptions
from ferrule.engine.agent import Agent
from ferrule.engine.agent_options import Permissions, Storage
from ferrule.models.scripted import Scripted
from ferrule.plugins import Parts
from ferrule.runtime.chosen_plugins import load_shipped_tools
from ferrule.sandbox.backends.probes import probe
from ferrule.sandbox.backends.selection import MissingProtections, choose_backend
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.toolkits import PICTURE_TOOLS
from ferrule.toolkits.commands.policy import CommandPolicy

Ask = Callable[..., tuple[ToolResult, list[bytes]]]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    try:
        choose_backend(SandboxPolicy(tmp_path), probe())
    except MissingProtections:
        pytest.skip("this machine cannot confine commands")
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def ask(workspace: Path) -> Ask:
    """Calls a tool in a session of its own; gives its result and the bytes of its pictures."""

    def call(
        tool: str,
        /,
        *,
        domains: tuple[str, ...] = (),
        allow: Any = ("vision::*",),
        deny: Any = (),
        ask_about: Any = (),
        resources: Any = (),
        **arguments: Any,
    ) -> tuple[ToolResult, list[bytes]]:
        async def once() -> tuple[ToolResult, list[bytes]]:
            agent = Agent(
                Scripted([]),
                PICTURE_TOOLS,
                workspace=workspace,
                storage=Storage(journal=SqliteJournal(":memory:")),
                plugins=[Parts(resources=[MediaOptions(domains=domains), *resources])],
                permissions=Permissions(allow=allow, deny=deny, ask=ask_about),
            )
            session = agent.session()
            try:
                result = await session.call(tool, **arguments)
                return result, [session.history.read_media(one) for one in result.media]
            finally:
                await session.close()

        return asyncio.run(once())

    return call


def pixels(picture: bytes) -> tuple[int, int, set[bytes]]:
    """Width, height and the colours (RGB) of a PNG that has eight bits a channel."""
    width, height, depth, kind = struct.unpack(">IIBB", picture[16:26])
    assert depth == 8
    size = {2: 3, 6: 4}[kind]
    packed = b""
    at = 8
    while at < len(picture):
        length, name = struct.unpack(">I4s", picture[at : at + 8])
        packed += picture[at + 8 : at + 8 + length] if name == b"IDAT" else b""
        at += 12 + length
    raw = zlib.decompress(packed)
    row = width * size + 1
    before = bytearray(width * size)
    colours: set[bytes] = set()
    for y in range(height):
        line = bytearray(raw[y * row + 1 : (y + 1) * row])
        kind_of_filter = raw[y * row]
        for i in range(len(line)):
            left = line[i - size] if i >= size else 0
            corner = before[i - size] if i >= size else 0
            line[i] = (line[i] + guess(kind_of_filter, left, before[i], corner)) & 255
        colours.update(bytes(line[i : i + 3]) for i in range(0, len(line), size))
        before = line
    return width, height, colours


def guess(kind: int, left: int, above: int, corner: int) -> int:
    """What a filter of PNG (third edition, 9.2) predicts."""
    if kind == 4:
        estimate = left + above - corner
        near = sorted((left, above, corner), key=lambda one: abs(estimate - one))
        return near[0]
    return (0, left, above, (left + above) // 2)[kind]


# ---- web pages

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
RED = bytes((200, 10, 20))
GREEN = bytes((10, 200, 20))


class Pages(http.server.BaseHTTPRequestHandler):
    """Pages that draw one colour, and what was asked for."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        host = self.headers["Host"]
        self.asked.append(f"{host.partition(':')[0]}{self.path}")
        port = host.partition(":")[2]
        if self.path == "/away":
            self.send_response(302)
            self.send_header("Location", f"http://denied.localhost:{port}/there")
            self.end_headers()
            return
        script = "setTimeout(() => document.body.style.background = 'rgb(10,200,20)', 700)"
        body = (
            "<body style='background:rgb(200,10,20)'>"
            f"<img src='http://denied.localhost:{port}/pixel.png'>"
            + (f"<script>{script}</script>" if self.path == "/script" else "")
        ).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def site(workspace: Path) -> Iterator[str]:
    if choose_backend(SandboxPolicy(workspace), probe()).name == "landlock":
        pytest.skip("Landlock alone has no proxy: a command reaches no host")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    Pages.asked = []
    try:
        yield f"localhost:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


DENIED = {"deny": ["WebFetch(domain:denied.localhost)"], "domains": ("localhost",)}


@needs_chromium
@pytest.mark.linux_only("commands are confined")
def test_a_page_is_drawn_after_its_scripts_and_loads_nothing_from_denied_hosts(
    ask: Ask, site: str
) -> None:
    url = f"http://{site}/script"
    result, (picture,) = ask("vision::screenshot", url=url, width=320, height=240, **DENIED)
    assert result.success, result.error_message
    width, height, colours = pixels(picture)
    assert (width, height) == (320, 240)
    assert GREEN in colours
    assert RED not in colours
    assert f"`{site}` could not load from `denied.localhost`: " in str(result.data)
    assert "localhost/script" in Pages.asked
    assert not [one for one in Pages.asked if one.startswith("denied")]


@needs_chromium
@pytest.mark.linux_only("commands are confined")
def test_a_redirect_to_a_denied_host_is_not_followed(ask: Ask, site: str) -> None:
    result, _ = ask(
        "vision::screenshot", url=f"http://{site}/away", width=320, height=240, **DENIED
    )
    assert f"`{site}` could not load from `denied.localhost`: " in str(result.data)
    assert Pages.asked[0] == "localhost/away"
    assert not [one for one in Pages.asked if one.startswith("denied")]


@pytest.mark.parametrize(
    ("url", "options", "said"),
    [
        ("http://localhost:9/", {}, "is an address, not a domain"),
        ("http://169.254.169.254/latest", {}, "is an address, not a domain"),
        ("http://other.example/", {"domains": ("example.org",)}, "not among the allowed domains"),
        ("http://bad.example/", {"deny": ["WebFetch(domain:bad.example)"]}, "denied"),
        ("file:///etc/passwd", {}, "was not requested"),
        ("data:text/html,x", {}, "was not requested"),
        ("http://me:secret@example.org/", {}, "was not requested"),
    ],
)
def test_what_scripts_may_not_ask_for_is_not_drawn(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, url: str, options: dict[str, Any], said: str
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")  # Whatever comes further finds no browser.
    result, _ = ask("vision::screenshot", url=url, **options)
    assert (result.success, result.error_type) == (False, "permission_denied")
    assert said in result.error_message


@needs_chromium
@pytest.mark.linux_only("commands are confined")
def test_a_page_that_is_not_there_is_an_error_and_no_picture_of_one(ask: Ask, site: str) -> None:
    _, _, port = site.partition(":")
    result, pictures = ask(
        "vision::screenshot", url=f"http://localhost:{int(port) ^ 1}/", domains=("localhost",)
    )
    assert (result.success, pictures) == (False, [])
    assert "could not be reached" in result.error_message


@needs_chromium
def test_a_browser_that_nothing_confines_is_not_started(ask: Ask, site: str) -> None:
    result, _ = ask(
        "vision::screenshot",
        url=f"http://{site}/",
        domains=("localhost",),
        resources=[CommandPolicy(on_missing_protection="off")],
    )
    assert (result.error_type, Pages.asked) == ("permission_denied", [])
    assert "nothing confines the browser" in result.error_message


SHOWN = "/opt"
"""A folder with programs that commands see, and that is not of the system's own package."""
HOSTILE_BROWSER = """#!/bin/bash
ln -s /etc/passwd page.png
"""


@pytest.mark.linux_only("commands are confined")
def test_a_link_in_the_place_of_the_picture_is_not_followed(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not os.access(SHOWN, os.W_OK):
        pytest.skip(f"no program can be put where commands see it: {SHOWN} cannot be written")
    with tempfile.TemporaryDirectory(prefix="ferrule-spy-", dir=SHOWN) as folder:
        spy = Path(folder) / "chromium"
        spy.write_text(HOSTILE_BROWSER)
        spy.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        result, pictures = ask("vision::screenshot", url="http://example.org/")
    assert (result.success, pictures) == (False, [])
    assert "left no picture" in result.error_message


# ---- pages of PDFs

needs_pdftoppm = pytest.mark.skipif(
    shutil.which("pdftoppm") is None, reason="pdftoppm is not installed"
)


def make_pdf(*colours: tuple[int, int, int]) -> bytes:
    """A PDF with a page of each colour, 100 by 200 points."""
    pages = " ".join(f"{3 + 2 * number} 0 R" for number in range(len(colours)))
    objects = [
        "<</Type/Catalog/Pages 2 0 R>>",
        f"<</Type/Pages/Count {len(colours)}/Kids[{pages}]>>",
    ]
    for colour in colours:
        drawn = " ".join(f"{one / 255:.3f}" for one in colour) + " rg 0 0 100 200 re f"
        number = len(objects) + 2
        objects.append(f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 100 200]/Contents {number} 0 R>>")
        objects.append(f"<</Length {len(drawn)}>>stream\n{drawn}\nendstream")
    body = "%PDF-1.4\n"
    places: list[int] = []
    for number, text in enumerate(objects, 1):
        places.append(len(body))
        body += f"{number} 0 obj{text}endobj\n"
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    size = len(objects) + 1
    return (
        f"{body}xref\n0 {size}\n0000000000 65535 f \n{table}"
        f"trailer<</Size {size}/Root 1 0 R>>\nstartxref\n{len(body)}\n%%EOF\n"
    ).encode()


@needs_pdftoppm
@pytest.mark.linux_only("commands are confined")
def test_a_page_of_a_pdf_is_drawn(ask: Ask, workspace: Path) -> None:
    (workspace / "two.pdf").write_bytes(make_pdf((200, 10, 20), (10, 200, 20)))
    result, (picture,) = ask("vision::pdf_page", document="two.pdf", page=2, size=200)
    assert result.success, result.error_message
    assert pixels(picture) == (100, 200, {GREEN})
    assert [one.name for one in result.media] == ["two-2.png"]
    result, _ = ask("vision::pdf_page", document="two.pdf", page=3)
    assert result.error_message == "`two.pdf` has 2 pages, and no page 3"


@pytest.mark.parametrize(
    ("document", "arguments", "error_type"),
    [
        (".env", {}, "permission_denied"),
        ("../two.pdf", {}, "permission_denied"),
        ("link.pdf", {}, "permission_denied"),
        ("secret.pdf", {"deny": ["Read(secret.pdf)"]}, "permission_denied"),
        ("text.pdf", {}, "validation_failed"),
        ("cut.pdf", {}, "parse_error"),
        ("two.pdf", {"page": 0}, "validation_failed"),
        ("two.pdf", {"size": 5000}, "validation_failed"),
        ("two.pdf", {"allow": (), "ask_about": ["vision::pdf_page"]}, "permission_denied"),
    ],
)
def test_what_is_not_drawn_is_never_given_to_the_program(
    ask: Ask,
    workspace: Path,
    monkeypatch: pytest.MonkeyPatch,
    document: str,
    arguments: dict[str, Any],
    error_type: str,
) -> None:
    pdf = make_pdf((200, 10, 20))
    for name in ("two.pdf", "secret.pdf", ".env", "../two.pdf"):
        (workspace / name).write_bytes(pdf)
    (workspace / "link.pdf").symlink_to(workspace.parent / "two.pdf")
    (workspace / "text.pdf").write_text("just text")
    (workspace / "cut.pdf").write_bytes(pdf[:60])
    monkeypatch.setenv("PATH", "/nowhere")  # Whatever comes further is `not_found`.
    result, _ = ask("vision::pdf_page", document=document, **arguments)
    assert (result.success, result.error_type) == (False, error_type)


@pytest.mark.parametrize(
    ("tool", "arguments", "package"),
    [
        ("vision::pdf_page", {"document": "one.pdf"}, "poppler-utils"),
        ("vision::screenshot", {"url": "http://example.org/"}, "chromium"),
    ],
)
def test_a_missing_program_is_said_with_the_way_to_install_it(
    ask: Ask,
    workspace: Path,
    monkeypatch: pytest.MonkeyPatch,
    tool: str,
    arguments: dict[str, str],
    package: str,
) -> None:
    (workspace / "one.pdf").write_bytes(make_pdf((200, 10, 20)))
    # One that lies in the workspace is none: a tool may have written it.
    for name in ("pdftoppm", "chromium"):
        (workspace / name).write_text("#!/bin/sh\n")
        (workspace / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(workspace))
    result, _ = ask(tool, **arguments)
    assert result.error_type == "not_found"
    assert f"apt install {package}" in result.error_message


def test_the_plugin_adds_both_tools() -> None:
    before = {tool.full_name for tool in load_shipped_tools()}
    added = {tool.full_name for tool in load_shipped_tools(pictures={})} - before
    assert added == {"vision::screenshot", "vision::pdf_page"}
