"""Commands that Landlock and a filter hold, on a machine with no namespaces: what is kept, and what
ordinary work can do.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from shelled import below, says

from ferrule.sandbox.backends.probes import probe
from ferrule.sandbox.backends.selection import available_backends
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.sandbox.sandbox import Sandbox

sys.path.insert(0, str(Path(__file__).parent))
from without import without_user_namespaces

Opens = Callable[..., Sandbox]
PYTHON = "/usr/bin/python3"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    for name in (
        ".ferrule/settings",
        ".env",
        "deep/.env",
        ".aws/credentials",
        "sub/a.py",
        "note.txt",
        ".vscode/tasks.json",
        ".git/HEAD",
    ):
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text(f"<{name}>")
    (made / ".git/config").write_text(
        '[remote "a"]\n\turl = https://hidden@x\n[core]\n\tbare = false\n'
    )
    os.link(made / ".env", made / "same.txt")
    (tmp_path / "outside.txt").write_text("outside")
    return made


@pytest.fixture
async def landlocked(root: Path) -> AsyncIterator[Opens]:
    made: list[Sandbox] = []

    def opens(**changes: object) -> Sandbox:
        policy = replace(SandboxPolicy(root, require=frozenset()), **changes)  # pyright: ignore[reportArgumentType]  a test's words
        backend = next(
            (one for one in available_backends(policy, probe()) if one.name == "landlock"), None
        )
        if backend is None:
            pytest.skip("no Landlock here, or nothing that can mediate")
        made.append(Sandbox(policy, backend=backend))
        return made[-1]

    yield opens
    for sandbox in made:
        await sandbox.close()


async def said(landlocked: Opens, root: Path, script: str) -> str:
    return (await says(landlocked(), script, root))[1]


@pytest.mark.proves("sandbox.backend.landlock")
async def test_files_beside_a_secret_are_made_read_back_changed_and_removed(
    landlocked: Opens, root: Path
) -> None:
    script = (
        "echo one > new; echo two >> new; cat new; mkdir -p a/b; mv new a/b/; cp a/b/new .; "
        "chmod 640 new; ls -l new | cut -c1-10; rm -r a new; ls"
    )
    assert (await said(landlocked, root, script)).split() == [
        "one",
        "two",
        "-rw-r-----",
        "deep",
        "note.txt",
        "same.txt",
        "sub",
    ]


@pytest.mark.proves("sandbox.backend.landlock")
@pytest.mark.parametrize(
    "script",
    [
        "cat .env",
        "cat deep/.env",
        "cat same.txt",
        "cat .ferrule/settings",
        "cd .ferrule && cat settings",
        "ls .ferrule | grep settings",
        "cat .git/config | grep hidden",
        "ln .env x; cat x",
        "ln same.txt x; cat x",
        "ln -s .env x; cat x",
        "mv .env x; cat x",
        "mv same.txt x; cat x",
        "mv deep d; cat d/.env",
        "cp -r .ferrule x; cat x/settings",
        "cat /proc/self/cwd/.env",
        "cat < .env",
        "exec 9< .env; cat <&9",
        "tar cf - .env",
        (
            '{python} -c \'import os; d=os.open(".ferrule", os.O_PATH); '
            'print(os.listdir(f"/proc/self/fd/{{d}}")); '
            'print(open(f"/proc/self/fd/{{d}}/settings").read())\''
        ),
        (
            '{python} -c \'import os; d=os.open(".env", os.O_PATH); '
            'print(open(f"/proc/self/fd/{{d}}").read())\''
        ),
        (
            '{python} -c \'import os; d=os.open(".ferrule", os.O_PATH|os.O_DIRECTORY); '
            'print(os.read(os.open("settings", os.O_RDONLY, dir_fd=d), 99))\''
        ),
        (
            '{python} -c \'import ctypes, os; d=os.open(".aws/credentials", os.O_PATH); '
            'ctypes.CDLL(None).linkat(d, b"", -100, b"x", 0x1000); print(open("x").read())\''
        ),
        (
            '{python} -c \'import ctypes, os; d=os.open(".ferrule/settings", os.O_PATH); '
            'ctypes.CDLL(None).linkat(-100, b"/proc/self/fd/%d" % d, -100, b"x", 0x400); '
            'print(open("x").read())\''
        ),
    ],
)
async def test_what_is_masked_elsewhere_is_not_read_by_any_name(
    landlocked: Opens, root: Path, script: str
) -> None:
    shown = await said(landlocked, root, script.format(python=PYTHON))
    assert not any(
        word in shown
        for word in (
            "<.env>",
            "<deep/.env>",
            "credentials>",
            "settings>",
            "['settings']",
            "hidden@",
        )
    )


@pytest.mark.proves("sandbox.backend.landlock")
@pytest.mark.parametrize(
    "script",
    [
        "echo x > .env",
        "rm .env",
        "rm -rf .ferrule",
        "mv note.txt .env",
        "truncate -s 0 .env",
        "chmod 777 .env",
        "touch -d 2001-01-01 .env",
        "echo x > .vscode/tasks.json",
        "rm .vscode/tasks.json",
        "mv .vscode x",
        "rm -r .vscode",
        "echo x >> .git/config",
        "rm .git/config",
        "ln -sf note.txt .env",
        "{python} -c 'import os; os.truncate(\".env\", 0)'",
        '{python} -c \'import os; os.setxattr(".env", "user.x", b"")\'',
        (
            '{python} -c \'import os; d=os.open(".vscode/tasks.json", os.O_PATH); '
            'open(f"/proc/self/fd/{{d}}", "w")\''
        ),
        (
            '{python} -c \'import ctypes, os; d=os.open(".vscode/tasks.json", os.O_PATH); '
            'ctypes.CDLL(None).linkat(d, b"", -100, b"x", 0x1000); open("x", "r+").write("y")\''
        ),
        (
            '{python} -c \'import ctypes, os; d=os.open(".vscode/tasks.json", os.O_PATH); '
            'ctypes.CDLL(None).linkat(-100, b"/proc/self/fd/%d" % d, -100, b"x", 0x400); '
            'open("x", "r+").write("y")\''
        ),
        (
            '{python} -c \'import os; d=os.open(".vscode/tasks.json", os.O_PATH); '
            'os.truncate(f"/proc/self/fd/{{d}}", 3)\''
        ),
        "{python} -c 'import os; os.chmod(os.open(\".vscode/tasks.json\", os.O_RDONLY), 0o777)'",
        "mkdir .harness",
        "ln -s sub agents",
        "mv sub agents",
        "echo x > sub/.git",
        "echo x > .bashrc",
    ],
)
async def test_protected_names_are_neither_changed_removed_nor_made(
    landlocked: Opens, root: Path, script: str
) -> None:
    def state() -> dict[str, tuple[object, ...]]:
        found = {str(path.relative_to(root)): path.lstat() for path in sorted(root.rglob("*"))}
        return {
            name: (s.st_ino, s.st_mode, s.st_size, s.st_mtime_ns)
            for name, s in found.items()
            if not (root / name).is_dir()
        }

    before = state()
    await said(landlocked, root, script.format(python=PYTHON))
    assert state() == before


@pytest.mark.proves("sandbox.backend.landlock")
@pytest.mark.parametrize(
    "script",
    [
        "cat ../outside.txt",
        "echo x > ../outside.txt",
        "chmod 600 ../outside.txt",
        "touch -d 2001-01-01 ../outside.txt",
        "rm ../outside.txt",
        "ls ..",
        "mv note.txt ../x",
        "ln ../outside.txt x; cat x",
        "truncate -s 0 ../outside.txt",
        "{python} -c 'import os; os.truncate(\"../outside.txt\", 0)'",
        "{python} -c 'import os; os.open(\"../outside.txt\", os.O_TRUNC)'",
        '{python} -c \'import os; os.setxattr("../outside.txt", "user.x", b"1")\'',
        "{python} -c 'import os; os.chmod(os.open(\"/etc/passwd\", 0), 0o600)'",
        "cat /etc/shadow",
        "ls /tmp",
        "ls ~root/.ssh",
        "ls /dev/shm",
        "echo x > /dev/shm/ferrule-x && cat /dev/shm/../shm/ferrule-x",
    ],
)
async def test_what_lies_outside_is_neither_read_nor_changed(
    landlocked: Opens, root: Path, script: str
) -> None:
    outside = root.parent / "outside.txt"
    before = outside.stat(), Path("/etc/passwd").stat()
    ended, shown = await says(landlocked(), script.format(python=PYTHON), root)
    assert ended.exit_code != 0 and "outside\n" not in shown and "root:" not in shown
    assert (
        outside.stat(),
        Path("/etc/passwd").stat(),
    ) == before and outside.read_text() == "outside"


@pytest.mark.proves("sandbox.backend.landlock")
async def test_no_socket_reaches_anything_and_pairs_work(landlocked: Opens, root: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        script = f"""
import socket
for family, kind in ((socket.AF_INET, socket.SOCK_STREAM), (socket.AF_INET6, socket.SOCK_DGRAM), (socket.AF_UNIX, socket.SOCK_DGRAM)):
    try:
        socket.socket(family, kind).connect(("127.0.0.1", {server.getsockname()[1]}))
    except OSError as error:
        print(type(error).__name__)
