"""Events, audit and costs: each person's own, escaped, as the journal has it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from ferrule import tool
from ferrule.core.events import Usage
from ferrule.models.scripted import calls, says
from ferrule.storage.audit.export import read_export

EVIL = "<script>alert(1)</script>"
SECRET = "sk-" + "a1B2" * 12


@tool(side_effect="none", risk="safe")
def look(path: str) -> str:
    """Look."""
    return f"{path} {EVIL}"


def script() -> list[Any]:
    return [
        calls(("look", {"path": SECRET}), usage=Usage(1000, 10, 600)),
        says(EVIL, usage=Usage(2000, 20, 1500)),
    ]


# ---- events


async def test_recorded_events_are_shown_in_pages_behind_a_cursor_and_without_secrets(
    served: Any,
) -> None:
    async with (
        served({"scripted:a": script()}, tools=[look]) as serving,
        serving.browser() as browser,
    ):
        session = (await serving.console.assembly.agent.run("go")).session
        page = (await browser.get("/events", params={"session": session})).text
        behind = (await browser.get("/events", params={"session": session, "after": 3})).text
        some = (await browser.get("/events", params={"session": session, "group": "models"})).text
    assert EVIL not in page and "&lt;script&gt;" in page and SECRET not in page
    numbers = [int(found) for found in re.findall(r'<tr id="e(\d+)"', page)]
    assert numbers == list(range(1, len(numbers) + 1)) and len(numbers) > 5
    assert [int(found) for found in re.findall(r'<tr id="e(\d+)"', behind)] == numbers[3:]
    assert set(re.findall(r"<td><code>([\w.]+)</code>", some)) == {"model.answered"}
    assert f"session={session}" in page[page.index("data-stream") :] and "kinds=model" in some


@pytest.mark.parametrize("path", ["/events", "/audit", "/audit/call", "/audit/export"])
async def test_a_session_of_somebody_else_is_on_no_page(served: Any, path: str) -> None:
    async with (
        served({"scripted:a": script()}, tools=[look]) as serving,
        serving.browser("bob") as bob,
    ):
        session = (await serving.console.assembly.agent.run("go")).session
        assert (await bob.get(path, params={"session": session, "call": "x"})).status_code == 404
        assert session not in (await bob.get(path if path != "/audit/call" else "/audit")).text


# ---- audit


async def test_a_changed_event_is_found_and_named(served: Any) -> None:
    async with (
        served({"scripted:a": script()}, tools=[look]) as serving,
        serving.browser() as browser,
    ):
        session = (await serving.console.assembly.agent.run("go")).session
        good = (await browser.post("/audit/verify", data={"session": ""})).text
        db = serving.journal._db
        db.execute(
            "UPDATE records SET body = replace(body, 'look', 'hook') WHERE id & 4294967295 = 4"
        )
        bad = (await browser.post("/audit/verify", data={"session": session})).text
        everything = (await browser.post("/audit/verify", data={"session": ""})).text
        assert (await browser.get("/audit/export", params={"session": session})).status_code == 422
    # What nobody has signed could have been computed again.
    assert "No change found, as far as that can be told without checkpoints" in good
    assert "Verified" not in good
    for page in (bad, everything):
        assert "1 problem found" in page and re.search(r'data-label="Event">4<', page)


async def test_a_person_verifies_their_own_sessions_only(served: Any) -> None:
    async with (
        served({"scripted:a": script()}, tools=[look]) as serving,
        serving.browser("bob") as bob,
    ):
        session = (await serving.console.assembly.agent.run("go")).session
        page = (await bob.post("/audit/verify", data={"session": ""})).text
        assert (await bob.post("/audit/verify", data={"session": session})).status_code == 404
    assert "0 sessions, 0 events" in page and session not in page


async def test_a_call_is_explained_with_who_let_it_pass(served: Any) -> None:
    async with (
        served({"scripted:a": script()}, tools=[look]) as serving,
        serving.browser() as browser,
    ):
        session = (await serving.console.assembly.agent.run("go")).session
        page = (await browser.get("/audit", params={"session": session})).text
        link = re.search(r'href="(/audit/call\?[^"]+)"', page)
        assert link and "success" in page
        call = (await browser.get(link[1].replace("&amp;", "&"))).text
        assert (
            await browser.get("/audit/call", params={"session": session, "call": "no"})
        ).status_code == 404
    assert "allowed by the gate" in call and "sha256" in call


async def test_the_export_verifies_and_holds_no_secret(served: Any) -> None:
    async with (
        served({"scripted:a": script()}, tools=[look]) as serving,
        serving.browser() as browser,
    ):
        await serving.console.assembly.agent.run("go")
        answer = await browser.get("/audit/export")
    assert answer.headers["content-disposition"].startswith("attachment")
    records = list(read_export(answer.text.splitlines(keepends=True)))
    assert [record["type"] for record in records[1:]] == ["session", "call", "end"]
    assert SECRET not in answer.text and json.loads(answer.text.splitlines()[0])["redacted"] is True


# ---- costs


async def test_tokens_and_money_stand_by_day_model_and_session(
    served: Any, own_folders: Any
) -> None:
    prices = own_folders / "config"
    prices.mkdir(parents=True, exist_ok=True)
    (prices / "prices.yaml").write_text("scripted:a: {input: 1000, output: 1000, cached: 100}\n")
    async with (
        served({"scripted:a": script()}, tools=[look]) as serving,
        serving.browser() as browser,
        serving.browser("bob") as bob,
    ):
        session = (await serving.console.assembly.agent.run("go")).session
        page, others = (await browser.get("/costs?days=7")).text, (await bob.get("/costs")).text
    tiles = dict(re.findall(r"<dt>([^<]+)</dt><dd>([^<]+)</dd>", page))
    assert (tiles["Input tokens"], tiles["Cached input tokens"]) == ("3\u202f000", "2\u202f100")
    # 900 tokens read anew and 30 written at a tenth of a cent, 2,100 at a hundredth.
    assert tiles["Cost"] == "$1.14" and "scripted:a: $1.14" in page
    assert session[:20] in page and "cached input: 2.1k" in page
    assert "No model requests" in others and session[:12] not in others


async def test_what_has_no_price_is_said_and_not_counted_as_free(served: Any) -> None:
    async with (
        served({"scripted:a": script()}, tools=[look]) as serving,
        serving.browser() as browser,
    ):
        await serving.console.assembly.agent.run("go")
        page = (await browser.get("/costs")).text
    assert (
        "no price known" in page and "without a known price" in page and "Money by day" not in page
    )
