"""What is laid over further folders that a policy opens: real folders, scanned."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from ferrule.core.errors import ConfigError
from ferrule.permissions.path_denials import PathDenials
from ferrule.permissions.protected_names import ProtectedNames
from ferrule.permissions.rules import RuleSet
from ferrule.sandbox.inside.mediator.file_identity import identify_path
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.sandbox.view import masks, opened_folders
from ferrule.sandbox.view.masks import MaskKind, MaskScanner, ScanResult
from ferrule.sandbox.view.opened_folders import OpenedFolderScanner

SECRET = (
    ".env",
    "a/b/server.key",
    ".ssh/config",
    ".ferrule/ferrule.yaml",
    "agents/x.py",
    ".git/config",
    ".git/hooks/x",
)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A workspace `work`, folders `library` and `shared` beside it, all with the same names in
    them.
    """
    for folder in ("work", "library", "shared"):
        for name in (*SECRET, "src/plain.py", ".bashrc"):
            path = tmp_path / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("[remote]\n\turl = https://token@example.org\n")
    return tmp_path


def scan(base: Path, **opened: tuple[str, ...]) -> ScanResult:
    absolute = {kind: tuple(str(base / name) for name in names) for kind, names in opened.items()}
    return OpenedFolderScanner(
        SandboxPolicy(base / "work", **absolute), home=str(base / "home")
    ).scan()  # pyright: ignore[reportArgumentType]  folders alone


def kinds(found: ScanResult, folder: Path) -> dict[str, MaskKind]:
    return {
        os.path.relpath(mask.path, folder): mask.kind
        for mask in found.masks
        if Path(mask.path).is_relative_to(folder)
    }


def test_opened_folders_get_the_masks_of_a_workspace(base: Path) -> None:
    found = scan(base, readable=("library",), writable=("shared",))
    scanner = MaskScanner(base / "work", ProtectedNames(), git_hooks=True)
    alone = kinds(scanner.scan(), base / "work")
    assert alone[".env"] is MaskKind.UNREADABLE and alone[".git/config"] is MaskKind.TEXT
    assert alone[".git/hooks"] is MaskKind.READ_ONLY
    assert kinds(found, base / "work") == kinds(found, base / "shared") == alone
    # Where nothing is written, what may only be read needs no mask, and no hook runs.
    assert kinds(found, base / "library") == {
        **{n: k for n, k in alone.items() if k is not MaskKind.READ_ONLY},
        ".git/hooks": MaskKind.EMPTY_FOLDER,
    }
    assert all("token" not in mask.text for mask in found.masks)
    paths = [mask.path.split("/") for mask in found.masks]
    assert paths == sorted(paths)


def test_hooks_are_hidden_everywhere_where_none_may_run(base: Path) -> None:
    policy = SandboxPolicy(
        base / "work",
        readable=(str(base / "library"),),
        writable=(str(base / "shared"),),
        git_hooks=False,
    )
    found = kinds(OpenedFolderScanner(policy, home=str(base / "home")).scan(), base)
    for folder in ("work", "library", "shared"):
        assert found[f"{folder}/.git/hooks"] is MaskKind.EMPTY_FOLDER
    opened = SandboxPolicy(
        base / "work",
        readable=(str(base / "library/.git/hooks"),),
        writable=(str(base / "shared/.git/hooks"),),
    )
    found = kinds(OpenedFolderScanner(opened, home=str(base / "home")).scan(), base)
    assert found["library/.git/hooks"] is MaskKind.EMPTY_FOLDER
    assert found["shared/.git/hooks"] is MaskKind.READ_ONLY


def test_what_changes_in_an_opened_folder_is_seen_by_the_next_scan(base: Path) -> None:
    scanner = OpenedFolderScanner(SandboxPolicy(base / "work", writable=(str(base / "shared"),)))
    scanner.scan()
    made = base / "shared/src/new.key"
    made.write_text("x")
    found = scanner.scan()
    assert found.added == (str(made),)
    own = scanner.scan([identify_path(made)])
    assert own.removed == (str(made),)
    assert own.own_seen == {identify_path(made)}


