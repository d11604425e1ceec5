"""Skills as slash commands: `/NAME ARGUMENTS`, beside the commands of the chat."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ferrule.cli.chat import loop
from ferrule.cli.chat.chat_state import Chat
from ferrule.cli.chat.hot_reload import ChatReloader
from ferrule.cli.chat.slash_commands import COMMANDS, complete_argument, find_commands
from ferrule.cli.terminal_agent import assemble_at_terminal
from ferrule.core.errors import ConfigError
from ferrule.core.events import ContextAdded, RunStarted
from ferrule.extensions.skills.loading import LoadedSkills


def write_skill(folder: Path, name: str, more: str = "") -> None:
    place = folder / ".claude/skills" / name
    place.mkdir(parents=True)
    text = f"---\nname: {name}\ndescription: Deploy the shop.\n{more}---\nDeploy to $ARGUMENTS, carefully.\n"
    (place / "SKILL.md").write_text(text)


@pytest.fixture
def options(tmp_path: Path) -> dict[str, Any]:
    folder = tmp_path / "work"
    folder.mkdir()
    write_skill(folder, "deploy")
    write_skill(folder, "help")
    script = tmp_path / "script.yaml"
    script.write_text(json.dumps([{"say": "deployed"}]))
    return {"workspace": str(folder), "model": f"scripted:{script}"}


@pytest.fixture
async def chat(options: dict[str, Any]) -> AsyncIterator[Chat]:
    assembly = assemble_at_terminal(options, interruptible=True)
    chat = Chat(assembly, assembly.open_session(None))
    yield chat
    await chat.session.close()
    await assembly.close()


async def no_answer(text: str) -> str:
    raise EOFError


async def type_line(chat: Chat, options: dict[str, Any], line: str) -> bool:
    return await loop._handle_line(chat, line, ChatReloader(chat, options, no_answer))  # pyright: ignore[reportPrivateUsage]


def read_events(chat: Chat, kind: type[Any]) -> list[Any]:
    if not chat.session.is_recorded:
        return []
    records = chat.assembly.agent.journal.records(chat.session.id)
    return [record.event for record in records if isinstance(record.event, kind)]


def read_sent(chat: Chat) -> list[str]:
    return [event.text for event in read_events(chat, RunStarted)]


async def test_a_skill_is_called_by_its_name_with_arguments(
    chat: Chat, options: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert await type_line(chat, options, "/deploy the  stage")
    (message,) = read_sent(chat)
    assert "the skill `deploy`" in message and message.endswith("the  stage")
    (added,) = read_events(chat, ContextAdded)
    assert "Deploy to $ARGUMENTS, carefully." in added.text  # the model need not read it first
    assert "▸ skill deploy" in capsys.readouterr().err


async def test_a_skill_with_the_name_of_a_command_does_not_take_its_place(
    chat: Chat, options: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert find_commands(chat)["help"] is COMMANDS["help"]
    await type_line(chat, options, "/help")
    shown = capsys.readouterr().err
    assert "/deploy [ARGUMENTS]" in shown and "skill: Deploy the shop." in shown
    assert "`/help` is a command of the chat, and `/skill help` calls the skill" in shown
    assert read_sent(chat) == []
    await type_line(chat, options, "/skill help")
    assert "the skill `help`" in read_sent(chat)[0]


@pytest.mark.parametrize(
    ("key", "for_model", "for_person"),
    [
        ("disable-model-invocation: true", False, True),
        ("user-invocable: false", True, False),
        ("disable-model-invocation: false\nuser-invocable: true", True, True),
    ],
)
async def test_a_skill_says_who_may_call_it(
    options: dict[str, Any], key: str, *, for_model: bool, for_person: bool
) -> None:
    write_skill(Path(options["workspace"]), "publish", f"{key}\n")
    assembly = assemble_at_terminal(options, interruptible=True)
    chat = Chat(assembly, assembly.open_session(None))
    try:
        offered = assembly.agent.catalog.get("skill")
        schema = json.dumps(offered.arguments.schema if offered else None)
        loaded = assembly.agent.resources[LoadedSkills]
        assert ('"publish"' in schema) is for_model
        assert ("- publish:" in loaded.catalogue_text) is for_model
        assert ("publish" in find_commands(chat)) is for_person
        if for_person:
            await type_line(chat, options, "/publish now")
            assert "the skill `publish`" in read_sent(chat)[0]
            (added,) = read_events(chat, ContextAdded)
            assert "Deploy to $ARGUMENTS, carefully." in added.text
    finally:
        await chat.session.close()
        await assembly.close()


async def test_names_are_completed_and_a_wrong_one_is_said_with_the_nearest(
    chat: Chat, options: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert complete_argument(chat, "skill", "d") == ["deploy"]
    assert complete_argument(chat, "mode", "pl") == ["plan"]
    await type_line(chat, options, "/depoy now")
    assert "did you mean `/deploy`?" in capsys.readouterr().err
    for typed, said in (("depoy x", "did you mean `deploy`"), ("", "Skills: deploy, help")):
        with pytest.raises(ConfigError, match=said):
            await COMMANDS["skill"].run(chat, typed)
    assert read_sent(chat) == []


@pytest.mark.parametrize("is_for_model", [True, False])
async def test_a_rule_that_denies_a_skill_denies_it_to_whom_types_it(
    options: dict[str, Any], *, is_for_model: bool
) -> None:
    if not is_for_model:
        for file in Path(options["workspace"]).glob(".claude/skills/*/SKILL.md"):
            text = file.read_text()
            file.write_text(text.replace("name:", "disable-model-invocation: true\nname:", 1))
    settings = Path(options["workspace"], ".ferrule/ferrule.yaml")
    settings.parent.mkdir()
    settings.write_text("permissions:\n  deny: [Skill(deploy)]\n")
    assembly = assemble_at_terminal(options, interruptible=True)
    chat = Chat(assembly, assembly.open_session(None))
    try:
        assert "deploy" not in find_commands(chat)
        assert (assembly.agent.catalog.get("skill") is not None) is is_for_model
    finally:
        await chat.session.close()
        await assembly.close()
