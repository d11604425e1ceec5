"""The fork server: commands end with their sandbox, whoever dies first, and leave nothing
behind.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from shelled import Text, Watch, below, descriptors, has_ended, opened, says, shell

from ferrule.core.errors import ToolFailed
from ferrule.permissions.provenance import NOTHING_WRITABLE, find_program
from ferrule.sandbox.command import Command, OutputSink, TrustedCommand
from ferrule.sandbox.sandbox import Sandbox, unconfined_sandbox
from unheld import open_unheld

DAEMON = (
    """sh -c 'sh -c "trap : TERM HUP; echo \\$\\$; exec 0<&-; while :; do sleep 1000; done" &' """
)
"""Forks twice, so that its parent is gone, holds our pipes and is deaf to SIGTERM. Says its id."""


async def test_fifty_at_once_are_told_apart(plain_sandbox: Sandbox) -> None:
    async with asyncio.timeout(60):
        results = await asyncio.gather(
            *(says(plain_sandbox, f"echo {i}; exit {i}") for i in range(50)),
            return_exceptions=False,
        )
    assert [(ended.exit_code, text) for ended, text in results] == [
        (i, f"{i}\n") for i in range(50)
    ]


async def test_many_commands_at_once_leave_no_descriptor_and_no_process(
    plain_sandbox: Sandbox,
) -> None:
    await says(plain_sandbox, "true")
    before = descriptors()
    for _ in range(3):
        await asyncio.gather(
            *(says(plain_sandbox, "sleep 1000 & exit 3", grace=0.0) for _ in range(20))
        )
    assert descriptors() == before
    server = plain_sandbox.server_pid
    assert server is not None
    assert len(below(server)) <= 1
    assert len(os.listdir(f"/proc/{server}/fd")) < 12


@pytest.mark.linux_only("what lost its parent is found through a subreaper")
@pytest.mark.proves("sandbox.tree-ends")
async def test_a_daemon_that_holds_the_pipes_ends_with_its_command(plain_sandbox: Sandbox) -> None:
    watch = Watch()
    with opened("/") as folder:
        ended = await plain_sandbox.run(shell(f"{DAEMON}; sleep 0.3; exit 4", folder, output=watch))
    assert ended.exit_code == 4
    assert ended.leftover_processes
    assert watch.ended()


async def test_a_started_command_is_ended_once_and_for_everybody_who_asks(
    plain_sandbox: Sandbox,
) -> None:
    with opened("/") as folder:
        running = await plain_sandbox.start(shell("sleep 1000", folder))
    waiting = [asyncio.create_task(running.wait()) for _ in range(3)]
    waiting[0].cancel()
    first, second = await asyncio.gather(running.end(), running.end())
    assert first == second == await waiting[1] == await running.wait()
    assert first.killed
    assert first.signal == "SIGTERM"
    with pytest.raises(asyncio.CancelledError):
        await waiting[0]


async def test_ending_what_is_over_does_not_say_it_was_killed(plain_sandbox: Sandbox) -> None:
    with opened("/") as folder:
        running = await plain_sandbox.start(shell("exit 5", folder))
    await running.wait()
    ended = await running.end()
    assert (ended.exit_code, ended.killed) == (5, False)


async def test_the_id_of_a_started_command_is_its_own_and_leads_its_group(
    plain_sandbox: Sandbox,
) -> None:
    seen = asyncio.Event()
    watch = Watch(seen.set)
    with opened("/") as folder:
        running = await plain_sandbox.start(shell("echo $$; exec sleep 1000", folder, output=watch))
    await asyncio.wait_for(seen.wait(), 30)
    assert int(watch.said().split()[0]) == running.pid == running.process_group
    assert os.getsid(running.pid) == running.pid
    await running.end()
    assert watch.ended()


async def test_a_descriptor_can_be_its_standard_input(plain_sandbox: Sandbox) -> None:
    reader, writer = os.pipe()
    text = Text()
    with opened("/") as folder:
        running = await plain_sandbox.start(
            shell("read a; echo got $a; cat", folder, output=text, stdin=reader)
        )
    os.close(reader)
    os.write(writer, b"one\ntwo\n")
    os.close(writer)
    ended = await asyncio.wait_for(running.wait(), 30)
    assert (ended.exit_code, str(text)) == (0, "got one\ntwo\n")


async def test_a_signal_of_the_terminal_does_not_reach_the_server(plain_sandbox: Sandbox) -> None:
    await says(plain_sandbox, "true")
    assert plain_sandbox.server_pid is not None
    assert os.getsid(plain_sandbox.server_pid) != os.getsid(0)


async def test_the_next_command_runs_although_the_server_was_killed(plain_sandbox: Sandbox) -> None:
    await says(plain_sandbox, "true")
    killed = plain_sandbox.server_pid
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    assert has_ended(killed)
    ended, text = await says(plain_sandbox, "echo again")
    assert (ended.exit_code, text) == (0, "again\n")
    assert plain_sandbox.server_pid != killed


async def test_what_runs_goes_on_when_the_server_is_killed_and_can_still_be_ended(
    plain_sandbox: Sandbox,
) -> None:
    with opened("/") as folder:
        running = await plain_sandbox.start(shell("sleep 1000", folder))
        server = plain_sandbox.server_pid
        assert server is not None
        os.kill(server, signal.SIGKILL)
        assert has_ended(server)
    ended = await asyncio.wait_for(running.end(), 30)
    assert (ended.killed, ended.surviving_processes) == (True, ())
    assert has_ended(running.pid)


async def test_what_a_killed_supervisor_leaves_is_ended_by_the_server(
    plain_sandbox: Sandbox,
) -> None:
    watch = Watch()
    script = f"{DAEMON}; sleep 0.3; kill -9 $PPID; sleep 1000"
    with opened("/") as folder:
        ended = await plain_sandbox.run(shell(script, folder, output=watch))
    assert "supervisor" in ended.surviving_processes[0]
    assert watch.ended()


async def test_closing_ends_what_runs_and_refuses_what_comes_later() -> None:
    sandbox = open_unheld()
    with opened("/") as folder:
        running = await sandbox.start(shell("sleep 1000", folder))
        server = sandbox.server_pid
        await sandbox.close()
        assert (await running.wait()).killed
        with pytest.raises(RuntimeError, match="closed"):
            await sandbox.start(shell("true", folder))
    assert server is not None
    assert has_ended(running.pid)
    assert has_ended(server)
    await sandbox.close()


async def test_a_command_that_is_cancelled_while_it_starts_is_gone(plain_sandbox: Sandbox) -> None:
    with opened("/") as folder:
        for turns in range(6):
            watch = Watch()
            starting = asyncio.create_task(
                plain_sandbox.run(shell("echo $$; exec sleep 1000", folder, output=watch))
            )
            for _ in range(turns):
                await asyncio.sleep(0)
            starting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await starting
    server = plain_sandbox.server_pid
    if server is not None:
        assert len(below(server)) <= 1


def trusted_shell(script: str, folder: int, output: OutputSink) -> TrustedCommand:
    shell_program = find_program("sh", os.defpath, NOTHING_WRITABLE)
    return TrustedCommand(("sh", "-c", script), shell_program, folder, dict(os.environ), output)


def test_a_command_nobody_waits_for_ends_with_the_event_loop() -> None:
    watch = Watch()

    async def scenario() -> None:
        seen = asyncio.Event()
        watch.then(seen.set)
        with opened("/") as folder:
            await unconfined_sandbox().start(
                trusted_shell("echo $$; exec sleep 1000", folder, watch)
            )
        await asyncio.wait_for(seen.wait(), 30)

    asyncio.run(scenario())
    assert watch.ended()


def test_the_shared_sandbox_serves_one_loop_after_the_other() -> None:
    for word in ("one", "two"):
        text = Text()
        with opened("/") as folder:
            command = trusted_shell(f"echo {word}", folder, text)
            ended = asyncio.run(unconfined_sandbox().run(command))
        assert (ended.exit_code, str(text)) == (0, f"{word}\n")


async def test_a_program_that_was_replaced_since_it_was_found_is_not_started(
    tmp_path: Path,
) -> None:
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\necho first\n")
    tool.chmod(0o755)
    program = find_program(str(tool), "", NOTHING_WRITABLE)
    tool.unlink()
    tool.write_text("#!/bin/sh\necho planted\n")
    tool.chmod(0o755)
    text = Text()
    with opened("/") as folder:
        command = TrustedCommand(("tool",), program, folder, {}, text)
        with pytest.raises(ToolFailed, match="changed since it was found"):
            await unconfined_sandbox().run(command)
    assert str(text) == ""


def test_a_sandbox_that_nobody_closed_ends_when_it_is_dropped() -> None:
    async def scenario() -> int:
        sandbox = open_unheld()
        await says(sandbox, "true")
        assert sandbox.server_pid is not None
        return sandbox.server_pid

    server = asyncio.run(scenario())
    gc.collect()
    assert has_ended(server)


def test_everything_ends_when_our_process_dies_although_a_fork_of_it_lives(tmp_path: Path) -> None:
    script = tmp_path / "owner.py"
    script.write_text(
        "import asyncio, os\n"
        "from ferrule.permissions.provenance import NOTHING_WRITABLE, find_program\n"
        "from ferrule.sandbox.command import TrustedCommand\n"
        "from ferrule.sandbox.sandbox import UnconfinedSandbox\n"
        "async def main():\n"
        "    folder, sandbox = os.open('/', os.O_RDONLY), UnconfinedSandbox()\n"
        "    say = lambda data: bool(os.write(1, data))\n"
        "    shell = find_program('/bin/sh', '', NOTHING_WRITABLE)\n"
        "    command = TrustedCommand(('sh', '-c', 'echo $$; exec sleep 1000'), shell, folder, "
        "dict(os.environ), say)\n"
        "    running = await sandbox.start(command)\n"
        "    if os.fork() == 0:\n"
        "        os.close(1); os.read(0, 1); os._exit(0)\n"
        "    os.write(1, b'server %d\\n' % sandbox.server_pid)\n"
        "    await running.wait()\n"
        "asyncio.run(main())\n"
    )
    command = [sys.executable, str(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        lines = [owner.stdout.readline(), owner.stdout.readline()]
        pids = [int(line.split()[-1]) for line in lines]
        owner.send_signal(signal.SIGKILL)
        # The fork still holds every descriptor of the dead process.
        assert all(has_ended(pid) for pid in pids)


@pytest.mark.parametrize("reap", ["", "ending._reap(); "], ids=["while it looked", "before"])
def test_a_server_waits_no_longer_for_a_supervisor_that_ended(reap: str) -> None:
    script = (
        "import os, socket\n"
        "from ferrule.sandbox.inside import process_tree, server\n"
        "ours, theirs = socket.socketpair()\n"
        "ending = server._Server(ours, [], None, os.getppid())\n"
        "supervisor = os.fork() or os._exit(0)\n"
        "os.waitid(os.P_PID, supervisor, os.WEXITED | os.WNOWAIT)\n"
        "ending.supervisors.add(supervisor)\n"
        f"{reap}ending._shut_down()\n"
        "print(process_tree.PORTABLE, process_tree.has_children())\n"
    )
    for portable, said in (("1", "True False"), ("0", "False False")):
        ended = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "FERRULE_PORTABLE": portable},
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
        assert ended.stdout.strip() == said


async def test_a_program_that_cannot_start_leaves_nothing(plain_sandbox: Sandbox) -> None:
    await says(plain_sandbox, "true")
    before = descriptors()
    with opened("/") as folder:
        for program, said in (
            ("/no/such", "no such program"),
            ("/etc/passwd", "not an executable"),
        ):
            command = Command((program,), program, folder, {}, lambda data: True)
            with pytest.raises(ToolFailed, match=said):
                await plain_sandbox.start(command)
    assert descriptors() == before


@pytest.fixture
def ignored_here() -> Iterator[None]:
    """Signals that this process ignores, as it does when it was started in the background."""
    before = {
        number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGQUIT, signal.SIGTSTP)
    }
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


async def test_a_command_gets_no_descriptor_and_no_signal_setting_of_ours(
    ignored_here: None, plain_sandbox: Sandbox
) -> None:
    _, text = await says(
        plain_sandbox, "ls -l /proc/self/fd; grep -E 'Sig(Blk|Ign)' /proc/self/status"
    )
    lines = text.splitlines()
    links = [line.split()[-1] for line in lines if "->" in line]
    assert len(links) == 4, "three standard ones, and the folder that `ls` reads"
    # The C library ignores the two signals that it keeps for itself in what it spawns.
    signals = [int(line.split()[1], 16) & ~(0b11 << 31) for line in lines if line.startswith("Sig")]
    assert signals == [0, 0]


async def test_an_environment_of_a_million_bytes_arrives(plain_sandbox: Sandbox) -> None:
    values = {f"V{i}": "x" * 10_000 for i in range(100)}
    _, text = await says(plain_sandbox, "env | wc -c", environment=values)
    assert int(text) > 1_000_000
