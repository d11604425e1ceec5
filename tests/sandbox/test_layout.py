"""The view as steps: a pure transform, so what it leaves out can be proved for any policy."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from hypothesis import given
from hypothesis import strategies as st

from ferrule.permissions.provenance import (
    NOTHING_WRITABLE,
    Origin,
    TrustedPath,
    trust_path,
)
from ferrule.sandbox.inside.kernel import mounts
from ferrule.sandbox.policy import ResourceLimits, SandboxPolicy
from ferrule.sandbox.view.layout import (
    HELD_FOLDER,
    SYSTEM,
    MachineFolders,
    SessionPaths,
    Step,
    command_steps,
    final_steps,
    landlock_rules,
    process_limits,
    session_steps,
)
from ferrule.sandbox.view.masks import Mask, MaskKind
from ferrule.sandbox.view.openings import OpenedFolder, Openings
from ferrule.sandbox.view.toolchains import ReadOnlyBind


def trusted(path: str | Path) -> TrustedPath:
    return trust_path(path, Origin.PERSON, NOTHING_WRITABLE, reason="a test's")


def found(policy: SandboxPolicy) -> MachineFolders:
    """What there is on a machine where all that a policy opens exists."""
    readable = tuple(OpenedFolder(trusted(path), "read") for path in policy.readable)
    writable = tuple(OpenedFolder(trusted(path), "write") for path in policy.writable)
    return MachineFolders(
        session=SessionPaths("/tmp/ferrule-1"),
        home="/home/me",
        openings=Openings(trusted(policy.root), (*readable, *writable), NOTHING_WRITABLE),
        system=(trusted("/etc"), trusted("/usr")),
        system_links={"bin": "usr/bin"},
        processors=trusted("/sys/devices/system/cpu"),
        closed={
            "/etc/shadow": False,
            "/etc/ssl/private": True,
            "/home/me/.cargo/bin/credentials": False,
        },
        proc={"keys": False, "bus": True},
        devices=frozenset({"null", "tty", "sda", "kvm"}),
        toolchains=(
            ReadOnlyBind(
                trusted("/home/me/.cargo/bin"), hidden=("/home/me/.cargo/bin/credentials",)
            ),
        ),
    )


POLICY = SandboxPolicy(Path("/home/me/work"))

names = st.text("abcdefg", min_size=1, max_size=4)
paths = st.lists(names, min_size=1, max_size=4).map(lambda parts: "/" + "/".join(parts))
policies = st.builds(
    SandboxPolicy,
    root=paths.map(Path),
    readable=st.lists(paths, max_size=3).map(tuple),
    writable=st.lists(paths, max_size=3).map(tuple),
    preview=st.booleans(),
)


def make_steps(policy: SandboxPolicy) -> tuple[Step, ...]:
    return session_steps(policy, found(policy))


def at(steps: tuple[Step, ...], place: str) -> list[Step]:
    return [step for step in steps if step[1] == place]


@given(policies)
def test_every_step_is_one_that_can_be_carried_out(policy: SandboxPolicy) -> None:
    for action, place, _ in (
        *make_steps(policy),
        *command_steps(found(policy)),
        *final_steps((), {}, policy.root),
    ):
        assert action in {*mounts.ACTIONS, *mounts.ATTRIBUTES}
        assert place.startswith("/")
        assert ".." not in PurePosixPath(place).parts


@given(policies)
def test_nothing_is_writable_but_what_the_policy_opens_and_the_session_owns(
    policy: SandboxPolicy,
) -> None:
    sources = {source for action, _, source in make_steps(policy) if action == "write"}
    ours = {
        found(POLICY).session.tmp,
        found(POLICY).session.home,
        f"{found(POLICY).session.held}/previews",
    }
    opened = {str(policy.root), *(() if policy.preview else policy.writable)}
    assert sources <= ours | opened


@given(policies)
def test_what_is_opened_comes_after_what_is_above_it(policy: SandboxPolicy) -> None:
    """Otherwise the folder above would hide it."""
    places = [place for action, place, _ in make_steps(policy) if action in ("read", "write")]
    outer = [
        place
        for place in places
        if place not in ("/tmp", HELD_FOLDER) and not place.startswith(HELD_FOLDER)
    ]
    for index, place in enumerate(outer):
        later = outer[index + 1 :]
        assert not any(
            PurePosixPath(place).is_relative_to(other) and place != other for other in later
        )


@given(policies)
def test_the_root_is_closed_last(policy: SandboxPolicy) -> None:
    assert make_steps(policy)[-1] == ("seal", "/", "")


def test_the_home_is_the_sessions_own_with_toolchains_read_only() -> None:
    steps = make_steps(POLICY)
    assert at(steps, "/home/me") == [("write", "/home/me", "/tmp/ferrule-1/home")]
    assert at(steps, "/home/me/.cargo/bin") == [
        ("read", "/home/me/.cargo/bin", "/home/me/.cargo/bin")
    ]
    assert at(steps, "/home/me/.cargo/bin/credentials") == [
        ("cover", "/home/me/.cargo/bin/credentials", "/tmp/ferrule-1/held/closed")
    ]


def test_a_workspace_that_is_the_home_is_not_replaced_by_an_empty_one() -> None:
    steps = make_steps(SandboxPolicy(Path("/home/me")))
    assert at(steps, "/home/me") == [("write", "/home/me", "/home/me")]


def test_a_file_is_covered_by_a_file_and_a_folder_by_a_folder() -> None:
    covered = {place: source for action, place, source in make_steps(POLICY) if action == "cover"}
    assert covered["/etc/shadow"] == "/tmp/ferrule-1/held/closed"
    assert covered["/etc/ssl/private"] == "/tmp/ferrule-1/held/empty"


def test_no_disk_and_no_other_device_is_there() -> None:
    assert [place for action, place, _ in make_steps(POLICY) if action == "device"] == [
        "/dev/null",
        "/dev/tty",
    ]


def test_a_workspace_that_holds_the_sessions_folder_does_not_show_it() -> None:
    steps = make_steps(SandboxPolicy(Path("/tmp")))
    assert at(steps, "/tmp/ferrule-1") == [("cover", "/tmp/ferrule-1", "/tmp/ferrule-1/held/empty")]


def test_only_system_folders_are_taken_over_from_the_root() -> None:
    assert not {
        "home",
        "root",
        "var",
        "run",
        "mnt",
        "media",
        "srv",
        "boot",
        "proc",
        "sys",
        "dev",
        "tmp",
    } & set(SYSTEM)


def test_masks_become_steps_in_their_order_and_then_our_own_folder_goes() -> None:
    masks = (
        Mask("/w/.env", MaskKind.UNREADABLE),
        Mask("/w/.ferrule", MaskKind.EMPTY_FOLDER),
        Mask("/w/.git/config", MaskKind.TEXT, "[core]"),
        Mask("/w/.vscode", MaskKind.READ_ONLY),
    )
    assert final_steps(masks, {"/w/.git/config": "abc"}, Path("/w"), "p1") == [
        ("overlay", "/w", "/.held/previews/p1"),
        ("cover", "/w/.env", "/.held/closed"),
        ("cover", "/w/.ferrule", "/.held/empty"),
        ("cover", "/w/.git/config", "/.held/covers/abc"),
        ("hold", "/w/.vscode", ""),
        ("drop", "/.held", ""),
    ]


@given(policies)
def test_the_second_wall_lets_write_only_where_the_view_does(policy: SandboxPolicy) -> None:
    walled = {path for path, words in landlock_rules(policy, found(policy)) if "create" in words}
    written = {place for action, place, _ in make_steps(policy) if action == "write"}
    assert walled <= written | {"/dev/shm", "/var/tmp", found(POLICY).home, *policy.writable}
    assert written - walled <= {f"{HELD_FOLDER}/previews"}


def test_what_a_control_group_bounds_is_not_bounded_for_each_process_as_well() -> None:
    policy = SandboxPolicy(Path("/w"), limits=ResourceLimits(memory=1, processes=2, file_size=3))
    assert process_limits(policy, frozenset()) == {"FSIZE": 3, "DATA": 1, "NPROC": 2}
    assert process_limits(policy, frozenset({"memory", "processes"})) == {
        "FSIZE": 3,
        "DATA": None,
        "NPROC": None,
    }
