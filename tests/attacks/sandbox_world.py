"""A person's machine in small: a home with keys, a workspace in it, other projects, and a process
that listens.

Everything that must stay out of reach holds a canary. `ScriptEnvironment.harm` says what an attack achieved: a
canary shown, or written where it can be carried off; anything outside changed or made; a reserved
or secret name changed or made; bytes that arrived at a listener; the process outside signalled.
Afterwards all is as it was.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path
from secrets import token_hex
from typing import IO

from ferrule.permissions.protected_names import DEFAULT_NAMES

VICTIM = Path(__file__).with_name("sandbox_victim.py")
PUBLIC = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
PRIVATE = "-----BEGIN PRIVATE KEY-----\n{}-----END PRIVATE KEY-----\n"
_GIT = ("git", "-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "init.templateDir=")


class World:
    """`home`, `root` (the workspace, below the home), `sibling`, `out`: see the table of attacks.
    `library` and `shared` are folders that the person opened besides the workspace: to be read, to
    be written.
    """

    def __init__(self, base: Path) -> None:
        self.base = base.resolve()
        self.marker = f"cnry{token_hex(8)}"
        # Its own in each world: rows that end it by name must not end those of other workers.
        self.victim_name = f"ferrule-victim-{token_hex(4)}"
        self.home = self.base / "home"
        self.root = self.home / "work/project"
        self.sibling = self.home / "work/project-evil"
        self.out = self.base / "outside"
        self.library = self.base / "library"
        self.shared = self.base / "shared"
        self._build()
        self.victim = Victim(self)
        self._kept = self.base.with_name(f"{self.base.name}-kept")
        shutil.copytree(self.base, self._kept, symlinks=True, copy_function=_copy)
        self._settle()

    def close(self) -> None:
        self.victim.close()
        shutil.rmtree(self.base)
        shutil.rmtree(self._kept)

    def text(self, script: str) -> str:
        """A script of the table as it is run here."""
        places = {
            "root": self.root, "home": self.home, "out": self.out, "sibling": self.sibling,
            "library": self.library, "shared": self.shared, "victim-name": self.victim_name,
            "python": os.path.realpath(sys.executable), **self.victim.places,
        }  # fmt: skip
        for name, value in places.items():
            script = script.replace(f"<{name}>", str(value))
        return script

    # ---- what there is

    def canary(self) -> str:
        return f"KEY={self.marker}_{token_hex(3)}\n"

    def _build(self) -> None:
        for name in (
            "notes.txt",
            ".ssh/id_rsa",
            ".ssh/authorized_keys",
            ".bashrc",
            ".netrc",
            ".aws/credentials",
            ".config/gh/hosts.yml",
        ):
            self._file(self.home / name, self.canary())
        self._file(
            self.home / ".gitconfig",
            f"[user]\n\tname = x\n\temail = x@example.org\n[github]\n\ttoken = {self.canary()}",
        )
        self._file(self.out / "notes.txt", self.canary())
        self._file(self.out / "gitconfig", f"[user]\n\tname = {self.canary()}")
        for folder in (
            self.out,
            self.home,
            self.home / "work",
            self.sibling,
            self.root / ".ferrule",
        ):
            self._file(folder / f"{self.marker}.txt", self.canary())
        self._file(self.sibling / "notes.txt", self.canary())
        for name in (
            ".env",
            ".env.local",
            "id_ed25519",
            "k.key",
            ".ferrule/settings.yaml",
            "agents/harvey.yaml",
            ".npmrc",
            ".aws/credentials",
        ):
            self._file(self.root / name, self.canary())
        for name in (".profile", ".github/workflows/ci.yml"):
            self._file(self.root / name, "may be read\n")
        self._file(self.root / "deploy/server.pem", PRIVATE.format(self.canary()))
        self._file(self.root / "certs/ca.pem", PUBLIC)
        self._file(self.root / "vendor/lib/.git/config", f"[remote]\n\turl = {self.canary()}")
        for name, text in {
            "README.md": "# Project\n",
            "src/a.py": "print(1)\n",
            "src/b.c": "int main(){return 0;}\n",
            "docs/guide.md": "Guide\n",
            ".gitignore": ".env*\n*.key\nid_*\n.npmrc\nagents\ndeploy\nvendor\n.aws\n.profile\n.github\nlink-*\nhard-*\n*/hard-*\n.ferrule\nproject.sock\n",
        }.items():
            self._file(self.root / name, text)
        shutil.copy("/bin/echo", self.root / "agents/program")
        self._repository()
        self._opened()
        for name, target in {
            "link-out": self.out / "notes.txt",
            "link-folder": self.out,
            "link-home": self.home,
            "link-env": ".env",
        }.items():
            (self.root / name).symlink_to(target)
        self._hard = (
            (self.out / "notes.txt", self.root / "hard-out.txt"),
            (self.root / ".env", self.root / "hard-env.txt"),
            (self.root / "deploy/server.pem", self.root / "docs/hard-key.md"),
            (self.root / ".ferrule/settings.yaml", self.root / "src/hard-settings.py"),
            (self.home / ".ssh/id_rsa", self.library / "linked.txt"),
            (self.home / ".aws/credentials", self.shared / "linked.txt"),
        )
        for target, name in self._hard:
            os.link(target, name)

    def _file(self, at: Path, text: str) -> None:
        at.parent.mkdir(parents=True, exist_ok=True)
        at.write_text(text)

    def _opened(self) -> None:
        for folder in (self.library, self.shared):
            for name in (
                ".env",
                "keys/site.key",
                ".ferrule/settings.yaml",
                "agents/harvey.yaml",
                "deep/er/id_rsa",
            ):
                self._file(folder / name, self.canary())
            self._file(folder / "keys/site.pem", PRIVATE.format(self.canary()))
            self._file(folder / "notes.txt", "Notes\n")
            subprocess.run([*_GIT, "init", "-q", str(folder)], check=True, capture_output=True)
            with (folder / ".git/config").open("a") as config:
                config.write(
                    '[remote "origin"]\n\turl = '
                    f"https://{self.canary().strip()}@example.org/x.git\n"
                )

    def _repository(self) -> None:
        for arguments in (
            ["init", "-q", "-b", "main"],
            ["add", "README.md", "src", "docs", ".gitignore"],
            ["commit", "-q", "-m", "first"],
        ):
            subprocess.run([*_GIT, *arguments], cwd=self.root, check=True, capture_output=True)
        with (self.root / ".git/config").open("a") as config:
            config.write(
                f'[remote "origin"]\n\turl = https://{self.canary().strip()}@example.org/x.git\n'
            )
        # Commands may read hooks, which hold no secret, and git runs them confined.
        self._file(self.root / ".git/hooks/pre-commit", "#!/bin/sh\n")
        hostile = self.root / ".git/hooks/applypatch-msg"
        self._file(hostile, f"#!/bin/sh\ncat .env; echo planted >> '{self.out}/notes.txt'\n")
        hostile.chmod(0o755)
        subprocess.run(
            [
                *_GIT,
                "clone",
                "-q",
                "--bare",
                "--no-hardlinks",
                str(self.root),
                str(self.out / "repository.git"),
            ],
            check=True,
            capture_output=True,
        )

    # ---- what became of it

    def harm(self, shown: bytes) -> list[str]:
        """What was achieved, in words; empty if nothing. Puts everything back."""
        harm = [f"shown: {shown[-300:]!r}"] if self._tells(shown) else []
        harm += self.victim.harm()
        after = self._look()
        for path in sorted(self._before.keys() | after.keys()):
            if self._before.get(path) != after.get(path):
                harm += self._changed(path, after)
        harm += self._carried(after)
        self._restore()
        return harm

    def _tells(self, data: bytes) -> bool:
        """A canary, also with something between its characters: `od -c`, `grep -o`."""
        squeezed = data.replace(b"\n", b"").replace(b" ", b"")
        return (
            self.marker.encode() in data
            or self.marker.encode() in squeezed
            or b"KEY reached" in data
        )

    def _changed(self, path: str, after: dict[str, tuple[int, ...]]) -> list[str]:
        writable = (str(self.root), str(self.shared))
        folder = next((one for one in writable if path.startswith(f"{one}/")), None)
        if folder is None:
            # The folder that holds the workspace changes with it.
            return [f"outside changed: {path}"] if path not in writable else []
        name = path[len(folder) + 1 :]
        made = path not in self._before
        if made and name == _STEPS:
            return [f"made: {name}"] if _runs_program(Path(path)) else []
        if made and name.endswith("/.git") and stat.S_ISDIR(after[path][1]):
            return []  # an empty one names nothing: what makes git run something lies in it
        if self._is_own(name, made=made):
            return []
        return [f"{'made' if made else 'changed'}: {name}"] if _untouchable(name, made=made) else []

    def _is_own(self, name: str, *, made: bool) -> bool:
        """A command may make secret-named files of its own; what git keeps in `.git` is git's."""
        reason = DEFAULT_NAMES.check(name, write=True) or ""
        return made and reason.startswith("may hold secrets")

    def _carried(self, after: dict[str, tuple[int, ...]]) -> list[str]:
        """Files made or changed in the workspace that hold a canary now."""
        found: list[str] = []
        for path, status in after.items():
            if (
                self._before.get(path) == status
                or not stat.S_ISREG(status[1])
                or status[2] > 50_000_000
            ):
                continue
            try:
                data = Path(path).read_bytes()
            except OSError:
                continue
            if self._tells(data):
                found.append(f"carried off into: {path}")
        return found

    def _look(self) -> dict[str, tuple[int, ...]]:
        found: dict[str, tuple[int, ...]] = {}
        waiting = [str(self.base)]
        while waiting:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    status = entry.stat(follow_symlinks=False)
                    folder = stat.S_ISDIR(status.st_mode)
                    link = entry.is_symlink()
                    found[entry.path] = (
                        status.st_ino, status.st_mode, 0 if folder else status.st_size,
                        0 if folder or link else status.st_mtime_ns, status.st_uid,
                    )  # fmt: skip
                    if folder:
                        waiting.append(entry.path)
        return found

    def _restore(self) -> None:
        """What differs is put back from a copy, in place where it can be: the process outside holds
        some of it open.
        """
        after = self._look()
        differing = sorted(
            p for p in self._before.keys() | after.keys() if self._before.get(p) != after.get(p)
        )
        if not differing:
            return
        for path in reversed(differing):
            self._take_away(path)
        again = [path for path in differing if path in self._before and not os.path.lexists(path)]
        for path in again:
            self._put_back(path)
        for first, second in self._hard:
            if {str(first), str(second)} & set(differing):
                second.unlink(missing_ok=True)
                os.link(first, second)
        held = (str(self.out / "notes.txt"), str(self.root / "project.sock"), str(self.out))
        if any(path in again for path in held):
            self.victim.close()
            self.victim = Victim(self)
        self._settle()

    def _take_away(self, path: str) -> None:
        was, kept = self._before.get(path), self._rebase(path)
        now = os.lstat(path) if os.path.lexists(path) else None
        if now is None:
            return
        if was and was[0] == now.st_ino and stat.S_ISREG(now.st_mode):
            os.chmod(path, 0o600)
            Path(path).write_bytes(kept.read_bytes())
            os.chown(path, was[4], now.st_gid)
            shutil.copystat(kept, path)
        elif was and was[0] == now.st_ino:
            os.chmod(path, stat.S_IMODE(was[1]))
        elif stat.S_ISDIR(now.st_mode):
            shutil.rmtree(path)
        else:
            os.unlink(path)

    def _put_back(self, path: str) -> None:
        kept = self._rebase(path)
        if not os.path.lexists(kept):
            return  # a socket: its listener makes it anew
        if kept.is_symlink():
            os.symlink(os.readlink(kept), path)
        elif kept.is_dir():
            Path(path).mkdir(exist_ok=True)
            shutil.copystat(kept, path)
        else:
            shutil.copy2(kept, path)

    def _rebase(self, path: str) -> Path:
        return self._kept / os.path.relpath(path, self.base)

    def _settle(self) -> None:
        self._before = self._look()


