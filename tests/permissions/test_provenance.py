"""Where a path comes from: a path that commands can change, by whatever step, is never trusted."""

from __future__ import annotations

import copy
import os
import pickle
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferrule.permissions import provenance
from ferrule.permissions.provenance import (
    CommandWritable,
    Origin,
    ProgramNotFound,
    TrustedPath,
    TrustedProgram,
    UntrustedPath,
    explain_own_code,
    find_interpreter,
    find_own_code,
    find_program,
    trust_path,
    trust_place,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "person"
    folder.mkdir()
    return folder


def make_program(path: Path, text: str = "#!/bin/sh\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def trust(path: Path | str, writable: CommandWritable) -> TrustedPath:
    return trust_path(path, Origin.PERSON, writable, reason="a test")


def test_a_place_that_commands_cannot_write_is_trusted(root: Path, outside: Path):
    place = trust(outside, CommandWritable.from_folders(root))
    assert (place, place.origin, place.reason) == (str(outside), Origin.PERSON, "a test")


@pytest.mark.parametrize("where", [".", "a", "a/../a", "missing"])
def test_nothing_in_the_workspace_is_trusted(root: Path, where: str):
    (root / "a").mkdir()
    with pytest.raises(UntrustedPath, match="commands can write"):
        trust(f"{root}/{where}", CommandWritable.from_folders(root))


def test_a_link_in_the_workspace_is_not_trusted_wherever_it_leads(root: Path, outside: Path):
    (root / "link").symlink_to(outside)
    with pytest.raises(UntrustedPath) as caught:
        trust(root / "link", CommandWritable.from_folders(root))
    assert caught.value.place == str(root / "link")


def test_a_link_into_the_workspace_is_not_trusted_wherever_it_lies(root: Path, outside: Path):
    (root / "bin").mkdir()
    (outside / "bin").symlink_to(root / "bin")
    with pytest.raises(UntrustedPath):
        trust(outside / "bin", CommandWritable.from_folders(root))


def test_a_way_through_the_workspace_and_back_is_not_trusted(root: Path, outside: Path):
    (root / "back").symlink_to(outside)
    (outside / "way").symlink_to(root / "back")
    with pytest.raises(UntrustedPath):
        trust(outside / "way", CommandWritable.from_folders(root))


def test_a_workspace_named_by_a_link_is_the_same_workspace(root: Path, tmp_path: Path):
    (tmp_path / "alias").symlink_to(root)
    with pytest.raises(UntrustedPath):
        trust(root / "x", CommandWritable.from_folders(tmp_path / "alias"))


def test_links_in_circles_and_relative_paths_are_errors_that_name_the_path(outside: Path):
    (outside / "a").symlink_to("b")
    (outside / "b").symlink_to("a")
    with pytest.raises(UntrustedPath, match="circles"):
        trust(outside / "a", CommandWritable(()))
    with pytest.raises(UntrustedPath, match="relative"):
        trust("bin/rg", CommandWritable(()))


def test_what_is_sealed_and_what_is_above_it_is_trusted_and_nothing_beside_it(root: Path):
    program = make_program(root / "backend/.venv/bin/rg")
    make_program(root / "backend/other/rg")
    writable = CommandWritable((str(root),), (str(root / "backend/.venv"),))
    assert trust(program, writable) == str(program)
    for place in (root / "backend/other/rg", root / "rg", root):
        with pytest.raises(UntrustedPath):
            trust(place, writable)


def test_own_code_in_a_writable_folder_is_sealed():
    prefix = Path(os.path.realpath(sys.prefix))
    assert str(prefix) in find_own_code([str(prefix.parent)])


def test_a_workspace_inside_the_interpreters_prefix_is_not_sealed(root: Path, monkeypatch):
    monkeypatch.setattr(sys, "prefix", str(root.parent))
    assert not any(root.is_relative_to(place) for place in find_own_code([str(root)]))
    monkeypatch.setattr(sys, "prefix", str(root))
    assert str(root) not in find_own_code([str(root)])


def test_a_workspace_among_the_packages_is_sealed_whole(tmp_path: Path, monkeypatch):
    packages = tmp_path / "lib/site-packages"
    (packages / "package").mkdir(parents=True)
    monkeypatch.setattr(provenance, "_list_packages", lambda: (str(packages),))
    for place in (packages, packages / "package"):
        writable = CommandWritable.from_folders(place)
        assert writable.sealed == (str(place),)
        assert not writable.contains(str(place / "module.py"))


def test_links_to_our_own_code_are_held_and_what_they_lead_to_is_explained(root: Path, monkeypatch):
    make_program(root / "envs/one/bin/rg")
    (root / ".venv").symlink_to("envs/one")
    (root / "other").symlink_to("envs/one")
    places = [str(root / "envs/one"), str(root / ".venv/bin")]
    monkeypatch.setattr(provenance, "_list_own_code", lambda: iter(places))
    writable = CommandWritable.from_folders(root)
    assert writable.held == (str(root / "envs/one"), str(root / ".venv"))
    assert trust(root / ".venv/bin/rg", writable) == str(root / "envs/one/bin/rg")
    with pytest.raises(UntrustedPath):
        trust(root / "other/bin/rg", writable)
    assert explain_own_code(str(root / "envs/one/bin/rg"), writable)
    assert not explain_own_code(str(root / "envs"), writable)


def test_a_folder_that_is_written_is_shown_by_a_path_that_commands_cannot_change(
    root: Path, outside: Path
):
    (outside / "link").symlink_to(outside / "real")
    (root / "link").symlink_to(outside)
    writable = CommandWritable.from_folders(root, outside / "real")
    place = trust_place(outside / "link", Origin.PERSON, writable, reason="a test's")
    assert place == str(outside / "real")
    with pytest.raises(UntrustedPath, match="can replace"):
        trust_place(root / "link/real", Origin.PERSON, writable, reason="a test's")


def test_a_planted_program_is_passed_over_and_named_where_there_is_no_other(
    root: Path, outside: Path
):
    make_program(root / "bin/tool")
    writable = CommandWritable.from_folders(root)
    with pytest.raises(ProgramNotFound) as caught:
        find_program("tool", f"{root}/bin", writable)
    assert caught.value.skipped == (f"{root}/bin/tool",)
    real = make_program(outside / "tool")
    assert find_program("tool", f"bin::{root}/bin:{outside}", writable) == str(real)


@pytest.mark.parametrize("change", ["replace", "write", "remove", "link"])
def test_a_program_that_changed_since_it_was_found_is_refused(outside: Path, change: str):
    real = make_program(outside / "tool-1")
    (outside / "tool").symlink_to(real)
    program = find_program("tool", str(outside), CommandWritable(()))
    program.check()
    other = make_program(outside / "other", "#!/bin/sh\necho other\n")
    if change == "replace":
        other.replace(real)
    elif change == "write":
        real.write_text("#!/bin/sh\necho changed\n")
    elif change == "remove":
        real.unlink()
    else:
        (outside / "tool").unlink()
        (outside / "tool").symlink_to(other)
    with pytest.raises(UntrustedPath, match="changed since it was found"):
        program.check()


def test_copies_keep_where_a_program_comes_from():
    program = find_interpreter()
    for made in (copy.copy(program), copy.deepcopy(program), pickle.loads(pickle.dumps(program))):
        assert isinstance(made, TrustedProgram)
        assert (made, made.origin, made.real, made.identity) == (
            program,
            program.origin,
            program.real,
            program.identity,
        )


NAMES = st.sampled_from(["work", "person", "a", "b"])
LINKS = st.lists(
    st.tuples(st.lists(NAMES, min_size=2, max_size=3), st.lists(NAMES, min_size=1, max_size=4)),
    max_size=5,
)


@settings(max_examples=300, deadline=None)
@given(links=LINKS, asked=st.lists(NAMES, min_size=1, max_size=4))
def test_whatever_links_there_are_no_trusted_path_changes_when_the_workspace_does(
    tmp_path_factory: pytest.TempPathFactory, links, asked
):
    top = Path(os.path.realpath(tmp_path_factory.mktemp("tree")))
    work = top / "work"
    for folder in ("work/a", "work/b", "person/a", "person/b"):
        (top / folder).mkdir(parents=True)
    for name, target in links:
        place = top.joinpath(*name)
        if place.parent.is_dir() and not os.path.lexists(place):
            place.symlink_to(top.joinpath(*target))
    path = top.joinpath(*asked)
    try:
        place = trust(path, CommandWritable.from_folders(work))
    except UntrustedPath:
        return
    # A command that empties the workspace, the strongest change, must not change the answer.
    for entry in list(work.iterdir()):
        entry.rename(top / f"gone-{entry.name}") if not entry.is_symlink() else entry.unlink()
    assert os.path.realpath(path) == place
    assert not Path(place).is_relative_to(work)
