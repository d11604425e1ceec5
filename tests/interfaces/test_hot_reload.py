"""Hot reload: what files say takes effect with the next message, as far as a person trusts them,
and nothing else changes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from ferrule import Agent, Storage, tool
from ferrule.cli.chat.hot_reload import ChatReloader
from ferrule.cli.chat.slash_commands import Chat
from ferrule.cli.terminal_agent import assemble_at_terminal
from ferrule.core.errors import ConfigError
from ferrule.core.events import Noticed
from ferrule.core.machine import Machine
from ferrule.engine.hooks.events import EventHook
from ferrule.engine.session_log import SessionLog
from ferrule.hooks import SessionEnd, SessionStart, hook
from ferrule.models.scripted import Scripted, calls, says
from ferrule.plugins import Parts
from ferrule.runtime.assemble import Assembly, assemble
from ferrule.runtime.hot_reload import HotReloader, ToolChanges
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.storage.trust import TrustStore
from ferrule.testing.fakes import RecordingApprover

GREET = """\
---
parameters: {{}}
side_effect: {effect}
script: |
  def run(args):
      return "{says}"
---
{about}
"""
GUARD = """\
---
events: [tool.pre]
script: |
  def handle(event, payload):
      return {answer}
---
A guard.
"""


def put(name: str, text: str) -> None:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(text)


def greet(says: str, *, name: str = "greet", about: str = "Greets.", effect: str = "none") -> None:
    put(f".ferrule/tools/{name}.md", GREET.format(says=says, about=about, effect=effect))


class World:
    """A folder that is trusted, an assembly of it with a session, and what the person was told."""

    def __init__(self, options: dict[str, Any], **more: Any) -> None:
        self.told: list[str] = []
        self.assembly: Assembly = assemble(options, notice=self.told.append, **more)
        self.session = self.assembly.open_session(None)
        self.reloading = HotReloader(self.assembly, options)
        self.told.clear()

    async def reload(self) -> ToolChanges | None:
        return await self.reloading.reload(self.session)

    async def greeting(self, name: str = "greet") -> str:
        result = await self.session.call(name)
        return (
            str(result.data) if result.success else f"{result.error_type}: {result.error_message}"
        )

    @property
    def noticed(self) -> list[str]:
        """What the session's own watchers were told of reloads."""
        self.session.driver.log.flush()
        events = (record.event for record in self.assembly.agent.journal.records(self.session.id))
        return [
            event.text for event in events if isinstance(event, Noticed) and event.topic == "reload"
        ]

    @property
    def model(self) -> Scripted:
        model_client = self.assembly.agent.model_client
        assert isinstance(model_client, Scripted)
        return model_client


@pytest.fixture
async def world(folder: Path, script: Callable[..., str]) -> AsyncIterator[Callable[..., World]]:
    made: list[World] = []

    def begin(*steps: dict[str, Any], **more: Any) -> World:
        if Path(".ferrule").exists():
            TrustStore().trust(".")
        made.append(World({"model": script(*steps)}, **more))
        return made[-1]

    yield begin
    for one in made:
        await one.assembly.close(one.session, strict=False)


# ---- a repository's files


async def test_a_changed_tool_is_withdrawn_until_it_is_trusted_and_then_it_is_the_new_one(
    world: Callable[..., World],
) -> None:
    greet("one")
    here = world({"say": "Hi."}, {"say": "Bye."})
    assert await here.greeting() == "one"
    greet("two")
    changed = here.reloading.find_changes()
    assert (
        changed is not None
        and changed.needs_trust
        and changed.files == (".ferrule/tools/greet.md",)
    )
    tools = await here.reload()
    assert tools is not None and tools.gone == ("greet",)
    assert ["withdrawn until you trust it again" in said for said in here.noticed] == [True]
    assert (await here.greeting()).startswith("not_found: ")
    assert here.reloading.find_changes() is None
    TrustStore().trust(".")
    changed = here.reloading.find_changes()
    assert changed is not None and not changed.needs_trust
    await here.reload()
    assert await here.greeting() == "two", here.told


