"""The container backend: what a real container does that no other backend has to."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from containers import find_container_engine, use_container_engine
from ferrule.sandbox.attacks import make_command, run_script
from ferrule.sandbox.backends.container_arguments import label_of
from ferrule.sandbox.backends.container_engine import ContainerEngine
from ferrule.sandbox.backends.probes import probe
from ferrule.sandbox.backends.selection import available_backends
from ferrule.sandbox.command import Capture, Command
from ferrule.sandbox.inside.container.relay import LABEL
from ferrule.sandbox.network.proxy import ConnectionAttempt
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.sandbox.sandbox import Sandbox

pytestmark = pytest.mark.proves("sandbox.backend.container")
Opens = Callable[..., Sandbox]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    return made


@pytest.fixture
async def opens(root: Path) -> AsyncIterator[Opens]:
    refused = use_container_engine()
    if refused:
        pytest.skip(refused)
    made: list[Sandbox] = []

    def open_one(**more: object) -> Sandbox:
        policy = replace(SandboxPolicy(root, require=frozenset()), **more)  # pyright: ignore[reportArgumentType]  a test's words
        backends = available_backends(policy, probe())
        backend = next(one for one in backends if one.name == "container")
        contacts: list[ConnectionAttempt] = []
        made.append(Sandbox(policy, backend=backend, on_contact=contacts.append))
        return made[-1]

    yield open_one
    for sandbox in made:
        await sandbox.close()


def list_containers(session: str = "") -> list[str]:
    engine = find_container_engine()
    assert isinstance(engine, ContainerEngine)
    listing = [engine.program, "ps", "--all", "--filter", f"label={LABEL}"]
    ran = subprocess.run(
        [*listing, "--format", "{{.Names}}"], capture_output=True, text=True, check=True
    )
    return [name for name in ran.stdout.split() if session in name]


def name_of(sandbox: Sandbox) -> str:
    """The name that the containers of a sandbox begin with."""
    scratch = sandbox.scratch_folder
    assert scratch is not None
    return scratch[0].parent.name


def refuse(data: bytes) -> bool:
    return False


async def run_bytes(sandbox: Sandbox, script: str, data: bytes) -> bytes:
    kept = bytearray()

    def sink(piece: bytes) -> bool:
        kept.extend(piece)
        return True

    directory = os.open(sandbox.policy.root, os.O_RDONLY)
    try:
        command = make_command(script, directory, stdin=data)
        ended = await sandbox.run(replace(command, output=sink))
    finally:
        os.close(directory)
    assert ended.exit_code == 0
    return bytes(kept)


async def test_one_container_serves_all_commands_until_other_names_are_to_be_masked(
    opens: Opens, root: Path
) -> None:
    sandbox = opens()
    for _ in range(3):
        await run_script(sandbox, "true")
    before = list_containers(name_of(sandbox))
    assert len(before) == 1
    (root / ".env").write_text("SECRET")
    ended, said = await run_script(sandbox, "cat .env")
    assert ended.exit_code != 0 and "SECRET" not in said
    after = await wait_for_containers(sandbox, 1)
    assert after != before


async def wait_for_containers(sandbox: Sandbox, count: int) -> list[str]:
    """The session's containers, once there are so many: one that has nothing to do ends."""
    deadline = time.monotonic() + 20
    while len(found := list_containers(name_of(sandbox))) != count:
        assert time.monotonic() < deadline, found
        await asyncio.sleep(0.1)
    return found


async def test_a_secret_is_masked_whatever_the_folders_above_are_called(
    opens: Opens, root: Path
) -> None:
    names = ["a,b", "a\nb", 'a"b', "type=bind,src=", "a b", " ", "\\", "dst=x\n,ro", "a:b", "--"]
    for number, name in enumerate(names):
        (root / name).mkdir()
        (root / name / ".env").write_text(f"SECRET{number}")
        (root / name / "plain").write_text(f"open{number}\n")
    _, said = await run_script(opens(), "cat ./*/plain; cat ./*/.env; grep -r SECRET .")
    assert "SECRET" not in said
    assert sorted(line for line in said.splitlines() if line.startswith("open")) == [
        f"open{number}" for number in range(len(names))
    ]


