"""What a person opened is shown only where nobody else decides what it is, on every backend."""

# pyright: reportUnnecessaryTypeIgnoreComment=error

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from backend_sandboxes import BACKENDS
from shelled import says

from ferrule.core.errors import ToolFailed
from ferrule.permissions.provenance import NOTHING_WRITABLE, Origin, trust_path
from ferrule.sandbox.backends.probes import probe
from ferrule.sandbox.backends.selection import available_backends
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.sandbox.sandbox import Sandbox
from ferrule.sandbox.view.description import describe_view
from ferrule.sandbox.view.openings import OpenedFolder, resolve_openings
from ferrule.sandbox.view.toolchains import ReadOnlyBind

Opens = Callable[..., Sandbox]


@pytest.fixture
def base(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with `work`, `data` and `secret`. Not below /tmp, which commands have their own of."""
    made = Path(os.path.realpath(tempfile.mkdtemp(prefix="ferrule-opened-", dir=Path.home())))
    monkeypatch.setenv("HOME", str(made / "home"))
    for name in ("home", "work", "data", "secret"):
        (made / name).mkdir()
        (made / name / "file").write_text(f"{name}\n")
    yield made
    shutil.rmtree(made)


@pytest.fixture(params=BACKENDS)
async def opens(request: pytest.FixtureRequest, base: Path) -> AsyncIterator[Opens]:
    """Opens a sandbox for `work` with further folders, named below the base."""
    made: list[Sandbox] = []

    def open_one(root: str = "work", **opened: tuple[str, ...]) -> Sandbox:
        folders = {
            kind: tuple(str(base / name) for name in names) for kind, names in opened.items()
        }
        policy = replace(SandboxPolicy(base / root, require=frozenset()), **folders)  # pyright: ignore[reportArgumentType]  folders alone
        backend = next(
            (one for one in available_backends(policy, probe()) if one.name == request.param), None
        )
        if backend is None:
            pytest.skip(f"this machine cannot start `{request.param}`: {dict(probe().why)}")
        made.append(Sandbox(policy, backend=backend))
        return made[-1]

    yield open_one
    for sandbox in made:
        await sandbox.close()


@pytest.mark.proves("sandbox.opened-folders.provenance")
async def test_a_link_of_the_workspace_opens_nothing_and_the_result_says_so_once(
    opens: Opens, base: Path
) -> None:
    (base / "work/link").symlink_to(base / "secret")
    sandbox = opens(readable=("work/link", "data"))
    ended, text = await says(
        sandbox, f"cat link/file '{base}/data/file' 2>/dev/null", base / "work"
    )
    assert text == "data\n"
    (refusal,) = ended.refusals
    assert refusal.target == str(base / "work/link") and refusal.is_final
    assert "write the real path" in refusal.why
    ended, _ = await says(sandbox, "true", base / "work")
    assert ended.refusals == ()


@pytest.mark.proves("sandbox.opened-folders.provenance")
async def test_a_folder_in_the_workspace_that_becomes_a_link_is_not_followed(
    opens: Opens, base: Path
) -> None:
    (base / "work/deep/inner").mkdir(parents=True)
    (base / "work/deep/inner/file").write_text("inner\n")
    sandbox = opens(readable=("work/deep/inner",))
    script = f"mv deep old; mkdir deep; ln -s '{base}/secret' deep/inner; echo x > deep/inner/file"
    await says(sandbox, script, base / "work")
    _, text = await says(sandbox, "cat deep/inner/file 2>&1; true", base / "work")
    assert "secret" not in text


@pytest.mark.proves("sandbox.opened-folders.provenance")
async def test_a_folder_that_is_gone_fails_no_command_and_is_seen_when_it_is_back(
    opens: Opens, base: Path
) -> None:
    sandbox = opens(readable=("data", "never"))
    script = f"cat '{base}/data/file' 2>/dev/null; echo ran"
    assert (await says(sandbox, script, base / "work"))[1] == "data\nran\n"
    shutil.rmtree(base / "data")
    ended, text = await says(sandbox, script, base / "work")
    assert text == "ran\n"
    assert str(base / "data") in [refusal.target for refusal in ended.refusals]
    (base / "data").mkdir()
    (base / "data/file").write_text("new\n")
    (base / "data/.env").write_text("KEY=1\n")
    _, text = await says(sandbox, f"cat '{base}/data/.env' 2>/dev/null; {script}", base / "work")
    assert text == "new\nran\n"


@pytest.mark.proves("sandbox.opened-folders.provenance")
async def test_a_workspace_in_a_folder_that_is_written_is_not_replaced_by_a_link(
    opens: Opens, base: Path
) -> None:
    (base / "code/inner/project").mkdir(parents=True)
    project = base / "code/inner/project"
    sandbox = opens("code/inner/project", writable=("code",))
    script = (
        f"cd '{base}/code' && mv inner old; mkdir inner; ln -s '{base}/secret' inner/project; true"
    )
    await says(sandbox, script, project)
    assert project.is_dir() and not project.is_symlink()
    shutil.rmtree(base / "code/inner")
    (base / "code/inner").mkdir()
    project.symlink_to(base / "secret")
    with pytest.raises(ToolFailed, match="start again in the folder itself"):
        await says(sandbox, "cat file", base / "work")


@pytest.mark.parametrize("left", ["ln -s /work {0}", "echo x > {0}", "ln -s {0} {0}"])
async def test_what_a_command_left_where_a_folder_is_shown_is_moved_aside(
    left: str, opens: Opens, base: Path
) -> None:
    (base / "home/more/data").mkdir(parents=True)
    (base / "home/more/data/file").write_text("more\n")
    sandbox = opens()
    await says(sandbox, f"cd; {left.format('more')}", base / "work")
    policy = sandbox.policy
    assert policy is not None
    await sandbox.change_policy(replace(policy, readable=(str(base / "home/more/data"),)))
    _, text = await says(sandbox, f"cat '{base}/home/more/data/file'", base / "work")
    assert text == "more\n"


async def test_a_folder_that_editors_obey_is_read_only_and_the_result_says_so_once(
    opens: Opens, base: Path
) -> None:
    (base / "data/.vscode").mkdir()
    (base / "data/.vscode/tasks.json").write_text("mine")
    sandbox = opens(writable=("data/.vscode",))
    place = base / "data/.vscode"
    ended, text = await says(
        sandbox, f"cat {place}/tasks.json; echo x 2>/dev/null > {place}/tasks.json", base / "work"
    )
    assert text.startswith("mine")
    assert (place / "tasks.json").read_text() == "mine"
    left = [one for one in ended.refusals if one.is_final]
    assert [(one.access, one.target) for one in left] == [("write", str(place))]
    assert "`.vscode`" in left[0].why and "by hand" in left[0].why
    ended, _ = await says(sandbox, "true", base / "work")
    assert [one for one in ended.refusals if one.is_final] == []
    (shown,) = {one.line for one in describe_view(sandbox.policy) if "by hand" in one.line}
    assert shown.startswith(f"read {place} (")


@pytest.mark.parametrize(
    ("name", "access"),
    [
        ("home/.vscode", "read"),
        ("home/.claude/skills", "read"),
        ("home/.bashrc", "read"),
        ("repo/.github/workflows", "read"),
        ("repo/.cursor/rules", "read"),
        ("repo/.git", "write"),
        ("repo/.git/refs", "write"),
        ("repo/src/.vscode/x", "read"),
        ("repo/.claude/worktrees/one", "write"),
        ("repo/.claude/worktrees/one/src", "write"),
        ("repo/.claude/worktrees/one/.zed", "read"),
        ("data/code", "write"),
    ],
)
def test_a_protected_name_is_judged_from_its_own_repository(
    base: Path, name: str, access: str
) -> None:
    """A work tree in a folder with a protected name is a place to work in."""
    for repository in ("repo", "repo/.claude/worktrees/one"):
        (base / repository / ".git").mkdir(parents=True)
    place = base / name
    if place.name == ".bashrc":
        place.touch()
    else:
        place.mkdir(parents=True, exist_ok=True)
    policy = SandboxPolicy(base / "work", writable=(str(place),))
    openings = resolve_openings(policy, policy.command_writable)
    assert [(one.path, one.access) for one in openings.folders] == [(str(place), access)]
    assert [one.access for one in openings.left_out] == (["write"] if access == "read" else [])


def test_only_a_path_with_an_origin_is_shown() -> None:
    """The type checker refuses the others: without the marks these lines are errors."""
    ReadOnlyBind("/etc")  # pyright: ignore[reportArgumentType]
    OpenedFolder("/etc", "read")  # pyright: ignore[reportArgumentType]
    ReadOnlyBind(trust_path("/etc", Origin.PERSON, NOTHING_WRITABLE, reason="a test's"))
