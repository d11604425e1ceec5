"""Steps of a script: real processes, a clock that does not wait."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.command import (
    CommandFailed,
    CommandRunner,
    Retry,
    append_step,
    command_cancel,
    command_fail,
    command_json,
    command_ok,
    command_run,
    command_start,
    command_step,
    command_stream,
    command_try,
    command_wait,
    has_unrecovered_failure,
    last_failed_step,
    run_sync,
    step_reference,
    unrecovered_failures,
)
from ferrule.core.errors import ConfigError
from ferrule.core.identity import Identity
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.testing.fakes import FakeClock
from ferrule.toolkits.commands.policy import CommandOptions
from ferrule.toolkits.commands.readers import make_reader_tools
from ferrule.tools.context import Context


@pytest.fixture
async def runner(tmp_path: Path) -> AsyncIterator[CommandRunner]:
    folder = tmp_path / "work"
    folder.mkdir()
    async with CommandRunner(folder) as made:
        yield made


def shell(text: str, **more: Any) -> dict[str, Any]:
    return {"command": text, "mode": "shell", **more}


COUNT = "echo x >> tries; [ $(wc -l < tries) -ge %d ]"
"""Works from this try on."""


async def test_a_step_says_all_that_happened(runner: CommandRunner) -> None:
    step = await command_step("greet", ["sh", "-c", "echo out; echo err >&2"], runner=runner)
    assert (step["name"], step["argv"][0], step["cwd"]) == ("greet", "sh", ".")
    assert (step["success"], step["ok"], step["status"]) == (True, True, "completed")
    assert (step["exit_code"], step["timed_out"]) == (0, False)
    assert step["outputs"] == {"stdout": "out\n", "stderr": "err\n"}
    assert sorted(step["tail"].splitlines()) == ["err", "out"]
    assert step["failure_tail"] == ""
    assert sorted(step["ids"]) == ["audit_id", "command_id", "handle_id"]
    assert Path(step["live_log"]).is_file()
    assert Path(step["artifacts"]["stdout_path"]).read_text(encoding="utf-8") == "out\n"
    assert step["timings"]["started_at"] <= step["timings"]["ended_at"]
    assert [attempt["attempt"] for attempt in step["attempts"]] == [1]
    assert (step["classification"], step["recovery_hint"]) == (None, None)
    assert json.loads(json.dumps(step)) == step


async def test_a_failed_step_keeps_the_end_of_what_it_said(runner: CommandRunner) -> None:
    step = await command_step(
        "build",
        shell("seq 10000; exit 7"),
        runner=runner,
        tail_bytes=100,
        recovery_hint="run `make clean`",
    )
    assert (step["ok"], step["status"], step["exit_code"]) == (False, "completed", 7)
    assert step["failure_tail"] == step["tail"]
    assert step["tail"].endswith("9999\n10000\n")
    assert len(step["tail"]) == 100
    assert step["recovery_hint"] == "run `make clean`"


async def test_a_hint_may_be_made_from_the_record_and_is_only_for_failures(
    runner: CommandRunner,
) -> None:
    async def hint(step: dict[str, Any]) -> str:
        return f"look at line {step['outputs']['stdout'].strip()}"

    failed = await command_step("check", shell("echo 12; false"), runner=runner, recovery_hint=hint)
    assert failed["recovery_hint"] == "look at line 12"
    worked = await command_step("check", ["true"], runner=runner, recovery_hint=hint)
    assert worked["recovery_hint"] is None


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (["no-such-program-anywhere"], "there is no such program"),
        (["echo", "a\0b"], "NUL"),
        ({"command": ["true"], "cwd": "../outside"}, "outside"),
        ({"command": ["true"], "colour": "blue"}, "no field `colour`"),
    ],
)
async def test_what_cannot_be_started_is_a_failed_step_with_the_reason(
    spec: Any, said: str, runner: CommandRunner
) -> None:
    step = await command_step("start", spec, runner=runner)
    assert (step["ok"], step["status"], step["exit_code"]) == (False, "not_started", None)
    assert said in step["error"]
    assert said in step["failure_tail"]


async def test_a_step_that_runs_out_of_time_says_so(runner: CommandRunner) -> None:
    step = await command_step("slow", shell("echo begun; sleep 600", timeout_ms=300), runner=runner)
    assert (step["ok"], step["status"], step["timed_out"]) == (False, "timed_out", True)
    assert step["failure_tail"] == "begun\n"


async def test_what_a_filter_hid_is_an_artifact_of_the_step(runner: CommandRunner) -> None:
    step = await command_step("count", shell("sh -c 'seq 9; exit 2' | tail -1"), runner=runner)
    assert (step["ok"], step["outputs"]["stdout"]) == (True, "9\n")
    capture = step["artifacts"]["output_capture"]
    assert (capture["producer_exit_code"], capture["complete"]) == (2, True)
    assert (
        Path(capture["full_output_path"]).read_text(encoding="utf-8")
        == "1\n2\n3\n4\n5\n6\n7\n8\n9\n"
    )


# ---- retrying


async def test_nothing_is_tried_again_unless_the_caller_says_so(
    runner: CommandRunner, tmp_path: Path
) -> None:
    step = await command_step("once", shell(COUNT % 2), runner=runner)
    assert (step["ok"], len(step["attempts"])) == (False, 1)
    assert (tmp_path / "work/tries").read_text(encoding="utf-8") == "x\n"


@pytest.mark.parametrize(
    ("backoff", "waits"),
    [("constant", [0.1, 0.1, 0.1]), ("linear", [0.1, 0.2, 0.3]), ("exponential", [0.1, 0.2, 0.4])],
)
async def test_a_step_is_tried_until_it_works_with_the_waits_it_was_told(
    backoff: str, waits: list[float], runner: CommandRunner
) -> None:
    clock = FakeClock()
    retry = {"max_attempts": 9, "delay_ms": 100, "backoff": backoff}
    step = await command_step("flaky", shell(COUNT % 4), runner=runner, retry=retry, clock=clock)
    assert step["ok"]
    assert clock.slept == waits
    assert [attempt["success"] for attempt in step["attempts"]] == [False, False, False, True]
    assert [attempt["waited_ms"] / 1000 for attempt in step["attempts"]] == [0, *waits]
    assert step["timings"]["waited_ms"] == round(sum(waits) * 1000)
    assert len({attempt["command_id"] for attempt in step["attempts"]}) == 4


async def test_attempts_are_counted_in_all(runner: CommandRunner) -> None:
    clock = FakeClock()
    step = await command_step(
        "never", ["false"], runner=runner, retry=Retry(max_attempts=3), clock=clock
    )
    assert (step["ok"], len(step["attempts"]), clock.slept) == (False, 3, [0, 0])


async def test_the_caller_decides_by_the_record_whether_to_try_again(runner: CommandRunner) -> None:
    told: list[tuple[str, Any]] = []

    def classify(step: dict[str, Any]) -> str:
        return "transient" if step["exit_code"] == 1 else "done"

    async def should_retry(step: dict[str, Any]) -> bool:
        told.append(("asked", step["classification"]))
        return len(step["attempts"]) < 2

    def before_retry(step: dict[str, Any]) -> None:
        told.append(("before", len(step["attempts"])))

    step = await command_step(
        "flaky",
        ["false"],
        runner=runner,
        retry={"max_attempts": 5, "should_retry": should_retry, "before_retry": before_retry},
        classify=classify,
        clock=FakeClock(),
    )
    assert told == [("asked", "transient"), ("before", 1), ("asked", "transient")]
    assert (step["classification"], len(step["attempts"])) == ("transient", 2)


async def test_a_refusal_is_not_asked_for_again() -> None:
    asked: list[Mapping[str, Any]] = []

    async def refusing(request: Mapping[str, Any]) -> dict[str, Any]:
        asked.append(request)
        return {"status": "blocked", "success": False, "reason": "not here"}

    step = await command_step("push", ["git", "push"], runner=refusing, retry={"max_attempts": 4})
    assert (len(asked), step["status"], step["error"]) == (1, "blocked", "not here")
    assert asked[0] == {"command": ["git", "push"], "tail_bytes": 12000}


@pytest.mark.parametrize(
    ("retry", "said"),
    [
        ({"jitter": 0.5}, "there is no `jitter`"),
        ({"max_attempts": 0}, "max_attempts = 0"),
        ({"max_attempts": True}, "max_attempts = True"),
        ({"delay_ms": -1}, "delay_ms = -1"),
        ({"delay_ms": 1.5}, "delay_ms = 1.5"),
        ({"backoff": "random"}, "backoff = 'random'"),
        ({"max_attempt": 2}, "did you mean `max_attempts`"),
        ({"x": 2}, "known: max_attempts"),
    ],
)
async def test_a_retry_that_cannot_be_meant_is_refused_before_anything_runs(
    retry: dict[str, Any], said: str, runner: CommandRunner, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        await command_step("one", shell("touch ran"), runner=runner, retry=retry)
    assert said in str(caught.value)
    assert not (tmp_path / "work/ran").exists()


@given(
    backoff=st.sampled_from(["constant", "linear", "exponential"]),
    delay=st.integers(0, 10**7),
    failed=st.integers(1, 10**6),
)
def test_waits_never_shrink_and_stay_below_an_hour(backoff: Any, delay: int, failed: int) -> None:
    retry = Retry(10, delay, backoff)
    assert (
        min(delay, 3_600_000)
        <= retry.compute_delay(failed)
        <= retry.compute_delay(failed + 1)
        <= 3_600_000
    )


@pytest.mark.parametrize("spec", ["", [], {}, {"cwd": "."}])
async def test_a_step_that_runs_nothing_is_refused(spec: Any, runner: CommandRunner) -> None:
    with pytest.raises(ConfigError, match="runs nothing"):
        await command_step("empty", spec, runner=runner)


# ---- fallbacks and scripts


async def test_the_first_alternative_that_works_is_taken_and_later_ones_do_not_run(
    runner: CommandRunner, tmp_path: Path
) -> None:
    tried = await command_try(
        [
            {"name": "ninja", "spec": ["no-such-ninja"]},
            {"name": "make", "spec": shell("exit 2"), "retry": {"max_attempts": 2}},
            {"name": "script", "spec": ["echo", "built"]},
            {"name": "never", "spec": shell("touch never")},
        ],
        runner=runner,
    )
    assert (tried["ok"], tried["name"]) == (True, "script")
    assert [step["name"] for step in tried["steps"]] == ["ninja", "make", "script"]
    assert [len(step["attempts"]) for step in tried["steps"]] == [1, 2, 1]
    assert [step.get("recovered_by") for step in tried["steps"]] == ["script", "script", None]
    assert not has_unrecovered_failure(tried["steps"])
    assert not (tmp_path / "work/never").exists()


async def test_where_no_alternative_works_the_last_one_is_the_failure(
    runner: CommandRunner,
) -> None:
    tried = await command_try(
        {"a": ["false"], "b": shell("exit 3")}, runner=runner, classify=lambda step: "x"
    )
    assert (tried["ok"], tried["name"], tried["step"]["exit_code"]) == (False, None, 3)
    assert [step["classification"] for step in tried["steps"]] == ["x", "x"]
    assert [step["name"] for step in unrecovered_failures(tried["steps"])] == ["a", "b"]
    with pytest.raises(ConfigError, match="nothing to try"):
        await command_try([], runner=runner)


async def test_a_script_finds_what_went_wrong_and_hands_it_on(runner: CommandRunner) -> None:
    steps: list[dict[str, Any]] = []
    before = steps
    for name, code in (("fetch", 1), ("fetch", 0), ("build", 0), ("test", 4)):
        step = await command_step(
            name, shell(f"seq 3000; exit {code}"), runner=runner, recovery_hint="ask"
        )
        steps = append_step(steps, step)
    assert before == []
    assert [step["name"] for step in unrecovered_failures(steps)] == ["test"]
    assert has_unrecovered_failure(steps)
    assert not has_unrecovered_failure(steps[:3])
    failed = last_failed_step(steps)
    assert failed is steps[3]
    reference = step_reference(steps[3])
    assert len(reference["tail"]) == 4000
    assert reference["tail"].endswith("3000\n")
    assert (reference["name"], reference["exit_code"], reference["attempts"]) == ("test", 4, 1)
    assert reference["command_id"] == steps[3]["ids"]["command_id"]
    result = command_fail("the tests fail", steps=steps, ticket=7)
    assert (result["ok"], result["error"], result["recovery_hint"], result["ticket"]) == (
        False,
        "the tests fail",
        "ask",
        7,
    )
    assert result["failed_step"] == reference
    assert command_ok(5, steps=steps[:1]) == {
        "ok": True,
        "success": True,
        "value": 5,
        "steps": [step_reference(steps[0])],
    }
    assert command_fail("nothing ran") | {"steps": []} == command_fail("nothing ran")
    assert last_failed_step([]) is None


# ---- JSON


async def test_what_a_command_writes_is_parsed(runner: CommandRunner) -> None:
    assert await command_json(["echo", '{"a": [1, null]}'], runner=runner) == {"a": [1, None]}
    assert await command_json(shell("echo '\"x\"' >&2"), runner=runner, stream="stderr") == "x"
    long = await command_json([sys.executable, "-c", "print(list(range(400000)))"], runner=runner)
    assert long == list(range(400000))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("echo '{}'; exit 3", "command_failed"),
        ("no-such-program-anywhere", "command_failed"),
        ("true", "empty_output"),
        ("echo; echo '  '", "empty_output"),
        ("echo '{\"a\": }'", "invalid_json"),
        ("echo NaN", "invalid_json"),
        ("echo 1 2", "invalid_json"),
        ("echo '{}' >&2; echo {", "invalid_json"),
    ],
)
async def test_a_failure_is_raised_or_recorded_under_its_name(
    text: str, code: str, runner: CommandRunner
) -> None:
    with pytest.raises(CommandFailed) as caught:
        await command_json(shell(text), runner=runner)
    assert caught.value.code == code
    assert caught.value.step["command"] == text
    record = await command_json(shell(text), runner=runner, result="record")
    assert (record["ok"], record["value"], record["error"]["code"]) == (False, None, code)


async def test_nothing_may_be_an_answer_where_the_caller_allows_it(runner: CommandRunner) -> None:
    assert await command_json(["true"], runner=runner, allow_empty=True) is None
    record = await command_json(["true"], runner=runner, allow_empty=True, result="record")
    assert (record["ok"], record["value"], record["error"]) == (True, None, None)
    with pytest.raises(CommandFailed):
        await command_json(["false"], runner=runner, allow_empty=True)


async def test_output_that_was_cut_is_not_taken_for_json(runner: CommandRunner) -> None:
    """Cutting a list of digits in the middle could leave something that parses."""
    with pytest.raises(CommandFailed) as caught:
        await command_json(
            shell("seq -s '' 1 3000"), {"capture": {"max_inline_bytes": 100}}, runner=runner
        )
    assert caught.value.code == "output_too_large"
    assert "wrote 10894 bytes to stdout" in caught.value.detail
    assert "max_inline_bytes" in caught.value.hint


# ---- the runner


async def test_output_comes_as_it_is_said_and_the_record_last(
    runner: CommandRunner, tmp_path: Path
) -> None:
    """The command goes on only after its first line was seen."""
    text = "echo first; while [ ! -e go ]; do sleep 0.01; done; echo é; echo bad >&2; exit 3"
    seen: list[dict[str, Any]] = []
    async with asyncio.timeout(30):
        async for piece in command_stream(shell(text), runner=runner):
            seen.append(piece)
            (tmp_path / "work/go").touch()
    assert seen[0] == {"type": "output", "stream": "stdout", "text": "first\n"}
    assert "".join(p["text"] for p in seen[:-1] if p["stream"] == "stdout") == "first\né\n"
    assert "".join(p["text"] for p in seen[:-1] if p["stream"] == "stderr") == "bad\n"
    assert (seen[-1]["type"], seen[-1]["record"]["exit_code"]) == ("result", 3)


async def test_whoever_stops_listening_ends_the_command(
    runner: CommandRunner, tmp_path: Path
) -> None:
    stream = command_stream(shell("echo $$; sleep 600"), runner=runner)
    async with asyncio.timeout(30):
        first = await anext(stream)
        await stream.aclose()  # pyright: ignore[reportAttributeAccessIssue]  (an async generator)
    assert not Path(f"/proc/{first['text'].strip()}").exists()


async def test_a_slow_reader_misses_output_and_is_told_how_much(
    runner: CommandRunner, tmp_path: Path
) -> None:
    gate = tmp_path / "work/gate"
    os.mkfifo(gate)
    skipped, got = 0, 0
    async for piece in command_stream(shell("seq 900000; echo said > gate"), runner=runner):
        if piece["type"] == "result":
            assert got + skipped == piece["record"]["stdout_bytes"]
            continue
        if not got:
            await asyncio.to_thread(gate.read_bytes)  # all has been said by then
        got += len(piece["text"])
        skipped += piece.get("skipped", 0)
    assert skipped > 0


async def test_a_command_in_the_background_is_waited_for_or_ended(
    runner: CommandRunner, tmp_path: Path
) -> None:
    started = await command_start(
        shell("while [ ! -e go ]; do sleep 0.01; done; echo done"), runner=runner
    )
    assert started["status"] == "running"
    assert (await command_wait(started["command_id"], 0, runner=runner))["status"] == "running"
    (tmp_path / "work/go").touch()
    ended = await command_wait(started["command_id"], runner=runner)
    assert (ended["status"], ended["stdout"]) == ("completed", "done\n")
    assert await command_cancel(started["command_id"], runner=runner) is False
    other = await command_start(["sleep", "600"], runner=runner)
    assert await command_cancel(other["command_id"], runner=runner) is True
    assert await command_cancel(other["command_id"], runner=runner) is False
    assert await command_cancel("cmd_unknown", runner=runner) is False
    assert (await command_wait(other["command_id"], runner=runner))["status"] == "killed"


async def test_a_script_and_the_tools_of_a_session_share_ids_and_files(tmp_path: Path) -> None:
    identity, memory = Identity("t", "u", "s", "r"), dict[str, Any]()
    runner = CommandRunner(tmp_path, identity=identity, memory=memory)
    step = await command_step("count", ["seq", "5"], runner=runner)
    context = Context(identity, "call_1", memory=memory, resources={Workspace: Workspace(tmp_path)})
    read = next(
        tool
        for tool in make_reader_tools(CommandOptions(output_format="value"))
        if tool.name == "read_command_output"
    )
    piece = await read.handler(context=context, command_id=step["ids"]["command_id"])
    assert piece["content"] == "1\n2\n3\n4\n5\n"
    await runner.close()


def test_without_an_event_loop_a_step_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for number in ("1", "2"):
        assert run_sync(command_json(["echo", number])) == int(number)
    assert run_sync(command_run("echo a b"))["stdout"] == "a b\n"


async def test_within_an_event_loop_a_step_can_be_waited_for_too(tmp_path: Path) -> None:
    async def work() -> Any:
        async with CommandRunner(tmp_path) as own:
            return await command_json(["echo", "3"], runner=own)

    assert run_sync(work()) == 3
    with pytest.raises(CommandFailed):
        run_sync(_failing(tmp_path))


async def _failing(folder: Path) -> Any:
    async with CommandRunner(folder) as own:
        return await command_json(["false"], runner=own)
