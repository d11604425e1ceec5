"""The filter: judged by running its program here for every call on both machines, and by the kernel
on this one.
"""

from __future__ import annotations

import itertools
import struct
import sys
from errno import EACCES, EAFNOSUPPORT, ENOSYS, EPERM
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mediated_runs import python

from ferrule.sandbox.inside.kernel import bpf, seccomp, system_calls

MACHINES = ("x86_64", "aarch64")
SETTINGS = list(itertools.product((True, False), repeat=3))


def judge(program: bytes, architecture: int, number: int, arguments: tuple[int, ...] = ()) -> int:
    """What the kernel would answer: a classic BPF machine for the few operations that seccomp
    programs use here.
    """
    words = (*arguments, *(0,) * (6 - len(arguments)))
    data = struct.pack(
        "<IIQ6Q", number & 0xFFFFFFFF, architecture, 0, *(word & (1 << 64) - 1 for word in words)
    )
    instructions = list(struct.iter_unpack("<HBBI", program))
    accumulator, at = 0, 0
    while True:
        operation, yes, no, constant = instructions[at]
        at += 1
        match operation:
            case 0x20:
                accumulator = struct.unpack_from("<I", data, constant)[0]
            case 0x54:
                accumulator &= constant
            case 0x15:
                at += yes if accumulator == constant else no
            case 0x35:
                at += yes if accumulator >= constant else no
            case 0x06:
                return constant
            case _:
                raise AssertionError(f"not an operation of these programs: {operation:#x}")


class Filter:
    def __init__(
        self, machine: str, unix_only: bool = False, mediate: bool = True, connect: bool = True
    ) -> None:
        self.machine = machine
        self.program = seccomp.assemble_filter(unix_only, mediate, connect=connect, machine=machine)

    def __call__(self, name: str | int, *arguments: int) -> int | str:
        number = system_calls.number(name, self.machine) if isinstance(name, str) else name
        assert number is not None
        answer = judge(self.program, system_calls.AUDIT_ARCH[self.machine], number, arguments)
        if answer == bpf.ALLOW:
            return "allow"
        if answer == bpf.NOTIFY:
            return "ask"
        return "kill" if answer == bpf.KILL else answer & 0xFFFF


@pytest.fixture(params=MACHINES)
def machine(request: pytest.FixtureRequest) -> str:
    return request.param


CREATING = {"mkdirat", "mknodat", "renameat", "renameat2", "linkat", "symlinkat", "bind"}
OLDER = {"creat", "mkdir", "mknod", "rename", "link", "symlink"}


@pytest.mark.proves("sandbox.filter.creating-calls-are-asked")
def test_every_call_that_creates_a_name_is_asked_about(machine: str) -> None:
    held = Filter(machine)
    names = CREATING | (OLDER if machine == "x86_64" else set())
    assert {held(name) for name in names} == {"ask"}
    assert held("openat", 0, 0, 0o101) == "ask"
    assert held("openat", 0, 0, 0o1) == "allow"
    # A handle creates nothing, whatever else it says.
    assert held("openat", 0, 0, 0o10000100) == "allow"
    if machine == "x86_64":
        assert (held("open", 0, 0o1102), held("open", 0, 0o2)) == ("ask", "allow")


@pytest.mark.proves("sandbox.filter.creating-calls-are-asked")
def test_without_a_mediator_nothing_is_asked(machine: str) -> None:
    held = Filter(machine, mediate=False)
    assert "ask" not in {held(number, *([0o101] * 6)) for number in range(system_calls.LAST + 2)}


def test_calls_of_another_machine_end_the_process(machine: str) -> None:
    held = Filter(machine)
    for other in (0x40000003, 0xC000003E, 0xC00000B7, 0x40000028, 0):
        if other != system_calls.AUDIT_ARCH[machine]:
            assert judge(held.program, other, 0) == bpf.KILL
    # The x32 table: the same machine, other numbers.
    assert held(0x40000000 | 2) == held(0x40000000) == "kill"


