"""`/fork`: a conversation goes on in a copy, and the original stays as it was."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ferrule.cli.chat.slash_commands import COMMANDS, Chat
from ferrule.cli.terminal_agent import assemble_at_terminal
from ferrule.core.errors import ConfigError
from ferrule.core.events import RunStarted
from ferrule.runtime.assemble import open_journal


def read_messages(session: str) -> list[str]:
    with open_journal() as store:
        events = [record.event for record in store.records(session)]
    return [event.text for event in events if isinstance(event, RunStarted)]


@pytest.mark.parametrize(("count", "copied"), [("", 2), ("1", 1), ("2", 2)])
async def test_a_copy_goes_on_and_the_original_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], count: str, copied: int
) -> None:
    script = tmp_path / "script.yaml"
    script.write_text(json.dumps([{"say": word} for word in ("one", "two", "three")]))
    assembly = assemble_at_terminal({"workspace": str(tmp_path), "model": f"scripted:{script}"})
    chat = Chat(assembly, assembly.open_session(None))
    try:
        with pytest.raises(ConfigError, match="nothing to copy"):
            await COMMANDS["fork"].run(chat, "")
        await chat.session.run("first")
        await chat.session.run("second")
        original = chat.session.id
        await COMMANDS["fork"].run(chat, count)
        copy = chat.session.id
        assert copy != original
        assert f"`/resume {original[:12]}` goes back" in capsys.readouterr().err
        assert (await chat.session.run("other")).text == "three"
        for wrong in ("0", "7", "all"):
            with pytest.raises(ConfigError, match=f"no message number {wrong}"):
                await COMMANDS["fork"].run(chat, wrong)
    finally:
        await chat.session.close()
        await assembly.close()
    assert read_messages(original) == ["first", "second"]
    assert read_messages(copy) == [*["first", "second"][:copied], "other"]