async def test_a_changed_hook_is_asked_nothing_before_it_is_trusted_and_trust_taken_back_withdraws_all(
    world: Callable[..., World],
) -> None:
    greet("one")
    put(".ferrule/hooks/guard.md", GUARD.format(answer="allow()"))
    here = world()
    put(".ferrule/hooks/guard.md", GUARD.format(answer='block("closed")'))
    TrustStore().trust(".")
    await here.reload()
    assert "closed" in await here.greeting()
    TrustStore().revoke(".")
    await here.reload()
    assert (await here.greeting()).startswith("not_found: ")
    assert (await here.session.call("list_files")).success, "the guard is gone with its trust"


async def test_a_folder_that_nobody_ever_trusted_is_not_asked_about_and_changes_nothing(
    world: Callable[..., World],
) -> None:
    here = world()
    agent = here.assembly.agent
    for word in ("one", "two"):
        greet(word)
        changed = here.reloading.find_changes()
        assert changed is not None and not changed.needs_trust
        assert await here.reload() is None and here.reloading.find_changes() is None
    assert here.assembly.agent is agent and len(here.told) == 2 and "not trusted" in here.told[0]


async def test_tools_hooks_agents_skills_and_settings_hold_from_the_next_message_on(
    world: Callable[..., World],
) -> None:
    greet("one")
    here = world({"say": "Hi."}, {"say": "Bye."})
    await here.session.run("Hello.")
    greet("new", name="added", about="New here.")
    put(".ferrule/agents/helper.md", "---\ndescription: Helps.\n---\nYou help.\n")
    put(
        ".ferrule/skills/knots/SKILL.md",
        "---\nname: knots\ndescription: How to tie knots.\n---\nTie.\n",
    )
    put(".ferrule/ferrule.yaml", "limits: { max_turns: 3 }\ntools: { denied: [git_command] }\n")
    TrustStore().trust(".")
    await here.reload()
    await here.session.run("Bye.")
    first, second = here.model.opened
    names = [tool.name for tool in second.tools]
    assert (
        "added" in names and "delegate" in names and "skill" in names and "git_command" not in names
    )
    assert here.session.limits.max_turns == 3 and here.session.driver.machine.limits.max_turns == 3
    assert second.system == first.system
    told = here.model.histories[-1][-1].text
    assert '<notice source="reload">' in told and "How to tie knots." in told and "`added`" in told
    assert told.endswith("Bye.")


async def test_what_is_the_same_keeps_its_place_and_its_bytes_and_the_history_goes_on(
    world: Callable[..., World], a_call: Any
) -> None:
    greet("one")
    greet("m", name="middle")
    here = world(a_call("middle"), {"say": "Hi."}, {"say": "Bye."})
    await here.session.run("Hello.")
    greet("two", about="Greets differently.")
    greet("a", name="aardvark")
    TrustStore().trust(".")
    await here.reload()
    await here.session.run("And now?")
    before, after = ([(tool.name, tool) for tool in opened.tools] for opened in here.model.opened)
    same = [entry for entry in before if entry[0] != "greet"]
    assert after[: len(same)] == same
    assert [name for name, _ in after[len(same) :]] == ["aardvark", "greet"]
    was, now = here.model.histories[1], here.model.histories[2]
    assert now[: len(was)] == was
    here.assembly.agent.journal.verify(here.session.id)


async def test_a_session_that_has_said_nothing_yet_begins_with_the_new_tools(
    world: Callable[..., World],
) -> None:
    greet("one")
    here = world({"say": "Hi."})
    greet("two")
    TrustStore().trust(".")
    await here.reload()
    await here.session.run("Hello.")
    assert await here.greeting() == "two" and len(here.model.opened) == 1
    [info] = here.assembly.agent.journal.sessions()
    assert info.session == here.session.id


# ---- files that are broken