a, b = socket.socketpair()
a.send(b"pair"); print(b.recv(9).decode())
"""
        ended, shown = await says(landlocked(), f"{PYTHON} - <<'END'\n{script}\nEND", root)
    assert (ended.exit_code, shown.split()) == (0, ["PermissionError"] * 3 + ["pair"])


@pytest.mark.proves("sandbox.backend.landlock")
async def test_what_the_machines_processes_share_by_number_or_name_is_not_there(
    landlocked: Opens, root: Path
) -> None:
    script = """
import ctypes
library = ctypes.CDLL(None, use_errno=True)
for call, words in (("shmget", (0, 4096, 0o1600)), ("msgget", (0, 0o1600)), ("semget", (0, 1, 0o1600)), ("mq_open", (b"/x", 66, 0o600, None))):
    print(getattr(library, call)(*words), ctypes.get_errno())
"""
    shown = await said(landlocked, root, f"{PYTHON} - <<'END'\n{script}\nEND")
    assert shown.split() == ["-1", "38"] * 4


@pytest.mark.proves("sandbox.backend.landlock")
async def test_other_processes_are_neither_read_nor_signalled(
    landlocked: Opens, root: Path
) -> None:
    own = os.getpid()
    script = (
        f"cat /proc/{own}/cmdline; cat /proc/{own}/environ; ls /proc/{own}/fd; kill -0 {own} && "
        "echo reached; cat /proc/net/unix; head -c 4 /proc/self/stat > /dev/null && echo own"
    )
    ended, shown = await says(landlocked(), f"({script}) 2> /dev/null", root)
    assert shown == "own\n" if probe().landlock_abi >= 6 else "own\n" in shown
    assert ended.leftover_processes == ()


@pytest.mark.proves("sandbox.backend.landlock")
async def test_its_supervisor_cannot_be_ended_and_nothing_outlives_the_command(
    landlocked: Opens, root: Path
) -> None:
    sandbox = landlocked()
    script = (
        "kill -9 $PPID 2> /dev/null; setsid sleep 1000 > /dev/null 2>&1 & mkdir .harness; exit 3"
    )
    ended, _ = await says(sandbox, script, root)
    if probe().landlock_abi >= 6:
        assert (ended.exit_code, ended.refused_names, ended.surviving_processes) == (
            3,
            (".harness",),
            (),
        )
    assert not (root / ".harness").exists()
    assert sandbox.server_pid is not None and len(below(sandbox.server_pid)) <= 1


@pytest.mark.proves("sandbox.backend.landlock")
async def test_pipes_with_names_terminals_and_odd_names_work_as_ever(
    landlocked: Opens, root: Path
) -> None:
    script = (
        "mkfifo p; (echo through > p) & cat p; rm p; echo x > /dev/null; cat /dev/stdin < "
        "note.txt; echo; cat sub/; cat note.txt/; ls / ; cat sub/../note.txt; cd sub/ && cat "
        "./a.py"
    )
    shown = await said(landlocked, root, script)
    for part in (
        "through\n",
        "<note.txt>\n",
        "sub/: Is a directory",
        "note.txt/: Not a directory",
        "<note.txt><sub/a.py>",
    ):
        assert part in shown


@pytest.mark.proves("sandbox.backend.landlock")
async def test_a_nameless_file_gets_a_name_only_where_one_may_be_made(
    landlocked: Opens, root: Path
) -> None:
    script = """
