"""What several commands could try together, as data: they run at once, hand each other what they
hold, and end in any order.

Each row has scripts that stay and scripts that end. Those that stay are started first, those that
end run to their end one after another, and only then is `go` put into the folder that all of them
share: who stays acts when the others are gone. A script is Python, with `PRELUDE` before it.
Written in angle brackets: as in `sandbox_rows`.

As there, a row does its harm where nothing holds it, or says why that cannot be shown.
"""

from __future__ import annotations

from dataclasses import dataclass

PRELUDE = r"""
import array, ctypes, errno, fcntl, mmap, os, select, shutil, socket, stat, struct, subprocess, sys, time
libc = ctypes.CDLL(None, use_errno=True)
shared = os.path.join(os.environ['TMPDIR'], '<row>')
os.makedirs(shared, exist_ok=True)
root = '<root>'

def waiting():
    alone, gone = 1200, 40
    while alone and gone:
        alone -= 1
        gone -= os.path.exists(os.path.join(shared, 'go'))
        yield
        time.sleep(0.01)
    sys.exit('nothing came')

def there(name):
    path = os.path.join(shared, name)
    for _ in waiting():
        if os.path.lexists(path):
            return path

def shorten(address):
    # A user with a long name has long paths, and an address has 107 bytes.
    if not isinstance(address, str) or address[0] == chr(0) or len(os.fsencode(address)) <= 107:
        return address
    folder = os.open(os.path.dirname(address), os.O_PATH)
    return '/proc/self/fd/%d/%s' % (folder, os.path.basename(address))

def listen(address, kind=socket.SOCK_STREAM):
    try:
        s = socket.socket(socket.AF_UNIX, kind)
        s.bind(shorten(address))
        if kind != socket.SOCK_DGRAM:
            s.listen()
        return s
    finally:
        open(os.path.join(shared, 'listening'), 'w').close()

def connect(address, kind=socket.SOCK_STREAM):
    there('listening')
    s = socket.socket(socket.AF_UNIX, kind)
    s.connect(shorten(address))
    return s

def ready(s):
    for _ in waiting():
        if select.select([s], [], [], 0)[0]:
            return s

def accept(s):
    return ready(s).accept()[0]

def take(s):
    c = s if s.type == socket.SOCK_DGRAM else accept(s)
    return socket.recv_fds(ready(c), 99, 9)[1]

def send(s, *descriptors):
    socket.send_fds(s, [b'here'], list(descriptors))

def system(number, *arguments):
    result = libc.syscall(number, *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), 'system call')
    return result

def read(name, d):
    return os.read(os.open(name, os.O_RDONLY, dir_fd=d), 999)

def write(name, d):
    os.write(os.open(name, os.O_WRONLY | os.O_CREAT, 0o755, dir_fd=d), b'planted')

def insist(act):
    for _ in range(10):
        try:
            found = act()
        except Exception as error:
            said = error
        else:
            print(found)
            return
        time.sleep(0.02)
    print('no:', said)
"""


@dataclass(frozen=True, slots=True)
class Together:
    """Commands of one session. `why_no_control` is empty where the control is run."""

    id: str
    stay: tuple[str, ...]
    end: tuple[str, ...] = ()
    why_no_control: str = ""


_STREAM = "listen(shared + '/s')", "connect(shared + '/s')"

_WAYS: dict[str, tuple[str, str]] = {
    "stream": _STREAM,
    "datagram": (
        "listen(shared + '/s', socket.SOCK_DGRAM)",
        "connect(shared + '/s', socket.SOCK_DGRAM)",
    ),
    "sequence": (
        "listen(shared + '/s', socket.SOCK_SEQPACKET)",
        "connect(shared + '/s', socket.SOCK_SEQPACKET)",
    ),
    "abstract": ("listen('\\0<row>')", "connect('\\0<row>')"),
    "abstract-datagram": (
        "listen('\\0<row>', socket.SOCK_DGRAM)",
        "connect('\\0<row>', socket.SOCK_DGRAM)",
    ),
    "workspace-socket": ("listen(root + '/<row>.s')", "connect(root + '/<row>.s')"),
    "home-socket": (
        "listen(os.environ['HOME'] + '/<row>.s')",
        "connect(os.environ['HOME'] + '/<row>.s')",
    ),
    "var-tmp-socket": (
        "listen('/var/tmp/<row>.s')",
        "connect('/var/tmp/<row>.s')",
    ),
}  # fmt: skip
"""How two commands find each other: who stays listens, who ends connects."""

