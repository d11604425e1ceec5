"""The table of paths and the table of commands through every interface: the same refusal everywhere, and
nothing is reached.

Doors: the dispatcher (every parameter of every tool), a model's native calls, calls written as
prose, back-ticked commands and tagged blocks, the chat's slash commands, `ferrule tools call`.
After every call: exactly one result, no canary in anything that came out, none read, nothing
outside the workspace or under an untouchable name changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hostile_calls import BY_NAME, FOREIGN, REFUSED, SIX, TOOLS, Attack, attacks, six
from hostile_world import COMMANDS, GIT, PATHS, PERMISSIVE, UNSEEN, World

from ferrule.cli import exit_codes as command_line
from ferrule.cli.chat.slash_commands import COMMANDS as SLASH
from ferrule.cli.chat.slash_commands import Chat
from ferrule.cli.terminal import Terminal
from ferrule.cli.terminal_agent import TerminalAssembly
from ferrule.core.calls import ToolCall, ToolResult, encode_json
from ferrule.core.errors import FerruleError
from ferrule.core.events import (
    CallEvaluated,
    CallStarted,
    JournalRecord,
    PersonAnswered,
    ToolAnswered,
)
from ferrule.core.limits import Limits
from ferrule.core.messages import AssistantMessage, Message, ToolMessage
from ferrule.engine.agent import Agent
from ferrule.engine.session import Session
from ferrule.models.dialects import ALL_DIALECTS
from ferrule.models.scripted import Scripted, Step, calls, says
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.storage.settings.settings import load_settings
from ferrule.storage.trust import COVERED_NAMES
from ferrule.testing.fakes import RecordingApprover
from ferrule.toolkits.commands import CommandPolicy
from grouped_options import grouped

pytestmark = pytest.mark.skipif(GIT is None, reason="there is no git on the PATH")

ANYTHING = ("*", "Read", "Edit", "Bash", "Bash(*)")
"""The most that a person can allow."""


def agent(world: World, model: Any = None, **options: Any) -> Agent:
    given: dict[str, Any] = {"mode": "bypassPermissions", "allow": ANYTHING, **options}
    made = Agent(
        model or Scripted([]),
        TOOLS,
        **grouped(
            workspace=world.root,
            journal=SqliteJournal(":memory:"),
            approver=given.pop("approver", None) or RecordingApprover(["once"]),
            resources=[CommandPolicy(shell_allowed=True, on_missing_protection="off")],
            limits=Limits(max_turns=100_000, max_calls_per_turn=50),
            **given,
        ),
    )
    # To protect what git is told to run, an agent reads git's settings when it is made. No call
    # has been made yet; from here on nothing may be read.
    assert world.unharmed(readable=world.git_settings) == []
    return made


class Watcher:
    """Looks at a session after every call. `harm` is what must be empty in the end."""

    def __init__(self, world: World, ours: Agent, session: Session) -> None:
        self.world, self.session = world, session
        self.journal = ours.journal
        self.approver: Any = ours.approver
        self.harm: list[str] = []
        self.calls = 0
        self._seen = self._asked = 0

    def records(self) -> list[JournalRecord]:
        """What was journaled since the last time."""
        new = list(self.journal.records(self.session.id, after=self._seen))
        self._seen += len(new)
        return new

    def look(self, attack: Attack, result: ToolResult) -> None:
        """Judge one direct call."""
        self.calls += 1
        records = self.records()
        ends = [record for record in records if ends_call(record)]
        if len(ends) != 1:
            self.harm.append(f"{attack.row.id}: {len(ends)} results of {attack.tool.name}")
        started = any(isinstance(record.event, CallStarted) for record in records)
        self.harm += attack.complaints(result, started)
        shown = [
            result.to_text(envelope=True),
            *result.notes,
            *(record.body for record in records),
            *self.previews(),
        ]
        readable = "/" if attack.tool.name == "git_command" else "-"
        found = self.world.unharmed(*shown, readable=readable)
        self.harm += [
            f"{attack.row.id}: {attack.tool.name} {attack.arguments}: {one}" for one in found
        ]

    def previews(self) -> list[str]:
        """What a person was shown since the last time."""
        asked = self.approver.requests[self._asked :] if hasattr(self.approver, "requests") else []
        self._asked += len(asked)
        return [text for one in asked for text in (one.preview, one.reason, str(one.offers))]

    async def conclude(self) -> None:
        """The whole of it: the history, the journal, every entry of the disk."""
        history = self.session.driver.machine.history
        paired(history)
        said = (
            [record.body for record in self.journal.records(self.session.id)] if self.calls else []
        )
        self.harm += self.world.unharmed(*said, *map(str, history), readable="/", look=True)
        await self.session.close()
        assert self.harm == [], "\n".join(self.harm[:20])


def ends_call(record: JournalRecord) -> bool:
    event = record.event
    if isinstance(event, PersonAnswered):
        return event.choice == "deny"
    return isinstance(event, ToolAnswered) or (
        isinstance(event, CallEvaluated) and event.result is not None
    )


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

ASKED = [
    tool
    for tool in TOOLS
    if tool.preview is not None
    and {"read", "write"} & {touch.kind for touch in tool.touches.values()}
]


@pytest.mark.proves("attacks.paths-through-every-parameter")
@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
async def test_no_path_through_any_parameter_reaches_anything_even_if_all_is_allowed(
    tool: Any, world: World
) -> None:
    ours = agent(world)
    watcher = Watcher(world, ours, ours.session())
    for attack in attacks(tool, world):
        watcher.look(attack, await watcher.session.call(tool.full_name, **attack.arguments))
    await watcher.conclude()


@pytest.mark.parametrize("tool", ASKED, ids=lambda tool: tool.name)
async def test_no_preview_shows_what_may_not_be_read_and_a_yes_does_not_open_it(
    tool: Any, world: World
) -> None:
    ours = agent(world, mode="default", allow=())
    watcher = Watcher(world, ours, ours.session())
    for attack in attacks(tool, world):
        if attack.row.kind not in ("reserved", "secret", "malformed"):
            watcher.look(attack, await watcher.session.call(tool.full_name, **attack.arguments))
    assert watcher.approver.requests, "nobody was asked: this proves nothing"
    await watcher.conclude()


@pytest.mark.proves("attacks.paths-through-every-parameter")
async def test_differences_and_histories_without_a_path_show_no_secret_either(world: World) -> None:
    ours = agent(world)
    watcher = Watcher(world, ours, ours.session())
    tool, row = BY_NAME["git_command"], SimpleNamespace(id="no path")
    for subcommand, *given in (
        ("show",),
        ("show", "HEAD~1"),
        ("show", "-m"),
        ("diff",),
        ("diff", "HEAD"),
        ("diff", "HEAD~1"),
        ("diff", "--cached"),
        ("diff", "HEAD~1", "HEAD"),
        ("log", "-p"),
        ("log", "-p", "--all"),
        ("log", "-S", "KEY", "-p"),
        ("status",),
        ("show", "HEAD:"),
        ("diff", "HEAD~1", "--", "."),
        ("show", "HEAD:./"),
    ):
        arguments = {"subcommand": subcommand, "args": given}
        watcher.look(
            Attack(row, tool, arguments, ""), await watcher.session.call(tool.name, **arguments)
        )
    await watcher.conclude()


# ---- commands that name a path

OWN_STREAMS = {"dev-descriptor", "dev-terminal"}
"""Rows that name a program's own streams: programs may use these, tools may not."""


