"""The tool `skill`: what the model gets, whose words it says these are, and what rules decide."""

from __future__ import annotations

from typing import Any

import pytest

from ferrule.core.calls import ErrorType
from ferrule.core.events import SessionOpened, ToolAnswered
from ferrule.engine.agent import Agent
from ferrule.engine.agent_options import Storage
from ferrule.models.scripted import Scripted, calls, says
from ferrule.runtime.assemble import assemble
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.storage.trust import TrustStore


async def test_a_model_reads_a_skill_and_goes_on(place: Any) -> None:
    place.skill(".agents/skills", "release", body="1. Look at the tags.")
    loaded = place.load()
    model = Scripted([calls(("skill", {"name": "release"})), says("Done.")])
    journal = SqliteJournal(":memory:")
    agent = Agent(
        model,
        loaded.tools,
        instructions=loaded.catalogue_text,
        workspace=place.workspace,
        storage=Storage(journal=journal),
    )
    session = agent.session()
    assert (await session.run("Make a release.")).text == "Done."
    opened, *later = [record.event for record in journal.records(session.id)]
    assert isinstance(opened, SessionOpened) and '- release: "Does things."' in opened.system
    (answered,) = [event for event in later if isinstance(event, ToolAnswered)]
    assert "1. Look at the tags." in answered.result.data


async def test_the_body_is_framed_as_the_words_of_who_answers_for_it(place: Any) -> None:
    place.skill(".agents/skills", "a", body="Of the authors.")
    place.skill(".ferrule/skills", "b", body="Trusted.")
    place.skill("skills", "c", body="Mine.", below=place.own)
    TrustStore().trust(place.workspace)
    session = place.session()
    data = (await session.call("skill", name="a")).data
    assert '<skill name="a" by="the repository">\nOf the authors.\n</skill>' in data
    assert "not the person" in data and "`.agents/skills/a`" in data
    data = (await session.call("skill", name="b")).data
    assert data == '<skill name="b" by="the repository, trusted by the person">\nTrusted.\n</skill>'
    data = (await session.call("skill", name="c")).data
    assert data == '<skill name="c" by="the person">\nMine.\n</skill>'


async def test_what_a_skill_needs_is_passed_on(place: Any) -> None:
    place.skill("skills", "c", extra="compatibility: Needs docker.\n", below=place.own)
    data = (await place.session().call("skill", name="c")).data
    assert data.startswith(
        "It says of itself that it needs: <skill-needs>\nNeeds docker.\n</skill-needs>"
    )


async def test_a_skill_that_is_not_there_is_refused_with_the_names_that_are(place: Any) -> None:
    place.skill(".agents/skills", "a")
    result = await place.session().call("skill", name="b")
    assert result.error_type is ErrorType.VALIDATION_FAILED and '"a"' in result.error_message


async def test_files_outside_the_workspace_are_read_through_the_tool(place: Any) -> None:
    place.skill("skills", "c", below=place.own)
    place.put("skills/c/references/fields.md", "﻿Fields: one, two.", below=place.own)
    session = place.session()
    assert "`references/fields.md`" in (await session.call("skill", name="c")).data
    data = (await session.call("skill", name="c", path="references/fields.md")).data
    assert data == (
        '<skill-file name="c" path="references/fields.md" by="the person">\nFields: one, '
        "two.\n</skill-file>"
    )
    result = await session.call("skill", name="c", path="references/felds.md")
    assert (
        result.error_type is ErrorType.NOT_FOUND
        and "`references/fields.md`" in result.error_message
    )


async def test_files_of_a_trusted_skill_are_the_bytes_that_were_trusted(place: Any) -> None:
    place.skill(".ferrule/skills", "e")
    place.put(".ferrule/skills/e/a.md", "As it was.")
    TrustStore().trust(place.workspace)
    session = place.session()
    place.put(".ferrule/skills/e/a.md", "Changed since.")
    assert "As it was." in (await session.call("skill", name="e", path="./a.md")).data
    result = await session.call("skill", name="e", path="b.md")
    assert result.error_type is ErrorType.NOT_FOUND and "`a.md`" in result.error_message


