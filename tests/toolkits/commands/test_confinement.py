"""What the gate is told of the kernel's confinement, and where it is told nothing."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.sandbox.backends.probes import probe
from ferrule.sandbox.backends.reduced_protection import MissingProtections
from ferrule.sandbox.backends.selection import choose_backend
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.toolkits.commands import CommandPolicy, confinement
from ferrule.tools.definition import Confinement


def find_confinement(policy: CommandPolicy) -> Confinement | None:
    """Return what commands of a policy are held to, in a run in its workspace."""
    assert policy.confine is not None
    resources = {CommandPolicy: policy, Workspace: Workspace(policy.confine.root)}
    return confinement.find_confinement(resources)


@pytest.fixture
def policy(tmp_path: Path) -> CommandPolicy:
    return CommandPolicy(confine=SandboxPolicy(tmp_path))


def test_a_command_that_is_not_held_as_required_has_no_confinement(
    policy: CommandPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert confinement.find_confinement({CommandPolicy: policy}) is None
    assert find_confinement(replace(policy, on_missing_protection="off")) is None

    def refuse(confine: SandboxPolicy, probes: object) -> object:
        raise MissingProtections((), choose_backend_of(confine))

    def choose_backend_of(confine: SandboxPolicy) -> object:
        try:
            return choose_backend(confine, probe())
        except MissingProtections as error:
            return error.backend

    monkeypatch.setattr(confinement, "choose_backend", refuse)
    assert find_confinement(policy) is None
    assert find_confinement(replace(policy, on_missing_protection="ask")) is None


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("namespaces", ("/tmp", "/var/tmp")),
        ("bubblewrap", ("/tmp", "/var/tmp")),
        ("landlock", ()),
    ],
)
def test_only_a_backend_with_a_view_of_its_own_has_a_tmp_of_its_own(
    policy: CommandPolicy, monkeypatch: pytest.MonkeyPatch, name: str, own: tuple[str, ...]
) -> None:
    try:
        backend = choose_backend(policy.confine or SandboxPolicy(Path("/")), probe())
    except MissingProtections:
        pytest.skip("this machine cannot hold commands as required")
    named = replace(backend, name=name)
    monkeypatch.setattr(confinement, "choose_backend", lambda confine, probes: named)
    found = find_confinement(policy)
    assert found is not None and found.own == own and "/etc" not in found.readable


def test_a_program_of_a_folder_that_commands_write_is_not_the_machines(
    policy: CommandPolicy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = find_confinement(policy)
    if found is None:
        pytest.skip("this machine cannot hold commands as required")
    planted = tmp_path / ".venv/bin"
    planted.mkdir(parents=True)
    machine = os.environ["PATH"]
    for name in ("cat", "python3"):
        (planted / name).symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", f"{planted}:{machine}")
    assert not found.runs_machine_program("cat")
    assert not found.runs_machine_program("python3")
    assert found.runs_machine_program("ls")
    assert found.runs_machine_program("no-such-program")
    monkeypatch.setenv("PATH", f".:{machine}")
    monkeypatch.chdir(planted)
    assert not found.runs_machine_program("cat")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    for variable in [name for name in os.environ if name.startswith("PYTHON")]:
        monkeypatch.delenv(variable)
    assert found.runs_machine_program("python3")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert not found.runs_machine_program("python3")


def test_localhost_is_the_sessions_own_unless_a_person_opened_the_machines(
    policy: CommandPolicy,
) -> None:
    found = find_confinement(policy)
    if found is None or not found.own:
        pytest.skip("commands have no network of their own on this machine")
    assert policy.confine is not None
    opened = replace(policy, confine=replace(policy.confine, network=("localhost:5432",)))
    with_opened = find_confinement(opened)
    assert with_opened is not None and not with_opened.has_loopback
