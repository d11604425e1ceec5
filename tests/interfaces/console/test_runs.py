"""Runs: the list of them and the page of one, as people with different rights see them, live and
after a restart.
"""

from __future__ import annotations

import asyncio
import base64
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
import pytest

from ferrule import ErrorType, ToolFailed, tool
from ferrule.console.html import format_duration
from ferrule.console.viewer import Viewer
from ferrule.core.events import (
    ModelAnswered,
    PersonAnswered,
    RunFinished,
    RunStarted,
    SessionOpened,
    Usage,
)
from ferrule.core.identity import Identity
from ferrule.core.limits import Limits
from ferrule.core.media import Media
from ferrule.engine.event_bus.events import ArgumentsPiece, Place, redact, seal
from ferrule.models.scripted import calls, says
from ferrule.permissions.redaction import Redactor
from ferrule.storage.journal.sqlite import SqliteJournal
from left_open import list_descriptors

OWNER = Viewer("owner", True)
BOB = Viewer("bob", False)
EVIL = (
    '<script>alert(1)</script><img src=x onerror=alert(1)> " onmouseover="x" '
    "[a](javascript:alert(1)) {{ 7*7 }}"
)
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
PART = {"hx-request": "true"}


def note(text: str) -> str:
    """Write a note."""
    return f"noted {text}"


NOTE = tool(note, risk="high", side_effect="write")


def echo(text: str) -> str:
    """Say it."""
    return text


ECHO = tool(echo, side_effect="none", risk="safe")


async def ran(serving: Any, viewer: Viewer, text: str) -> str:
    """A run of this person that is over; its session."""
    live = await serving.console.open_sessions.start(viewer, text)
    async with asyncio.timeout(10):
        await asyncio.wait([live.run_task])
    return live.id


async def shows(browser: httpx.AsyncClient, path: str, text: str) -> str:
    """The page, once it shows this."""
    async with asyncio.timeout(10):
        while text not in (page := (await browser.get(path)).text):
            await asyncio.sleep(0.01)
    return page


def known(page: str) -> dict[str, str]:
    """What a page says that it knows when it asks for news."""
    found = re.search(r'data-mark="([^"]+)" .*data-known="([^"]+)"', page)
    assert found is not None
    return {"mark": found[1], "state": found[2]}


def written(journal: Any, session: str, *events: Any, user: str = "owner") -> None:
    """What another process wrote."""
    with SqliteJournal(journal.path) as other:
        other.append(session, "r1", events, identity=Identity("local", user, session, "r1"))


async def test_people_see_their_own_runs_and_the_owner_sees_all(served: Any) -> None:
    async with served({"scripted:a": [says("x"), says("y")]}) as serving:
        mine, theirs = (
            await ran(serving, OWNER, "the owner's question"),
            await ran(serving, BOB, "what bob asks"),
        )
        async with serving.browser() as owner, serving.browser("bob") as bob:
            every, own = (await owner.get("/runs")).text, (await bob.get("/runs")).text
            assert ("owner&#39;s question" in every, "what bob asks" in every) == (True, True)
            assert ("owner&#39;s question" in own, "what bob asks" in own) == (False, True)
            assert (await bob.get(f"/runs/{mine}")).status_code == 404
            assert (await bob.get(f"/runs/{mine[:12]}")).status_code == 404
            assert (await bob.get(f"/runs/{mine}/timeline")).status_code == 404
            assert (await bob.post(f"/runs/{mine}/say", data={"text": "hi"})).status_code == 404
            assert (await bob.post(f"/runs/{mine}/fork", data={"runs": "0"})).status_code == 404
            assert (await owner.get(f"/runs/{theirs}")).status_code == 200


async def test_the_list_is_filtered_by_words_state_model_and_user(served: Any) -> None:
    async with served({"scripted:a": [says("x")]}) as serving, serving.browser() as browser:
        await ran(serving, OWNER, "Count the apples")
        written(
            serving.journal,
            "other",
            SessionOpened(model="m:big"),
            RunStarted("peel pears"),
            user="eve",
        )

        async def listed(**query: str) -> list[str]:
            page = (await browser.get("/runs", params=query)).text
            return sorted(re.findall(r'<a href="/runs/\w+">([^<]*)</a>', page))

        assert await listed() == ["Count the apples", "peel pears"]
        assert await listed(words="APPLES count") == ["Count the apples"]
        assert await listed(state="interrupted") == ["peel pears"]
        assert await listed(model="m:big") == ["peel pears"]
        assert await listed(user="owner") == ["Count the apples"]
        assert await listed(words="nothing of that") == []


