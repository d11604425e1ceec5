"""What a command in the namespaces backend sees, may change and may be: asked by a real shell."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from shelled import Text, below, descriptors, has_ended, opened, says, shell

from ferrule.core.errors import ToolFailed
from ferrule.permissions.protected_names import ProtectedNames
from ferrule.sandbox.backends import namespaces
from ferrule.sandbox.backends.probes import probe
from ferrule.sandbox.command import Change, Command
from ferrule.sandbox.policy import ResourceLimits, SandboxPolicy
from ferrule.sandbox.sandbox import Sandbox
from ferrule.sandbox.view.session_folder import SessionFolder

pytestmark = pytest.mark.skipif(
    not probe().namespaces,
    reason=f"no namespaces here: {probe().why.get('namespaces', 'not Linux')}",
)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace with an ordinary file and two secrets, beside another project. No environment of
    the person who runs the tests is active.
    """
    monkeypatch.setenv("PATH", "/usr/local/bin:/usr/bin:/bin")
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file").write_text("another project")
    root = tmp_path / "work"
    (root / "src").mkdir(parents=True)
    (root / "src/a.txt").write_text("ordinary\n")
    (root / ".env").write_text("TOKEN=secret")
    (root / ".ferrule").mkdir()
    (root / ".ferrule/rules").write_text("allow everything")
    return root


@pytest.fixture
async def sandbox(root: Path) -> AsyncIterator[Sandbox]:
    sandbox = Sandbox(SandboxPolicy(root))
    yield sandbox
    await sandbox.close()


async def test_only_the_workspace_and_the_system_are_there(sandbox: Sandbox, root: Path) -> None:
    script = (
        f"cat src/a.txt; ls '{root.parent}'; cat '{root.parent}/other/file'; ls /var /mnt /srv "
        "/media; ls -A /tmp /run"
    )
    _, text = await says(sandbox, script, root)
    assert "ordinary" in text
    assert "another project" not in text
    assert f"cannot access '{root.parent}/other/file'" in text or "No such file" in text
    _, entries = await says(sandbox, "ls /", root)
    assert set(entries.split()) <= {
        *(
            "bin",
            "dev",
            "etc",
            "lib",
            "lib32",
            "lib64",
            "libx32",
            "nix",
            "gnu",
            "opt",
            "proc",
            "run",
            "sbin",
            "sys",
            "tmp",
        ),
        *("usr", "var", root.parts[1], Path.home().parts[1], Path(sys.base_prefix).parts[1]),
    }


async def test_what_only_root_may_read_in_etc_is_covered(sandbox: Sandbox, root: Path) -> None:
    ended, text = await says(sandbox, "cat /etc/shadow; cat /etc/passwd | head -1", root)
    assert "Permission denied" in text
    assert text.count(":") < 20
    assert "root:x:0:0" in text
    assert ended.exit_code == 0


async def test_what_only_root_may_read_in_proc_is_covered(sandbox: Sandbox, root: Path) -> None:
    script = (
        "for f in /proc/*; do test -f $f && head -c 1 $f > got 2>/dev/null && test -s got"
        " && echo ${f#/proc/}; done; echo over"
    )
    _, text = await says(sandbox, script, root)
    seen = set(text.split())
    owners = {
        place.name
        for place in Path("/proc").iterdir()
        if place.is_file() and not place.stat().st_mode & 0o004
    }
    assert owners
    assert {"cpuinfo", "meminfo", "over"} <= seen
    assert not seen & {*owners, "keys", "kcore"}


@pytest.mark.parametrize(
    "place",
    [
        "/usr/x",
        "/etc/x",
        "/x",
        "/dev/x",
        "/proc/sys/kernel/core_pattern",
        "/proc/self/oom_score_adj",
        "/sys/x",
        "/run/x",
        "/.held/x",
    ],
)
async def test_the_system_cannot_be_written(sandbox: Sandbox, root: Path, place: str) -> None:
    ended, text = await says(sandbox, f"echo x > '{place}' && echo written", root)
    assert "written" not in text
    assert ended.exit_code != 0


