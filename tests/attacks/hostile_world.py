"""A workspace with secrets in it and around it, and the means to see whether anything of that was
reached.

Every file that no tool may read holds a canary: a random text that occurs nowhere else. `unharmed`
says after a call whether a canary was read (inotify), whether anything outside the workspace or
under an untouchable name was changed, made, moved or deleted (the status of every entry), and puts
back what a call was allowed to change.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from secrets import token_hex
from types import ModuleType
from typing import Any

from ferrule.permissions.protected_names import DEFAULT_NAMES

HERE = Path(__file__).parent


def _table(name: str) -> ModuleType:
    """A table of this folder as a module, under a name that shadows nothing."""
    spec = importlib.util.spec_from_file_location(f"attack_{name}", HERE / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PATHS: list[Any] = _table("paths").PATHS
COMMANDS: list[Any] = _table("commands").COMMANDS
PERMISSIVE: tuple[str, ...] = sys.modules["attack_commands"].PERMISSIVE
UNSEEN: dict[str, str] = sys.modules["attack_commands"].UNSEEN
NAME = "project"
GIT = shutil.which("git")

Status = tuple[int, int, int, int, int]


class World:
    """`root` is the workspace, `outside` and `sibling` lie beside it."""

    def __init__(self, base: Path) -> None:
        self.marker = f"cnry{token_hex(8)}"
        self.base = base.resolve()
        self.root = self.base / NAME
        self.outside = self.base / "outside"
        self.sibling = self.base / f"{NAME}-evil"
        self._count = 0
        self._makers: dict[str, Callable[[Path], None]] = {}
        self._describe()
        for name in self._makers:
            self._make(name)
        self._commit()
        self._secret = sorted(map(str, self._canaries()))
        self._watch = Watch()
        self._settle()

    def close(self) -> None:
        self._watch.close()

    @property
    def git_settings(self) -> tuple[str, ...]:
        """The files of git's settings, by the names that reads of them are reported under."""
        return (
            f"{self.root}/.git/config",
            f"{self.root}/.git/config.worktree",
            f"{self.root}/src/hard-config.py",  # another name of the first
        )

    def text(self, template: str) -> str:
        """A path of the table as it is sent here."""
        for name, value in (
            ("<root>", self.root),
            ("<outside>", self.outside),
            ("<sibling>", self.sibling),
            ("<name>", NAME),
        ):
            template = template.replace(name, str(value))
        return template

    # ---- what there is

    def _canary(self) -> str:
        self._count += 1
        one = f"{self.marker}_{self._count}"
        # Something for each way of reading: a line, a heading, a definition.
        return f"# {one}\nKEY={one}\ndef {one}():\n    pass\n"

    def _describe(self) -> None:
        for name in (
            "outside/notes.txt",
            "outside/etc/passwd",
            "outside/.ssh/id_rsa",
            "outside/.bashrc",
            f"outside/{self.marker}.txt",
            f"{NAME}-evil/notes.txt",
            f"{NAME}-evil/{self.marker}.txt",
        ):
            self._file(name, self._canary())
        for row in PATHS:
            if row.kind in ("reserved", "secret") and not row.path.startswith(("<", "src/..")):
                self._untouchable(row.path)
            elif (
                row.kind == "protected"
                and not row.id.endswith("-new")
                and not row.path.startswith(".git/")
            ):
                self._file(f"{NAME}/{row.path}", "plain\n")
        for name in (
            "holder/a/.env",
            "holder/b.pem",
            "vendor/x/.git/config",
            ".git/modules/x/config",
        ):
            self._file(f"{NAME}/{name}", self._canary())
        for name in (
            "holder/plain.txt",
            "vendor/plain.txt",
            "holder-plain/a/x.txt",
            "vendor-plain/x.txt",
        ):
            self._file(f"{NAME}/{name}", "plain\n")
        for row in PATHS:
            self._twin(self.text(row.twin))
        self._links()
        self._specials()

    def _untouchable(self, path: str) -> None:
        """A file of this name, spelled as it is; what is there for lack of it is a folder with
        one.
        """
        if path in (".ferrule", "agents", ".ssh", ".git/hooks"):
            path += "/inside.txt"
        if "/new." in path or path.startswith("new.") or path.endswith(("/", "/.")):
            # Names are protected before the file exists, and one spelling of a folder is enough.
            return
        self._file(f"{NAME}/{path}", self._canary())

    def _twin(self, path: str) -> None:
        name = os.path.normpath(path if path.startswith("/") else str(self.root / path))
        relative = os.path.relpath(name, self.base)
        if path.endswith(("/", "/.", "..")) or relative == NAME:
            relative += "/inside.txt"
        if not any(other.startswith(f"{relative}/") for other in self._makers):
            self._file(relative, "plain\n")

    def _links(self) -> None:
        for name, target in {
            "link-out": self.outside / "notes.txt",
            "src/link-out-relative": "../../outside/notes.txt",
            "link-folder-out": self.outside,
            "link-sibling": self.sibling,
            "link-parent": "..",
            "link-root": "/",
            "link-proc": "/proc/self/environ",
            "link-descriptor": "/proc/self/fd",
            "link-chain": "link-out",
            "deep/link-chain": "../link-folder-out",
            "link-env": ".env",
            "docs/readme-link.md": "../k.pem",
            "link-ferrule": ".ferrule",
            "link-git": ".git",
            "link-hooks": ".git/hooks",
            "link-agents": "agents",
            "link-in": "src/a.txt",
            "link-folder-in": "src",
            "link-self": "link-self",
            "link-dangling": self.outside / "not-there.txt",
            "link-dangling-env": ".env.not-there",
        }.items():
            self._makers[f"{NAME}/{name}"] = lambda at, target=target: at.symlink_to(target)
        for name, target in {
            "hard-out.txt": self.outside / "notes.txt",
            "hard-env.txt": self.root / ".env",
            "docs/hard-key.md": self.root / "k.pem",
            "src/hard-config.py": self.root / ".git/config",
        }.items():
            self._makers[f"{NAME}/{name}"] = lambda at, target=target: os.link(target, at)

    def _specials(self) -> None:
        self._makers[f"{NAME}/pipe"] = os.mkfifo
        self._makers[f"{NAME}/src/pipe"] = os.mkfifo
        self._makers[f"{NAME}/socket"] = _bind
        # Only root may make a device; for everybody else another pipe stands there.
        root = os.geteuid() == 0
        self._makers[f"{NAME}/device"] = (
            (lambda at: os.mknod(at, 0o600 | stat.S_IFCHR, os.makedev(1, 5))) if root else os.mkfifo
        )

    def _file(self, name: str, content: str) -> None:
        self._makers.setdefault(name, lambda at: at.write_text(content))

    def _make(self, name: str) -> None:
        at = self.base / name
        at.parent.mkdir(parents=True, exist_ok=True)
        self._makers[name](at)

    def _commit(self) -> None:
        """A repository whose history holds secrets, and files that have since become links."""
        if GIT is None:
            return
        config, hooks = self.root / ".git/config", self.root / ".git/hooks"
        canary = config.read_text()
        aside = self.base / "aside"
        (self.root / ".git").rename(aside)
        linked = ("link-out", "hard-out.txt", "hard-env.txt", "link-env")
        for name in linked:
            (self.root / name).unlink()
            (self.root / name).write_text("before\n")
        self._git("init", "-q", "-b", "main")
        tracked = (
            *linked,
            ".env",
            "k.pem",
            "src/a.txt",
            ".ferrule/ferrule.yaml",
            "agents/harvey.yaml",
            "harvey.yaml",
        )
        self._git("add", "-f", "--", *tracked)
        self._git("commit", "-q", "-m", "first")
        (self.root / "src/a.txt").write_text("plain\nmore\n")
        (self.root / ".env").write_text(self._canary())
        self._git("commit", "-q", "-a", "-m", "second")
        (self.root / "src/a.txt").write_text("plain\n")
        (self.root / "k.pem").write_text(self._canary())
        for name in linked:
            (self.root / name).unlink()
            self._make(f"{NAME}/{name}")
        shutil.rmtree(self.root / ".git/hooks", ignore_errors=True)
        shutil.copytree(aside, self.root / ".git", dirs_exist_ok=True)
        shutil.rmtree(aside)
        for name in ("src/hard-config.py", "docs/hard-key.md"):
            (self.root / name).unlink()
            self._make(f"{NAME}/{name}")
        assert canary in config.read_text() and (hooks / "pre-commit").exists()

    def _git(self, *arguments: str) -> None:
        settings = (
            "-c",
            "user.name=x",
            "-c",
            "user.email=x@example.org",
            "-c",
            "core.hooksPath=/dev/null",
        )
        subprocess.run(
            [str(GIT), *settings, *arguments], cwd=self.root, check=True, capture_output=True
        )

    def _canaries(self) -> Iterator[Path]:
        for folder, _, files in os.walk(self.base):
            for name in files:
                at = Path(folder, name)
                if at.is_file() and not at.is_symlink() and self.marker.encode() in at.read_bytes():
                    yield at

    # ---- what became of it

    def look(self) -> dict[str, Status]:
        """Every entry below the base by its path: what it is, where, how large, when it was
        written.
        """
        found: dict[str, Status] = {}
        waiting = [str(self.base)]
        while waiting:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    status = entry.stat(follow_symlinks=False)
                    folder = stat.S_ISDIR(status.st_mode)
                    found[entry.path] = (
                        status.st_ino,
                        status.st_mode,
                        0 if folder else status.st_size,
                        0 if folder else status.st_mtime_ns,
                        0 if folder else status.st_uid,
                    )
                    if folder:
                        waiting.append(entry.path)
        return found

    def unharmed(
        self, *shown: str, readable: str | tuple[str, ...] = "-", look: bool = False
    ) -> list[str]:
        """What a call did that it must not have done; empty if nothing. `shown` is all that came
        out of it.

        Reads below `readable` do not count: git reads files to compare them, the command line reads
        settings to say that they are not trusted. With `look` every entry is compared, not only if
        something was seen to change.
        """
        harm = [f"a canary is shown: {text[:300]!r}" for text in shown if self.marker in text]
        read, changed = self._watch.take()
        harm += [f"read: {path}" for path in read if not path.startswith(readable)]
        if changed or look:
            after = self.look()
            differing = sorted(
                path
                for path in self.before.keys() | after.keys()
                if self.before.get(path) != after.get(path)
            )
            harm += [f"changed: {path}" for path in differing if self._untouched(path)]
            self._restore(differing)
        return harm

    def _untouched(self, path: str) -> bool:
        """Whether nothing may be done to this entry, or to something in it."""
        if not path.startswith(f"{self.root}/"):
            return True
        return DEFAULT_NAMES.check(path[len(str(self.root)) + 1 :], write=True) is not None

    def _restore(self, changed: list[str]) -> None:
        for path in reversed(changed):
            at = Path(path)
            if at.is_dir() and not at.is_symlink():
                if path not in self.before or not stat.S_ISDIR(self.before[path][1]):
                    shutil.rmtree(at)
            elif os.path.lexists(at):
                at.unlink()
        for path in changed:
            if path in self.before and not os.path.lexists(path):
                name = os.path.relpath(path, self.base)
                if stat.S_ISDIR(self.before[path][1]):
                    Path(path).mkdir(parents=True, exist_ok=True)
                elif name in self._makers:
                    self._make(name)
        if changed:
            self._settle()

    def _settle(self) -> None:
        """Take what is there now for what should be there."""
        self.before = self.look()
        self._watch.add(str(self.base), folder=True)
        for path, status in self.before.items():
            if stat.S_ISDIR(status[1]):
                self._watch.add(path, folder=True)
        for path in self._secret:
            self._watch.add(path, folder=False)
        self._watch.take()


