"""Playground: runs that begin in the browser, with one model or two side by side."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from ferrule.console.pages import playground
from ferrule.console.viewer import Viewer
from ferrule.models.scripted import says
from ferrule.runtime.model_discovery import DiscoveredModel

OWNER = Viewer("owner", True)
PART = {"hx-request": "true"}


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What providers of this machine would say: nobody is asked."""

    async def discovered(_: object) -> list[DiscoveredModel]:
        return [
            DiscoveredModel("scripted:b", True),
            DiscoveredModel("ollama:", False, "nothing there"),
            DiscoveredModel("openai:MODEL", True),
        ]

    monkeypatch.setattr(playground, "discover_models", discovered)
    yield


async def shows(browser: httpx.AsyncClient, path: str, *texts: str) -> str:
    """The page, once it shows these."""
    async with asyncio.timeout(10):
        while True:
            page = (await browser.get(path)).text
            if all(text in page for text in texts):
                return page
            await asyncio.sleep(0.01)


async def test_a_message_begins_a_run_with_the_servers_model(served: Any) -> None:
    async with (
        served({"scripted:a": [says("good morning")]}) as serving,
        serving.browser() as browser,
    ):
        form = (await browser.get("/playground")).text
        assert "<option selected>scripted:a</option>" in form
        assert form.count("<option>scripted:b</option>") == 2
        led = await browser.post(
            "/playground",
            data={"text": "hello", "model": "scripted:a", "other": "", "mode": "default"},
        )
        assert led.status_code == 303
        page = await shows(browser, led.headers["location"], "good morning")
        assert "hello" in page and page.count('<section class="run"') == 1
        (info,) = serving.console.list_sessions(OWNER)
        assert (info.model, info.user) == ("scripted:a", "owner")


async def test_a_model_that_is_named_is_used_instead_of_the_chosen_one(served: Any) -> None:
    async with (
        served({"scripted:a": [], "scripted:c": [says("from c")]}) as serving,
        serving.browser() as browser,
    ):
        led = await browser.post(
            "/playground", data={"text": "hi", "model": "scripted:a", "named": "scripted:c"}
        )
        await shows(browser, led.headers["location"], "from c")


async def test_two_models_answer_the_same_message_side_by_side(served: Any) -> None:
    scripts = {
        "scripted:a": [says("from a"), says("again a")],
        "scripted:b": [says("from b"), says("again b")],
    }
    async with served(scripts) as serving, serving.browser() as browser:
        led = await browser.post(
            "/playground", data={"text": "hello", "model": "scripted:a", "other": "scripted:b"}
        )
        path = led.headers["location"]
        page = await shows(browser, path, "from a", "from b")
        assert page.count('<section class="run"') == 2 and "lane-name" in page
        a, b = re.findall(r'name="[ab]" value="(\w+)"', page)
        sent = await browser.post(
            "/playground/say", data={"a": a, "b": b, "text": "and now?"}, headers=PART
        )
        assert sent.status_code == 200
        await shows(browser, path, "again a", "again b")
        assert sorted(info.model for info in serving.console.list_sessions(OWNER)) == [
            "scripted:a",
            "scripted:b",
        ]
        assert [info.runs for info in serving.console.list_sessions(OWNER)] == [2, 2]


async def test_ids_on_a_page_with_two_runs_are_unique(served: Any) -> None:
    scripts = {"scripted:a": [says("from a")], "scripted:b": [says("from b")]}
    async with served(scripts) as serving, serving.browser() as browser:
        led = await browser.post(
            "/playground", data={"text": "hi", "model": "scripted:a", "other": "scripted:b"}
        )
        page = await shows(browser, led.headers["location"], "from a", "from b")
        ids = re.findall(r'\sid="([^"]+)"', page)
        assert len(ids) == len(set(ids))


async def test_a_mode_is_the_operators_to_choose(served: Any) -> None:
    async with (
        served({"scripted:a": [says("x"), says("y")]}) as serving,
        serving.browser() as owner,
        serving.browser("bob") as bob,
    ):
        led = await owner.post("/playground", data={"text": "hi", "mode": "plan"})
        await shows(owner, led.headers["location"], 'class="state done"')
        (info,) = serving.console.list_sessions(OWNER)
        assert next(iter(serving.journal.records(info.session))).event.mode == "plan"
        assert 'name="mode"' not in (await bob.get("/playground")).text
        for mode in ("bypassPermissions", "auto", "no-such-mode"):
            refused = await bob.post("/playground", data={"text": "hi", "mode": mode}, headers=PART)
            assert refused.status_code == 422
        led = await bob.post("/playground", data={"text": "hi"})
        await shows(bob, led.headers["location"], 'class="state done"')


async def test_others_choose_among_the_servers_models_only(served: Any) -> None:
    async with served({"scripted:a": []}) as serving, serving.browser("bob") as bob:
        form = (await bob.get("/playground")).text
        assert (
            re.findall(r"<option(?: selected)?>([^<]+)</option>", form)
            == ["scripted:a", "scripted:b"] * 2
        )
        refused = await bob.post(
            "/playground", data={"text": "hi", "model": "scripted:/etc/passwd"}, headers=PART
        )
        assert refused.status_code == 422 and "is not a model of this server" in refused.text
        assert serving.console.list_sessions(OWNER) == []


async def test_a_session_of_somebody_else_is_not_in_ones_playground(served: Any) -> None:
    async with (
        served({"scripted:a": [says("secret")]}) as serving,
        serving.browser() as owner,
        serving.browser("bob") as bob,
    ):
        led = await owner.post("/playground", data={"text": "hi"})
        await shows(owner, led.headers["location"], "secret")
        assert (await bob.get(led.headers["location"])).status_code == 404
        (info,) = serving.console.list_sessions(OWNER)
        refused = await bob.post("/playground/say", data={"a": info.session, "text": "hi"})
        assert refused.status_code == 404


async def test_a_message_without_words_begins_nothing(served: Any) -> None:
    async with served({"scripted:a": []}) as serving, serving.browser() as browser:
        refused = await browser.post("/playground", data={"text": "  \n "}, headers=PART)
        assert refused.status_code == 422 and "the message is empty" in refused.text
        assert serving.console.list_sessions(OWNER) == []
