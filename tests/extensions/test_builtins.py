"""Built-ins in a real session: every effect goes through the gate, the workspace and the
journal.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import pytest
from script_sessions import ScriptSession

from ferrule import Agent, Storage, tool
from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.core.events import DirectCall, Noticed
from ferrule.core.identity import Identity
from ferrule.engine.hooks.events import Action, ToolPost, modify
from ferrule.extensions.builtins import dispatch as builtins
from ferrule.extensions.builtins.dispatch import Builtins, ScriptEnvironment
from ferrule.extensions.hooks.decorator import hook
from ferrule.extensions.starlark.inside import names
from ferrule.models.scripted import Scripted, calls, says
from ferrule.toolkits.commands import CommandOptions, CommandPolicy, command_tools, run_command
from ferrule.tools.context import PROGRESS_TOPIC, Context
from ferrule.tools.definition import Tool

# ---- files


async def test_a_file_is_read_to_the_byte(script_session: ScriptSession) -> None:
    assert await script_session.value("return fs.read('a.txt')") == "one\r\ntwo\n\nlast"


async def test_a_file_larger_than_a_result_is_read_in_pieces(script_session: ScriptSession) -> None:
    text = "ü€\x01" * 60_000
    (script_session.folder / "big.txt").write_text(text)
    assert await script_session.value(
        "t = fs.read('big.txt')\nreturn [len(t), hash.sha256(t)]"
    ) == [
        len(text),
        sha256(text.encode()).hexdigest(),
    ]


async def test_a_script_can_do_with_files_what_the_matrix_says(
    script_session: ScriptSession,
) -> None:
    body = """
found = {}
found["write"] = fs.write("new/b.txt", "1\\n2\\n3\\n")
found["append"] = fs.append("new/b.txt", "4\\n")
fs.append("fresh.txt", "x")
fs.replace("new/b.txt", "2", "two")
fs.insert_at("new/b.txt", 1, "0")
fs.replace_lines("new/b.txt", 2, 2, "one")
fs.replace_all("fresh.txt", "x", "y")
fs.mkdir("empty")
fs.move("fresh.txt", "moved.txt")
found["lines"] = fs.read_lines("new/b.txt")
found["some"] = fs.read_lines("new/b.txt", 2, 3)
found["there"] = [fs.exists("new/b.txt"), fs.exists("new"), fs.exists("nope"), fs.exists("fresh.txt")]
found["stat"] = {k: v for k, v in fs.stat("moved.txt").items() if k != "modified"}
found["list"] = [(e["name"], e["kind"]) for e in fs.list("new")]
found["find"] = fs.find(".", "*.txt")
fs.remove("empty")
fs.remove("new", recursive=True)
found["gone"] = fs.exists("new")
return found
"""
    assert await script_session.value(body) == {
        "write": 6,
        "append": 8,
        "lines": ["0", "one", "two", "3", "4"],
        "some": ["one", "two"],
        "there": [True, True, False, False],
        "stat": {"path": "moved.txt", "name": "moved.txt", "kind": "file", "size": 1},
        "list": [["b.txt", "file"]],
        "find": ["a.txt", "moved.txt", "new/b.txt"],
        "gone": False,
    }


async def test_a_part_of_an_answer_is_never_taken_for_the_whole(
    script_session: ScriptSession,
) -> None:
    for number in range(400):
        (script_session.folder / f"{number:03}{'x' * 200}").touch()
    result = await script_session.run("return len(fs.find())")
    assert result.error_type is ErrorType.LIMIT
    assert "larger than a result may be" in (result.error_message or "")


@pytest.mark.parametrize(
    "body",
    [
        "return fs.read('.env')",
        "return fs.write('.env', 'x')",
        "return fs.read('../outside.txt')",
        "return fs.read('/etc/passwd')",
        "return fs.write('.harness/tools/more.md', 'x')",
        "return fs.remove('.env')",
        "return fs.stat('.env')",
        "return fs.move('a.txt', '.git/hooks/post-checkout')",
    ],
)
async def test_a_script_may_not_touch_what_no_tool_may_touch(
    script_session: ScriptSession, body: str
) -> None:
    (script_session.folder.parent / "outside.txt").write_text("outside")
    result = await script_session.run(body)
    assert not result.success
    assert result.error_type in (ErrorType.PERMISSION_DENIED, ErrorType.VALIDATION_FAILED)
    assert (script_session.folder / ".env").read_text() == "SECRET=1"
    assert "outside" not in (result.error_message or "").replace("outside.txt", "").replace(
        "outside the", ""
    )


async def test_a_deny_rule_for_a_tool_holds_for_scripts(script_session: ScriptSession) -> None:
    script_session.options["deny"] = ["write_file"]
    result = await script_session.run("return fs.write('b.txt', 'x')")
    assert (result.success, result.error_type) == (False, ErrorType.PERMISSION_DENIED)
    assert not (script_session.folder / "b.txt").exists()


async def test_what_a_person_would_be_asked_is_asked_for_scripts_too(
    script_session: ScriptSession,
) -> None:
    script_session.options["mode"] = "default"  # And nobody is there to answer.
    result = await script_session.run("return fs.write('b.txt', 'x')")
    assert (result.success, result.error_type) == (False, ErrorType.PERMISSION_DENIED)
    assert not (script_session.folder / "b.txt").exists()


async def test_what_a_script_does_stands_in_the_journal(script_session: ScriptSession) -> None:
    await script_session.value("fs.write('b.txt', 'x')\nreturn fs.read('b.txt')")
    assert script_session.session is not None
    calls = [
        event.call.tool
        for record in script_session.journal.records(script_session.session.id)
        if (event := record.event) and hasattr(event, "call")
    ]
    assert calls == ["mine", "write_file", "read_text"]


async def test_a_tool_that_the_run_has_not_is_named(script_session: ScriptSession) -> None:
    agent = Agent(
        Scripted([]),
        [script_session.tool("return fs.read('a.txt')")],
        workspace=script_session.folder,
        storage=Storage(journal=script_session.journal),
    )
    script_session.session = agent.session()
    result = await script_session.session.call("mine")
    assert result.error_type is ErrorType.NOT_FOUND
    assert "there is no tool `read_text`" in (result.error_message or "")
    other = Agent(
        Scripted([]),
        [script_session.tool("return fs.exists('a.txt')")],
        workspace=script_session.folder,
        storage=Storage(journal=script_session.journal),
    )
    session = other.session()
    assert (await session.call("mine")).error_type is ErrorType.NOT_FOUND
    await session.close()


# ---- commands


PLAIN = (run_command,)
FULL = command_tools(CommandOptions(output_format="value"))


@pytest.mark.parametrize("commands", [PLAIN, FULL], ids=["plain", "full"])
async def test_a_command_is_run_and_its_outcome_is_a_dictionary(
    script_session: ScriptSession, commands: tuple[Tool, ...]
) -> None:
    script_session.commands = commands
    script_session.options["resources"] = [CommandPolicy(shell_allowed=True)]
    body = """
