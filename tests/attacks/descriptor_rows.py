"""What a command could try with a descriptor of a file, as data: handles that may neither read nor
write (O_PATH), names of them below /proc, and folders that are held open.

A script is Python. `d` is a handle of `target`, `folder` one of the folder that it lies in, `name`
its name there. Written in angle brackets: as in `sandbox_rows`.
"""

from __future__ import annotations

from itertools import cycle, islice

_BEGIN = """\
libc = ctypes.CDLL(None, use_errno=True)
target = '{target}'
d = os.open(target, os.O_PATH)
folder = os.open(os.path.dirname(target), os.O_PATH)
name = os.path.basename(target).encode()
here = os.open('.', os.O_PATH)
"""
_USE_LINK = """
try: print(open('free').read())
except OSError: pass
open('free', 'a').write('planted')
"""
_IN_CHILD = "child = os.fork()\nif not child:\n    {}\n    os._exit(0)\nos.waitpid(child, 0)"

_LINKS: tuple[tuple[str, str], ...] = (
    ("empty-path", "libc.linkat(d, b'', -100, b'free', 0x1000)"),
    ("proc", "libc.linkat(-100, b'/proc/self/fd/%d' % d, -100, b'free', 0x400)"),
    ("thread", "libc.linkat(-100, b'/proc/thread-self/fd/%d' % d, -100, b'free', 0x400)"),
    ("dev", "libc.linkat(-100, b'/dev/fd/%d' % d, -100, b'free', 0x400)"),
    (
        "proc-descriptor",
        "libc.linkat(os.open('/proc/self/fd', os.O_PATH), b'%d' % d, here, b'free', 0x400)",
    ),
    (
        "link-to-proc",
        "os.symlink(f'/proc/self/fd/{d}', 'way')\nlibc.linkat(-100, b'way', -100, b'free', 0x400)",
    ),
    ("folder", "libc.linkat(folder, name, here, b'free', 0)"),
    (
        "folder-proc",
        "libc.linkat(-100, b'/proc/self/fd/%d/%b' % (folder, name), -100, b'free', 0)",
    ),
    ("working-folder", "os.fchdir(folder); libc.linkat(-100, name, here, b'free', 0)"),
    ("inherited", _IN_CHILD.format("libc.linkat(d, b'', -100, b'free', 0x1000)")),
    (
        "of-parent",
        _IN_CHILD.format(
            "libc.linkat(-100, b'/proc/%d/fd/%d' % (os.getppid(), d), -100, b'free', 0x400)"
        ),
    ),
    (
        "passed",
        "one, other = socket.socketpair()\nsocket.send_fds(one, [b'x'], [d])\n"
        + _IN_CHILD.format(
            "os.close(d); d = socket.recv_fds(other, 1, 1)[1][0]; "
            "libc.linkat(-100, b'/proc/self/fd/%d' % d, -100, b'free', 0x400)"
        ),
    ),
)
"""Ways to give the file another name. What it holds is read and changed by that name."""

_READS: tuple[tuple[str, str], ...] = (
    ("open", "print(open(f'/proc/self/fd/{d}').read())"),
    ("open-creating", "print(os.read(os.open(f'/dev/fd/{d}', os.O_RDONLY | os.O_CREAT), 999))"),
    ("working-folder", "os.fchdir(folder); print(open(name).read())"),
    ("moved", "libc.renameat(folder, name, here, b'free'); print(open('free').read())"),
    (
        "exchanged",
        (
            "libc.renameat2(folder, name, here, b'README.md', 2)\n"
            "print(os.read(os.open('README.md', 0, dir_fd=here), 999))"
        ),
    ),
    (
        "copied",
        (
            "source = os.open(f'/proc/self/fd/{d}', os.O_RDONLY)\n"
            "os.copy_file_range(source, os.open('free', os.O_WRONLY | os.O_CREAT), 999)"
        ),
    ),
    (
        "handle",
        (
            "handle = ctypes.create_string_buffer(struct.pack('Ii', 128, 0) + bytes(128))\n"
            "libc.name_to_handle_at(d, b'', handle, ctypes.byref(ctypes.c_int()), 0x1000)\n"
            "print(os.read(libc.open_by_handle_at(os.open('.', 0), handle, 0), 999))"
        ),
    ),
    (
        "mounted",
        (
            "tree = libc.syscall(428, folder, b'', 0x1001)  # open_tree, a copy of the mount\n"
            "print(os.read(os.open(name, 0, dir_fd=tree), 999))"
        ),
    ),
)

