"""The workspace under attack: every test runs with both ways of opening what is beneath the
root.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import socket
import stat
import subprocess
import sys
import threading
import unicodedata
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ConfigError, ToolFailed
from ferrule.permissions import provenance
from ferrule.permissions.filesystem import open_beneath
from ferrule.permissions.filesystem.entry import FileEntry
from ferrule.permissions.filesystem.workspace import ABSENT, Workspace
from ferrule.permissions.protected_names import DEFAULT_NAMES, ProtectedNames

SECRET = b"outside, and not for tools"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder beside the workspace, its name beginning like the workspace's."""
    folder = tmp_path / "work2"
    folder.mkdir()
    (folder / "secret.txt").write_bytes(SECRET)
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    (folder / "src").mkdir(parents=True)
    (folder / "a.txt").write_bytes(b"hello\n")
    (folder / "src" / "b.py").write_bytes(b"pass\n")
    return folder


@pytest.fixture(params=["openat2", "walk"])
def workspace(root: Path, request: pytest.FixtureRequest) -> Iterator[Workspace]:
    way = {"openat2": open_beneath.open_by_openat2, "walk": open_beneath.open_by_walk}[
        request.param
    ]
    if (
        way is open_beneath.open_by_openat2
        and open_beneath.select_open_folder() is open_beneath.open_by_walk
    ):
        pytest.skip("this kernel (or a filter on system calls) has no openat2")
    opened = Workspace(root, open_folder=way)
    yield opened
    opened.close()


def refused(call: Callable[[], object]) -> ToolFailed:
    with pytest.raises(ToolFailed) as failure:
        call()
    return failure.value


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def tree(folder: Path) -> dict[str, bytes | None]:
    """Everything below a folder: content of files, None for what is no file."""
    return {
        str(p.relative_to(folder)): p.read_bytes() if p.is_file() and not p.is_symlink() else None
        for p in sorted(folder.rglob("*"))
    }


# Reading


def test_a_file_is_read_by_relative_and_by_absolute_path(workspace: Workspace, root: Path) -> None:
    assert workspace.read("a.txt") == b"hello\n"
    assert workspace.read("./src/../a.txt") == b"hello\n"
    assert workspace.read(str(root / "src" / "b.py")) == b"pass\n"


def test_an_absolute_path_may_spell_the_root_through_a_link(root: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(root)
    workspace = Workspace(tmp_path / "alias")
    assert workspace.read(str(tmp_path / "alias" / "a.txt")) == b"hello\n"
    assert workspace.read(str(root / "a.txt")) == b"hello\n"


@pytest.mark.proves("workspace.sibling-prefix")
def test_a_sibling_folder_with_the_same_prefix_is_outside(
    workspace: Workspace, outside: Path
) -> None:
    for path in (str(outside / "secret.txt"), "../work2/secret.txt", "src/../../work2/secret.txt"):
        assert (
            refused(lambda path=path: workspace.read(path)).error_type
            is ErrorType.PERMISSION_DENIED
        )


@pytest.mark.proves("workspace.symlink-in", "workspace.symlink-out")
@pytest.mark.parametrize(
    ("link", "target", "path"),
    [
        ("l", "a.txt", "l"),
        ("l", "src", "l/b.py"),
        ("l", "src", "l"),
        ("l", "{outside}/secret.txt", "l"),
        ("l", "{outside}", "l/secret.txt"),
        ("l", "../work2/secret.txt", "l"),
        ("src/l", "..", "src/l/a.txt"),
        ("l", "/proc/self/root{outside}/secret.txt", "l"),
        ("l", "/proc/self/fd", "l/0"),
        ("l", "l", "l"),
        ("l", "nothing", "l"),
    ],
)
def test_no_link_is_followed_wherever_it_points(
    workspace: Workspace, root: Path, outside: Path, link: str, target: str, path: str
) -> None:
    (root / link).symlink_to(target.format(outside=outside))
    for call in (
        lambda: workspace.read(path),
        lambda: workspace.write(path, b"x"),
        lambda: workspace.write(path + "/new", b"x"),
        lambda: workspace.make_dir(path + "/new"),
        lambda: workspace.entries(path),
        lambda: list(workspace.walk(path)),
        lambda: workspace.open_descriptor(path),
        lambda: workspace.move("a.txt", path + "/new"),
    ):
        failure = refused(call)
        assert failure.error_type is ErrorType.PERMISSION_DENIED, failure
        assert "link" in failure.message
    assert (root / "a.txt").read_bytes() == b"hello\n"
    assert tree(outside) == {"secret.txt": SECRET}


def test_a_link_on_the_way_is_not_followed_by_stat_move_and_delete(
    workspace: Workspace, root: Path, outside: Path
) -> None:
    (root / "l").symlink_to(outside)
    for call in (
        lambda: workspace.stat("l/secret.txt"),
        lambda: workspace.delete("l/secret.txt"),
        lambda: workspace.move("l/secret.txt", "mine.txt"),
        lambda: workspace.move("a.txt", "l/a.txt", overwrite=True),
    ):
        assert refused(call).error_type is ErrorType.PERMISSION_DENIED
    assert tree(outside) == {"secret.txt": SECRET}


def test_dots_after_a_link_are_taken_as_text(
    workspace: Workspace, root: Path, outside: Path
) -> None:
    (root / "l").symlink_to(outside / "deep")
    assert workspace.read("l/../a.txt") == b"hello\n"


def test_a_link_is_listed_described_moved_and_deleted_as_itself(
    workspace: Workspace, root: Path, outside: Path
) -> None:
    (root / "l").symlink_to(outside)
    assert workspace.stat("l").kind == "link"
    assert {e.name: e.kind for e in workspace.entries()} == {
        "a.txt": "file",
        "l": "link",
        "src": "dir",
    }
    assert "l/secret.txt" not in [e.path for e in workspace.walk()]
    workspace.move("l", "m")
    assert (root / "m").is_symlink()
    workspace.delete("m")
    assert tree(outside) == {"secret.txt": SECRET}


def test_pipes_sockets_devices_and_folders_are_refused_without_waiting(
    workspace: Workspace, root: Path
) -> None:
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(root / "socket"))
        names = ["pipe", "socket", "src", ""]
        if os.geteuid() == 0:
            os.mknod(root / "zero", stat.S_IFCHR | 0o666, os.makedev(1, 5))
            names.append("zero")
        for name in names:
            for call in (lambda n=name: workspace.read(n), lambda n=name: workspace.write(n, b"x")):
                assert refused(call).error_type is ErrorType.VALIDATION_FAILED
    assert stat.S_ISFIFO((root / "pipe").stat().st_mode)