def naming(path: str, *, write: bool) -> Iterator[str | list[str]]:
    """Commands that read or write a file of this name."""
    quoted = shlex.quote(path)
    if write:
        yield from (
            f"echo x > {quoted}",
            f"cp src/a.txt {quoted}",
            ["tee", path],
            ["touch", "--", path],
        )
    else:
        yield from (
            f"cat {quoted}",
            ["cat", path],
            f"cat < {quoted}",
            f"grep -f {quoted} x",
            f"cd src; cat ../{quoted}",
        )


async def test_a_command_that_names_an_untouchable_path_is_refused_before_anything_runs(
    world: World,
) -> None:
    ours = agent(world)
    watcher = Watcher(world, ours, ours.session())
    tool = BY_NAME["run_command"]
    for row in PATHS:
        path = world.text(row.path)
        if (
            row.kind not in (*REFUSED, "protected")
            or row.path.startswith(FOREIGN)
            or row.id in OWN_STREAMS
        ):
            continue
        commands = [
            *naming(path, write=True),
            *(naming(path, write=False) if row.kind in REFUSED else ()),
        ]
        for command in commands:
            if path.startswith("/") and "../" in str(command)[:13]:
                continue  # `../` before an absolute path makes another path of it
            arguments = {"command": command}
            watcher.look(
                Attack(row, tool, arguments, "refused"),
                await watcher.session.call(tool.name, **arguments),
            )
    await watcher.conclude()