def _copy(source: str, target: str) -> str:
    # Sockets cannot be copied, and the listener is still there.
    return (
        target
        if stat.S_ISSOCK(os.lstat(source).st_mode)
        else shutil.copy2(source, target, follow_symlinks=False)
    )


_STEPS = ".git/rebase-merge/git-rebase-todo"
"""The steps of a rebase. Commands may begin one; no step that runs a program may be left of it."""


def _runs_program(steps: Path) -> bool:
    return re.search(rb"^\s*(x|exec)\b", steps.read_bytes(), re.MULTILINE) is not None


_LEADS_GIT = re.compile(
    r"(?:^|/)\.git/(?:.*/)?(?:commondir|rebase-merge/(?:git-rebase-todo|strategy)"
    r"|rebase-apply/apply-opt|sequencer/opts)$",
    re.IGNORECASE,
)
"""What leads git elsewhere, or what it obeys when a person goes on with something unfinished."""


def _untouchable(name: str, *, made: bool) -> bool:
    """Reserved and secret names; protected ones where they take effect: at the root of the
    workspace.
    """
    if DEFAULT_NAMES.check(name, write=False) is not None or _LEADS_GIT.search(name):
        return True
    if made and name.rpartition("/")[2] == ".git":
        return True
    protected = DEFAULT_NAMES.check(name, write=True) is not None
    return (
        protected
        and not name.startswith(".git/")
        and name != ".git"
        and "/.git" not in name
        and _at_root(name)
    )


