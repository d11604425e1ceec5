"""Ordinary programs under the filter and the mediator do what they always do."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from mediated_runs import needs, python, shell

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="seccomp is Linux")


PYTHON = shlex.quote(sys.executable)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


PROGRAMS: dict[str, tuple[tuple[str, ...], str]] = {
    "coreutils": (
        (),
        (
            "mkdir -p a/b && cp -a a c && touch a/x && mv a/x c/y && install -m 640 c/y z && "
            "ln -s z "
            "s && rm -r a c s z"
        ),
    ),
    "sed-in-place": ((), "echo a > f && sed -i s/a/b/ f && grep b f"),
    "mktemp": ((), "f=$(mktemp -p .) && d=$(mktemp -d -p .) && test -f $f && test -d $d"),
    "tar": (
        ("tar",),
        (
            "mkdir -p t/u && echo x > t/u/v && ln t/u/v t/w && tar czf t.tgz t && mkdir o && tar "
            "xzpf t.tgz -C o && diff -r t o/t"
        ),
    ),
    "compiler": (
        ("gcc", "make"),
        (
            "printf 'int main(){return 0;}' > m.c && printf 'm: m.c\\n\\tgcc -O2 -pipe -o m "
            "m.c\\nn: "
            "m\\n\\tcp m n\\n' > Makefile && make -j4 n && ./n"
        ),
    ),
    "compiler-temporaries": (
        ("gcc",),
        (
            "printf '#include <stdio.h>\\nint main(){puts(\"hi\");}' > m.c && TMPDIR=$PWD gcc -g "
            "-save-temps -o m m.c && ./m"
        ),
    ),
    "database": (
        ("sqlite3",),
        (
            "sqlite3 d.db 'pragma journal_mode=wal; create table t(x); insert into t "
            "values(1),(2); "
            "select sum(x) from t'"
        ),
    ),
    "node": (
        ("node",),
        (
            "node -e \"const fs=require('fs'); fs.mkdirSync('a/b',{recursive:true}); "
            "fs.writeFileSync('a/b/c','x'); "
            "fs.promises.writeFile('d','y').then(()=>fs.promises.copyFile('d','e')).then(()=>console.log(fs.readdirSync('.')))\""
        ),
    ),
    "node-child": (
        ("node",),
        "node -e \"require('child_process').execSync('echo x > made')\" && test -s made",
    ),
    "npm": (
        ("npm",),
        "npm_config_cache=$PWD/cache npm init -y > /dev/null && test -s package.json",
    ),
    "virtual-environment": (
        (),
        f"{PYTHON} -m venv --without-pip v && v/bin/python -c 'print(1)'",
    ),
    "compiled-python": (
        (),
        (f"mkdir p && echo 'x=1' > p/m.py && {PYTHON} -m compileall -q p && ls p/__pycache__"),
    ),
    "key": (
        ("openssl",),
        (
            "openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -subj "
            "/CN=test "
            "-days 1 2>/dev/null && openssl x509 -in cert.pem -noout"
        ),
    ),
    "shell-files": (
        (),
        (
            "cat > here <<END\nx\nEND\nexec 4<>rw; echo x >&4; set -C; echo y > here; test "
            "$? = 1 && "
            "echo ok > /dev/null && echo e > /dev/stderr"
        ),
    ),
    "background": (
        (),
        (
            "for i in 1 2 3 4 5 6 7 8; do (for j in 1 2 3 4 5 6 7 8 9; do echo $i > f$i$j; done) & "
            "done; wait; test $(ls | wc -l) = 72"
        ),
    ),
    "pipe": (
        (),
        (
            "mkfifo f && (cat f > got &) && sleep 0 && echo through > f && while ! grep -q through "
            "got; do :; done"
        ),
    ),
    "pipe-both-wait": (
        (),
        (
            "mkfifo f g && (echo one > f; cat g > h) & cd . && while ! test -p g; do :; "
            "done; read x "
            "< f; echo $x > g; wait; grep one h"
        ),
    ),
    "rust": (
        ("cargo",),
        "cargo init --vcs none --name x . -q && cargo build -q --offline && ./target/debug/x",
    ),
    "go": (
        ("go",),
        (
            "printf 'package main\\nfunc main(){println(1)}' > m.go && GOCACHE=$PWD/c "
            "GOFLAGS=-mod=mod go build -o m m.go && ./m"
        ),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_works_unchanged(root: Path, name: str) -> None:
    required, script = PROGRAMS[name]
    if missing := needs(*required):
        pytest.skip(f"not on this machine: {', '.join(missing)}")
    outcome = shell(root, f"set -e; {script}" if name not in ("shell-files",) else script)
    assert outcome.code == 0, outcome.output
    assert outcome.refused == []


def test_git_commits_branches_merges_and_stashes_in_a_repository_that_is_there(root: Path) -> None:
    if needs("git"):
        pytest.skip("no git on this machine")
    subprocess.run(["git", "init", "-q", "-b", "main", "."], cwd=root, check=True)
    script = """
