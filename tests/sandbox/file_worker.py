"""Performs lists of file operations as plain system calls and says what came of each, and what the
folder holds then.

As a program, it reads lines of JSON from standard input: `{"folder": …, "operations": [[name,
argument…], …]}`, and answers each with a line `{"results": […], "tree": {…}}`. `@` at the start of
a path stands for the folder.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import shutil
import stat
import sys

libc = ctypes.CDLL(None, use_errno=True)
AT_FDCWD = -100


def call(function: str, *arguments: object) -> int:
    result = getattr(libc, function)(
        *(ctypes.c_long(a) if isinstance(a, int) else a for a in arguments)
    )
    return -ctypes.get_errno() if result == -1 else result


class Worker:
    def __init__(self, folder: str) -> None:
        self.folder = folder

    def path(self, text: str) -> bytes:
        return os.fsencode(self.folder + text[1:] if text.startswith("@") else text)

    def base(self, text: str | None) -> int:
        """A descriptor to be relative to: of anything, since that is an error of its own."""
        if text is None:
            return AT_FDCWD
        return call("open", self.path(text), os.O_RDONLY | os.O_NONBLOCK)

    def perform(self, name: str, arguments: list[object]) -> object:
        return getattr(self, name)(*arguments)

    def open(self, base: str | None, path: str, flags: int, mode: int, data: str) -> object:
        name, folder = self.path(path), self.base(base)
        try:
            if stat.S_ISFIFO(os.stat(name, dir_fd=None if folder == AT_FDCWD else folder).st_mode):
                flags |= os.O_NONBLOCK
        except (OSError, ValueError):
            pass
        found = call("openat", folder, name, flags, mode)
        if folder >= 0:
            os.close(folder)
        if found < 0:
            return found
        try:
            written = os.write(found, data.encode())
        except OSError as error:
            written = -(error.errno or 0)
        status = os.fstat(found)
        seen = [
            found,
            fcntl.fcntl(found, fcntl.F_GETFL)
            & ~os.O_NOFOLLOW,  # accepted: no effect once the file is open
            fcntl.fcntl(found, fcntl.F_GETFD),
            written,
            status.st_mode,
        ]
        os.close(found)
        return seen

    def creat(self, path: str, mode: int) -> object:
        found = call("syscall", 85, self.path(path), mode) if os.uname().machine == "x86_64" else 0
        if found > 0:
            os.close(found)
        return found

    def mkdir(self, base: str | None, path: str, mode: int) -> int:
        return self.at(base, lambda folder: call("mkdirat", folder, self.path(path), mode))

    def mknod(self, base: str | None, path: str, mode: int) -> int:
        return self.at(
            base, lambda folder: call("mknodat", folder, self.path(path), mode, os.makedev(1, 3))
        )

    def device(self, path: str, kind: int) -> str:
        """Which error comes first does not matter: it never works."""
        return (
            "refused"
            if call("mknod", self.path(path), kind | 0o600, os.makedev(1, 3)) < 0
            else "made"
        )

    def symlink(self, target: str, base: str | None, path: str) -> int:
        return self.at(
            base, lambda folder: call("symlinkat", self.path(target), folder, self.path(path))
        )

    def link(self, base: str | None, old: str, new: str, flags: int) -> int:
        return self.at(
            base,
            lambda folder: call("linkat", folder, self.path(old), AT_FDCWD, self.path(new), flags),
        )

    def rename(self, old: str, base: str | None, new: str, flags: int) -> int:
        return self.at(
            base,
            lambda folder: call(
                "renameat2", AT_FDCWD, self.path(old), folder, self.path(new), flags
            ),
        )

    def at(self, base: str | None, perform: object) -> int:
        folder = self.base(base)
        if folder < 0 and folder != AT_FDCWD:
            return folder
        try:
            return perform(folder)
        finally:
            if folder >= 0:
                os.close(folder)

    def temporary(self, path: str, mode: int, name: str, exclusive: bool) -> object:
        """A file without a name, then a name for it."""
        flags = os.O_TMPFILE | os.O_RDWR | (os.O_EXCL if exclusive else 0)
        found = call("open", self.path(path), flags, mode)
        if found < 0:
            return found
        try:
            os.write(found, b"temporary")
            return call(
                "linkat", AT_FDCWD, b"/proc/self/fd/%d" % found, AT_FDCWD, self.path(name), 0x400
            )
        finally:
            os.close(found)

    def unlink(self, path: str) -> int:
        return call("unlink", self.path(path))

    def rmdir(self, path: str) -> int:
        return call("rmdir", self.path(path))

    def chmod(self, path: str, mode: int) -> int:
        # Not of what lies above: a link may lead there.
        inside = os.path.realpath(self.path(path)).startswith(os.fsencode(self.folder))
        return call("chmod", self.path(path), mode) if inside else 0

    def chdir(self, path: str) -> int:
        return call("chdir", self.path(path))

    def umask(self, mask: int) -> int:
        return call("umask", mask)

    def bad_pointer(self, address: int) -> list[int]:
        return [
            call("openat", AT_FDCWD, address, os.O_CREAT | os.O_WRONLY, 0o600),
            call("mkdirat", AT_FDCWD, address, 0o700),
            call("symlinkat", b"x", AT_FDCWD, address),
            call("symlinkat", address, AT_FDCWD, b"x"),
            call("renameat2", AT_FDCWD, b"a", AT_FDCWD, address, 0),
        ]

    def bad_descriptor(self, number: int) -> list[int]:
        return [
            call("openat", number, b"x", os.O_CREAT | os.O_WRONLY, 0o600),
            call("mkdirat", number, b"x", 0o700),
            call("openat", number, b"", os.O_CREAT | os.O_WRONLY, 0o600),
        ]

    def tree(self) -> dict[str, object]:
        found: dict[str, object] = {}
        files: dict[int, str] = {}
        pending = [""]
        while pending:
            at = pending.pop()
            here = self.folder + at
            status = os.lstat(here)
            kind = stat.S_IFMT(status.st_mode)
            entry: list[object] = [
                status.st_mode,
                status.st_nlink,
                files.setdefault(status.st_ino, at),
            ]
            if kind == stat.S_IFLNK:
                entry.append(os.readlink(here).replace(self.folder, "@"))
            elif kind == stat.S_IFREG:
                os.chmod(here, 0o600)
                with open(here, "rb") as file:
                    entry.append(file.read().decode())
            elif kind == stat.S_IFDIR:
                os.chmod(here, 0o700)
                pending += sorted((f"{at}/{name}" for name in os.listdir(here)), reverse=True)
            found[at] = entry
        return found


def main() -> None:
    for line in sys.stdin:
        asked = json.loads(line)
        os.umask(0)
        os.mkdir(asked["folder"], 0o755)
        os.chdir(asked["folder"])
        os.umask(0o022)
        worker = Worker(asked["folder"])
        results = [worker.perform(name, arguments) for name, *arguments in asked["operations"]]
        os.chdir("/")
        answer = {"results": results, "tree": worker.tree()}
        shutil.rmtree(asked["folder"])
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
