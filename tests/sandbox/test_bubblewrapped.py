"""Commands under bubblewrap, with a process of ours inside that answers what they create."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from shelled import below, opened, says, shell

from ferrule.core.errors import ToolFailed
from ferrule.permissions.provenance import CommandWritable, UntrustedPath, find_program
from ferrule.sandbox.backends import bubblewrap
from ferrule.sandbox.backends.probes import interpreter_path, probe
from ferrule.sandbox.backends.selection import available_backends
from ferrule.sandbox.policy import DEFAULT_REQUIRED, SandboxPolicy
from ferrule.sandbox.sandbox import Sandbox
from ferrule.sandbox.view.layout import MachineFolders, SessionPaths, Step

Opens = Callable[..., Sandbox]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    for name in (".ferrule/settings", ".env", "sub/a.py", "note.txt"):
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text(f"<{name}>")
    return made


@pytest.fixture
async def wrapped(root: Path) -> AsyncIterator[Opens]:
    made: list[Sandbox] = []

    def opens(**changes: object) -> Sandbox:
        policy = replace(SandboxPolicy(root), **changes)  # pyright: ignore[reportArgumentType]  a test's words
        backend = next(
            (one for one in available_backends(policy, probe()) if one.name == "bubblewrap"), None
        )
        if backend is None:
            pytest.skip(f"no bubblewrap that works here: {probe().why.get('bwrap')}")
        made.append(Sandbox(policy, backend=backend))
        return made[-1]

    yield opens
    for sandbox in made:
        await sandbox.close()


async def test_what_is_required_by_default_is_held_and_ordinary_work_goes_on(
    wrapped: Opens, root: Path
) -> None:
    sandbox = wrapped()
    assert sandbox.protections().find_missing(DEFAULT_REQUIRED) == ()
    ended, said = await says(
        sandbox,
        "cat note.txt; echo new > made; cat made; mv made sub/; rm -r sub/a.py; id -u",
        root,
    )
    assert (ended.exit_code, said.split()) == (0, ["<note.txt>new", str(os.geteuid())])
    assert (root / "sub/made").read_text() == "new\n"


async def test_a_reserved_name_is_not_created_and_the_refusal_is_reported(
    wrapped: Opens, root: Path
) -> None:
    ended, _ = await says(
        wrapped(), "mkdir .harness; ln -s sub agents; mv sub agents; echo x > sub/.git", root
    )
    assert ended.refused_names == (".harness", "agents", "sub/.git")
    assert sorted(os.listdir(root)) == [".env", ".ferrule", "note.txt", "sub"]


async def test_a_link_with_a_reserved_name_stays_although_no_mount_can_lie_over_it(
    wrapped: Opens, root: Path
) -> None:
    (root / "hooks").mkdir()
    (root / ".git").mkdir()
    (root / ".git/hooks").symlink_to("../hooks")
    script = (
        "rm .git/hooks; mv .git/hooks x; unlink .git/hooks; rmdir .git/hooks; ln -sfn /tmp "
        ".git/hooks; ls .git"
    )
    _, said = await says(wrapped(), script, root)
    assert os.readlink(root / ".git/hooks") == "../hooks" and said.endswith("hooks\n")
    assert os.listdir(root / "hooks") == []


async def test_a_secret_that_a_command_made_stays_readable_to_the_next_one(
    wrapped: Opens, root: Path
) -> None:
    sandbox = wrapped()
    await says(sandbox, "echo own > key.pem", root)
    _, said = await says(sandbox, "cat key.pem .env", root)
    assert said.startswith("own\n") and "<.env>" not in said


@pytest.mark.parametrize(
    "attempt",
    [
        "kill -9 1; kill -STOP 1; kill -TERM 1",
        "cat /proc/1/environ",
        "readlink /proc/1/fd/* /proc/1/exe",
        "ls /proc/1/root/",
    ],
)
async def test_who_mediates_is_out_of_reach(wrapped: Opens, root: Path, attempt: str) -> None:
    ended, said = await says(
        wrapped(), f"({attempt}; mkdir .harness) 2> /dev/null; echo still here", root
    )
    assert (said, ended.refused_names) == ("still here\n", (".harness",))


async def test_a_program_that_is_not_there_is_an_error_and_not_an_exit_status(
    wrapped: Opens, root: Path
) -> None:
    with opened(root) as directory, pytest.raises(ToolFailed, match="there is no such program"):
        await wrapped().run(replace(shell("x", directory), program="/usr/bin/not-there"))


async def test_what_bubblewrap_refuses_is_said(
    wrapped: Opens, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = bubblewrap.session_steps

    def more(policy: SandboxPolicy, found: MachineFolders) -> tuple[Step, ...]:
        return (("read", "/x", "/not-there"), *real(policy, found))

    monkeypatch.setattr(bubblewrap, "session_steps", more)
    with pytest.raises(ToolFailed, match="/not-there"):
        await says(wrapped(), "true", root)


async def test_nothing_is_left_of_many_at_once(wrapped: Opens, root: Path) -> None:
    sandbox = wrapped()
    ends = await asyncio.gather(*(says(sandbox, "sleep 0.01 & echo x", root) for _ in range(8)))
    assert [said for _, said in ends] == ["x\n"] * 8
    assert sandbox.server_pid is not None and len(below(sandbox.server_pid)) <= 1


async def test_what_runs_inside_is_a_copy_made_before_any_command(
    wrapped: Opens, root: Path
) -> None:
    _, said = await says(
        wrapped(),
        (
            "ls /run/ferrule/sandbox/inside | head -3; echo x >> "
            "/run/ferrule/permissions/protected_names.py"
        ),
        root,
    )
    assert "bubblewrap_supervisor.py" in said and "Read-only file system" in said


def test_the_copy_is_compiled_and_made_once(tmp_path: Path) -> None:
    (tmp_path / "held").mkdir()
    bubblewrap.copy_program(SessionPaths(str(tmp_path)))
    copied = tmp_path / "held/program"
    assert {"permissions", "sandbox"} <= set(os.listdir(copied))
    assert list(copied.glob("sandbox/inside/__pycache__/bubblewrap_supervisor.*.pyc"))
    before = copied.stat().st_mtime_ns
    bubblewrap.copy_program(SessionPaths(str(tmp_path)))
    assert copied.stat().st_mtime_ns == before


def test_the_interpreter_is_a_program_and_no_link_of_an_environment() -> None:
    assert os.path.isabs(interpreter_path()) and not Path(interpreter_path()).is_symlink()


@pytest.mark.proves("programs.one-finder")
async def test_a_bubblewrap_that_was_replaced_since_it_was_found_is_not_started(
    wrapped: Opens, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox = wrapped()
    found = probe()
    assert found.bwrap is not None
    copied = tmp_path / "bwrap"
    copied.write_text(f'#!/bin/sh\nexec {shlex.quote(str(found.bwrap))} "$@"\n')
    copied.chmod(0o755)
    program = find_program(str(copied), "", CommandWritable.from_folders(root))
    monkeypatch.setattr(bubblewrap, "probe", lambda: replace(found, bwrap=program))
    ended, _ = await says(sandbox, "true", root)
    assert ended.exit_code == 0
    copied.write_text("#!/bin/sh\nexec true\n")
    with pytest.raises(UntrustedPath, match="changed since it was found"):
        await says(sandbox, "true", root)
