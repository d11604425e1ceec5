"""The seccomp filter of a command's processes: what they may ask of the kernel.

Three kinds of answers:

* *No such call* (ENOSYS) where programs fall back to an older call that can be judged: `clone3`,
  `openat2`, `io_uring`.
* *Not permitted* (EPERM) for what reaches out of a sandbox or changes the machine: mounts,
  namespaces, tracing and the memory of other processes, keys, kernel modules, clocks, input put
  into a terminal.
* *Ask pid 1* for calls that create a name, since no mount can forbid a name that does not exist
  yet. pid 1 performs the call itself (`mediator.py`); the kernel reads nothing again that was
  judged.

A call with a number that this file does not know does not exist for commands: a later kernel's new
call that creates a name is closed until somebody has looked at it. A program of another machine (32
bits, x32) ends at its first call.

Not covered here: what ordinary calls may reach; that is up to mounts, Landlock and the network
namespace. Calls that need a capability are named anyway, though a command holds none.
"""

from __future__ import annotations

import ctypes
import os
from errno import EACCES, EAFNOSUPPORT, EINVAL, ENOSYS, ENOTTY, EPERM

from . import bpf, system_calls
from .bpf import NOTIFY, ArgumentTest, Rule, refuse
from .libc import library

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_ABSENT = (
    "clone3 openat2 io_uring_setup io_uring_enter io_uring_register fsopen fsconfig fsmount "
    "fspick open_tree "
    "open_tree_attr move_mount mount_setattr"
)
_FORBIDDEN = (
    "_sysctl acct add_key bpf chroot clock_settime create_module delete_module fanotify_init "
    "fanotify_mark "
    "finit_module init_module ioperm iopl kcmp kexec_file_load kexec_load keyctl "
    "lookup_dcookie modify_ldt mount "
    "nfsservctl open_by_handle_at perf_event_open pidfd_getfd pivot_root process_madvise "
    "process_mrelease "
    "process_vm_readv process_vm_writev ptrace quotactl quotactl_fd reboot request_key "
    "setdomainname sethostname "
    "setns settimeofday swapoff swapon sysfs syslog umount2 uselib userfaultfd vhangup"
)
# Also `open` and `openat`, depending on their flags.
_CREATING = (
    "bind creat link linkat mkdir mkdirat mknod mknodat rename renameat renameat2 symlink symlinkat"
)
_REMOVING = "rmdir unlink unlinkat"
_ATTRIBUTES = (
    "chmod chown fchmod fchmodat fchmodat2 fchown fchownat fremovexattr fsetxattr futimesat "
    "lchown lremovexattr lsetxattr "
    "removexattr setxattr utime utimensat utimes"
)
_NEWER_ATTRIBUTES = "file_setattr removexattrat setxattrat"  # programs fall back to the ones above
_INTERPROCESS = (
    "mq_open mq_unlink msgctl msgget msgrcv msgsnd semctl semget semop semtimedop shmat shmctl "
    "shmget"
)

_NEW_NAMESPACE = 0x7E020000  # CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET}
_NEW_TIME = 0x80  # for unshare only: clone has the end signal there

_FORBIDDEN_CONTROLS = (
    0x5412,  # TIOCSTI: types into a terminal
    0x541C,  # TIOCLINUX: pastes into a console
    0x541D,  # TIOCCONS: takes the console's output
    # These create a name without a call that says so.
    0x50009401,  # BTRFS_IOC_SNAP_CREATE
    0x5000940E,  # BTRFS_IOC_SUBVOL_CREATE
    0x50009417,  # BTRFS_IOC_SNAP_CREATE_V2
    0x50009418,  # BTRFS_IOC_SUBVOL_CREATE_V2
    0x4020BC10,  # BCH_IOCTL_SUBVOLUME_CREATE
    0x40186F04,  # OCFS2_IOC_REFLINK
)

_LEASES = (
    1024,  # F_SETLEASE: whoever opens the file waits until the lease is given back
    1040,  # F_SETDELEG
)

_FILE_CONTROLS = (0x5800, 0x6600, 0x7600, 0x9400)
"""Second bytes of ioctls for file systems.

They set flags, encryption and clones, among others, also through a file that was opened to read.
"""

_PERSONALITIES = (
    0,
    0x0040000,  # ADDR_NO_RANDOMIZE: debuggers, sanitizers
    0xFFFFFFFF,  # only asks for the current one
)

_AF_UNIX = 1
_AF_INET = 2
_AF_INET6 = 10
_AF_NETLINK = 16
_STREAM = 1
_SEQPACKET = 5
_TYPE = 0xF

