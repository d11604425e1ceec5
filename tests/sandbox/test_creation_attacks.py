"""Ways to a reserved name, tried by a real shell and real programs: none is created, by any
spelling, link or race.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from mediated_runs import forbidden, python, run, shell, words

from ferrule.sandbox.inside.mediator.file_identity import identify_path

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="seccomp is Linux")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


PYTHON = f"{shlex.quote(sys.executable)} -I -S -c"

SCRIPTS = {
    "folder": "mkdir .ferrule",
    "file": "echo x > .ferrule",
    "append": "echo x >> .ferrule",
    "case": "mkdir .FERRULE",
    "dots-at-the-end": "mkdir agents..",
    "space-at-the-end": "mkdir 'agents '",
    "agents": "mkdir agents",
    "agents-file": "touch ./agents",
    "absolute": 'mkdir "$PWD/agents"',
    "dot-dot": 'mkdir a && mkdir "a/../agents"',
    "deep": "mkdir -p a/b/c/.harness",
    "inside-a-new-folder": "mkdir .git && echo x > .git/config",
    "from-inside": "mkdir .git && cd .git && echo x > config",
    "hooks": "mkdir -p .git/hooks && echo x > .git/hooks/pre-commit",
    "worktree-config": "mkdir .git && echo x > .git/config.worktree",
    "module-config": "mkdir -p .git/modules/m && echo x > .git/modules/m/config",
    "commondir": "mkdir .git && echo ../evil > .git/commondir",
    "commondir-deep": "mkdir -p a/.git && echo ../evil > a/.git/commondir",
    "git-file": "echo 'gitdir: evil' > .git",
    "git-file-deep": "mkdir a && echo 'gitdir: evil' > a/.git",
    "git-link": "mkdir evil && ln -s evil .git",
    "git-link-over-nothing": "ln -s nowhere .git && echo x > nowhere",
    "git-pipe": "mkfifo .git",
    "git-case": "echo 'gitdir: evil' > .GIT",
    "git-short": "echo 'gitdir: evil' > git~1",
    "git-invisible": "echo 'gitdir: evil' > $'.g\\u200cit'",
    "moved-file": "mkdir .git && echo x > y && mv y .git/config",
    "moved-file-git": "echo x > y && mv y .git",
    "moved-folder": "mkdir x && echo x > x/config && mv x .git",
    "moved-folder-named": "mkdir x && mv x .ferrule",
    "moved-folder-agents": "mkdir -p a/agents && mv a/agents .",
    "moved-folder-deep": "mkdir -p x/y/z && echo x > x/y/z/config && mv x .git",
    "moved-below-git": "mkdir .git x && echo x > x/config && mv x .git/modules",
    "moved-parent": "mkdir -p a/x && echo x > a/x/config && mkdir b && mv a/x b/.git",
    "moved-in": "mkdir -p ../outside/deep/.ferrule && mv ../outside inside",
    "moved-in-to-git": (
        "mkdir .git && mkdir -p ../outside && echo x > ../outside/config && mv ../outside "
        ".git/modules"
    ),
    "moved-unreadable": "mkdir x && echo x > x/config && chmod 300 x && mv x .git; chmod 700 x .git",
    "hard-link": "mkdir .git && echo x > y && ln y .git/config",
    "hard-link-git": "echo x > y && ln y .git",
    "soft-link": "mkdir .git && ln -s ../y .git/hooks",
    "link-below-git": "mkdir .git && ln -s ../y .git/COMMIT_EDITMSG",
    "link-below-git-deep": "mkdir -p .git/logs/refs && ln -s ../../../y .git/logs/refs/x",
    "link-below-git-of-a-folder": "mkdir -p a/.git && ln -s y a/.git/index",
    "link-moved-below-git": "mkdir .git && ln -s ../y l && mv l .git/index",
    "link-linked-below-git": "mkdir .git && ln -s ../y l && ln -P l .git/index",
    "link-in-a-folder-moved-below-git": "mkdir .git x && ln -s y x/HEAD && mv x .git/logs",
    "link-in-a-folder-moved-to-git": "mkdir -p x/logs && ln -s y x/logs/HEAD && mv x .git",
    "link-exchanged": (
        f'mkdir .git; touch .git/index; ln -s y l; {PYTHON} "import ctypes; '
        "ctypes.CDLL(None).syscall(316, -100, b'l', -100, b'.git/index', 2)\""
    ),
    "remotes": "mkdir -p .git/remotes && echo 'URL: evil' > .git/remotes/origin",
    "branches": "mkdir x && echo evil > x/origin && mkdir .git && mv x .git/branches",
    "through-a-link": "mkdir .git && ln -s .git l && echo x > l/config",
    "through-links": "mkdir .git && ln -s .git l && ln -s l m && echo x > m/config",
    "through-an-absolute-link": 'mkdir .git && ln -s "$PWD/.git" l && echo x > l/config',
    "link-at-the-end": "mkdir .git && ln -s .git/config l && echo x > l",
    "links-at-the-end": "mkdir .git && ln -s .git/config l && ln -s l m && echo x > m",
    "proc-cwd": "mkdir /proc/self/cwd/.ferrule",
    "proc-own-cwd": "bash -c 'mkdir /proc/$$/cwd/.ferrule'",
    "proc-other-cwd": "mkdir /proc/$$/cwd/.ferrule; mkdir /proc/1/cwd/x /proc/1/root$PWD/agents",
    "proc-root": 'mkdir "/proc/self/root/$PWD/.ferrule"',
    "proc-descriptor": "exec 5<. && mkdir /proc/self/fd/5/.ferrule",
    "dev-descriptor": "mkdir .git && exec 5<.git && echo x > /dev/fd/5/config",
    "descriptor": f"mkdir .git && {PYTHON} \"import os; os.open('config', 65, dir_fd=os.open('.git', 0))\"",
    "link-to-proc": "ln -s /proc/self/cwd l && mkdir l/.ferrule",
    "tar": (
        "mkdir -p t/x && echo x > t/x/config && tar -C t -cf t.tar --transform 's,^x,.git,' x && "
        "tar -xf t.tar"
    ),
    "copy": "mkdir x && echo x > x/config && cp -r x .git",
    "git-init": "git init . ; git init sub",
    "git-config": "mkdir .git && git config -f .git/config core.fsmonitor evil",
    "protected": "echo x > .mcp.json",
    "protected-folder": "mkdir .vscode",
    "protected-deep": "mkdir -p .github/workflows",
    "protected-case": "echo x > .GitLab-CI.yml",
    "protected-moved": "mkdir -p x/workflows && mv x .github",
    "protected-linked": "echo x > y && ln y .bashrc",
    "socket": f"{PYTHON} \"import socket; socket.socket(socket.AF_UNIX).bind('.ferrule')\"",
    "socket-in-git": (
        f'mkdir .git && cd .git && {PYTHON} "import socket; '
        "socket.socket(socket.AF_UNIX).bind('hooks')\""
    ),
    "node": f"{PYTHON} \"import os; os.mknod('agents')\"",
    "unnamed": (
        f"{PYTHON} \"import os; f = os.open('.', os.O_TMPFILE | 2); "
        f"os.link(f'/proc/self/fd/{{f}}', 'agents', follow_symlinks=True)\""
    ),
    "unnamed-empty": (
        f"{PYTHON} \"import os, ctypes; f = os.open('.', os.O_TMPFILE | 2); "
        "ctypes.CDLL(None).linkat(f, b'', -100, b'agents', 0x1000)\""
    ),
    "exchange": (
        f'mkdir .git; mkdir x; echo x > x/config; {PYTHON} "import ctypes; '
        "ctypes.CDLL(None).syscall(316, -100, b'x', -100, b'.git', 2)\""
    ),
    "exchange-back": (
        f'mkdir .git; mkdir x; echo x > x/config; {PYTHON} "import ctypes; '
        "ctypes.CDLL(None).syscall(316, -100, b'.git', -100, b'x', 2)\""
    ),
    "whiteout": (
        f"mkdir .git; {PYTHON} \"import ctypes; ctypes.CDLL(None).syscall(133, b'.git/config', "
        '0o20000, 0)"'
    ),
    "openat2": (
        f"{PYTHON} \"import ctypes, struct; ctypes.CDLL(None).syscall(437, -100, b'agents', "
        "struct.pack('QQQ', 65, 0o600, 0), 24)\""
    ),
    "32-bit": (
        'printf \'int main(){__asm__("int $0x80"::"a"(8),"b"("agents"),"c"(420));}\' > '
        "a.c && gcc -no-pie -o a a.c && ./a"
    ),
}


@pytest.mark.proves("sandbox.creation.reserved-names")
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_reserved_name_is_not_created(root: Path, name: str) -> None:
    outcome = shell(root, SCRIPTS[name])
    assert forbidden(root) == []
    protected = [".mcp.json", ".vscode", ".github/workflows", ".gitlab-ci.yml", ".bashrc"]
    assert [
        found for found in protected if (root / found).exists() or (root / found.upper()).exists()
    ] == []
    if name not in (
        "openat2",
        "32-bit",
        "whiteout",
        "unnamed-empty",
        "proc-other-cwd",
        "moved-unreadable",
    ):
        assert outcome.refused, outcome.output


@pytest.mark.parametrize(
    "script",
    [
        ": > /proc/1/mem",
        "ln -s /proc/1/mem m && : > m",
        "ln -s /proc/1 p && : > p/mem",
        ": > /proc/1/oom_score_adj",
        ": > /proc/1/fd/1",
        "ln -s /proc/1/fd f && : > f/1",
        ": > /proc/1/cwd/x",
        ": > /proc/1/task/1/root/$PWD/x",
        "mkdir /proc/1/root/$PWD/x",
        "ln /proc/1/exe x",
        ": 3<>/proc/1/mem",
        "cat /proc/1/environ",
    ],
)
def test_the_mediator_opens_nothing_of_its_own_for_anybody(root: Path, script: str) -> None:
    outcome = shell(root, script + " && echo opened")
    assert "opened" not in outcome.output
    assert not (root / "x").exists()


def test_the_process_that_proc_self_means_is_the_caller(root: Path) -> None:
    script = """