_HELD: dict[str, str] = {
    "folder": "os.open(root, os.O_RDONLY | os.O_DIRECTORY)",
    "path": "os.open(root, os.O_PATH)",
    "by-proc": "os.open('/proc/self/root' + root, os.O_PATH)",
    "by-cwd": "(os.chdir(root), os.open('.', os.O_PATH))[1]",
    "by-open-tree": "os.open(root + '/src/..', os.O_PATH)",
}
"""How who ends holds the workspace."""

_ACTS: tuple[tuple[str, str], ...] = (
    ("read-env", "read('.env', d)"),
    ("read-git-config", "read('.git/config', d)"),
    ("read-settings", "read('.ferrule/settings.yaml', d)"),
    ("read-agents", "read('agents/harvey.yaml', d)"),
    ("read-key", "read('deploy/server.pem', d)"),
    ("read-cloud", "read('.aws/credentials', d)"),
    ("read-nested-config", "read('vendor/lib/.git/config', d)"),
    ("read-hard-link", "read('hard-env.txt', d)"),
    ("read-by-proc", "open(f'/proc/self/fd/{d}/.env').read()"),
    ("read-by-dots", "read('src/../.env', d)"),
    ("read-by-cwd", "(os.fchdir(d), open('.env').read())"),
    ("read-by-proc-cwd", "(os.fchdir(d), open('/proc/self/cwd/.env').read())"),
    ("read-by-folder", "read('.env', os.open('src/..', os.O_PATH, dir_fd=d))"),
    (
        "read-by-link",
        "(os.symlink(f'/proc/self/fd/{d}/.env', shared + '/l'), open(shared + '/l').read())",
    ),
    ("read-by-openat2", "os.read(system(437, d, b'.env', struct.pack('QQQ', 0, 0, 0), 24), 999)"),
    ("read-by-mapping", "mmap.mmap(os.open('.env', 0, dir_fd=d), 0, prot=mmap.PROT_READ)[:]"),
    (
        "read-by-handle",
        (
            "(h := ctypes.create_string_buffer(struct.pack('Ii', 128, 0) + bytes(128)), m := "
            "ctypes.c_int(),"
            " libc.name_to_handle_at(d, b'.env', h, ctypes.byref(m), 0),"
            " os.read(libc.open_by_handle_at(d, h, 0), 999))"
        ),
    ),
    (
        "read-by-cat",
        (
            "(os.fchdir(d), subprocess.run(['cat', '.env'], capture_output=True, "
            "check=True).stdout)[1]"
        ),
    ),
    (
        "read-by-git",
        (
            "(os.fchdir(d), subprocess.run(['git', 'config', '--list', '--local'], "
            "capture_output=True, check=True).stdout)[1]"
        ),
    ),
    (
        "read-by-grep",
        (
            "(os.fchdir(d), subprocess.run(['grep', '-rh', 'KEY', '.'], "
            "capture_output=True).stdout)[1]"
        ),
    ),
    ("list-settings", "os.listdir(os.open('.ferrule', os.O_RDONLY, dir_fd=d))"),
    ("list-by-walk", "[os.listdir(f) for _, _, _, f in os.fwalk('.ferrule', dir_fd=d)] or no"),
    ("write-env", "write('.env', d)"),
    ("write-git-config", "write('.git/config', d)"),
    ("write-hook", "write('.git/hooks/pre-commit', d)"),
    ("write-settings", "write('.ferrule/settings.yaml', d)"),
    ("truncate-env", "os.truncate(os.open('.env', os.O_WRONLY | os.O_TRUNC, dir_fd=d), 0)"),
    ("mode-of-config", "os.chmod(f'/proc/self/fd/{d}/.git/config', 0o755)"),
    ("mode-of-hook", "os.chmod('.git/hooks/pre-commit', 0o755, dir_fd=d)"),
    ("times-of-settings", "os.utime('.ferrule/settings.yaml', (1, 1), dir_fd=d)"),
    ("remove-env", "os.unlink('.env', dir_fd=d)"),
    ("remove-config", "os.unlink('.git/config', dir_fd=d)"),
    (
        "move-env",
        "(os.rename('.env', 'moved.txt', src_dir_fd=d, dst_dir_fd=d), read('moved.txt', d))",
    ),
    (
        "move-settings",
        (
            "(os.rename('.ferrule', 'plain', src_dir_fd=d, dst_dir_fd=d), "
            "read('plain/settings.yaml', d))"
        ),
    ),
    (
        "move-git",
        "(os.rename('.git', 'plain', src_dir_fd=d, dst_dir_fd=d), read('plain/config', d))",
    ),
    (
        "move-in-place",
        (
            "(write('ordinary.txt', d), os.rename('ordinary.txt', '.mcp.json', src_dir_fd=d, "
            "dst_dir_fd=d))"
        ),
    ),
    ("exchange", "(system(316, d, b'.env', d, b'README.md', 2), read('README.md', d))"),
    (
        "link-env",
        "(os.link('.env', 'linked.txt', src_dir_fd=d, dst_dir_fd=d), read('linked.txt', d))",
    ),
    (
        "link-away",
        "(os.link('.env', shared + '/linked', src_dir_fd=d), open(shared + '/linked').read())",
    ),
    ("make-hook", "write('.git/hooks/post-checkout', d)"),
    ("make-settings", "write('.ferrule/ferrule.yaml', d)"),
    ("make-harness", "os.mkdir('.harness', dir_fd=d)"),
    ("make-mcp", "write('.mcp.json', d)"),
    ("make-commondir", "write('.git/commondir', d)"),
    ("make-nested", "os.mkdir('src/.ferrule', dir_fd=d)"),
    ("make-git-file", "write('src/.git', d)"),
    ("make-by-cwd", "(os.fchdir(d), os.mkdir('.harness'))"),
    ("make-by-proc", "open(f'/proc/self/fd/{d}/.mcp.json', 'x').close()"),
    ("make-by-creat", "(os.fchdir(d), system(85, b'.mcp.json', 0o644))"),
    ("make-pipe", "os.mkfifo('.mcp.json', dir_fd=d)"),
    ("make-node", "os.mknod('.mcp.json', stat.S_IFREG | 0o644, dir_fd=d)"),
    ("make-link", "os.symlink('README.md', '.mcp.json', dir_fd=d)"),
    ("make-hard-link", "os.link('README.md', '.mcp.json', src_dir_fd=d, dst_dir_fd=d)"),
    ("make-socket", "(os.fchdir(d), socket.socket(socket.AF_UNIX).bind('.mcp.json'))"),
    (
        "make-nameless",
        (
            "os.link(f\"/proc/self/fd/{os.open('.', os.O_TMPFILE | os.O_RDWR, dir_fd=d)}\", "
            "'.mcp.json', dst_dir_fd=d, follow_symlinks=True)"
        ),
    ),
    ("make-by-open-link", "(os.symlink('.mcp.json', 'dangling', dir_fd=d), write('dangling', d))"),
    ("make-in-git", "write('.git/config.worktree', d)"),
    (
        "make-workflow",
        (
            "(os.makedirs(f'/proc/self/fd/{d}/.github/workflows', exist_ok=True), "
            "write('.github/workflows/ci.yml', d))"
        ),
    ),
)
"""What who stays does with the workspace's folder `d`."""

