"""Commands in the background: how they are told of, waited for, ended, and that nothing is left of
them.
"""

from __future__ import annotations

import asyncio
import gc
import os
import re
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_world import PATIENT, World

from ferrule.core.calls import ErrorType
from ferrule.core.errors import RetryCall, ToolFailed
from ferrule.sandbox.backends.probes import probe
from ferrule.sandbox.backends.selection import available_backends
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.sandbox.sandbox import Sandbox
from ferrule.toolkits.commands import CommandPolicy

MAX_KEPT = 256

# Says its id from a new session, whose parent is gone, holding our pipes, deaf to SIGTERM.
HIDDEN = """setsid setsid sh -c 'trap "" TERM HUP; echo "$$"; exec sleep 1000' & """


def opened() -> list[str]:
    """What this process has open, by what it is, without what only waits to be collected."""
    gc.collect()
    found: list[str] = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append(re.sub(r"\d+", "N", os.readlink(f"/proc/self/fd/{name}")))
        except FileNotFoundError:
            continue  # the listing's own
    return sorted(found)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def running(marker: str) -> list[str]:
    """Command lines with this text in them, of processes that have not ended."""
    found: list[str] = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = file.read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if marker.encode() in line:
            found.append(line.decode("utf-8", "replace"))
    return found


async def until(world: World, record: dict[str, Any], lines: int) -> list[int]:
    """The first words of its output as numbers, once there are so many."""
    async with asyncio.timeout(PATIENT):
        while (
            len(
                words := (await world.call("poll_command", handle_id=record["handle_id"]))[
                    "stdout"
                ].split()
            )
            < lines
        ):
            await asyncio.sleep(0)
    return [int(word) for word in words]


@pytest.mark.proves("command.background")
async def test_after_its_time_a_command_goes_on_and_its_end_is_told(world: World) -> None:
    gate = world.folder / "gate"
    os.mkfifo(gate)
    record = await world.run("echo first; cat gate; echo last; exit 3", background_after_ms=200)
    assert (record["status"], record["exit_code"], record["ended_at"]) == ("running", None, None)
    assert record["stdout"] == "first\n"
    assert Path(record["output_path"]).read_text() == "first\n"
    assert alive(record["pid"]) and record["handle_id"] and record["stdout_path"]
    await asyncio.to_thread(gate.write_text, "middle\n")
    told = await world.wait_for_notice("exit status 3")
    assert record["command_id"] in told and told.endswith("first\nmiddle\nlast\n")
    final = await world.wait(record)
    assert (final["status"], final["stdout"], final["exit_code"]) == (
        "completed",
        "first\nmiddle\nlast\n",
        3,
    )


@pytest.mark.proves("command.background")
async def test_a_command_that_ends_within_its_time_is_answered_whole_and_not_told_again(
    world: World,
) -> None:
    record = await world.run(["echo", "hi"], background_after_ms=PATIENT * 1000)
    assert (record["status"], record["stdout"]) == ("completed", "hi\n")
    assert world.told == []


@pytest.mark.parametrize("how", [{"background": True}, {"background_after_ms": 0}])
async def test_zero_means_in_the_background_at_once(world: World, how: dict[str, Any]) -> None:
    record = await world.run(["sleep", "1000"], **how)
    assert record["status"] == "running"
    assert (await world.call("kill_command", handle_id=record["handle_id"]))["cancelled"]


async def test_options_say_what_is_usual_and_a_call_may_say_otherwise(world: World) -> None:
    world.set(behavior={"background_after_ms": 0})
    assert (await world.run(["sleep", "1000"]))["status"] == "running"
    assert (await world.run(["true"], background=False))["status"] == "completed"


async def test_standard_input_and_timeout_hold_in_the_background(world: World) -> None:
    record = await world.run(
        f"{HIDDEN} cat; sleep 1000", stdin="given\n", background=True, timeout_ms=500
    )
    told = await world.wait_for_notice("ended by its timeout after 0.5 s")
    assert "given" in told
    final = await world.wait(record)
    assert (final["status"], final["timed_out"], final["exit_code"]) == ("timed_out", True, -1)
    pids = [int(word) for word in final["stdout"].split() if word.isdigit()]
    assert len(pids) == 1 and not alive(pids[0])


async def test_what_is_new_is_told_at_each_interval_with_the_last_of_it(world: World) -> None:
    steps = world.folder / "steps"
    os.mkfifo(steps)
    await world.run(
        "cat steps", background=True, progress_interval_ms=10, progress_max_inline_bytes=4
    )
    with await asyncio.to_thread(steps.open, "w", buffering=1) as writer:
        for word in ("alpha", "beta"):
            writer.write(word + "\n")
            told = await world.wait_for_notice(word[-3:])
            assert told.endswith(word[-3:] + "\n") and "is still running" in told