_O_PATH = 0o10000000
_O_CREAT = 0o100
_O_NAMELESS = 0o20000000  # __O_TMPFILE, which os.O_TMPFILE joins with O_DIRECTORY
_GAINED = 0o6000
"""Set-user-id and set-group-id, as in a mode."""


def assemble_filter(
    allow_unix_only: bool,
    mediate: bool,
    *,
    connect: bool = True,
    removals: bool = False,
    opens: bool = False,
    by_name: bool = True,
    machine: str | None = None,
) -> bytes:
    """Return the filter as the kernel reads it.

    Args:
        allow_unix_only: No family of sockets but AF_UNIX. False is right only inside a network
            namespace that has nothing but loopback: then IPv4, IPv6 and questions about routes are
            allowed too.
        mediate: Creating calls go to whoever holds the listener.
        connect: False where processes outside can be reached: sockets can then be paired or bound,
            but reach nothing by name, and queues and memory that the machine's processes share by
            number or name do not exist.
        removals: Removing calls go to the listener too.
        opens: So do all calls that open a file to read or write it, truncate it, or change its
            metadata.
        by_name: False where unix sockets come in pairs alone, so that no descriptor can be handed
            to another command.
        machine: The machine to assemble for; by default this one.
    """
    target = machine or system_calls.machine()

    def build_rules(names: str, answer: int, *when: ArgumentTest) -> list[Rule]:
        numbers = [system_calls.number(name, target) for name in names.split()]
        return [Rule(number, answer, *when) for number in numbers if number is not None]

    rules = build_rules(_ABSENT, refuse(ENOSYS)) + build_rules(_FORBIDDEN, refuse(EPERM))
    rules += _no_gained_rights(build_rules, mediate)
    rules += build_rules("clone", refuse(EPERM), _has_any_bit(0, _NEW_NAMESPACE))
    rules += build_rules("unshare", refuse(EPERM), _has_any_bit(0, _NEW_NAMESPACE | _NEW_TIME))
    rules += build_rules("ioctl", refuse(EPERM), ArgumentTest(1, *_FORBIDDEN_CONTROLS))
    rules += build_rules("fcntl", refuse(EPERM), ArgumentTest(1, *_LEASES))
    rules += build_rules(
        "personality", refuse(EPERM), ArgumentTest(0, *_PERSONALITIES, one_of=False)
    )
    # No process may change the limits of another: pid 1 needs its own.
    for high in (False, True):
        rules += build_rules(
            "prlimit64",
            refuse(EPERM),
            ArgumentTest(0, 0, one_of=False),
            ArgumentTest(2, 0, high=high, one_of=False),
        )
    rules += build_rules(
        "socket",
        refuse(EACCES if allow_unix_only else EAFNOSUPPORT),
        *_other_families(allow_unix_only),
    )
    if not allow_unix_only:
        rules += build_rules(
            "socket",
            refuse(EAFNOSUPPORT),
            ArgumentTest(0, _AF_NETLINK),
            ArgumentTest(2, 0, one_of=False),
        )
    rules += build_rules(
        "socketpair", refuse(EAFNOSUPPORT), ArgumentTest(0, _AF_UNIX, one_of=False)
    )
    if not by_name:
        rules += build_rules("socket", refuse(EACCES), ArgumentTest(0, _AF_UNIX))
    if not connect:
        # A datagram socket reaches any name without connecting, and `sendmsg` hides the name in
        # memory.
        rules += build_rules(
            "socket socketpair",
            refuse(EACCES),
            ArgumentTest(0, _AF_UNIX),
            ArgumentTest(1, _STREAM, _SEQPACKET, mask=_TYPE, one_of=False),
        )
        rules += build_rules("connect", refuse(EACCES))
        rules += build_rules(_INTERPROCESS, refuse(ENOSYS))
    if mediate and removals:
        rules += build_rules(_REMOVING, NOTIFY)
    if mediate and opens:
        # Before the narrower rules for the same calls: the first one that fits answers.
        rules += build_rules(f"truncate {_ATTRIBUTES}", NOTIFY)
        rules += build_rules(_NEWER_ATTRIBUTES, refuse(ENOSYS))
        rules += build_rules("ioctl", refuse(ENOTTY), ArgumentTest(1, *_FILE_CONTROLS, mask=0xFF00))
        rules += build_rules("open", NOTIFY, ArgumentTest(1, 0, mask=_O_PATH))
        rules += build_rules("openat", NOTIFY, ArgumentTest(2, 0, mask=_O_PATH))
    if mediate:
        rules += build_rules(_CREATING, NOTIFY)
        rules += build_rules("open", NOTIFY, ArgumentTest(1, _O_CREAT, mask=_O_CREAT | _O_PATH))
        rules += build_rules("openat", NOTIFY, ArgumentTest(2, _O_CREAT, mask=_O_CREAT | _O_PATH))
    return bpf.assemble(system_calls.AUDIT_ARCH[target], rules, system_calls.LAST)