@given(number=st.one_of(st.integers(system_calls.LAST + 1, 0x3FFFFFFF), st.just(0xFFFFFFFF)))
def test_a_call_that_came_later_does_not_exist(number: int) -> None:
    for machine in MACHINES:
        assert Filter(machine)(number) == ENOSYS


FALL_BACK = (
    "clone3 openat2 io_uring_setup io_uring_enter io_uring_register open_tree move_mount fsopen "
    "fsmount mount_setattr"
)
NEVER = (
    "mount umount2 pivot_root chroot setns ptrace process_vm_readv process_vm_writev "
    "pidfd_getfd kcmp bpf userfaultfd "
    "perf_event_open keyctl add_key request_key kexec_load kexec_file_load init_module "
    "finit_module delete_module "
    "swapon swapoff reboot settimeofday clock_settime quotactl acct open_by_handle_at "
    "fanotify_init sethostname syslog"
)


@pytest.mark.parametrize(("unix_only", "mediate", "connect"), SETTINGS)
def test_what_reaches_out_is_closed_in_every_setting(
    machine: str, unix_only: bool, mediate: bool, connect: bool
) -> None:
    held = Filter(machine, unix_only, mediate, connect)
    assert {held(name, 1, 1, 1, 1, 1, 1) for name in FALL_BACK.split()} == {ENOSYS}
    assert {held(name, 1, 1, 1, 1, 1, 1) for name in NEVER.split()} == {EPERM}


NAMESPACES = (0x20000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000)


def test_no_namespace_is_made_while_threads_and_processes_are(machine: str) -> None:
    held = Filter(machine)
    for bit in NAMESPACES:
        assert (
            held("clone", bit | 17) == held("unshare", bit) == held("unshare", bit | 0x200) == EPERM
        )
        assert held("clone", bit | (0xFFFF << 32)) == EPERM
    assert held("unshare", 0x80) == EPERM  # time
    thread, fork, vfork = 0x3D0F00, 0x01200011, 0x4111
    assert {held("clone", flags) for flags in (thread, fork, vfork, 17)} == {"allow"}
    assert held("unshare", 0x200) == held("unshare", 0x400) == "allow"


@pytest.mark.proves("sandbox.filter.sockets")
def test_only_local_families_of_sockets_can_be_had(machine: str) -> None:
    inside, alone = Filter(machine, unix_only=False), Filter(machine, unix_only=True)
    assert [inside("socket", family, 1) for family in (1, 2, 10, 16)] == ["allow"] * 4
    assert [alone("socket", family, 1) for family in (1, 2, 10, 16)] == [
        "allow",
        EACCES,
        EACCES,
        EACCES,
    ]
    # Other questions of netlink than about routes; packets, the hypervisor, the kernel's ciphers,
    # Bluetooth.
    assert inside("socket", 16, 3, 15) == inside("socket", 16, 3, 9) == EAFNOSUPPORT
    assert {
        inside("socket", family, 1) for family in (*range(3, 10), *range(11, 16), *range(17, 50))
    } == {EAFNOSUPPORT}
    assert [inside("socketpair", family, 1) for family in (1, 2, 30)] == [
        "allow",
        EAFNOSUPPORT,
        EAFNOSUPPORT,
    ]


def test_without_connections_a_socket_reaches_nothing_by_name(machine: str) -> None:
    held = Filter(machine, unix_only=True, mediate=False, connect=False)
    close_on_exec = 0o2000000
    assert held("connect", 3, 1, 16) == EACCES
    assert (
        held("socket", 1, 2)
        == held("socket", 1, 2 | close_on_exec)
        == held("socketpair", 1, 2)
        == EACCES
    )
    assert (
        held("socketpair", 1, 1 | close_on_exec)
        == held("socket", 1, 1)
        == held("socketpair", 1, 5)
        == "allow"
    )


def test_nothing_is_typed_into_a_terminal_and_no_volume_is_made_by_control(machine: str) -> None:
    held = Filter(machine)
    for control in (0x5412, 0x541C, 0x5000940E, 0x50009418):
        assert held("ioctl", 0, control) == held("ioctl", 0, control | 1 << 32) == EPERM
    assert [held("ioctl", 0, control) for control in (0x5401, 0x5413, 0x5421, 0x40049409)] == [
        "allow"
    ] * 4