async def test_reports_that_nobody_follows_up_come_to_an_end(world: World) -> None:
    record = await world.run("while :; do echo x; done", background=True, progress_interval_ms=10)
    async with asyncio.timeout(PATIENT):
        while len(world.told) < 5:
            world.news.clear()
            await world.news.wait()
    size = world.commands.find(record["command_id"], world.context().identity).outputs.combined
    before = size.size
    async with asyncio.timeout(PATIENT):
        # Many intervals' worth of output later there is still no sixth.
        while size.size < before + 200_000:
            await asyncio.sleep(0.01)
    assert len(world.told) == 5
    await world.call("poll_command", handle_id=record["handle_id"])
    world.news.clear()
    async with asyncio.timeout(PATIENT):
        await world.news.wait()


@pytest.mark.proves("command.kill")
async def test_a_second_kill_has_nothing_to_end_and_a_killed_command_is_not_told_of(
    world: World,
) -> None:
    record = await world.run(f"{HIDDEN} wait; sleep 1000", background=True)
    pids = await until(world, record, 1)
    first = await world.call("kill_command", handle_id=record["command_id"])
    assert (first["cancelled"], first["status"], first["exit_code"]) == (True, "killed", -1)
    assert not alive(pids[0]) and not alive(record["pid"])
    assert (await world.call("kill_command", handle_id=record["handle_id"]))["cancelled"] is False
    assert (await world.call("kill_command", handle_id="handle_none"))["cancelled"] is False
    assert world.told == []


@pytest.mark.proves("command.kill")
async def test_a_killed_command_is_called_killed_with_whatever_status_it_ends(world: World) -> None:
    record = await world.run("trap 'exit 3' TERM; echo $$; sleep 1000 & wait", background=True)
    (pid,) = await until(world, record, 1)
    world.set(output_format="display")
    text = await world.call("kill_command", handle_id=record["handle_id"])
    assert text == f"[ended] {pid}\n[was killed]"


async def test_killing_what_has_ended_ends_nothing(world: World) -> None:
    record = await world.run(["true"])
    killed = await world.call("kill_command", handle_id=record["handle_id"])
    assert (killed["cancelled"], killed["status"]) == (False, "completed")


async def test_waiting_is_bounded_and_can_be_cancelled_without_ending_anything(
    world: World,
) -> None:
    record = await world.run(["sleep", "1000"], background=True)
    waited = await world.call("wait_command", handle_id=record["handle_id"], timeout_ms=10)
    assert waited["status"] == "running"
    task = asyncio.create_task(world.wait(record))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert alive(record["pid"])
    for wrong in (-1, 600_001):
        with pytest.raises(RetryCall):
            await world.call("wait_command", handle_id=record["handle_id"], timeout_ms=wrong)
    with pytest.raises(ToolFailed) as raised:
        await world.call("poll_command", handle_id="handle_none")
    assert raised.value.error_type is ErrorType.NOT_FOUND


async def test_who_waits_for_the_end_is_not_told_of_it_as_well(world: World) -> None:
    gate = world.folder / "gate"
    os.mkfifo(gate)
    record = await world.run("cat gate", background=True)
    task = asyncio.create_task(world.wait(record))
    await asyncio.sleep(0)
    await asyncio.to_thread(gate.write_text, "go\n")
    assert (await task)["stdout"] == "go\n"
    assert world.told == []


async def test_a_call_cancelled_before_its_command_went_on_takes_it_with_it(world: World) -> None:
    started = world.folder / "started"
    os.mkfifo(started)
    task = asyncio.create_task(
        world.run("echo $$ > started; sleep 1000", background_after_ms=PATIENT * 1000)
    )
    pid = int(await asyncio.to_thread(started.read_text))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not alive(pid)


async def test_another_identity_neither_sees_nor_ends_a_command(world: World) -> None:
    record = await world.run(["sleep", "1000"], background=True)
    for other in ({"session": "s2"}, {"user": "u2"}, {"tenant": "t2"}):
        context = world.context(**other)
        for name in ("poll_command", "wait_command"):
            with pytest.raises(ToolFailed) as raised:
                await world.call(name, context, handle_id=record["handle_id"])
            assert raised.value.error_type is ErrorType.NOT_FOUND
        for locator in ("command_id", "handle_id"):
            with pytest.raises(ToolFailed):
                await world.call("read_command_output", context, **{locator: record[locator]})
        with pytest.raises(ToolFailed):
            await world.call("read_command_output_tail", context, path=record["output_path"])
        assert (await world.call("kill_command", context, handle_id=record["handle_id"]))[
            "cancelled"
        ] is False
    assert alive(record["pid"])


