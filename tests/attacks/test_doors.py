"""The table of paths and the table of commands through every door: the same refusal everywhere, and nothing is reached.

Doors: the dispatcher (every parameter of every tool), a model's native calls, calls written as prose, back-ticked
commands and tagged blocks, the chat's slash commands, `ferrule tools call`. After every call: exactly one result, no
canary in anything that came out, none read, nothing outside the workspace or under an untouchable name changed.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hostile_calls import BY_NAME, FOREIGN, REFUSED, TOOLS, Attack, attacks, must
from hostile_world import COMMANDS, GIT, PATHS, PERMISSIVE, UNSEEN, World

from ferrule.core.calls import Call, ErrorType, Result, compact
from ferrule.core.errors import FerruleError
from ferrule.core.events import CallEvaluated, CallStarted, PersonAnswered, Record, ToolAnswered
from ferrule.core.limits import Limits
from ferrule.core.messages import AssistantMessage, Message, ToolMessage
from ferrule.engine.agent import Agent
from ferrule.engine.session import Session
from ferrule.faces.cli import root as command_line
from ferrule.faces.cli.assemble import Assembly
from ferrule.faces.cli.slash import COMMANDS as SLASH
from ferrule.faces.cli.slash import Chat
from ferrule.faces.cli.terminal import Terminal
from ferrule.models.dialects import ALL
from ferrule.models.scripted import Scripted, Step, calls, says
from ferrule.store.journal import SqliteJournal
from ferrule.store.settings import load_settings
from ferrule.testing.fakes import RecordingApprover
from ferrule.toolkits.shell import CommandPolicy

pytestmark = pytest.mark.skipif(GIT is None, reason="there is no git on the PATH")

ANYTHING = ("*", "Read", "Edit", "Bash", "Bash(*)")
"""The most that a person can allow."""


def agent(world: World, model: Any = None, **options: Any) -> Agent:
    given: dict[str, Any] = {"mode": "bypassPermissions", "allow": ANYTHING, **options}
    return Agent(
        model or Scripted([]),
        TOOLS,
        workspace=world.root,
        journal=SqliteJournal(":memory:"),
        approver=given.pop("approver", None) or RecordingApprover(["once"]),
        resources=[CommandPolicy(shell_allowed=True)],
        limits=Limits(max_rounds=100_000, max_calls_per_round=50),
        **given,
    )


class Watcher:
    """Looks at a session after every call. `harm` is what must be empty in the end."""

    def __init__(self, world: World, ours: Agent, session: Session) -> None:
        self.world, self.session = world, session
        self.journal = ours.journal
        self.approver: Any = ours.approver
        self.harm: list[str] = []
        self.calls = 0
        self._seen = self._asked = 0

    def records(self) -> list[Record]:
        """What was journaled since the last time."""
        new = list(self.journal.records(self.session.id, after=self._seen))
        self._seen += len(new)
        return new

    def look(self, attack: Attack, result: Result) -> None:
        """Judge one direct call."""
        self.calls += 1
        records = self.records()
        ends = [record for record in records if ends_call(record)]
        if len(ends) != 1:
            self.harm.append(f"{attack.row.id}: {len(ends)} results of {attack.tool.name}")
        started = any(isinstance(record.event, CallStarted) for record in records)
        self.harm += attack.complaints(result, started)
        shown = [result.text(envelope=True), *result.notes, *(record.body for record in records), *self.previews()]
        readable = "/" if attack.tool.name == "git_command" else "-"
        found = self.world.unharmed(*shown, readable=readable)
        self.harm += [f"{attack.row.id}: {attack.tool.name} {attack.arguments}: {one}" for one in found]

    def previews(self) -> list[str]:
        """What a person was shown since the last time."""
        asked = self.approver.requests[self._asked :] if hasattr(self.approver, "requests") else []
        self._asked += len(asked)
        return [text for one in asked for text in (one.preview, one.reason, str(one.offers))]

    def conclude(self) -> None:
        """The whole of it: the history, the journal, every entry of the disk."""
        history = self.session.driver.machine.history
        paired(history)
        said = [record.body for record in self.journal.records(self.session.id)] if self.calls else []
        self.harm += self.world.unharmed(*said, *map(str, history), readable="/", look=True)
        self.session.close()
        assert self.harm == [], "\n".join(self.harm[:20])


def ends_call(record: Record) -> bool:
    event = record.event
    if isinstance(event, PersonAnswered):
        return event.choice == "deny"
    return isinstance(event, ToolAnswered) or (isinstance(event, CallEvaluated) and event.result is not None)


def paired(history: Sequence[Message]) -> None:
    """Each answer with calls is followed by exactly its results, in order."""
    wanted: list[str] = []
    for message in history:
        if isinstance(message, ToolMessage):
            assert wanted and wanted.pop(0) == message.call_id
            continue
        assert wanted == []
        if isinstance(message, AssistantMessage):
            wanted = [call.id for call in message.calls]
    assert wanted == []


# ---- (a) the dispatcher: the full product

ASKED = [tool for tool in TOOLS if tool.preview is not None and "command" not in tool.touches]


@pytest.mark.proves("attacks.paths-through-every-parameter")
@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
async def test_no_path_through_any_parameter_reaches_anything_even_if_all_is_allowed(tool: Any, world: World) -> None:
    ours = agent(world)
    watcher = Watcher(world, ours, ours.session())
    for attack in attacks(tool, world):
        watcher.look(attack, await watcher.session.call(tool.full_name, **attack.arguments))
    watcher.conclude()


@pytest.mark.proves("attacks.previews-show-nothing")
@pytest.mark.parametrize("tool", ASKED, ids=lambda tool: tool.name)
async def test_no_preview_shows_what_may_not_be_read_and_a_yes_does_not_open_it(tool: Any, world: World) -> None:
    ours = agent(world, mode="default", allow=())
    watcher = Watcher(world, ours, ours.session())
    for attack in attacks(tool, world):
        if attack.row.kind not in ("reserved", "secret", "malformed"):
            watcher.look(attack, await watcher.session.call(tool.full_name, **attack.arguments))
    assert watcher.approver.requests, "nobody was asked: this proves nothing"
    watcher.conclude()


# ---- commands that name a path

OWN_STREAMS = {"dev-descriptor", "dev-terminal"}
"""Rows that name a program's own streams: programs may use these, tools may not."""


