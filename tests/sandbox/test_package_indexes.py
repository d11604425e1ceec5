"""What commands see of where a person's package managers look, and the programs that ship."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest

from ferrule.permissions.child_environment import filter_environment
from ferrule.permissions.provenance import NOTHING_WRITABLE, CommandWritable
from ferrule.sandbox.view.layout import SessionPaths
from ferrule.sandbox.view.machine_folders import write_package_indexes
from ferrule.sandbox.view.package_indexes import extract_npm_settings, extract_pip_settings
from ferrule.sandbox.view.toolchains import (
    PROGRAMS_FOLDER,
    add_shipped_programs,
    find_shipped_programs,
)

PIP = """
[global]
index-url = https://pypi.corp.example/simple
extra-index-url =
    https://ada:hunter2@private.example/simple
    https://open.example/simple
trusted-host = pypi.corp.example
client-cert = /home/ada/.secret.pem
[install]
user = true
"""
NPM = """
registry=https://npm.corp.example/
@corp:registry=https://npm.corp.example/corp/
//npm.corp.example/:_authToken=hunter2
_auth = aHVudGVyMg==
email=ada@example.com
registry=https://ada:hunter2@npm.corp.example/
"""


def test_addresses_are_taken_over_and_what_signs_in_is_not() -> None:
    assert extract_pip_settings(PIP) == (
        "[global]\n"
        "index-url = https://pypi.corp.example/simple\n"
        "extra-index-url = https://open.example/simple\n"
        "trusted-host = pypi.corp.example\n"
    )
    assert extract_npm_settings(NPM) == (
        "registry=https://npm.corp.example/\n@corp:registry=https://npm.corp.example/corp/\n"
    )
    assert extract_pip_settings("no settings at all") == ""


def test_they_are_in_the_sessions_home_unless_commands_could_have_written_them(
    tmp_path: Path,
) -> None:
    home = tmp_path / "ada"
    (home / ".config/pip").mkdir(parents=True)
    (home / ".config/pip/pip.conf").write_text(PIP)
    (home / ".npmrc").write_text(NPM)
    places = SessionPaths(str(tmp_path / "session"))
    Path(places.home).mkdir(parents=True)
    write_package_indexes(str(home), places, CommandWritable.from_folders(home))
    assert list(Path(places.home).iterdir()) == []
    write_package_indexes(str(home), places, NOTHING_WRITABLE)
    written = {
        path.name: path.read_text() for path in Path(places.home).rglob("*") if path.is_file()
    }
    assert set(written) == {"pip.conf", ".npmrc"}
    assert "pypi.corp.example" in written["pip.conf"]
    assert "hunter2" not in "".join(written.values())
    Path(places.home, ".npmrc").write_text("a command's own\n")
    write_package_indexes(str(home), places, NOTHING_WRITABLE)
    assert Path(places.home, ".npmrc").read_text() == "a command's own\n"


def test_variables_that_name_an_index_are_passed_on_unless_they_sign_in() -> None:
    given = {
        "PIP_INDEX_URL": "https://pypi.corp.example/simple",
        "UV_INDEX_URL": "https://ada:hunter2@pypi.corp.example/simple",
    }
    child = filter_environment(given)
    assert child.values["PIP_INDEX_URL"] == given["PIP_INDEX_URL"]
    assert "UV_INDEX_URL" in child.withheld


def test_rg_is_last_on_the_path_alone_and_not_taken_from_where_commands_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts = tmp_path / "bin"
    scripts.mkdir()
    for name in ("rg", "python3"):
        (scripts / name).write_text("#!/bin/sh\n")
        (scripts / name).chmod(0o755)
    monkeypatch.setattr(sysconfig, "get_path", {"scripts": str(scripts)}.get)
    home = str(tmp_path / "home")
    [bind] = find_shipped_programs(home)
    assert (str(bind.path), bind.shown_at) == (
        str(scripts / "rg"),
        f"{home}/{PROGRAMS_FOLDER}/rg",
    )
    assert list(find_shipped_programs(home, CommandWritable.from_folders(tmp_path))) == []
    path = add_shipped_programs({"PATH": "/usr/bin"}, home)["PATH"]
    assert path == f"/usr/bin:{home}/{PROGRAMS_FOLDER}"
