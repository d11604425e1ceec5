"""Programs end with their call, with all they started, and leave nothing behind."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ferrule.core.errors import ToolFailed
from ferrule.permissions.provenance import NOTHING_WRITABLE, find_program
from ferrule.sandbox.command import Capture, Command, CommandResult, OutputSink, TrustedCommand
from ferrule.toolkits.process import run_process
from unheld import open_unheld

PATH = os.environ["PATH"]

# Prints its id from a new session, whose parent is gone, holding our pipes, deaf to SIGTERM.
HIDDEN = """setsid setsid sh -c 'trap "" TERM HUP; echo "$$"; exec sleep 1000' &"""


def run(
    *argv: str,
    output: OutputSink | None = None,
    timeout: float = 60,
    stdin: bytes = b"",
    folder: str = "/",
) -> tuple[CommandResult, str]:
    capture = Capture(1_000_000, 0)
    return asyncio.run(
        start(*argv, output=output or capture, timeout=timeout, stdin=stdin, folder=folder)
    ), (capture.text())


async def start(
    *argv: str, output: OutputSink, timeout: float = 60, stdin: bytes = b"", folder: str = "/"
) -> CommandResult:
    with closing_folder(folder) as directory:
        command = TrustedCommand(
            argv,
            program=find_program(argv[0], PATH, NOTHING_WRITABLE),
            directory=directory,
            environment={"PATH": PATH},
            output=output,
            stdin=stdin,
            timeout=timeout,
            grace=0.1,
        )
        return await run_process(command)


@contextmanager
def closing_folder(path: str) -> Iterator[int]:
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield directory
    finally:
        os.close(directory)


class Watch:
    """A sink that takes hold of the process whose id comes first, and then does as told."""

    def __init__(self, then: Callable[[], bool] = lambda: True) -> None:
        self.handle = -1
        self._then = then
        self._text = b""

    def __call__(self, data: bytes) -> bool:
        self._text += data
        if self.handle < 0 and b"\n" in self._text:
            self.handle = os.pidfd_open(int(self._text.split()[0]))
            return self._then()
        return True

    def __del__(self) -> None:
        if self.handle >= 0:
            os.close(self.handle)

    def saw_it_end(self) -> bool:
        """A pidfd becomes readable when its process has ended. Bounded."""
        assert self.handle >= 0, "the process never said its id"
        poll = select.poll()
        poll.register(self.handle, select.POLLIN)
        ended = bool(poll.poll(10_000))
        os.close(self.handle)
        self.handle = -1
        return ended


@pytest.mark.linux_only("what lost its parent is found through a subreaper")
@pytest.mark.proves("process.timeout-ends-tree")
def test_hidden_grandchild_that_holds_the_pipes_is_ended_when_time_runs_out() -> None:
    watch = Watch()
    ended, _ = run("sh", "-c", f"{HIDDEN} wait; sleep 1000", output=watch, timeout=3)
    assert ended.timed_out
    assert ended.surviving_processes == ()
    assert watch.saw_it_end()


@pytest.mark.linux_only("what lost its parent is found through a subreaper")
@pytest.mark.proves("process.cancel-ends-tree")
def test_hidden_grandchild_is_gone_before_a_cancellation_goes_on() -> None:
    async def scenario() -> Watch:
        seen = asyncio.Event()
        watch = Watch(lambda: seen.set() or True)
        task = asyncio.create_task(start("sh", "-c", f"{HIDDEN} wait; sleep 1000", output=watch))
        async with asyncio.timeout(30):
            await seen.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        return watch

    watch = asyncio.run(scenario())
    poll = select.poll()
    poll.register(watch.handle, select.POLLIN)
    assert poll.poll(0), "it was still alive when the cancelled call returned"


@pytest.mark.linux_only("what lost its parent is found through a subreaper")
def test_a_second_cancellation_does_not_save_the_tree() -> None:
    async def scenario() -> Watch:
        seen = asyncio.Event()
        watch = Watch(lambda: seen.set() or True)
        task = asyncio.create_task(start("sh", "-c", f"{HIDDEN} wait; sleep 1000", output=watch))
        async with asyncio.timeout(30):
            await seen.wait()
            task.cancel()
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        return watch

    assert asyncio.run(scenario()).saw_it_end()


@pytest.mark.linux_only("what lost its parent is found through a subreaper")
def test_a_sink_that_has_enough_ends_the_tree() -> None:
    watch = Watch(lambda: False)
    ended, _ = run("sh", "-c", f"{HIDDEN} wait; sleep 1000", output=watch)
    assert ended.stopped_by_sink
    assert watch.saw_it_end()


@pytest.mark.linux_only("what lost its parent is found through a subreaper")
def test_what_a_program_leaves_running_is_ended_and_named() -> None:
    watch = Watch()
    ended, _ = run("sh", "-c", f"{HIDDEN} exec sleep 0.3", output=watch)
    assert ended.exit_code == 0
    assert any("sleep" in name for name in ended.leftover_processes)
    assert watch.saw_it_end()


@pytest.mark.proves("process.owner-dies")
def test_the_tree_ends_when_the_process_that_uses_ferrule_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "owner.py"
    script.write_text(
        "import asyncio, os\n"
        "from ferrule.permissions.provenance import NOTHING_WRITABLE, find_program\n"
        "from ferrule.sandbox.command import TrustedCommand\n"
        "from ferrule.toolkits.process import run_process\n"
        "folder = os.open('/', os.O_RDONLY)\n"
        "asyncio.run(run_process(TrustedCommand(('sh', '-c', 'echo $$; exec sleep 1000'), "
        "program=find_program('/bin/sh', '', NOTHING_WRITABLE), directory=folder,\n"
        "    environment={'PATH': os.environ['PATH']}, output=lambda data: bool(os.write(1, "
        "data)), timeout=600)))\n"
    )
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        watch = Watch()
        watch(owner.stdout.readline())
        owner.send_signal(signal.SIGKILL)
    assert watch.saw_it_end()


def test_a_program_that_kills_its_supervisor_is_ended_and_that_is_said() -> None:
    watch = Watch()
    ended, _ = run("sh", "-c", "echo $$; sleep 0.2; kill -9 $PPID; sleep 1000", output=watch)
    assert "supervisor" in ended.surviving_processes[0]
    assert watch.saw_it_end()


def zombies() -> set[str]:
    """The children of this process that ended and that nobody has waited for."""
    children = [
        pid
        for file in Path("/proc/self/task").glob("*/children")
        for pid in file.read_text().split()
    ]
    return {
        pid
        for pid in children
        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    }


@pytest.mark.proves("process.no-leaks")
def test_neither_descriptors_nor_zombies_are_left() -> None:
    run("true")  # what is loaded once is loaded now
    others = zombies()  # left by tests that ran before in this process
    # What other tests left open may be closed meanwhile; nothing may be added.
    before = set(os.listdir("/proc/self/fd"))
    run("sh", "-c", f"{HIDDEN} exit 3", output=lambda data: True)
    with pytest.raises(ToolFailed):
        run("/bin/true", "a\0b")
    assert set(os.listdir("/proc/self/fd")) <= before
    # The fork server is our one child, and alive: nobody waits to be waited for.
    assert zombies() <= others


@pytest.mark.parametrize(
    ("argv", "code", "name"),
    [
        (("true",), 0, ""),
        (("sh", "-c", "exit 7"), 7, ""),
        (("sh", "-c", "kill -SEGV $$"), None, "SIGSEGV"),
    ],
)
def test_the_way_a_program_ended_is_told(
    argv: tuple[str, ...], code: int | None, name: str
) -> None:
    ended, _ = run(*argv)
    assert (
        ended.exit_code,
        ended.signal,
        ended.timed_out,
        ended.leftover_processes,
        ended.surviving_processes,
    ) == (
        code,
        name,
        False,
        (),
        (),
    )


def test_both_outputs_arrive_in_their_order() -> None:
    _, text = run("sh", "-c", "for i in 1 2 3; do echo out$i; echo err$i >&2; done")
    assert text.split() == ["out1", "err1", "out2", "err2", "out3", "err3"]


def test_standard_input_is_what_was_given_and_then_its_end() -> None:
    assert run("cat", stdin=b"x" * 300_000)[1] == "x" * 300_000
    assert run("cat")[1] == ""


def test_the_folder_is_the_one_that_was_opened_even_if_it_was_moved(tmp_path: Path) -> None:
    (tmp_path / "before").mkdir()
    directory = os.open(tmp_path / "before", os.O_RDONLY)
    (tmp_path / "before").rename(tmp_path / "after")
    (tmp_path / "before").mkdir()
    capture = Capture(1000, 0)
    command = TrustedCommand(
        ("pwd",),
        program=find_program("/bin/pwd", "", NOTHING_WRITABLE),
        directory=directory,
        environment={},
        output=capture,
        timeout=60,
    )
    asyncio.run(run_process(command))
    os.close(directory)
    assert capture.text() == f"{tmp_path}/after\n"


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("no-such-program",), "no such program"),
        (("/etc/passwd",), "not an executable"),
        (("a\0b",), "NUL"),
        (("a\ud800",), "not valid Unicode"),
        (("\ud83d", "\ude00"), "not valid Unicode"),
    ],
)
def test_a_program_that_cannot_start_is_told_apart(argv: tuple[str, ...], said: str) -> None:
    async def attempt() -> None:
        sandbox = open_unheld()
        with closing_folder("/") as directory:
            command = Command(argv, argv[0], directory, {}, lambda data: True)
            await sandbox.run(command)

    with pytest.raises(ToolFailed, match=said):
        asyncio.run(attempt())


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
        min_size=1,
        max_size=5,
    )
)
def test_every_word_arrives_as_it_is(words: list[str]) -> None:
    _, text = run("printf", "%s\\0", *words)
    assert text.split("\0")[:-1] == words


def test_huge_output_is_counted_and_not_kept() -> None:
    capture = Capture(1000, 1000)
    run("head", "-c", "50000000", "/dev/zero", output=capture)
    assert capture.size == 50_000_000
    assert "49998000 bytes left out" in capture.text()


@given(st.lists(st.binary(max_size=40)), st.integers(0, 50), st.integers(0, 50))
def test_a_capture_shows_all_or_says_how_much_is_missing(
    pieces: list[bytes], head: int, tail: int
) -> None:
    capture, data = Capture(head, tail), b"".join(pieces)
    for piece in pieces:
        assert capture(piece)
    if len(data) <= head + tail:
        assert capture.text() == data.decode("utf-8", "replace")
    else:
        assert "bytes left out" in capture.text()


@given(
    st.text(st.characters(exclude_characters="\ufffd", exclude_categories=["Cs"]), min_size=60),
    st.integers(0, 20),
    st.integers(0, 20),
)
def test_a_capture_never_splits_a_character(text: str, head: int, tail: int) -> None:
    capture = Capture(head, tail)
    capture(text.encode())
    assert "\ufffd" not in capture.text()