def naming(path: str, *, write: bool) -> Iterator[str | list[str]]:
    """Commands that read or write a file of this name."""
    quoted = shlex.quote(path)
    if write:
        yield from (f"echo x > {quoted}", f"cp src/a.txt {quoted}", ["tee", path], ["touch", "--", path])
    else:
        yield from (f"cat {quoted}", ["cat", path], f"cat < {quoted}", f"grep -f {quoted} x", f"cd src; cat ../{quoted}")


@pytest.mark.proves("attacks.commands-that-name-a-path")
async def test_a_command_that_names_an_untouchable_path_is_refused_before_anything_runs(world: World) -> None:
    ours = agent(world)
    watcher = Watcher(world, ours, ours.session())
    tool = BY_NAME["run_command"]
    for row in PATHS:
        path = world.text(row.path)
        if row.kind not in (*REFUSED, "protected") or row.path.startswith(FOREIGN) or row.id in OWN_STREAMS:
            continue
        commands = [*naming(path, write=True), *(naming(path, write=False) if row.kind in REFUSED else ())]
        for command in commands:
            if path.startswith("/") and "../" in str(command)[:13]:
                continue  # `../` before an absolute path makes another path of it
            arguments = {"command": command, "shell": isinstance(command, str)}
            watcher.look(Attack(row, tool, arguments, "refused"), await watcher.session.call(tool.name, **arguments))
    watcher.conclude()


@pytest.mark.proves("attacks.commands-not-seen-from-text")
async def test_a_command_whose_harm_its_text_does_not_show_needs_a_person(world: World) -> None:
    """Links, pipes, folders with secrets: only a sandbox could refuse them, so with nobody to ask the answer is no."""
    trusting = agent(world)
    ours = agent(world, mode="default", allow=(), approver=NO)
    watcher = Watcher(world, ours, ours.session())
    tool = BY_NAME["run_command"]
    allowed = 0
    for row in PATHS:
        if row.kind not in ("link", "hard", "special", "holder"):
            continue
        for command in naming(world.text(row.path), write=False):
            arguments = {"command": command, "shell": isinstance(command, str)}
            allowed += trusting.gate.decide(tool, arguments).verdict != "deny"
            watcher.look(Attack(row, tool, arguments, "refused"), await watcher.session.call(tool.name, **arguments))
    assert allowed > 100, "the text has become enough: move these rows to the test above"
    watcher.conclude()


class Nobody:
    """`NobodyToAsk`, remembering that it was asked."""

    async def ask(self, request: Any) -> Any:
        from ferrule.guard.approval import NobodyToAsk

        return await NobodyToAsk().ask(request)


NO = Nobody()
