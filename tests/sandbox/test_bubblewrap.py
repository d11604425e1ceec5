"""The view as a command line for bubblewrap, as text and really run."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ferrule.sandbox.backends.bubblewrap_arguments import bubblewrap_argv
from ferrule.sandbox.backends.probes import probe
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.sandbox.view.layout import SessionPaths, Step, final_steps, session_steps
from ferrule.sandbox.view.machine_folders import inspect_machine
from ferrule.sandbox.view.masks import MaskScanner
from ferrule.sandbox.view.openings import resolve_openings
from ferrule.sandbox.view.session_folder import SessionFolder

PLACES = SessionPaths("/base")


def argv_of(*steps: Step) -> list[str]:
    argv = bubblewrap_argv(
        "/usr/bin/bwrap",
        steps,
        PLACES,
        directory="/work",
        program="/bin/sh",
        argv=("sh", "-c", "x"),
    )
    assert argv[0] == "/usr/bin/bwrap" and argv[-6:] == (
        "--chdir",
        "/work",
        "--",
        "/bin/sh",
        "-c",
        "x",
    )
    assert {"--unshare-all", "--die-with-parent", "--new-session"} <= set(argv)
    return list(argv[argv.index("ALL") + 1 : -6])


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (("link", "/bin", "usr/bin"), ["--symlink", "usr/bin", "/bin"]),
        (("read", "/usr", "/usr"), ["--ro-bind", "/usr", "/usr"]),
        (("write", "/tmp", "/base/tmp"), ["--bind", "/base/tmp", "/tmp"]),
        (
            ("cover", "/work/.env", "/.held/closed"),
            ["--ro-bind", "/base/held/closed", "/work/.env"],
        ),
        (
            ("cover", "/etc/shadow", "/base/held/closed"),
            ["--ro-bind", "/base/held/closed", "/etc/shadow"],
        ),
        (("hold", "/work/.vscode", ""), ["--ro-bind", "/work/.vscode", "/work/.vscode"]),
        (("folder", "/run", "755"), ["--perms", "0755", "--dir", "/run"]),
        (("tmpfs", "/x", "mode=1777,size=64k"), ["--perms", "1777", "--tmpfs", "/x"]),
        (("proc", "/proc", ""), ["--proc", "/proc"]),
        (("seal", "/", ""), ["--remount-ro", "/"]),
        (("read", "/.held", "/base/held"), []),
    ],
)
def test_each_step_has_its_words(step: Step, words: list[str]) -> None:
    assert argv_of(step) == words


def test_devices_are_bubblewraps_own_and_an_overlay_is_refused() -> None:
    assert argv_of(
        ("tmpfs", "/dev", ""), ("device", "/dev/null", "/dev/null"), ("seal", "/dev", "")
    ) == [
        "--dev",
        "/dev",
    ]
    with pytest.raises(ValueError, match="overlay"):
        argv_of(("overlay", "/work", "/.held/previews/1"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    (made / ".ferrule").mkdir(parents=True)
    (made / ".ferrule/ferrule.yaml").write_text("x")
    (made / ".vscode").mkdir()
    (made / ".env").write_text("SECRET=1")
    (made / "note.txt").write_text("hello\n")
    os.link(made / ".env", made / "other.txt")
    (tmp_path / "outside.txt").write_text("outside")
    return made


@pytest.fixture
def places() -> Iterator[SessionPaths]:
    folder = SessionFolder()
    yield folder.make()
    folder.remove()


def in_bubblewrap(
    root: Path, places: SessionPaths, script: str
) -> subprocess.CompletedProcess[str]:
    bwrap = probe().bwrap
    if not bwrap:
        pytest.skip(f"no bubblewrap that works here: {probe().why.get('bwrap')}")
    policy = SandboxPolicy(root)
    openings = resolve_openings(policy, policy.command_writable)
    environment = {"PATH": os.environ["PATH"]}
    found = inspect_machine(environment, str(Path.home()), places, openings)
    steps = [
        *session_steps(policy, found),
        *final_steps(MaskScanner(root, policy.names).scan().masks, {}, root),
    ]
    argv = bubblewrap_argv(
        bwrap, steps, places, directory=str(root), program="/bin/sh", argv=("sh", "-c", script)
    )
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(Path.home())}
    return subprocess.run(
        argv, capture_output=True, text=True, check=False, env=environment, timeout=60
    )


def test_ordinary_work_goes_on(root: Path, places: SessionPaths) -> None:
    ran = in_bubblewrap(
        root,
        places,
        "cat note.txt && echo new > made.txt && pwd && echo t > /tmp/ferrule-inside && cat /tmp/ferrule-inside && id -u",
    )
    assert (ran.returncode, ran.stdout.splitlines()) == (
        0,
        ["hello", str(root), "t", str(os.geteuid())],
    ), ran.stderr
    assert (root / "made.txt").read_text() == "new\n" and not Path("/tmp/ferrule-inside").exists()


@pytest.mark.parametrize(
    "script",
    [
        "cat .env",
        "cat other.txt",
        "cp .env x.txt",
        "ln .env x.txt",
        "rm .env",
        "mv .env x",
        "echo x >> .env",
        "cat .ferrule/ferrule.yaml",
        "echo x > .ferrule/y",
        "rm -r .ferrule",
        "mv .ferrule x",
        "echo x > .vscode/tasks.json",
        "cat ../outside.txt",
        "cat /proc/1/root{root}/.env",
        "ls /proc/1/root{root}/../outside.txt",
        "echo x > /usr/x",
        "cat /etc/shadow",
        "ls /home/*/.ssh ~/.ssh",
        "umount {root}/.env",
        "mount -o remount,rw /",
        "kill -0 {pid}",
        "unshare -Ur grep . {root}/.env",
        "unshare -Urm umount {root}/.env && cat .env",
        "chmod 600 .env && cat .env",
    ],
)
def test_what_is_covered_or_outside_is_out_of_reach(
    root: Path, places: SessionPaths, script: str
) -> None:
    ran = in_bubblewrap(root, places, script.format(root=root, pid=os.getpid()))
    assert ran.returncode != 0, ran.stdout
    assert "SECRET" not in ran.stdout and "outside\n" not in ran.stdout
    assert (root / ".env").read_text() == "SECRET=1"
    assert sorted(path.name for path in (root / ".ferrule").iterdir()) == ["ferrule.yaml"]


def test_no_packet_leaves_not_even_to_this_machine(root: Path, places: SessionPaths) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ran = in_bubblewrap(root, places, f"exec 3<>/dev/tcp/127.0.0.1/{server.getsockname()[1]}")
        bash = f"bash -c 'exec 3<>/dev/tcp/127.0.0.1/{server.getsockname()[1]} && echo reached'"
        ran = in_bubblewrap(root, places, bash)
        assert ran.returncode != 0 and "reached" not in ran.stdout
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()
