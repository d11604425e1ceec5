"""The tools page shows what there is and how it fared, and lets a person try a tool through the
gate.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

import httpx
import pytest

from ferrule import tool
from ferrule.console.html import format_ticks
from ferrule.console.invisible_marks import mark_invisible_exactly
from ferrule.models.scripted import calls, says
from ferrule.storage.audit.audit import audit_calls as audited

EVIL = "<script>alert(1)</script>"


@tool(side_effect="none", risk="safe")
def double(number: int, loud: bool = False) -> str:
    """Twice a <b>number</b>.

    Args:
        number: What to double.
        loud: Whether to shout.
    """
    return f"{2 * number}{'!' if loud else ''} {EVIL}"


@tool(side_effect="write", risk="high")
def note(text: str) -> str:
    """Write something down."""
    return f"noted {text}"


@tool(side_effect="none", risk="safe")
def large() -> str:
    """Say a lot."""
    return "all of it\n" * 20_000


async def tried(browser: httpx.AsyncClient, name: str, **fields: str) -> httpx.Response:
    """Send the form of a tool; the page that it leads to."""
    answer = await browser.post("/tools/try", data={"tool": name, **fields}, follow_redirects=True)
    assert answer.status_code == 200, answer.text
    return answer


async def settled(browser: httpx.AsyncClient, page: httpx.Response, word: str) -> str:
    """The page once it says this word."""
    async with asyncio.timeout(30):
        text = page.text
        while word not in text:
            await asyncio.sleep(0)
            text = (
                await browser.get(str(page.url), params={"part": "1", **dict(page.url.params)})
            ).text
    return text


async def test_the_catalog_shows_every_tool_with_its_numbers_and_escapes_what_it_says(
    served: Any,
) -> None:
    script = [
        calls(("double", {"number": 1}), ("double", {"number": "x"}), ("made_up", {})),
        says("ok"),
    ]
    async with (
        served({"scripted:a": script}, tools=[double, note]) as serving,
        serving.browser() as browser,
    ):
        await serving.console.assembly.agent.run("go")
        page = (await browser.get("/tools")).text
        assert "Twice a &lt;b&gt;number&lt;/b&gt;." in page and "<b>number" not in page
        row = next(part for part in page.split("<tr>") if "double" in part)
        assert re.search(
            r'data-label="Calls">2<.*data-label="Failed"><span class="hot">1<', row, re.S
        )
        assert "<code>made_up</code>" in page


@pytest.mark.parametrize(
    ("query", "left"),
    [
        ("effect=write", {"note"}),
        ("risk=safe", {"double", "large"}),
        ("words=DOWN+something", {"note"}),
        ("loading=deferred", set[str]()),
        ("namespace=none&source=python&effect=none", {"double", "large"}),
        ("failing=1", set[str]()),
    ],
)
async def test_the_catalog_is_filtered(served: Any, query: str, left: set[str]) -> None:
    async with (
        served({"scripted:a": []}, tools=[double, note, large]) as serving,
        serving.browser() as browser,
    ):
        page = (await browser.get(f"/tools?{query}")).text
    shown = set(re.findall(r"/tools/tool\?name=(\w+)", page))
    assert shown & {"double", "note", "large"} == left


async def test_a_tools_page_has_its_schema_its_rules_and_its_last_calls(served: Any) -> None:
    script = [calls(("note", {"text": "a"})), says("ok")]
    async with (
        served({"scripted:a": script}, tools=[note], deny=["note"]) as serving,
        serving.browser() as browser,
    ):
        await serving.console.assembly.agent.run("go")
        page = (await browser.get("/tools/tool", params={"name": "note"})).text
        assert (await browser.get("/tools/tool", params={"name": "nope"})).status_code == 404
    assert "&#34;properties&#34;" in page and "hidden from models by a deny rule" in page
    assert (
        "permission denied" in page
        and "by a rule" in page
        and "1, never retried automatically" in page
    )


async def test_a_tried_tool_runs_in_a_session_of_its_own_through_the_gate(served: Any) -> None:
    async with served({"scripted:a": []}, tools=[double]) as serving, serving.browser() as browser:
        page = await tried(browser, "double", **{"arg.number": "4", "arg.loud": "true"})
        text = await settled(browser, page, "success")
        (info,) = serving.journal.sessions()
        (call,) = audited(serving.journal.records(info.session))
        assert serving.console.open_sessions.find(info.session) is None
    assert "8! &lt;script&gt;" in text and "<script>alert" not in text
    assert "allowed by the gate" in text and "no program started" in text
    assert (call.tool, call.by, call.outcome) == ("double", "a person trying a tool", "success")
    assert call.arguments == '{"number":4,"loud":true}' and (info.user, info.runs) == ("owner", 0)


async def test_a_tried_tool_that_needs_a_yes_asks_in_the_browser_and_names_who_said_it(
    served: Any,
) -> None:
    async with served({"scripted:a": []}, tools=[note]) as serving, serving.browser() as browser:
        page = await tried(browser, "note", **{"arg.text": "milk"})
        text = await settled(browser, page, "Allow once")
        (info,) = serving.journal.sessions()
        assert serving.console.open_sessions.find(info.session) is not None
        asked = re.search(r'action="(/questions/\w+)"', text)
        digest = re.search(r'name="digest" value="(\w+)"', text)
        assert asked and digest
        await browser.post(asked[1], data={"digest": digest[1], "answer": "once "})
        text = await settled(browser, page, "noted milk")
    assert "allowed by owner" in text


async def test_a_tried_tool_that_is_denied_by_a_rule_does_not_run(served: Any) -> None:
    ran: list[str] = []

    @tool(side_effect="write", risk="low")
    def act(text: str) -> str:
        """Do it."""
        ran.append(text)
        return text

    async with (
        served({"scripted:a": []}, tools=[act], deny=["act"]) as serving,
        serving.browser() as browser,
    ):
        page = await tried(browser, "act", **{"arg.text": "x"})
        text = await settled(browser, page, "permission denied")
    assert ran == [] and "refused by the rule `act`" in text


async def test_what_cannot_be_read_in_the_form_is_said_and_kept_and_nothing_is_called(
    served: Any,
) -> None:
    async with served({"scripted:a": []}, tools=[double]) as serving, serving.browser() as browser:
        fields = {"tool": "double", "arg.number": "four <b>", "more": "[1]"}
        answer = await browser.post("/tools/try", data=fields)
        assert serving.journal.sessions() == []
    assert answer.status_code == 422
    assert "`number` must be a number" in answer.text and 'value="four &lt;b&gt;"' in answer.text
    assert "must be one JSON object" in answer.text


async def test_a_large_result_links_to_its_artifact(served: Any, tmp_path: Any) -> None:
    async with (
        served({"scripted:a": []}, tools=[large], artifacts=True) as serving,
        serving.browser() as browser,
    ):
        page = await tried(browser, "large")
        text = await settled(browser, page, "Open the whole result")
        link = re.search(r'href="(/artifacts/view[^"]+)"', text)
        assert link
        opened = await browser.get(link[1].replace("&amp;", "&") + "&from=19990")
    assert opened.status_code == 200 and "19990" in opened.text and "all of it" in opened.text


async def test_what_one_person_tried_is_not_there_for_another(served: Any) -> None:
    async with (
        served({"scripted:a": []}, tools=[double]) as serving,
        serving.browser("ada") as ada,
        serving.browser("bob") as bob,
        serving.browser() as owner,
    ):
        page = await tried(ada, "double", **{"arg.number": "4"})
        await settled(ada, page, "success")
        assert (await bob.get(str(page.url))).status_code == 404
        assert (await owner.get(str(page.url))).status_code == 200
        theirs = (await bob.get("/tools/tool?name=double")).text
        hers = (await ada.get("/tools/tool?name=double")).text
    assert "No calls yet" in theirs and "No calls yet" not in hers


async def test_numbers_of_a_long_journal_come_in_parts_and_the_page_asks_again(
    served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ferrule.console import statistics

    monkeypatch.setattr(statistics, "SECONDS", 0.0)
    script = [calls(("double", {"number": 1})), says("ok")]
    async with (
        served({"scripted:a": script}, tools=[double]) as serving,
        serving.browser() as browser,
    ):
        await serving.console.assembly.agent.run("go")
        page = (await browser.get("/tools")).text
    assert "Still reading the journal" in page and 'hx-trigger="load' in page


def test_words_in_backticks_are_code_and_unseen_characters_are_spelled_out() -> None:
    assert format_ticks("use `a<b`") == "use <code>a&lt;b</code>"
    assert format_ticks("an odd ` stays") == "an odd ` stays"
    shown = format_ticks("`a\u202eb`", mark_invisible_exactly)
    assert "\u202e" not in shown and "<code>a<span" in shown