import ctypes, os
secret = ctypes.create_string_buffer(b"only in the caller's memory")
memory = os.open("/proc/self/mem", os.O_RDWR | os.O_CREAT)
os.lseek(memory, ctypes.addressof(secret), 0)
print(os.read(memory, 27).decode(), os.readlink("/proc/self") == str(os.getpid()))
name = os.open("/proc/thread-self/comm", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
os.write(name, b"renamed")
print(open("/proc/self/comm").read())
"""
    outcome = python(root, script)
    assert "only in the caller's memory True\nrenamed" in outcome.output


FLIP = """
import ctypes, os, sys, threading
libc = ctypes.CDLL(None)
good, bad = {good!r}, {bad!r}
name = ctypes.create_string_buffer(64)
stop = False
def flip():
    while not stop:
        name.value = bad
        name.value = good
thread = threading.Thread(target=flip)
sys.setswitchinterval(1e-5)
thread.start()
done = tries = 0
# On a busy machine the other thread may not run for long: go on until both names were judged.
while tries < 2000 or (not 0 < done < tries and tries < 100_000):
    {call}
    tries += 1
    try:
        os.unlink(good)
        done += 1
    except OSError:
        pass
stop = True
thread.join()
print("created", done)
"""

CALLS = {
    "open": "f = libc.openat(-100, name, 65, 0o600); f >= 0 and os.close(f)",
    "mknod": "libc.mknod(name, 0o100600, 0)",
    "link": "libc.link(b'source', name)",
    "symlink": "libc.symlink(b'source', name)",
    "rename": "os.close(os.open('other', 65)); libc.rename(b'other', name)",
}


@pytest.mark.proves("sandbox.creation.no-race")
@pytest.mark.parametrize("call", CALLS)
def test_a_name_that_changes_while_it_is_judged_creates_nothing_reserved(
    root: Path, call: str
) -> None:
    (root / "source").write_text("x")
    (root / ".git").mkdir()
    # No link at all is made below `.git`.
    good, bad = ("safename", ".ferrule") if call == "symlink" else (".git/safename", ".git/config")
    outcome = python(root, FLIP.format(good=good.encode(), bad=bad.encode(), call=CALLS[call]))
    assert forbidden(root) == []
    created = int(outcome.output.split("created ")[1])
    # Both kinds of names were judged: otherwise this was no race.
    assert created > 0
    assert outcome.refused == [bad]


LINK_FLIP = """
import os, threading
stop = False
def flip():
    while not stop:
        for target in ("ordinary", ".git"):
            os.symlink(target, "new")
            os.rename("new", "way")
os.symlink("ordinary", "way")
thread = threading.Thread(target=flip)
thread.start()
for _ in range(2000):
    try:
        os.close(os.open("way/config", os.O_CREAT | os.O_WRONLY))
    except PermissionError:
        pass
stop = True
thread.join()
"""


@pytest.mark.proves("sandbox.creation.no-race")
def test_a_link_that_is_swapped_on_the_way_leads_to_nothing_reserved(root: Path) -> None:
    for name in (".git", "ordinary"):
        (root / name).mkdir()
    outcome = python(root, LINK_FLIP)
    assert outcome.code == 0, outcome.output
    assert forbidden(root) == []
    assert (root / "ordinary" / "config").exists()


MOVER = """
import os
for _ in range(1500):
    for names in (("x", ".git"), (".git", "x")):
        try:
            os.rename(*names)
        except OSError:
            pass
"""
ADDER = """
import os
for _ in range(3000):
    for name in ("x/config", ".git/config"):
        try:
            os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            os.unlink(name)
        except OSError:
            pass
    if os.path.exists(".git/config"):
        print("created")
"""


@pytest.mark.proves("sandbox.creation.no-race")
def test_two_commands_cannot_move_a_folder_and_add_to_it_at_once(
    root: Path, tmp_path: Path
) -> None:
    (root / "x").mkdir()
    lock = tmp_path / "lock"
    lock.touch()
    running = [
        subprocess.Popen(
            words(
                root,
                tmp_path / f"report{number}",
                [sys.executable, "-I", "-S", "-c", script],
                lock=str(lock),
            ),
            cwd=root,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number, script in enumerate((MOVER, ADDER, ADDER))
    ]
    outputs = [process.communicate(timeout=100)[0] for process in running]
    assert outputs == ["", "", ""]
    assert forbidden(root) == []


def test_a_masked_name_cannot_be_uncovered_by_moving_or_linking(root: Path) -> None:
    (root / ".git").mkdir()
    (root / ".git" / "config").write_text("token")
    (root / "sub" / ".docker").mkdir(parents=True)
    (root / "sub" / ".docker" / "config.json").write_text("token")
    (root / ".env").write_text("token")
    masks = [str(root / name) for name in (".git/config", "sub/.docker/config.json", ".env")]
    script = """
mv .git elsewhere; mv .git/config plain; ln .git/config plain; ln .env plain; mv .env plain
mv sub/.docker sub/docker; ln -s .env soft; cat soft plain elsewhere/config sub/docker/config.json .env
echo changed > .env; echo changed > .git/config
"""
    outcome = shell(root, script, masks=masks)
    assert "token" not in outcome.output
    assert not any((root / name).exists() for name in ("elsewhere", "plain", "sub/docker"))
    assert (root / ".env").read_text() == (root / ".git" / "config").read_text() == "token"


@pytest.mark.parametrize(
    "link",
    [
        "os.link('.ferrule', 'plain')",
        "libc.linkat(d, b'', -100, b'plain', 0x1000)",
        "libc.linkat(-100, b'/proc/self/fd/%d' % d, -100, b'plain', 0x400)",
        "os.symlink('.ferrule', 'way'); libc.linkat(-100, b'way', -100, b'plain', 0x400)",
    ],
)
def test_a_reserved_name_that_is_there_gets_no_other_name_in_any_way(root: Path, link: str) -> None:
    (root / ".ferrule").write_text("token")
    begin = "import ctypes, os; libc = ctypes.CDLL(None); d = os.open('.ferrule', os.O_PATH); "
    outcome = python(root, begin + link)
    assert outcome.refused == [".ferrule"]
    assert not (root / "plain").exists()


def test_secret_names_can_be_created_and_are_reported_with_their_identity(root: Path) -> None:
    script = """
echo key > test.pem; mkdir .ssh; echo key > .ssh/id_rsa; echo x > y; mv y server.key; echo z > z; ln z other.key
mkdir plain; echo a > plain/a; mv plain .aws; cat test.pem
"""
    outcome = shell(root, script)
    assert outcome.refused == []
    assert "key" in outcome.output
    names = ["test.pem", ".ssh", ".ssh/id_rsa", "server.key", "other.key", ".aws", ".aws/a"]
    assert outcome.made_names() == names
    for identity, name in outcome.made:
        assert identity == identify_path(root / name) != ""


def test_the_command_moves_its_own_secret_names_as_it_likes(root: Path) -> None:
    outcome = run(
        root, ["bash", "-c", "echo k > k.pem && mv k.pem plain && mkdir .ssh && mv .ssh old && ls"]
    )
    assert outcome.code == 0, outcome.output
    assert sorted(os.listdir(root)) == ["old", "plain"]