async def test_the_workspace_the_home_and_tmp_can_be_written(sandbox: Sandbox, root: Path) -> None:
    script = (
        "mkdir -p new/deep && echo 1 > new/deep/f && echo 2 > ~/g && echo 3 > /tmp/h && echo 4 > "
        "/dev/shm/i && echo $TMPDIR $HOME"
    )
    ended, text = await says(sandbox, script, root)
    assert (ended.exit_code, text) == (0, f"/tmp {Path.home()}\n")
    assert (root / "new/deep/f").read_text() == "1\n"
    assert not (Path.home() / "g").exists()
    _, kept = await says(sandbox, "cat ~/g /tmp/h", root)
    assert kept == "2\n3\n", "home and /tmp last as long as the session"


async def test_its_folder_is_gone_when_the_session_is_closed(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = tmp_path / "temporary"
    folders.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folders))
    sandbox = Sandbox(SandboxPolicy(root))
    await says(sandbox, "mkdir -p /tmp/a/b; touch /tmp/a/b/c; chmod 0 /tmp/a/b /tmp/a", root)
    assert len(list(folders.glob("ferrule-session-*/tmp/a"))) == 1
    await sandbox.close()
    assert list(folders.iterdir()) == []


def test_a_folder_that_is_being_made_is_not_taken_for_abandoned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another session begins in the moment before the first one holds its lock."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    lock, other = fcntl.flock, SessionFolder()
    began: list[int] = []

    def begin_another(descriptor: int, operation: int) -> None:
        if not began:
            began.append(descriptor)
            other.make()
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", begin_another)
    first = SessionFolder()
    assert Path(first.make().base).is_dir()
    first.remove()
    other.remove()
    assert list(tmp_path.iterdir()) == []


async def test_it_sees_and_signals_its_own_processes_only(sandbox: Sandbox, root: Path) -> None:
    script = (
        f"ls /proc | grep -E '^[0-9]+$' | wc -l; kill -9 {os.getpid()}; kill -9 1; kill -0 1 && "
        "echo one lives; cat /proc/1/environ; ls /proc/1/root/"
    )
    _, text = await says(sandbox, script, root)
    assert int(text.split()[0]) <= 6
    assert "No such process" in text
    assert "one lives" in text
    assert text.count("Permission denied") == 2


async def test_it_holds_no_capability_and_gains_none(sandbox: Sandbox, root: Path) -> None:
    script = (
        "grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status; mount -t tmpfs x /tmp; unshare "
        "-r true; chroot / true"
    )
    _, text = await says(sandbox, script, root)
    lines = dict(line.split(":\t") for line in text.splitlines() if ":\t" in line)
    assert {lines[name] for name in lines if name.startswith("Cap")} == {"0" * 16}
    assert (lines["NoNewPrivs"], lines["Seccomp"]) == ("1", "2")
    assert len(text.splitlines()) >= len(lines) + 3, "each of the three was refused"


@pytest.mark.proves("sandbox.no-network")
async def test_nothing_but_its_own_loopback_is_there(sandbox: Sandbox, root: Path) -> None:
    script = """python3 - <<'END'
import socket
try:
    socket.create_connection(("1.1.1.1", 53), 3)
except OSError as error:
    print(error.strerror)
server = socket.create_server(("127.0.0.1", 0))
with socket.create_connection(server.getsockname(), 3):
    print("loopback")
END"""
    _, text = await says(sandbox, script, root, environment={"PATH": os.environ["PATH"]})
    assert text == "Network is unreachable\nloopback\n"


async def test_a_server_in_the_background_is_there_for_the_next_command(
    sandbox: Sandbox, root: Path
) -> None:
    ready = asyncio.Event()
    environment = {"PATH": os.environ["PATH"]}
    server = (
        "import socket\ns = socket.create_server(('127.0.0.1', 8000))\nprint(1, "
        "flush=True)\ns.accept()[0].send(b'hello')"
    )
    with opened(root) as folder:
        running = await sandbox.start(
            shell(
                f'python3 -c "{server}"',
                folder,
                output=lambda data: bool(ready.set() or True),
                environment=environment,
            )
        )
    await asyncio.wait_for(ready.wait(), 30)
    client = "import socket; print(socket.create_connection(('127.0.0.1', 8000)).recv(9))"
    _, text = await says(
        sandbox, f'python3 -c "{client}"; ps -e | wc -l', root, environment=environment
    )
    assert text.split()[0] == "b'hello'"
    assert int(text.split()[1]) <= 6, "the server's process is out of sight"
    await running.end()


