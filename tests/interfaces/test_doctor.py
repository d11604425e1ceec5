"""What `ferrule doctor` says of the sandbox: on made-up machines, and on one that is really made to
offer less.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from ferrule.cli.doctor.command import doctor
from ferrule.permissions import provenance
from ferrule.permissions.provenance import Origin, TrustedProgram
from ferrule.runtime.sandbox_policy import make_sandbox_policy
from ferrule.sandbox.backends import probes as probes_module
from ferrule.sandbox.backends.probes import Probes, probe
from ferrule.sandbox.policy import DEFAULT_REQUIRED, Protection
from ferrule.storage.settings.settings import load_settings

_WITHOUT = Path(__file__).parents[1] / "sandbox/without.py"
_SPEC = importlib.util.spec_from_file_location("without", _WITHOUT)
assert _SPEC is not None and _SPEC.loader is not None
without = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(without)

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
NO_NAMESPACES = replace(
    FULL,
    user_namespaces=False,
    mount=False,
    network=False,
    pid=False,
    overlay=False,
    cgroup="",
    why={"namespaces": "unshare(user): EPERM"},
)
ONLY_BUBBLEWRAP = replace(
    NO_NAMESPACES,
    bwrap=TrustedProgram._make("/usr/bin/bwrap", Origin.MACHINE, "a test's"),  # pyright: ignore[reportPrivateUsage]
    bwrap_notify=True,
    python="/usr/bin/python3",
    landlock_abi=0,
)
OLD_LANDLOCK = replace(NO_NAMESPACES, landlock_abi=2)
BY_LANDLOCK = {
    Protection.FILE_WRITES,
    Protection.NEW_NAMES,
    Protection.EXEC,
    Protection.NETWORK,
    Protection.UNIX_SOCKETS,
}
PARTLY = {
    Protection.FILE_READS,
    Protection.NAMES,
    Protection.SIGNALS,
    Protection.MEMORY,
    Protection.PROCESSES,
}
NOTHING = Probes(why={"namespaces": "unshare(user): ENOSYS"})

Machine = Callable[[Probes], None]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """`machine(probes)`: the machine that the doctor looks at."""
    return lambda probes: monkeypatch.setattr(probes_module, "probe", lambda: probes)


def said(ferrule: Any, *words: str) -> tuple[int, dict[str, dict[str, str]]]:
    ran = ferrule("doctor", "--json", *words)
    return ran.code, {finding["name"]: finding for finding in json.loads(ran.out)}


@pytest.mark.proves("doctor.sandbox.truth")
@pytest.mark.parametrize(
    ("probes", "held", "partly"),
    [
        (FULL, set(Protection), set[Protection]()),
        (ONLY_BUBBLEWRAP, DEFAULT_REQUIRED, {Protection.MEMORY, Protection.PROCESSES}),
        (NO_NAMESPACES, BY_LANDLOCK, PARTLY),
        (OLD_LANDLOCK, BY_LANDLOCK, PARTLY),
        (NOTHING, set[Protection](), set[Protection]()),
    ],
    ids=["everything", "only bubblewrap", "no namespaces", "old landlock", "nothing"],
)
def test_each_aspect_is_said_as_it_is_held(
    folder: Path,
    ferrule: Any,
    machine: Machine,
    probes: Probes,
    held: set[Protection],
    partly: set[Protection],
) -> None:
    machine(probes)
    code, found = said(ferrule)
    assert code == 0
    for aspect in Protection:
        finding = found[f"sandbox.{aspect}"]
        assert finding["detail"].startswith(
            "yes: " if aspect in held else "partly" if aspect in partly else "no"
        )
        assert finding["level"] == ("ok" if aspect in held else "note")
    assert found["sandbox"]["level"] == ("ok" if held >= DEFAULT_REQUIRED else "note")
    assert ("can be signalled" in found["sandbox.signals"]["detail"]) is (probes is OLD_LANDLOCK)
    assert found["sandbox.preview"]["detail"].startswith("yes: " if probes.overlay else "no: ")


@pytest.mark.proves("doctor.sandbox.gap")
@pytest.mark.parametrize(
    ("probes", "step", "missing"),
    [
        (NO_NAMESPACES, "sysctl", DEFAULT_REQUIRED - BY_LANDLOCK),
        (NOTHING, "no user namespaces", DEFAULT_REQUIRED),
    ],
)
def test_a_gap_is_said_with_what_is_missing_and_the_next_step(
    folder: Path,
    ferrule: Any,
    machine: Machine,
    probes: Probes,
    step: str,
    missing: set[Protection],
) -> None:
    machine(probes)
    ran = ferrule("doctor")
    line = next(line for line in ran.lines if line.startswith("· sandbox "))
    named = line.partition("missing: ")[2].partition(";")[0]
    assert set(named.split(", ")) == {str(aspect) for aspect in missing}
    assert step in line and "with no approver available, commands are refused" in line


@pytest.mark.proves("doctor.sandbox.mode")
@pytest.mark.parametrize(
    ("mode", "code", "level", "words"),
    [
        ("required", 1, "bad", "commands are refused"),
        ("ask", 0, "note", "asked once"),
        ("off", 0, "note", "switched off"),
    ],
)
def test_the_mode_decides_what_a_gap_means(
    folder: Path,
    ferrule: Any,
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    code: int,
    level: str,
    words: str,
) -> None:
    machine(NOTHING)
    monkeypatch.setenv("FERRULE_SANDBOX_MODE", mode)
    ended, found = said(ferrule)
    assert (ended, found["sandbox"]["level"]) == (code, level) and words in found["sandbox"][
        "detail"
    ]


def test_requiring_more_than_there_is_fails_with_its_own_code(
    folder: Path, ferrule: Any, machine: Machine
) -> None:
    machine(FULL)
    assert ferrule("doctor", "--require", "network", "--require", "memory").code == 0
    machine(replace(FULL, cgroup=""))
    ran = ferrule("doctor", "--require", "memory")
    assert ran.code == 7 and "missing: memory" in ran.err and "hint: " in ran.err
    assert ferrule("doctor", "--require", "anything").code == 2


def test_what_is_required_is_checked_with_the_settings_in_force(
    folder: Path, ferrule: Any, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(NO_NAMESPACES)
    ran = ferrule("doctor", "--require", "network")
    assert ran.code == 7 and "missing: file_reads" in ran.err  # required by the settings' default
    monkeypatch.setenv("FERRULE_SANDBOX_REQUIRE", "new_names")
    assert ferrule("doctor", "--require", "network").code == 0
    assert ferrule("doctor", "--require", "signals").code == 7
    machine(replace(FULL, cgroup=""))
    monkeypatch.setenv("FERRULE_SANDBOX_REQUIRE", "memory")
    ran = ferrule("doctor", "--require", "network")
    assert ran.code == 7 and "missing: memory" in ran.err


def test_where_the_sandbox_is_switched_off_nothing_is_held(
    folder: Path, ferrule: Any, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(FULL)
    monkeypatch.setenv("FERRULE_SANDBOX_MODE", "off")
    ran = ferrule("doctor", "--require", "network")
    assert ran.code == 7 and "`sandbox.mode: off`" in ran.err and "hint: " in ran.err


@pytest.mark.proves("doctor.sandbox.truth")
def test_this_machine_is_reported_as_the_probes_found_it(folder: Path, ferrule: Any) -> None:
    _, found = said(ferrule)
    assert (found["sandbox"]["level"] == "ok") is (probe().namespaces and probe().seccomp_notify)


@pytest.mark.proves("doctor.sandbox.emulated")
def test_where_no_namespace_can_be_made_the_command_line_says_so_and_refuses(
    folder: Path, own_folders: Path
) -> None:
    command = [sys.executable, "-c", "from ferrule.cli.entry import main; main()", "doctor"]
    environment = {**os.environ, "PATH": os.environ["PATH"]}
    ran = without.without_user_namespaces([*command, "--json"], env=environment, cwd=str(folder))
    found = {finding["name"]: finding for finding in json.loads(ran.stdout)}
    assert (
        "missing: file_reads" in found["sandbox"]["detail"]
        and "max_user_namespaces" in found["sandbox"]["detail"]
    )
    by_landlock = probe().landlock_abi > 0
    assert found["sandbox.network"]["detail"].startswith("yes" if by_landlock else "no")
    assert found["sandbox.file_reads"]["detail"].startswith("partly" if by_landlock else "no")
    refused = without.without_user_namespaces(
        [*command, "--require", "network"], env=environment, cwd=str(folder)
    )
    assert refused.returncode == 7 and "max_user_namespaces" in refused.stderr


# ---- the settings behind it


def test_the_settings_become_the_policy(tmp_path: Path) -> None:
    flags = {
        "sandbox.require": ["network", "memory"],
        "sandbox.network": ["packages.example"],
        "sandbox.readable": ["/data"],
        "sandbox.memory": 64,
        "sandbox.processes": 8,
        "sandbox.file_size": 2,
    }
    policy = make_sandbox_policy(load_settings(workspace=tmp_path, flags=flags, environment={}))
    assert (
        policy.root == tmp_path.resolve()
        and policy.network == ("packages.example",)
        and policy.readable == ("/data",)
    )
    assert policy.require == {Protection.NETWORK, Protection.MEMORY}
    assert (policy.limits.memory, policy.limits.processes, policy.limits.file_size) == (
        64 << 20,
        8,
        2 << 20,
    )
    plain = make_sandbox_policy(load_settings(workspace=tmp_path, environment={}))
    assert plain.require == DEFAULT_REQUIRED and plain.limits == replace(
        plain.limits, memory=8 << 30, processes=1024, file_size=4 << 30
    )


@pytest.mark.parametrize("is_tried", [True, False])
def test_where_ferrule_was_tried_is_said(
    is_tried: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tried = json.loads(files("ferrule.cli.doctor").joinpath("tried.json").read_text("utf-8"))
    version = tried["pythons"][0] if is_tried else "3.99.0"
    monkeypatch.setattr("platform.python_version_tuple", lambda: tuple(version.split(".")))
    doctor.main([], standalone_mode=False)
    line = next(line for line in capsys.readouterr().out.splitlines() if " system " in line)
    for name in tried["systems"]:
        assert name in line
    assert f"with Python {'.'.join(tried['pythons'][0].split('.')[:2])}" in line
    assert line.endswith("not with this one") == (not is_tried)


@pytest.mark.proves("sandbox.own-code")
@pytest.mark.parametrize("mediated", [True, False])
def test_ferrule_in_the_workspace_is_reported_as_it_is_held(
    mediated: bool,
    folder: Path,
    ferrule: Any,
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine(replace(FULL, seccomp_notify=mediated))
    assert "sandbox.own_code" not in said(ferrule)[1]
    place = f"{os.path.realpath(folder)}/.venv"
    monkeypatch.setattr(provenance, "_list_own_code", lambda: iter([place]))
    code, found = said(ferrule)
    finding = found["sandbox.own_code"]
    assert (code, finding["level"]) == ((0, "ok") if mediated else (1, "bad"))
    assert f"`{place}`" in finding["detail"]


def test_what_commands_see_is_listed_with_the_reason_and_the_origin(
    folder: Path, ferrule: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (folder / "link").symlink_to(outside)
    opened = json.dumps([str(outside), f"{folder}/link"])
    own = tmp_path / "own"
    own.mkdir()
    (own / "ferrule.yaml").write_text(f"sandbox: {{readable: {opened}}}\n")
    monkeypatch.setenv("FERRULE_CONFIG", str(own))
    ran = ferrule("doctor", "--view")
    lines = [line.split(maxsplit=2) for line in ran.out.splitlines()]
    shown = {detail.split("  ")[0]: (access, detail) for _, access, detail in lines}
    assert shown[os.path.realpath(outside)] == (
        "read",
        f"{os.path.realpath(outside)}  (person: opened for reading)",
    )
    assert shown[os.path.realpath(folder)][0] == "write"
    assert "(machine: a folder of the system)" in shown["/usr"][1]
    assert "commands can replace" in ran.out and "not shown" in ran.out
