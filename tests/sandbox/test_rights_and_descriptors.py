"""What a program in the sandbox is started with, and what it cannot give to files: rights that are
not its own.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from backend_sandboxes import Opens, opens, root
from shelled import says

from unheld import open_unheld

__all__ = ["opens", "root"]

# A folder that is being listed has a descriptor itself: it is gone when it is looked at.
LIST = """python3 -c "
import os
import shutil
for name in os.listdir('/proc/self/fd'):
    try: print(name, os.readlink('/proc/self/fd/' + name))
    except OSError: pass
" """


def numbers(said: str) -> set[str]:
    return {line.split()[0] for line in said.splitlines()}


async def test_a_command_inherits_its_standard_streams_and_nothing_else(
    opens: Opens, root: Path
) -> None:
    _, said = await says(opens(root), LIST, root)
    assert numbers(said) == {"0", "1", "2"}, said


async def test_so_does_a_command_that_nothing_holds(root: Path) -> None:
    sandbox = open_unheld()
    try:
        _, said = await says(sandbox, LIST, root)
    finally:
        await sandbox.close()
    assert numbers(said) == {"0", "1", "2"}, said


def python(code: str) -> str:
    lines = code.replace("'", '"')
    return f"python3 -c 'import os, ctypes, stat; call = ctypes.CDLL(None).syscall; {lines}'"


WAYS = {
    "chmod": "chmod 6777 a",
    "user": "chmod u+s a",
    "group": "chmod g+s a",
    "install": "install -m 4755 a b",
    "by-descriptor": python("os.fchmod(os.open('a', os.O_RDWR), 0o4755)"),
    "fchmodat": python("os.chmod('a', 0o6755, dir_fd=os.open('.', os.O_PATH))"),
    "fchmodat2": python("call(452, -100, b'a', 0o6755, 0)"),
    "empty-path": python("call(452, os.open('a', os.O_PATH), b'', 0o6755, 0x1000)"),
    "proc": "chmod 4755 /proc/self/cwd/a",
    "open": python("os.open('b', os.O_CREAT | os.O_WRONLY, 0o4755)"),
    "create": python("call(85, b'b', 0o4755)"),
    "openat": python(
        "os.open('b', os.O_CREAT | os.O_WRONLY, 0o2755, dir_fd=os.open('.', os.O_PATH))"
    ),
    "nameless": python(
        "d = os.open('.', os.O_TMPFILE | os.O_RDWR, 0o4755);"
        "os.link(f'/proc/self/fd/{d}', 'b', dst_dir_fd=os.open('.', os.O_PATH), "
        "follow_symlinks=True)"
    ),
    "node": python("os.mknod('b', stat.S_IFREG | 0o6755)"),
    "copied": "cp /bin/ls b && chmod 4755 b",
    "archived": "tar -cf t.tar --mode=4755 a && mkdir x && tar -xpf t.tar -C x",
    "in-tmp": 'cp /bin/ls "$TMPDIR/b" && chmod 4755 "$TMPDIR/b" && cp -p "$TMPDIR/b" c',
}


async def test_no_file_is_made_to_run_as_its_owner(opens: Opens, root: Path) -> None:
    sandbox = opens(root)
    (root / "a").write_text("#!/bin/sh\n")
    for way, script in WAYS.items():
        await says(sandbox, script, root)
        for folder, _, files in os.walk(root):
            for name in files:
                mode = os.lstat(os.path.join(folder, name)).st_mode
                assert not mode & (stat.S_ISUID | stat.S_ISGID), (way, name, oct(mode))
    scratch = sandbox.scratch_folder
    assert scratch is not None
    assert not [
        one for one in scratch[0].rglob("*") if one.is_file() and one.stat().st_mode & 0o6000
    ]


async def test_modes_that_give_nobody_rights_are_set_as_ever(opens: Opens, root: Path) -> None:
    script = (
        "mkdir d; chmod 2775 d; chmod g+s d; echo x > a; chmod 751 a; chmod +t d; stat -c %a a d"
    )
    ended, said = await says(opens(root), script, root)
    assert (ended.exit_code, said.split()) == (0, ["751", "3775"]), said


def test_each_way_works_where_nothing_holds_it(root: Path) -> None:
    import subprocess

    worked = 0
    for script in WAYS.values():
        for old in root.iterdir():
            subprocess.run(["rm", "-rf", old], check=True)
        (root / "a").write_text("#!/bin/sh\n")
        subprocess.run(
            ["sh", "-c", script],
            cwd=root,
            check=False,
            capture_output=True,
            env={**os.environ, "TMPDIR": str(root)},
        )
        files = [one for one in root.rglob("*") if one.is_file()]
        worked += any(one.stat().st_mode & 0o6000 for one in files)
    assert worked >= len(WAYS) - 2  # a kernel or a program may be too old for one of them


