"""`ferrule doctor --attack`: what it reports, and what backends claim after it."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ferrule.cli import entry
from ferrule.cli.doctor import attack
from ferrule.cli.doctor.command import doctor
from ferrule.core.errors import ConfigError
from ferrule.runtime.sandbox_findings import apply_sandbox_findings
from ferrule.sandbox.backends.probes import AttackResult, Probes, probe, use_attack_results
from ferrule.sandbox.backends.selection import (
    MissingProtections,
    available_backends,
    choose_backend,
)
from ferrule.sandbox.policy import Enforcement, Protection, SandboxPolicy
from ferrule.storage import attack_results


@pytest.fixture(autouse=True)
def nothing_shown() -> Any:
    """Nothing is known of this machine, before and after."""
    use_attack_results({})
    yield
    use_attack_results({})


def levels(probes: Probes, backend: str) -> dict[Protection, Enforcement]:
    policy = SandboxPolicy(Path("/w"))
    found = {one.name: one for one in available_backends(policy, probes)}
    return dict(found[backend].protections.enforcement)


SEATBELT = Probes(platform="darwin", seatbelt=True)


def test_a_backend_that_nobody_tried_claims_what_attacks_have_shown() -> None:
    assert Enforcement.YES not in levels(SEATBELT, "seatbelt").values()
    shown = {"seatbelt": AttackResult(frozenset({"file_reads", "names"}), {"network": "curl x"})}
    after = levels(Probes(platform="darwin", seatbelt=True, attacks=shown), "seatbelt")
    claimed = {aspect for aspect, level in after.items() if level is Enforcement.YES}
    assert claimed == {Protection.FILE_READS, Protection.NAMES}


def test_what_an_attack_came_through_is_not_claimed() -> None:
    machine = {"user_namespaces": True, "mount": True, "network": True, "pid": True}
    assert levels(Probes(**machine), "namespaces")[Protection.NAMES] is Enforcement.YES
    shown = {"namespaces": AttackResult(broken={"names": "cat .env"})}
    after = Probes(**machine, attacks=shown)
    assert levels(after, "namespaces")[Protection.NAMES] is Enforcement.NO
    with pytest.raises(MissingProtections, match=r"cat \.env"):
        choose_backend(SandboxPolicy(Path("/w")), after)


def attempt_on_names_only(monkeypatch: pytest.MonkeyPatch, *scripts: str) -> None:
    monkeypatch.setattr(attack, "ATTEMPTS", {Protection.NAMES: scripts})


def test_a_run_reports_and_is_kept_for_this_machine(
    own_folders: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FERRULE_CACHE", str(own_folders / "cache"))
    attempt_on_names_only(monkeypatch, "cat .env", "echo fine; cat .ferrule/settings")
    assert doctor.main(["--attack", "--json"], standalone_mode=False) == 0
    report = json.loads(capsys.readouterr().out)
    if not report["backends"]:
        pytest.skip("this machine has no sandbox backend")
    assert report["came_through"] == []
    assert {one["held_rows"] for one in report["backends"].values()} == {2}
    assert str(own_folders) not in json.dumps(report)
    assert list((own_folders / "cache").iterdir()) == []
    kept = attack_results.read_attack_results()
    assert {tuple(one["held"]) for one in kept.values()} == {("names",)}
    monkeypatch.setattr(attack_results, "describe_machine", lambda: "another kernel")
    assert attack_results.read_attack_results() == {}


def test_an_attack_that_comes_through_is_named_and_the_claim_is_gone(
    own_folders: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if not available_backends(SandboxPolicy(own_folders), probe())[:-1]:
        pytest.skip("this machine has no sandbox backend")
    monkeypatch.setenv("FERRULE_CACHE", str(own_folders / "cache"))
    attempt_on_names_only(monkeypatch, "cat note.txt", "cat .env")
    assert doctor.main(["--attack"], standalone_mode=False) == 1
    said = capsys.readouterr().out
    assert "names: `cat note.txt` came through: it printed BROKEN" in said
    failed = re.findall(r"^✗ (\w+):", said, re.MULTILINE)
    assert failed and failed == re.findall(r"^  ✗ (\w+) names:", said, re.MULTILINE)
    apply_sandbox_findings()
    try:
        choose_backend(SandboxPolicy(own_folders), probe())
    except (MissingProtections, ConfigError) as error:
        assert "cat note.txt" in str(error)
    else:
        raise AssertionError("a broken protection was claimed")


def test_the_switch_leaves_out_what_only_linux_has(own_folders: Path) -> None:
    variables = {
        "PATH": os.environ["PATH"],
        "HOME": str(own_folders),
        "FERRULE_STATE": str(own_folders / "state"),
        "FERRULE_PORTABLE": "1",
    }
    said = subprocess.run(
        [sys.executable, "-c", "from ferrule.cli.entry import main; main()", "doctor", "--json"],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    found = {one["name"]: one["detail"] for one in json.loads(said.stdout)}
    assert found["workspace"].startswith("no openat2")
    assert found["sandbox.file_reads"].startswith("no")
    assert "FERRULE_PORTABLE=1" in found["system"]


def test_wsl_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(platform, "release", lambda: "6.6.87-microsoft-standard-WSL2")
    doctor.main(["--json"], standalone_mode=False)
    found = {one["name"]: one["detail"] for one in json.loads(capsys.readouterr().out)}
    assert "WSL" in found["system"]


def test_on_windows_the_way_is_wsl(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MissingProtections, match="wsl --install"):
        choose_backend(SandboxPolicy(Path("/w")), Probes(platform="win32"))
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(SystemExit, match="wsl --install"):
        entry.main()