good = exec.run("printf", ["hi"], 15000)
bad = exec.run("ls", ["does-not-exist"])
return [good["ok"], good["stdout"], good["exit_code"], bad["ok"], bad["exit_code"], "does-not-exist" in bad["stdout"] + bad["stderr"], sorted(good)]
"""
    assert await script_session.value(body) == [
        True,
        "hi",
        0,
        False,
        2,
        True,
        ["duration_ms", "exit_code", "ok", "stderr", "stdout", "timed_out", "truncated"],
    ]


JSON = command_tools(CommandOptions(output_format="json"))
DISPLAY = command_tools(CommandOptions(output_format="display"))
FORMS = pytest.mark.parametrize(
    "commands", [PLAIN, FULL, JSON, DISPLAY], ids=["plain", "full", "json", "display"]
)


ENDINGS = [
    ("printf '[exit status 1]'", 0, "[exit status 1]"),
    ("printf 'x\\n[exit status 1]\\n'", 0, "x\n[exit status 1]\n"),
    ("printf '[exit status 0]'; exit 3", 3, "[exit status 0]"),
    ("printf 'x\\n[exit status 2]\\n'; exit 3", 3, "x\n[exit status 2]\n"),
    ("printf '(no output)\\n'", 0, "(no output)\n"),
    ("printf '(no output)'; exit 1", 1, "(no output)"),
    ("exit 4", 4, ""),
    ("true", 0, ""),
    ("kill -9 $$", -1, ""),
    ("printf '\\n\\n'; exit 5", 5, "\n\n"),
    ("printf '[ended by SIGKILL]'", 0, "[ended by SIGKILL]"),
]
"""Programs, their exit status, and what they print."""


@FORMS
async def test_a_script_gets_the_status_and_the_output_whatever_a_program_prints(
    script_session: ScriptSession, commands: tuple[Tool, ...]
) -> None:
    script_session.commands = commands
    script_session.options["resources"] = [CommandPolicy(shell_allowed=True)]
    for number, (program, _, _) in enumerate(ENDINGS):
        (script_session.folder / f"{number}.sh").write_text(program)
    body = f"return [exec.run('sh', [str(n) + '.sh']) for n in range({len(ENDINGS)})]"
    found = [
        (one["exit_code"], one["ok"], one["stdout"]) for one in await script_session.value(body)
    ]
    assert found == [(code, code == 0, out) for _, code, out in ENDINGS]


@FORMS
async def test_a_long_output_keeps_its_status(
    script_session: ScriptSession, commands: tuple[Tool, ...]
) -> None:
    script_session.commands = commands
    script_session.options["resources"] = [CommandPolicy(shell_allowed=True)]
    (script_session.folder / "p.sh").write_text("yes '[exit status 7]' | head -c 200000; exit 3")
    value = await script_session.value(
        "r = exec.run('sh', ['p.sh'])\nreturn [r['exit_code'], len(r['stdout']) > 1000]"
    )
    assert value == [3, True]


async def test_a_hook_that_withholds_the_output_withholds_it_from_scripts(
    script_session: ScriptSession,
) -> None:
    @hook("tool.post", when='name == "run_command"')
    def redact(result: ToolPost) -> Action:
        return modify({"result": "[redacted]"})

    script_session.options["hooks"] = [redact]
    value = await script_session.value("return exec.run('printf', ['secret'])")
    assert (value["stdout"], value["exit_code"]) == ("[redacted]", 0)


async def test_a_command_tool_of_somebody_else_is_believed_in_its_last_line_only(
    script_session: ScriptSession,
) -> None:
    @tool(side_effect="execute", name="run_command")
    def theirs(command: list[str], timeout: int, cwd: str) -> str:
        """Run something."""
        return {"a": "[exit status 2]\nmore", "b": "out\n[exit status 2]", "c": "[exit status 2]"}[
            command[0]
        ]

    script_session.commands = (theirs,)
    body = "return [[r['exit_code'], r['stdout']] for r in [exec.run(c) for c in ['a', 'b', 'c']]]"
    assert await script_session.value(body) == [[0, "[exit status 2]\nmore"], [2, "out"], [2, ""]]


@pytest.mark.parametrize("program", ["ls | wc", "ls > f", "a; b", "a && b", "a\nb"])
async def test_a_line_for_a_shell_is_no_program(
    script_session: ScriptSession, program: str
) -> None:
    result = await script_session.run(f"return exec.run({program!r})")
    assert (result.success, result.error_type) == (False, ErrorType.VALIDATION_FAILED)


async def test_a_command_that_takes_too_long_is_an_outcome_and_not_an_error(
    script_session: ScriptSession,
) -> None:
    value = await script_session.value("return exec.run('sleep', ['60'], 1000)")
    assert (value["ok"], value["timed_out"], value["exit_code"]) == (False, True, -1)


@pytest.mark.parametrize("commands", [PLAIN, FULL], ids=["plain", "full"])
async def test_the_example_of_the_requirement_runs_or_names_the_setting_that_lets_it(
    script_session: ScriptSession, commands: tuple[Tool, ...]
) -> None:
    script_session.commands = commands
    script_session.options["resources"] = [CommandPolicy(shell_allowed=False)]
    body = "return exec.run('bash', ['-lc', args['command']], 15000)"
    refused = await script_session.run(body, {"command": "printf hi"})
    assert refused.error_type is ErrorType.PERMISSION_DENIED
    assert "`commands.shell: true`" in (refused.error_message or "")
    assert script_session.session is not None
    await script_session.session.close()
    script_session.session = None
    script_session.options["resources"] = [CommandPolicy(shell_allowed=True)]
    assert (await script_session.value(body, {"command": "printf hi"}))["stdout"] == "hi"


async def test_the_time_of_a_command_is_in_milliseconds_and_0_is_the_longest_there_is(
    script_session: ScriptSession,
) -> None:
    asked: list[float] = []

    @tool(side_effect="execute", name="run_command")
    def heard(command: list[str], timeout: float, cwd: str) -> str:
        """Run something."""
        asked.append(timeout)
        return ""

    script_session.commands = (heard,)
    body = "return exec.run('true', [], args['milliseconds'])['ok']"
    for milliseconds in (1, 15, 999, 1000, 1001, 30_000, 0):
        await script_session.value(body, {"milliseconds": milliseconds})
    assert asked == [0.001, 0.015, 0.999, 1, 1.001, 30, 3600]
    for wrong in (-1, 3_600_001, "soon", True):
        result = await script_session.run(body, {"milliseconds": wrong})
        assert result.error_type is ErrorType.VALIDATION_FAILED
        assert "milliseconds from 1 to 3600000" in (result.error_message or "")


async def test_a_command_is_ended_after_its_milliseconds(script_session: ScriptSession) -> None:
    value = await script_session.value("return exec.run('sleep', ['60'], 50)")
    assert value["timed_out"]


async def test_a_command_that_a_rule_denies_is_not_run(script_session: ScriptSession) -> None:
    script_session.options["deny"] = ["Bash(touch *)"]
    result = await script_session.run("return exec.run('touch', ['made'])")
    assert result.error_type is ErrorType.PERMISSION_DENIED
    assert not (script_session.folder / "made").exists()


# ---- cache, log, env, delegate, meta


async def test_the_cache_lasts_for_the_session_and_is_the_files_own(
    script_session: ScriptSession,
) -> None:
    body = (
        'n = cache.get("n", 0) + 1\ncache.set("n", n)\nreturn [n, cache.has("n"), '
        'cache.get("other")]'
    )
    script_session.open(script_session.tool(body), script_session.tool(body, "theirs"))
    assert script_session.session is not None
    assert [
        (await script_session.session.call(name)).data[0]
        for name in ("mine", "mine", "theirs", "mine")
    ] == [
        1,
        2,
        1,
        3,
    ]
    assert script_session.agent is not None
    fresh = script_session.agent.session()
    assert (await fresh.call("mine")).data == [1, True, None]
    await fresh.close()


async def test_the_cache_is_bounded(script_session: ScriptSession) -> None:
    result = await script_session.run("cache.set('a', 'x' * 2000000)\nreturn 1")
    assert result.error_type is ErrorType.LIMIT
    assert "cache" in (result.error_message or "")


async def test_the_cache_forgets_what_is_deleted(script_session: ScriptSession) -> None:
    body = (
        'cache.set("a", 1)\ncache.set("b", 2)\ncache.delete("a")\nhad = [cache.has("a"), '
        'cache.has("b")]\ncache.clear()\nreturn had + [cache.has("b")]'
    )
    assert await script_session.value(body) == [False, True, False]


async def test_printed_lines_are_shown_to_the_person_and_not_to_the_model(
    script_session: ScriptSession,
) -> None:
    assert (
        await script_session.value("print('step', 1)\nlog.warn('odd', code=7)\nreturn 'done'")
        == "done"
    )
    assert script_session.shown == ["mine: step 1", "mine: warn: odd code=7"]


async def test_printed_lines_stand_in_the_journal_between_the_calls_they_were_printed_between(
    script_session: ScriptSession,
) -> None:
    await script_session.value(
        "print('before')\nfs.exists('a.txt')\nlog('after', n=1)\nlog.error('odd')\nreturn 1"
    )
    said = [
        event.text if isinstance(event, Noticed) else event.call.tool
        for event in script_session.events()
        if isinstance(event, (Noticed, DirectCall))
    ]
    assert said == ["mine", "mine: before", "stat_path", "mine: after n=1", "mine: error: odd"]
    assert script_session.notices(PROGRESS_TOPIC) == [
        "mine: before",
        "mine: after n=1",
        "mine: error: odd",
    ]


async def test_the_journal_keeps_a_bounded_part_of_what_is_printed_and_says_so(
    script_session: ScriptSession,
) -> None:
    await script_session.value("print('x' * 5000)\nfor n in range(500):\n    print(n)\nreturn 1")
    kept = script_session.notices(PROGRESS_TOPIC)
    assert len(kept) == 201
    assert kept[0].endswith("x [3006 more characters]")
    assert kept[-1] == "mine: [more than 200 lines; the rest is not kept]"


async def test_a_model_is_told_nothing_of_what_a_script_prints(
    script_session: ScriptSession,
) -> None:
    model = Scripted([calls(("mine", {})), says("done")])
    agent = Agent(
        model,
        [script_session.tool("print('hidden words')\nreturn 1")],
        storage=Storage(journal=script_session.journal),
    )
    session = agent.session()
    await session.run("go")
    assert "hidden words" not in repr(session.driver.machine.history)
    await session.close()


async def test_time_chance_and_waiting_are_answered_by_the_run(
    script_session: ScriptSession,
) -> None:
    body = (
        "sleep(1)\nreturn [type(time.now()), len(uuid.v4()), [random(1, 2) in (1, 2) for i in "
        "range(20)]]"
    )
    assert await script_session.value(body) == ["float", 36, [True] * 20]


async def test_a_script_sees_the_environment_that_child_processes_see(
    script_session: ScriptSession,
) -> None:
    script_session.world = ScriptEnvironment(
        variables={"LANG": "C", "API_TOKEN": "secret", "OTHER": "x"}
    )
    body = "return [env('LANG'), env('API_TOKEN'), env('OTHER', 'none')]"
    assert await script_session.value(body) == ["C", None, "none"]


async def test_delegate_and_meta_are_refused_where_the_run_has_none(
    script_session: ScriptSession,
) -> None:
    for body in ("return delegate('do it')", "return meta.tool_register('x', {})"):
        script_session.session = None
        result = await script_session.run(body)
        assert result.error_type is ErrorType.PERMISSION_DENIED
        assert script_session.session is not None
        await script_session.session.close()


async def test_delegate_and_meta_reach_what_the_run_gives(script_session: ScriptSession) -> None:
    heard: list[Any] = []

    async def delegate(context: Context, given: Mapping[str, Any]) -> Any:
        heard.append(("delegate", dict(given)))
        return {"text": "done"}

    async def meta(context: Context, action: str, given: Mapping[str, Any]) -> Any:
        heard.append((action, dict(given)))
        return "ok"

    script_session.world = ScriptEnvironment(delegate=delegate, meta=meta)
    body = """