def test_a_file_used_as_a_folder_is_not_found(workspace: Workspace) -> None:
    for path in ("a.txt/b", "a.txt/b/c"):
        failure = refused(lambda path=path: workspace.read(path))
        assert failure.error_type is ErrorType.NOT_FOUND
        assert path in failure.message


def test_a_missing_file_is_named_with_what_is_near(workspace: Workspace, root: Path) -> None:
    (root / "config.toml").write_text("")
    (root / "config.env").write_text("")
    failure = refused(lambda: workspace.read("config.txt"))
    assert (failure.error_type, failure.message) == (
        ErrorType.NOT_FOUND,
        "not found: `config.txt` does not exist; did you mean `config.toml`?",
    )
    assert "list_files" in refused(lambda: workspace.read("nowhere/x")).message


def test_a_file_over_the_limit_is_refused_by_size(workspace: Workspace, root: Path) -> None:
    with (root / "big").open("wb") as file:
        file.truncate(50 * 1024 * 1024)
    failure = refused(lambda: workspace.read("big"))
    assert failure.error_type is ErrorType.LIMIT
    assert "52428800" in failure.message
    with (root / "big").open("wb") as file:
        file.truncate(10 * 1024 * 1024 + 1)
    assert "10485761" in refused(lambda: workspace.read("big")).message
    with (root / "big").open("wb") as file:
        file.truncate(10 * 1024 * 1024)
    assert len(workspace.read("big")) == 10 * 1024 * 1024


def test_text_is_utf8_with_bad_bytes_marked_and_binary_refused(
    workspace: Workspace, root: Path
) -> None:
    (root / "latin").write_bytes("é\n".encode("latin-1"))
    (root / "binary").write_bytes(b"ELF\0\1\2")
    (root / "utf16").write_bytes("text".encode("utf-16"))
    assert workspace.read_text("latin") == "\ufffd\n"
    for name in ("binary", "utf16"):
        assert (
            refused(lambda name=name: workspace.read_text(name)).error_type is ErrorType.PARSE_ERROR
        )


