"""Attacks on the console: by pages of others with a person's cookie, at its login, and for
artifacts of somebody else.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from servers import (
    BOBS,
    TOKEN,
    Answer,
    Interface,
    Sent,
    all_interfaces,
    exchanged,
    got,
    posted,
    running,
    spelled,
    wait_for_run,
)

if importlib.util.find_spec("jinja2") is None:
    pytest.skip("what `serve console` needs is not installed here", allow_module_level=True)


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Interface]:
    only = [interface for interface in all_interfaces() if interface.name == "console"]
    with running(only, tmp_path_factory.mktemp) as interfaces:
        yield interfaces["console"]


def signed_in(interface: Interface, token: str = BOBS) -> tuple[str, str]:
    """A cookie and the token that pages send back."""
    form = posted(
        "/login",
        urlencode({"token": token}).encode(),
        content_type="application/x-www-form-urlencoded",
    )
    answer = exchanged(
        interface, spelled(interface, form, authorization=None, origin=f"http://{interface.host}")
    )
    assert answer is not None and answer.status == 303
    cookie = answer.headers["set-cookie"].partition(";")[0]
    page = exchanged(
        interface,
        spelled(interface, got("/runs"), authorization=None, cookie=cookie, connection="close"),
    )
    assert page is not None and page.status == 200
    found = re.search(r'name="csrf" content="([^"]+)"', page.body)
    assert found is not None
    return cookie, found[1]


@pytest.mark.proves("console.csrf")
def test_a_cookie_alone_changes_nothing(console: Interface) -> None:
    cookie, csrf = signed_in(console)
    _, others = signed_in(console)
    before = console.sessions()
    mine: dict[str, Any] = {"authorization": None, "cookie": cookie, "connection": "close"}
    form = console.deed()
    with_field = {**form, "body": b"text=go&csrf=" + csrf.encode()}
    in_address = {**form, "path": f"{form['path']}?csrf={csrf}"}
    forged: list[tuple[Sent, dict[str, Any]]] = [
        (form, {}),
        (form, {"origin": f"http://{console.host}"}),
        (form, {"x_ferrule_csrf": "guessed"}),
        (form, {"x_ferrule_csrf": ""}),
        (form, {"x_ferrule_csrf": others}),
        (form, {"x_ferrule_csrf": [csrf, csrf]}),
        (in_address, {}),
        (with_field, {"content_type": "text/plain"}),
        (with_field, {"content_type": "multipart/form-data; boundary=x"}),
        ({**form, "body": b"text=go&csrf=x&csrf=" + csrf.encode()}, {}),
        (form, {"x_ferrule_csrf": csrf, "origin": "https://evil.example"}),
        (form, {"x_ferrule_csrf": csrf, "sec_fetch_site": "same-site"}),
        (form, {"x_ferrule_csrf": csrf, "cookie": f"{cookie}; {cookie}"}),
    ]
    for sent, more in forged:
        answer = exchanged(console, spelled(console, sent, **{**mine, **more}))
        assert answer is not None and answer.status in (401, 403), more
    assert console.sessions() == before
    for sent, more in [
        (form, {"x_ferrule_csrf": csrf}),
        (with_field, {"origin": f"http://{console.host}"}),
    ]:
        done = exchanged(console, spelled(console, sent, **mine, **more))
        assert done is not None and done.status == 303
    assert console.sessions() == before + 2


def test_signing_in_gives_a_cookie_that_is_not_the_token_and_leads_only_to_our_pages(
    console: Interface,
) -> None:
    for wanted, led in [
        ("/runs/x?a=b", "/runs/x?a=b"),
        ("//evil.example", "/"),
        ("https://evil.example", "/"),
        ("/\\evil.example", "/"),
        ("/\t/evil.example", "/"),
        ("javascript:alert(1)", "/"),
        ("/login?token=x", "/"),
        ("/x\r\nset-cookie: a=b", "/"),
        ("", "/"),
    ]:
        query = urlencode({"token": BOBS, "next": wanted})
        answer = exchanged(console, spelled(console, got(f"/login?{query}"), authorization=None))
        assert answer is not None and (answer.status, answer.headers["location"]) == (303, led)
        cookie = answer.headers["set-cookie"]
        assert (
            cookie.endswith("; Path=/; HttpOnly; SameSite=Strict")
            and BOBS not in cookie
            and "a=b" not in cookie
        )
        assert BOBS not in answer.body + answer.headers["location"]


def test_nobody_is_signed_in_by_another_site_or_with_a_wrong_token(console: Interface) -> None:
    for change in (
        {"sec_fetch_site": "cross-site"},
        {"origin": "https://evil.example"},
        {"host": "evil.example"},
    ):
        answer = exchanged(
            console, spelled(console, got(f"/login?token={BOBS}"), authorization=None, **change)
        )
        assert (
            answer is not None
            and answer.status in (403, 421)
            and "set-cookie" not in answer.headers
        )
    for given in ("wrong", "", "<script>alert(1)</script>", TOKEN[:-1], "é" * 20):
        answer = exchanged(
            console,
            spelled(
                console, got(f"/login?token={quote(given)}&next=%22%3E%3Cb%3E"), authorization=None
            ),
        )
        assert (
            answer is not None
            and answer.status in (200, 403)
            and "set-cookie" not in answer.headers
        )
        assert "<script>alert" not in answer.body and '"><b>' not in answer.body


def test_signing_out_ends_the_cookie_on_the_server_too(console: Interface) -> None:
    cookie, csrf = signed_in(console)
    mine: dict[str, Any] = {"authorization": None, "cookie": cookie, "connection": "close"}
    out = posted("/logout", b"")
    for change, status in (({}, 403), ({"x_ferrule_csrf": csrf}, 303)):
        answer = exchanged(console, spelled(console, out, **mine, **change))
        assert answer is not None and answer.status == status
    again = exchanged(console, spelled(console, got("/runs"), **mine, accept="text/html"))
    assert again is not None and again.headers["location"] == "/login?next=%2Fruns"


@pytest.fixture(scope="module")
def artifact(console: Interface) -> tuple[str, str]:
    """A session of the owner's, and the reference of a large result in it."""
    interface = console
    begun = exchanged(interface, spelled(interface, interface.deed(), connection="close"))
    assert begun is not None
    session = wait_for_run(interface, begun)
    listed = exchanged(
        interface, spelled(interface, got(f"/artifacts?session={session}"), connection="close")
    )
    assert listed is not None
    found = re.search(r"artifact=([^&\"]+)", listed.body)
    assert found is not None
    return session, found[1]