async def test_a_command_goes_on_while_another_one_needs_other_masks(
    opens: Opens, root: Path
) -> None:
    sandbox = opens()
    kept = Capture(1000, 0)
    directory = os.open(root, os.O_RDONLY)
    running = await sandbox.start(
        make_command("while ! test -e go; do sleep 0.05; done; echo went on", directory, kept)
    )
    os.close(directory)
    (root / ".env").write_text("SECRET")
    _, said = await run_script(sandbox, "cat .env; touch go")
    ended = await running.wait()
    assert (ended.exit_code, kept.text()) == (0, "went on\n") and "SECRET" not in said


async def test_every_byte_goes_both_ways_in_order(opens: Opens) -> None:
    sandbox = opens()
    data = bytes(range(256)) * 4096 + os.urandom(3_000_001)
    assert await run_bytes(sandbox, "cat", data) == data


async def test_output_that_nobody_reads_keeps_no_other_command_waiting(
    opens: Opens, root: Path
) -> None:
    sandbox = opens()
    reader, writer = os.pipe()
    directory = os.open(root, os.O_RDONLY)
    blocked = make_command("cat", directory, Capture(10, 0), stdin=b"")
    endless = await sandbox.start(
        replace(blocked, argv=("sh", "-c", "head -c 50000000 /dev/zero"), output=refuse)
    )
    waiting = await sandbox.start(replace(blocked, stdin=reader))
    ended, said = await run_script(sandbox, "echo here")
    assert (ended.exit_code, said) == (0, "here\n")
    os.close(writer)
    os.close(reader)
    os.close(directory)
    assert (await waiting.wait()).exit_code == 0
    assert (await endless.wait()).stopped_by_sink


async def test_what_starts_commands_is_out_of_their_reach(opens: Opens) -> None:
    # Commands have its user id. Whoever could write its descriptors could speak for it.
    script = (
        "for pid in 1 2 3 4; do test $pid = $$ && continue; for fd in 0 1 2 3 4 5 6 7 8 9 10 11 12; do "
        "readlink /proc/$pid/fd/$fd; (echo x >> /proc/$pid/fd/$fd) 2>/dev/null && echo WROTE; "
        "(head -c 1 < /proc/$pid/fd/$fd) 2>/dev/null && echo READ; done; "
        "cat /proc/$pid/environ /proc/$pid/maps 2>/dev/null | head -c 10; done; echo end"
    )
    _, said = await run_script(opens(), script)
    assert said == "end\n"


@pytest.mark.parametrize("script", ["kill -9 $PPID; sleep 1000", "kill -9 -1; sleep 1000"])
async def test_a_command_that_ends_its_supervisor_ends_with_it(
    opens: Opens, root: Path, script: str
) -> None:
    sandbox = opens()
    ended, _ = await run_script(sandbox, f"(setsid sleep 1000 &) ; {script}")
    assert ended.surviving_processes == () and not ended.timed_out
    ended, said = await run_script(sandbox, "echo again")
    assert (ended.exit_code, said) == (0, "again\n")


async def test_a_program_is_the_one_of_the_image(opens: Opens, root: Path) -> None:
    kept = Capture(1000, 0)
    directory = os.open(root, os.O_RDONLY)
    elsewhere = "/opt/homebrew/bin/python3"
    command = Command(
        ("python3", "-c", "import sys; print(sys.executable)"),
        elsewhere,
        directory,
        {"PATH": "/opt/homebrew/bin"},
        kept,
        timeout=60,
    )
    await opens().run(command)
    os.close(directory)
    assert kept.text() == "/usr/bin/python3\n"