_TAKE = "s = {listen}\nthere('go')\nd = take(s)[0]\ninsist(lambda: {act})"
_TAKE_EARLY = "s = {listen}\nd = take(s)[0]\nthere('go')\ninsist(lambda: {act})"
_SEND = "s = {connect}\nsend(s, {held})"

_NEEDS_A_RIGHT = {
    "read-by-handle": "opening by a handle needs a right that the machine may refuse",
    "list-by-walk": "",
}


def _passed() -> list[Together]:
    """Every act, each with another way and another kind of descriptor."""
    ways, held = list(_WAYS.items()), list(_HELD.items())
    rows: list[Together] = []
    for number, (name, act) in enumerate(_ACTS):
        way, (listen, connect) = ways[number % len(ways)]
        kind, opened = held[number % len(held)]
        # What lies in the queue of a socket belongs to nobody until it is taken.
        taken = _TAKE if number % 3 == 0 and way not in ("datagram",) else _TAKE_EARLY
        rows.append(
            Together(
                f"{name}-{way}-{kind}",
                (taken.format(listen=listen, act=act),),
                (_SEND.format(connect=connect, held=opened),),
                _NEEDS_A_RIGHT.get(name, ""),
            )
        )
    return rows


def _everywhere() -> list[Together]:
    """The same two acts through every way and with every kind of descriptor."""
    rows: list[Together] = []
    for way, (listen, connect) in _WAYS.items():
        for act in ("read('.env', d)", "os.mkdir('.harness', dir_fd=d)"):
            rows.append(
                Together(
                    f"by-{way}-{'read' if act.startswith('read') else 'make'}",
                    (_TAKE_EARLY.format(listen=listen, act=act),),
                    (_SEND.format(connect=connect, held=_HELD["folder"]),),
                )
            )
    for kind, opened in _HELD.items():
        rows.append(
            Together(
                f"held-{kind}",
                (_TAKE_EARLY.format(listen=_STREAM[0], act="read('.ferrule/settings.yaml', d)"),),
                (_SEND.format(connect=_STREAM[1], held=opened),),
            )
        )
    return rows


