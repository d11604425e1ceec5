"""Which sandbox backend is chosen, and what each says of itself: made-up machines."""

from __future__ import annotations

import asyncio
import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.core.identity import Identity
from ferrule.permissions import provenance
from ferrule.permissions.approvals import (
    AllowlistApprover,
    ApprovalAnswer,
    ApprovalRequest,
    DenyingApprover,
)
from ferrule.permissions.provenance import Origin, TrustedProgram
from ferrule.sandbox.backends.container_engine import ContainerEngine
from ferrule.sandbox.backends.probes import AttackResult, Probes
from ferrule.sandbox.backends.reduced_protection import (
    ReducedProtectionApproval,
    SandboxMode,
    accept_or_raise,
)
from ferrule.sandbox.backends.selection import (
    MissingProtections,
    available_backends,
    choose_backend,
)
from ferrule.sandbox.policy import (
    ALL_PROTECTIONS,
    DEFAULT_REQUIRED,
    AppliedProtections,
    Enforcement,
    Protection,
    ResourceLimits,
    SandboxPolicy,
)


def program(path: str) -> TrustedProgram:
    """A program that was found, whether this machine has it or not."""
    return TrustedProgram._make(path, Origin.MACHINE, "a test's")  # pyright: ignore[reportPrivateUsage]


FULL = Probes(
    user_namespaces=True,
    mount=True,
    network=True,
    pid=True,
    overlay=True,
    landlock_abi=7,
    no_new_privileges=True,
    seccomp_notify=True,
    callers=True,
    cgroup="v2",
)
POLICY = SandboxPolicy(Path("/work"))
EVERY = {"namespaces", "bubblewrap", "container", "landlock", "seatbelt", "none"}
ME = Identity("local", "me", "s1", "r1")

CONTAINERS = ContainerEngine(
    program("/usr/bin/podman"),
    "sha256:0",
    user="--userns=keep-id",
    limits=True,
    notify=True,
    same_files=True,
)
NO_NAMESPACES = replace(
    FULL, user_namespaces=False, mount=False, network=False, pid=False, overlay=False
)
NOTHING = replace(NO_NAMESPACES, landlock_abi=0)