def test_no_lease_on_a_file_keeps_others_waiting(machine: str) -> None:
    held = Filter(machine)
    for control in (1024, 1040):  # F_SETLEASE, F_SETDELEG
        assert held("fcntl", 3, control) == held("fcntl", 3, control | 1 << 32) == EPERM
    assert [held("fcntl", 3, control) for control in (0, 1, 2, 3, 4, 6, 1025, 1030, 1033)] == [
        "allow"
    ] * 9


def test_personality_may_be_asked_and_addresses_fixed(machine: str) -> None:
    held = Filter(machine)
    assert [held("personality", one) for one in (0, 0x40000, 0xFFFFFFFF)] == ["allow"] * 3
    assert held("personality", 0x400000) == held("personality", 8) == EPERM


def test_limits_of_other_processes_may_be_read_and_not_set(machine: str) -> None:
    held = Filter(machine)
    assert (
        held("prlimit64", 0, 7, 0x7FFF_0000_1000, 0) == held("prlimit64", 1, 7, 0, 4096) == "allow"
    )
    assert held("prlimit64", 1, 7, 0x7FFF_0000_1000, 0) == EPERM
    # The address in either half of the word.
    assert held("prlimit64", 1, 7, 0x1 << 32, 0) == held("prlimit64", 1, 7, 1, 0) == EPERM


def test_the_numbers_are_those_of_this_machine() -> None:
    header = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")
    if not header.exists():
        pytest.skip("no kernel headers here")
    pairs = (
        line.split() for line in header.read_text().splitlines() if line.startswith("#define __NR_")
    )
    known = {words[1].removeprefix("__NR_"): int(words[2]) for words in pairs}
    ours = {name: number for number, name in system_calls.names_by_number("x86_64").items()}
    # Headers may be older than the table.
    assert {name: known.get(name, number) for name, number in ours.items()} == ours


PROBE = """
import ctypes, os, socket
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    result = libc.syscall(*(ctypes.c_long(a) if isinstance(a, int) else a for a in (number, *arguments)))
    return 0 if result >= 0 else ctypes.get_errno()
import sys
sys.path.insert(0, sys.argv[1])
from inside.kernel import system_calls as calls
for name, *arguments in (
    ("unshare", 0x10000000), ("mount", b"none", b"/tmp", b"tmpfs", 0, 0), ("ptrace", 0, 0, 0, 0), ("setns", 0, 0),
    ("bpf", 0, 0, 0), ("keyctl", 0, -1, 0), ("chroot", b"/"), ("io_uring_setup", 1, 0), ("openat2", -100, b"/", 0, 0),
    ("clone3", 0, 0), ("personality", 0x400000), ("personality", 0xFFFFFFFF), ("process_vm_readv", 1, 0, 0, 0, 0, 0),
):
    print(name, call(calls.number(name), *arguments))
for family in (socket.AF_UNIX, socket.AF_INET, socket.AF_NETLINK, 40, 17):
    try:
        socket.socket(family, socket.SOCK_STREAM if family != 16 else socket.SOCK_RAW).close()
        print("socket", int(family), 0)
    except OSError as error:
        print("socket", int(family), error.errno)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="seccomp is Linux")
def test_the_kernel_answers_as_the_program_says(tmp_path: Path) -> None:
    root = tmp_path / "workspace"
    root.mkdir()
    folder = Path(seccomp.__file__).parents[2]
    outcome = python(root, f"import sys; sys.argv = ['', {str(folder)!r}]\n{PROBE}")
    assert outcome.output.splitlines() == [
        *(
            f"{name} {EPERM}"
            for name in ("unshare", "mount", "ptrace", "setns", "bpf", "keyctl", "chroot")
        ),
        *(f"{name} {ENOSYS}" for name in ("io_uring_setup", "openat2", "clone3")),
        f"personality {EPERM}",
        "personality 0",
        f"process_vm_readv {EPERM}",
        "socket 1 0",
        "socket 2 0",
        "socket 16 0",
        f"socket 40 {EAFNOSUPPORT}",
        f"socket 17 {EAFNOSUPPORT}",
    ]