def _bind(at: Path) -> None:
    # By a short relative name: the whole path may be longer than a socket's address can be.
    here = os.getcwd()
    os.chdir(at.parent)
    try:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(at.name)
    finally:
        os.chdir(here)


class Watch:
    """What happened to some files and folders since it was last asked (inotify(7)), by whatever
    process and name.

    Of `files` it tells reads and writes, of `folders` any change of what is directly in them.
    """

    _ACCESS, _MODIFY, _QUEUE_FULL = 0x1, 0x2, 0x4000
    _CHANGES = (
        _MODIFY | 0x4 | 0x40 | 0x80 | 0x100 | 0x200
    )  # attributes, moved from and to, made, deleted

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None, use_errno=True)
        self._queue = self._library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        assert self._queue >= 0, os.strerror(ctypes.get_errno())
        self._names: dict[int, str] = {}

    def add(self, path: str, *, folder: bool) -> None:
        """Watch this too; again, if it was replaced."""
        mask = self._CHANGES if folder else self._ACCESS | self._MODIFY
        watch = self._library.inotify_add_watch(self._queue, os.fsencode(path), mask)
        assert watch >= 0, f"{path}: {os.strerror(ctypes.get_errno())}"
        self._names[watch] = path

    def take(self) -> tuple[list[str], bool]:
        """The files that were read, and whether anything was changed."""
        read: set[str] = set()
        changed = False
        while True:
            try:
                data = os.read(self._queue, 65536)
            except BlockingIOError:
                return sorted(read), changed
            at = 0
            while at < len(data):
                watch = int.from_bytes(data[at : at + 4], "little", signed=True)
                mask = int.from_bytes(data[at + 4 : at + 8], "little")
                at += 16 + int.from_bytes(data[at + 12 : at + 16], "little")
                assert not mask & self._QUEUE_FULL, "more happened than the queue holds"
                changed = changed or bool(mask & self._CHANGES)
                if mask & self._ACCESS:
                    read.add(self._names[watch])

    def close(self) -> None:
        os.close(self._queue)
