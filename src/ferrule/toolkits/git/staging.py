"""`git_add` and `git_commit`: only what a tool may read becomes part of the history.

`git_add` makes the list of files itself: what git calls changed, less what no tool may read, less
what is no regular file or link. Only these names reach git, and the index that comes of it is
compared with the list before it is kept.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Annotated, Any

from ferrule.core.calls import ErrorType
from ferrule.core.errors import RetryCall, ToolFailed
from ferrule.permissions.filesystem.paths import shown
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.toolkits.files.preview import preview
from ferrule.tools.context import Context
from ferrule.tools.decorator import tool
from ferrule.tools.definition import READS

from .attempt import Attempt
from .changes import check_filters, refuse
from .file_access import wall
from .receipt import Done, GitOptions, answer
from .run import SECONDS, Runner, git_program, time_over
from .settings import person
from .writable_repository import Bench, bench, section

MOST_FILES = 10_000
"""Files that one `git_add` stages at the most."""
_LONGEST_MESSAGE = 20_000
_NAMES = 20


def runner(made: Bench, context: Context) -> Runner:
    """Git on a workbench. What became of the references is kept for the receipt."""
    workspace, attempt = context.resource(Workspace), Attempt.of(context)
    program = git_program(workspace)
    held = wall(program, made.folder, writes=True)
    git = Runner(program, made.directory, made.environment, held, workspace, time_over(context))
    attempt.git = git
    attempt.watch(made.real, made.leaving)
    return git


@tool(side_effect="execute", risk="medium", timeout=SECONDS + 10, parallel=False)
async def git_add(
    context: Context,
    paths: Annotated[
        list[str] | None, READS, "Files and folders to stage, also deleted ones."
    ] = None,
    all: Annotated[bool, "Stage everything that changed."] = False,
) -> dict[str, Any]:
    """Stage files for the next commit. Files that may hold secrets are left out, and are refused if
    named.
    """
    if bool(paths) == all:
        raise RetryCall("`git_add` takes `paths`, or `all: true`")
    workspace = context.resource(Workspace)
    asked = [workspace.permit(path, write=False) for path in paths or ()]
    with bench(workspace, goes_on=True) as made:
        git = runner(made, context)
        wanted, left_out = await _changed(git, asked)
        if len(wanted) > MOST_FILES:
            raise ToolFailed(
                ErrorType.LIMIT,
                f"{len(wanted)} files changed, more than {MOST_FILES}; name folders",
            )
        _check_asked(workspace, asked, wanted, left_out)
        await check_filters(git, wanted, "`git_add`")
        before = await _index(git)
        if wanted:
            stdin = b"".join(os.fsencode(name) + b"\0" for name in wanted)
            await git.must(
                "add", "--all", "--pathspec-from-file=-", "--pathspec-file-nul", stdin=stdin
            )
            argv = git.ran[-1].argv
            staged = _difference(before, await _index(git))
            if beyond := sorted(staged - set(wanted)):
                raise ToolFailed(
                    ErrorType.IO_ERROR,
                    f"nothing was staged: {shown(beyond[0])} came in while it was done; try again",
                )
            made.install()
        else:
            argv, staged = (), set[str]()
    value: dict[str, Any] = {"staged": sorted(staged)[:_NAMES], "count": len(staged)}
    if left_out:
        value["left_out"] = left_out[:_NAMES]
    category = "success" if staged else "nothing_to_do"
    return answer(
        git_add, "add", context, Done(value, argv, category=category, paths=sorted(staged))
    )


async def _changed(git: Runner, asked: list[str]) -> tuple[list[str], list[str]]:
    """Names that changed and may be staged, and those that changed and may not, with the reason."""
    narrowed = ["--", *(name or "." for name in asked)] if asked else []
    ran = await git.must(
        "status",
        "--porcelain=v1",
        "-z",
        "--untracked-files=all",
        "--no-renames",
        "--ignore-submodules=all",
        *narrowed,
    )
    wanted: list[str] = []
    left_out: list[str] = []
    for row in ran.names():
        code, name = row[:2], row[3:]
        if code[1] == " ":
            continue  # staged already, and not changed since
        why = _may_not(git.workspace, name)
        if why:
            left_out.append(f"{shown(name)} {why}")
        else:
            wanted.append(name)
    return wanted, left_out


def _may_not(workspace: Workspace, name: str) -> str:
    """Why a name is not staged; empty if it may be."""
    if name.endswith("/"):
        return "is a repository of its own"
    if reason := workspace.names.check(name, write=False):
        return reason
    try:
        kind = workspace.stat(name).kind
        if kind == "file":
            # Opened, not read: a hard link to elsewhere is refused here as everywhere.
            workspace.open(name).close()
        return "" if kind in ("file", "link") else f"is no file ({kind})"
    except ToolFailed as failure:
        # Gone: its deletion is staged.
        return "" if failure.error_type is ErrorType.NOT_FOUND else f"cannot be read: {failure}"


def _check_asked(
    workspace: Workspace, asked: list[str], wanted: list[str], left_out: list[str]
) -> None:
    """Raises ToolFailed for a file that was named and is not there to be staged: silence would look
    like success.
    """
    for name in asked:
        if any(one == name or not name or one.startswith(f"{name}/") for one in wanted):
            continue
        if refused := next((text for text in left_out if text.startswith(f"{shown(name)} ")), ""):
            raise ToolFailed(ErrorType.PERMISSION_DENIED, f"nothing was staged: {refused}")
        workspace.stat(name)


async def _index(git: Runner) -> set[str]:
    """The index, a row per entry: mode, id, stage and name."""
    return set((await git.must("ls-files", "--stage", "-z")).names())


def _difference(before: set[str], after: set[str]) -> set[str]:
    return {row.partition("\t")[2] for row in before ^ after}


# ---- commit


async def _staged(git: Runner) -> list[str]:
    """Names that differ between the newest commit and the index."""
    tree = await git.head_tree()
    return (
        await git.must(
            "diff-index",
            "--cached",
            "--name-only",
            "-z",
            "--no-renames",
            "--ignore-submodules=all",
            tree,
        )
    ).names()


def _commit_shown(values: Mapping[str, Any], context: Context) -> str:
    files = "all tracked files that changed" if values.get("all") else "what is staged"
    return f"commit {files} with the message:\n{str(values['message'])[:2000]}"


@tool(
    side_effect="execute",
    risk="high",
    timeout=SECONDS + 10,
    parallel=False,
    preview=preview(_commit_shown),
)
async def git_commit(
    message: Annotated[
        str, "The message: a subject line, and after an empty line what else is to be said."
    ],
    context: Context,
    all: Annotated[bool, "Stage all tracked files that changed before."] = False,
    allow_empty: Annotated[bool, "Commit also if nothing is staged."] = False,
) -> dict[str, Any]:
    """Record what is staged as a commit of the checked-out branch. Runs no hooks and signs
    nothing.
    """
    text = _message(message)
    workspace = context.resource(Workspace)
    with bench(workspace) as made:
        git = runner(made, context)
        await identify(git, made, context)
        if all:
            await _stage_tracked(git)
        staged = await _staged(git)
        refuse(workspace, staged, write=False, what="`git_commit`")
        if not staged and not allow_empty:
            raise ToolFailed(
                ErrorType.IO_ERROR, "nothing was committed: nothing is staged; use `git_add` first"
            )
        empty = ("--allow-empty",) if allow_empty else ()
        ran = await git.run(
            "commit",
            "--quiet",
            "--file=-",
            "--cleanup=whitespace",
            "--no-verify",
            "--no-gpg-sign",
            "--no-edit",
            "--no-status",
            *empty,
            stdin=text.encode("utf-8", "replace"),
        )
        if ran.code:
            raise ToolFailed(
                ErrorType.IO_ERROR,
                f"nothing was committed: {ran.said or ran.text.strip() or ran.code}",
            )
        commit = await git.find("HEAD")
        made.install()
    value = {
        "commit": commit,
        "subject": text.splitlines()[0],
        "files": staged[:_NAMES],
        "file_count": len(staged),
    }
    return answer(
        git_commit,
        "commit",
        context,
        Done(value, ran.argv, paths=staged, outputs={"stdout": ran.output}),
    )


def _message(message: str) -> str:
    text = message.strip()
    if not text or len(text) > _LONGEST_MESSAGE or re.search(r"[\0-\x08\x0b-\x1f\x7f]", text):
        raise RetryCall(
            f"`message` must be text of 1 to {_LONGEST_MESSAGE} characters without control "
            "characters"
        )
    return text + "\n"


async def _stage_tracked(git: Runner) -> None:
    ran = await git.must("diff-files", "--name-only", "-z", "--ignore-submodules=all")
    wanted = list(dict.fromkeys(ran.names()))
    refuse(git.workspace, wanted, write=False, what="`git_commit`")
    for name in wanted:
        if why := _may_not(git.workspace, name):
            raise ToolFailed(
                ErrorType.PERMISSION_DENIED, f"nothing was committed: {shown(name)} {why}"
            )
    await check_filters(git, wanted, "`git_commit`")
    if wanted:
        stdin = b"".join(os.fsencode(name) + b"\0" for name in wanted)
        await git.must(
            "add", "--update", "--pathspec-from-file=-", "--pathspec-file-nul", stdin=stdin
        )


async def identify(git: Runner, made: Bench, context: Context) -> None:
    """Tell git who commits: the author of the options, or the person's own settings. Raises
    ToolFailed if nobody said.
    """
    author = GitOptions.of(context).author or await person(
        git, os.environ.get("HOME", ""), os.environ.get("XDG_CONFIG_HOME", "")
    )
    if author is None:
        raise ToolFailed(
            ErrorType.NOT_FOUND,
            "nothing was committed: the person's git settings (~/.gitconfig) do not say who "
            "they are; ask them to set "
            "`user.name` and `user.email`",
        )
    made.configure(section("user", {"name": author[0], "email": author[1]}))