import os
for folder, name in ((".", "ordinary"), (".", ".bashrc"), (".ferrule", "x")):
    try:
        made = os.open(folder, os.O_TMPFILE | os.O_RDWR)
        os.link(f"/proc/self/fd/{made}", f"{folder}/{name}", src_dir_fd=0, follow_symlinks=True)
        print("made", name)
    except OSError as error:
        print(type(error).__name__)
"""
    shown = await said(landlocked, root, f"{PYTHON} - <<'END'\n{script}\nEND")
    assert shown.split() == ["made", "ordinary", "PermissionError", "PermissionError"]


@pytest.mark.proves("sandbox.backend.landlock")
async def test_home_and_temporary_folder_are_the_sessions_own(
    landlocked: Opens, root: Path
) -> None:
    sandbox = landlocked()
    _, shown = await says(
        sandbox,
        'echo x > "$TMPDIR/t"; echo y > "$HOME/h"; cat "$TMPDIR/t" "$HOME/h"; echo "$TMPDIR"',
        root,
    )
    place, seen = sandbox.scratch_folder or (Path(), "")
    assert shown.split() == ["x", "y", seen] and str(place) == seen and (place / "t").exists()
    await sandbox.close()
    assert not place.exists()


_SCRIPT = """
import asyncio, sys
from pathlib import Path
from ferrule.sandbox.policy import Protection, SandboxPolicy
from ferrule.sandbox.sandbox import Sandbox
from ferrule.sandbox.backends.reduced_protection import MissingProtections
from ferrule.testing.sandbox_conformance import run_script