async def test_a_broken_file_keeps_the_last_good_version_of_everything_and_is_named_with_its_place(
    world: Callable[..., World],
) -> None:
    greet("one")
    here = world()
    put(
        ".ferrule/tools/greet.md",
        "---\nparameters:\n  a: { type: nonsense }\nscript: |\n  def run(args): return 1\n---\nx\n",
    )
    greet("new", name="added")
    TrustStore().trust(".")
    assert await here.reload() is None
    [told] = here.told
    assert "the last good version stays" in told and "greet.md:3:" in told and "nonsense" in told
    assert await here.greeting() == "one" and here.reloading.find_changes() is None
    greet("three")
    TrustStore().trust(".")
    await here.reload()
    assert await here.greeting() == "three" and await here.greeting("added") == "new"


async def test_a_broken_file_of_the_person_s_own_stays_what_it_was(
    world: Callable[..., World], own_folders: Path
) -> None:
    mine = own_folders / "config/ferrule.yaml"
    mine.parent.mkdir()
    mine.write_text("limits: { max_turns: 4 }\n")
    here = world()
    mine.write_text("limits: { max_turns: many }\n")
    assert await here.reload() is None
    assert f"{mine}:1:" in here.told[0] and here.session.limits.max_turns == 4
    mine.write_text("limits: { max_turns: 5 }\n")
    await here.reload()
    assert here.session.limits.max_turns == 5


async def test_what_must_be_withdrawn_is_not_kept_because_something_else_is_broken(
    world: Callable[..., World], own_folders: Path
) -> None:
    greet("one")
    here = world()
    greet("theirs")
    mine = own_folders / "config/ferrule.yaml"
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("limits: [")
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"ferrule\.yaml"):
            await here.reload()
    mine.unlink()
    await here.reload()
    assert (await here.greeting()).startswith("not_found: ")


# ---- what stays with the session


@pytest.mark.parametrize("about", ["Greets.", "Deletes everything."])
async def test_grants_stay_but_not_for_a_tool_whose_file_is_another_one_now(
    world: Callable[..., World], about: str
) -> None:
    for name in ("greet", "other"):
        greet("one", name=name, effect="write")
    asked = RecordingApprover(["session"])
    here = world(approver=asked)
    assert [await here.greeting(name) for name in ("greet", "other")] == ["one", "one"]
    count = len(asked.requests)
    greet("two", effect="write", about=about)
    TrustStore().trust(".")
    await here.reload()
    assert await here.greeting("other") == "one" and len(asked.requests) == count
    assert await here.greeting() == "two" and len(asked.requests) == count + 1


async def test_memory_mode_model_and_whoever_watches_stay(
    world: Callable[..., World], script: Any
) -> None:
    here = world()
    await here.session.call("add_task", content="Paint the boat.")
    gate = here.session.driver.dispatcher.gate
    here.session.driver.dispatcher.change_gate(gate.with_mode("plan"))
    other = script({"say": "I am the other."})
    await here.assembly.change_model(other, here.session)
    seen: list[Any] = []
    here.session.observe(seen.append)
    greet("one")
    TrustStore().trust(".")
    await here.reload()
    assert "Paint the boat." in (await here.session.call("list_tasks")).to_text()
    assert here.session.driver.dispatcher.gate.mode == "plan"
    assert here.session.model == here.assembly.agent.model == other
    assert (await here.session.run("Who are you?")).text == "I am the other." and seen


async def test_a_session_that_works_goes_on_as_it_was_and_is_renewed_when_it_is_done(
    world: Callable[..., World], a_call: Any
) -> None:
    greet("one")
    seen: list[Any] = []

    class Reloads:
        """Reloads in the middle of a run, as happens where another session has a message."""

        async def ask(self, request: Any) -> Any:
            for word in ("between", "two"):
                greet(word)
                TrustStore().trust(".")
                seen.append(await here.reload())
            return await RecordingApprover(["once"]).ask(request)

    here = world(
        a_call("write_file", path="new.txt", content="x"),
        a_call("greet"),
        {"say": "Done."},
        approver=Reloads(),
    )
    result = await here.session.run("Go.")
    assert [answer.data for answer in result.results][1] == "one" and seen[0].changed == ("greet",)
    await here.reloading.update_session(here.session)
    assert await here.greeting() == "two", here.told
    await here.reloading.close()