async def test_a_closed_console_has_no_file_of_the_journal_open(
    served: Any, tmp_path: Path
) -> None:
    async with served({"scripted:a": [says("x")]}) as serving, serving.browser() as browser:
        await ran(serving, OWNER, "first")
        page = (await browser.get("/runs")).text
        mark = re.search(r"mark=([\w.]+)", page)
        assert mark is not None
        assert (await browser.get("/runs/list", params={"mark": mark[1]})).status_code == 204
        assert (await browser.get("/tools")).status_code == 200
    journal = str(tmp_path / "journal.db")
    assert not [name for name in list_descriptors().values() if name.startswith(journal)]


async def test_the_list_says_nothing_until_something_was_written_by_any_process(
    served: Any,
) -> None:
    async with served({"scripted:a": [says("x")]}) as serving, serving.browser() as browser:
        await ran(serving, OWNER, "first")
        page = (await browser.get("/runs")).text
        mark = re.search(r"mark=([\w.]+)", page)
        assert mark is not None
        again = await browser.get("/runs/list", params={"mark": mark[1]})
        assert (again.status_code, again.text) == (204, "")
        written(serving.journal, "other", SessionOpened(model="m"), RunStarted("from a terminal"))
        news = await browser.get("/runs/list", params={"mark": mark[1], "words": "terminal"})
        assert (
            news.status_code == 200 and "from a terminal" in news.text and "first" not in news.text
        )
        assert "words=terminal" in news.text, "the filter stays for the next time"