async def test_a_command_whose_harm_its_text_does_not_show_needs_a_person(world: World) -> None:
    """Links, pipes, folders with secrets: only a sandbox could refuse them, so with nobody to ask
    the answer is no.
    """
    trusting = agent(world)
    ours = agent(world, mode="default", allow=(), approver=NO)
    watcher = Watcher(world, ours, ours.session())
    tool = BY_NAME["run_command"]
    allowed = 0
    for row in PATHS:
        if row.kind not in ("link", "hard", "special", "holder"):
            continue
        for command in naming(world.text(row.path), write=False):
            arguments = {"command": command}
            allowed += trusting.gate.decide(tool, arguments).verdict != "deny"
            watcher.look(
                Attack(row, tool, arguments, "refused"),
                await watcher.session.call(tool.name, **arguments),
            )
    assert allowed > 100, "the text has become enough: move these rows to the test above"
    await watcher.conclude()


class Nobody:
    """`DenyingApprover`, remembering that it was asked."""

    async def ask(self, request: Any) -> Any:
        from ferrule.permissions.approvals import DenyingApprover

        return await DenyingApprover().ask(request)


NO = Nobody()


# ---- (b), (c), (d) a model's calls: native, as prose in every dialect, as commands and tagged
# blocks

SHARE = 1 if os.environ.get("FERRULE_TEST_ATTACKS") == "all" else 10
"""One attack of so many through each interface. Behind all interfaces is the dispatcher, which meets the
whole product above.
"""


def share(world: World, interface: int) -> list[Attack]:
    """The attacks that an interface gets: another part for each of the five."""
    return six(world)[interface % SHARE :: SHARE]


def prose(index: int, attack: Attack) -> str:
    """The call as some family of models writes it; the families take turns."""
    return ALL_DIALECTS[index % len(ALL_DIALECTS)].render(
        [ToolCall("", attack.tool.name, encode_json(attack.arguments))]
    )


def command(index: int, attack: Attack) -> str:
    """The call as a back-ticked command or a tagged block."""
    path = str(attack.arguments.get("path", ""))
    written = {
        "read_file": f"`/read {path}`",
        "write_file": f"```path={path}\nx\n```" if index % 2 else f"```python {path}\nx\n```",
        "list_files": f"`/files {path} show_hidden=true`",
        "search_files": f"`/search . path={path}`",
        "run_command": f"`/run cat {shlex.quote(str(attack.arguments.get('command', ['', ''])[1]))}`",
        "git_command": f"`/git diff -- {attack.row.path}`",
    }
    return written[attack.tool.name]


class Through:
    """A session with a model that makes one attack per message. `made` counts those that became
    calls.
    """

    def __init__(self, world: World, way: str) -> None:
        self.made = 0
        self._next = says("")
        ours = agent(world, Scripted([self._answer] * 10_000), tool_mode=way)
        self._model_client: Any = ours.model_client
        self.watcher = Watcher(world, ours, ours.session())

    def _answer(self, history: Sequence[Message]) -> Step:
        self._model_client.asks.clear()
        answer, self._next = self._next, says("ok")
        return answer

    async def make(self, attack: Attack, answer: Step) -> None:
        self._next = answer
        await self.watcher.session.run("go on")
        machine = self.watcher.session.driver.machine
        messages = machine.history[-4:]
        made = [call for m in messages[-3:] if isinstance(m, AssistantMessage) for call in m.calls]
        records = self.watcher.records()
        started = {
            record.event.call_id for record in records if isinstance(record.event, CallStarted)
        }
        harm = (
            []
            if len(machine.results()) == len(made) == sum(map(ends_call, records))
            else ["not one result per call"]
        )
        for call, result in zip(made, machine.results(), strict=False):
            self.watcher.calls += 1
            if carries(call, attack):
                self.made += 1
                harm += attack.complaints(result, call.id in started)
        readable = "/" if attack.tool.name == "git_command" else "-"
        shown = [*map(str, messages), *(record.body for record in records)]
        harm += self.watcher.world.unharmed(*shown, readable=readable)
        self.watcher.harm += [f"{attack.row.id}: {attack.tool.name}: {one}" for one in harm]


