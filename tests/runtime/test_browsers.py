"""Who is signed in: how long, how many, and what the cookie says of itself."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from ferrule.runtime.http import sign_in
from ferrule.runtime.http.http_security import HttpGuard, Principal
from ferrule.runtime.http.sign_in import BrowserSignIn

ADAS, BOBS = "the-token-of-ada-herself", "the-token-of-bob-himself"
HERE = "http://127.0.0.1:8000"


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


async def _who(scope: Any, receive: Any, send: Any) -> None:
    """Answers with who asks."""
    visitor = scope["state"]["visitor"]
    said = None if visitor is None else [visitor.user, visitor.operator, bool(visitor.csrf)]
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": json.dumps(said).encode()})


def http_guard(**more: Any) -> HttpGuard:
    people = {ADAS: Principal("ada", operator=True), BOBS: Principal("bob")}
    signing = BrowserSignIn([HERE, "https://ferrule.example"], **more)
    hosts = ["127.0.0.1:8000", "127.0.0.1:8001", "ferrule.example"]
    return HttpGuard(
        _who, token=people, hosts=hosts, open_paths=["/open", "/static/"], browsers=signing
    )


def browser(at: HttpGuard, base: str = HERE) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=at), base_url=base)


async def test_each_is_who_their_token_says_by_cookie_and_by_header() -> None:
    at = http_guard()
    for token, user, operator in ((ADAS, "ada", True), (BOBS, "bob", False)):
        async with browser(at) as one:
            assert (await one.get("/")).status_code == 401
            await one.post("/login", data={"token": token}, headers={"origin": HERE})
            assert (await one.get("/")).json() == [user, operator, True]
        async with browser(at) as program:
            got = await program.post("/", headers={"authorization": f"Bearer {token}"})
            assert got.json() == [user, operator, False]


async def test_a_wrong_token_is_not_made_good_by_a_cookie() -> None:
    async with browser(http_guard()) as one:
        await one.get("/login", params={"token": ADAS})
        assert (await one.get("/", headers={"authorization": "Bearer wrong"})).status_code == 401


async def test_a_sign_in_ends_with_its_time_with_the_process_and_with_another_sign_in() -> None:
    clock = Clock()
    at = http_guard(now=clock)
    async with browser(at) as one:
        await one.get("/login", params={"token": ADAS})
        old = dict(one.cookies)
        clock.now = sign_in.VISIT_SECONDS
        assert (await one.get("/")).status_code == 200
        clock.now += 1
        assert (await one.get("/")).status_code == 401
        await one.get("/login", params={"token": ADAS})
        between = dict(one.cookies)
        assert between != old and (await one.get("/")).status_code == 200
        await one.get("/login", params={"token": BOBS})
        assert (await one.get("/")).json()[0] == "bob"
    for stale, where in ((between, at), (old, at), (between, http_guard())):
        async with browser(where) as other:
            other.cookies.update(stale)
            assert (await other.get("/")).status_code == 401


async def test_sign_ins_are_bounded_and_the_oldest_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sign_in, "MAX_VISITS", 2)
    at = http_guard()
    all_of_them = [browser(at) for _ in range(3)]
    for one in all_of_them:
        await one.get("/login", params={"token": ADAS})
    assert [(await one.get("/")).status_code for one in all_of_them] == [401, 200, 200]
    for one in all_of_them:
        await one.aclose()


async def test_the_cookie_is_one_of_its_server_and_goes_over_tls_where_there_is_tls() -> None:
    for base, name, flags, secure in (
        (HERE, "ferrule-8000", "; Path=/; HttpOnly; SameSite=Strict", False),
        ("http://127.0.0.1:8001", "ferrule-8001", "; Path=/; HttpOnly; SameSite=Strict", False),
        ("https://ferrule.example", "ferrule", "; Path=/; HttpOnly; SameSite=Strict; Secure", True),
    ):
        async with browser(http_guard(secure=secure), base) as one:
            cookie = (await one.get("/login", params={"token": ADAS})).headers["set-cookie"]
        assert cookie.startswith(f"{name}=") and cookie.endswith(flags)


async def test_people_are_shown_the_way_in_and_programs_and_scripts_are_told_no() -> None:
    async with browser(http_guard()) as one:
        seen = await one.get("/runs/a b?x=1&y=2", headers={"accept": "text/html"})
        assert (seen.status_code, seen.headers["location"]) == (
            303,
            "/login?next=%2Fruns%2Fa%2520b%3Fx%3D1%26y%3D2",
        )
        for headers in (
            {"accept": "text/html", "hx-request": "true"},
            {"accept": "text/event-stream"},
            {},
        ):
            assert (await one.get("/runs", headers=headers)).status_code == 401
        assert (await one.post("/runs", headers={"accept": "text/html"})).status_code == 401


async def test_what_is_open_to_read_is_that_and_nothing_else() -> None:
    async with browser(http_guard()) as one:
        for path in ("/open", "/static/x.css", "/static/deep/x.css"):
            assert (await one.get(path)).json() is None
            assert (await one.head(path)).status_code == 200
            assert (await one.post(path)).status_code == 401
        for path in ("/open/x", "/static", "/staticx", "/static/%2e%2e/runs"):
            assert (await one.get(path)).status_code == 401