async def test_a_thousand_connections_to_the_proxy_keep_no_other_command_waiting(
    opens: Opens, root: Path
) -> None:
    sandbox = opens()
    script = (
        "import os, socket, time, urllib.parse as u\n"
        "p = u.urlparse(os.environ['http_proxy'])\n"
        "made = []\n"
        "for n in range(900):\n"
        "    s = socket.socket(); s.settimeout(1)\n"
        "    try: s.connect((p.hostname, p.port))\n"
        "    except OSError: break\n"
        "    made.append(s)\n"
        "print(len(made) > 100, flush=True); time.sleep(1000)\n"
    )
    (root / "many.py").write_text(script)
    directory = os.open(root, os.O_RDONLY)
    kept = Capture(1000, 0)
    running = await sandbox.start(make_command("python3 many.py", directory, kept))
    os.close(directory)
    deadline = time.monotonic() + 30
    while kept.text() != "True\n":
        assert time.monotonic() < deadline, kept.text()
        await asyncio.sleep(0.1)
    ended, said = await run_script(sandbox, "echo here", timeout=20)
    assert (ended.exit_code, said) == (0, "here\n")
    await running.end()


async def test_nothing_is_left_when_the_session_is_closed(opens: Opens) -> None:
    sandbox = opens()
    await run_script(sandbox, "true")
    name = name_of(sandbox)
    assert list_containers(name)
    await sandbox.close()
    assert not list_containers(name)


@pytest.mark.parametrize("victim", ["server", "engine"])
async def test_a_container_ends_with_the_processes_outside(opens: Opens, victim: str) -> None:
    sandbox = opens()
    await run_script(sandbox, "true")
    server = sandbox.server_pid
    assert server is not None
    children = Path(f"/proc/{server}/task/{server}/children").read_text().split()
    os.kill(server if victim == "server" else int(children[0]), signal.SIGKILL)
    await wait_for_containers(sandbox, 0)
    ended, said = await run_script(sandbox, "echo again")
    assert (ended.exit_code, said) == (0, "again\n")


async def test_a_container_of_a_session_that_is_over_is_removed_by_the_next(
    opens: Opens,
) -> None:
    first = opens()
    await run_script(first, "true")
    engine = find_container_engine()
    assert isinstance(engine, ContainerEngine)
    scratch = first.scratch_folder
    assert scratch is not None
    label = label_of(str(scratch[0].parent))
    arguments = ["--detach", "--name", "ferrule-session-gone-01", "--label", label]
    options = [engine.user, "--network=none", "--stop-signal=SIGKILL", *engine.arguments]
    subprocess.run(
        [engine.program, "run", *arguments, *options, engine.image, "sleep", "1000"],
        check=True,
        capture_output=True,
    )
    second = opens()
    await run_script(second, "true")
    deadline = time.monotonic() + 20
    while list_containers("ferrule-session-gone") and time.monotonic() < deadline:
        await asyncio.sleep(0.1)
    assert not list_containers("ferrule-session-gone")
    assert list_containers(name_of(first)), "that of a session that goes on"


AS_ON_A_MAC = Path(__file__).with_name("as_on_a_mac.py")


def run_as_on_a_mac(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(AS_ON_A_MAC), *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "FERRULE_PORTABLE": "1"},
    )


def test_what_runs_outside_of_a_container_loads_without_what_only_linux_has() -> None:
    ran = run_as_on_a_mac(
        "import",
        "ferrule.sandbox.backends.container",
        "ferrule.sandbox.backends.container_image",
        "ferrule.sandbox.inside.container.relay",
        "ferrule.sandbox.sandbox",
        "ferrule.cli.doctor.attack",
        "ferrule.cli.doctor.container",
        "ferrule.toolkits.commands.runner",
    )
    assert ran.returncode == 0, ran.stderr


def test_commands_run_where_our_side_has_nothing_that_only_linux_has(root: Path) -> None:
    refused = use_container_engine()
    if refused:
        pytest.skip(refused)
    (root / ".env").write_text("SECRET")
    scripts = ("cat .env", "mkdir .harness", "echo own > id_rsa && pwd", "cat id_rsa")
    ran = run_as_on_a_mac("run", str(root), *scripts)
    assert ran.returncode == 0, ran.stderr
    results = [tuple(one) for one in json.loads(ran.stdout)]
    assert [code != 0 for code, _ in results] == [True, True, False, True]
    assert "SECRET" not in ran.stdout and results[2][1] == f"{root}\n"
    # Files have other identities inside: one with a secret's name counts as the person's.
    assert "own" not in results[3][1] and not (root / ".harness").exists()
