"""`git_add` and `git_commit`: only what a tool may read becomes part of the history.

`git_add` makes the list of files itself: what git calls changed, without what no tool may read and
without what is no regular file or link. Only these names reach git, and the resulting index is
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
"""Most files that one `git_add` stages."""
_MAX_MESSAGE = 20_000
_MAX_NAMES = 20


def runner(made: Bench, context: Context) -> Runner:
    """Return git on a workbench. Changes of references are kept for the receipt."""
    workspace = context.resource(Workspace)
    attempt = Attempt.of(context)
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
        wanted, left_out = await _find_changed(git, asked)
        if len(wanted) > MOST_FILES:
            raise ToolFailed(
                ErrorType.LIMIT,
                f"{len(wanted)} files changed, more than {MOST_FILES}; name folders",
            )
        _check_asked(workspace, asked, wanted, left_out)
        await check_filters(git, wanted, "`git_add`")
        before = await _read_index(git)
        if wanted:
            stdin = b"".join(os.fsencode(name) + b"\0" for name in wanted)
            await git.must(
                "add", "--all", "--pathspec-from-file=-", "--pathspec-file-nul", stdin=stdin
            )
            argv = git.ran[-1].argv
            staged = _differing_names(before, await _read_index(git))
            unexpected = sorted(staged - set(wanted))
            if unexpected:
                raise ToolFailed(
                    ErrorType.IO_ERROR,
                    f"nothing was staged: {shown(unexpected[0])} came in while it was done; "
                    "try again",
                )
            made.install()
        else:
            argv = ()
            staged = set[str]()
    value: dict[str, Any] = {"staged": sorted(staged)[:_MAX_NAMES], "count": len(staged)}
    if left_out:
        value["left_out"] = left_out[:_MAX_NAMES]
    category = "success" if staged else "nothing_to_do"
    return answer(
        git_add, "add", context, Done(value, argv, category=category, paths=sorted(staged))
    )


async def _find_changed(git: Runner, asked: list[str]) -> tuple[list[str], list[str]]:
    """Return changed names that may be staged, and changed names that may not, with the reason."""
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
        code = row[:2]
        name = row[3:]
        if code[1] == " ":
            continue  # It is staged already, and not changed since.
        reason = _refusal(git.workspace, name)
        if reason:
            left_out.append(f"{shown(name)} {reason}")
        else:
            wanted.append(name)
    return wanted, left_out


def _refusal(workspace: Workspace, name: str) -> str:
    """Return why a name is not staged; empty if it may be."""
    if name.endswith("/"):
        return "is a repository of its own"
    reason = workspace.names.check(name, write=False)
    if reason:
        return reason
    try:
        kind = workspace.stat(name).kind
        if kind == "file":
            # Opened, not read: a hard link to elsewhere is refused here as everywhere else.
            workspace.open(name).close()
        return "" if kind in ("file", "link") else f"is no file ({kind})"
    except ToolFailed as failure:
        if failure.error_type is ErrorType.NOT_FOUND:
            return ""  # The file is gone: its deletion is staged.
        return f"cannot be read: {failure}"


def _check_asked(
    workspace: Workspace, asked: list[str], wanted: list[str], left_out: list[str]
) -> None:
    """Raise ToolFailed if a named file is not there to be staged: silence looks like success."""
    for name in asked:
        if any(one == name or not name or one.startswith(f"{name}/") for one in wanted):
            continue
        prefix = f"{shown(name)} "
        refused = next((text for text in left_out if text.startswith(prefix)), "")
        if refused:
            raise ToolFailed(ErrorType.PERMISSION_DENIED, f"nothing was staged: {refused}")
        workspace.stat(name)


async def _read_index(git: Runner) -> set[str]:
    """Return the index, a row per entry: mode, id, stage and name."""
    ran = await git.must("ls-files", "--stage", "-z")
    return set(ran.names())


def _differing_names(before: set[str], after: set[str]) -> set[str]:
    return {row.partition("\t")[2] for row in before ^ after}


# ---- commit


async def _find_staged(git: Runner) -> list[str]:
    """Return the names that differ between the newest commit and the index."""
    tree = await git.head_tree()
    ran = await git.must(
        "diff-index",
        "--cached",
        "--name-only",
        "-z",
        "--no-renames",
        "--ignore-submodules=all",
        tree,
    )
    return ran.names()


def _describe_commit(values: Mapping[str, Any], context: Context) -> str:
    files = "all tracked files that changed" if values.get("all") else "what is staged"
    return f"commit {files} with the message:\n{str(values['message'])[:2000]}"


@tool(
    side_effect="execute",
    risk="high",
    timeout=SECONDS + 10,
    parallel=False,
    preview=preview(_describe_commit),
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
    text = _check_message(message)
    workspace = context.resource(Workspace)
    with bench(workspace) as made:
        git = runner(made, context)
        await identify(git, made, context)
        if all:
            await _stage_tracked(git)
        staged = await _find_staged(git)
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
        "files": staged[:_MAX_NAMES],
        "file_count": len(staged),
    }
    return answer(
        git_commit,
        "commit",
        context,
        Done(value, ran.argv, paths=staged, outputs={"stdout": ran.output}),
    )


def _check_message(message: str) -> str:
    text = message.strip()
    if not text or len(text) > _MAX_MESSAGE or re.search(r"[\0-\x08\x0b-\x1f\x7f]", text):
        raise RetryCall(
            f"`message` must be text of 1 to {_MAX_MESSAGE} characters without control characters"
        )
    return text + "\n"


async def _stage_tracked(git: Runner) -> None:
    ran = await git.must("diff-files", "--name-only", "-z", "--ignore-submodules=all")
    wanted = list(dict.fromkeys(ran.names()))
    refuse(git.workspace, wanted, write=False, what="`git_commit`")
    for name in wanted:
        reason = _refusal(git.workspace, name)
        if reason:
            raise ToolFailed(
                ErrorType.PERMISSION_DENIED, f"nothing was committed: {shown(name)} {reason}"
            )
    await check_filters(git, wanted, "`git_commit`")
    if wanted:
        stdin = b"".join(os.fsencode(name) + b"\0" for name in wanted)
        await git.must(
            "add", "--update", "--pathspec-from-file=-", "--pathspec-file-nul", stdin=stdin
        )


async def identify(git: Runner, made: Bench, context: Context) -> None:
    """Tell git who commits: the author of the options, or the person's own settings.

    Raises:
        ToolFailed: Neither names an author.
    """
    author = GitOptions.of(context).author
    if author is None:
        home = os.environ.get("HOME", "")
        author = await person(git, home, os.environ.get("XDG_CONFIG_HOME", ""))
    if author is None:
        raise ToolFailed(
            ErrorType.NOT_FOUND,
            "nothing was committed: the person's git settings (~/.gitconfig) do not say who "
            "they are; ask them to set `user.name` and `user.email`",
        )
    made.configure(section("user", {"name": author[0], "email": author[1]}))
