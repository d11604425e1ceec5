"""`ferrule doctor --container`: what it builds and keeps, and how the report offers it."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ferrule.runtime.sandbox_findings import apply_sandbox_findings
from ferrule.sandbox.backends import container_engine
from ferrule.sandbox.backends import probes as probes_module
from ferrule.sandbox.backends.probes import Probes, probe, use_container
from ferrule.storage.container_record import read_container_record

ENGINE = """#!/bin/sh
echo "$@" >> {log}
case "$1" in
build)
    for word; do case "$word" in --iidfile=*) echo sha256:built > "${{word#--iidfile=}}";; esac; done;;
run)
    case "$*" in *keep-id*) echo "no such option" >&2; exit 125;; esac
    case "$*" in
    *callers*) echo '{{"seccomp_notify": true, "callers": true, "why": {{}}}}';;
    *) echo '{{"owned": true, "inode": 1, "bounded": false}}';;
    esac;;
esac
"""
"""An engine that answers as one in a virtual machine would: other inodes, no limits."""


@pytest.fixture(autouse=True)
def no_container() -> Iterator[None]:
    use_container(None)
    yield
    use_container(None)


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    made = tmp_path / "engine/podman"
    made.parent.mkdir()
    made.write_text(ENGINE.format(log=tmp_path / "log"))
    made.chmod(0o755)
    return made


def report(ferrule: Any, *words: str) -> dict[str, str]:
    ran = ferrule("doctor", "--json", *words)
    return {finding["name"]: finding["detail"] for finding in json.loads(ran.out)}


def test_it_builds_tries_and_keeps_an_image(
    folder: Path, ferrule: Any, engine: Path, tmp_path: Path
) -> None:
    said = report(ferrule, "--container", str(engine), "--build-argument=--network=host")
    assert said["sandbox.container"] == (
        f"yes: containers of {engine}, image sha256:built; memory and processes are bounded for "
        "each process alone; a virtual machine lies in between"
    )
    log = (tmp_path / "log").read_text()
    assert "--network=host" in next(line for line in log.splitlines() if line.startswith("build"))
    use_container(None)
    apply_sandbox_findings()
    found = probe().container
    assert found is not None and (found.image, found.notify) == ("sha256:built", True)
    assert found.user.startswith("--user=")
    assert report(ferrule)["sandbox.container"] == said["sandbox.container"]


def test_an_image_of_another_version_is_reported_and_not_used(
    folder: Path, ferrule: Any, engine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ferrule("doctor", "--container", str(engine))
    newer = tmp_path / "Containerfile"
    newer.write_text("FROM other")
    monkeypatch.setattr(container_engine, "IMAGE_FILE", newer)
    said = report(ferrule)
    assert "another version" in said["sandbox.container"]
    assert probe().container is None


def test_an_engine_without_an_image_is_offered(
    folder: Path, ferrule: Any, engine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(engine.parent))
    said = report(ferrule)
    assert "`ferrule doctor --container`" in said["sandbox.container"]
    assert read_container_record() == {}
    monkeypatch.setenv("PATH", str(folder))
    assert report(ferrule)["sandbox.container"] == "no: neither docker nor podman is here"


def test_an_engine_that_commands_could_replace_is_not_started(
    folder: Path, ferrule: Any, engine: Path
) -> None:
    planted = folder / "podman"
    planted.write_text(engine.read_text())
    planted.chmod(stat.S_IRWXU)
    ran = ferrule("doctor", "--container", str(planted))
    assert ran.code != 0 and "where commands can write" in ran.err


def test_a_refusal_of_the_engine_is_the_error(folder: Path, ferrule: Any, engine: Path) -> None:
    engine.write_text("#!/bin/sh\necho 'no space left' >&2\nexit 1\n")
    ran = ferrule("doctor", "--container", str(engine))
    assert ran.code != 0 and "no space left" in ran.err
    assert read_container_record() == {}


def test_a_mac_with_an_engine_is_told_of_containers(
    folder: Path, ferrule: Any, engine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(engine.parent))
    mac = replace(Probes(platform="darwin"), seatbelt=True)
    monkeypatch.setattr(probes_module, "probe", lambda: mac)
    assert "ferrule doctor --" in report(ferrule)["sandbox"]