_CHANGES: tuple[tuple[str, str], ...] = (
    ("truncate", "libc.truncate(b'/proc/self/fd/%d' % d, ctypes.c_long(3))"),
    ("truncate-dev", "libc.truncate(b'/dev/fd/%d' % d, ctypes.c_long(3))"),
    ("truncate-folder", "libc.truncate(b'/proc/self/fd/%d/%b' % (folder, name), ctypes.c_long(3))"),
    (
        "truncate-of-parent",
        _IN_CHILD.format("libc.truncate(b'/proc/%d/fd/%d' % (os.getppid(), d), ctypes.c_long(3))"),
    ),
    ("open-append", "open(f'/proc/self/fd/{d}', 'a').write('planted')"),
    ("open-update", "os.write(os.open(f'/proc/self/fd/{d}', os.O_RDWR), b'planted')"),
    ("open-truncating", "os.open(f'/dev/fd/{d}', os.O_WRONLY | os.O_TRUNC)"),
    ("create", "libc.creat(b'/proc/self/fd/%d' % d, 0o644)"),
    ("chmod", "os.chmod(f'/proc/self/fd/{d}', 0o751)"),
    ("chmod-empty-path", "libc.syscall(452, d, b'', 0o751, 0x1000)"),
    ("chown", "os.chown(f'/proc/self/fd/{d}', 12345, -1)"),
    ("chown-empty-path", "libc.fchownat(d, b'', 12345, -1, 0x1000)"),
    ("times", "os.utime(f'/proc/self/fd/{d}', (1, 1))"),
    ("times-empty-path", "libc.utimensat(d, b'', bytes(32), 0x1000)"),
    ("attribute", "os.setxattr(f'/proc/self/fd/{d}', 'user.x', b'1'); print('KEY reached')"),
    ("remove", "os.unlink(name, dir_fd=folder)"),
    ("replace", "open('free', 'w').write('x'); os.rename('free', name, dst_dir_fd=folder)"),
)

_HIDDEN: tuple[tuple[str, str], ...] = (
    ("cloud", "<root>/.aws/credentials"),
    ("agents", "<root>/agents/harvey.yaml"),
    ("settings", "<root>/.ferrule/settings.yaml"),
    ("env", "<root>/.env"),
    ("git-config", "<root>/.git/config"),
    ("shared", "<shared>/.ferrule/settings.yaml"),
    ("outside", "<out>/notes.txt"),
)
_HELD: tuple[tuple[str, str], ...] = (
    ("profile", "<root>/.profile"),
    ("workflow", "<root>/.github/workflows/ci.yml"),
    ("hook", "<root>/.git/hooks/pre-commit"),
)
"""Names that may be read and not changed."""


def _rows() -> tuple[tuple[str, str], ...]:
    """Each way at some of the targets, so that every target is tried in many ways."""
    all_targets = (_HELD[0], *_HIDDEN[:3], *_HELD[1:], *_HIDDEN[3:])
    rows: list[tuple[str, str]] = []
    for ways, prefix, end, targets, count in (
        (_LINKS, "link-", _USE_LINK, cycle(all_targets), 3),
        (_READS, "read-", "", cycle(_HIDDEN), 2),
        (_CHANGES, "", "", cycle(all_targets), 2),
    ):
        for way, code in ways:
            for where, path in islice(targets, count):
                script = _BEGIN.replace("{target}", path) + code + end
                rows.append((f"{prefix}{way}-{where}", script))
    return tuple(rows)


DESCRIPTORS = _rows()
