"""What the probes find on this machine, and on one that is made to offer less."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ferrule.sandbox.backends import kernel_probe
from ferrule.sandbox.backends.probes import Probes, bwrap_trial_command, probe
from ferrule.sandbox.backends.selection import MissingProtections, choose_backend
from ferrule.sandbox.policy import Protection, SandboxPolicy
from ferrule.sandbox.view.toolchains import find_toolchains

sys.path.insert(0, str(Path(__file__).parent))
from without import without_user_namespaces

PROBE = [sys.executable, "-I", "-S", kernel_probe.__file__]


@pytest.mark.proves("sandbox.backend.probes")
def test_the_probe_leaves_nothing_behind_and_answers_the_same_twice() -> None:
    before = sorted(os.listdir("/tmp"))
    answers = [
        json.loads(subprocess.run(PROBE, capture_output=True, check=True, env={}).stdout)
        for _ in range(2)
    ]
    assert answers[0] == answers[1]
    assert [
        name
        for name in sorted(os.listdir("/tmp"))
        if name not in before and name in ("lower", "upper")
    ] == []
    assert not list(Path("/sys/fs/cgroup").glob("*/ferrule-probe-*"))


@pytest.mark.proves("sandbox.backend.probes")
def test_what_is_said_to_be_there_is_there() -> None:
    found = probe()
    assert found is probe() and found.platform == sys.platform
    if found.landlock_abi:
        library = ctypes.CDLL(None, use_errno=True)
        assert library.syscall(444, None, ctypes.c_size_t(0), 1) == found.landlock_abi
    if found.bwrap:
        assert subprocess.run(bwrap_trial_command(found.bwrap), check=False).returncode == 0
    if found.user_namespaces and found.namespaces:
        command = [
            "unshare",
            "--user",
            "--map-root-user",
            "--mount",
            "--net",
            "--pid",
            "--fork",
            "true",
        ]
        assert subprocess.run(command, check=False).returncode == 0


@pytest.mark.proves("sandbox.backend.probes")
def test_without_user_namespaces_the_probe_says_so_and_why() -> None:
    ran = without_user_namespaces(PROBE)
    found = json.loads(ran.stdout)
    assert "user_namespaces" not in found and "ENOSPC" in found["why"]["namespaces"]
    known = {name: value for name, value in found.items() if name in Probes.__dataclass_fields__}
    with pytest.raises(MissingProtections) as raised:
        choose_backend(
            SandboxPolicy(Path("/work"), require=frozenset({Protection.FILE_READS})),
            Probes(**known),
        )
    assert "max_user_namespaces" in raised.value.hint


# ---- toolchains


@pytest.mark.proves("sandbox.backend.toolchains")
def test_only_the_folders_of_programs_are_bound_never_what_is_beside_them(tmp_path: Path) -> None:
    home = tmp_path / "home"
    for name in (
        ".cargo/bin",
        ".rustup/toolchains/stable",
        ".nvm/versions/node",
        ".ssh",
        ".local/bin",
        "miniconda3/bin",
    ):
        (home / name).mkdir(parents=True)
    for name in (
        ".cargo/credentials.toml",
        ".npmrc",
        "miniconda3/.condarc",
        ".local/bin/.env",
        ".local/bin/tool",
    ):
        (home / name).write_text("x")
    path = os.pathsep.join([str(home / ".ssh"), str(home / ".cargo/bin"), "relative", str(home)])
    binds = {
        os.path.relpath(bind.path, home): bind.hidden
        for bind in find_toolchains(home, path, (str(home / ".ssh"),))
    }
    assert binds == {
        ".cargo/bin": (),
        ".local/bin": (str(home / ".local/bin/.env"),),
        ".nvm/versions": (),
        ".rustup/toolchains": (),
        "miniconda3": (str(home / "miniconda3/.condarc"),),
    }


@pytest.mark.proves("sandbox.backend.toolchains")
def test_a_link_of_the_table_opens_nothing_but_programs(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".pyenv/versions").mkdir(parents=True)
    (home / ".local").mkdir()
    os.symlink(home / ".ssh", home / ".local/bin")
    os.symlink(home / ".pyenv/versions", home / "bin")
    assert {os.path.relpath(bind.path, home) for bind in find_toolchains(home)} == {
        ".pyenv/versions",
        "bin",
    }


@pytest.mark.proves("sandbox.backend.toolchains")
def test_where_a_link_of_the_table_leads_is_bound_too_in_another_home_as_well(
    tmp_path: Path,
) -> None:
    home, other = tmp_path / "home", tmp_path / "other/.pyenv/versions"
    (home / ".pyenv").mkdir(parents=True)
    other.mkdir(parents=True)
    os.symlink(other, home / ".pyenv/versions")
    assert {bind.path for bind in find_toolchains(home)} == {
        str(home / ".pyenv/versions"),
        str(other),
    }


@pytest.mark.proves("sandbox.backend.toolchains")
def test_the_running_interpreter_is_bound_also_from_another_home(tmp_path: Path) -> None:
    other = tmp_path / "other/.pyenv/versions/3.11"
    (other / "bin").mkdir(parents=True)
    (tmp_path / "home").mkdir()
    assert [bind.path for bind in find_toolchains(tmp_path / "home", "", (str(other),))] == [
        str(other)
    ]