def test_the_inner_of_two_folders_decides_for_what_is_in_it(base: Path) -> None:
    (base / "work/notes").mkdir()
    (base / "work/notes/x.txt").write_text("x")
    policy = SandboxPolicy(
        base / "work", names=ProtectedNames(reserved=("/notes",)), readable=(str(base),)
    )
    found = kinds(OpenedFolderScanner(policy, home=str(base / "home")).scan(), base)
    assert found["work/notes"] is MaskKind.EMPTY_FOLDER  # a name of the workspace's root
    assert found["shared/.env"] is found["work/.env"] is MaskKind.UNREADABLE


def test_deny_rules_that_name_something_in_an_opened_folder_hold_there(base: Path) -> None:
    rules = RuleSet.parse(deny=[f"Read(/{base}/library/src/**)", "Read(src/plain.py)"])
    denials = PathDenials(rules.deny, str(base / "work"), str(base / "home"))
    policy = SandboxPolicy(
        base / "work",
        names=ProtectedNames(rules=(denials,)),
        readable=(str(base / "library"), str(base / "shared")),
    )
    found = OpenedFolderScanner(policy, home=str(base / "home")).scan()
    assert kinds(found, base)["library/src"] is MaskKind.EMPTY_FOLDER
    assert kinds(found, base)["work/src/plain.py"] is MaskKind.UNREADABLE
    assert "shared/src/plain.py" not in kinds(found, base)


def test_a_folder_that_would_hide_the_workspace_is_an_error_that_says_so(tmp_path: Path) -> None:
    root = tmp_path / ".aws/work"
    root.mkdir(parents=True)
    (tmp_path / ".aws/credentials").write_text("x")
    with pytest.raises(ConfigError, match="below") as raised:
        OpenedFolderScanner(SandboxPolicy(root, readable=(str(tmp_path),))).scan()
    assert "smaller" in raised.value.hint


def test_links_in_opened_folders_are_covered_only_if_they_are_known_secrets(base: Path) -> None:
    (base / "home/.ssh").mkdir(parents=True)
    (base / "home/.ssh/id_rsa").write_text("x")
    (base / "cache").mkdir()
    (base / "cache/module.py").write_text("x")
    os.link(base / "cache/module.py", base / "library/module.py")
    os.link(base / "home/.ssh/id_rsa", base / "library/notes.txt")
    found = kinds(scan(base, readable=("library",)), base / "library")
    assert "module.py" not in found
    assert found["notes.txt"] is MaskKind.UNREADABLE


def test_a_folder_of_packages_has_packages_by_every_name(base: Path) -> None:
    packages = base / "v/lib/python3/site-packages"
    for name in ("agents/__init__.py", "sitecustomize.py", "x/.env", "x/server.key"):
        (packages / name).parent.mkdir(parents=True, exist_ok=True)
        (packages / name).write_text("x")
    found = kinds(scan(base, readable=("v/lib/python3/site-packages",)), packages)
    assert found == {"x/.env": MaskKind.UNREADABLE, "x/server.key": MaskKind.UNREADABLE}


def test_a_single_file_that_was_opened_is_left_as_it_is(base: Path) -> None:
    assert kinds(scan(base, readable=("shared/.env", "gone")), base / "shared") == {}


def test_the_masks_of_all_folders_together_are_bounded(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opened_folders, "MAX_MASKS", 8)
    with pytest.raises(ConfigError, match="at most 8"):
        scan(base, writable=("shared",))


def test_the_next_scanner_of_a_process_reads_only_the_folders_that_changed(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each MCP server has a scanner of its own: what they all open is read once."""
    packages = base / "packages"
    for number in range(30):
        (packages / str(number)).mkdir(parents=True)
        (packages / str(number) / "module.py").touch()
    long_ago = time.time() - 60
    for place in (packages, *packages.rglob("*")):
        os.utime(place, (long_ago, long_ago))
    monkeypatch.setattr(masks, "QUIET_NANOSECONDS", 0)
    read: list[str] = []
    scan_folder = os.listdir

    def count(folder: int) -> object:
        read.append(os.readlink(f"/proc/self/fd/{folder}"))
        return scan_folder(folder)

    scan(base, readable=("packages",))
    (packages / "7/.env").write_text("KEY=1")
    monkeypatch.setattr(masks.os, "listdir", count)
    found = kinds(scan(base, readable=("packages",)), packages)
    assert found == {"7/.env": "unreadable_file"}
    assert [name for name in read if name.startswith(str(packages))] == [str(packages / "7")]