def carries(call: ToolCall, attack: Attack) -> bool:
    """Whether a call is the attack, however it was written."""
    if call.tool != attack.tool.name:
        return False
    try:
        arguments = json.loads(call.arguments)
    except ValueError:
        return False  # refused as it stands: the model is told
    command = arguments.get("command")
    if isinstance(command, str) and command != attack.arguments.get("command"):
        arguments["command"] = shlex.split(command)
    named = [name for name in attack.arguments if name in attack.tool.touches or name == "args"]
    return all(arguments.get(name) == attack.arguments[name] for name in named)


@pytest.mark.proves("attacks.every-door")
async def test_a_models_native_call_reaches_nothing(world: World) -> None:
    interface = Through(world, "native")
    tried = share(world, 0)
    for attack in tried:
        await interface.make(attack, calls((attack.tool.name, attack.arguments)))
    assert interface.made == len(tried) >= (243 * 4 + 147 * 2) // SHARE
    await interface.watcher.conclude()


@pytest.mark.proves("attacks.every-door")
async def test_a_call_written_as_prose_reaches_nothing(world: World) -> None:
    interface = Through(world, "text")
    tried = share(world, 1)
    for index, attack in enumerate(tried):
        await interface.make(attack, says(prose(index, attack)))
    assert interface.made > 0.9 * len(tried), "most of this was not read as calls: it proves little"
    await interface.watcher.conclude()


@pytest.mark.proves("attacks.every-door")
async def test_a_backticked_command_or_a_tagged_block_reaches_nothing(world: World) -> None:
    interface = Through(world, "commands")
    tried = [
        attack for attack in share(world, 2) if attack.tool.name != "git_command"
    ]  # it takes a list: no command can
    for index, attack in enumerate(tried):
        await interface.make(attack, says(command(index, attack)))
    assert interface.made > 0.8 * len(tried), "most of this was not read as calls: it proves little"
    await interface.watcher.conclude()


# ---- (e), (f) the chat's slash commands and `ferrule tools call`


def typed(attack: Attack) -> str:
    """What a person (or a text that they paste) would type into the chat."""
    path = str(attack.arguments.get("path", attack.row.path))
    return {
        "read_file": f"read {path}",
        "list_files": f"files {path}",
        "run_command": f"run cat {shlex.quote(str(attack.arguments.get('command', ['', ''])[1]))}",
        "git_command": f"git diff -- {shlex.quote(str(attack.arguments.get('args', ['', ''])[1]))}",
    }.get(attack.tool.name, "")


