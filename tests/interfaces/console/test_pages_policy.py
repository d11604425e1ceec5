"""The policy page shows rules, explains calls as the command line does, and tries other rules on
what was done.
"""

from __future__ import annotations

import re
from typing import Any

from ferrule import tool
from ferrule.console.html import format_ticks
from ferrule.models.scripted import calls, says


@tool(side_effect="write", risk="low")
def note(text: str) -> str:
    """Write something down."""
    return f"noted {text}"


@tool(side_effect="read", risk="safe")
def look(path: str) -> str:
    """Look."""
    return path


SCRIPT = [
    calls(("note", {"text": "<b>"}), ("look", {"path": "a"}), ("look", {"path": "b"})),
    says("ok"),
]


async def test_rules_stand_with_where_they_come_from_and_what_is_wrong_with_them(
    served: Any,
) -> None:
    async with (
        served(
            {"scripted:a": []}, tools=[note, look], allow=["look"], deny=["note", "nosuchtool"]
        ) as serving,
        serving.browser() as browser,
    ):
        page = (await browser.get("/policy")).text
    listed = re.findall(
        r'<td><span class="state \w+">(\w+)</span></td><th scope="row"><code>(.*?)</code>', page
    )
    assert listed == [("deny", "note"), ("deny", "nosuchtool"), ("allow", "look")]
    assert "your settings" in page and "there is no tool `nosuchtool`" in page


async def test_a_call_is_explained_step_by_step_and_not_made(served: Any) -> None:
    async with (
        served({"scripted:a": []}, tools=[note, look], deny=["note"]) as serving,
        serving.browser() as browser,
    ):
        assert "arg.text" in (await browser.get("/policy/fields?tool=note")).text
        page = (await browser.post("/policy/explain", data={"tool": "note", "arg.text": "x"})).text
        agent = serving.console.assembly.agent
        trace = agent.gate.explain_steps(agent.catalog.get("note"), {"text": "x"})
        assert serving.journal.sessions() == []
        wrong = await browser.post("/policy/explain", data={"tool": "look", "more": '{"nope": 1}'})
    steps = re.findall(r"<li>(.*?)</li>", page[page.index('class="steps"') :])
    assert steps[: len(trace)] == [format_ticks(step) for step in trace]
    assert 'The gate would decide <span class="state bad">deny</span>' in page
    assert wrong.status_code == 422 and "nope" in wrong.text


async def test_other_rules_are_tried_on_what_was_done_and_nothing_is_changed(served: Any) -> None:
    async with (
        served({"scripted:a": SCRIPT}, tools=[note, look], allow=["note"]) as serving,
        serving.browser() as browser,
        serving.browser("bob") as bob,
    ):
        await serving.console.assembly.agent.run("go")
        given = {"rules": "deny note\nask look", "keep": "1"}
        page = (await browser.post("/policy/what-if", data=given)).text
        others = (await bob.post("/policy/what-if", data=given)).text
        wrong = await browser.post("/policy/what-if", data={"rules": "allow note\nforbid it"})
        assert [rule.text for rule in serving.console.assembly.agent.gate.rules] == ["note"]
    tiles = dict(re.findall(r"<dt>([^<]+)</dt><dd>(\d+)</dd>", page))
    assert (tiles["ran, would be refused"], tiles["ran, would need approval"]) == ("1", "2")
    assert "&lt;b&gt;" in page and "deny note\nask look</textarea>" in page
    assert "0 calls compared" in others
    assert wrong.status_code == 422 and "line 2 begins with `forbid`" in wrong.text


async def test_what_was_kept_from_calls_is_a_picture_and_a_table(served: Any) -> None:
    async with (
        served({"scripted:a": SCRIPT}, tools=[note, look], deny=["look"]) as serving,
        serving.browser() as browser,
        serving.browser("bob") as bob,
    ):
        await serving.console.assembly.agent.run("go")
        page, others = (await browser.get("/policy")).text, (await bob.get("/policy")).text
    assert "a rule: 2" in page and '<rect class="pic-1"' in page and "by a rule" in page
    assert "a rule: 2" not in others and "No denied calls in the last" in others