async def test_files_of_a_skill_in_the_workspace_are_reached_by_one_tool(place: Any) -> None:
    place.skill(".agents/skills", "a")
    place.put(".agents/skills/a/x.md", "text")
    result = await place.session().call("skill", name="a", path="x.md")
    assert result.error_type is ErrorType.VALIDATION_FAILED
    assert "`.agents/skills/a`" in result.error_message and "`read_file`" in result.error_message


async def test_a_long_file_is_read_in_pieces(place: Any) -> None:
    text = "".join(f"line {number}\n" for number in range(10_000))
    place.skill("skills", "c", below=place.own)
    place.put("skills/c/long.md", text, below=place.own)
    session, offset, pieces = place.session(), 0, 0
    while offset < len(text):
        data = (await session.call("skill", name="c", path="long.md", offset=offset)).data
        assert f"line {text.count(chr(10), 0, offset)}\n" in data
        pieces += 1
        _, cut, rest = data.rpartition("`offset` = ")
        offset = int(rest.removesuffix("]")) if cut else len(text)
    assert pieces == 3
    result = await session.call("skill", name="c", path="long.md", offset=len(text) + 1)
    assert result.error_type is ErrorType.VALIDATION_FAILED


async def test_rules_by_name_decide_about_the_tool(place: Any) -> None:
    for name in ("deploy", "docs"):
        place.skill(".agents/skills", name)
    session = place.session(deny=["Skill(deploy)"])
    assert (await session.call("skill", name="deploy")).error_type is ErrorType.PERMISSION_DENIED
    assert (await session.call("skill", name="docs")).success
    session = place.session(ask=["Skill(d*)"])
    assert (await session.call("skill", name="docs")).error_type is ErrorType.PERMISSION_DENIED


async def test_what_no_tool_may_read_is_not_read_through_a_skill(place: Any) -> None:
    place.skill(".claude/skills", "a")
    session = place.session(deny=["Read(.claude/**)"])
    result = await session.call("skill", name="a")
    assert (
        result.error_type is ErrorType.PERMISSION_DENIED
        and "Read(.claude/**)" in result.error_message
    )


async def test_allowed_tools_allow_nothing(place: Any) -> None:
    from ferrule.tools.decorator import tool

    ran: list[str] = []

    @tool(side_effect="write")
    def publish() -> str:
        """Publish it."""
        ran.append("published")
        return "ok"

    place.skill("skills", "c", extra="allowed-tools: publish skill\n", below=place.own)
    loaded = place.load()
    agent = Agent(
        Scripted([]),
        [*loaded.tools, publish],
        workspace=place.workspace,
        storage=Storage(journal=SqliteJournal(":memory:")),
    )
    session = agent.session()
    assert (await session.call("skill", name="c")).success
    assert (await session.call("publish")).error_type is ErrorType.PERMISSION_DENIED
    assert ran == []


@pytest.mark.parametrize(("lines", "parts"), [(700, 1), (3000, 3)])
async def test_a_long_skill_is_read_whole_and_not_as_a_stub(
    place: Any, lines: int, parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(place.home))
    body = "\n".join(f"{number}. Do step {number} — and say “so”." for number in range(lines))
    place.skill(".claude/skills", "long", body=body)
    options = {"workspace": str(place.workspace)}
    assembly = assemble(options, notice=lambda text: None, needs_model=False)
    session = assembly.open_session(None)
    offset = 0
    seen = ""
    for _ in range(parts):
        model = Scripted([calls(("skill", {"name": "long", "offset": offset})), says("Read.")])
        assembly.agent.change_model(model)
        session.reset_model()
        data = (await session.run("Read it.")).results[0].data
        assert len(data.encode()) <= 56 * 1024 + 1024, "the bound, and the frame around the text"
        seen += data.partition('">\n')[2].partition("\n</skill>")[0] + "\n"
        _, is_cut, rest = data.rpartition("go on with `offset` = ")
        offset = int(rest.partition("]")[0]) if is_cut else 0
    await assembly.close(session)
    assert offset == 0
    assert seen.strip() == body
    assert "artifact" not in seen


@pytest.mark.parametrize(("size", "is_whole"), [(56 * 1024, True), (56 * 1024 + 1, False)])
async def test_the_bound_of_one_result(place: Any, size: int, is_whole: bool) -> None:
    place.skill(".agents/skills", "long", body="x" * size)
    data = (await place.session().call("skill", name="long")).data
    assert ("go on with `offset`" not in data) is is_whole
