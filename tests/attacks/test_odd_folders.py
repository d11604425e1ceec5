"""Folders that are odd or vanish: what they are about fails with a clear error, and nothing else.

A row is made by a command, by the host while a session runs, or before one begins. Afterwards
ordinary commands of the session work, and file tools answer or name what is in their way. No answer
is an internal error.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from hostile_calls import TOOLS
from planted_world import BACKENDS, PlantedWorld, planted_world

from ferrule import Agent, Permissions, Scripted
from ferrule.core.calls import ErrorType

ODD: tuple[tuple[str, str], ...] = (
    ("deeper-than-a-path", "python3 -c \"import os\nfor _ in range(30): os.mkdir('d'*200); os.chdir('d'*200)\""),
    ("deeper-with-a-secret", "python3 -c \"import os\nfor _ in range(30): os.mkdir('e'*200); os.chdir('e'*200)\nopen('.env','w')\""),
    ("link-to-itself", "ln -s a a; ln -s .env .env; ln -s .git .git; ln -s .venv .venv"),
    ("links-in-a-circle", "ln -s b a; ln -s a b; mkdir .venv; ln -s ../a .venv/bin; ln -s a venv"),
    ("links-that-multiply", "mkdir d; cd d; for i in 1 2 3 4 5; do ln -s .. l$i; done"),
    ("dangling", "ln -s nowhere x; ln -s /nowhere/at/all y; ln -s '' z"),
    ("no-utf8-file", "touch \"$(printf 'a\\377b')\" \"$(printf '.env\\377')\""),
    ("no-utf8-folder", "mkdir \"$(printf 'a\\377b')\"; touch \"$(printf 'a\\377b/.env')\""),
    ("no-utf8-repository", "mkdir -p \"$(printf '\\377/.git')\"; touch \"$(printf '\\377/.git/config')\""),
    ("no-utf8-link", "ln -s \"$(printf '\\377')\" l; ln -s \"$(printf '/\\377/x')\" m"),
    ("newlines", "mkdir \"$(printf 'a\\nb')\"; touch \"$(printf 'a\\nb/.env')\" \"$(printf '.env\\n')\""),
    ("controls", "touch \"$(printf 'a\\033[2Jb')\" \"$(printf '\\001')\" \"$(printf '\\177')\""),
    ("longest-name", "touch $(printf '%0255d' 1); mkdir $(printf '%0250d' 2)"),
    ("options-as-names", "touch -- -rf --help -e; mkdir -- -C"),
    ("nobody-may-look", "mkdir shut; touch shut/.env; chmod 000 shut"),
    ("nobody-may-enter", "mkdir listed; touch listed/a; chmod 444 listed"),
    ("nobody-may-read", "touch closed; chmod 000 closed; mkdir w; chmod 222 w"),
    ("pipes", "mkfifo p .env.pipe .gitignore .gitmodules .python-version AGENTS.md"),
    ("sockets", "python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('s')\""),
    ("holes", "truncate -s 8T hole; truncate -s 8T .gitignore"),
    ("folders-for-files", "mkdir .gitignore .gitmodules AGENTS.md .venv.pyvenv.cfg; mkdir -p .venv/pyvenv.cfg"),
    ("files-for-folders", "touch .venv venv node_modules env"),
    ("many-links-to-one", "touch one; for i in $(seq 300); do ln one l$i; done"),
    ("many-entries", "mkdir many; cd many; for i in $(seq 3000); do : > f$i; done"),
    ("where-it-stands-is-removed", "mkdir here; cd here; rmdir ../here; ls; cat x; mkdir y"),
    ("what-was-opened-vanishes", "rm -rf data nested"),
    ("what-was-opened-is-a-file", "rm -rf data; touch data"),
    ("what-was-opened-is-a-pipe", "rm -rf data; mkfifo data"),
    ("what-was-opened-for-writing-vanishes", "rm -rf <H>/shared/inner; rmdir <H>/shared"),
    ("git-pointer-in-a-circle", "mkdir sub; echo gitdir: sub > .git; echo gitdir: ../ > sub/.git"),
    ("git-pointer-of-noise", "printf 'gitdir: \\377\\0\\n' > .git"),
    ("git-folder-of-noise", "mkdir g; head -c 100000 /dev/urandom > g/HEAD; echo gitdir: g > .git"),
)  # fmt: skip
"""Name, and what makes it."""

MOUNTS: tuple[tuple[str, str], ...] = (
    ("small-disk", "mkdir m; mount -t tmpfs -o size=16k none m; dd if=/dev/zero of=m/x bs=1k count=64"),
    ("no-inodes", "mkdir m; mount -t tmpfs -o nr_inodes=2 none m; touch m/a m/b m/c"),
    ("read-only", "mkdir m; mount -t tmpfs none m; touch m/.env; mount -o remount,ro m"),
    ("itself", "mkdir m; mount --bind . m"),
    ("file-on-file", "echo a > a; echo b > b; mount --bind a b"),
    ("many", "for i in $(seq 40); do mkdir m$i; mount -t tmpfs none m$i; touch m$i/.env; done"),
    ("deep", "mkdir -p m/a/b; mount -t tmpfs none m; mkdir -p m/a/b; mount -t tmpfs none m/a/b"),
    ("over-what-is-opened", "mount -t tmpfs none data; touch data/new"),
    ("gone-from-under", "mkdir m; mount -t tmpfs none m; touch m/x; exec 7< m/x; umount -l m"),
    ("no-utf8", "mkdir \"$(printf 'm\\377')\"; mount -t tmpfs none \"$(printf 'm\\377')\""),
    ("blanks", "mkdir 'm m'; mount -t tmpfs none 'm m'; touch 'm m/.env'"),
    ("newline", "mkdir \"$(printf 'm\\nm')\"; mount -t tmpfs none \"$(printf 'm\\nm')\""),
)  # fmt: skip
"""The same for file systems, which the host mounts."""

ORDINARY = "echo works > ordinary && cat ordinary && ls > /dev/null; rm -f ordinary; echo done"


@pytest.fixture(scope="module")
def shared_world() -> Iterator[PlantedWorld]:
    with planted_world() as made:
        yield made


@pytest.fixture
def world(shared_world: PlantedWorld) -> Iterator[PlantedWorld]:
    clear(shared_world)
    shared_world.reset()
    yield shared_world
    clear(shared_world)


def clear(world: PlantedWorld) -> None:
    """Unmount and remove what a row made, whatever it is called."""
    for line in reversed(Path("/proc/self/mountinfo").read_bytes().splitlines()):
        place = line.split()[4].decode("unicode_escape").encode("latin-1")
        if place.startswith(os.fsencode(world.root) + b"/"):
            subprocess.run(["umount", "-l", place], check=False, capture_output=True)
    subprocess.run(["chmod", "-R", "u+rwx", str(world.root)], check=False, capture_output=True)
    subprocess.run(["rm", "-rf", "--", *map(str, world.root.iterdir())], check=False)


def choose(rows: tuple[tuple[str, str], ...]) -> list[Any]:
    every = os.environ.get("FERRULE_TEST_ATTACKS") == "all"
    return [
        pytest.param(script, backend, id=f"{name}-{backend}")
        for number, (name, script) in enumerate(rows)
        for backend in (BACKENDS if every else [BACKENDS[number % 3]])
    ]


def check_commands(world: PlantedWorld, backend: str) -> None:
    """The running session goes on, and another one begins."""
    assert world.say(world.running(backend), ORDINARY) == "works\ndone\n"
    with world.begin(backend) as begun:
        assert world.say(begun, ORDINARY) == "works\ndone\n"


@pytest.mark.parametrize(("script", "backend"), choose(ODD))
def test_what_a_command_leaves_behind_harms_no_other(
    script: str, backend: str, world: PlantedWorld
) -> None:
    world.say(world.running(backend), script)
    check_commands(world, backend)


@pytest.mark.parametrize(("script", "backend"), choose(MOUNTS))
def test_what_is_mounted_while_a_session_runs_harms_no_command(
    script: str, backend: str, world: PlantedWorld
) -> None:
    if os.geteuid():
        pytest.skip("only root mounts")
    assert world.say(world.running(backend), "echo begun") == "begun\n"
    world.plant(script)
    check_commands(world, backend)


CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("list_files", {}),
    ("file_tree", {}),
    ("search_files", {"pattern": "works"}),
    ("read_file", {"path": "a"}),
    ("read_file", {"path": "data"}),
    ("git_status", {}),
    ("write_file", {"path": "made/by/a/tool.txt", "content": "x"}),
    ("delete_path", {"path": "made/by/a/tool.txt"}),
)


@pytest.mark.parametrize(
    "script", [pytest.param(script, id=name) for name, script in (*ODD, *MOUNTS)]
)
async def test_file_tools_answer_or_say_what_is_in_their_way(
    script: str, world: PlantedWorld
) -> None:
    world.plant(script)
    agent = Agent(
        Scripted([]),
        TOOLS,
        workspace=world.root,
        permissions=Permissions(mode="bypassPermissions"),
    )
    try:
        session = agent.session()
        for name, arguments in CALLS:
            result = await session.call(name, **arguments)
            assert result.error_type is not ErrorType.INTERNAL_ERROR, (name, result)
            assert result.success or result.error_message, (name, result)
            if name in ("write_file", "delete_path"):
                assert result.success, (name, result)
    finally:
        await agent.close()


WORKSPACES: dict[str, Callable[[Path], Path]] = {
    "no UTF-8": lambda base: Path(os.fsdecode(os.fsencode(base) + b"/w\xff")),
    "newline": lambda base: base / "a\nb",
    "blanks and quotes": lambda base: base / "a b'\"$(x)`",
    "below a link in a circle": lambda base: base / "up/../w",
    "255 bytes": lambda base: base / ("n" * 255),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", WORKSPACES)
def test_a_workspace_with_an_odd_name_is_one(kind: str, backend: str, world: PlantedWorld) -> None:
    (world.home / "work/up").mkdir(exist_ok=True)
    usual = world.root
    made = WORKSPACES[kind](world.home / "work")
    made.mkdir(exist_ok=True)
    world.root = Path(os.path.realpath(made))
    try:
        with world.begin(backend) as begun:
            assert world.say(begun, ORDINARY) == "works\ndone\n"
    finally:
        shutil.rmtree(world.root)
        world.root = usual


MAIN = "from ferrule.cli.entry import main; main()"


def start(folder: Path, *words: str, before: str = "") -> tuple[int, str]:
    """How a command of the terminal ends that starts in a folder, and what it says."""
    line = shlex.join([sys.executable, "-c", MAIN, *words])
    ended = subprocess.run(
        ["sh", "-c", f"{before or ':'}; exec {line}"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "XDG_STATE_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)},
    )
    return ended.returncode, ended.stdout + ended.stderr


@pytest.mark.parametrize("words", [["doctor"], ["tools", "list"], ["run", "x"], ["trust"]])
def test_a_folder_that_was_removed_is_named_with_the_next_step(
    words: list[str], tmp_path: Path
) -> None:
    before = f"mkdir {tmp_path}/gone; cd {tmp_path}/gone; rmdir {tmp_path}/gone"
    code, said = start(tmp_path, *words, before=before)
    assert code == 2
    assert f"{tmp_path}/gone" in said and "go to another one" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("loop", "name the folder itself"),
        ("nowhere", "make the folder"),
        ("shut/work", "change its rights"),
    ],
)
def test_a_workspace_that_cannot_be_read_is_named_with_the_next_step(
    name: str, step: str, tmp_path: Path
) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "shut/work").mkdir(parents=True)
    (tmp_path / "shut").chmod(0)
    if name == "shut/work" and not os.geteuid():
        pytest.skip("root may look into every folder")
    code, said = start(tmp_path, "tools", "call", "list_files", "-C", f"{tmp_path}/{name}")
    (tmp_path / "shut").chmod(0o700)
    assert code == 2, said
    assert f"{tmp_path}/{name}" in said and step in said
