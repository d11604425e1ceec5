"""What a command would change, read from a real overlay: every change and nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferrule.sandbox.command import Change
from ferrule.sandbox.preview import PreviewedChanges, list_changes

MAX_DEPTH = 128

pytestmark = pytest.mark.skipif(
    not (shutil.which("unshare") and hasattr(os, "getxattr")), reason="needs Linux with unshare(1)"
)

OVERLAY = (
    'mount -t overlay overlay -o "lowerdir=$1,upperdir=$2,workdir=$3,userxattr" "$4" || exit 77; '
    'cd "$4"; '
)


NAMES = st.sampled_from(
    [
        "src",
        "src/a.py",
        "src/deep",
        "src/deep/c.py",
        "docs",
        "docs/x.md",
        "README",
        "new",
        "new/x",
        "link",
        "empty",
        "empty/in",
    ]
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    fill(tmp_path / "root")
    return tmp_path / "root"


def fill(root: Path) -> None:
    """A workspace with a little of everything."""
    for name in (
        "src/a.py",
        "src/b.py",
        "src/deep/c.py",
        "docs/x.md",
        "docs/y.md",
        "README",
        "run.sh",
        "secret/.env",
        "empty/.keep",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"this is {name}\n")
    (root / "empty/.keep").unlink()
    (root / "link").symlink_to("README")


class Overlay:
    """Runs shell scripts over a workspace and looks at what they would change."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root, self.upper = root, folder / "upper"
        self._others = [folder / "work", folder / "merged"]
        for each in (self.upper, *self._others):
            each.mkdir(parents=True)

    def run(self, script: str) -> str:
        ran = subprocess.run(
            [
                "unshare",
                "-Urm",
                "sh",
                "-ec",
                OVERLAY + script,
                "sh",
                self.root,
                self.upper,
                *self._others,
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if ran.returncode == 77 or "unshare" in ran.stderr:
            pytest.skip(f"no overlay in a user namespace here: {ran.stderr.strip()}")
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def changes(self, script: str) -> list[tuple[str, str]]:
        self.run(script)
        return [
            (change.name, change.kind) for change in list_changes(self.upper, self.root).changes
        ]


@pytest.fixture
def overlay(root: Path, tmp_path: Path) -> Overlay:
    return Overlay(root, tmp_path / "over")


def snapshot(root: Path) -> dict[str, bytes | str]:
    """All files below a folder with their content, links with their targets, empty folders as
    such.
    """
    found: dict[str, bytes | str] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = os.readlink(path)
        elif path.is_file():
            found[name] = path.read_bytes()
        elif not any(path.iterdir()):
            found[name + "/"] = ""
    return found


def test_created_changed_and_deleted_files_are_listed_by_name(overlay: Overlay) -> None:
    before = snapshot(overlay.root)
    overlay.run(
        "echo more >> src/a.py; rm docs/x.md; echo new > src/new.py; mkdir -p made/empty; ln "
        "-sf docs link; mkfifo pipe"
    )
    assert list_changes(overlay.upper, overlay.root) == PreviewedChanges((
        Change("docs/x.md", "deleted"),
        Change("link", "changed"),
        Change("made/empty/", "created"),
        Change("pipe", "created"),
        Change("src/a.py", "changed", len("this is src/a.py\nmore\n")),
        Change("src/new.py", "created", 4),
    ))  # fmt: skip
    assert snapshot(overlay.root) == before


def test_a_change_that_keeps_the_size_is_found_wherever_in_the_file_it_is(root: Path) -> None:
    (root / "large").write_bytes(b"x" * 1_000_000)
    script = "sed -i s/this/that/ README; printf y | dd of=large bs=1 seek=999999 conv=notrunc"
    overlay = Overlay(root, root.parent / "overlay")
    assert overlay.changes(script) == [("README", "changed"), ("large", "changed")]


def test_a_file_that_is_what_it_was_is_no_change(overlay: Overlay) -> None:
    script = """
    touch README src/a.py
    cat src/b.py > "$2".copy; cat "$2".copy > src/b.py
    sed -i s/this/that/ docs/x.md; sed -i s/that/this/ docs/x.md
    chmod 600 docs/y.md; chmod 644 docs/y.md
    echo x > gone; rm gone; mkdir away; rmdir away
    mv run.sh walk.sh; mv walk.sh run.sh
    """
    assert overlay.changes(script) == []


def test_rights_are_a_change(overlay: Overlay) -> None:
    assert overlay.changes("chmod +x run.sh; chmod 700 docs") == [
        ("docs/", "changed"),
        ("run.sh", "changed"),
    ]


def test_a_renamed_file_or_folder_is_deleted_and_created(overlay: Overlay) -> None:
    assert overlay.changes("mv README NOTES; mv src lib") == [
        ("NOTES", "created"), ("README", "deleted"),
        ("lib/a.py", "created"), ("lib/b.py", "created"), ("lib/deep/c.py", "created"),
        ("src/a.py", "deleted"), ("src/b.py", "deleted"), ("src/deep/c.py", "deleted"),
    ]  # fmt: skip


def test_a_folder_that_is_made_again_hides_what_was_in_it(overlay: Overlay) -> None:
    script = (
        "rm -r src; mkdir -p src/deep; printf 'this is src/a.py\\n' > src/a.py; echo other > "
        "src/deep/d.py"
    )
    assert overlay.changes(script) == [
        ("src/b.py", "deleted"),
        ("src/deep/c.py", "deleted"),
        ("src/deep/d.py", "created"),
    ]


def test_files_and_folders_that_take_each_others_place(overlay: Overlay) -> None:
    assert overlay.changes(
        "rm README; mkdir README; echo x > README/in; rm -r docs; echo x > docs; rmdir empty; rm "
        "link; mkdir link"
    ) == [
        ("README", "deleted"),
        ("README/in", "created"),
        ("docs", "created"),
        ("docs/x.md", "deleted"),
        ("docs/y.md", "deleted"),
        ("empty/", "deleted"),
        ("link", "deleted"),
        ("link/", "created"),
    ]


ACTIONS = st.one_of(
    st.builds("echo {} > {}".format, st.sampled_from(["x", "y"]), NAMES),
    st.builds("rm -rf {}".format, NAMES),
    st.builds("mkdir -p {}".format, NAMES),
    st.builds("mv {} {}".format, NAMES, NAMES),
    st.builds("cp -r {} copied".format, NAMES),
    st.builds("ln -s {} {}".format, NAMES, NAMES),
    st.builds("ln {} {}".format, NAMES, NAMES),
)


@settings(max_examples=25, deadline=None)
@given(st.lists(ACTIONS, max_size=8))
def test_what_is_listed_is_what_a_copy_of_the_workspace_would_show(actions: list[str]) -> None:
    """The same script on a plain copy: files that differ before and after are those that are
    listed.
    """
    script = "".join(f"{action} 2>/dev/null || true\n" for action in actions)
    with tempfile.TemporaryDirectory() as folder:
        root, copy = Path(folder, "root"), Path(folder, "copy")
        fill(root)
        shutil.copytree(root, copy, symlinks=True)
        before = snapshot(copy)
        listed = dict(Overlay(root, Path(folder, "over")).changes(script))
        subprocess.run(["sh", "-ec", script], cwd=copy, check=True)
        after = snapshot(copy)
    expected = dict.fromkeys(before.keys() - after.keys(), "deleted")
    expected |= dict.fromkeys(after.keys() - before.keys(), "created")
    expected |= {
        name: "changed" for name in before.keys() & after.keys() if before[name] != after[name]
    }
    # An empty folder that was filled, or emptied, is told by its files.
    assert {name: kind for name, kind in listed.items() if name[-1] != "/"} == {
        name: kind for name, kind in expected.items() if name[-1] != "/"
    }
    assert {name for name in listed if name[-1] == "/"} <= expected.keys()


def test_of_a_name_that_no_tool_may_read_neither_size_nor_content_is_told(overlay: Overlay) -> None:
    overlay.run(
        "echo longer-than-before > secret/.env; echo k > server.key; mkdir -p agents; echo x "
        "> agents/a"
    )
    assert list_changes(overlay.upper, overlay.root).changes == (
        Change("agents/a", "created"),
        Change("secret/.env", "changed"),
        Change("server.key", "created"),
    )


def test_whether_a_secret_file_is_what_it_was_is_not_looked_at(overlay: Overlay) -> None:
    assert overlay.changes("touch secret/.env") == [("secret/.env", "changed")]


def test_a_long_list_is_cut_and_says_so(overlay: Overlay) -> None:
    overlay.run("for i in $(seq 50); do echo x > f$i; done; rm -r src docs")
    whole = list_changes(overlay.upper, overlay.root)
    assert len(whole.changes) == 55 and not whole.truncated
    some = list_changes(overlay.upper, overlay.root, max_changes=20)
    assert len(some.changes) == 20 and some.truncated
    assert set(some.changes) <= set(whole.changes)


def test_no_more_is_compared_than_was_agreed_and_the_rest_counts_as_changed(
    overlay: Overlay,
) -> None:
    overlay.run("touch README src/a.py")
    assert list_changes(overlay.upper, overlay.root, max_compared_bytes=20).changes == (
        Change("src/a.py", "changed", 17),
    )


def test_folders_within_folders_end_somewhere(overlay: Overlay) -> None:
    folder = "/".join(["d"] * (MAX_DEPTH + 50))
    overlay.run(f"mkdir -p {folder}; echo x > {folder}/f; echo y > z")
    before = len(os.listdir("/proc/self/fd"))
    seen = list_changes(overlay.upper, overlay.root)
    assert seen.truncated and ("z", "created") in [
        (change.name, change.kind) for change in seen.changes
    ]
    assert len(os.listdir("/proc/self/fd")) == before


def test_links_out_of_the_workspace_are_not_followed(overlay: Overlay, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "f").write_text("x")
    assert overlay.changes(f"rm -r docs; ln -s '{tmp_path}/outside' docs; ln -s / everything") == [
        ("docs", "created"),
        ("docs/x.md", "deleted"),
        ("docs/y.md", "deleted"),
        ("everything", "created"),
    ]


def test_names_that_are_no_text_are_listed_as_text(overlay: Overlay) -> None:
    ((name, kind),) = overlay.changes("echo x > \"$(printf 'caf\\351')\"")
    assert (name, kind) == ("caf\\xe9", "created")
    name.encode()


def test_attributes_that_a_command_sets_itself_hide_nothing(overlay: Overlay) -> None:
    """`trusted.` is what an overlay without `userxattr` goes by: ours does not look at the other
    kind.
    """
    overlay.run("echo more >> src/a.py")
    try:
        os.setxattr(overlay.upper / "src", "user.overlay.opaque", b"y")
    except OSError as problem:
        pytest.skip(f"no attributes here: {problem}")
    assert len(list_changes(overlay.upper, overlay.root).changes) == 3
    assert [
        change.name
        for change in list_changes(overlay.upper, overlay.root, attributes="trusted").changes
    ] == ["src/a.py"]
