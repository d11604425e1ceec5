"""`git_command`: reads the repository, runs nothing else, shows nothing that may not be read."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parent / "git"))

import git_calls

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.permissions.protected_names import DEFAULT_NAMES
from ferrule.toolkits.git.git_command import git_command
from ferrule.toolkits.git.withheld_files import drop_sections, make_exclusions

_TABLE = runpy.run_path(str(Path(__file__).parents[1] / "attacks" / "git.py"))
CONFIGURED: list[dict[str, Any]] = _TABLE["CONFIGURED"]
ARGUMENTS: list[dict[str, Any]] = _TABLE["ARGUMENTS"]

CLEAN = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_AUTHOR_NAME": "A",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "A",
    "GIT_COMMITTER_EMAIL": "a@example.org",
}


def git(root: Path, *arguments: str, stdin: str = "") -> str:
    """Plain git, for preparing repositories."""
    answer = subprocess.run(
        ["git", "-c", "init.defaultBranch=main", "-c", "core.hooksPath=/dev/null", *arguments],
        cwd=root,
        env=CLEAN,
        input=stdin,
        capture_output=True,
        text=True,
        check=True,
    )
    return answer.stdout.strip()


def call(root: Path, subcommand: str, *arguments: str) -> str:
    checked = git_command.arguments.check({"subcommand": subcommand, "args": list(arguments)})
    assert not checked.problems, checked.problems
    context = git_calls.make_context(Workspace(root), resources=RESOURCES)
    return git_calls.run(git_command.handler(**checked.values, context=context))


RESOURCES: dict[type, object] = {}
"""Of each call: what a test puts here for its time."""


@pytest.fixture(autouse=True)
def sessions() -> Iterator[None]:
    yield
    RESOURCES.clear()
    git_calls.close_sessions()


@pytest.fixture(params=["confined", "unconfined"])
def confinement(request: pytest.FixtureRequest) -> None:
    """With a sandbox, and where commands are confined by nothing."""
    if request.param == "unconfined":
        RESOURCES.update(git_calls.UNCONFINED)
    else:
        request.getfixturevalue("commands_are_held")


def refusal(root: Path, subcommand: str, *arguments: str) -> ToolFailed:
    with pytest.raises(ToolFailed) as raised:
        call(root, subcommand, *arguments)
    return raised.value


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three commits, made once."""
    root = tmp_path_factory.mktemp("template") / "work"
    root.mkdir()
    git(root, "init")
    for number, text in enumerate(("one\n", "one\ntwo\n", "one\ntwo\nthree\n"), 1):
        (root / "a.txt").write_text(text)
        (root / "b.txt").write_text("b\n")
        git(root, "add", "-A")
        git(root, "commit", "-m", f"commit {number}")
    return root


@pytest.fixture
def root(tmp_path: Path, template: Path) -> Path:
    """Three commits, and a change that is not committed."""
    root = tmp_path / "work"
    shutil.copytree(template, root)
    (root / "a.txt").write_text("one\ntwo\nthree\nfour\n")
    return root


# ---- what it is for


@pytest.mark.proves("git.all-arguments")
def test_all_arguments_are_passed(root: Path) -> None:
    assert [
        line.split(" ", 1)[1] for line in call(root, "log", "--oneline", "-2").splitlines()
    ] == [
        "commit 3",
        "commit 2",
    ]
    assert call(root, "log", "-n", "1", "--format=%s").strip() == "commit 3"
    assert call(root, "log", "--max-count", "1", "--skip=1", "--format=%s").strip() == "commit 2"


def test_the_five_subcommands_answer(root: Path) -> None:
    assert call(root, "status", "--short") == " M a.txt"
    assert "+four" in call(root, "diff")
    assert "+three" in call(root, "show")
    assert call(root, "show", "HEAD~2:a.txt") == "one"
    assert "Not Committed Yet" in call(root, "blame", "a.txt")
    assert call(root, "blame", "-L", "1,1", "HEAD", "a.txt").endswith(") one")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["HEAD~2..HEAD", "--stat"], "2 ++"),
        (["HEAD~2...HEAD", "--numstat"], "2\t0\ta.txt"),
        (["HEAD~2", "HEAD", "--", "a.txt"], "+three"),
        (["a.txt"], "+four"),
        (["--", "./a.txt"], "+four"),
        (["HEAD", "--", "b.txt"], "(git diff: nothing to show)"),
        (["--cached"], "(git diff: nothing to show)"),
        (["HEAD^!", "--name-only"], "a.txt"),
        (["HEAD~2:a.txt", "HEAD:a.txt"], "+three"),
        (["-U0", "--word-diff=porcelain"], "four"),
        (["main@{0}", "--name-status"], "M\ta.txt"),
    ],
)  # fmt: skip
def test_differences_are_asked_for_in_many_ways(
    root: Path, arguments: list[str], expected: str
) -> None:
    assert expected in call(root, "diff", *arguments)