async def test_nothing_of_a_session_that_goes_on_holds_on_to_another_log_or_machine(
    world: Callable[..., World],
) -> None:
    """Whatever a driver gains in the course of time must be handed over, too."""
    greet("one")
    put(".ferrule/hooks/guard.md", GUARD.format(answer="allow()"))
    here = world()
    before = here.session.driver
    greet("two")
    TrustStore().trust(".")
    await here.reload()
    driver = here.session.driver
    assert driver is not before and [type(one).__name__ for one in driver.extensions] == [
        "StartPlugins",
        "SessionHooks",
    ]
    assert (driver.log, driver.machine, driver.memory) == (
        before.log,
        before.machine,
        before.memory,
    )
    parts = [
        driver,
        *driver.extensions,
        *(part for part in vars(driver).values() if hasattr(part, "__dict__")),
    ]
    held = [value for part in parts for value in vars(part).values()]
    held += [getattr(value, "__self__", None) for value in held]
    assert [each for each in held if isinstance(each, SessionLog) and each is not driver.log] == []
    assert [each for each in held if isinstance(each, Machine) and each is not driver.machine] == []
    assert [each for each in held if each is before] == []


async def test_a_hook_that_is_gone_is_not_asked_at_the_session_s_end_and_one_that_came_is() -> None:
    asked: list[str] = []

    def hooks(name: str) -> list[EventHook]:
        @hook("session.start", "session.end")
        def note_session_event(event: SessionStart | SessionEnd) -> None:
            asked.append(f"{name} {type(event).__name__}")

        return [note_session_event]

    journal = SqliteJournal(":memory:")
    agents = [
        Agent(
            Scripted([says("Hi.")]), plugins=[Parts(hooks=given)], storage=Storage(journal=journal)
        )
        for given in (hooks("a"), (), hooks("b"), hooks("c"))
    ]
    session = agents[0].session()
    await session.run("Hello.")
    for agent in agents[1:]:
        agent.take_over(session)
    await session.run("And you?")
    await session.close()
    assert asked == ["a SessionStart", "c SessionEnd"]
    told = [message.text for message in agents[3].model_client.histories[-1]]  # type: ignore[attr-defined]
    assert told == ["Hello.", "Hi.", "And you?"], "where nothing was lost nothing is said of it"


async def test_whoever_is_asked_and_what_was_found_stay() -> None:
    @tool(side_effect="write", defer_loading=True)
    def ring(times: int) -> str:
        """Ring the bell."""
        return "ding " * times

    @tool(side_effect="none")
    def look() -> None:
        """Look around."""

    journal = SqliteJournal(":memory:")
    found = calls(("tool_search", {"query": "ring the bell"}))
    first = Agent(Scripted([found, says("Found.")]), [look, ring], storage=Storage(journal=journal))
    second = Agent(
        Scripted([calls(("ring", {"times": 1})), says("Rung.")]),
        [look, ring],
        storage=Storage(journal=journal),
    )
    session = first.session()
    asked = RecordingApprover(["once"])
    session.approvals.set_approver(asked)
    await session.run("Find the bell.")
    second.take_over(session)
    [backend] = (await session.run("Ring it.")).results
    assert backend.success and [request.tool.name for request in asked.requests] == ["ring"]


async def test_a_session_is_not_taken_over_while_it_works() -> None:
    refused: list[str] = []

    @tool(side_effect="none")
    def meanwhile() -> None:
        """Something else happens."""
        with pytest.raises(ConfigError, match="the session is busy") as raised:
            other.take_over(session)
        refused.append(raised.value.code)

    journal = SqliteJournal(":memory:")
    agent = Agent(
        Scripted([calls(("meanwhile", {})), says("Done.")]),
        [meanwhile],
        storage=Storage(journal=journal),
    )
    other = Agent(Scripted([]), storage=Storage(journal=journal))
    session = agent.session()
    await session.run("Go.")
    assert refused == ["busy"]