def _no_gained_rights(named: Callable[..., list[Rule]], mediate: bool) -> list[Rule]:
    """Refuse to give files the set-user-id or set-group-id bit.

    Folders may have such bits, which mean something else there, so whoever holds the listener looks
    at what it is.
    """
    rules: list[Rule] = []
    for names, mode in (("chmod fchmod", 1), ("fchmodat fchmodat2", 2)):
        rules += named(names, NOTIFY if mediate else refuse(EPERM), _has_any_bit(mode, _GAINED))
    for names, mode in (("creat mknod", 1), ("mknodat", 2)):
        rules += named(names, refuse(EPERM), _has_any_bit(mode, _GAINED))
    for names, flags in (("open", 1), ("openat", 2)):
        for making in (_O_CREAT, _O_NAMELESS):
            rules += named(
                names,
                refuse(EPERM),
                ArgumentTest(flags, making, mask=making),
                _has_any_bit(flags + 1, _GAINED),
            )
    return rules


def _has_any_bit(argument: int, bits: int) -> ArgumentTest:
    return ArgumentTest(argument, 0, mask=bits, one_of=False)


def _other_families(allow_unix_only: bool) -> tuple[ArgumentTest, ...]:
    allowed = (_AF_UNIX,) if allow_unix_only else (_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK)
    return (ArgumentTest(0, *allowed, one_of=False),)


_SET_MODE_FILTER = 1
_NEW_LISTENER = 1 << 3
_WAIT_KILLABLE = 1 << 5
_PR_SET_NO_NEW_PRIVS = 38


class _Program(ctypes.Structure):
    """`struct sock_fprog`."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


_assembled: dict[tuple[bool, ...], bytes] = {}


def prepare_filter(
    allow_unix_only: bool,
    mediate: bool,
    *,
    connect: bool = True,
    removals: bool = False,
    opens: bool = False,
    by_name: bool = True,
) -> bytes:
    """Assemble the program for this machine and keep it.

    A fork server prepares it once for everything that it forks.
    """
    key = (allow_unix_only, mediate, connect, removals, opens, by_name)
    if key not in _assembled:
        _assembled[key] = assemble_filter(
            allow_unix_only,
            mediate,
            connect=connect,
            removals=removals,
            opens=opens,
            by_name=by_name,
        )
    return _assembled[key]


def install_filter(
    allow_unix_only: bool,
    mediate: bool,
    *,
    connect: bool = True,
    removals: bool = False,
    opens: bool = False,
    by_name: bool = True,
) -> int | None:
    """Install the filter on this process and everything that it will start. It cannot be removed.

    With `mediate` the result is the listener's descriptor, closed on exec: whoever reads it must be
    another process, and from here on this one may not create a name before that process listens.

    Raises OSError if the kernel refuses.
    """
    bytecode = prepare_filter(
        allow_unix_only, mediate, connect=connect, removals=removals, opens=opens, by_name=by_name
    )
    if library().prctl(
        _PR_SET_NO_NEW_PRIVS,
        ctypes.c_ulong(1),
        ctypes.c_ulong(0),
        ctypes.c_ulong(0),
        ctypes.c_ulong(0),
    ):
        raise OSError(ctypes.get_errno(), "no_new_privs could not be set")
    filter_program = _Program(len(bytecode) // 8, bytecode)
    if not mediate:
        _seccomp(0, filter_program)
        return None
    try:
        # With this, a signal that does not kill the caller waits until its call is done, and the
        # call is done once.
        return _seccomp(_NEW_LISTENER | _WAIT_KILLABLE, filter_program)
    except OSError as error:
        if error.errno != EINVAL:
            raise
        return _seccomp(_NEW_LISTENER, filter_program)  # before Linux 5.19


def _seccomp(flags: int, filter_program: _Program) -> int:
    number = system_calls.number("seccomp")
    answer = library().syscall(
        ctypes.c_long(number or -1),
        ctypes.c_long(_SET_MODE_FILTER),
        ctypes.c_long(flags),
        ctypes.byref(filter_program),
    )
    if answer < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"the system call filter was refused: {os.strerror(error)}")
    return answer