async def main():
    root = Path(sys.argv[1])
    try:
        Sandbox(SandboxPolicy(root))
    except MissingProtections as gap:
        print("refused:", gap.backend.name, *(one.protection for one in gap.missing))
    needed = frozenset({Protection.FILE_WRITES, Protection.NEW_NAMES, Protection.EXEC, Protection.NETWORK, Protection.UNIX_SOCKETS})
    sandbox = Sandbox(SandboxPolicy(root, require=needed))
    ended, said = await run_script(sandbox, "cat note.txt; cat .env; echo n > new; cat new; mkdir .harness")
    print(sandbox.protections().backend, ended.exit_code, said, ended.refused_names)
    await sandbox.close()

asyncio.run(main())
"""


@pytest.mark.proves("sandbox.backend.landlock")
def test_where_no_namespace_can_be_made_a_policy_that_requires_less_runs_and_the_default_refuses(
    root: Path,
) -> None:
    if not probe().landlock_abi:
        pytest.skip("this kernel has no Landlock")
    ran = without_user_namespaces(
        [sys.executable, "-c", _SCRIPT, str(root)],
        env={"PATH": os.environ["PATH"], "HOME": str(root.parent)},
    )
    assert "refused: landlock file_reads names signals" in ran.stdout, ran.stderr
    assert "landlock 1 <note.txt>" in ran.stdout and "('.harness',)" in ran.stdout
    assert "n\n" in ran.stdout and "<.env>" not in ran.stdout


@pytest.mark.proves("sandbox.backend.landlock")
async def test_memory_that_processes_share_by_name_is_the_sessions_own(
    landlocked: Opens, root: Path
) -> None:
    script = """
from multiprocessing import Lock, shared_memory
with Lock():
    made = shared_memory.SharedMemory(create=True, size=9, name="ferrule-test")
made.buf[0] = 7
other = shared_memory.SharedMemory(name="ferrule-test")
print(other.buf[0])
other.close(); made.close(); made.unlink()
"""
    ended, shown = await says(
        landlocked(), f"{PYTHON} - <<'END'\n{script}\nEND\nls -A ~/.shared", root
    )
    assert (ended.exit_code, shown) == (0, "7\n") and not Path("/dev/shm/ferrule-test").exists()
