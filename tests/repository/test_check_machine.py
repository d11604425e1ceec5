"""What `make` says of a machine that lacks something, before it begins: one line with one step."""

from __future__ import annotations

import http.server
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from source import ROOT

CHECK = ROOT / ".ci/check-machine"
PROGRAMS = ("sh", "df", "tail", "git")


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder for PATH with what the check needs, and an interpreter."""
    folder = tmp_path / "pro grams"
    folder.mkdir()
    for name in PROGRAMS:
        (folder / name).symlink_to(str(shutil.which(name)))
    write_program(folder / "python3", f'exec "{sys.executable}" -I "$@"')
    return folder


@pytest.fixture
def index() -> Iterator[str]:
    """The URL of a server that has nothing, and answers."""
    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/simple/"
    server.shutdown()
    thread.join()
    server.server_close()


def write_program(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def check(
    programs: Path, index: str, python: str = "python3", folder: Path | None = None, **more: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", str(CHECK), python],
        cwd=folder or programs,
        env={"PATH": str(programs), "HOME": str(programs), "UV_DEFAULT_INDEX": index, **more},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_machine_that_has_everything_is_told_nothing(programs: Path, index: str) -> None:
    ran = check(programs, index)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


OLD = 'case "$*" in *version_info*) exit 1;; esac'
NO_VENV = 'case "$*" in *ensurepip*) exit 1;; esac'
FULL = "echo Filesystem 1024-blocks Used Available; echo /dev/x 100 90 10000 99% /"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("git", "", "missing: git; install the package git"),
        ("python3", "", "missing: python3; install the package python3 (3.11 or newer), or say"),
        ("python3", OLD, "missing: Python 3.11 or newer: python3 is older; install one beside"),
        (
            "python3",
            NO_VENV,
            "missing: the module venv of python3; install the package python3-venv",
        ),
        ("df", FULL, "missing: space: 10 MB are free on the disk of this folder, 3,000 are needed"),
    ],
)
def test_what_is_missing_is_named_with_the_step_that_helps(
    name: str, text: str, said: str, programs: Path, index: str
) -> None:
    (programs / name).unlink()
    if text:
        write_program(programs / name, text)
    ran = check(programs, index)
    assert ran.returncode == 1
    assert [line[: len(said)] for line in ran.stderr.splitlines()] == [said]


@pytest.mark.parametrize("answers", [False, None])
def test_an_index_that_cannot_be_reached_is_named(answers: bool | None, programs: Path) -> None:
    """One whose port is closed, and one that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        if answers is False:
            server.close()
        ran = check(programs, f"http://user:secret@127.0.0.1:{port}/simple/")
    assert ran.returncode == 1
    assert ran.stderr.startswith(f"missing: the index of packages 127.0.0.1:{port}: ")
    assert "name a proxy by HTTPS_PROXY" in ran.stderr and "secret" not in ran.stderr


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_says_it_before_it_begins_also_in_a_folder_with_a_blank(
    programs: Path, tmp_path: Path
) -> None:
    checkout = tmp_path / "Größe und Maß"
    (checkout / ".ci").mkdir(parents=True)
    shutil.copy(CHECK, checkout / ".ci")
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, checkout / name)
    ran = subprocess.run(
        ["make", "demo", f"PYTHON={programs}/python9"],
        cwd=checkout,
        env={**os.environ, "LC_ALL": "C"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 2 and not (checkout / ".venv").exists()
    assert ran.stderr.startswith(f"missing: {programs}/python9; install the package python3")


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="this Python reads path files as UTF-8")
def test_a_folder_whose_letters_the_locale_has_not_is_said(
    programs: Path, index: str, tmp_path: Path
) -> None:
    folder = tmp_path / "zw\u00f6lf"
    folder.mkdir()
    ran = check(programs, index, folder=folder, LC_ALL="C")
    assert ran.returncode == 1
    assert ran.stderr.startswith("missing: a locale for the letters in this folder's path")
    assert ran.stderr.endswith("say LC_ALL=C.UTF-8\n")
    assert "locale" not in check(programs, index, folder=folder, LC_ALL="C.UTF-8").stderr
    assert "locale" not in check(programs, index, LC_ALL="C").stderr