@pytest.mark.proves("command.dies-with-session")
async def test_the_end_of_the_session_ends_what_runs_and_removes_what_was_kept(
    world: World,
) -> None:
    await world.run(["echo", "kept"])
    record = await world.run(f"{HIDDEN} wait; sleep 1000", background=True)
    pids = [*(await until(world, record, 1)), record["pid"]]
    assert world.list_left_files()
    assert len(world.closers) == 1
    await world.closers[0]()
    assert not any(alive(pid) for pid in pids)
    assert world.list_left_files() == [] and world.told == []
    # A session that goes on after it was closed starts anew, and is closed anew.
    await world.run(["echo", "again"])
    assert len(world.closers) == 2


@pytest.mark.proves("command.dies-with-session")
async def test_a_command_that_was_being_started_when_the_session_ended_is_ended_too(
    world: World,
) -> None:
    world.resources[Sandbox] = slow = Slow()
    task = asyncio.create_task(world.run(["sleep", "1000"], background=True))
    await asyncio.wait_for(slow.started.wait(), PATIENT)
    await world.commands.close()
    slow.go.set()
    with pytest.raises(ToolFailed, match="session was closed"):
        await task
    assert slow.pid and not alive(slow.pid)
    await slow.close()


class Slow(Sandbox):
    """Starts commands at once, and says so when it is told to."""

    def __init__(self) -> None:
        policy = SandboxPolicy(Path("/nonexistent"))
        super().__init__(policy, backend=available_backends(policy, probe())[-1])
        self.started, self.go, self.pid = asyncio.Event(), asyncio.Event(), 0

    async def start(self, command: Any) -> Any:
        execution = await super().start(command)
        self.pid = execution.pid
        self.started.set()
        await self.go.wait()
        return execution


@pytest.mark.proves("command.dies-with-session")
def test_the_end_of_the_event_loop_ends_what_runs(tmp_path: Path) -> None:
    async def leave() -> tuple[int, World]:
        world = World(tmp_path)
        record = await world.run(f"{HIDDEN} wait; sleep 1000", background=True)
        return (await until(world, record, 1))[0], world

    pid, world = asyncio.run(leave())
    assert not alive(pid)
    asyncio.run(world.commands.close())
    assert world.list_left_files() == []


async def test_no_more_than_the_settings_allow_run_at_once(world: World) -> None:
    world.set(CommandPolicy(max_running=2))
    records = [await world.run(["sleep", "1000"], background=True) for _ in range(2)]
    with pytest.raises(ToolFailed) as raised:
        await world.run(["true"])
    assert raised.value.error_type is ErrorType.LIMIT
    await world.call("kill_command", handle_id=records[0]["handle_id"])
    assert (await world.run(["true"]))["success"]


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """As many descriptors as this user may have: most systems begin with 1,024."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("many_descriptors")
async def test_of_many_commands_at_once_nothing_is_left(world: World) -> None:
    count = 150
    await world.run(["true"])  # what is loaded and opened once is there now
    before = opened()
    world.set(
        CommandPolicy(shell_allowed=True, max_running=count), behavior={"background_after_ms": 0}
    )
    # Numbers of processes are soon given to others: these are known by how long they sleep.
    marker = f"1000.{os.getpid()}"
    stubborn = f"{HIDDEN} wait; sleep 1000".replace("1000", marker)
    kinds, times = ["echo done", stubborn, stubborn], [60_000, 60_000, 500]
    records = await asyncio.gather(
        *(world.run(kinds[n % 3], timeout_ms=times[n % 3]) for n in range(count))
    )
    killed = await asyncio.gather(
        *(world.call("kill_command", handle_id=record["handle_id"]) for record in records[1::3])
    )
    assert all(record["cancelled"] for record in killed)
    ended = await asyncio.gather(*(world.wait(record) for record in records))
    assert [record["status"] for record in ended] == ["completed", "killed", "timed_out"] * (
        count // 3
    )
    # They have been killed; on a busy machine it takes them a while to be gone.
    async with asyncio.timeout(30):
        while running(marker):
            await asyncio.sleep(0.05)
    assert opened() == before
    assert world.commands.running_count == 0


async def test_only_the_newest_finished_commands_are_kept(world: World) -> None:
    first = await world.run(["echo", "first"])
    for _ in range(MAX_KEPT):
        last = await world.run(["true"])
    with pytest.raises(ToolFailed):
        await world.call("read_command_output", command_id=first["command_id"])
    assert not Path(first["output_path"]).exists()
    assert (await world.call("read_command_output", command_id=last["command_id"]))["eof"]
    assert len(world.list_left_files()) == 3 * MAX_KEPT


async def test_a_command_that_kills_its_supervisor_has_no_exit_status_and_that_is_said(
    world: World,
) -> None:
    gate = world.folder / "gate"
    os.mkfifo(gate)
    record = await world.run("cat gate; kill -KILL $PPID; sleep 1000", background=True)
    await asyncio.to_thread(gate.write_text, "go\n")
    final = await world.wait(record)
    assert (final["status"], final["exit_code"], final["success"]) == ("completed", -1, False)
    assert final["process_cleanup"]["alive"]