@pytest.mark.proves("sandbox.names-masked")
async def test_reserved_and_secret_names_cannot_be_seen_changed_or_created(
    sandbox: Sandbox, root: Path
) -> None:
    script = (
        "cat .env; ls -A .ferrule; echo x > .env; rm -rf .ferrule .env; mv .env b; mkdir agents; "
        "mkdir -p a/.harness; ln -s /x .git"
    )
    ended, text = await says(sandbox, script, root)
    assert "secret" not in text
    assert "rules" not in text
    assert (root / ".env").read_text() == "TOKEN=secret"
    assert (root / ".ferrule/rules").read_text() == "allow everything"
    assert sorted(os.listdir(root)) == [".env", ".ferrule", "a", "src"]
    assert set(ended.refused_names) >= {"agents", "a/.harness", ".git"}


async def test_a_folder_that_holds_a_masked_name_stays_where_it_is(
    sandbox: Sandbox, root: Path
) -> None:
    (root / "deploy/deep").mkdir(parents=True)
    (root / "deploy/deep/server.key").write_text("secret")
    script = (
        "mv deploy elsewhere; mv deploy/deep x; mv src deploy/src && mv deploy/src src && echo "
        "others move"
    )
    _, text = await says(sandbox, script, root)
    assert text.count("busy") == 2
    assert text.endswith("others move\n")
    assert (root / "deploy/deep/server.key").read_text() == "secret"


async def test_a_key_that_a_command_made_is_its_own(sandbox: Sandbox, root: Path) -> None:
    await says(sandbox, "echo key > test.pem", root)
    _, text = await says(sandbox, "cat test.pem", root)
    assert text == "key\n"


async def test_names_of_the_settings_are_reserved_too(root: Path) -> None:
    sandbox = Sandbox(SandboxPolicy(root, names=ProtectedNames(reserved=("plans",))))
    ended, _ = await says(sandbox, "mkdir plans", root)
    await sandbox.close()
    assert (ended.exit_code, ended.refused_names) == (1, ("plans",))


async def test_further_folders_are_there_as_the_policy_opens_them(
    root: Path, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    policy = SandboxPolicy(
        root, readable=(str(tmp_path / "other"),), writable=(str(tmp_path / "data"),)
    )
    sandbox = Sandbox(policy)
    script = "cat ../other/file; echo x > ../other/y; echo z > ../data/z"
    _, text = await says(sandbox, script, root)
    await sandbox.close()
    assert text.startswith("another project")
    assert os.listdir(tmp_path / "other") == ["file"]
    assert (tmp_path / "data/z").read_text() == "z\n"


async def test_a_file_given_as_standard_input_cannot_be_opened_for_writing(
    sandbox: Sandbox, root: Path
) -> None:
    if not probe().landlock_abi:
        pytest.skip("no Landlock here: what a descriptor leads to can be opened anew")
    outside = root.parent / "other/file"
    with open(outside, "rb") as file:
        _, text = await says(
            sandbox, "cat; echo changed > /proc/self/fd/0", root, stdin=file.fileno()
        )
    assert text.startswith("another project")
    assert outside.read_text() == "another project"


async def test_the_scratch_folder_is_theirs_and_ours(sandbox: Sandbox, root: Path) -> None:
    assert sandbox.scratch_folder is not None
    outside, inside = sandbox.scratch_folder
    (outside / "a").write_text("ours")
    _, text = await says(sandbox, f"cat {inside}/a; echo theirs > {inside}/b", root)
    assert text == "ours"
    assert (outside / "b").read_text() == "theirs\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes namespaces without a user namespace")