BY_DESCRIPTOR = """python3 - <<'END'
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
os.mkdir("sub")
folder = os.open("sub", os.O_PATH)
processes = os.open("/proc/self/fd", os.O_PATH)

def nameless(where="."):
    made = os.open(where, os.O_TMPFILE | os.O_RDWR, 0o600)
    os.write(made, b"text")
    os.fchmod(made, 0o640)
    return made

def link(*arguments):
    if libc.linkat(*arguments):
        print("not linked", arguments, os.strerror(ctypes.get_errno()))

link(nameless(), b"", -100, b"empty-path", 0x1000)
link(-100, b"/proc/self/fd/%d" % nameless(), -100, b"proc", 0x400)
link(-100, b"/dev/fd/%d" % nameless("sub"), folder, b"dev", 0x400)
link(processes, b"%d" % nameless("sub"), -100, b"moved", 0x400)
link(nameless(), b"", -100, b"test.key", 0x1000)
away = os.environ["TMPDIR"]
link(-100, b"/proc/self/fd/%d" % nameless(away), -100, f"{away}/away".encode(), 0x400)

handle = os.open("proc", os.O_PATH)
link(handle, b"", -100, b"second", 0x1000)
os.truncate(f"/proc/self/fd/{handle}", 2)
os.symlink("proc", "way")
os.link("way", "way-too", follow_symlinks=False)
os.fchmod(os.memfd_create("memory"), 0o600)
print(os.readlink("way-too"), os.stat("proc").st_nlink)
for name in ("empty-path", "proc", "sub/dev", "moved", "test.key", f"{away}/away", "second"):
    print(oct(os.stat(name).st_mode), open(name).read())
END
"""


async def test_files_get_names_and_are_cut_by_descriptor(opens: Opens, root: Path) -> None:
    """As programs do that write a file whole and name it then: `open` with O_TMPFILE, `linkat`."""
    ended, said = await says(opens(root), BY_DESCRIPTOR, root)
    texts = ("text", "te", "text", "text", "text", "text", "te")
    assert said.splitlines() == ["proc 2", *(f"0o100640 {text}" for text in texts)]
    assert (ended.exit_code, ended.refused_names) == (0, ())


LEADING = (
    ".git/rebase-merge/git-rebase-todo",
    ".git/rebase-merge/strategy",
    ".git/sequencer/opts",
    ".git/worktrees/w/sequencer/opts",
    ".git/rebase-apply/apply-opt",
    "sub/.hg/sharedpath",
    ".hg/hgrc-not-shared",
    "sub/.git/commondir",
)
AT_ROOT = (
    ".Rprofile",
    ".lldbinit",
    ".yarnrc",
    ".kiro/x",
    "my.code-workspace",
    ".mvn/jvm.config",
    ".cargo/config.toml",
)


async def test_no_name_is_made_or_changed_that_leads_elsewhere_or_starts_a_program(
    opens: Opens, root: Path
) -> None:
    (root / ".git/rebase-apply").mkdir(parents=True)
    (root / ".git/commondir").write_text("..\n")
    script = "; ".join(
        f"mkdir -p $(dirname {name}); echo x > {name}" for name in (*LEADING, *AT_ROOT)
    )
    await says(opens(root), f"{script}; echo x > .git/commondir", root)
    assert [name for name in (*LEADING, *AT_ROOT) if os.path.lexists(root / name)] == []
    assert (root / ".git/commondir").read_text() == "..\n"


BEGUN = """
git init -q -b main . && git config user.name x && git config user.email x@example.org
commit() { git add -A && git commit -q -m "$1"; }
echo one > f; commit 1; git switch -q -c topic; echo topic >> f; commit 2; echo g > g; commit 3
git switch -q main; echo main >> f; commit 4
"""
PROGRAM = """
mkdir git-merge-; printf '#!/bin/sh\\ntouch "$PWD/ran"; exit 1\\n' > git-merge-/x
chmod +x git-merge-/x
"""
GOES_ON = {
    "pick": (
        "git cherry-pick topic~1 topic",
        f"{PROGRAM} printf '[options]\\n\\tstrategy = /x\\n' > .git/sequencer/opts",
        "git -c core.editor=true cherry-pick --continue",
    ),
    "rebase": (
        "git switch -q topic && git rebase main",
        f"{PROGRAM} echo /x > .git/rebase-merge/strategy",
        "git -c core.editor=true rebase --continue",
    ),
    "rebase-steps": (
        "git switch -q topic && git rebase main",
        "echo 'exec touch ran' > .git/rebase-merge/git-rebase-todo",
        "git -c core.editor=true rebase --continue",
    ),
    "mail": (
        "git format-patch -q -o mail topic~2..topic && git am mail/*",
        "echo \"'--build-fake-ancestor=$PWD/ran'\" > .git/rebase-apply/apply-opt",
        "git am --skip",
    ),
}
"""An operation of git that a person began and that stopped at a conflict, what a command then
writes, and how the person goes on. It does harm if `ran` is there afterwards.
"""


@pytest.mark.parametrize("held", [True, False], ids=["held", "control"])
@pytest.mark.parametrize("row", GOES_ON.values(), ids=list(GOES_ON))
async def test_what_a_command_writes_starts_nothing_when_a_person_goes_on_with_git(
    opens: Opens, root: Path, row: tuple[str, str, str], held: bool
) -> None:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    begin, write, go_on = row

    def run(script: str) -> None:
        subprocess.run(["bash", "-c", script], cwd=root, capture_output=True, check=False)

    run(BEGUN + begin)
    if held:
        await says(opens(root), write, root)
    else:
        run(write)
    run(f"git checkout -q --theirs f; git add f; {go_on}")
    assert (root / "ran").exists() is not held