set -e
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
echo 1 > a; git add a; git commit -qm one; git checkout -qb side; echo 2 > b; git add b; git commit -qm two
git checkout -q main; echo 3 > c; git add c; git commit -qm three; git merge -q side -m merged; git tag v1
echo 4 >> a; git stash -q; git stash pop -q; git rm -q --cached b; git reset -q --hard; git gc -q; git fsck; git log --oneline | wc -l
"""
    outcome = shell(root, script)
    assert outcome.code == 0, outcome.output
    assert outcome.output.rstrip().endswith("4")
    assert outcome.refused == []


SIGNALS = """
import os, signal
ticks, interrupted = 0, 0
def tick(number, frame):
    global ticks
    ticks += 1
signal.signal(signal.SIGALRM, tick)
signal.siginterrupt(signal.SIGALRM, {interrupting})
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
for number in range(600):
    os.close(os.open(f"f{{number}}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    while True:
        try:
            os.mkdir(f"d{{number}}")
            break
        except InterruptedError:
            interrupted += 1
signal.setitimer(signal.ITIMER_REAL, 0)
print("ticks", ticks > 0, "interrupted", interrupted if not {interrupting} else 0)
"""


@pytest.mark.parametrize("interrupting", [False, True])
def test_a_call_that_a_signal_interrupts_is_performed_once(root: Path, interrupting: bool) -> None:
    # EEXIST would tell of a call that was performed and then interrupted.
    outcome = python(root, SIGNALS.format(interrupting=interrupting))
    assert outcome.output == "ticks True interrupted 0\n"
    assert len(os.listdir(root)) == 1200


KILLED = """
import os, signal, time
for _ in range(60):
    child = os.fork()
    if child == 0:
        while True:
            os.close(os.open("f", os.O_CREAT | os.O_TRUNC | os.O_WRONLY))
            os.rename("f", "g")
    while not os.path.exists("g"):
        pass
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.unlink("g")
print(len(os.listdir("/proc/1/task")) if os.path.isdir("/proc/1/task") else 1)
"""


def test_callers_that_are_killed_in_their_calls_leave_the_mediator_working(root: Path) -> None:
    outcome = python(root, KILLED)
    assert outcome.code == 0, outcome.output
    assert shell(root, "echo still > here && cat here").output == "still\n"


THREADS = """
import ctypes, os, threading
libc = ctypes.CDLL(None, use_errno=True)
os.mkdir("one"); os.mkdir("two")
def create(folder, mask):
    # Its own folder and umask, which threads usually share.
    assert libc.unshare(0x200) == 0
    os.chdir(folder)
    os.umask(mask)
    for number in range(200):
        os.close(os.open(f"f{number}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
threads = [threading.Thread(target=create, args=arguments) for arguments in (("one", 0o077), ("two", 0o002))]
for thread in threads: thread.start()
for thread in threads: thread.join()
for folder in ("one", "two"):
    print(folder, len(os.listdir(folder)), {oct(os.stat(f"{folder}/{name}").st_mode) for name in os.listdir(folder)})
"""


def test_each_thread_has_its_own_folder_and_umask(root: Path) -> None:
    assert python(root, THREADS).output == "one 200 {'0o100600'}\ntwo 200 {'0o100664'}\n"


def test_a_child_that_shares_its_parents_memory_creates_its_files(root: Path) -> None:
    script = """
import os
os.umask(0o027)
actions = [(os.POSIX_SPAWN_OPEN, 1, "out", os.O_CREAT | os.O_WRONLY, 0o666)]
os.waitpid(os.posix_spawn("/bin/echo", ["echo", "words"], {}, file_actions=actions), 0)
print(open("out").read(), oct(os.stat("out").st_mode))
"""
    assert python(root, script).output == "words\n 0o100640\n"


def test_a_process_that_hides_its_memory_creates_its_files(root: Path) -> None:
    script = """
import ctypes, os
ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
os.mkdir("d")
folder = os.open("d", 0)
os.close(os.open("f", os.O_CREAT | os.O_WRONLY, dir_fd=folder))
print(os.listdir("d"))
"""
    assert python(root, script).output == "['f']\n"


@pytest.mark.proves("sandbox.creation.devices")
def test_terminals_are_opened_and_are_the_callers(root: Path) -> None:
    script = """
import os, pty
master = os.open("/dev/ptmx", os.O_RDWR | os.O_CREAT | os.O_NOCTTY)
pid, terminal = pty.fork()
if pid == 0:
    with open(os.open("/dev/tty", os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o666), "w") as out:
        out.write("to my terminal")
    os._exit(0)
print(os.read(terminal, 100).decode())
os.waitpid(pid, 0)
os.setsid() if os.getpid() != os.getsid(0) else None
try:
    os.open("/dev/tty", os.O_CREAT | os.O_WRONLY)
except OSError as error:
    print(error.errno)
os.write(os.open("/dev/null", os.O_CREAT | os.O_WRONLY | os.O_TRUNC), b"x")
"""
    output = python(root, script).output
    assert output.startswith("to my terminal\n")
    assert output.rstrip().endswith("6")


def test_sockets_are_bound_by_the_name_that_was_given(root: Path) -> None:
    script = """
import os, socket
os.umask(0o077)
for address in ("here", os.path.abspath("there"), "\\0hidden-%d" % os.getpid()):
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind(address)
        server.listen()
        client.connect(address)
        print(server.getsockname() in (address, address.encode()))
print(oct(os.stat("here").st_mode))
try:
    socket.socket(socket.AF_UNIX).bind("here")
except OSError as error:
    print(error.errno)
with socket.socket() as server:
    server.bind(("127.0.0.1", 0))
    print(server.getsockname()[1] > 0)
"""
    assert python(root, script).output == "True\nTrue\nTrue\n0o140700\n98\nTrue\n"


def test_too_many_open_files_is_an_error_of_the_caller(root: Path) -> None:
    script = """
import os, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))
try:
    while True:
        os.open("f", os.O_CREAT | os.O_WRONLY)
except OSError as error:
    print(error.errno)
"""
    assert python(root, script).output == "24\n"


def test_a_pipe_that_nobody_reads_waits_without_stopping_others(root: Path) -> None:
    script = """
import os, signal
os.mkfifo("f")
child = os.fork()
if child == 0:
    os.open("f", os.O_CREAT | os.O_WRONLY)
    os._exit(3)
for number in range(100):
    os.close(os.open(f"g{number}", os.O_CREAT | os.O_WRONLY))
print(os.waitpid(child, os.WNOHANG))
os.open("f", os.O_RDONLY)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert python(root, script).output == "(0, 0)\n3\n"


def test_a_program_that_was_written_can_be_started_at_once(root: Path) -> None:
    """Nobody but its writer holds it: whoever else could write would make it busy (ETXTBSY)."""
    script = (
        "import os, subprocess, sys\n"
        "program = open('/bin/true', 'rb').read()\n"
        "for number in range(300):\n"
        "    file = os.open(f'p{number}', os.O_WRONLY | os.O_CREAT, 0o755)\n"
        "    os.write(file, program)\n"
        "    os.close(file)\n"
        "    if os.spawnv(os.P_WAIT, f'p{number}', ['p']) != 0: sys.exit(f'{number} was busy')\n"
        "print(sorted(int(name) for name in os.listdir('/proc/self/fd'))[:-1])\n"
    )
    outcome = python(root, script)
    assert (outcome.code, outcome.output) == (0, "[0, 1, 2]\n")