def test_an_exit_status_that_was_asked_for_is_told(root: Path) -> None:
    assert call(root, "diff", "--quiet").endswith("[exit status 1]")


def test_a_log_with_differences_shows_the_same_commits_as_one_without(root: Path) -> None:
    git(root, "checkout", "-q", "-b", "side", "HEAD~1", "-f")
    git(root, "commit", "--allow-empty", "-m", "empty")
    git(root, "merge", "main", "-m", "merge")
    plain = call(root, "log", "--format=%s", "--topo-order").split("\n")
    shown = call(root, "log", "--format=%s", "--topo-order", "--patch-with-stat").split("\n")
    assert [line for line in shown if line in plain and line] == plain
    assert "empty" in plain


def test_unknown_names_are_not_found(root: Path) -> None:
    assert refusal(root, "show", "nothing").error_type is ErrorType.NOT_FOUND
    assert refusal(root, "log", "nothing..HEAD").error_type is ErrorType.NOT_FOUND
    assert refusal(root, "diff", "HEAD", "nothing.txt").error_type is ErrorType.NOT_FOUND
    assert refusal(root, "blame", "nothing.txt").error_type is ErrorType.IO_ERROR


@pytest.mark.proves("git.read-only")
@pytest.mark.parametrize(
    "subcommand", ["push", "commit", "reset", "config", "grep", "status ", "-c", ""]
)
def test_other_subcommands_are_refused_before_anything_runs(subcommand: str) -> None:
    if subcommand == "status ":
        return  # repaired by the schema: one of the five
    assert git_command.arguments.check({"subcommand": subcommand}).problems


def test_a_folder_without_a_repository_says_so(tmp_path: Path) -> None:
    assert refusal(tmp_path, "status").error_type is ErrorType.NOT_FOUND


@pytest.mark.usefixtures("commands_are_held")
def test_a_subfolder_of_a_repository_shows_itself_alone(root: Path) -> None:
    for name in ("sub/inner.txt", "beside.txt"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("committed\n")
    git(root, "add", "-A")
    git(root, "commit", "-m", "both")
    for name in ("sub/inner.txt", "beside.txt"):
        (root / name).write_text("changed\n")
    (root / "new.txt").write_text("new\n")
    assert call(root / "sub", "status", "--short") == " M inner.txt"
    shown = "".join(call(root / "sub", *words) for words in (["diff"], ["show"], ["log", "-p"]))
    assert "b/inner.txt" in shown and "+changed" in shown and "beside" not in shown
    assert call(root / "sub", "show", "HEAD:inner.txt") == "committed"
    assert refusal(root / "sub", "show", "HEAD:../beside.txt").error_type is not None


def test_without_a_sandbox_a_subfolder_of_a_repository_shows_nothing(root: Path) -> None:
    (root / "sub").mkdir()
    RESOURCES.update(git_calls.UNCONFINED)
    assert "have a sandbox" in refusal(root / "sub", "log").message


def test_nothing_is_written_to_the_repository(root: Path) -> None:
    os.utime(root / "b.txt", (1, 1))  # plain git would refresh its index now
    before = _state(root)
    for subcommand, *arguments in (
        ["status"],
        ["diff"],
        ["log", "-p"],
        ["show"],
        ["blame", "a.txt"],
    ):
        call(root, subcommand, *arguments)
    assert _state(root) == before


def _state(root: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path): (path.stat().st_mtime_ns, path.read_bytes())
        for path in root.rglob("*")
        if path.is_file()
    }


# ---- attacks


Prepare = Callable[[Path, Callable[[str], str]], None]


def _touch(root: Path, fill: Callable[[str], str]) -> None:
    os.utime(root / "b.txt", (1, 1))