_PARTS: tuple[tuple[str, str, str], ...] = (
    ("git-folder", "os.open(root + '/.git', os.O_PATH)", "read('config', d)"),
    ("git-folder-make", "os.open(root + '/.git', os.O_PATH)", "write('commondir', d)"),
    ("git-folder-hook", "os.open(root + '/.git', os.O_PATH)", "write('hooks/post-merge', d)"),
    ("hooks-folder", "os.open(root + '/.git/hooks', os.O_PATH)", "write('post-merge', d)"),
    ("settings-folder", "os.open(root + '/.ferrule', os.O_PATH)", "read('settings.yaml', d)"),
    ("deploy-folder", "os.open(root + '/deploy', os.O_PATH)", "read('server.pem', d)"),
    ("docs-folder", "os.open(root + '/docs', os.O_PATH)", "read('../.env', d)"),
    ("docs-folder-make", "os.open(root + '/docs', os.O_PATH)", "write('../.mcp.json', d)"),
    ("top-of-view", "os.open('/', os.O_PATH)", "read(root[1:] + '/.env', d)"),
    ("top-of-view-make", "os.open('/', os.O_PATH)", "write(root[1:] + '/.mcp.json', d)"),
    ("top-of-view-outside", "os.open('/', os.O_PATH)", "read('<out>/notes.txt'[1:], d)"),
    (
        "home-of-view",
        "os.open(os.path.dirname(root), os.O_PATH)",
        "read(os.path.basename(root) + '/.env', d)",
    ),
    (
        "home-of-view-sibling",
        "os.open('<home>', os.O_PATH)",
        "read('work/project-evil/notes.txt', d)",
    ),
    ("further-folder", "os.open('<shared>', os.O_PATH)", "read('.env', d)"),
    ("further-folder-make", "os.open('<shared>', os.O_PATH)", "write('.ferrule/ferrule.yaml', d)"),
    ("further-folder-key", "os.open('<library>', os.O_PATH)", "read('keys/site.key', d)"),
    ("file-of-env", "os.open(root + '/.env', os.O_PATH)", "open(f'/proc/self/fd/{d}').read()"),
    (
        "file-of-config",
        "os.open(root + '/.git/config', os.O_RDONLY)",
        "[1 for _ in [0] if b'url' in os.pread(d, 9999, 0)][0] and os.pread(d, 9999, 0)",
    ),
    (
        "file-of-env-linked",
        "os.open(root + '/.env', os.O_PATH)",
        (
            "(os.link(f'/proc/self/fd/{d}', 'linked.txt', dst_dir_fd=os.open(root, os.O_PATH), "
            "follow_symlinks=True), open(root + '/linked.txt').read())"
        ),
    ),
    ("own-proc", "os.open('/proc/self', os.O_PATH)", "open(f'/proc/self/fd/{d}/cwd/.env').read()"),
    ("own-proc-root", "os.open('/proc/self/root', os.O_PATH)", "read(root[1:] + '/.env', d)"),
    (
        "own-proc-make",
        "os.open('/proc', os.O_PATH)",
        "open(f'/proc/self/fd/{d}/self/cwd/.mcp.json', 'x').close()",
    ),
    (
        "mount-namespace",
        "os.open('/proc/self/ns/mnt', os.O_RDONLY)",
        "(libc.setns(d, 0) == 0 or no) and open(root + '/.env').read()",
    ),
)
"""Other things than the workspace's folder, and what is done with them."""