def _at_root(name: str) -> bool:
    head = name.split("/")[0]
    return (
        DEFAULT_NAMES.check(head, write=True) is not None
        or DEFAULT_NAMES.check("/".join(name.split("/")[:2]), write=True) is not None
    )


class Victim:
    """A process outside that holds canaries and listens wherever something can be sent."""

    def __init__(self, world: World) -> None:
        self._world = world
        (world.root / "project.sock").unlink(missing_ok=True)
        environment = {**os.environ, "SECRET": world.canary().strip()}
        self._process = subprocess.Popen(
            [
                sys.executable,
                str(VICTIM),
                world.victim_name,
                str(world.root),
                str(world.out),
                world.marker,
            ],
            env=environment,
            stdout=subprocess.PIPE,
            stdin=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        self._out: IO[str] = self._process.stdout
        self.places: dict[str, object] = json.loads(self._out.readline())

    def harm(self) -> list[str]:
        """What arrived since the last question, and whether it still lives."""
        if self._process.poll() is not None:
            died = self._process.returncode
            self.close()
            self.__init__(self._world)
            return [f"the process outside was ended: {died}"]
        assert self._process.stdin is not None
        self._process.stdin.write("what came?\n")
        self._process.stdin.flush()
        answer = self._out.readline()
        return json.loads(answer) if answer else ["the process outside does not answer"]

    def close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        library = ctypes.CDLL(None)
        library.shmctl(self.places["shm"], 0, None)
        library.mq_unlink(f"/{self.places['queue']}".encode())
        Path(str(self.places["shmfile"])).unlink(missing_ok=True)