def _signed(root: Path, fill: Callable[[str], str]) -> None:
    head, _, message = git(root, "cat-file", "commit", "HEAD").partition("\n\n")
    signature = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n iQ==\n -----END PGP SIGNATURE-----"
    commit = git(
        root,
        "hash-object",
        "-t",
        "commit",
        "-w",
        "--stdin",
        stdin=f"{head}\n{signature}\n\n{message}\n",
    )
    git(root, "update-ref", "HEAD", commit)


def _submodule(root: Path, fill: Callable[[str], str]) -> None:
    inner = root / "mod"
    inner.mkdir()
    git(inner, "init")
    (inner / "f").write_text("f\n")
    git(inner, "add", "-A")
    git(inner, "commit", "-m", "inner")
    git(root, "-c", "advice.addEmbeddedRepo=false", "add", "mod")
    git(root, "commit", "-m", "with a submodule")
    (inner / "f").write_text("changed\n")
    (inner / ".git/config").write_text(
        (inner / ".git/config").read_text() + fill("[core]\n\tfsmonitor = {evil}\n")
    )


def _lose(root: Path, fill: Callable[[str], str]) -> None:
    (root / "lost.txt").write_text("lost\n")
    git(root, "add", "-A")
    git(root, "commit", "-m", "lost")
    blob = git(root, "rev-parse", "HEAD:lost.txt")
    (root / ".git/objects" / blob[:2] / blob[2:]).unlink()
    (root / "lost.txt").unlink()


PREPARE: dict[str, Prepare] = {
    "touch": _touch,
    "signed": _signed,
    "submodule": _submodule,
    "lose": _lose,
}