def test_a_file_that_the_system_denies_is_an_io_error(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Root may read everything, so the kernel's answer is put in its place here.
    def denied(*_: object, **__: object) -> int:
        raise PermissionError(errno.EACCES, "denied")

    monkeypatch.setattr("ferrule.permissions.filesystem.regular_files.os.open", denied)
    failure = refused(lambda: workspace.read("a.txt"))
    assert failure.error_type is ErrorType.IO_ERROR
    assert "`a.txt`" in failure.message


# Names on the lists


UNTOUCHABLE = [
    ".env",
    "src/.ENV.local",
    "agents/harvey.yaml",
    "k.pem",
    ".git/config",
    "k.pem::$DATA",
    ".ferrule/x",
    "ａgents",
]


@pytest.mark.proves("workspace.names-before-files")
@pytest.mark.parametrize("path", UNTOUCHABLE)
@pytest.mark.parametrize("there", [True, False])
def test_an_untouchable_name_is_refused_by_every_method_whether_it_exists_or_not(
    workspace: Workspace, root: Path, path: str, there: bool
) -> None:
    if there:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(SECRET)
    before = tree(root)
    for call in (
        lambda: workspace.read(path),
        lambda: workspace.open(path),
        lambda: workspace.stat(path),
        lambda: workspace.write(path, b"x"),
        lambda: workspace.make_dir(path),
        lambda: workspace.make_dir(path + "/below"),
        lambda: workspace.entries(path),
        lambda: workspace.walk(path),
        lambda: workspace.open_descriptor(path),
        lambda: workspace.delete(path, recursive=True),
        lambda: workspace.move(path, "mine.txt"),
        lambda: workspace.move("a.txt", path, overwrite=True),
        lambda: workspace.check_name(str(root / path), write=False),
    ):
        failure = refused(call)
        assert failure.error_type is ErrorType.PERMISSION_DENIED
        assert "rule `" in failure.message
    assert tree(root) == before


def test_names_alone_are_those_of_the_entries_with_the_same_kinds(
    workspace: Workspace, root: Path, outside: Path
) -> None:
    for name in ("agents/x", ".env", "k.pem", ".hidden", "~", "line\nbreak", "a b.txt"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("x")
    (root / os.fsdecode(b"not-utf-8-\xff")).touch()
    (root / "link").symlink_to(outside)
    (root / "dangling").symlink_to("nowhere")
    os.mkfifo(root / "pipe")
    refused_names: list[str] = []
    left_out: list[str] = []
    entries = workspace.entries(left_out=refused_names)
    listing = workspace.list_names(left_out=left_out)
    found = workspace.stat_names("", sorted(listing.names))
    assert sorted(left_out) == refused_names == [".env", "agents", "k.pem"]
    assert [FileEntry.from_stat(*one) for one in found] == entries
    assert [listing.kind(name) for name, _ in found] == [entry.kind for entry in entries]
    assert listing.counts() == Counter(entry.kind for entry in entries)
    assert listing.leave_out_hidden() == 1
    assert ".hidden" not in listing.names


@pytest.mark.proves("reserved.protected")
def test_a_folder_that_may_not_be_written_is_listed_like_others(
    workspace: Workspace, root: Path
) -> None:
    (root / ".vscode").mkdir()
    (root / ".vscode/settings.json").write_text("{}")
    names = ["settings.json"]
    assert list(workspace.list_names(".vscode").names) == names
    assert [name for name, _ in workspace.stat_names(".vscode", names)] == names
    assert [name for name, _ in workspace.scan(".vscode")] == names
    assert [entry.path for entry in workspace.entries(".vscode")] == [".vscode/settings.json"]
    assert [entry.path for entry in workspace.walk(".vscode")] == [".vscode/settings.json"]
    assert workspace.stat(".vscode/settings.json").size == 2
    assert workspace.read(".vscode/settings.json") == b"{}"


def test_names_of_a_folder_are_looked_at_only_there_and_never_those_on_the_lists(
    workspace: Workspace, root: Path
) -> None:
    (root / "src" / "k.pem").write_text("x")
    found = workspace.stat_names("src", ["b.py", "k.pem", "gone"])
    assert [name for name, _ in found] == ["b.py"]
    for name in ("../a.txt", "..", ".", "", "/etc/passwd"):
        with pytest.raises(ValueError, match="names in the folder"):
            workspace.stat_names("src", [name])
    for call in (workspace.list_names, lambda path: workspace.stat_names(path, ["x"])):
        assert refused(lambda c=call: c("../work2")).error_type is ErrorType.PERMISSION_DENIED
        assert (
            refused(lambda c=call: c("a.txt")).message
            == "`a.txt` is a file, not a folder; use `read_file`"
        )
        assert refused(lambda c=call: c("none")).error_type is ErrorType.NOT_FOUND


def test_listings_leave_untouchable_names_out_and_count_them(
    workspace: Workspace, root: Path
) -> None:
    for name in ("agents/x", ".env", "src/k.pem", ".git/config", ".git/HEAD"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("x")
    left_out: list[str] = []
    assert [e.path for e in workspace.entries(left_out=left_out)] == [".git", "a.txt", "src"]
    assert left_out == [".env", "agents"]
    assert [e.path for e in workspace.entries(".git")] == [".git/HEAD"]
    left_out.clear()
    assert [e.path for e in workspace.walk(hidden=True, left_out=left_out)] == [
        "a.txt",
        "src",
        "src/b.py",
    ]
    assert left_out == [".env", "agents", "src/k.pem"]


def test_protected_names_are_read_and_not_written(workspace: Workspace, root: Path) -> None:
    (root / ".github" / "workflows").mkdir(parents=True)
    (root / ".github" / "workflows" / "ci.yml").write_text("on: push\n")
    assert workspace.read(".github/workflows/ci.yml") == b"on: push\n"
    for call in (
        lambda: workspace.write(".github/workflows/ci.yml", b""),
        lambda: workspace.delete(".github", recursive=True),
        lambda: workspace.move(".github", "github"),
        lambda: workspace.move("src", ".vscode"),
    ):
        assert refused(call).error_type is ErrorType.PERMISSION_DENIED
    assert (root / ".github" / "workflows" / "ci.yml").read_text() == "on: push\n"


def test_a_folder_that_holds_an_untouchable_name_is_neither_moved_nor_deleted(
    workspace: Workspace, root: Path
) -> None:
    (root / "src" / "deep").mkdir()
    (root / "src" / "deep" / ".env").write_text("TOKEN=1")
    before = tree(root)
    for call in (
        lambda: workspace.move("src", "lib"),
        lambda: workspace.delete("src", recursive=True),
    ):
        failure = refused(call)
        assert failure.error_type is ErrorType.PERMISSION_DENIED
        assert "`src/deep/.env`" in failure.message
    assert tree(root) == before


def test_a_folder_is_not_moved_to_where_its_content_would_become_a_protected_name(
    workspace: Workspace, root: Path
) -> None:
    (root / "src" / "workflows").mkdir()
    (root / "src" / "workflows" / "x.yml").write_text("")
    assert "workflows" in refused(lambda: workspace.move("src", ".github")).message
    (root / "src" / "workflows" / "x.yml").unlink()
    (root / "src" / "workflows").rmdir()
    assert workspace.move("src", ".github").kind == "dir"


# Hard links


@pytest.mark.proves("workspace.hard-link")
def test_another_name_of_a_file_outside_is_not_read(
    workspace: Workspace, root: Path, outside: Path
) -> None:
    os.link(outside / "secret.txt", root / "notes.txt")
    failure = refused(lambda: workspace.read("notes.txt"))
    assert failure.error_type is ErrorType.PERMISSION_DENIED
    assert "hard links" in failure.message
    workspace.write("notes.txt", b"mine now")
    assert (outside / "secret.txt").read_bytes() == SECRET
    assert workspace.read("notes.txt") == b"mine now"


@pytest.mark.proves("workspace.hard-link")
def test_another_name_of_a_secret_inside_is_not_read(workspace: Workspace, root: Path) -> None:
    (root / ".env").write_bytes(SECRET)
    os.link(root / ".env", root / "notes.txt")
    assert refused(lambda: workspace.read("notes.txt")).error_type is ErrorType.PERMISSION_DENIED
    (root / ".env").unlink()
    assert workspace.read("notes.txt") == SECRET


@pytest.mark.proves("workspace.hard-link")
def test_two_ordinary_names_of_one_file_are_read(
    workspace: Workspace, root: Path, outside: Path
) -> None:
    os.link(root / "a.txt", root / "src" / "same.txt")
    assert workspace.read("a.txt") == workspace.read("src/same.txt") == b"hello\n"
    os.link(root / "a.txt", outside / "escaped.txt")
    assert refused(lambda: workspace.read("a.txt")).error_type is ErrorType.PERMISSION_DENIED


@pytest.mark.proves("workspace.hard-link")
def test_names_of_two_files_are_not_counted_together(
    workspace: Workspace, root: Path, outside: Path
) -> None:
    os.link(outside / "secret.txt", root / "notes.txt")
    os.link(root / "a.txt", root / "src" / "same.txt")
    assert workspace.read("a.txt") == b"hello\n"
    assert refused(lambda: workspace.read("notes.txt")).error_type is ErrorType.PERMISSION_DENIED


@pytest.mark.proves("workspace.hard-link")
def test_a_person_can_allow_linked_files(root: Path, outside: Path) -> None:
    os.link(outside / "secret.txt", root / "cached.py")
    assert Workspace(root, linked=True).read("cached.py") == SECRET


# Writing


def test_writing_replaces_the_file_and_keeps_its_mode(workspace: Workspace, root: Path) -> None:
    (root / "a.txt").chmod(0o750)
    entry = workspace.write("a.txt", b"new")
    assert (entry.path, entry.size, entry.mode) == ("a.txt", 3, 0o750)
    assert (root / "a.txt").read_bytes() == b"new"
    assert sorted(os.listdir(root)) == ["a.txt", "src"]


def test_writing_drops_set_user_id(workspace: Workspace, root: Path) -> None:
    (root / "a.txt").chmod(0o4755)
    assert workspace.write("a.txt", b"new").mode == 0o755


def test_a_new_file_has_the_mode_of_any_new_file(workspace: Workspace, root: Path) -> None:
    (root / "made-by-python").touch()
    assert workspace.write("new", b"").mode == stat.S_IMODE(
        (root / "made-by-python").stat().st_mode
    )


def test_a_write_that_expects_other_content_changes_nothing(
    workspace: Workspace, root: Path
) -> None:
    failure = refused(lambda: workspace.write("a.txt", b"x", expect=sha(b"something else")))
    assert failure.error_type is ErrorType.IO_ERROR
    assert "changed since it was read" in failure.message
    assert tree(root)["a.txt"] == b"hello\n"
    assert sorted(os.listdir(root)) == ["a.txt", "src"]
    workspace.write("a.txt", b"x", expect=sha(b"hello\n"))
    assert workspace.read("a.txt") == b"x"


def test_a_write_can_insist_that_the_file_is_new_or_old(workspace: Workspace, root: Path) -> None:
    assert (
        refused(lambda: workspace.write("a.txt", b"x", expect=ABSENT)).error_type
        is ErrorType.VALIDATION_FAILED
    )
    assert (
        refused(lambda: workspace.write("b.txt", b"x", create=False)).error_type
        is ErrorType.NOT_FOUND
    )
    assert (
        refused(lambda: workspace.write("b.txt", b"x", expect=sha(b""))).error_type
        is ErrorType.IO_ERROR
    )
    assert tree(root) == {"a.txt": b"hello\n", "src": None, "src/b.py": b"pass\n"}
    workspace.write("b.txt", b"x", expect=ABSENT)
    assert workspace.read("b.txt") == b"x"


def test_of_many_writers_that_saw_the_same_content_exactly_one_wins(workspace: Workspace) -> None:
    start = threading.Barrier(8)
    won: list[int] = []

    def write(number: int) -> None:
        start.wait(timeout=10)
        try:
            workspace.write("a.txt", str(number).encode(), expect=sha(b"hello\n"))
        except ToolFailed:
            return
        won.append(number)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=10)
    assert len(won) == 1
    assert workspace.read("a.txt") == str(won[0]).encode()


def test_a_missing_folder_is_not_made_by_writing(workspace: Workspace, root: Path) -> None:
    assert refused(lambda: workspace.write("new/x", b"")).error_type is ErrorType.NOT_FOUND
    assert not (root / "new").exists()


def test_a_crash_between_writing_and_renaming_leaves_the_old_file_and_nothing_a_tool_can_see(
    workspace: Workspace, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class PowerCut(BaseException):
        pass

    def cut(*_: object, **__: object) -> None:
        raise PowerCut

    monkeypatch.setattr("ferrule.permissions.filesystem.atomic_write.rename", cut)
    monkeypatch.setattr("ferrule.permissions.filesystem.atomic_write.os.unlink", cut)
    with pytest.raises(PowerCut):
        workspace.write("a.txt", b"half")
    monkeypatch.undo()
    left = [name for name in os.listdir(root) if name not in ("a.txt", "src")]
    assert len(left) == 1
    assert workspace.read("a.txt") == b"hello\n"
    assert [e.name for e in workspace.entries()] == ["a.txt", "src"]
    assert refused(lambda: workspace.read(left[0])).error_type is ErrorType.PERMISSION_DENIED


@pytest.fixture
def mounted(root: Path) -> Iterator[Path]:
    """A file system of 64 KiB in the workspace."""
    folder = root / "small"
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("this machine does not let us mount a file system")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_is_reported_and_leaves_the_old_file(
    workspace: Workspace, mounted: Path
) -> None:
    workspace.write("small/x", b"old")
    failure = refused(lambda: workspace.write("small/x", b"n" * 100_000))
    assert failure.error_type is ErrorType.IO_ERROR
    assert "disk is full" in failure.message
    assert tree(mounted) == {"x": b"old"}
    workspace.write("small/x", b"fits")
    assert tree(mounted) == {"x": b"fits"}


def test_a_read_only_folder_is_reported_and_leaves_the_old_file(
    workspace: Workspace, mounted: Path
) -> None:
    workspace.write("small/x", b"old")
    subprocess.run(["mount", "-o", "remount,ro", str(mounted)], check=True)
    for call in (
        lambda: workspace.write("small/x", b"new"),
        lambda: workspace.write("small/y", b"new"),
        lambda: workspace.make_dir("small/d"),
        lambda: workspace.move("small/x", "small/y"),
        lambda: workspace.delete("small/x"),
    ):
        failure = refused(call)
        assert failure.error_type is ErrorType.IO_ERROR
        assert "read-only" in failure.message
    assert tree(mounted) == {"x": b"old"}


def test_moving_to_another_file_system_is_reported(workspace: Workspace, mounted: Path) -> None:
    failure = refused(lambda: workspace.move("a.txt", "small/a.txt"))
    assert (failure.error_type, "file system" in failure.message) == (ErrorType.IO_ERROR, True)
    assert workspace.read("a.txt") == b"hello\n"


# Folders, moving, deleting


def test_folders_are_made_with_those_above_and_again_without_complaint(
    workspace: Workspace, root: Path
) -> None:
    assert workspace.make_dir("x/y/z").path == "x/y/z"
    assert workspace.make_dir("x/y/z").kind == "dir"
    assert (
        refused(lambda: workspace.make_dir("p/q", parents=False)).error_type is ErrorType.NOT_FOUND
    )
    assert refused(lambda: workspace.make_dir("a.txt")).error_type is ErrorType.VALIDATION_FAILED
    assert refused(lambda: workspace.make_dir("a.txt/x")).error_type is ErrorType.NOT_FOUND
    assert not (root / "p").exists()


def test_moving_replaces_a_file_only_if_told_to(workspace: Workspace, root: Path) -> None:
    assert (
        refused(lambda: workspace.move("a.txt", "src/b.py")).error_type
        is ErrorType.VALIDATION_FAILED
    )
    assert tree(root)["src/b.py"] == b"pass\n"
    workspace.move("a.txt", "src/b.py", overwrite=True)
    assert tree(root) == {"src": None, "src/b.py": b"hello\n"}


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("src", "src"),
        ("src", "src/in"),
        ("src", "a.txt"),
        ("a.txt", "src"),
        ("", "x"),
        ("a.txt", ""),
        ("src", "empty"),
    ],
)
@pytest.mark.parametrize("overwrite", [True, False])
def test_moves_that_make_no_sense_change_nothing(
    workspace: Workspace, root: Path, source: str, target: str, overwrite: bool
) -> None:
    (root / "empty").mkdir()
    before = tree(root)
    failure = refused(lambda: workspace.move(source, target, overwrite=overwrite))
    assert failure.error_type is ErrorType.VALIDATION_FAILED
    assert tree(root) == before


def test_a_folder_is_deleted_only_if_empty_or_told_to(
    workspace: Workspace, root: Path, outside: Path
) -> None:
    (root / "src" / "l").symlink_to(outside)
    failure = refused(lambda: workspace.delete("src"))
    assert failure.error_type is ErrorType.VALIDATION_FAILED
    assert "recursive" in failure.message
    workspace.delete("src", recursive=True)
    assert (
        refused(lambda: workspace.delete("", recursive=True)).error_type
        is ErrorType.VALIDATION_FAILED
    )
    assert tree(root) == {"a.txt": b"hello\n"}
    assert tree(outside) == {"secret.txt": SECRET}


def test_a_walk_goes_depth_first_by_name_and_skips_what_is_hidden(
    workspace: Workspace, root: Path
) -> None:
    (root / "src" / "a").mkdir()
    (root / "src" / "a" / "z.txt").write_text("")
    (root / ".hidden").mkdir()
    (root / ".hidden" / "x").write_text("")
    assert [e.path for e in workspace.walk()] == [
        "a.txt",
        "src",
        "src/a",
        "src/a/z.txt",
        "src/b.py",
    ]
    assert [e.path for e in workspace.walk("src/a")] == ["src/a/z.txt"]
    assert ".hidden/x" in [e.path for e in workspace.walk(hidden=True)]
    assert refused(lambda: list(workspace.walk(limit=3))).error_type is ErrorType.LIMIT


def test_a_name_that_is_not_utf8_is_shown_and_does_not_break_anything(
    workspace: Workspace, root: Path
) -> None:
    (Path(os.fsdecode(os.fsencode(root) + b"/d\xff"))).mkdir()
    (Path(os.fsdecode(os.fsencode(root) + b"/d\xff/x"))).write_text("")
    assert [e.path for e in workspace.walk()] == [
        "a.txt",
        "d\ufffd",
        "d\ufffd/x",
        "src",
        "src/b.py",
    ]
    assert all(e.path.encode() for e in workspace.walk())


def test_listing_a_file_is_refused_with_the_tool_to_use(workspace: Workspace) -> None:
    failure = refused(lambda: workspace.entries("a.txt"))
    assert failure.error_type is ErrorType.VALIDATION_FAILED
    assert "read_file" in failure.message
    assert refused(lambda: workspace.entries("a.txt/x")).error_type is ErrorType.NOT_FOUND


def test_a_folder_can_be_had_as_a_descriptor(workspace: Workspace, root: Path) -> None:
    descriptor = workspace.open_descriptor("src")
    try:
        assert os.listdir(descriptor) == ["b.py"]
    finally:
        os.close(descriptor)


def test_a_root_that_is_no_folder_is_a_configuration_error(root: Path) -> None:
    for wrong in (root / "missing", root / "a.txt"):
        with pytest.raises(ConfigError, match="workspace"):
            Workspace(wrong)


def test_a_closed_workspace_does_not_work_in_whatever_got_its_descriptor(
    root: Path, outside: Path
) -> None:
    workspace = Workspace(root)
    workspace.close()
    workspace.close()
    taken = [os.open(outside, os.O_RDONLY) for _ in range(8)]
    try:
        for call in (
            lambda: workspace.read("secret.txt"),
            workspace.entries,
            lambda: workspace.write("x", b""),
        ):
            assert refused(call).error_type is ErrorType.IO_ERROR
    finally:
        for descriptor in taken:
            os.close(descriptor)
    assert tree(outside) == {"secret.txt": SECRET}


def test_no_descriptor_is_left_open(workspace: Workspace, root: Path) -> None:
    (root / "l").symlink_to("src")
    os.mkfifo(root / "pipe")
    before = len(os.listdir("/proc/self/fd"))
    for path in ("a.txt", "src", "l", "l/b.py", "pipe", "missing", "src/b.py/x", ".env"):
        for call in (workspace.read, workspace.stat, workspace.entries, workspace.make_dir):
            try:
                call(path)
            except ToolFailed:
                continue
    list(workspace.walk())
    assert len(os.listdir("/proc/self/fd")) == before


# Races


@pytest.mark.proves("workspace.swap-race")
def test_a_folder_swapped_for_a_link_while_it_is_used_never_leads_out(
    workspace: Workspace, root: Path, outside: Path
) -> None:
    (root / "d").mkdir()
    (root / "d" / "secret.txt").write_bytes(b"inside")
    (root / "link").symlink_to(outside)
    stop = threading.Event()
    swaps = 0

    def swap() -> None:
        nonlocal swaps
        while not stop.is_set():
            os.rename(root / "d", root / "aside")
            os.rename(root / "link", root / "d")
            os.rename(root / "d", root / "link")
            os.rename(root / "aside", root / "d")
            swaps += 1

    swapping = threading.Thread(target=swap)
    swapping.start()
    seen: set[bytes] = set()
    tries = 0
    try:
        while tries < 1500 or ((swaps < 50 or b"inside" not in seen) and tries < 100_000):
            tries += 1
            for use in (
                lambda: workspace.read("d/secret.txt"),
                lambda: workspace.write("d/new.txt", b"x") and b"",
                lambda: workspace.delete("d/new.txt") or b"",
            ):
                try:
                    seen.add(use())
                except ToolFailed:
                    continue
    finally:
        stop.set()
        swapping.join(timeout=10)
    assert swaps > 0
    assert b"inside" in seen
    assert seen <= {b"inside", b""}
    assert tree(outside) == {"secret.txt": SECRET}


@pytest.mark.proves("workspace.swap-race")
def test_a_file_swapped_for_a_link_while_it_is_used_never_leads_out(
    workspace: Workspace, root: Path, outside: Path
) -> None:
    (root / "f").write_bytes(b"inside")
    (root / "link").symlink_to(outside / "secret.txt")
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            os.rename(root / "link", root / "f")
            os.rename(root / "f", root / "link")
            (root / "f").write_bytes(b"inside")

    swapping = threading.Thread(target=swap)
    swapping.start()
    seen: set[bytes] = set()
    try:
        for _ in range(2000):
            try:
                seen.add(workspace.read("f"))
            except ToolFailed:
                continue
    finally:
        stop.set()
        swapping.join(timeout=10)
    assert SECRET not in seen


def test_a_folder_that_may_be_read_and_not_written_is_listed(workspace: Workspace) -> None:
    (workspace.root / ".vscode").mkdir()
    (workspace.root / ".vscode" / "extensions.json").write_bytes(b"{}")
    assert [entry.name for entry in workspace.walk(".vscode", hidden=True)] == ["extensions.json"]


def test_a_file_in_the_middle_of_a_path_is_no_link(workspace: Workspace) -> None:
    failure = refused(lambda: workspace.read("a.txt/x"))
    assert "link" not in failure.message


# Both ways agree


def test_this_kernel_has_openat2_or_we_say_so() -> None:
    if open_beneath.select_open_folder() is open_beneath.open_by_walk:
        pytest.skip("no openat2 here: only the walk is tested")
    assert open_beneath.select_open_folder() is open_beneath.open_by_openat2


def test_without_openat2_the_walk_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_beneath, "_openat2", lambda: lambda root, path, flags: -errno.ENOSYS)
    open_beneath.select_open_folder.cache_clear()
    try:
        assert open_beneath.select_open_folder() is open_beneath.open_by_walk
    finally:
        monkeypatch.undo()
        open_beneath.select_open_folder.cache_clear()