_ALIVE = """
d = {held}
s = {connect}
send(s, d)
there('done')
"""
_ACT_THEN_SAY = (
    "s = {listen}\nd = take(s)[0]\ninsist(lambda: {act})\nopen(shared + '/done', 'w').close()"
)

_FORWARD = """
s = listen(shared + '/t')
c = accept(s)
there('go')
d = socket.recv_fds(ready(c), 99, 9)[1][0]
there('listening2')
t = socket.socket(socket.AF_UNIX); t.connect(shared + '/u')
send(t, d)
"""
_LAST = """
s = socket.socket(socket.AF_UNIX); s.bind(shared + '/u'); s.listen()
open(shared + '/listening2', 'w').close()
d = take(s)[0]
there('go')
time.sleep(0.1)
insist(lambda: {act})
"""
_PARKED = """
a, b = socket.socketpair()
send(a, os.open(root, os.O_PATH))
s = connect(shared + '/s')
send(s, b.fileno())
"""
_UNPARK = """
s = listen(shared + '/s')
b = take(s)[0]
there('go')
d = socket.recv_fds(socket.socket(fileno=b), 99, 9)[1][0]
insist(lambda: {act})
"""
_SELF = """
me = str(os.getpid())
d = os.open(root, os.O_PATH)
os.chdir(root)
open(shared + '/pid.tmp', 'w').write(me + ' ' + str(d))
os.rename(shared + '/pid.tmp', shared + '/pid')
there('done')
"""
_LOOK_AT = """
pid, d = open(there('pid')).read().split()
insist(lambda: {act})
open(shared + '/done', 'w').close()
"""
_LEAVES = """
import signal
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for n in (signal.SIGTERM, signal.SIGHUP): signal.signal(n, signal.SIG_IGN)
        os.chdir(root)
        there('go')
        insist(lambda: {act})
    os._exit(0)
"""
_ENDS_FIRST = """
s = connect(shared + '/s')
d = socket.recv_fds(ready(s), 99, 9)[1][0]
send(s, d, os.open(root, os.O_PATH), os.open('/', os.O_PATH))
"""
_GIVES_AND_TAKES = """
s = listen(shared + '/s')
c = accept(s)
send(c, os.open(root, os.O_PATH))
d = socket.recv_fds(ready(c), 99, 9)[1][{number}]
there('go')
insist(lambda: {act})
"""


