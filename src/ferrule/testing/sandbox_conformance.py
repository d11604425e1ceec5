"""Check that a `ferrule.sandbox.sandbox.Sandbox` runs commands and protects what it claims to.

    class TestMySandbox(SandboxConformance):
        def open_sandbox(self, policy: Policy) -> Sandbox:
            return Sandbox(policy, rung=...)       # the suite closes it

For each aspect that the sandbox claims to protect (`Enforcement.YES`), the suite attacks with a
real shell; an aspect that it does not claim is skipped visibly. Every attempt prints `BROKEN` if it
succeeded, and the suite also checks from outside.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from ferrule.core.extras import name_missing_extra
from ferrule.sandbox.attacks import (
    ATTEMPTS,
    PYTHON,
    Outside,
    make_command,
    make_outside,
    make_workspace,
    run_script,
    try_attempt,
)
from ferrule.sandbox.policy import Enforcement, Protection, ResourceLimits, SandboxPolicy
from ferrule.sandbox.sandbox import Sandbox

with name_missing_extra():
    import pytest


class SandboxConformance:
    """Tests of a sandbox: subclass as `Test…` and implement `open_sandbox`.

    Needs pytest-asyncio in its automatic mode.
    """

    reports_signals = True
    """Whether a program ended by a signal differs from one with exit status 128 + signal number."""

    def open_sandbox(self, policy: SandboxPolicy) -> Sandbox:
        """Return a sandbox for this policy, on the running event loop."""
        raise NotImplementedError

    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        """Make a workspace with ordinary, secret and reserved files."""
        return make_workspace(tmp_path / "work")

    @pytest.fixture
    def outside(self, root: Path) -> Iterator[Outside]:
        with make_outside(root) as outside:
            yield outside

    @pytest.fixture
    async def open_with(self, root: Path) -> AsyncIterator[Callable[..., Sandbox]]:
        """Open sandboxes (`open_with(limits=…)`) whose policy requires nothing, for any backend."""
        made: list[Sandbox] = []

        def opens(**changes: object) -> Sandbox:
            policy = replace(SandboxPolicy(root, require=frozenset()), **changes)  # pyright: ignore[reportArgumentType]  a test's words
            made.append(self.open_sandbox(policy))
            return made[-1]

        yield opens
        for sandbox in made:
            await sandbox.close()

    # Every sandbox

    async def test_a_command_works_in_the_workspace(
        self, open_with: Callable[..., Sandbox], root: Path
    ) -> None:
        ended, said = await run_script(
            open_with(),
            "cat note.txt; echo new > made.txt; mkdir folder; mv made.txt folder/; cat",
            b"in",
        )
        assert (ended.exit_code, said, ended.leftover_processes, ended.surviving_processes) == (
            0,
            "hello\nin",
            (),
            (),
        )
        assert (root / "folder/made.txt").read_text() == "new\n"

    @pytest.mark.parametrize(
        ("script", "code", "name"), [("exit 7", 7, ""), ("kill -9 $$", None, "SIGKILL")]
    )
    async def test_how_it_ended_is_told(
        self, open_with: Callable[..., Sandbox], script: str, code: int | None, name: str
    ) -> None:
        ended, _ = await run_script(open_with(), script)
        if name and not self.reports_signals:
            code, name = 137, ""
        assert (ended.exit_code, ended.signal, ended.timed_out, ended.killed) == (
            code,
            name,
            False,
            False,
        )

    async def test_what_is_over_time_is_gone_with_all_it_started(
        self, open_with: Callable[..., Sandbox], root: Path
    ) -> None:
        holds = (
            "exec 9> held.lock; flock 9; (trap '' TERM; setsid sleep 1000 & sleep 1000) & echo "
            "started; wait"
        )
        ended, said = await run_script(open_with(), holds, timeout=3)
        assert (ended.timed_out, said, ended.surviving_processes) == (True, "started\n", ())
        assert _free(root / "held.lock")

    async def test_what_is_left_behind_is_ended(
        self, open_with: Callable[..., Sandbox], root: Path
    ) -> None:
        ended, _ = await run_script(
            open_with(), "exec 9> held.lock; flock 9; setsid sleep 1000 > /dev/null 2>&1 & exit 0"
        )
        assert ended.exit_code == 0 and ended.surviving_processes == ()
        assert _free(root / "held.lock")

    async def test_ending_is_idempotent_and_waits_agree(
        self, open_with: Callable[..., Sandbox], root: Path
    ) -> None:
        sandbox = open_with()
        directory = os.open(root, os.O_RDONLY)
        running = await sandbox.start(make_command("sleep 1000", directory))
        os.close(directory)
        first = await running.end()
        assert first.killed and await running.end() == await running.wait() == first

    def test_what_is_claimed_is_said_of_every_aspect(self, root: Path) -> None:
        # Without an event loop: the protection is known before the first command.
        applied = self.open_sandbox(SandboxPolicy(root, require=frozenset())).protections()
        assert set(applied.enforcement) == set(Protection)
        record = json.loads(json.dumps(applied.as_record()))
        assert {*record["enforced"], *record["not_enforced"]} == {
            str(aspect) for aspect in Protection
        }

    # Claimed protection

    @pytest.mark.parametrize(
        ("aspect", "attempt"),
        [(aspect, attempt) for aspect, scripts in ATTEMPTS.items() for attempt in scripts],
    )
    async def test_an_attempt_on_what_is_claimed_does_not_come_through(
        self,
        open_with: Callable[..., Sandbox],
        root: Path,
        outside: Outside,
        aspect: Protection,
        attempt: str,
    ) -> None:
        sandbox = open_with()
        _require_claim(sandbox, aspect)
        _needs_python(attempt)
        assert await try_attempt(sandbox, attempt, outside) == ""

    async def test_memory_is_bounded(self, open_with: Callable[..., Sandbox]) -> None:
        sandbox = open_with(limits=ResourceLimits(memory=64 << 20))
        _require_claim(sandbox, Protection.MEMORY)
        _needs_python(PYTHON)
        # Each waits until all three are there, so that none has ended before the last begins.
        one = (
            f'{PYTHON} -c \'import os, time; os.mkdir(str(os.urandom(8).hex()) + ".here")\n'
            'while str(os.listdir()).count(".here") < 3: time.sleep(0.01)\n'
            "x = bytearray(40 << 20); print(len(x), flush=True); time.sleep(1)'"
        )
        _, said = await run_script(sandbox, f"{one} & {one} & {one} & wait; echo over")
        assert said.count("41943040") < 3

    async def test_processes_are_bounded(self, open_with: Callable[..., Sandbox]) -> None:
        sandbox = open_with(limits=ResourceLimits(processes=20))
        _require_claim(sandbox, Protection.PROCESSES)
        _, said = await run_script(
            sandbox,
            (
                "for n in 1 2 3 4 5 6 7 8 9; do (for m in 1 2 3 4 5; do (echo one; sleep 2) & "
                "done; wait) & done; wait"
            ),
        )
        assert said.count("one\n") < 20

    async def test_a_file_cannot_grow_beyond_its_bound(
        self, open_with: Callable[..., Sandbox], root: Path
    ) -> None:
        sandbox = open_with(limits=ResourceLimits(file_size=1 << 20))
        await run_script(sandbox, "head -c 3000000 /dev/zero > large")
        if sandbox.protections().backend == "none":
            pytest.skip("this sandbox backend does not confine commands")
        assert (root / "large").stat().st_size <= 1 << 20


def _require_claim(sandbox: Sandbox, aspect: Protection) -> None:
    applied = sandbox.protections()
    if applied.enforcement.get(aspect) is not Enforcement.YES:
        pytest.skip(
            f"`{applied.backend}` does not claim {aspect}: {applied.mechanisms.get(aspect, '')}"
        )


def _needs_python(attempt: str) -> None:
    if PYTHON in attempt and not Path(PYTHON).exists():
        pytest.skip(f"this attempt is written in Python and there is no {PYTHON}")


def _free(lock: Path) -> bool:
    """Return whether a lock is free: the process that held it is gone, whatever its id was."""
    with closing(lock.open("w")) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
