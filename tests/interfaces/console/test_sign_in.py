"""Sign-ins that outlive a process: who signed in is known again after a restart with the same token,
and nobody else is.
"""

from __future__ import annotations

from typing import Any

import httpx
from hypothesis import given
from hypothesis import strategies as st

from ferrule.runtime.http.http_security import HttpGuard, Principal
from ferrule.runtime.http.sign_in import BrowserSignIn, make_cookie, read_cookie

OWNER, ADA = "owner-token-0123456789", "ada-token-0123456789"
PEOPLE = {OWNER: Principal("me", True), ADA: Principal("ada")}


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Says who is here."""
    visitor = scope["state"]["visitor"]
    body = f"{visitor.user} {visitor.operator} {visitor.csrf}".encode()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})


def server(people: dict[str, Principal], now: float = 1000.0, **more: Any) -> httpx.AsyncClient:
    """A browser before a server that began just now."""
    browsers = BrowserSignIn(["http://127.0.0.1:8000"], people=people, now=lambda: now, **more)
    http_guard = HttpGuard(app, token=people, hosts=["127.0.0.1:8000"], browsers=browsers)
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(app=http_guard), base_url="http://127.0.0.1:8000"
    )


async def signed_in(browser: httpx.AsyncClient, token: str) -> str:
    """What the page says to who signed in with this token."""
    assert (await browser.get("/login", params={"token": token})).status_code == 303
    return (await browser.get("/")).text


async def test_a_browser_goes_on_after_a_restart_with_the_same_tokens() -> None:
    async with server(PEOPLE) as before, server(PEOPLE, 2000.0) as after:
        said = await signed_in(before, ADA)
        after.cookies = before.cookies
        assert said.startswith("ada False ")
        assert (await after.get("/")).text == said, (
            "its open pages too: what they must repeat is the same"
        )
        csrf = said.split()[2]
        assert (await after.post("/", headers={"x-ferrule-csrf": csrf})).status_code == 200
        assert (await after.post("/", headers={"x-ferrule-csrf": "another"})).status_code == 403


async def test_another_token_ends_the_sign_ins_of_the_old_one() -> None:
    async with (
        server(PEOPLE) as before,
        server({OWNER: PEOPLE[OWNER], "ada-token-renewed-1": Principal("ada")}) as after,
    ):
        await signed_in(before, ADA)
        after.cookies = before.cookies
        assert (await after.get("/")).status_code == 401


async def test_a_sign_in_that_is_over_stays_over() -> None:
    async with server(PEOPLE) as browser, server(PEOPLE, 1000.0 + 13 * 3600) as later:
        said = await signed_in(browser, OWNER)
        later.cookies = httpx.Cookies(browser.cookies)
        assert (await later.get("/")).status_code == 401
        kept = httpx.Cookies(browser.cookies)
        assert (
            await browser.post("/logout", headers={"x-ferrule-csrf": said.split()[2]})
        ).status_code == 303
        browser.cookies = kept
        assert (await browser.get("/")).status_code == 401


async def test_without_known_tokens_a_sign_in_ends_with_the_process() -> None:
    async with (
        server(PEOPLE) as known_to,
        httpx.AsyncClient(
            transport=httpx.ASGITransport(
                app=HttpGuard(
                    app,
                    token=PEOPLE,
                    hosts=["127.0.0.1:8000"],
                    browsers=BrowserSignIn(["http://127.0.0.1:8000"]),
                )
            ),
            base_url="http://127.0.0.1:8000",
        ) as forgetful,
    ):
        await signed_in(known_to, OWNER)
        forgetful.cookies = known_to.cookies
        assert (await forgetful.get("/")).status_code == 401


@given(st.text(max_size=120), st.integers(0, 99), st.characters())
def test_no_other_cookie_is_anybodys(text: str, at: int, letter: str) -> None:
    cookie, visitor = make_cookie(OWNER, PEOPLE[OWNER], 5000)
    assert read_cookie(cookie, PEOPLE, 1000.0) == (visitor, 5000)
    assert read_cookie(cookie, PEOPLE, 5000.0) is None
    changed = cookie[: at % len(cookie)] + letter + cookie[at % len(cookie) + 1 :]
    assert changed == cookie or read_cookie(changed, PEOPLE, 1000.0) is None
    assert read_cookie(text, PEOPLE, 1000.0) is None
    assert OWNER not in cookie and read_cookie(cookie, {ADA: PEOPLE[ADA]}, 1000.0) is None
