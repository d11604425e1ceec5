"""`run_command` in full: its fields, its record, and how it ends."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from command_world import World

from ferrule.core.calls import ErrorType, encode_json
from ferrule.core.errors import ConfigError, RetryCall, ToolFailed
from ferrule.permissions.safe_mode import SafeMode
from ferrule.toolkits.commands import CommandOptions, CommandPolicy, command_tools
from ferrule.toolkits.commands.policy import Behavior

OUTPUT_CAP = 64 * 1024

FIELDS = {
    "command_id",
    "handle_id",
    "status",
    "success",
    "exit_code",
    "signal",
    "timed_out",
    "stdout",
    "stderr",
    "output_path",
    "stdout_path",
    "stderr_path",
    "line_count",
    "byte_count",
    "output_sha256",
    "pid",
    "process_group_id",
    "started_at",
    "ended_at",
    "duration_ms",
    "sandbox",
    "audit_id",
    "policy_context",
}


@pytest.mark.proves("command.record")
async def test_a_record_says_what_ran_how_it_ended_and_where_all_of_it_is(world: World) -> None:
    record = await world.run("echo out; echo err >&2; exit 3")
    assert record.keys() >= FIELDS
    assert (record["status"], record["success"], record["exit_code"]) == ("completed", False, 3)
    assert (record["stdout"], record["stderr"], record["signal"]) == ("out\n", "err\n", None)
    assert (record["line_count"], record["byte_count"], record["audit_id"]) == (2, 8, "call_1")
    assert Path(record["stdout_path"]).read_bytes() == b"out\n"
    assert Path(record["stderr_path"]).read_bytes() == b"err\n"
    combined = Path(record["output_path"]).read_bytes()
    assert sorted(combined.splitlines()) == [b"err", b"out"]
    assert record["output_sha256"] == hashlib.sha256(combined).hexdigest()
    assert record["started_at"] <= record["ended_at"]
    assert record["pid"] > 0 and record["process_group_id"] == record["pid"]
    assert record["sandbox"].keys() == {"kind", "enforced", "not_enforced"}
    assert (await world.run(["true"]))["success"] is True


@pytest.mark.proves("command.record")
async def test_a_command_ended_by_a_signal_has_its_name_and_minus_one(world: World) -> None:
    record = await world.run("kill -SEGV $$")
    assert (record["status"], record["exit_code"], record["signal"]) == ("completed", -1, "SIGSEGV")
    assert not record["success"]


async def test_a_list_is_taken_under_command_and_under_argv_and_text_if_it_means_the_same(
    world: World,
) -> None:
    for arguments in (
        {"command": ["cat", "a.txt"]},
        {"argv": ["cat", "a.txt"]},
        {"command": "cat 'a.txt'", "mode": "argv"},
    ):
        assert (await world.call("run_command", **arguments))["stdout"] == "one\ntwo\n"
    for wrong in ({}, {"command": "ls", "argv": ["ls"]}, {"command": []}, {"argv": []}):
        with pytest.raises(RetryCall):
            await world.call("run_command", **wrong)
    with pytest.raises(RetryCall, match="list"):
        await world.call("run_command", command="cat a.txt | wc")


@pytest.mark.proves("command.no-shell-unless-allowed")
async def test_a_shell_needs_the_settings_and_the_mode(world: World) -> None:
    assert (await world.run("cat a.txt | wc -l"))["stdout"].strip() == "2"
    world.set(CommandPolicy())
    for arguments in ({"command": "ls", "mode": "shell"}, {"argv": ["sh", "-c", "ls"]}):
        with pytest.raises(ToolFailed, match="no shell"):
            await world.call("run_command", **arguments)


async def test_it_starts_where_the_call_or_else_the_options_say(world: World) -> None:
    world.set(cwd="sub")
    assert (await world.run(["pwd"]))["stdout"] == f"{world.folder}/sub\n"
    assert (await world.run(["pwd"], cwd="."))["stdout"] == f"{world.folder}\n"
    assert (await world.run(["pwd"], cwd=str(world.folder / "sub")))[
        "stdout"
    ] == f"{world.folder}/sub\n"


@pytest.mark.parametrize("cwd", ["..", "/", "sub/../..", "missing", "a.txt", "link"])
async def test_it_starts_nowhere_else_in_full_either(world: World, cwd: str) -> None:
    (world.folder / "link").symlink_to("/etc")
    with pytest.raises(ToolFailed):
        await world.run(["pwd"], cwd=cwd)


async def test_a_root_of_the_options_keeps_commands_below_it(world: World) -> None:
    (world.folder / "subway").mkdir()
    world.set(root="sub")
    assert (await world.run(["pwd"]))["stdout"] == f"{world.folder}/sub\n"
    for outside in (".", "subway"):
        with pytest.raises(ToolFailed) as raised:
            await world.run(["pwd"], cwd=outside)
        assert raised.value.error_type is ErrorType.PERMISSION_DENIED


# ---- environment, input, time


async def test_variables_are_added_and_left_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANG", "C.UTF-8")
    record = await world.run(["env"], env={"CI": "1", "GREETING": "a b"}, env_remove=["LANG"])
    lines = record["stdout"].splitlines()
    assert "CI=1" in lines and "GREETING=a b" in lines
    assert not any(line.startswith("LANG=") for line in lines)


LOADS = [
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
    "DYLD_INSERT_LIBRARIES",
    "BASH_ENV",
    "ENV",
    "IFS",
    "GIT_SSH_COMMAND",
    "GIT_CONFIG_COUNT",
    "PYTHONSTARTUP",
    "NODE_OPTIONS",
    "PERL5OPT",
    "RUBYOPT",
    "PROMPT_COMMAND",
    "GCONV_PATH",
    "BASH_FUNC_ls",
    "SSH_ASKPASS",
    "PS4",
]


@pytest.mark.parametrize("name", LOADS)
async def test_a_variable_that_makes_programs_load_something_else_is_refused(
    world: World, name: str
) -> None:
    with pytest.raises(ToolFailed, match=name) as raised:
        await world.run(["true"], env={name: "x"})
    assert raised.value.error_type is ErrorType.PERMISSION_DENIED


@pytest.mark.parametrize(
    "name",
    [
        "CI",
        "DEBUG",
        "PORT",
        "NODE_ENV",
        "PYTHONUNBUFFERED",
        "RUST_BACKTRACE",
        "DJANGO_SETTINGS_MODULE",
    ],
)
async def test_ordinary_variables_are_not_refused(world: World, name: str) -> None:
    assert (await world.run(["true"], env={name: "x"}))["success"]


@pytest.mark.parametrize("env", [{"A B": "x"}, {"": "x"}, {"1A": "x"}, {"A=B": "x"}, {"A": "x\0y"}])
async def test_what_is_no_variable_is_refused(world: World, env: dict[str, str]) -> None:
    with pytest.raises(RetryCall):
        await world.run(["true"], env=env)


async def test_safe_mode_sets_no_variables(world: World) -> None:
    world.set(CommandPolicy(safe_mode=SafeMode()))
    with pytest.raises(ToolFailed, match="safe mode"):
        await world.run(["ls"], env={"CI": "1"})


@pytest.mark.proves("command.withheld-is-said")
async def test_a_failure_names_the_variable_that_was_withheld(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACME_API_KEY", "secret-value")
    record = await world.run("echo set ACME_API_KEY; exit 1")
    assert "ACME_API_KEY" in record["notes"][0]
    assert "secret-value" not in encode_json(record)
    given = await world.run("echo set ACME_API_KEY; exit 1", env={"ACME_API_KEY": "k"})
    assert "ACME_API_KEY" not in str(given.get("notes"))


async def test_standard_input_is_given(world: World) -> None:
    assert (await world.run(["cat"], stdin="héllo"))["stdout"] == "héllo"


async def test_running_out_of_time_is_a_status_with_what_was_said_so_far(world: World) -> None:
    record = await world.run("echo started; sleep 1000", timeout_ms=300)
    assert (record["status"], record["timed_out"], record["success"]) == ("timed_out", True, False)
    assert (record["stdout"], record["exit_code"]) == ("started\n", -1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"timeout_ms": -1},
        {"timeout_ms": 3_600_001},
        {"background_after_ms": -1},
        {"progress_interval_ms": 0},
        {"capture": {"max_inline_bytes": -1}},
        {"capture": {"other": 1}},
        {"capture": {"merge_stderr": 1}},
    ],
)
async def test_numbers_outside_their_bounds_are_refused(
    world: World, wrong: dict[str, Any]
) -> None:
    with pytest.raises(RetryCall):
        await world.run(["true"], **wrong)


# ---- output


async def test_both_outputs_can_be_one(world: World) -> None:
    record = await world.run(
        "for i in 1 2 3; do echo $i; echo $i >&2; done", capture={"merge_stderr": True}
    )
    assert record["stdout"].split() == ["1", "1", "2", "2", "3", "3"]
    assert record["stderr"] == ""
    assert record["stdout_path"] == record["output_path"]


async def test_the_cut_keeps_the_beginning_and_the_end_and_says_where_the_rest_is(
    world: World,
) -> None:
    record = await world.run(
        "echo first; seq -s é 1 50000; echo last", capture={"max_inline_bytes": 1000}
    )
    text = record["stdout"]
    assert text.startswith("first\n") and text.endswith("last\n")
    assert "\ufffd" not in text
    assert f"`read_command_output` with command_id {record['command_id']}" in text
    assert len(text.encode()) < 1300


async def test_a_larger_inline_size_than_the_ceiling_is_clamped(world: World) -> None:
    world.set(max_inline_bytes=500)
    record = await world.run(["seq", "100000"], capture={"max_inline_bytes": 10_000_000})
    assert len(record["stdout"]) < 700
    assert record["byte_count"] == os.path.getsize(record["output_path"]) == 588_895


async def test_a_record_fits_a_result_whatever_the_output_is(world: World) -> None:
    world.set(max_inline_bytes=10_000_000)
    for command in (
        "head -c 20000000 /dev/zero",
        "head -c 300000 /dev/urandom",
        "seq 200000; seq 200000 >&2",
    ):
        record = await world.run(command)
        assert len(encode_json(record).encode()) <= OUTPUT_CAP
        assert "bytes left out" in record["stdout"]
    assert record["byte_count"] == 2 * 1_288_895


async def test_files_are_bounded_and_that_is_said_while_the_end_is_still_shown(
    world: World,
) -> None:
    world.set(CommandPolicy(shell_allowed=True, output_bytes=100_000))
    record = await world.run("head -c 20000000 /dev/zero; echo end")
    assert record["success"]
    assert "more than its files may hold" in record["output_incomplete"]
    assert record["byte_count"] == 20_000_004
    assert sum(path.stat().st_size for path in world.list_left_files()) <= 100_000
    assert record["stdout"].endswith("end\n")


async def test_binary_output_is_kept_as_it_is_and_shown_as_text(world: World) -> None:
    (world.folder / "b").write_bytes(b"a\xff\x00b\n")
    record = await world.run(["cat", "b"])
    assert record["stdout"] == "a\ufffd\0b\n"
    assert Path(record["stdout_path"]).read_bytes() == b"a\xff\x00b\n"


async def test_other_tools_names_are_said_in_results(world: World) -> None:
    world.set(
        names={"read_command_output": "release_log"}, namespace="release", max_inline_bytes=10
    )
    assert "`release::release_log`" in (await world.run(["seq", "1000"]))["stdout"]


async def test_a_record_is_json_text_by_default_and_readable_text_on_request(world: World) -> None:
    world.set(output_format="json")
    assert json.loads(await world.run(["echo", "hi"]))["stdout"] == "hi\n"
    world.set(output_format="display")
    assert await world.run("echo hi; exit 2") == "hi\n[exit status 2]"
    assert (await world.run("sleep 1000", timeout_ms=100)).startswith("(no output)\n[was ended")


# ---- ends


@pytest.mark.proves("command.cleanup-is-said")
async def test_what_it_left_running_is_ended_and_named(world: World) -> None:
    record = await world.run("setsid sleep 1000 >/dev/null 2>&1 & echo done")
    assert record["stdout"] == "done\n"
    assert any("sleep" in name for name in record["process_cleanup"]["left"])


async def test_a_cancelled_call_takes_its_command_with_it(world: World) -> None:
    started = world.folder / "started"
    os.mkfifo(started)
    task = asyncio.create_task(world.run(f"echo $$ > {started.name}; sleep 1000"))
    pid = int(await asyncio.to_thread(started.read_text))
    handle = os.pidfd_open(pid)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    try:
        signal.pidfd_send_signal(handle, 0)
        raise AssertionError("it still runs")
    except ProcessLookupError:
        os.close(handle)
    assert world.commands.running_count == 0


async def test_a_program_that_cannot_be_started_leaves_no_files(world: World) -> None:
    (world.folder / "broken").write_text("#!/no/such/interpreter\n")
    (world.folder / "broken").chmod(0o755)
    for command in (["no-such-program"], ["./broken"], ["a\0b"]):
        with pytest.raises(ToolFailed):
            await world.run(command)
    assert world.list_left_files() == []


def test_options_that_make_no_sense_are_errors_of_their_author() -> None:
    for wrong in (
        {"allow_argv_prefixes": [""]},
        {"allow_argv_prefixes": [[]]},
        {"allow_argv_prefixes": [["git", ""]]},
        {"output_format": "xml"},
        {"max_inline_bytes": -1},
    ):
        with pytest.raises(ConfigError):
            CommandOptions(**wrong)
    with pytest.raises(ConfigError, match="background_after_ms"):
        Behavior.from_mapping({"background_after": 1})
    with pytest.raises(ConfigError):
        Behavior.from_mapping({"progress_interval_ms": 0})


def test_the_tools_say_what_they_are() -> None:
    tools = {tool.name: tool for tool in command_tools(CommandOptions(lifecycle=True))}
    assert list(tools) == [
        "run_command",
        "read_command_output",
        "read_command_output_tail",
        "poll_command",
        "wait_command",
        "kill_command",
    ]
    assert len(command_tools()) == 3
    run = tools["run_command"]
    assert (run.side_effect, run.risk, run.parallel) == ("execute", "high", False)
    assert {name: touch.kind for name, touch in run.touches.items()} == {
        "command": "command",
        "argv": "command",
        "cwd": "read",
        "env": "variables",
    }
    assert all(tools[name].risk == "safe" for name in list(tools)[1:])


async def test_the_preview_in_full_shows_all_that_would_be_given(world: World) -> None:
    preview = world.tools["run_command"].preview
    assert preview is not None
    given = {
        "argv": ["echo", "a b"],
        "cwd": "sub",
        "env": {"CI": "1"},
        "stdin": "text",
        "timeout_ms": 5000,
        "background": True,
    }
    shown = await preview(given, world.context())
    assert shown.startswith("echo 'a b'\n(in `sub`, without a shell, at most 5 s)")
    for part in ("with CI=1", "standard input:\ntext", "in the background at once"):
        assert part in shown