# ---- the chat


@pytest.mark.parametrize(("said", "greeting"), [("y", "two"), ("no", None)])
async def test_the_chat_shows_what_changed_and_asks_before_the_next_line(
    folder: Path, script: Any, capsys: pytest.CaptureFixture[str], said: str, greeting: str | None
) -> None:
    greet("one")
    TrustStore().trust(".")
    options = {"model": script()}
    assembly = assemble_at_terminal(options, interruptible=True)
    chat = Chat(assembly, assembly.open_session(None))
    asked: list[str] = []

    async def ask(text: str) -> str:
        asked.append(text)
        return said

    fresh = ChatReloader(chat, options, ask)
    greet("two")
    try:
        assert await fresh.reload_changes() and await fresh.reload_changes()
        shown = capsys.readouterr().err
        assert asked == ["trust it as it is now? [y/N] "] and '+      return "two"' in shown
        result = await chat.session.call("greet")
        assert (result.data if result.success else None) == greeting
    finally:
        await assembly.close(chat.session)


async def test_a_file_that_changes_while_the_person_reads_is_not_trusted_with_their_yes(
    folder: Path, script: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    greet("one")
    TrustStore().trust(".")
    options = {"model": script()}
    assembly = assemble_at_terminal(options, interruptible=True)
    chat = Chat(assembly, assembly.open_session(None))

    async def slowly(text: str) -> str:
        greet("three")
        return "y"

    fresh = ChatReloader(chat, options, slowly)
    greet("two")
    try:
        assert await fresh.reload_changes()
        assert "changed while you were looking at it" in capsys.readouterr().err
        assert (
            TrustStore().state(".") == "changed" and not (await chat.session.call("greet")).success
        )
    finally:
        await assembly.close(chat.session)


async def test_the_chat_does_nothing_while_what_must_go_cannot_be_replaced(
    folder: Path, script: Any, own_folders: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    greet("one")
    TrustStore().trust(".")
    options = {"model": script()}
    assembly = assemble_at_terminal(options, interruptible=True)
    chat = Chat(assembly, assembly.open_session(None))

    async def nobody(text: str) -> str:
        raise EOFError

    fresh = ChatReloader(chat, options, nobody)
    Path(".ferrule/tools/greet.md").unlink()
    Path(".ferrule/tools/greet.md").symlink_to("/etc/hostname")
    (own_folders / "config").mkdir(exist_ok=True)
    (own_folders / "config/ferrule.yaml").write_text("mode: [")
    assert not await fresh.reload_changes()
    assert "error: nothing was done:" in capsys.readouterr().err
    await assembly.close(chat.session)


async def test_a_changed_python_file_is_withdrawn_until_it_is_trusted_and_then_it_is_the_new_one(
    world: Callable[..., World],
) -> None:
    text = (
        "from ferrule import tool\n@tool(side_effect='none')\ndef greet() -> str:\n    "
        "'Greets.'\n    return 'first'\n"
    )
    put(".ferrule/ferrule.yaml", "tools:\n  python: [tools.py]\n")
    put("tools.py", text)
    here = world({"say": "Hi."})
    assert await here.greeting() == "first"
    put("tools.py", text.replace("first", "second"))
    changed = here.reloading.find_changes()
    assert changed is not None and changed.needs_trust and changed.files == ("tools.py",)
    await here.reload()
    assert (await here.greeting()).startswith("not_found: ")
    TrustStore().trust(".")
    await here.reload()
    assert await here.greeting() == "second", here.told
    put("tools.py", "def (")
    TrustStore().trust(".")
    await here.reload()
    assert await here.greeting() == "second", "one that is broken keeps what there was"
    assert any("tools.py:1: it cannot be loaded" in said for said in here.told)