@pytest.fixture(autouse=True)
def ferrule_lies_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machines of these tests have a `/work`, and so may the one that runs them."""
    monkeypatch.setattr(provenance, "_list_own_code", lambda: iter(()))
    monkeypatch.setattr(provenance, "_list_packages", tuple)


def holds(
    probes: Probes, backend: str, policy: SandboxPolicy = POLICY
) -> dict[Protection, Enforcement]:
    return dict(
        next(
            one for one in available_backends(policy, probes) if one.name == backend
        ).protections.enforcement
    )


@pytest.mark.proves("sandbox.backend.order")
def test_the_best_backend_comes_first_and_none_is_always_last() -> None:
    assert [backend.name for backend in available_backends(POLICY, replace(FULL, bwrap=program("/usr/bin/bwrap")))] == [
        "namespaces", "bubblewrap", "landlock", "none",
    ]  # fmt: skip
    assert [
        backend.name
        for backend in available_backends(POLICY, Probes(platform="darwin", seatbelt=True))
    ] == [
        "seatbelt",
        "none",
    ]
    assert [backend.name for backend in available_backends(POLICY, Probes(platform="win32"))] == [
        "none"
    ]
    assert choose_backend(POLICY, FULL).name == "namespaces"
    assert [
        backend.name
        for backend in available_backends(POLICY, replace(NO_NAMESPACES, container=CONTAINERS))
    ] == ["container", "landlock", "none"]


@pytest.mark.proves("sandbox.backend.container", "sandbox.backend.order")
def test_containers_confine_commands_where_the_system_itself_cannot() -> None:
    probes = replace(NOTHING, container=CONTAINERS)
    assert choose_backend(POLICY, probes).name == "container"
    assert set(holds(probes, "container").values()) == {Enforcement.YES}


@pytest.mark.proves("sandbox.backend.container")
def test_an_engine_claims_no_more_than_its_trial_showed() -> None:
    lesser = replace(CONTAINERS, limits=False, notify=False, why="no seccomp")
    held = holds(replace(NOTHING, container=lesser), "container")
    not_held = {aspect for aspect, level in held.items() if level is not Enforcement.YES}
    assert not_held == {Protection.MEMORY, Protection.PROCESSES, Protection.NEW_NAMES}
    assert held[Protection.NEW_NAMES] is Enforcement.NO


@pytest.mark.proves("sandbox.backend.container")
def test_on_a_mac_containers_claim_only_what_attacks_there_have_shown() -> None:
    probes = Probes(platform="darwin", seatbelt=True, container=CONTAINERS)
    assert Enforcement.YES not in holds(probes, "container").values()
    with pytest.raises(MissingProtections) as raised:
        choose_backend(POLICY, probes)
    assert raised.value.backend.name == "container"
    assert "ferrule doctor --attack" in raised.value.hint
    held = frozenset(map(str, DEFAULT_REQUIRED))
    shown = replace(probes, attacks={"container": AttackResult(held)})
    assert choose_backend(POLICY, shown).name == "container"


@pytest.mark.proves("sandbox.backend.order")
def test_root_without_user_namespaces_has_namespaces_all_the_same() -> None:
    assert (
        choose_backend(POLICY, replace(FULL, user_namespaces=False, as_root=True, root=True)).name
        == "namespaces"
    )


@pytest.mark.proves("sandbox.backend.truth")
def test_with_namespaces_all_aspects_hold() -> None:
    assert set(holds(FULL, "namespaces").values()) == {Enforcement.YES}


@pytest.mark.proves("sandbox.backend.truth")
@pytest.mark.parametrize(
    ("probes", "aspect", "how_far"),
    [
        (replace(FULL, seccomp_notify=False), Protection.NEW_NAMES, Enforcement.NO),
        (replace(FULL, cgroup=""), Protection.MEMORY, Enforcement.PARTLY),
        (replace(FULL, cgroup=""), Protection.PROCESSES, Enforcement.YES),
        (replace(FULL, cgroup="", root=True), Protection.PROCESSES, Enforcement.PARTLY),
        (
            replace(FULL, cgroup="", as_root=True, user_namespaces=False),
            Protection.PROCESSES,
            Enforcement.PARTLY,
        ),
    ],
)
def test_what_the_machine_lacks_is_said_of_namespaces(
    probes: Probes, aspect: Protection, how_far: Enforcement
) -> None:
    assert holds(probes, "namespaces")[aspect] is how_far


@pytest.mark.proves("sandbox.backend.truth")
def test_a_bound_that_the_policy_does_not_set_is_not_claimed() -> None:
    unbounded = replace(POLICY, limits=ResourceLimits(memory=None, processes=None))
    found = holds(FULL, "namespaces", unbounded)
    assert (found[Protection.MEMORY], found[Protection.PROCESSES]) == (
        Enforcement.NO,
        Enforcement.PARTLY,
    )


@pytest.mark.proves("sandbox.backend.truth")
@pytest.mark.parametrize(
    ("probes", "limit"),
    [
        (NO_NAMESPACES, "cgroup v2"),
        (replace(NO_NAMESPACES, cgroup="", root=True), "no limit that holds for root"),
        (
            replace(NO_NAMESPACES, cgroup=""),
            "RLIMIT_NPROC counts all processes of the user",
        ),
    ],
)
def test_landlock_says_what_limits_processes(probes: Probes, limit: str) -> None:
    said = choose_backend(replace(POLICY, require=frozenset()), probes).protections.describe()
    assert f"processes partly ({limit}; leftover processes are found and ended)" in said


BWRAP = replace(
    NO_NAMESPACES, bwrap=program("/usr/bin/bwrap"), bwrap_notify=True, python="/usr/bin/python3.11"
)


def test_where_only_bubblewrap_may_make_namespaces_all_that_is_required_by_default_is_held() -> (
    None
):
    backend = choose_backend(POLICY, BWRAP)
    assert backend.name == "bubblewrap" and backend.protections.find_missing(DEFAULT_REQUIRED) == ()
    assert set(backend.protections.enforcement.values()) == {Enforcement.YES}
    without = replace(BWRAP, cgroup="")
    assert choose_backend(POLICY, without).protections.find_missing(ALL_PROTECTIONS) == (
        Protection.MEMORY,
        Protection.PROCESSES,
    )


@pytest.mark.proves("sandbox.backend.truth")
@pytest.mark.parametrize(
    ("probes", "why"),
    [
        (
            replace(BWRAP, bwrap_notify=False, why={"bwrap_notify": "seccomp(listener): EPERM"}),
            "EPERM",
        ),
        (replace(BWRAP, python="/work/.venv/bin/python3.11"), "/work/.venv/bin/python3.11"),
    ],
)
def test_bubblewrap_does_not_claim_new_names_where_nothing_trustworthy_can_mediate(
    probes: Probes, why: str
) -> None:
    with pytest.raises(MissingProtections) as raised:
        choose_backend(POLICY, replace(probes, callers=False))
    assert raised.value.backend.name == "bubblewrap" and why in raised.value.detail
    assert [one.protection for one in raised.value.missing] == [Protection.NEW_NAMES]
    assert (
        choose_backend(
            replace(POLICY, require=DEFAULT_REQUIRED - {Protection.NEW_NAMES}), probes
        ).name
        == "bubblewrap"
    )


@pytest.mark.proves("sandbox.own-code")
def test_commands_that_could_replace_ferrule_itself_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    probes = replace(FULL, seccomp_notify=False)
    policy = replace(POLICY, require=frozenset())
    assert choose_backend(policy, probes).name == "namespaces"
    monkeypatch.setattr(provenance, "_list_own_code", lambda: iter(["/work/.venv"]))
    with pytest.raises(MissingProtections, match=r"runs from `/work/\.venv`") as raised:
        choose_backend(policy, probes)
    assert "uv tool install ferrule" in raised.value.hint
    assert choose_backend(policy, FULL).name == "namespaces"


@pytest.mark.proves("sandbox.backend.truth")
def test_a_bubblewrap_that_commands_could_replace_is_not_used() -> None:
    probes = replace(NO_NAMESPACES, bwrap=program("/work/.venv/lib/bwrap"))
    assert "bubblewrap" not in [backend.name for backend in available_backends(POLICY, probes)]


@pytest.mark.proves("sandbox.backend.truth")
@pytest.mark.parametrize(
    ("abi", "scoped"),
    [(1, False), (2, False), (3, False), (4, False), (5, False), (6, True), (7, True)],
)
def test_an_older_landlock_claims_less(abi: int, scoped: bool) -> None:
    backend = next(
        r
        for r in available_backends(POLICY, replace(NO_NAMESPACES, landlock_abi=abi))
        if r.name == "landlock"
    )
    found, how = backend.protections.enforcement, backend.protections.mechanisms
    assert ("can be signalled" in how[Protection.SIGNALS]) is not scoped
    assert {found[a] for a in (Protection.NAMES, Protection.SIGNALS, Protection.FILE_READS)} == {
        Enforcement.PARTLY
    }
    assert {
        found[a] for a in (Protection.NEW_NAMES, Protection.FILE_WRITES, Protection.NETWORK)
    } == {Enforcement.YES}


@pytest.mark.proves("sandbox.backend.truth")
@pytest.mark.parametrize("lacking", ["seccomp_notify", "callers", "no_new_privileges"])
def test_landlock_is_no_backend_where_nothing_can_mediate(lacking: str) -> None:
    probes = replace(NO_NAMESPACES, **{lacking: False})
    assert [backend.name for backend in available_backends(POLICY, probes)] == ["none"]


@pytest.mark.proves("sandbox.backend.landlock")
def test_landlock_alone_holds_less_than_is_required_by_default_and_says_what() -> None:
    with pytest.raises(MissingProtections) as raised:
        choose_backend(POLICY, NO_NAMESPACES)
    gap = raised.value
    assert gap.backend.name == "landlock"
    assert [one.protection for one in gap.missing] == [
        Protection.FILE_READS,
        Protection.NAMES,
        Protection.SIGNALS,
    ]
    assert "install bubblewrap" in gap.hint


@pytest.mark.proves("sandbox.backend.truth")
def test_landlock_alone_is_enough_only_where_little_is_required() -> None:
    little = replace(POLICY, require=frozenset({Protection.NETWORK, Protection.EXEC}))
    assert choose_backend(little, NO_NAMESPACES, startable=EVERY).name == "landlock"
    with pytest.raises(MissingProtections):
        choose_backend(
            little, replace(NO_NAMESPACES, seccomp_notify=False, landlock_abi=4), startable=EVERY
        )


@pytest.mark.proves("sandbox.backend.untried")
@pytest.mark.parametrize("platform", ["darwin", "win32", "freebsd14"])
def test_no_aspect_is_claimed_where_nobody_tried_it(platform: str) -> None:
    probes = Probes(platform=platform, seatbelt=platform == "darwin")
    assert all(
        Enforcement.YES not in backend.protections.enforcement.values()
        for backend in available_backends(POLICY, probes)
    )
    with pytest.raises(MissingProtections) as raised:
        choose_backend(POLICY, probes, startable=EVERY)
    assert {one.protection for one in raised.value.missing} == DEFAULT_REQUIRED


@pytest.mark.proves("sandbox.backend.untried")
def test_a_mac_without_seatbelt_has_no_backend() -> None:
    backends = available_backends(POLICY, Probes(platform="darwin", seatbelt=False))
    assert [backend.name for backend in backends] == ["none"]


def test_what_confined_a_command_is_recorded_by_protection() -> None:
    enforcement = dict.fromkeys(Protection, Enforcement.NO) | {Protection.NETWORK: Enforcement.YES}
    record = AppliedProtections("landlock", enforcement).as_record()
    assert set(record) == {"kind", "enforced", "not_enforced"}
    assert (record["kind"], record["enforced"]) == ("landlock", ["network"])
    assert "network" not in str(record["not_enforced"])


@pytest.mark.proves("sandbox.backend.untried")
def test_what_a_mac_does_about_processes_and_memory_is_said() -> None:
    probes = Probes(platform="darwin", seatbelt=True)
    (seatbelt,) = [one for one in available_backends(POLICY, probes) if one.name == "seatbelt"]
    reasons = seatbelt.protections.mechanisms
    assert "leftover processes are found and ended" in reasons[Protection.PROCESSES]
    assert "does not limit memory" in reasons[Protection.MEMORY]


def test_a_preview_without_a_copy_on_write_view_is_a_gap() -> None:
    with pytest.raises(MissingProtections, match="EPERM"):
        choose_backend(
            replace(POLICY, preview=True),
            replace(FULL, overlay=False, why={"overlay": "mount(overlay): EPERM"}),
        )
    assert choose_backend(replace(POLICY, preview=True), FULL).name == "namespaces"


# ---- the gap


@pytest.mark.proves("sandbox.backend.missing-protection")
@pytest.mark.parametrize(
    ("why", "step"),
    [
        ("unshare(user): ENOSPC", "sysctl user.max_user_namespaces"),
        ("unshare(user): EPERM", "kernel.unprivileged_userns_clone=1"),
        ("mount(none): EACCES", "kernel.apparmor_restrict_unprivileged_userns=0"),
        ("mount(/): EPERM", "install bubblewrap"),
        ("unshare(user): EINVAL", "no user namespaces"),
        ("", "install bubblewrap"),
    ],
)
def test_a_gap_names_what_is_missing_why_and_the_next_step(why: str, step: str) -> None:
    with pytest.raises(MissingProtections) as raised:
        choose_backend(POLICY, replace(NOTHING, why={"namespaces": why}))
    gap = raised.value
    assert (gap.code, gap.exit_code, gap.backend.name) == ("sandbox_gap", 7, "none")
    assert {one.protection for one in gap.missing} == DEFAULT_REQUIRED and all(
        one.why for one in gap.missing
    )
    assert step in gap.hint and "network" in gap.detail and why in gap.detail
    assert copy.copy(gap).missing == gap.missing and str(copy.copy(gap)) == str(gap)


@pytest.mark.proves("sandbox.backend.missing-protection")
@given(
    probes=st.builds(
        Probes,
        platform=st.sampled_from(["linux", "darwin", "win32"]),
        root=st.booleans(),
        user_namespaces=st.booleans(),
        as_root=st.booleans(),
        mount=st.booleans(),
        network=st.booleans(),
        pid=st.booleans(),
        overlay=st.booleans(),
        landlock_abi=st.integers(0, 9),
        no_new_privileges=st.booleans(),
        seccomp_notify=st.booleans(),
        callers=st.booleans(),
        bwrap_notify=st.booleans(),
        cgroup=st.sampled_from(["", "v1", "v2"]),
        bwrap=st.sampled_from([None, program("/usr/bin/bwrap")]),
        seatbelt=st.booleans(),
    ),
    required=st.frozensets(st.sampled_from(sorted(ALL_PROTECTIONS))),
)
def test_what_is_chosen_holds_all_that_is_required_on_any_machine(
    probes: Probes, required: frozenset[Protection]
) -> None:
    policy = replace(POLICY, require=required)
    try:
        backend = choose_backend(policy, probes, startable=EVERY)
    except MissingProtections as gap:
        assert gap.missing
        for other in available_backends(policy, probes):
            missing = other.protections.find_missing(required)
            assert len(missing) >= len(gap.missing) > 0
        assert tuple(one.protection for one in gap.missing) == gap.backend.protections.find_missing(
            required
        )
    else:
        assert backend.protections.find_missing(required) == ()
        assert (
            set(backend.protections.enforcement)
            == set(backend.protections.mechanisms)
            == ALL_PROTECTIONS
        )


# ---- the question


class Person:
    """Answers the same each time and remembers what was asked."""

    def __init__(self, choice: Any, note: str = "") -> None:
        self.answer = ApprovalAnswer(choice, by="me", note=note)
        self.asked: list[ApprovalRequest] = []

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer:
        self.asked.append(request)
        await asyncio.sleep(0)
        return self.answer


def a_gap(probes: Probes = NOTHING) -> MissingProtections:
    with pytest.raises(MissingProtections) as raised:
        choose_backend(POLICY, probes)
    return raised.value


@pytest.mark.proves("sandbox.backend.question")
async def test_a_person_is_asked_once_in_a_session_however_many_commands_wait() -> None:
    person, gap = Person("session"), a_gap()
    consent = ReducedProtectionApproval(person, ME)
    backends = await asyncio.gather(
        *(accept_or_raise(POLICY, gap, "ask", consent) for _ in range(5))
    )
    assert [backend.name for backend in backends] == ["none"] * 5
    (request,) = person.asked
    assert "network" in request.reason and request.risk == "critical" and request.identity == ME
    assert "sysctl" in request.preview and [offer.choice for offer in request.offers] == ["session"]
    assert consent.answer == person.answer


@pytest.mark.proves("sandbox.backend.question")
async def test_a_no_is_an_error_with_the_reason_and_is_not_asked_again() -> None:
    person, gap = Person("deny", "not on this machine"), a_gap()
    consent = ReducedProtectionApproval(person, ME)
    for _ in range(2):
        with pytest.raises(MissingProtections, match="not on this machine"):
            await accept_or_raise(POLICY, gap, "ask", consent)
    assert len(person.asked) == 1


@pytest.mark.proves("sandbox.backend.question")
async def test_a_wider_gap_is_another_question() -> None:
    person = Person("session")
    consent = ReducedProtectionApproval(person, ME)
    await accept_or_raise(POLICY, a_gap(replace(FULL, seccomp_notify=False)), "ask", consent)
    await accept_or_raise(POLICY, a_gap(), "ask", consent)
    await accept_or_raise(POLICY, a_gap(replace(FULL, seccomp_notify=False)), "ask", consent)
    assert len(person.asked) == 2


@pytest.mark.proves("sandbox.backend.question")
@pytest.mark.parametrize("approver", [DenyingApprover(), AllowlistApprover(["*"])])
async def test_where_nobody_sits_a_gap_is_an_error_also_with_yes_to_everything(
    approver: Any,
) -> None:
    with pytest.raises(MissingProtections, match="no one was available"):
        await accept_or_raise(POLICY, a_gap(), "ask", ReducedProtectionApproval(approver, ME))


@pytest.mark.proves("sandbox.backend.modes")
@pytest.mark.parametrize(("mode", "asked"), [("required", 0), ("ask", 1), ("off", 0)])
async def test_the_mode_says_whether_a_gap_is_a_question(mode: SandboxMode, asked: int) -> None:
    person = Person("session")
    try:
        backend = await accept_or_raise(
            POLICY, a_gap(), mode, ReducedProtectionApproval(person, ME)
        )
    except MissingProtections:
        assert mode == "required"
    else:
        assert backend.name == "none"
    assert len(person.asked) == asked