class Trap:
    """A repository prepared as a row says, and the file that must not appear."""

    def __init__(self, root: Path, row: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
        outside = root.parent / "outside"
        outside.mkdir()
        self.root, self.marker = root, root.parent / "marker"
        evil = outside / "evil"
        evil.write_text(f"#!/bin/sh\n: > {self.marker}\n")
        evil.chmod(0o755)
        self._words = {
            "evil": str(evil),
            "marker": str(self.marker),
            "outside": str(outside),
            "root": str(root),
            "path": os.environ["PATH"],
        }
        for name in row.get("prepare", ()):
            PREPARE[name](root, self.fill)
        with (root / ".git/config").open("a") as file:
            file.write(self.fill(row.get("config", "")))
        for name, content in row.get("files", {}).items():
            path = root / self.fill(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.fill(content))
            path.chmod(0o755 if content.startswith("#!") else 0o644)
        self.arguments = [self.fill(argument) for argument in row["args"]]
        self.environment = {name: self.fill(value) for name, value in row.get("env", {}).items()}
        for name, value in self.environment.items():
            monkeypatch.setenv(name, value)
        # The filters run only for files that look changed.
        (root / "a.txt").write_text("one\ntwo\nthree\nFOUR\n")
        os.utime(root / "b.txt", (2, 2))

    def fill(self, text: str) -> str:
        for word, value in self._words.items():
            text = text.replace(f"{{{word}}}", value)
        return text


@pytest.mark.usefixtures("confinement")
@pytest.mark.parametrize("row", CONFIGURED, ids=lambda row: row["id"])
def test_a_hostile_repository_or_environment_runs_nothing(
    root: Path, row: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    trap = Trap(root, row, monkeypatch)
    try:
        call(root, row["subcommand"], *trap.arguments)
    except ToolFailed as error:
        # Only what cannot be answered without the repository's help may fail.
        assert row["id"].startswith(("promisor", "signature-format-setting")), error.message
    assert not trap.marker.exists()


@pytest.mark.parametrize("row", ARGUMENTS, ids=lambda row: row["id"])
def test_a_dangerous_argument_is_refused_before_git_starts(
    root: Path, row: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    trap = Trap(root, row, monkeypatch)
    error = refusal(root, row["subcommand"], *trap.arguments)
    assert error.error_type is ErrorType.VALIDATION_FAILED, error.message
    assert not trap.marker.exists()


@pytest.mark.parametrize(
    "row", [row for row in (*CONFIGURED, *ARGUMENTS) if row["alive"]], ids=lambda row: row["id"]
)
def test_the_attack_is_real(
    root: Path, row: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With plain git the marker appears: the tests above could fail."""
    trap = Trap(root, row, monkeypatch)
    environment = {**CLEAN, **trap.environment}
    program = shutil.which("git", path=environment["PATH"])
    assert program is not None
    subprocess.run(
        [program, row["subcommand"], *trap.arguments],
        cwd=root,
        env=environment,
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert trap.marker.exists()


def test_the_table_is_as_long_as_promised() -> None:
    ids = [row["id"] for row in (*CONFIGURED, *ARGUMENTS)]
    assert len(ids) == len(set(ids)) >= 40


@pytest.mark.parametrize(
    "how",
    [
        "file",
        "link",
        "commondir",
        "alternates",
        "objects-link",
        "refs-link",
        "head-link",
        "index-link",
    ],
)
@pytest.mark.usefixtures("confinement")
def test_a_repository_that_leads_outside_shows_nothing_of_it(root: Path, how: str) -> None:
    other = root.parent / "other"
    other.mkdir()
    git(other, "init")
    (other / "x").write_text("outside\n")
    git(other, "add", "-A")
    git(other, "commit", "-m", "outside commit")
    outside = git(other, "rev-parse", "HEAD")
    real = root / ".git"
    if how in ("file", "link"):
        shutil.rmtree(real)
    if how == "file":
        real.write_text(f"gitdir: {other}/.git\n")
    elif how == "link":
        real.symlink_to(other / ".git")
    elif how == "commondir":
        (real / "commondir").write_text(f"{other}/.git\n")
    elif how == "alternates":
        (real / "objects/info/alternates").write_text(f"{other}/.git/objects\n")
    else:
        name = {
            "objects-link": "objects",
            "refs-link": "refs",
            "head-link": "HEAD",
            "index-link": "index",
        }[how]
        (real / name).rename(root.parent / "kept")
        (real / name).symlink_to(other / ".git" / name)
    if RESOURCES or how in ("file", "link", "commondir"):
        error = refusal(root, "log", "--all")
        assert error.error_type is ErrorType.PERMISSION_DENIED
        assert "ask the person" in error.message
        return
    # In a sandbox the link leads nowhere.
    for arguments in (["log", "--all", "-p"], ["status"], ["show", f"{outside}:x"]):
        try:
            assert "outside" not in call(root, *arguments)
        except ToolFailed as failed:
            assert failed.error_type in (ErrorType.IO_ERROR, ErrorType.NOT_FOUND)


@pytest.mark.usefixtures("confinement")
def test_a_configured_work_tree_is_not_entered(root: Path) -> None:
    outside = root.parent / "elsewhere"
    outside.mkdir()
    (outside / "a.txt").write_text("secret of another folder\n")
    git(root, "config", "core.worktree", str(outside))
    if not RESOURCES:
        # Where git looks for files is the person's: a sandbox shows nothing there.
        assert refusal(root, "diff").error_type is ErrorType.IO_ERROR
        return
    assert "secret" not in call(root, "diff")
    assert "+four" in call(root, "diff")


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../x", "~/x"])
@pytest.mark.parametrize("subcommand", ["status", "diff", "log", "show", "blame"])
def test_paths_outside_are_refused(root: Path, subcommand: str, path: str) -> None:
    assert refusal(root, subcommand, "--", path).error_type is ErrorType.PERMISSION_DENIED


def test_a_folder_swapped_for_a_link_does_not_show_what_it_leads_to(root: Path) -> None:
    outside = root.parent / "elsewhere"
    outside.mkdir()
    (root / "dir").mkdir()
    (root / "dir/f.txt").write_text("inside\n")
    git(root, "add", "-A")
    git(root, "commit", "-m", "dir")
    (outside / "f.txt").write_text("hunter2\n")
    shutil.rmtree(root / "dir")
    (root / "dir").symlink_to(outside)
    with pytest.raises(ToolFailed):
        call(root, "blame", "dir/missing.txt")
    assert "hunter2" not in call(root, "blame", "dir/f.txt")
    assert "hunter2" not in call(root, "diff")


def test_a_hard_link_to_the_outside_is_left_out(root: Path) -> None:
    outside = root.parent / "elsewhere.txt"
    outside.write_text("hunter2\n")
    (root / "b.txt").unlink()
    os.link(outside, root / "b.txt")
    answer = call(root, "diff")
    assert "hunter2" not in answer
    assert "[left out, since tools may not read them: b.txt]" in answer
    assert "hunter2" not in call(root, "blame", "b.txt")


# ---- secrets


SECRET_FILES = (
    ".env",
    "sub/prod.env",
    "k.pem",
    "id_rsa.bak",
    "agents/notes.md",
    ".config/gcloud/token",
    ".ＥＮＶ",
)


@pytest.fixture(scope="module")
def secret_root(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Secrets in the history, in the index and in the folder, and tags of them. Shared: tests only
    read.
    """
    root = tmp_path_factory.mktemp("secrets") / "work"
    shutil.copytree(template, root)
    for number in (1, 2):
        for name in SECRET_FILES:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(f"hunter{number}\n")
        (root / "b.txt").write_text(f"visible{number}\n")
        git(root, "add", "-Af")
        git(root, "commit", "-m", f"secrets {number}")
    for name in SECRET_FILES:
        (root / name).write_text("hunter3\n")
    git(root, "add", "-Af")
    for name in SECRET_FILES:
        (root / name).write_text("hunter4\n")
    blob = git(root, "rev-parse", "HEAD:.env")
    git(root, "tag", "light", blob)
    git(root, "tag", "-a", "-m", "x", "heavy", blob)
    git(root, "tag", "-a", "-m", "x", "nested", "heavy")
    git(root, "tag", "-a", "-m", "x", "release", "HEAD")
    return root


@pytest.mark.proves("git.secrets")
@pytest.mark.parametrize(
    "command",
    [
        "diff",
        "diff HEAD",
        "diff --cached",
        "diff HEAD~1 HEAD",
        "diff HEAD~1..HEAD",
        "diff -R",
        "diff --cc",
        "diff --word-diff",
        "diff -U100 -W",
        "diff --binary --full-index",
        "diff HEAD~1 -- .",
        "diff -- sub",
        "diff --text",
        "log -p",
        "log -p --all",
        "log -u -m",
        "log --patch-with-stat --reverse",
        "log -p -R",
        "log --oneline -p",
        "log -p --word-diff=plain",
        "log --format=%B -p",
        "log -p -- .",
        "log -p -- sub .config",
        "log -S hunter1 -p",
        "log -G hunter -p",
        "log -p --cc",
        "log --binary",
        "log -U3 -g",
        "log -p HEAD~1..HEAD",
        "show",
        "show HEAD",
        "show HEAD~1 HEAD",
        "show release",
        "show -m HEAD",
        "show --format= -p",
        "show HEAD -- .",
        "show HEAD^{tree}",
        "show HEAD:",
        "show HEAD:sub",
        "status",
        "status --short -uall",
        "log --raw",
        "diff --raw",
    ],
)
def test_differences_never_show_a_secret(secret_root: Path, command: str) -> None:
    subcommand, *arguments = command.split()
    assert "hunter" not in call(secret_root, subcommand, *arguments).replace("hunter1 -p", "")


@pytest.mark.proves("git.secrets")
@pytest.mark.parametrize(
    "command",
    [
        "show HEAD:.env",
        "show HEAD:./.env",
        "show HEAD:sub/../.env",
        "show HEAD:sub/prod.env",
        "show :.env",
        "show :0:.env",
        "show HEAD:k.pem",
        "show HEAD:id_rsa.bak",
        "show HEAD:agents/notes.md",
        "show HEAD:.config/gcloud/token",
        "show HEAD^{tree}:.env",
        "show HEAD^0:.env",
        "show main@{0}:.env",
        "show HEAD~1:.env",
        "show HEAD^{/secrets}:.env",
        "show HEAD:.ＥＮＶ",
        "show HEAD:agents",
        "show light",
        "show heavy",
        "show nested",
        "show heavy^{}",
        "show {blob}",
        "show {short}",
        "show {blob} HEAD",
        "diff HEAD:.env HEAD:a.txt",
        "diff HEAD~1:.env HEAD:.env",
        "diff :.env :a.txt",
        "diff {blob} HEAD:a.txt",
        "diff light heavy",
        "diff HEAD:agents HEAD~1:agents",
        "diff HEAD:.config HEAD~1:.config",
        "diff {tree} HEAD~1:agents",
        "diff {tree}:notes.md HEAD:a.txt",
        "diff {tree}: HEAD:a.txt",
        "show {tree}",
        "show {tree}:",
        "show {tree}^{tree}",
        "show {tree}:notes.md",
        "show {short tree}:notes.md",
        "blame .env",
        "blame -- .env",
        "blame HEAD .env",
        "blame HEAD -- k.pem",
        "diff -- .env",
        "diff .env",
        "diff HEAD -- id_rsa.bak",
        "log -p -- .env",
        "log -p -- agents",
        "show HEAD -- .env",
        "log {blob}..HEAD",
        "log light",
        "log -p --graph",
        "show HEAD:.env..HEAD",
    ],
)
def test_naming_a_secret_in_git_is_refused(secret_root: Path, command: str) -> None:
    blob, tree = git(secret_root, "rev-parse", "HEAD:.env", "HEAD:agents").split()
    for word, value in (
        ("{blob}", blob),
        ("{short}", blob[:10]),
        ("{tree}", tree),
        ("{short tree}", tree[:4]),
    ):
        command = command.replace(word, value)
    error = refusal(secret_root, *command.split())
    assert "hunter" not in error.message
    assert error.error_type is not ErrorType.INTERNAL_ERROR


@pytest.mark.proves("git.secrets")
def test_a_name_that_is_no_commit_is_told_apart_from_one_that_is_off_limits(
    secret_root: Path,
) -> None:
    missing = refusal(secret_root, "log", "gone.txt")
    assert missing.error_type is ErrorType.NOT_FOUND
    assert "`gone.txt` is neither a commit nor a file" in missing.message
    secret = refusal(secret_root, "log", ".env")
    assert secret.error_type is ErrorType.PERMISSION_DENIED
    assert "neither" not in secret.message


@pytest.mark.proves("git.secrets")
@pytest.mark.parametrize(
    "search", [["-S", "hunter1"], ["-G", "hunter"], ["-Shunter2", "--pickaxe-all"]]
)
def test_a_search_in_the_history_is_no_oracle_for_secrets(root: Path, search: list[str]) -> None:
    for number in (1, 2):
        (root / ".env").write_text(f"hunter{number}\n")
        git(root, "add", "-Af")
        git(root, "commit", "-m", "quiet")
    assert "quiet" not in call(root, "log", "--format=%s", *search)


@pytest.mark.proves("git.secrets")
def test_the_state_of_a_secret_file_is_told_for_it_shows_no_content(secret_root: Path) -> None:
    (secret_root / ".env").write_text("TOKEN=changed\n")
    assert call(secret_root, "status", "--short", "--", ".env").endswith("M .env")
    assert refusal(secret_root, "diff", "--", ".env").error_type is ErrorType.PERMISSION_DENIED


@pytest.mark.proves("git.secrets")
def test_what_was_left_out_is_named_and_the_rest_is_shown(secret_root: Path) -> None:
    answer = call(secret_root, "show")
    assert "+visible2" in answer
    assert "[left out, since tools may not read them: " in answer
    assert ".env" in answer.rsplit("[left out", 1)[1]


@pytest.mark.proves("git.secrets")
def test_pathspecs_and_lists_agree_on_plain_names(root: Path) -> None:
    names = [
        ".env",
        ".env.local",
        "x/.env",
        "a.env",
        "x/y.pem",
        "K.KEY",
        "id_rsa",
        "x/.ssh/config",
        "agents/x",
        "src/agents/x",
        ".ferrule/x/y",
        ".config/gcloud/a/b",
        "src/.config/gcloud/a",
        "environment.py",
        "key.py",
        "pem",
        ".envoy",
        "a.txt",
    ]
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x")
    git(root, "add", "-Af")
    shown = set(git(root, "ls-files", "--", ".", *make_exclusions(DEFAULT_NAMES)).splitlines())
    assert {name for name in names if name in shown} == {
        name for name in names if DEFAULT_NAMES.check(name, write=False) is None
    }


@pytest.mark.parametrize(
    "header",
    [
        "diff --git a/.env b/.env",
        "diff --git a/x b/.env",
        "diff --git a/.env b/x",
        "diff --git b/.env a/.env",
        "diff --cc .env",
        "diff --combined .env",
        'diff --git "a/\\303\\251/.env" "b/\\303\\251/.env"',
        "diff --git ?",
        'diff --git "a/\\tk.pem" b/x y',
        "diff --git a/x b/y b/.env",
        "diff --git a/.env\r b/.env\r",
    ],
)
def test_a_section_is_dropped_when_any_reading_of_its_header_is_a_secret(header: str) -> None:
    patch = f"commit 1234567\n\n{header}\n+hunter\ndiff --git a/ok b/ok\n+fine\ncommit 89abcde\n"
    text, _ = drop_sections(patch, DEFAULT_NAMES)
    assert text == "commit 1234567\n\ndiff --git a/ok b/ok\n+fine\ncommit 89abcde\n"


def test_it_declares_what_it_is() -> None:
    assert (git_command.side_effect, git_command.risk) == ("read", "low")