def _orders() -> list[Together]:
    """Who ends when, and how many they are."""
    env, hook = "read('.env', d)", "write('.git/hooks/post-checkout', d)"
    rows = [
        Together(
            "both-alive-read",
            (
                _ACT_THEN_SAY.format(listen=_STREAM[0], act=env),
                _ALIVE.format(held=_HELD["path"], connect=_STREAM[1]),
            ),
        ),
        Together(
            "both-alive-make",
            (
                _ACT_THEN_SAY.format(listen=_STREAM[0], act=hook),
                _ALIVE.format(held=_HELD["path"], connect=_STREAM[1]),
            ),
        ),
        Together("in-flight-in-flight-read", (_UNPARK.format(act=env),), (_PARKED,)),
        Together("in-flight-in-flight-make", (_UNPARK.format(act=hook),), (_PARKED,)),
        Together(
            "three-read",
            (_LAST.format(act=env), _FORWARD),
            (
                (
                    "s = (there('listening'), socket.socket(socket.AF_UNIX))[1]; "
                    "s.connect(shared + "
                    "'/t')\nsend(s, os.open(root, os.O_PATH))"
                ),
            ),
        ),
        Together(
            "three-make",
            (_LAST.format(act=hook), _FORWARD),
            (
                (
                    "s = (there('listening'), socket.socket(socket.AF_UNIX))[1]; "
                    "s.connect(shared + "
                    "'/t')\nsend(s, os.open(root, os.O_PATH))"
                ),
            ),
        ),
        Together("own-given-back", (_GIVES_AND_TAKES.format(number=0, act=env),), (_ENDS_FIRST,)),
        Together(
            "others-given-back", (_GIVES_AND_TAKES.format(number=1, act=env),), (_ENDS_FIRST,)
        ),
        Together(
            "others-top-given-back",
            (_GIVES_AND_TAKES.format(number=2, act="read(root[1:] + '/.env', d)"),),
            (_ENDS_FIRST,),
        ),
        Together(
            "left-behind-reads",
            (),
            (_LEAVES.format(act="open(root + '/.env').read()"),),
            "its output is nobody's when it acts",
        ),
        Together(
            "left-behind-makes",
            (),
            (_LEAVES.format(act="write('.mcp.json', None)"),),
            "who looks does not wait for it",
        ),
    ]
    for name, act in (
        ("fd", "open(f'/proc/{pid}/fd/{d}/.env').read()"),
        ("cwd", "open(f'/proc/{pid}/cwd/.env').read()"),
        ("root", "open(f'/proc/{pid}/root' + root + '/.env').read()"),
        ("make", "open(f'/proc/{pid}/cwd/.mcp.json', 'x').close()"),
        ("getfd", "read('.env', system(438, system(434, int(pid), 0), int(d), 0))"),
        (
            "environment",
            (
                "[1 for _ in [0] if b'KEY' in open(f'/proc/{pid}/environ', 'rb').read()][0] and "
                "open(f'/proc/{pid}/environ').read()"
            ),
        ),
    ):
        rows.append(Together(f"proc-of-other-{name}", (_SELF, _LOOK_AT.format(act=act))))
    return rows


def _parts() -> list[Together]:
    rows: list[Together] = []
    ways = list(_WAYS.items())
    for number, (name, held, act) in enumerate(_PARTS):
        _, (listen, connect) = ways[number % len(ways)]
        why = {
            "mount-namespace": "entering a namespace needs a right",
            "own-proc": "the folder is gone with its process",
            "own-proc-make": "`self` means who asks, and that one stands in the workspace",
        }.get(name, "")
        rows.append(
            Together(
                f"part-{name}",
                (_TAKE_EARLY.format(listen=listen, act=act),),
                (_SEND.format(connect=connect, held=held),),
                why,
            )
        )
    return rows


TOGETHER: tuple[Together, ...] = (*_passed(), *_everywhere(), *_orders(), *_parts())
