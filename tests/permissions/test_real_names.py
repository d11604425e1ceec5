"""A protected name is judged by where it lies, whichever folder around it was opened."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferrule.core.errors import ToolFailed
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.permissions.protected_names import ProtectedNames
from ferrule.permissions.repositories import (
    find_configured_places,
    find_repository,
    parse_git_config,
)
from ferrule.sandbox.inside.mediator.name_rules import FREE, NameRules
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.sandbox.view.masks import Mask, MaskKind
from ferrule.sandbox.view.opened_folders import OpenedFolderScanner

PARTS = (
    "home",
    "repo",
    ".git",
    "hooks",
    "config",
    "info",
    "attributes",
    "modules",
    "worktrees",
    "commondir",
    ".cargo",
    "credentials.toml",
    ".docker",
    "config.json",
    ".gem",
    "credentials",
    ".config",
    "gcloud",
    ".ssh",
    "known",
    "bare",
    "plain.txt",
)
PATHS = st.lists(st.sampled_from(PARTS), min_size=3, max_size=6).map(tuple)


@settings(max_examples=600, deadline=None)
@given(PATHS)
def test_what_is_refused_does_not_depend_on_the_folder_that_was_opened(
    parts: tuple[str, ...],
) -> None:
    """As the mediator decides, for every folder around a name that could have been opened."""
    folder, last = "/nowhere/" + "/".join(parts[:-1]), parts[-1]
    decided: dict[str, int] = {}
    for depth in range(1, len(parts)):
        opened = "/nowhere/" + "/".join(parts[:depth])
        if ProtectedNames().hides_folder(opened):
            continue  # it stays empty: nothing is opened by that
        rules = NameRules(("/work", opened))
        name = rules.relative(os.fsencode(folder), os.fsencode(last))
        assert name is not None
        decided[opened] = rules.decide(name, folder=False)
    # Only what is protected at a root of its own can differ, and only by more protection.
    ordered = list(decided.values())
    is_hidden = ProtectedNames().check("/".join(("nowhere", *parts)), write=False) is not None
    if is_hidden:
        assert FREE not in ordered
    assert ordered == sorted(ordered)


def _covered(masks: tuple[Mask, ...], path: Path) -> MaskKind | None:
    """What is laid over a path, or over a folder that it is in."""
    above = {str(one) for one in (path, *path.parents)}
    kinds = [mask.kind for mask in masks if mask.path in above]
    return kinds[0] if kinds else None


def make_tree(base: Path) -> list[Path]:
    """A home with credentials and repositories. Returns its files."""
    names = (
        ".cargo/credentials.toml",
        ".cargo/registry/x/Cargo.toml",
        ".docker/config.json",
        ".gem/credentials",
        ".ssh/known_hosts",
        ".config/gcloud/adc.json",
        "repo/.git/HEAD",
        "repo/.git/config",
        "repo/.git/hooks/post-commit",
        "repo/.git/info/attributes",
        "repo/.git/objects/info/alternates",
        "repo/.git/refs/heads/main",
        "repo/.git/worktrees/w/gitdir",
        "repo/.git/worktrees/w/commondir",
        "repo/.git/worktrees/w/index",
        "repo/.git/modules/m/config",
        "repo/.git/modules/m/hooks/update",
        "repo/src/plain.txt",
        "lib/dist-packages/x.pth",
        "bare/HEAD",
        "bare/config",
        "bare/hooks/update",
        "bare/info/attributes",
        "bare/objects/pack/x",
        "bare/refs/heads/main",
    )
    for name in names:
        path = base / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x\n")
    return [base / name for name in names]


@pytest.mark.parametrize("access", ["readable", "writable"])
def test_masks_do_not_depend_on_the_folder_that_was_opened(tmp_path: Path, access: str) -> None:
    base = tmp_path / "home"
    files = make_tree(base)
    (tmp_path / "work").mkdir()
    for file in files:
        found: dict[str, MaskKind | None] = {}
        for opened in (folder for folder in file.parents if folder.is_relative_to(base)):
            policy = SandboxPolicy(tmp_path / "work", **{access: (str(opened),)})  # pyright: ignore[reportArgumentType]  by its name
            masks = OpenedFolderScanner(policy, home=str(tmp_path / "nobody")).scan().masks
            found[str(opened)] = _covered(masks, file)
        assert len(set(found.values())) == 1, (file, found)


@pytest.mark.parametrize(
    ("workspace", "name"),
    [
        ("repo/.git", "hooks/post-commit"),
        ("repo/.git", "config"),
        ("repo/.git/modules", "m/config"),
        ("repo/.git/worktrees/w", "gitdir"),
        (".cargo", "credentials.toml"),
        (".docker", "config.json"),
        ("bare", "hooks/update"),
        ("bare", "config"),
        ("lib/dist-packages", "x.pth"),
        ("", "bare/config"),
        ("", "bare/hooks/post-receive"),
    ],
)
def test_file_tools_judge_a_name_by_where_the_workspace_lies(
    tmp_path: Path, workspace: str, name: str
) -> None:
    make_tree(tmp_path)
    opened = Workspace(tmp_path / workspace)
    with pytest.raises(ToolFailed):
        opened.write(name, b"x")
    if name not in ("gitdir", "x.pth"):  # these may be read
        with pytest.raises(ToolFailed):
            opened.open(name)


def test_names_for_other_folders_say_nothing_of_where_the_workspace_lies(tmp_path: Path) -> None:
    make_tree(tmp_path)
    workspace = Workspace(tmp_path / "repo/.git", names=ProtectedNames(secret=("mine",)))
    assert workspace.names.above == ".git"
    for names in (workspace.names.only_lists(), workspace.names_for_commands()):
        assert names.check("hooks/x", write=True) is None
        assert names.check("mine", write=False) is not None


def test_a_folder_that_becomes_a_repository_later_is_judged_as_one(tmp_path: Path) -> None:
    rules = NameRules((str(tmp_path),), fixed=(f"{tmp_path}/bare/hooks/kept",))
    make_tree(tmp_path)
    assert rules.relative(os.fsencode(tmp_path / "bare/hooks"), b"update") == ".git/hooks/update"


def test_places_that_settings_of_git_name_are_protected(tmp_path: Path) -> None:
    home, root = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    (root / "more.cfg").write_text("[core]\n\tattributesFile = ~/attributes\n")
    (root / ".git/config").write_text(
        "[core]\n\trepositoryformatversion = 0\n\thooksPath = .githooks # ours\n"
        '[include]\n\tpath = ../more.cfg\n[includeIf "gitdir:x"]\n\tpath = "../other.cfg"\n'
    )
    (home / ".gitconfig").write_text(f"[init]\n\ttemplateDir = {root}/template\n")
    found = find_configured_places(root, find_repository(root).repository, str(home))
    expected = {root / ".githooks", root / "more.cfg", root / "other.cfg", root / "template"}
    assert set(found) == {str(path) for path in (*expected, home / "attributes")}
    workspace = Workspace(root)
    for name in (".githooks/post-commit", "more.cfg", "other.cfg"):
        with pytest.raises(ToolFailed, match="protected"):
            workspace.write(name, b"x")
    workspace.write("plain.txt", b"x")


def test_hooks_in_the_root_protect_their_names_and_not_the_whole_workspace(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    subprocess.run(["git", "-C", str(tmp_path), "config", "core.hooksPath", "."], check=True)
    workspace = Workspace(tmp_path)
    workspace.write("plain.txt", b"x")
    with pytest.raises(ToolFailed, match="protected"):
        workspace.write("pre-commit", b"x")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("\ufeff[core]\n\thooksPath = h\n", id="byte order mark"),
        pytest.param("# a comment \\\n[core]\n\thooksPath = h\n", id="comment with backslash"),
        pytest.param("[core] ; c \\\n\thooksPath = h\n", id="comment behind a heading"),
        pytest.param("[core]\n\thooksPath = a\u2028b\n", id="line separator of Unicode"),
        pytest.param('[core]\n\thooksPath = "a # \\\nb"\n', id="quoted text over two lines"),
        pytest.param("[core]\n\teditor = x\\\\\n\thooksPath = h\n", id="escaped backslash"),
        pytest.param("[core]\r\n\teditor = a\\\r\nb\r\n\thooksPath = h\r\n", id="windows"),
        pytest.param('[CORE]\n\tHooksPath = "a"b ; c\n', id="case and quotes"),
    ],
)
def test_settings_of_git_are_read_as_git_reads_them(text: str, tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_bytes(text.encode())
    command = ["git", "config", "-f", str(file), "-z", "--list"]
    listed = subprocess.run(command, check=True, capture_output=True).stdout.decode()
    expected = [tuple(entry.split("\n", 1)) for entry in listed.split("\0") if entry]
    assert parse_git_config(text) == expected


def test_settings_of_git_that_lie_behind_a_link_or_a_variable_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, root = tmp_path / "home", tmp_path / "work"
    for folder in (home, root, tmp_path / "xdg/git"):
        folder.mkdir(parents=True)
    files = {"linked": home / ".gitconfig", "xdg": tmp_path / "xdg/git/config"}
    for name, place in files.items():
        (tmp_path / name).with_suffix(".cfg").write_text(f"[core]\n\thooksPath = {root}/{name}\n")
        place.symlink_to(tmp_path / f"{name}.cfg")
    (tmp_path / "global.cfg").write_text(f"[core]\n\thooksPath = {root}/global\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "global.cfg"))
    found = find_configured_places(root, None, str(home))
    assert {f"{root}/{name}" for name in ("linked", "xdg", "global")} <= set(found)