class Tags(HTMLParser):
    """What of a page is markup that only a text could have brought."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        links = [given.get(name) or "" for name in ("href", "src", "action", "hx-get", "hx-post")]
        if (
            tag in ("img", "u", "iframe", "object")
            or (tag == "script" and not (given.get("src") or "").startswith("/static/"))
            or any(name.startswith("on") or name == "style" for name in given)
            or any(link and not link.startswith(("/", "#")) for link in links)
        ):
            self.found.append(self.get_starttag_text() or tag)


def harmful(page: str) -> list[str]:
    tags = Tags()
    tags.feed(page)
    return tags.found


async def test_texts_of_models_tools_and_people_are_never_markup(served: Any) -> None:
    steps = [
        calls(("echo", {"text": EVIL}), ("no_such<u>", {"x": EVIL}), text=EVIL),
        says(EVIL, reasoning=EVIL),
    ]
    async with served({"scripted:a": steps}, tools=[ECHO]) as serving, serving.browser() as browser:
        session = await ran(serving, OWNER, EVIL)
        call = next(
            iter(serving.console.timelines.fetch(serving.journal.find(session)).timeline.cards)
        )
        for path in (
            f"/runs/{session}",
            f"/runs/{session}/timeline",
            "/runs",
            f"/runs/{session}/calls/{call}",
        ):
            page = (await browser.get(path)).text
            assert "alert(1)" in page
            assert harmful(page) == [], path
            assert "{{ 7*7 }}" in page or path == "/runs"


async def test_a_card_tells_arguments_result_time_decision_and_who_made_it(served: Any) -> None:
    steps = [calls(("note", {"text": "milk"}, "c1")), says("done")]
    async with served({"scripted:a": steps}, tools=[NOTE]) as serving, serving.browser() as browser:
        live = await serving.console.open_sessions.start(OWNER, "note milk")
        page = await shows(browser, f"/runs/{live.id}", "Allow <code>note</code> to run?")
        assert "risk high" in page and "&#34;text&#34;: &#34;milk&#34;" in page
        (asked,) = serving.console.open_sessions.list_questions(OWNER)
        offer = next(one for one in asked.request.offers if one.choice == "session")
        form = {"digest": asked.request.digest, "answer": f"session {offer.rule}", "note": ""}
        assert f'value="session {offer.rule}"' in page
        answer = await browser.post(f"/questions/{asked.id}", data=form, headers=PART)
        assert (answer.status_code, "note: allowed" in answer.text) == (200, True)
        page = await shows(browser, f"/runs/{live.id}", 'class="state done"')
        assert (
            "allowed for this session by owner" in page
            and "noted milk" in page
            and f"granted <code>{offer.rule}" in page
        )
        assert re.search(r"\d+ ms", page)


async def test_the_page_of_a_call_shows_what_caused_its_error(served: Any) -> None:
    @tool(side_effect="none")
    def fetch() -> str:
        """Fetch it."""
        try:
            raise ConnectionError("no route to <b>host</b>")
        except ConnectionError as error:
            raise ToolFailed(ErrorType.IO_ERROR, "nothing was fetched") from error

    steps = [calls(("fetch", {}, "c1")), says("pity")]
    async with (
        served({"scripted:a": steps}, tools=[fetch]) as serving,
        serving.browser() as browser,
    ):
        session = await ran(serving, OWNER, "fetch it")
        page = (await browser.get(f"/runs/{session}/calls/c1")).text
        assert "ConnectionError: no route to &lt;b&gt;host&lt;/b&gt;" in page


async def test_a_denied_call_does_not_run_and_the_page_says_why(served: Any) -> None:
    steps = [calls(("note", {"text": "milk"}, "c1")), says("pity")]
    async with served({"scripted:a": steps}, tools=[NOTE]) as serving, serving.browser() as browser:
        live = await serving.console.open_sessions.start(OWNER, "note milk")
        await shows(browser, f"/runs/{live.id}", "Allow <code>note</code> to run?")
        (asked,) = serving.console.open_sessions.list_questions(OWNER)
        form = {"digest": asked.request.digest, "answer": "deny", "note": "no more milk"}
        assert (await browser.post(f"/questions/{asked.id}", data=form)).headers[
            "location"
        ] == f"/runs/{live.id}"
        page = await shows(browser, f"/runs/{live.id}", "pity")
        assert "denied by owner" in page and "no more milk" in page and "noted milk" not in page
        stale = await browser.post(f"/questions/{asked.id}", data=form, headers=PART)
        assert (stale.status_code, "this question is no longer open" in stale.text) == (422, True)


async def test_the_question_shows_what_would_happen_line_by_line(served: Any) -> None:
    from ferrule.toolkits.files.tools import write_file

    steps = [calls(("write_file", {"path": "a.txt", "content": "one\nthree\n"}))]
    async with (
        served({"scripted:a": steps}, tools=[write_file]) as serving,
        serving.browser() as browser,
    ):
        (serving.workspace / "a.txt").write_text("one\ntwo\n")
        live = await serving.console.open_sessions.start(OWNER, "change it")
        page = await shows(browser, f"/runs/{live.id}", "What would happen")
        change = '<span class="cut">-two</span><span class="add">+three</span>'
        assert change in page
        (asked,) = serving.console.open_sessions.list_questions(OWNER)
        form = {"digest": asked.request.digest, "answer": "once"}
        await browser.post(f"/questions/{asked.id}", data=form, headers=PART)
        page = await shows(browser, f"/runs/{live.id}", "allowed once by owner")
        assert change in page, "the card keeps what was approved"


async def test_a_call_that_nobody_was_asked_about_shows_its_change_too(served: Any) -> None:
    steps = [calls(("note", {"text": "x", "path": "a", "old_text": "a\nb", "new_text": "a\nc"}))]
    async with served({"scripted:a": steps}, tools=[NOTE]) as serving, serving.browser() as browser:
        session = await ran(serving, OWNER, "change it")
        page = (await browser.get(f"/runs/{session}")).text
        assert '<span class="cut">-b</span><span class="add">+c</span>' in page


async def test_a_page_shows_the_call_that_is_being_written(served: Any) -> None:
    async with served({"scripted:a": [says("hi")]}) as serving, serving.browser() as browser:
        session = await ran(serving, OWNER, "go")
        info = serving.journal.find(session)
        timeline = serving.console.timelines.fetch(info).timeline
        event = timeline.place.event
        for number, piece in enumerate(
            (
                ArgumentsPiece(0, "note", "path", "<b>a.txt"),
                ArgumentsPiece(0, "note", "content", "x" * 5000),
                ArgumentsPiece(0, "note", "content", "the end"),
            ),
            1,
        ):
            kind, body = redact(piece, Redactor())
            place = Place(event, number)
            timeline.feed(seal(kind, body, identity=None, time=0.0, place=place))
        page = (await browser.get(f"/runs/{session}")).text
        assert 'data-live-call="0"' in page and "&lt;b&gt;a.txt" in page
        assert f">{'x' * 1993}the end</pre>" in page


async def test_a_message_is_copied_as_its_author_wrote_it(served: Any) -> None:
    said = "**bold** <u> [a](https://a.example)"
    async with served({"scripted:a": [says(said)]}) as serving, serving.browser() as browser:
        session = await ran(serving, OWNER, "go")
        page = (await browser.get(f"/runs/{session}")).text
        links = re.findall(r'data-copy href="([^"]+)"', page)
        assert [(await browser.get(link)).text for link in links] == ["go", said]
        assert (await browser.get(f"/runs/{session}/messages/2")).status_code == 404
        async with serving.browser("eve") as other:
            assert (await other.get(links[0])).status_code == 404


async def test_a_page_gets_what_changed_behind_its_mark_and_nothing_twice(served: Any) -> None:
    steps = [calls(("note", {"text": "x"}, "c1")), says("done")]
    async with served({"scripted:a": steps}, tools=[NOTE]) as serving, serving.browser() as browser:
        live = await serving.console.open_sessions.start(OWNER, "note x")
        await shows(browser, f"/runs/{live.id}", "Allow <code>note</code> to run?")
        path, query = (
            f"/runs/{live.id}/timeline",
            known((await browser.get(f"/runs/{live.id}")).text),
        )
        assert (await browser.get(path, params=query)).status_code == 204
        (asked,) = serving.console.open_sessions.list_questions(OWNER)
        serving.console.open_sessions.questions.answer(
            OWNER, asked.id, asked.request.digest, "once"
        )
        await asyncio.wait([live.run_task])
        news = (await browser.get(path, params=query)).text
        assert 'data-whole="no"' in news
        assert re.findall(r'id="\w+-e-(\d+)"', news) == ["1", "2", "3"], (
            "the card, the answer, the end"
        )


async def test_after_a_restart_a_page_that_was_open_is_given_everything_anew(
    served: Any, tmp_path: Any
) -> None:
    store = tmp_path / "kept.db"
    async with (
        served({"scripted:a": [says("hello")]}, journal=store) as serving,
        serving.browser() as browser,
    ):
        session = await ran(serving, OWNER, "hi")
        page = (await browser.get(f"/runs/{session}")).text
        query = known(page)
    async with served({"scripted:b": []}, journal=store) as serving, serving.browser() as browser:
        again = (await browser.get(f"/runs/{session}/timeline", params=query)).text
        assert 'data-whole="yes"' in again and "hello" in again and "hi" in again


async def test_a_run_of_another_process_is_followed_on_its_page(served: Any) -> None:
    async with served({"scripted:a": []}) as serving, serving.browser() as browser:
        written(serving.journal, "theirs", SessionOpened(model="m"), RunStarted("go"))
        page = (await browser.get("/runs/theirs")).text
        assert "Resume" in page
        written(serving.journal, "theirs", ModelAnswered("there"), RunFinished("done", "there"))
        news = (await browser.get("/runs/theirs/timeline", params=known(page))).text
        assert "there" in news and 'data-state="done"' in news


async def test_secrets_in_texts_are_not_on_the_page(served: Any) -> None:
    secret = "sk-proj-" + "a1B2c3D4" * 6
    async with (
        served({"scripted:a": [says(f"the key is {secret}")]}) as serving,
        serving.browser() as browser,
    ):
        session = await ran(serving, OWNER, f"my key is {secret}")
        page = (await browser.get(f"/runs/{session}")).text
        assert secret not in page.split("<main")[1].split('class="entries"')[1]


async def test_a_run_is_stopped_from_its_page_and_stays_stopped(served: Any) -> None:
    begun = asyncio.Event()

    async def hang() -> str:
        begun.set()
        await asyncio.Event().wait()
        return ""

    slow = tool(hang, description="Hang.", side_effect="execute", risk="safe")
    async with (
        served({"scripted:a": [calls(("hang", {}, "c1"))]}, tools=[slow]) as serving,
        serving.browser() as browser,
    ):
        live = await serving.console.open_sessions.start(OWNER, "hang")
        await begun.wait()
        page = (await browser.get(f"/runs/{live.id}")).text
        assert "Stop the run" in page and "Stop this call" in page
        told = await browser.post(f"/runs/{live.id}/say", data={"text": "hurry"}, headers=PART)
        assert (told.status_code, told.text.strip()) == (200, ""), "nothing to say is no message"
        assert (await browser.post(f"/runs/{live.id}/stop", headers=PART)).status_code == 200
        page = (await browser.get(f"/runs/{live.id}")).text
        assert 'data-state="cancelled"' in page and 'class="state cancelled"' in page
        again = await browser.post(f"/runs/{live.id}/stop", headers=PART)
        assert (again.status_code, "no run of this session is in progress" in again.text) == (
            422,
            True,
        )


async def test_the_menu_counts_the_questions_that_wait(served: Any) -> None:
    async with served({"scripted:a": [calls(("note", {"text": "x"}))]}, tools=[NOTE]) as serving:
        live = await serving.console.open_sessions.start(OWNER, "note x")
        async with serving.browser() as owner, serving.browser("bob") as bob:
            await shows(owner, "/waiting", 'data-waiting="1"')
            assert 'data-waiting="0"' in (await bob.get("/waiting")).text
            assert (await bob.get("/waiting", params={"shown": "0"})).status_code == 204
        await serving.console.open_sessions.stop_run(live.id)


async def test_a_run_is_tried_again_with_the_history_before_it(served: Any) -> None:
    async with (
        served({"scripted:a": [says("one"), says("two"), says("two again")]}) as serving,
        serving.browser() as browser,
        serving.browser("bob") as bob,
    ):
        name = await ran(serving, OWNER, "first")
        info = serving.console.find_session(OWNER, name)
        live = await serving.console.open_sessions.send_message(
            OWNER, info, ["second ", Media(PNG, name="dot.png")]
        )
        assert live.run_task is not None
        await live.run_task
        assert 'name="run" value="2"' in (await browser.get(f"/runs/{name}")).text
        assert (await bob.post(f"/runs/{name}/retry", data={"run": "2"})).status_code == 404
        assert (await browser.post(f"/runs/{name}/retry", data={"run": "3"})).status_code == 422
        led = await browser.post(f"/runs/{name}/retry", data={"run": "2"})
        retried = serving.console.open_sessions.find(led.headers["location"].rpartition("/")[2])
        assert retried is not None and retried.id != name and retried.run_task is not None
        await retried.run_task
        events = [record.event for record in serving.journal.records(retried.id)]
        sent = [event for event in events if isinstance(event, RunStarted)]
        assert sent[0].text == "first" and sent[1].text.startswith("second ")
        assert [medium.name for medium in sent[1].media] == ["dot.png"]
        answers = [event.text for event in events if isinstance(event, ModelAnswered)]
        assert answers == ["one", "two again"]


async def test_a_row_tells_how_long_a_session_took_and_what_it_used(served: Any) -> None:
    steps = [
        calls(("echo", {"text": "a"}), ("note", {"text": "b"}), usage=Usage(input=70, output=5)),
        says("done", usage=Usage(input=1_000, output=20)),
    ]
    async with (
        served({"scripted:a": steps}, tools=[ECHO, NOTE], deny=["note"]) as serving,
        serving.browser() as browser,
    ):
        name = await ran(serving, OWNER, "go")
        events = list(serving.journal.records(name))
        page = (await browser.get("/runs")).text
    (begun,) = [one.time for one in events if isinstance(one.event, RunStarted)]
    (ended,) = [one.time for one in events if isinstance(one.event, RunFinished)]
    cells = {
        label: re.sub(r"<[^>]+>", "", text).strip()
        for label, text in re.findall(r'data-label="([^"]+)">(.*?)</td>', page, re.DOTALL)
    }
    assert cells["Duration"] == (format_duration((ended - begun) / 1000) if ended > begun else "–")
    assert cells["Calls"] == "2, 1 refused"
    assert cells["Tokens"] == "1\u202f070 → 25"
    assert cells["Cost"] == "–"


async def test_the_list_asks_again_until_the_numbers_of_all_rows_are_read(
    served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ferrule.console.pages import runs

    async with served({"scripted:a": [says("x")]}) as serving, serving.browser() as browser:
        await ran(serving, OWNER, "go")
        with monkeypatch.context() as hurried:
            hurried.setattr(runs, "SECONDS", 0.0)
            page = (await browser.get("/runs")).text
        mark = re.search(r'mark=([^"]+)"', page)
        assert mark is not None and 'data-label="Calls">–<' in page
        later = await browser.get(f"/runs/list?mark={mark[1]}")
        assert 'data-label="Calls">0<' in later.text
        mark = re.search(r'mark=([^"]+)"', later.text)
        assert mark is not None
        assert (await browser.get(f"/runs/list?mark={mark[1]}")).status_code == 204


async def test_forking_leads_to_the_new_session(served: Any) -> None:
    async with served({"scripted:a": [says("one")]}) as serving, serving.browser() as browser:
        session = await ran(serving, OWNER, "first")
        led = await browser.post(f"/runs/{session}/fork", data={"runs": "1"})
        assert led.status_code == 303
        page = (await browser.get(led.headers["location"])).text
        assert "Fork of" in page and session[:12] in page and "one" in page
        assert (await browser.post(f"/runs/{session}/fork", data={"runs": "-1"})).status_code == 422
        assert (await browser.post(f"/runs/{session}/fork", data={"runs": "7"})).status_code == 422


async def test_a_long_session_begins_with_its_end_and_leads_back(served: Any) -> None:
    async with served({"scripted:a": []}) as serving, serving.browser() as browser:
        talk = [
            event
            for n in range(150)
            for event in (RunStarted(f"q{n}."), ModelAnswered(f"a{n}."), RunFinished("done"))
        ]
        written(serving.journal, "long", SessionOpened(model="m"), *talk)
        page = (await browser.get("/runs/long")).text
        assert "q149." in page and "q10." not in page and "/runs/long/earlier?before=250" in page
        before = (await browser.get("/runs/long/earlier", params={"before": "250"})).text
        assert "q82." in before and "q83." in before and "/runs/long/earlier?before=50" in before
        first = (await browser.get("/runs/long/earlier", params={"before": "50"})).text
        assert "q0." in first and "earlier?before" not in first


async def test_a_call_whose_outcome_nobody_knows_is_asked_about_when_it_is_taken_up(
    served: Any, tmp_path: Any
) -> None:
    from ferrule.core.calls import ToolCall
    from ferrule.core.events import CallEvaluated, CallStarted
    from ferrule.engine.dispatcher import Dispatcher

    steps = [says("that went well")]
    async with served({"scripted:a": steps}, tools=[NOTE]) as serving, serving.browser() as browser:
        agent = serving.console.assembly.agent
        call = ToolCall("c1", "note", '{"text":"x"}')
        evaluation: CallEvaluated = Dispatcher(agent.catalog, agent.gate).evaluate(call).evaluation
        opened = SessionOpened(
            model="scripted:a", workspace=str(serving.workspace), tools=("note",)
        )
        yes = PersonAnswered("c1", "once", evaluation.digest, by="owner")
        answered = ModelAnswered(calls=(call,), stop="calls")
        written(
            serving.journal,
            "left",
            opened,
            RunStarted("go"),
            answered,
            evaluation,
            yes,
            CallStarted("c1", evaluation.digest),
        )
        page = (await browser.get("/runs/left")).text
        assert 'class="state interrupted"' in page
        assert (await browser.post("/runs/left/resume", headers=PART)).status_code == 200
        page = await shows(browser, "/runs/left", "outcome is unknown")
        assert "Run it again" in page
        (asked,) = serving.console.open_sessions.list_questions(OWNER)
        form = {"digest": asked.request.digest, "answer": "once ", "note": ""}
        assert (
            await browser.post(f"/questions/{asked.id}", data=form, headers=PART)
        ).status_code == 200
        page = await shows(browser, "/runs/left", "that went well")
        assert "noted x" in page


async def test_a_run_at_its_limit_goes_on_by_one_button_in_its_page(served: Any) -> None:
    async with (
        served({"scripted:a": [says("done now")]}) as serving,
        serving.browser() as browser,
    ):
        written(
            serving.journal,
            "full",
            SessionOpened(model="scripted:a", workspace=str(serving.workspace)),
            RunStarted("count", limits=Limits(max_turns=1)),
            RunFinished("limit", code="limit_max_turns"),
        )
        page = (await browser.get("/runs/full")).text
        assert ">Go on</button>" in page
        form = re.search(r'name="text" value="(Go on[^"]*)"', page)
        assert form is not None
        sent = await browser.post("/runs/full/say", data={"text": form[1]}, headers=PART)
        assert sent.status_code == 200
        page = await shows(browser, "/runs/full", "done now")
        assert ">Go on</button>" not in page


async def test_what_a_sub_agent_asks_is_answered_on_the_page_of_the_run_it_works_for(
    served: Any,
) -> None:
    from ferrule.engine.delegation.sub_agent import SubAgent

    writer = SubAgent("writer", "Writes notes.", tools=["note"])
    steps = [
        calls(("delegate", {"task": "note milk", "agent": "writer"})),
        calls(("note", {"text": "milk"})),
        says("noted it"),
        says("all done"),
    ]
    async with (
        served({"scripted:a": steps}, tools=[NOTE], agents=[writer]) as serving,
        serving.browser() as browser,
    ):
        live = await serving.console.open_sessions.start(OWNER, "have milk noted")
        page = await shows(browser, f"/runs/{live.id}", "A sub-agent of this run asks")
        (asked,) = serving.console.open_sessions.list_questions(OWNER)
        below = asked.request.identity.session
        assert below != live.id and f'href="/runs/{below}"' in page
        theirs = (await browser.get(f"/runs/{below}")).text
        assert (
            'data-state="waiting"' in theirs
            and "Allow <code>note</code> to run?" in theirs
            and "Parent session" in theirs
        )
        form = {"digest": asked.request.digest, "answer": "once "}
        assert (
            await browser.post(f"/questions/{asked.id}", data=form, headers=PART)
        ).status_code == 200
        await shows(browser, f"/runs/{live.id}", "all done")
        assert "noted milk" in (await browser.get(f"/runs/{below}")).text


async def test_a_preview_that_is_too_long_for_a_page_says_what_is_left_out(served: Any) -> None:
    async def preview(*_: Any) -> str:
        return "\n".join(f"line {n}" for n in range(12_000))

    long = tool(note, name="long", risk="high", side_effect="write", preview=preview)
    async with (
        served({"scripted:a": [calls(("long", {"text": "x"}))]}, tools=[long]) as serving,
        serving.browser() as browser,
    ):
        live = await serving.console.open_sessions.start(OWNER, "write it")
        page = await shows(browser, f"/runs/{live.id}", "What would happen")
        left = re.search(r"(\d+)\u202f(\d+) more characters of it are not shown", page)
        assert left is not None and "line 9000" in page and "line 11999" not in page
        assert (
            int(left[1] + left[2]) == sum(len(f"line {n}\n") for n in range(12_000)) - 1 - 100_000
        )
        await serving.console.open_sessions.stop_run(live.id)


async def test_a_run_that_broke_says_so_and_can_be_taken_up(served: Any) -> None:
    def broken(_: Any) -> Any:
        raise RuntimeError("a wire with a defect")

    async with (
        served({"scripted:a": [broken, says("better now")]}) as serving,
        serving.browser() as browser,
    ):
        live = await serving.console.open_sessions.start(OWNER, "hello")
        page = await shows(browser, f"/runs/{live.id}", "the run failed: RuntimeError")
        assert "Resume" in page and "a wire with a defect" not in page
        assert any("a wire with a defect" in said for said in serving.notices)
        assert (await browser.post(f"/runs/{live.id}/resume", headers=PART)).status_code == 200
        page = await shows(browser, f"/runs/{live.id}", "better now")
        assert "the run failed" not in page