@pytest.mark.proves("attacks.every-door")
async def test_a_slash_command_reaches_nothing(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = agent(world)
    settings = load_settings(workspace=world.root)
    watcher = Watcher(world, ours, ours.session())
    chat = Chat(TerminalAssembly(ours, settings, print, terminal=Terminal()), watcher.session)
    world.unharmed()  # Ferrule itself looked at `.ferrule`, to say that it is not trusted.
    for attack in share(world, 3):
        name, _, rest = typed(attack).partition(" ")
        if not name:
            continue
        with contextlib.suppress(FerruleError):
            await SLASH[name].run(chat, rest.strip())
        watcher.calls += 1
        shown = capsys.readouterr()
        records = watcher.records()
        results = [result for record in records if (result := result_of(record)) is not None]
        started = any(isinstance(record.event, CallStarted) for record in records)
        harm = [] if len(results) <= 1 else ["more than one result"]
        # What is typed is trimmed and split: a row that this changed is another path.
        if results and attack.row.path.strip() == attack.row.path:
            harm += attack.complaints(results[0], started)
        readable = "/" if name == "git" else "-"
        harm += world.unharmed(
            shown.out, shown.err, *(record.body for record in records), readable=readable
        )
        watcher.harm += [f"/{name} {attack.row.id}: {one}" for one in harm]
    for name, slash in SLASH.items():
        for row in PATHS[:: 1 if name in ("tools", "mode", "help", "tasks", "exit") else 12]:
            with contextlib.suppress(FerruleError):
                await slash.run(chat, world.text(row.path))
            shown = capsys.readouterr()
            watcher.harm += world.unharmed(
                shown.out, shown.err, readable="/" if name == "git" else "-"
            )
    await watcher.conclude()


def result_of(record: JournalRecord) -> ToolResult | None:
    event = record.event
    return event.result if isinstance(event, ToolAnswered | CallEvaluated) else None


@pytest.mark.proves("attacks.every-door")
@pytest.mark.parametrize("tool", SIX)
def test_tools_call_on_the_command_line_reaches_nothing(
    tool: str, world: World, capsys: pytest.CaptureFixture[str], own_folders: Path
) -> None:
    allow = [word for rule in ANYTHING for word in ("--allow", rule)]
    harm: list[str] = []
    tried = [attack for attack in share(world, 4) if attack.tool.name == tool]
    for attack in tried:
        arguments = ["--json", json.dumps(attack.arguments), "--mode", "bypassPermissions", *allow]
        code = command_line.run(["tools", "call", tool, *arguments, "-C", str(world.root)])
        shown = capsys.readouterr()
        # The command line reads the configuration itself, to say that it is not trusted.
        configuration = tuple(
            f"{world.root}/{name}/" if name.startswith(".") else f"{world.root}/{name}"
            for name in COVERED_NAMES
        )
        # So it does with git's settings, to protect what they name.
        readable = "/" if tool == "git_command" else (*configuration, *world.git_settings)
        harm += [
            f"{attack.row.id}: {one}"
            for one in world.unharmed(shown.out, shown.err, readable=readable)
        ]
        wanted = {"refused": {4}, "denied": {4}, "fail": {1, 4}}.get(attack.must, {0, 1, 4})
        if code not in wanted:
            harm.append(f"{attack.row.id}: exit code {code}: {shown.err[-200:]}")
    journal = SqliteJournal(own_folders / "state" / "journal.db")
    said = [record.body for info in journal.sessions() for record in journal.records(info.session)]
    journal.close()
    assert len(said) >= len(tried)
    harm += world.unharmed(*said, look=True, readable="/")
    assert harm == [], "\n".join(harm[:20])


# ---- the table of commands


def shell_forms(command: str | tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """A command as text, and as a list of words."""
    if not isinstance(command, str):
        yield {"command": list(command)}
        return
    yield {"command": command}
    with contextlib.suppress(ValueError):
        if words := shlex.split(command):
            yield {"command": words}


async def test_a_command_that_names_what_is_off_limits_is_refused_even_if_all_is_allowed(
    world: World,
) -> None:
    ours = agent(world)
    watcher = Watcher(world, ours, ours.session())
    tool = BY_NAME["run_command"]
    for row in COMMANDS:
        if row.stage != "text":
            # The other way round: what the text does give away must be in the table as such.
            verdict = ours.gate.decide(tool, {"command": row.command}).verdict
            watcher.harm += [f"{row.id} is refused by its text: its stage is not kernel"] * (
                verdict == "deny"
            )
            continue
        for index, arguments in enumerate(shell_forms(row.command)):
            # As a list of words, shell syntax is text: then it need only do no harm.
            wanted = "refused" if index < 1 else ""
            result = await watcher.session.call(tool.name, **arguments)
            watcher.look(Attack(row, tool, arguments, wanted), result)
    await watcher.conclude()


async def test_a_command_whose_text_says_too_little_does_not_run_with_nobody_to_ask(
    world: World,
) -> None:
    ours = agent(world, mode="default", allow=PERMISSIVE, approver=NO)
    watcher = Watcher(world, ours, ours.session())
    tool = BY_NAME["run_command"]
    for row in COMMANDS:
        for index, arguments in enumerate(shell_forms(row.command)):
            if (
                index == 1
                and ours.gate.decide(tool, arguments).verdict == "allow"
                and row.stage == "kernel"
            ):
                continue  # Words instead of a shell's text: another command, which the rules allow.
            wanted = "refused" if index < 1 else ""
            result = await watcher.session.call(tool.name, **arguments)
            watcher.look(Attack(row, tool, arguments, wanted), result)
    for name, text in UNSEEN.items():
        arguments = {"command": text}
        assert ours.gate.decide(tool, arguments).verdict == "allow", (
            f"{name}: the text is enough now, move the row"
        )
    await watcher.conclude()


async def test_without_rules_every_command_needs_a_person(world: World) -> None:
    ours = agent(world, mode="default", allow=(), approver=NO)
    watcher = Watcher(world, ours, ours.session())
    tool = BY_NAME["run_command"]
    for command in [*(row.command for row in COMMANDS), *UNSEEN.values()]:
        arguments = next(shell_forms(command))
        row = SimpleNamespace(id=str(command)[:40])
        watcher.look(
            Attack(row, tool, arguments, "refused"),
            await watcher.session.call(tool.name, **arguments),
        )
    await watcher.conclude()


async def test_hostile_commands_written_as_a_command_of_the_model_or_typed_into_the_chat(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    interface = Through(world, "commands")
    tool = BY_NAME["run_command"]
    chat = Chat(
        TerminalAssembly(
            agent(world), load_settings(workspace=world.root), print, terminal=Terminal()
        ),
        interface.watcher.session,
    )
    world.unharmed()
    tried = 0
    for row in COMMANDS:
        if row.stage == "text" and isinstance(row.command, str):
            if not set(row.command) & {"`", "\n"} and row.command == row.command.strip():
                # It becomes this very call, and that call is refused: a reader that finds none
                # would prove nothing.
                tried += 1
                await interface.make(
                    Attack(row, tool, {"command": row.command}, "refused"),
                    says(f"`/run {row.command}`"),
                )
                assert interface.made == tried, row.id
            await SLASH["run"].run(chat, row.command)
            shown = capsys.readouterr()
            interface.watcher.harm += world.unharmed(shown.out, shown.err)
            records = interface.watcher.records()
            assert not any(isinstance(record.event, CallStarted) for record in records), row.id
    assert tried >= 30
    await interface.watcher.conclude()


# ---- the tables themselves


async def test_every_harmless_twin_can_be_read_listed_and_written(world: World) -> None:
    ours = agent(world)
    session = ours.session()
    for path in dict.fromkeys(world.text(row.twin) for row in PATHS):
        folder = path.endswith(("/", "/.", ".."))
        tried = {"list_files": {"path": path}} if folder else {"read_file": {"path": path}}
        if not folder:
            tried["write_file"] = {"path": path, "content": "plain\n"}
        for tool, arguments in tried.items():
            result = await session.call(tool, **arguments)
            assert result.success, (tool, path, result.error_message)
    assert world.unharmed(look=True) == []


def test_the_tables_are_large_and_each_row_says_where_it_comes_from() -> None:
    assert len({row.id for row in PATHS}) == len(PATHS) >= 150
    assert len({row.id for row in COMMANDS}) == len(COMMANDS) >= 100
    assert all(row.source and row.twin for row in (*PATHS, *COMMANDS))
    by_stage = Counter(row.stage for row in COMMANDS)
    by_kind = Counter(row.kind for row in PATHS)
    print(
        f"{len(PATHS)} paths {dict(by_kind)}; {len(COMMANDS)} commands {dict(by_stage)}, "
        f"{len(UNSEEN)} unseen"
    )
    assert by_stage["text"] >= 40 and by_stage["kernel"] >= 40


# ---- (g) a client of `ferrule serve mcp`


@pytest.mark.proves("attacks.every-door")
@pytest.mark.parametrize(("version", "step"), [("legacy", 9), ("2026-07-28", 3)])
async def test_a_call_of_an_mcp_client_reaches_nothing(
    version: str, step: int, world: World
) -> None:
    pytest.importorskip("mcp", reason="the extra `mcp` is not installed here")
    from mcp.client.client import Client
    from mcp.shared.memory import create_client_server_memory_streams

    from ferrule.servers.mcp import McpServer

    ours = agent(world)
    server, harm, seen, tried = McpServer(ours), list[str](), 0, six(world)[::step]

    @contextlib.asynccontextmanager
    async def streams() -> Any:
        async with create_client_server_memory_streams() as (theirs, mine):
            task = asyncio.create_task(server.connect(*mine))
            yield theirs
            for stream in theirs:
                await stream.aclose()
            await task

    async with Client(streams(), mode=version) as client:
        for attack in tried:
            answer = await client.call_tool(attack.tool.name, attack.arguments)
            (session,) = ours.journal.sessions()
            records = list(ours.journal.records(session.session, after=seen))
            seen += len(records)
            results = [result for record in records if (result := result_of(record)) is not None]
            harm += [] if len(results) == 1 else [f"{attack.row.id}: {len(results)} results"]
            started = any(isinstance(record.event, CallStarted) for record in records)
            harm += [one for result in results for one in attack.complaints(result, started)]
            told = [part.text for part in answer.content if part.type == "text"]
            readable = "/" if attack.tool.name == "git_command" else "-"
            harm += world.unharmed(*told, *(record.body for record in records), readable=readable)
    await server.close()
    assert harm == [], "\n".join(harm[:20])
    assert len(tried) >= (243 * 4 + 147 * 2) // step