def test_on_another_system_no_call_is_made_by_a_number_of_linux(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # 437 may be any other call there, and an unknown one ends the process of a Mac (SIGSYS).
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(open_beneath, "_openat2", lambda: pytest.fail("a call by its number"))
    open_beneath.select_open_folder.cache_clear()
    try:
        assert open_beneath.select_open_folder() is open_beneath.open_by_walk
    finally:
        monkeypatch.undo()
        open_beneath.select_open_folder.cache_clear()


def test_a_disturbed_lookup_is_repeated_and_given_up_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = iter([-errno.EAGAIN, -errno.EAGAIN, 7])
    monkeypatch.setattr(open_beneath, "_openat2", lambda: lambda root, path, flags: next(answers))
    assert open_beneath.open_by_openat2(0, ("a",)) == 7
    monkeypatch.setattr(open_beneath, "_openat2", lambda: lambda root, path, flags: -errno.EAGAIN)
    with pytest.raises(BlockingIOError):
        open_beneath.open_by_openat2(0, ("a",))


@pytest.fixture(scope="module")
def maze(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with every kind of thing, beside a folder that must not be reached."""
    base = tmp_path_factory.mktemp("maze")
    (base / "out").mkdir()
    (base / "out" / "f").write_bytes(SECRET)
    root = base / "in"
    for folder in ("d/d", "agents", ".git"):
        (root / folder).mkdir(parents=True)
    for file in ("f", "d/f", "d/d/f", "agents/f", ".env", ".git/config"):
        (root / file).write_bytes(file.encode())
    (root / "in-link").symlink_to("d")
    (root / "d" / "up").symlink_to("..")
    (root / "out-link").symlink_to(base / "out")
    (root / "d" / "out-link").symlink_to("../../out")
    os.mkfifo(root / "pipe")
    return root


_STEPS = st.sampled_from(
    [
        "d",
        "f",
        "..",
        ".",
        "",
        "in-link",
        "out-link",
        "up",
        "pipe",
        "agents",
        ".env",
        ".git",
        "config",
        "out",
        "in",
        "missing",
        "F",
    ]
)


@pytest.mark.proves("workspace.beneath")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(_STEPS, max_size=7),
    absolute=st.sampled_from(["", "{root}/", "{root}/../", "/", "/proc/self/cwd/"]),
)
def test_whatever_opens_is_a_permitted_file_beneath_the_root_and_both_ways_agree(
    maze: Path, steps: list[str], absolute: str
) -> None:
    path = absolute.format(root=maze) + "/".join(steps)
    permitted = {(maze / name).stat().st_ino: name.encode() for name in ("f", "d/f", "d/d/f")}
    ways = (
        [open_beneath.open_by_walk]
        if open_beneath.select_open_folder() is open_beneath.open_by_walk
        else [open_beneath.open_by_walk, open_beneath.open_by_openat2]
    )
    outcomes: list[object] = []
    for way in ways:
        workspace = Workspace(maze, open_folder=way)
        try:
            with workspace.open(path) as file:
                assert permitted[os.fstat(file.fileno()).st_ino] == file.read()
                outcomes.append("opened")
        except ToolFailed as failure:
            outcomes.append((failure.error_type, failure.message))
        finally:
            workspace.close()
    assert len(set(map(str, outcomes))) == 1, outcomes


@given(st.binary(max_size=200), st.binary(max_size=200))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
def test_what_is_written_is_read_back_to_the_byte(maze: Path, first: bytes, second: bytes) -> None:
    workspace = Workspace(maze)
    workspace.write("round-trip", first)
    workspace.write("round-trip", second, expect=sha(first))
    assert workspace.read("round-trip") == second
    workspace.delete("round-trip")


def test_more_names_can_be_forbidden(root: Path) -> None:
    workspace = Workspace(root, names=DEFAULT_NAMES.extend(secret=("a.txt",)))
    assert refused(lambda: workspace.read("a.txt")).error_type is ErrorType.PERMISSION_DENIED
    assert workspace.read("src/b.py") == b"pass\n"


def test_a_file_that_vanishes_while_its_folder_is_listed_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text(name)
    list_folder = os.scandir

    @contextmanager
    def scandir(descriptor: int) -> Generator[list[os.DirEntry[str]]]:
        with list_folder(descriptor) as found:
            items = list(found)
        (tmp_path / "b").unlink()
        yield items

    workspace = Workspace(tmp_path)
    monkeypatch.setattr(os, "scandir", scandir)
    assert [name for name, _ in workspace.scan()] == ["a", "c"]


@pytest.mark.proves("sandbox.own-code")
@pytest.mark.parametrize(
    "change",
    [
        lambda it: it.write("tools/.venv/bin/rg", b"x"),
        lambda it: it.write("tools/.VENV/bin/rg", b"x"),
        lambda it: it.write("tools/.venv/lib/new.py", b"x"),
        lambda it: it.make_dir("tools/.venv/lib/new"),
        lambda it: it.set_executable("tools/.venv/bin/rg", True),
        lambda it: it.delete("tools/.venv/bin/rg"),
        lambda it: it.delete("tools/.venv", recursive=True),
        lambda it: it.delete("tools", recursive=True),
        lambda it: it.delete("current"),
        lambda it: it.move("tools/.venv/bin/rg", "rg"),
        lambda it: it.move("tools/.venv", "other"),
        lambda it: it.move("tools", "other"),
        lambda it: it.move("plain", "tools/.venv/bin/rg", overwrite=True),
        lambda it: it.move("plain", "current", overwrite=True),
    ],
)
def test_no_tool_changes_what_ferrule_runs_from(
    change: Callable[[Workspace], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = tmp_path / "tools/.venv"
    for name in ("bin/rg", "lib/module.py"):
        (prefix / name).parent.mkdir(parents=True, exist_ok=True)
        (prefix / name).write_text("as it was")
    (tmp_path / "plain").write_text("plain")
    (tmp_path / "current").symlink_to("tools/.venv")
    places = (str(prefix), str(tmp_path / "current/bin"))
    monkeypatch.setattr(provenance, "_list_own_code", lambda: iter(places))

    def look() -> dict[Path, tuple[object, ...]]:
        # Without the time of the last reading, which reading changes.
        fields = ("st_mode", "st_ino", "st_nlink", "st_size", "st_mtime_ns", "st_ctime_ns")
        return {
            place: tuple(getattr(place.lstat(), field) for field in fields)
            for place in tmp_path.rglob("*")
        }

    before = look()
    workspace = Workspace(tmp_path)
    error = refused(lambda: change(workspace))
    assert error.error_type is ErrorType.PERMISSION_DENIED
    assert "Ferrule itself runs from" in str(error) and "uv tool install ferrule" in str(error)
    assert look() == before
    workspace.write("tools/beside", b"x")
    workspace.delete("tools/beside")


# ---- other names of a file, and other spellings of a name


def test_a_file_that_is_written_stays_one_file_under_all_its_names(
    workspace: Workspace, root: Path, tmp_path: Path
) -> None:
    (root / "deep").mkdir()
    file = root / "linked.txt"
    file.write_text("old\n")
    (root / "deep/other.txt").hardlink_to(file)
    (root / ".env").hardlink_to(file)
    elsewhere = tmp_path / "elsewhere.txt"
    elsewhere.hardlink_to(file)
    workspace.write("linked.txt", b"new\n", expect=sha(b"old\n"))
    assert (root / "deep/other.txt").read_text() == "new\n"
    assert (root / "deep/other.txt").stat().st_ino == file.stat().st_ino
    # Neither what is outside nor what tools may not write is changed.
    assert elsewhere.read_text() == "old\n" and (root / ".env").read_text() == "old\n"
    assert not [name for name in os.listdir(root / "deep") if name.startswith(".ferrule")]


def test_a_name_is_found_in_the_normal_form_in_which_it_is_on_the_disk(
    workspace: Workspace, root: Path
) -> None:
    composed = unicodedata.normalize("NFC", "Bücher/Café.txt")
    split = unicodedata.normalize("NFD", composed)
    (root / split).parent.mkdir()
    (root / split).write_text("eins\n")
    assert workspace.read_text(composed) == "eins\n"
    workspace.write(composed, b"zwei\n")
    assert [path.name for path in (root / split).parent.iterdir()] == [split.rpartition("/")[2]]
    assert (root / split).read_text() == "zwei\n"
    # Of two that look the same the one that is spelled so is meant.
    (root / split).with_name(composed.rpartition("/")[2]).write_text("drei\n")
    assert (
        workspace.read_text(f"{split.rpartition('/')[0]}/{composed.rpartition('/')[2]}") == "drei\n"
    )
    assert workspace.read_text(split) == "zwei\n"


def test_a_refusal_holds_for_every_normal_form(root: Path) -> None:
    split = unicodedata.normalize("NFD", "Lohn-März.txt")
    (root / split).write_text("geheim\n")
    names = ProtectedNames(secret=(split,))
    with closing(Workspace(root, names=names)) as workspace:
        for path in (split, unicodedata.normalize("NFC", split)):
            assert refused(lambda path=path: workspace.read(path)).error_type == "permission_denied"


def test_a_root_that_was_made_anew_is_found_and_one_behind_a_link_is_not(
    workspace: Workspace, root: Path, tmp_path: Path
) -> None:
    shutil.rmtree(root)
    refused(lambda: workspace.read("a.txt"))
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "a.txt").write_text("not yours\n")
    root.symlink_to(secret)
    refused(lambda: workspace.read("a.txt"))
    root.unlink()
    root.mkdir()
    (root / "a.txt").write_text("new\n")
    assert workspace.read_text("a.txt") == "new\n"
    workspace.write("b.txt", b"written\n")
    assert (root / "b.txt").read_text() == "written\n"