def test_artifacts_are_had_by_those_whose_they_are_and_by_no_trick(
    console: Interface, artifact: tuple[str, str]
) -> None:
    session, reference = artifact

    def asked(where: str, session: str, reference: str, token: str = TOKEN) -> Answer:
        query = urlencode({"session": session, "artifact": reference})
        sent = spelled(
            console,
            got(f"/artifacts/{where}?{query}"),
            authorization=f"Bearer {token}",
            connection="close",
        )
        answer = exchanged(console, sent)
        assert answer is not None
        return answer

    assert asked("view", session, reference).status == 200
    assert "attachment" in asked("file", session, reference).headers["content-disposition"]
    digest = reference.rpartition(":")[2]
    tricks = [
        "../../../../../../etc/passwd",
        f"../{digest}",
        f"{digest}/../{digest}",
        "..",
        ".",
        "/",
        "%2e%2e%2f",
        f"{reference}\0",
        f"{reference}/",
        "*",
        "sha256:" + "0" * 64,
        "artifact://" + "0" * 64,
        digest[:8],
        "<script>alert(1)</script>",
        "a" * 5000,
        f"file://{console.folder}/token",
    ]
    for where in ("view", "image", "file"):
        for trick in tricks:
            answer = asked(where, session, trick)
            assert answer.status in (400, 404, 422), (where, trick)
            assert "root:x:" not in answer.body and "<script>alert" not in answer.body
        for whose in ("", "../../..", f"{session}/..", "%", "x" * 3000):
            assert asked(where, whose, reference).status in (400, 404, 422)
        assert asked(where, session, reference, BOBS).status == 404
