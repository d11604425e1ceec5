"""Who may say what runs: prefixes, the policy function, the gate; in a list of words and in a shell
alike.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from command_world import World
from hypothesis import given
from hypothesis import strategies as st

from ferrule.core.calls import ErrorType, ToolCall, ToolResult
from ferrule.core.errors import ConfigError, ToolFailed
from ferrule.engine.agent import Agent
from ferrule.engine.agent_options import Permissions, Storage
from ferrule.models.scripted import Scripted, says
from ferrule.permissions.approvals import ApprovalAnswer, Approver
from ferrule.permissions.command_analysis.analysis import analyse_command
from ferrule.permissions.safe_mode import SafeMode
from ferrule.plugins import Parts
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.toolkits.commands import CommandOptions, CommandPolicy, command_tools
from ferrule.toolkits.commands.policy import Behavior, find_prefix_violation
from ferrule.toolkits.commands.request import parse_request

PREFIXES = [["git", "status"], ["git", "log"], "echo", ["sed", "-n"]]


@pytest.fixture
def guarded(world: World) -> World:
    world.set(allow_argv_prefixes=PREFIXES)
    return world


def blocked(record: Mapping[str, Any]) -> bool:
    return (
        record["status"] == "blocked" and record["blocked"] is True and record["success"] is False
    )


# ---- prefixes


@pytest.mark.proves("command.prefixes")
async def test_git_push_is_blocked_with_the_allowed_prefixes_as_a_list_and_in_a_shell(
    guarded: World,
) -> None:
    record = await guarded.run(["git", "push"])
    assert blocked(record)
    assert record["argv"] == ["git", "push"]
    assert record["allowed_argv_prefixes"] == [
        ["git", "status"],
        ["git", "log"],
        ["echo"],
        ["sed", "-n"],
    ]
    assert "not among the allowed commands" in record["reason"]
    in_shell = await guarded.run("git push")
    assert blocked(in_shell) and in_shell["command"] == "git push"
    assert guarded.list_left_files() == []


@pytest.mark.proves("command.prefixes")
async def test_what_begins_as_a_prefix_says_runs_in_both_forms(guarded: World) -> None:
    assert (await guarded.run(["echo", "hi"]))["stdout"] == "hi\n"
    assert (await guarded.run("echo a && echo b 2>/dev/null 2>&1"))["stdout"] == "a\nb\n"
    assert (await guarded.run("echo one | sed -n p"))["stdout"] == "one\n"
    assert (await guarded.run("echo $(echo in)"))["stdout"] == "in\n"
    assert (await guarded.run(["sh", "-c", "echo hi"]))["status"] == "blocked"


EVASIONS = [
    "git push",
    "echo a; rm a.txt",
    "echo a && rm a.txt",
    "echo a || rm a.txt",
    "echo a | rm a.txt",
    "echo a & rm a.txt",
    "echo $(rm a.txt)",
    "echo `rm a.txt`",
    "echo <(rm a.txt)",
    "(rm a.txt)",
    "{ rm a.txt; }",
    "! rm a.txt",
    "echo a\nrm a.txt",
    "X=1 echo a",
    "PATH=. echo a",
    "PATH=.",
    "echo a > a.txt",
    "echo a >> a.txt",
    "> a.txt",
    "echo a 2> a.txt",
    "echo a &> a.txt",
    "echo() { rm a.txt; }; echo",
    "for f in *; do rm a.txt; done",
    "$X a.txt",
    "if echo; then rm a.txt; fi",
    "eval rm a.txt",
    "exec rm a.txt",
    "command rm a.txt",
    "echo 'rm a.txt' | sh",
    "env echo a",
    "timeout 5 git push",
    "git -c core.pager=x status",
    "git  push",
    "g'i't push",
    "\\git push",
    "./echo",
    "/bin/rm a.txt",
    "alias echo=rm; echo a.txt",
    "trap 'rm a.txt' EXIT",
    "sh -c 'rm a.txt'",
    "while rm a.txt; do echo; done",
    "ec$'h'o; rm a.txt",
    "cat <<EOF | sh\nrm a.txt\nEOF",
    "echo ${x:=$(rm a.txt)}",
    "echo 'open",
    "coproc rm a.txt",
    "echo a >| a.txt",
    "echo a <> a.txt",
    "[[ -n $(rm a.txt) ]]",
    "(( x[$(rm a.txt)] ))",
    "case x in $(rm a.txt)) ;; esac",
    "source a.txt",
    ". a.txt",
]


@pytest.mark.proves("command.prefixes")
@pytest.mark.parametrize("text", EVASIONS)
async def test_no_way_of_writing_gets_around_the_prefixes(guarded: World, text: str) -> None:
    forms: list[dict[str, Any]] = [
        {"command": text, "mode": "shell"},
        {"command": text, "mode": "argv"},
    ]
    forms += [{"argv": [shell, "-c", text]} for shell in ("sh", "bash")]
    for arguments in forms:
        try:
            record = await guarded.call("run_command", **arguments)
        except ToolFailed:
            continue
        assert blocked(record), (arguments, record)
    assert (guarded.folder / "a.txt").read_text() == "one\ntwo\n"


@pytest.mark.proves("command.prefixes")
async def test_a_shell_that_a_prefix_names_runs_only_what_the_others_allow(world: World) -> None:
    world.set(allow_argv_prefixes=["sh", "echo"])
    assert (await world.run(["sh", "-c", "echo hi"]))["stdout"] == "hi\n"
    assert blocked(await world.run(["sh", "-c", "rm a.txt"]))


async def test_an_empty_list_allows_nothing(world: World) -> None:
    world.set(allow_argv_prefixes=[])
    assert blocked(await world.run(["true"]))


@pytest.mark.proves("command.prefixes")
@given(
    st.lists(
        st.sampled_from(["git", "push", "status", "log", "-c", "x", "", " ", ";", "a b"]),
        min_size=1,
        max_size=4,
    )
)
def test_adding_words_to_an_allowed_command_never_blocks_it_and_others_never_pass(
    words: list[str],
) -> None:
    prefixes = (("git", "status"), ("git", "log"))
    why = find_prefix_violation(words, analyse_command(words), prefixes, shell=False)
    assert (why == "") == (tuple(words[:2]) in prefixes)
    text = shlex.join(words)
    in_shell = find_prefix_violation(
        ("bash", "-c", text), analyse_command(text), prefixes, shell=True
    )
    assert not (in_shell == "" and why)


# ---- the policy function


@pytest.mark.parametrize("answer", [None, True, {}, {"allow": True}, {"reason": "fine"}])
async def test_nothing_and_true_allow(world: World, answer: object) -> None:
    world.set(command_policy=lambda request, args: answer)
    assert (await world.run(["echo", "hi"]))["stdout"] == "hi\n"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (False, "does not allow"),
        ("only git", "only git"),
        ("", "does not allow"),
        ({"deny": True}, "does not allow"),
        ({"deny": "no rm"}, "no rm"),
        ({"allow": False, "reason": "why"}, "why"),
        ({"deny": True, "reason": "why"}, "why"),
        ({"deny": True, "patch": {"argv": ["true"]}}, "does not allow"),
    ],
)
async def test_false_and_text_deny_with_the_reason_and_nothing_runs(
    world: World, answer: object, reason: str
) -> None:
    world.set(command_policy=lambda request, args: answer)
    for command in (["touch", "made"], "touch made"):
        record = await world.run(command)
        assert blocked(record) and reason in record["reason"]
    assert not (world.folder / "made").exists()
    assert world.list_left_files() == []


@pytest.mark.parametrize(
    "answer",
    [1, 0, [], ["no"], object(), {"denied": True}, {"patch": "x"}, {"request": ["x"]}, b"no"],
)
async def test_an_answer_that_means_nothing_is_an_error_and_nothing_runs(
    world: World, answer: object
) -> None:
    world.set(command_policy=lambda request, args: answer)
    with pytest.raises(ConfigError, match="command_policy"):
        await world.run(["touch", "made"])
    assert not (world.folder / "made").exists()


async def test_a_policy_that_breaks_runs_nothing_and_an_async_one_is_awaited(world: World) -> None:
    async def slow(request: dict[str, Any], args: Mapping[str, Any]) -> str:
        return "slowly: no"

    world.set(command_policy=slow)
    assert (await world.run(["touch", "made"]))["reason"] == "slowly: no"
    world.set(command_policy=lambda request, args: request["nothing"])
    with pytest.raises(KeyError):
        await world.run(["touch", "made"])
    assert not (world.folder / "made").exists()


async def test_a_policy_is_shown_what_would_run_and_what_the_model_gave(world: World) -> None:
    seen: list[tuple[dict[str, Any], Mapping[str, Any]]] = []
    world.set(command_policy=lambda request, args: seen.append((request, args)))
    await world.call("run_command", command="echo 'a b'", cwd="sub")
    await world.run("echo hi | cat")
    (request, args), (in_shell, _) = seen
    assert (request["mode"], request["argv"], request["cwd"]) == ("argv", ["echo", "a b"], "sub")
    assert dict(args) == {"command": "echo 'a b'", "mode": "argv", "cwd": "sub", "stdin": ""}
    assert (in_shell["mode"], in_shell["command"]) == ("shell", "echo hi | cat")


async def test_the_example_of_the_requirement_holds_in_both_modes(world: World) -> None:
    def only_git(request: dict[str, Any], args: Mapping[str, Any]) -> object:
        if request["mode"] == "argv" and request["argv"][0] == "git":
            return True
        return "only git inspection commands are allowed in this harness"

    world.set(command_policy=only_git)
    assert (await world.run(["git", "--version"]))["success"]
    for command in (["ls"], "git --version"):
        assert blocked(await world.run(command))


# ---- changing the request


@pytest.mark.parametrize(
    "answer",
    [
        {"patch": {"argv": ["echo", "changed"]}},
        {"patch": {"command": "echo changed"}},
        {"patch": {"command": "echo changed | cat", "mode": "shell"}},
        {"request": {"argv": ["echo", "changed"]}},
        {"request": {"command": ["echo", "changed"]}},
    ],
)
async def test_a_policy_puts_another_request_in_place(world: World, answer: dict[str, Any]) -> None:
    world.set(
        command_policy=lambda request, args: answer if "changed" not in str(request) else None
    )
    assert (await world.run(["touch", "made"]))["stdout"] == "changed\n"
    assert not (world.folder / "made").exists()


async def test_a_policy_may_keep_the_words_and_change_the_rest(world: World) -> None:
    world.set(
        command_policy=lambda request, args: {
            "patch": {"cwd": "sub", "env": {"CI": "1"}},
            "policy_context": {"by": "me"},
        }
    )
    record = await world.run("pwd; echo $CI")
    assert record["stdout"] == f"{world.folder}/sub\n1\n"
    assert record["policy_context"] == {"by": "me"}
    world.set(command_policy=lambda request, args: {"request": {**request, "cwd": "sub"}})
    assert (await world.run(["pwd"]))["stdout"] == f"{world.folder}/sub\n"


@pytest.mark.parametrize(
    "changed",
    [
        {"argv": ["rm", "a.txt"]},
        {"command": "rm a.txt", "mode": "shell"},
        {"argv": ["touch", "x"], "cwd": ".."},
        {"argv": ["echo"], "env": {"LD_PRELOAD": "x"}},
        {"argv": ["sh", "-c", "rm a.txt"]},
        {"argv": ["echo"], "other": 1},
        {},
    ],
)
async def test_what_a_policy_puts_in_place_meets_every_check(
    world: World, changed: dict[str, Any]
) -> None:
    world.set(
        CommandPolicy(safe_mode=SafeMode(programs=("echo", "true"))),
        allow_argv_prefixes=["echo", "true"],
        command_policy=lambda request, args: {"request": changed},
    )
    try:
        record = await world.run(["true"])
    except ToolFailed:
        record = None
    assert record is None or blocked(record)
    assert (world.folder / "a.txt").exists()


async def test_a_policy_that_never_comes_to_an_end_is_a_no(world: World) -> None:
    world.set(command_policy=lambda request, args: {"patch": {"argv": [*request["argv"], "more"]}})
    with pytest.raises(ToolFailed, match="keeps changing"):
        await world.run(["touch", "made"])
    assert not (world.folder / "made").exists()


async def test_the_changed_request_goes_through_the_pipeline_of_the_session(world: World) -> None:
    asked: list[tuple[str, dict[str, Any]]] = []

    async def pipeline(name: str, arguments: dict[str, Any]) -> ToolResult:
        asked.append((name, arguments))
        return ToolResult.error(
            ToolCall("c", name), ErrorType.PERMISSION_DENIED, "denied by a rule"
        )

    world.set(
        command_policy=lambda r, a: {"patch": {"argv": ["touch", "made"]}},
        names={"run_command": "go"},
        namespace="ns",
    )
    with pytest.raises(ToolFailed, match="denied by a rule"):
        await world.run(["true"], context=world.context(call=pipeline))
    assert [(name, arguments["command"]) for name, arguments in asked] == [
        ("ns::go", ["touch", "made"])
    ]
    assert not (world.folder / "made").exists()


REQUESTS = st.fixed_dictionaries(
    {"command": st.one_of(st.lists(st.text(), min_size=1, max_size=3), st.text(min_size=1))},
    optional={
        "mode": st.sampled_from(["argv", "shell"]),
        "cwd": st.sampled_from([".", "sub"]),
        "env": st.dictionaries(
            st.sampled_from(["CI", "DEBUG"]), st.text(st.characters(exclude_characters="\0"))
        ),
        "env_remove": st.lists(st.sampled_from(["LANG", "PATH"])),
        "stdin": st.text(),
        "timeout_ms": st.one_of(st.none(), st.integers(1, 3_600_000)),
        "capture": st.one_of(
            st.none(),
            st.fixed_dictionaries({}, optional={"max_inline_bytes": st.integers(0, 10**6)}),
        ),
        "background": st.one_of(st.none(), st.booleans()),
        "background_after_ms": st.one_of(st.none(), st.integers(0, 10_000)),
        "progress_interval_ms": st.one_of(st.none(), st.integers(10, 10_000)),
    },
)


@given(REQUESTS, st.one_of(st.none(), st.integers(0, 1000)), st.integers(0, 10**5))
def test_a_request_read_again_is_the_same_request(
    given_: dict[str, Any], after: int | None, inline: int
) -> None:
    options = CommandOptions(
        behavior=Behavior(background_after_ms=after), max_inline_bytes=inline, cwd="sub"
    )
    request = parse_request(given_, options, CommandPolicy())
    assert parse_request(request.to_arguments(), options, CommandPolicy()) == request


# ---- asking


class Person:
    """Answers every question the same, and remembers them."""

    def __init__(self, choice: Any) -> None:
        self.choice, self.requests = choice, list[Any]()

    async def ask(self, request: Any) -> ApprovalAnswer:
        self.requests.append(request)
        return ApprovalAnswer(self.choice, note="too risky")


async def test_a_policy_can_ask_the_person(world: World) -> None:
    ask = {"require_approval": True, "reason": "this deploys"}
    world.set(command_policy=lambda request, args: ask)
    yes = world.resources[Approver] = Person("once")
    assert (await world.run(["echo", "hi"]))["stdout"] == "hi\n"
    assert yes.requests[0].reason == "this deploys" and yes.requests[0].preview.startswith(
        "echo hi\n"
    )
    world.resources[Approver] = Person("deny")
    record = await world.run(["touch", "made"])
    assert blocked(record) and "too risky" in record["reason"]
    del world.resources[Approver]
    record = await world.run(["touch", "made"])
    assert blocked(record) and "nobody can be asked" in record["reason"]
    assert not (world.folder / "made").exists()


# ---- with the gate


def session(world: World, *, allow: list[str], steps: Sequence[Any] = (), **options: Any) -> Any:
    tools = command_tools(CommandOptions(output_format="value", **options))
    return Agent(
        Scripted(list(steps)),
        tools,
        workspace=world.folder,
        permissions=Permissions(allow=allow),
        storage=Storage(journal=SqliteJournal(":memory:")),
        plugins=[Parts(resources=[CommandPolicy(shell_allowed=True)])],
    ).session()


async def test_the_gate_judges_what_a_policy_put_in_place(world: World) -> None:
    ours = session(
        world,
        allow=["Bash(true)", "Bash(echo:*)"],
        command_policy=lambda request, args: (
            {"patch": {"argv": request["env"]["CI"].split(), "env": {}}} if request["env"] else None
        ),
    )
    result = await ours.call("run_command", argv=["true"], env={"CI": "echo hi"})
    assert result.data["stdout"] == "hi\n"
    result = await ours.call("run_command", argv=["true"], env={"CI": "touch made"})
    assert result.error_type is ErrorType.PERMISSION_DENIED
    assert not (world.folder / "made").exists()
    await ours.close()


@pytest.mark.proves("command.prefixes")
async def test_prefixes_narrow_what_the_gate_allows_and_never_widen_it(world: World) -> None:
    ours = session(world, allow=["Bash(echo:*)"], allow_argv_prefixes=["echo", "touch"])
    assert (await ours.call("run_command", argv=["echo", "hi"])).data["stdout"] == "hi\n"
    denied = await ours.call("run_command", argv=["touch", "made"])
    assert denied.error_type is ErrorType.PERMISSION_DENIED
    assert not (world.folder / "made").exists()
    await ours.close()


@pytest.mark.proves("command.background")
async def test_the_end_of_a_background_command_reaches_the_model_with_the_next_message(
    world: World,
) -> None:
    ours = session(world, allow=["Bash", "Bash(*)"], steps=[says("thanks")])
    record = (
        await ours.call("run_command", argv=["echo", "from the background"], background=True)
    ).data
    handle = ours.driver.memory["ferrule.commands"].find(
        record["command_id"], ours.driver.log.identity
    )
    await handle.done.wait()
    await ours.run("go on")
    asked = "\n".join(message.text for message in ours.driver.machine.history)
    assert "ended with exit status 0" in asked and "from the background" in asked
    assert '<notice source="run_command">' in asked
    await ours.close()


async def test_a_session_that_is_closed_ends_its_background_commands(world: World) -> None:
    ours = session(world, allow=["Bash", "Bash(*)"])
    record = (await ours.call("run_command", argv=["sleep", "1000"], background=True)).data
    assert record["status"] == "running"
    commands = ours.driver.memory["ferrule.commands"]
    assert commands.running_count == 1
    await ours.close()
    assert commands.running_count == 0
