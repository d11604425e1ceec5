"""Attacks on the console in Chromium, with somebody signed in: markup in what it shows, and pages
of another server in the same browser.

Markup of models, tools, files and strangers is text: none of it runs, and no other server is asked
for anything. A page that another server of this machine sends (for a browser, the same site) reads
nothing and changes nothing.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import socket
import threading
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from servers import BOBS, TOKEN, Interface, all_interfaces, exchanged, got, posted, running, spelled

from media_samples import make_png

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
MISSING = [
    reason
    for reason, there in (
        ("playwright is not installed", importlib.util.find_spec("playwright") is not None),
        ("there is no Chromium here", CHROMIUM is not None),
        ("the extra `console` is not installed", importlib.util.find_spec("jinja2") is not None),
    )
    if not there
]
pytestmark = pytest.mark.skipif(bool(MISSING), reason="; ".join(MISSING))

EVIL = "http://127.0.0.1:9"
"""Where nobody listens, and which no rule about names keeps from being asked."""
NAME = "!<img src=x onerror=alert(1)><b class=broken>"
"""What a file can be called."""
MARKUP = " ".join(
    [
        "<script>alert(1)</script>",
        NAME,
        f'<img src="{EVIL}/i.png">',
        "<svg onload=alert(1)>",
        "\"'><b class=broken>",
        '<iframe srcdoc="<script>alert(1)</script>"></iframe>',
        "</textarea></pre></code></title><b class=broken>",
        "<!--",
        "[a link](javascript:alert(1))",
        "javascript:alert(1)",
        f"<link rel=stylesheet href={EVIL}/s.css>",
        "{{7*7}}",
        "{% raw %}",
        f"<style>@import url({EVIL}/s.css)</style>",
        f"<form action={EVIL}><button>go</button></form>",
        f"<base href={EVIL}>",
        f'<meta http-equiv=refresh content="0;url={EVIL}">',
        f'<div hx-get="{EVIL}/h" hx-trigger="load" class=broken></div>',
        "<div hx-on:load=alert(1) data-hx-get=/runs hx-trigger=load class=broken></div>",
        "<template><b class=broken></template>",
        "&lt;b&gt;",
    ]
)
INJECTED = """() => [...document.querySelectorAll(
  'script:not([src]), iframe, object, embed, base, meta[http-equiv], .broken, template, [onerror], [onload], [onclick], [hx-on\\\\:load], '
  + '[data-hx-get], [href^="javascript:"], [src^="http://127.0.0.1:9"], [action^="http://127.0.0.1:9"], style:not([data-htmx])'
)].filter(one => !(one.localName === 'style' && one.textContent.includes('htmx-indicator'))).map(one => one.outerHTML.slice(0, 200))"""
SCRIPT = [
    {
        "say": MARKUP,
        "reasoning": MARKUP,
        "call": [
            {"tool": "read_file", "arguments": {"path": "page.html"}, "id": "c1"},
            {"tool": "list_files", "arguments": {}, "id": "c2"},
            {"tool": "file_tree", "arguments": {}, "id": "c3"},
            {"tool": MARKUP, "arguments": {MARKUP: MARKUP}, "id": "c4"},
            {"tool": "read_file", "arguments": {"path": MARKUP}, "id": "c5<b class=broken>"},
        ],
    },
    {"call": [{"tool": "write_file", "arguments": {"path": NAME, "content": MARKUP}, "id": "c6"}]},
    {"say": MARKUP},
]


@dataclass
class Eyes:
    """A page in Chromium, and what happened on it that must not."""

    interface: Interface
    page: Any
    wrong: list[str] = field(default_factory=list[str])

    def watch(self) -> None:
        self.page.on(
            "dialog",
            lambda dialog: (self.wrong.append(f"dialog: {dialog.message}"), dialog.dismiss()),
        )
        self.page.on("request", lambda request: self._asked(request.url))
        self.page.on("console", lambda message: self._said(message.text))
        self.page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))

    def _asked(self, url: str) -> None:
        if not url.startswith((f"http://{self.interface.host}/", "data:")):
            self.wrong.append(f"asked for {url}")

    def _said(self, text: str) -> None:
        if "Content Security Policy" in text or "Refused to" in text:
            self.wrong.append(f"markup got as far as the policy: {text}")

    def open(self, path: str) -> str:
        """Go there, and see nothing of it as markup. The text of the page."""
        self.page.goto(f"http://{self.interface.host}{path}")
        self.page.wait_for_load_state("load")
        return self.check(path)

    def check(self, where: str) -> str:
        assert self.page.evaluate(INJECTED) == [], where
        assert self.wrong == [], where
        return self.page.locator("body").inner_text()


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Interface]:
    (only,) = (interface for interface in all_interfaces() if interface.name == "console")
    only.script = json.dumps(SCRIPT)

    def furnished(name: str) -> Path:
        folder = tmp_path_factory.mktemp(name)
        (folder / "work").mkdir()
        (folder / "work" / "page.html").write_text(f"{MARKUP}\n" * 20)
        (folder / "work" / NAME).write_text(MARKUP)
        return folder

    with running([only], furnished) as interfaces:
        yield interfaces["console"]


@pytest.fixture(scope="module")
def eyes(console: Interface) -> Iterator[Eyes]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            page = browser.new_context().new_page()
            page.set_default_timeout(60_000)
            looking = Eyes(console, page)
            looking.watch()
            looking.open(f"/login?token={TOKEN}")
            yield looking
        finally:
            browser.close()


def until(interface: Interface, session: str, kind: str) -> None:
    """Wait until this happened in the session."""
    with socket.create_connection(("127.0.0.1", interface.port), timeout=60) as watching:
        watching.sendall(spelled(interface, got(f"/stream?session={session}&cursor=0")))
        told = b""
        while f"event: {kind}\n".encode() not in told:
            more = watching.recv(65_536)
            assert more, told
            told += more


def test_markup_of_others_is_text_wherever_it_is_shown(eyes: Eyes) -> None:
    interface = eyes.interface
    form = posted(
        "/playground",
        f"text={quote(MARKUP)}".encode(),
        content_type="application/x-www-form-urlencoded",
    )
    begun = exchanged(interface, spelled(interface, form, connection="close"))
    assert begun is not None and begun.status == 303
    session = begun.headers["location"].rpartition("/")[2]
    until(interface, session, "approval.requested")

    shown = eyes.open(f"/runs/{session}")
    assert "<script>alert(1)</script>" in shown and "onerror=alert(1)" in shown
    for path in ("/runs", "/waiting", f"/playground?a={session}"):
        eyes.open(path)
    eyes.open(f"/runs/{session}")
    question = eyes.page.locator("form.question")
    question.get_by_label("Reason").fill(MARKUP)
    question.get_by_role("button", name="Deny").click()
    eyes.page.locator(".ending").wait_for()
    # Opened, so that what is folded away is looked at as well.
    eyes.page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert eyes.check("the run that has ended").count("{{7*7}}") > 3

    _everywhere(eyes, session)


PASTE = """(base64) => {
  const bytes = Uint8Array.from(atob(base64), (one) => one.charCodeAt(0));
  const clipboardData = new DataTransfer();
  clipboardData.items.add(new File([bytes], "pasted.png", { type: "image/png" }));
  const event = new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true });
  document.querySelector("textarea[name=text]").dispatchEvent(event);
}"""


def test_a_pasted_picture_goes_along_with_the_message(eyes: Eyes) -> None:
    eyes.open("/playground")
    page = eyes.page
    page.evaluate(PASTE, b64encode(make_png(31, 17)).decode())
    page.locator("textarea[name=text]").first.fill("What is this?")
    page.locator("textarea[name=text]").first.press("Control+Enter")
    picture = page.locator("img[alt*='pasted.png']").first
    picture.wait_for()
    assert picture.evaluate(
        "one => one.decode().then(() => [one.naturalWidth, one.naturalHeight])"
    ) == [31, 17]


def _everywhere(eyes: Eyes, session: str) -> None:
    """All pages that show something of it, and those that are asked for with it."""
    calls = [
        f"/runs/{session}/calls/{quote(name)}"
        for name in ("c1", "c2", "c3", "c4", "c5<b class=broken>", "c6")
    ]
    audits = [
        f"/audit/call?session={session}&call={quote(name)}"
        for name in ("c1", "c4", "c5<b class=broken>")
    ]
    events = ["/events", f"/events?session={session}", f"/events?session={session}&after=0"]
    for path in (
        *calls,
        *audits,
        *events,
        f"/runs/{session}/waterfall",
        "/runs",
        "/audit",
        "/costs",
        "/policy",
        "/tools",
        "/servers",
    ):
        eyes.open(path)
    asked = quote(MARKUP)
    for path in (
        f"/runs/{quote(NAME)}",
        f"/runs?q={asked}",
        f"/tools?words={asked}",
        f"/tools/tool?name={asked}",
        f"/events?session={asked}",
        f"/artifacts?session={asked}",
        f"/artifacts/view?session={asked}&artifact={asked}",
        f"/audit?tool={asked}&text={asked}",
        f"/{quote(NAME)}",
        f"/playground?a={asked}",
        f"/policy/fields?tool={asked}",
        f"/costs?days={asked}",
        f"/login?next={asked}&token={asked}",
    ):
        eyes.open(path)
    reference = _artifact(eyes, session)
    for way in ("text", "json", "table", "diff", "image", asked):
        eyes.open(
            f"/artifacts/view?session={session}&artifact={reference}&as={way}&find={asked}&at={asked}"
        )
    assert "onerror=alert(1)" in eyes.open(
        f"/artifacts/view?session={session}&artifact={reference}&as=text"
    )


PAGE = """<!doctype html><title>elsewhere</title><body><script>
const target = new URL(location.href).searchParams.get("target");
const wait = (one, good, bad) => new Promise((done) => {
  one.addEventListener(good, () => done("got in"));
  one.addEventListener(bad, () => done("refused"));
});
const element = (name, more) => document.body.appendChild(Object.assign(document.createElement(name), more));
const form = () => new URLSearchParams({ text: "evil", csrf: "guessed" });
const attempts = {
  read: () => fetch(`${target}/runs`, { credentials: "include" }).then((answer) => answer.text()),
  send: () => fetch(`${target}/playground`, { method: "POST", mode: "no-cors", credentials: "include", body: form() })
    .then((answer) => answer.type === "opaque" ? "refused" : answer.text()),
  ask: () => fetch(`${target}/playground`, { method: "POST", credentials: "include", headers: { "X-Ferrule-Csrf": "x" }, body: form() })
    .then((answer) => answer.text()),
  sign_in: () => fetch(`${target}/login?token=TOKEN`, { mode: "no-cors", credentials: "include" })
    .then((answer) => answer.type === "opaque" ? "refused" : "got in"),
  stream: () => wait(new EventSource(`${target}/stream`, { withCredentials: true }), "open", "error"),
  socket: () => wait(new WebSocket(`${target.replace("http", "ws")}/stream`), "open", "error"),
  script: () => wait(element("script", { src: `${target}/static/console.js` }), "load", "error"),
  image: () => wait(element("img", { src: `${target}/static/icon.svg` }), "load", "error"),
  frame: async () => {
    const frame = element("iframe", { src: `${target}/runs`, name: "inner" });
    await new Promise((done) => frame.addEventListener("load", done));
    return frame.contentDocument ? "got in" : "refused";
  },
  submit: async () => {
    const frame = element("iframe", { name: "sent" });
    const sent = element("form", { method: "post", action: `${target}/playground`, target: "sent" });
    sent.innerHTML = "<input name=text value=evil>";
    const loaded = new Promise((done) => frame.addEventListener("load", done));
    sent.submit();
    await loaded;
    return frame.contentDocument?.body?.textContent ? "got in" : "refused";
  },
};
window.tried = (async () => {
  const came = {};
  for (const [name, attempt] of Object.entries(attempts)) came[name] = await attempt().catch(() => "refused");
  return came;
})();
</script>""".replace("TOKEN", BOBS)


class Elsewhere(BaseHTTPRequestHandler):
    """Another server of this machine."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(PAGE.encode())

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.mark.proves("console.csrf")
@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_a_page_of_another_server_reads_nothing_and_changes_nothing(eyes: Eyes, name: str) -> None:
    interface, before = eyes.interface, eyes.interface.sessions()
    with ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as other:
        serving = threading.Thread(target=other.serve_forever)
        serving.start()
        page = eyes.page.context.new_page()
        page.set_default_timeout(60_000)
        try:
            page.goto(f"http://{name}:{other.server_port}/?target=http://{interface.host}")
            came = page.evaluate("window.tried")
        finally:
            page.close()
            other.shutdown()
            serving.join()
    assert set(came.values()) == {"refused"}, came
    assert interface.sessions() == before
    # Whoever is signed in is so still, and nobody else; a page of ours gets in.
    assert "operator" in eyes.open("/runs")
    assert eyes.page.evaluate("fetch('/runs').then((answer) => answer.ok)") is True


def _artifact(eyes: Eyes, session: str) -> str:
    eyes.open(f"/artifacts?session={session}")
    link = eyes.page.locator("table.list th a").first.get_attribute("href")
    assert link is not None
    return link.partition("artifact=")[2].partition("&")[0]
