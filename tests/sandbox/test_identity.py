"""Who a commit of a command is by: the person's name and address reach the session's home, and
nothing else of their settings.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shelled import says

from ferrule.sandbox.backends.probes import probe
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.sandbox.sandbox import Sandbox
from ferrule.sandbox.view.git_config import extract_identity
from ferrule.sandbox.view.layout import SessionPaths
from ferrule.sandbox.view.machine_folders import write_git_identity

PERSON = """\
[user]
\tname = Person Example
\temail = person@example.org
\tsigningKey = ABCDEF
[github]
\ttoken = hunter2
[core]
\tpager = evil
[include]
\tpath = more
"""
SAID = '[user]\n\tname = "Person Example"\n\temail = "person@example.org"\n'


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text(PERSON)
    (home / "more").write_text("[user]\n\tname = Included\n")
    return home


@pytest.fixture
def places(tmp_path: Path) -> SessionPaths:
    (tmp_path / "session/home").mkdir(parents=True)
    return SessionPaths(str(tmp_path / "session"))


def given_home(places: SessionPaths) -> str:
    file = Path(places.home, ".gitconfig")
    return file.read_text() if file.exists() else ""


def test_name_and_address_are_taken_and_nothing_else(home: Path, places: SessionPaths) -> None:
    write_git_identity({}, str(home), places)
    assert given_home(places) == SAID


def test_settings_in_the_xdg_folder_count_and_those_of_the_home_win(
    home: Path, places: SessionPaths
) -> None:
    (home / "xdg/git").mkdir(parents=True)
    (home / "xdg/git/config").write_text("[user]\n\tname = Xdg\n\temail = xdg@example.org\n")
    (home / ".gitconfig").write_text("[user]\n\temail = home@example.org\n")
    write_git_identity({"XDG_CONFIG_HOME": str(home / "xdg")}, str(home), places)
    assert given_home(places) == '[user]\n\tname = "Xdg"\n\temail = "home@example.org"\n'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[user]\n\tname = Half\n",
        "[user]\n\tname =\n\temail = x@example.org\n",
        "[alias]\n\tname = x\n\temail = y\n",
    ],
)
def test_who_does_not_say_both_says_nothing(home: Path, places: SessionPaths, text: str) -> None:
    (home / ".gitconfig").write_text(text)
    write_git_identity({}, str(home), places)
    assert given_home(places) == ""


def test_settings_in_the_folder_we_happen_to_be_in_are_not_the_persons(
    home: Path, places: SessionPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    write_git_identity({"XDG_CONFIG_HOME": "."}, ".", places)
    assert given_home(places) == ""


def test_what_a_command_put_in_its_place_is_neither_followed_nor_replaced(
    home: Path, places: SessionPaths
) -> None:
    elsewhere = home / "elsewhere"
    for target in (elsewhere, home / "more"):
        Path(places.home, ".gitconfig").symlink_to(target)
        write_git_identity({}, str(home), places)
        assert (
            not elsewhere.exists() and (home / "more").read_text() == "[user]\n\tname = Included\n"
        )
        Path(places.home, ".gitconfig").unlink()


def test_a_pipe_in_place_of_the_settings_does_not_stop_a_session(
    home: Path, places: SessionPaths
) -> None:
    (home / ".gitconfig").unlink()
    os.mkfifo(home / ".gitconfig")
    write_git_identity({}, str(home), places)
    assert given_home(places) == ""


@given(st.lists(st.text('[]user.nameil= "\\x#;\n\t@', max_size=60), max_size=3))
def test_whatever_settings_hold_only_a_name_and_an_address_come_out(texts: list[str]) -> None:
    said = extract_identity(*texts).splitlines()
    assert [line.partition(" = ")[0] for line in said] in ([], ["[user]", "\tname", "\temail"])
    assert all(line.count('"') == 2 and "\\" not in line for line in said[1:])


@pytest.mark.skipif(not probe().namespaces, reason="no namespaces here")
async def test_a_commit_of_a_command_is_the_persons_unless_the_repository_says_otherwise(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    root = tmp_path / "work"
    root.mkdir()
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    sandbox = Sandbox(SandboxPolicy(root))
    try:
        commit = (
            "git commit -q --allow-empty -m x && git log -1 --format='%an <%ae> %cn'; cat "
            "~/.gitconfig"
        )
        _, text = await says(sandbox, commit, root)
        assert "Person Example <person@example.org> Person Example" in text
        assert "hunter2" not in text and "evil" not in text
        with (root / ".git/config").open("a") as config:
            config.write("[user]\n\tname = At Work\n\temail = work@example.org\n")
        _, text = await says(sandbox, commit, root)
        assert "At Work <work@example.org> At Work" in text
    finally:
        await sandbox.close()