async def test_root_is_held_without_a_user_namespace_too(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without = replace(probe(), user_namespaces=False)
    monkeypatch.setattr(namespaces, "probe", lambda: without)
    sandbox = Sandbox(SandboxPolicy(root))
    script = (
        "readlink /proc/self/ns/user; grep CapEff /proc/self/status; mount -t tmpfs x /tmp; "
        "cat .env; mkdir agents; "
        "mknod /tmp/sda b 8 0; echo x > /proc/sys/kernel/core_pattern; ls /proc | grep -cE "
        "'^[0-9]+$'"
    )
    _, text = await says(sandbox, script, root)
    await sandbox.close()
    assert text.startswith(os.readlink("/proc/self/ns/user") + "\nCapEff:\t0000000000000000\n")
    assert "secret" not in text
    assert not (root / "agents").exists()
    assert text.count("denied") + text.count("not permitted") >= 4
    assert int(text.split()[-1]) <= 6


# ---- ends


@pytest.mark.proves("sandbox.tree-ends")
async def test_a_daemon_in_a_session_of_its_own_ends_with_the_command(
    sandbox: Sandbox, root: Path
) -> None:
    text = Text()
    script = "setsid sh -c 'trap \"\" TERM HUP; sleep 1000' & sleep 0.2; exit 3"
    with opened(root) as folder:
        ended = await sandbox.run(shell(script, folder, output=text))
    assert ended.exit_code == 3
    assert any("sleep" in name for name in ended.leftover_processes)
    assert ended.surviving_processes == ()


@pytest.mark.parametrize(
    "script", ["sleep 1000", "trap '' TERM; while :; do sleep 1000; done", "kill -STOP $$"]
)
async def test_a_command_is_ended_whatever_it_ignores(
    sandbox: Sandbox, root: Path, script: str
) -> None:
    with opened(root) as folder:
        running = await sandbox.start(shell(script, folder))
    ended = await asyncio.wait_for(running.end(), 30)
    assert ended.killed
    assert ended.surviving_processes == ()
    assert has_ended(running.pid)


async def test_time_runs_out_inside_as_well(sandbox: Sandbox, root: Path) -> None:
    ended, _ = await says(sandbox, "sleep 1000 & sleep 1000", root, timeout=0.5)
    assert (ended.timed_out, ended.surviving_processes) == (True, ())


def test_all_of_it_ends_when_our_process_is_killed(root: Path, tmp_path: Path) -> None:
    script = tmp_path / "owner.py"
    script.write_text(
        "import asyncio, os, sys\n"
        "from pathlib import Path\n"
        "from ferrule.sandbox.command import Command\n"
        "from ferrule.sandbox.policy import SandboxPolicy\n"
        "from ferrule.sandbox.sandbox import Sandbox\n"
        "async def main():\n"
        "    sandbox, folder = Sandbox(SandboxPolicy(Path(sys.argv[1]))), os.open(sys.argv[1], "
        "os.O_RDONLY)\n"
        "    command = Command(('sleep', '1000'), '/bin/sleep', folder, {}, lambda data: True)\n"
        "    running = await sandbox.start(command)\n"
        "    print(running.pid, sandbox.server_pid, flush=True)\n"
        "    await running.wait()\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen(
        [sys.executable, str(script), str(root)], stdout=subprocess.PIPE
    ) as owner:
        assert owner.stdout is not None
        pids = [int(word) for word in owner.stdout.readline().split()]
        owner.send_signal(signal.SIGKILL)
    assert len(pids) == 2
    assert all(has_ended(pid) for pid in pids)


async def test_many_commands_leave_no_descriptor_process_or_group(
    sandbox: Sandbox, root: Path
) -> None:
    await says(sandbox, "true", root)
    before = descriptors()
    async with asyncio.timeout(120):
        for _ in range(4):
            results = await asyncio.gather(
                *(
                    says(sandbox, f"sleep 1000 & echo {i}; exit {i}", root, grace=0.0)
                    for i in range(10)
                )
            )
            assert [(ended.exit_code, text) for ended, text in results] == [
                (i, f"{i}\n") for i in range(10)
            ]
    assert descriptors() == before
    server = sandbox.server_pid
    assert server is not None
    assert len(below(server, most=1)) <= 1, "the one that waits for the next command"
    assert len(os.listdir(f"/proc/{server}/fd")) < 20


async def test_the_id_of_a_command_is_its_own_as_seen_from_outside(
    sandbox: Sandbox, root: Path
) -> None:
    with opened(root) as folder:
        running = await sandbox.start(shell("sleep 1000; true", folder))
    assert Path(f"/proc/{running.pid}/comm").read_text() == "sh\n"
    assert os.getpgid(running.pid) == running.process_group
    await running.end()


async def test_the_workspace_may_be_replaced_between_two_commands(
    sandbox: Sandbox, root: Path
) -> None:
    await says(sandbox, "true", root)
    root.rename(root.with_name("moved"))
    root.mkdir()
    (root / "fresh").touch()
    _, text = await says(sandbox, "ls", root)
    assert text == "fresh\n"


async def test_a_folder_out_of_sight_is_no_place_to_start(sandbox: Sandbox, root: Path) -> None:
    with pytest.raises(ToolFailed, match="was not run"):
        await says(sandbox, "pwd", root.parent)


async def test_a_program_out_of_sight_is_told_from_one_that_is_not_there(
    sandbox: Sandbox, root: Path
) -> None:
    program = root.parent / "other/program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    with opened(root) as folder:
        with pytest.raises(ToolFailed, match=r"out of sight.*readable"):
            await sandbox.run(Command(("program",), str(program), folder, {}, lambda data: True))
        with pytest.raises(ToolFailed, match="no such program"):
            await sandbox.run(
                Command(("program",), "/usr/bin/no-such", folder, {}, lambda data: True)
            )


# ---- bounds


async def test_memory_processes_and_file_sizes_are_bounded(root: Path) -> None:
    bounds = ResourceLimits(memory=100 * 1024 * 1024, processes=20, file_size=1024 * 1024)
    sandbox = Sandbox(SandboxPolicy(root, limits=bounds))
    environment = {"PATH": os.environ["PATH"]}
    big, _ = await says(sandbox, "head -c 2000000 /dev/zero > big", root)
    greedy, _ = await says(
        sandbox, 'exec python3 -c "bytearray(400 * 1024 * 1024)"', root, environment=environment
    )
    forks, text = await says(
        sandbox, "for i in $(seq 40); do sleep 1000 & done; echo all", root, grace=0.0
    )
    core, limit = await says(sandbox, "ulimit -c", root)
    await sandbox.close()
    assert (root / "big").stat().st_size == 1024 * 1024
    assert big.exit_code != 0
    assert greedy.exit_code != 0
    assert (core.exit_code, limit) == (0, "0\n")
    if not probe().cgroup:
        pytest.skip("no control group can be made here: processes of root are not bounded")
    assert len(forks.leftover_processes) < 20
    assert "fork" in text.lower() or "resource" in text.lower()


# ---- preview


async def test_a_preview_tells_what_would_change_and_changes_nothing(root: Path) -> None:
    if not probe().overlay:
        pytest.skip(f"no overlay here: {probe().why.get('overlay', 'the kernel refuses it')}")
    (root / "gone").write_text("x")
    sandbox = Sandbox(SandboxPolicy(root, preview=True))
    ended, text = await says(
        sandbox, "echo more >> src/a.txt; rm gone; echo new > n; cat src/a.txt n; cat .env", root
    )
    again, _ = await says(sandbox, "cat n", root)
    await sandbox.close()
    assert text.startswith("ordinary\nmore\nnew\n")
    assert "secret" not in text
    assert ended.changes == (
        Change("gone", "deleted"),
        Change("n", "created", 4),
        Change("src/a.txt", "changed", 14),
    )
    assert again.exit_code == 1, "the next command begins with what is there"
    assert (root / "src/a.txt").read_text() == "ordinary\n"
    assert sorted(os.listdir(root)) == [".env", ".ferrule", "gone", "src"]


@pytest.mark.parametrize("parent", ["/var/tmp", "/tmp"])
async def test_a_workspace_may_lie_where_the_view_has_folders_of_its_own(parent: str) -> None:
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        Path(folder, "a").write_text("here\n")
        sandbox = Sandbox(SandboxPolicy(Path(folder)))
        _, text = await says(sandbox, "cat a; echo b > b", folder)
        await sandbox.close()
        assert text == "here\n"
        assert sorted(os.listdir(folder)) == ["a", "b"]


async def test_a_folder_that_was_opened_through_a_link_is_there_by_its_real_path(
    root: Path, tmp_path: Path
) -> None:
    (root / "link").symlink_to(tmp_path / "other")
    (tmp_path / "link").symlink_to(tmp_path / "other")
    sandbox = Sandbox(SandboxPolicy(root, readable=(str(tmp_path / "link"),)))
    _, text = await says(sandbox, "cat link/file; echo x > link/new", root)
    await sandbox.close()
    assert text.startswith("another project")
    assert os.listdir(tmp_path / "other") == ["file"]


async def test_two_commands_do_not_wait_for_each_other(sandbox: Sandbox, root: Path) -> None:
    with opened(root) as folder:
        first = await sandbox.start(shell("exec sleep 1000", folder))
    ended, _ = await says(sandbox, "true", root)
    assert ended.exit_code == 0
    assert (await first.end()).killed