meta.tool_register("t", {"script": "s"})
meta.hook_register("h", on=["tool.pre"])
meta.list_tools("a*")
delegate({"task": "b", "agent": "x"})
return delegate("a", tools=["read_file"])["text"]
"""
    assert await script_session.value(body) == "done"
    assert heard == [
        ("tool_register", {"script": "s", "name": "t"}),
        ("hook_register", {"on": ["tool.pre"], "name": "h"}),
        ("list_tools", {"pattern": "a*"}),
        ("delegate", {"task": "b", "agent": "x"}),
        ("delegate", {"task": "a", "tools": ["read_file"]}),
    ]


async def test_another_tool_is_called_through_the_gate_and_its_error_is_text(
    script_session: ScriptSession,
) -> None:
    @tool(side_effect="none")
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    script_session.options["deny"] = ["write_file"]
    body = (
        "return [meta.call_tool('add', {'a': 1, 'b': 2}), meta.call_tool('write_file', "
        "{'path': 'x', 'content': ''})]"
    )
    script_session.open(script_session.tool(body), add)
    value = await script_session.value(body)
    assert value[0] == 3
    assert value[1].startswith("error (permission_denied): ")


async def test_a_tool_that_calls_itself_ends_at_a_depth_and_is_one_result(
    script_session: ScriptSession,
) -> None:
    value = await script_session.value(
        "return [args['n'], meta.call_tool('mine', {'n': args['n'] + 1})]", {"n": 0}
    )
    levels = 0
    while isinstance(value, list):
        levels, value = value[0], value[1]
    assert levels == 5
    assert value.startswith("error (limit): ")
    assert "6 scripts wait for each other" in value


def test_every_asked_name_is_answered_and_no_other() -> None:
    listed = {
        names.full_name(space, member)
        for space, members in names.OWNER_BUILTINS.items()
        for member in members
    }
    assert listed == set(builtins.FUNCTIONS)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return fs.read()", "missing a required argument: 'path'"),
        ("return fs.read('a', 'b')", "too many positional arguments"),
        ("return fs.read(path='a', other=1)", "unexpected keyword argument 'other'"),
        ("return random(2, 2)", "2 is not less than 2"),
        ("return sleep(1000000)", "at most 60000"),
        ("return exec.run('ls -l')", "ls -l"),
        ("return exec.run(['ls'])", "a program and a list"),
        ("return http.get('https://example.com', timeout_seconds=0)", "timeout_seconds"),
    ],
)
async def test_wrong_use_of_a_built_in_is_said(
    script_session: ScriptSession, body: str, said: str
) -> None:
    result = await script_session.run(body)
    assert not result.success
    assert said in (result.error_message or "")


async def test_a_built_in_outside_of_a_run_is_refused() -> None:
    ours = Builtins(Context(Identity("t", "u", "s", "r"), "c"), ScriptEnvironment(), file="x.md")
    with pytest.raises(ToolFailed, match="outside of a run"):
        await ours.serve("fs.read", ["a"], {})
    with pytest.raises(ToolFailed, match="no built-in"):
        await ours.serve("os.system", ["a"], {})
