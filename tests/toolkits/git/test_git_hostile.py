"""Hostile repositories: no operation of git runs a program that the repository or the environment
names.
"""

from __future__ import annotations

import os
import runpy
import subprocess
from pathlib import Path
from typing import Any

import git_calls
import pytest

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.sandbox.sandbox import Sandbox
from ferrule.toolkits.commands.session_commands import SessionCommands
from ferrule.toolkits.git.remote import read_address
from ferrule.toolkits.git.settings import Remote

_TABLE = runpy.run_path(str(Path(__file__).parent / "hostile.py"))
HOSTILE: list[dict[str, Any]] = _TABLE["HOSTILE"]
ADDRESSES: list[str] = _TABLE["ADDRESSES"]


class Trap:
    """A repository prepared as a row says, and the file that must not appear."""

    def __init__(self, world: Any, row: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
        self.world, self.row = world, row
        root = world.root
        outside = root.parent / "outside"
        outside.mkdir(exist_ok=True)
        self.marker = root.parent / "marker"
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
        world.git("clone", "-q", "--bare", str(root), str(root / "remotes/origin.git"))
        world.git("remote", "add", "origin", "remotes/origin.git")
        world.git("branch", "other", "HEAD~1")
        with (root / ".git/config").open("a") as file:
            # A later address of a remote does not replace an earlier one: the row's has to be the
            # first.
            config = self.fill(row.get("config", ""))
            file.write(config)
        if "url =" in row.get("config", "") and "origin" in row["config"]:
            world.git(
                "config", "--unset-all", "remote.origin.url", "^remotes/origin.git$", check=False
            )
        (root / ".git/info/exclude").write_text(
            "remotes\nhooks\n/git\n/ssh\n/sh\n.gitattributes\n.gitmodules\n"
        )
        for name, content in row.get("files", {}).items():
            path = root / self.fill(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.fill(content))
            path.chmod(0o755 if content.startswith("#!") else 0o644)
        self.environment = {name: self.fill(value) for name, value in row.get("env", {}).items()}
        for name, value in self.environment.items():
            monkeypatch.setenv(name, value)

    def fill(self, text: str) -> str:
        for word, value in self._words.items():
            text = text.replace(f"{{{word}}}", value)
        return text

    def scenario(self) -> list[tuple[str, dict[str, Any]]]:
        """Every operation, in an order in which each has something to do."""
        self.world.write("a.txt", "one\ntwo\nthree\nfour\n")
        os.utime(self.world.root / "b.txt", (1, 1))
        reads: list[tuple[str, dict[str, Any]]] = [
            ("git_status", {}),
            ("git_current_branch", {}),
            ("git_log", {}),
            ("git_diff", {}),
            ("git_diff", {"rev_range": "other..main"}),
            ("git_branch_list", {"kind": "all"}),
            ("git_remote_list", {}),
            ("git_show", {}),
            ("git_show", {"path": "a.txt"}),
            ("git_discover", {}),
            ("git_conflicts", {}),
            ("git_merge_base", {"rev": "other"}),
        ]
        return [
            *reads,
            ("git_add", {"paths": ["a.txt"]}),
            ("git_commit", {"message": "change"}),
            ("git_switch", {"branch": "new", "create": True, "start_point": "other"}),
            ("git_commit", {"message": "empty", "allow_empty": True}),
            ("git_rebase", {"onto": "main"}),
            ("git_switch", {"branch": "main"}),
            ("git_fetch", {}),
            ("git_pull_ff_only", {}),
        ]


PLAIN = {
    "git_status": ["status"],
    "git_log": ["log", "-p", "--ext-diff"],
    "git_diff": ["diff"],
    "git_show": ["show"],
    "git_add": ["add", "a.txt"],
    "git_commit": ["commit", "--allow-empty", "-m", "x"],
    "git_switch": ["switch", "-q", "other"],
    "git_rebase": ["rebase", "main"],
    "git_fetch": ["fetch"],
    "git_pull_ff_only": ["pull", "--ff-only", "origin", "main"],
}


@pytest.mark.parametrize("row", HOSTILE, ids=lambda row: row["id"])
def test_no_operation_runs_what_a_hostile_repository_or_environment_names(
    world: Any, row: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    trap = Trap(world, row, monkeypatch)
    worked: list[str] = []
    for name, arguments in trap.scenario():
        result = world.ask(name, **arguments)
        assert not trap.marker.exists(), name
        assert result.success or name in row["refused"], (name, result.error_message)
        worked += [name] * result.success
    assert len(worked) >= 12


SHARE = 1 if os.environ.get("FERRULE_TEST_ATTACKS") == "all" else 6
"""One row of so many: what plain git does is not ours. `make lab NAME=attacks` takes all."""


@pytest.mark.parametrize(
    "row", [row for row in HOSTILE if row["alive"]][::SHARE], ids=lambda row: row["id"]
)
def test_the_attack_is_real(
    world: Any, row: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With plain git the marker appears: the test above could fail."""
    trap = Trap(world, row, monkeypatch)
    trap.scenario()
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": os.environ["HOME"],
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_EDITOR": "true",
        **trap.environment,
    }
    for arguments in PLAIN.values():
        subprocess.run(
            ["git", *arguments],
            cwd=world.root,
            env=environment,
            capture_output=True,
            check=False,
            timeout=60,
        )
        if trap.marker.exists():
            return
    raise AssertionError("plain git ran nothing: this row proves nothing")


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_that_could_be_something_else_is_not_followed(
    world: Any, address: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    trap = Trap(
        world,
        {"config": '[protocol]\n\tallow = always\n[protocol "ext"]\n\tallow = always\n'},
        monkeypatch,
    )
    (world.root / "link-to-outside").symlink_to(tmp_path / "outside")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path / "outside", check=True)
    world.git("config", "remote.origin.url", trap.fill(address))
    before = world.git("for-each-ref")
    error, said = world.refused("git_fetch")
    assert error in (
        ErrorType.PERMISSION_DENIED,
        ErrorType.NOT_FOUND,
        ErrorType.VALIDATION_FAILED,
        ErrorType.IO_ERROR,
    ), said
    assert "ask the person" in said or "not a git repository" in said, said
    assert not trap.marker.exists()
    assert world.git("for-each-ref") == before


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://example.org/a.git", ("https", "example.org", 443)),
        ("https://user:pw@example.org:8443/a/b.git", ("https", "example.org", 8443)),
        ("vendor/a.git", ("file", "", 0)),
        ("file:///srv/a.git", ("file", "", 0)),
    ],
)
def test_addresses_that_are_followed_are_read_exactly(
    url: str, expected: tuple[str, str, int]
) -> None:
    address = read_address(Remote("origin", url))
    assert (address.protocol, address.host, address.port) == expected


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ext::x",
        "http://x/y",
        "https://x",
        "https://x y/z",
        "ssh://-x/y",
        "-x:y",
        "a\nb",
        "https://x/\x1b",
        "transport::x",
        "ssh://git@example.org/a.git",
        "git@example.org:team/a.git",
        "example.org:a.git",
    ],
)
def test_other_addresses_are_refused_before_anything_starts(url: str) -> None:
    with pytest.raises(ToolFailed):
        read_address(Remote("origin", url))


def test_a_sandbox_without_network_is_a_clear_refusal(world: Any) -> None:
    world.git("remote", "add", "origin", "https://example.org/a.git")
    world.resources = {Sandbox: Sandbox(SandboxPolicy(world.root))}
    for name in ("git_fetch", "git_pull_ff_only", "git_push"):
        error, said = world.refused(name)
        assert error is ErrorType.PERMISSION_DENIED
        assert "does not open example.org:443" in said and "network" in said
    world.resources = {Sandbox: Sandbox(SandboxPolicy(world.root, network=("other.example",)))}
    assert "does not open" in world.refused("git_fetch")[1]


def test_the_host_of_a_remote_is_open_for_one_git_alone(world: Any) -> None:
    world.git("remote", "add", "origin", "https://127.0.0.1:1/a.git")
    commands = SessionCommands.from_context(git_calls.make_context(Workspace(world.root)))
    opened: list[tuple[str, ...]] = []
    change = Sandbox.change_policy

    async def note(self: Sandbox, policy: SandboxPolicy) -> None:
        opened.append(policy.network)
        await change(self, policy)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sandbox, "change_policy", note)
        assert world.refused("git_push")[0] is ErrorType.IO_ERROR
    assert opened == [("127.0.0.1:1",), ()]
    assert commands.sandbox.current is not None
    assert commands.sandbox.current.policy.network == ()


@pytest.mark.parametrize("url", ["ssh://git@example.org/a.git", "git@example.org:team/a.git"])
def test_an_ssh_remote_is_left_to_the_person(world: Any, url: str) -> None:
    world.git("remote", "add", "origin", url)
    for name in ("git_fetch", "git_push"):
        error, said = world.refused(name)
        assert error is ErrorType.PERMISSION_DENIED
        assert "without the person's keys" in said and "`https://` address" in said


def test_a_password_in_an_address_is_not_said_when_fetching_fails(world: Any) -> None:
    world.git("remote", "add", "origin", "https://user:hunter2@127.0.0.1:1/x.git")
    error, said = world.refused("git_fetch")
    assert error is ErrorType.IO_ERROR
    assert "hunter2" not in said and "https://***@127.0.0.1:1/x.git" in said


@pytest.mark.parametrize(
    "how",
    [
        "alternates",
        "commondir",
        "refs-link",
        "ref-folder-link",
        "log-link",
        "object-folder-link",
        "packed-refs-link",
        "index-link",
        "head-link",
        "git-file",
        "head-odd",
    ],
)
def test_nothing_is_written_where_a_repository_leads_outside(
    world: Any, how: str, tmp_path: Path
) -> None:
    real, outside = world.root / ".git", tmp_path / "outside"
    outside.mkdir()
    world.git("branch", "team/x", "HEAD~1")
    world.git("pack-refs", "--all") if how == "packed-refs-link" else None
    if how == "alternates":
        (real / "objects/info/alternates").write_text(f"{outside}\n")
    elif how == "commondir":
        (real / "commondir").write_text(f"{outside}\n")
    elif how == "git-file":
        real.rename(outside / "git")
        real.write_text(f"gitdir: {outside}/git\n")
    elif how == "head-odd":
        (real / "HEAD").write_text("ref: refs/heads/../../../x\n")
    else:
        name = {
            "refs-link": "refs",
            "ref-folder-link": "refs/heads/team",
            "log-link": "logs/refs",
            "object-folder-link": "objects/info",
            "packed-refs-link": "packed-refs",
            "index-link": "index",
            "head-link": "HEAD",
        }[how]
        (real / name).rename(outside / "there")
        (real / name).symlink_to(outside / "there")
    before = {path: path.read_bytes() for path in outside.rglob("*") if path.is_file()}
    world.write("a.txt", "changed\n")
    for name, arguments in (
        ("git_add", {"all": True}),
        ("git_commit", {"message": "x", "allow_empty": True}),
        ("git_switch", {"branch": "new", "create": True}),
    ):
        world.ask(name, **arguments)
    assert {path: path.read_bytes() for path in outside.rglob("*") if path.is_file()} == before


def test_a_linked_folder_of_the_work_tree_is_not_written_through(
    world: Any, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    world.git("checkout", "-q", "-b", "with")
    world.commit("d", **{"d/f.txt": "inside\n"})
    world.git("checkout", "-q", "main")
    (world.root / "d").symlink_to(outside)
    world.ask("git_switch", branch="with")
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("operation", ["add", "commit", "switch", "attributes", "info"])
def test_a_file_that_needs_a_filter_is_left_to_the_person(world: Any, operation: str) -> None:
    if operation == "attributes":
        world.git("checkout", "-q", "-b", "other")
        world.commit(
            "lfs",
            **{
                ".gitattributes": "*.bin filter=lfs diff=lfs\n",
                "x.bin": "version https://git-lfs\n",
            },
        )
        world.git("checkout", "-q", "main")
        error, said = world.refused("git_switch", branch="other")
    else:
        world.git("checkout", "-q", "-b", "other")
        world.commit("bin", **{"x.bin": "1\n"})
        world.git("checkout", "-q", "main" if operation == "switch" else "other")
        world.write(
            ".git/info/attributes" if operation == "info" else ".gitattributes",
            "*.bin filter=lfs\n",
        )
        world.write("x.bin" if operation != "switch" else "y.txt", "2\n")
        call = {
            "add": ("git_add", {"paths": ["x.bin"]}),
            "info": ("git_add", {"all": True}),
            "commit": ("git_commit", {"message": "x", "all": True}),
            "switch": ("git_switch", {"branch": "other"}),
        }[operation]
        error, said = world.refused(call[0], **call[1])
    assert error is ErrorType.PERMISSION_DENIED
    assert "filter `lfs`" in said


def test_an_attribute_that_takes_a_filter_away_is_none(world: Any) -> None:
    world.write(".gitattributes", "*.bin -filter\n")
    world.write("x.bin", "1\n")
    assert "x.bin" in str(world.do("git_add", paths=["x.bin"]))


def test_a_sparse_checkout_is_not_moved(world: Any) -> None:
    """What a switch would then write or remove is not what differs between the trees."""
    world.commit("ci", **{".github/workflows/ci.yml": "x\n"})
    world.git("branch", "same")
    world.git("config", "core.sparseCheckout", "true")
    world.write(".git/info/sparse-checkout", "/a.txt\n")
    for name, arguments in (
        ("git_switch", {"branch": "same"}),
        ("git_rebase", {"onto": "HEAD~1"}),
        ("git_pull_ff_only", {}),
    ):
        error, said = world.refused(name, **arguments)
        assert error is ErrorType.PERMISSION_DENIED and "sparse" in said
    assert (world.root / ".github/workflows/ci.yml").exists()
