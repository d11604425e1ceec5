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
from ferrule.permissions.filesystem.paths import quote_path
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.toolkits.files.preview import make_preview
from ferrule.tools.context import Context
from ferrule.tools.decorator import tool
from ferrule.tools.definition import READS

from .affected_files import check_filters, check_names
from .attempt import Attempt
from .commit_hooks import CommitHooks
from .file_access import make_wall
from .receipt import GitOptions, Outcome, make_result
from .run import MAX_SECONDS, GitRunner, compute_deadline, find_git
from .settings import find_person
from .writable_repository import Workbench, format_section, open_workbench

MAX_FILES = 10_000
"""Most files that one `git_add` stages."""
_MAX_MESSAGE = 20_000
_MAX_NAMES = 20


def make_runner(workbench: Workbench, context: Context) -> GitRunner:
    """Return git on a workbench. Changes of references are kept for the receipt."""
    workspace = context.resource(Workspace)
    attempt = Attempt.from_context(context)
    program = find_git(context)
    held = make_wall(program, workbench.folder, outside=workbench.real.outside, writes=True)
    git = GitRunner(
        program,
        workbench.directory,
        workbench.environment,
        held,
        workspace,
        compute_deadline(context),
    )
    attempt.git = git
    attempt.watch_references(workbench.real, workbench.exit_callbacks)
    return git


@tool(side_effect="execute", risk="medium", timeout=MAX_SECONDS + 10, parallel=False)
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
    asked = [workspace.check_name(path, write=False) for path in paths or ()]
    with open_workbench(workspace, allow_unfinished=True) as made:
        git = make_runner(made, context)
        wanted, left_out = await _find_changed(git, asked)
        if len(wanted) > MAX_FILES:
            raise ToolFailed(
                ErrorType.LIMIT,
                f"{len(wanted)} files changed, more than {MAX_FILES}; name folders",
            )
        _check_asked(workspace, asked, wanted, left_out)
        await check_filters(git, wanted, "`git_add`")
        before = await _read_index(git)
        if wanted:
            stdin = b"".join(os.fsencode(name) + b"\0" for name in wanted)
            await git.run_checked(
                "add", "--all", "--pathspec-from-file=-", "--pathspec-file-nul", stdin=stdin
            )
            argv = git.results[-1].argv
            staged = _differing_names(before, await _read_index(git))
            unexpected = sorted(staged - set(wanted))
            if unexpected:
                raise ToolFailed(
                    ErrorType.IO_ERROR,
                    f"nothing was staged: {quote_path(unexpected[0])} came in while it was done; "
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
    return make_result(
        git_add, "add", context, Outcome(value, argv, category=category, paths=sorted(staged))
    )


async def _find_changed(git: GitRunner, asked: list[str]) -> tuple[list[str], list[str]]:
    """Return changed names that may be staged, and changed names that may not, with the reason."""
    narrowed = ["--", *(name or "." for name in asked)] if asked else []
    ran = await git.run_checked(
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
            left_out.append(f"{quote_path(name)} {reason}")
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
        prefix = f"{quote_path(name)} "
        refused = next((text for text in left_out if text.startswith(prefix)), "")
        if refused:
            raise ToolFailed(ErrorType.PERMISSION_DENIED, f"nothing was staged: {refused}")
        workspace.stat(name)


async def _read_index(git: GitRunner) -> set[str]:
    """Return the index, a row per entry: mode, id, stage and name."""
    ran = await git.run_checked("ls-files", "--stage", "-z")
    return set(ran.names())


def _differing_names(before: set[str], after: set[str]) -> set[str]:
    return {row.partition("\t")[2] for row in before ^ after}


# ---- commit


async def _find_staged(git: GitRunner) -> list[str]:
    """Return the names that differ between the newest commit and the index."""
    tree = await git.find_head_tree()
    ran = await git.run_checked(
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
    timeout=MAX_SECONDS + 10,
    parallel=False,
    preview=make_preview(_describe_commit),
)
async def git_commit(
    message: Annotated[
        str, "The message: a subject line, and after an empty line what else is to be said."
    ],
    context: Context,
    all: Annotated[bool, "Stage all tracked files that changed before."] = False,
    allow_empty: Annotated[bool, "Commit also if nothing is staged."] = False,
) -> dict[str, Any]:
    """Record what is staged as a commit of the checked-out branch. Signs nothing. Hooks of the
    repository run in the sandbox; the result names them.
    """
    text = _check_message(message)
    workspace = context.resource(Workspace)
    hooks = CommitHooks(context)
    await hooks.prepare()
    text = await hooks.run_before(text)
    with open_workbench(workspace) as made:
        git = make_runner(made, context)
        await configure_author(git, made, context)
        if all:
            await _stage_tracked(git)
        staged = await _find_staged(git)
        check_names(workspace, staged, write=False, what="`git_commit`")
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
                f"nothing was committed: {ran.complaint or ran.text.strip() or ran.code}",
            )
        commit = await git.find_commit("HEAD")
        made.install()
    await hooks.run_after()
    value = {
        **hooks.describe(),
        "commit": commit,
        "subject": text.splitlines()[0],
        "files": staged[:_MAX_NAMES],
        "file_count": len(staged),
    }
    return make_result(
        git_commit,
        "commit",
        context,
        Outcome(value, ran.argv, paths=staged, outputs={"stdout": ran.output}),
    )


def _check_message(message: str) -> str:
    text = message.strip()
    if not text or len(text) > _MAX_MESSAGE or re.search(r"[\0-\x08\x0b-\x1f\x7f]", text):
        raise RetryCall(
            f"`message` must be text of 1 to {_MAX_MESSAGE} characters without control characters"
        )
    return text + "\n"


async def _stage_tracked(git: GitRunner) -> None:
    ran = await git.run_checked("diff-files", "--name-only", "-z", "--ignore-submodules=all")
    wanted = list(dict.fromkeys(ran.names()))
    check_names(git.workspace, wanted, write=False, what="`git_commit`")
    for name in wanted:
        reason = _refusal(git.workspace, name)
        if reason:
            raise ToolFailed(
                ErrorType.PERMISSION_DENIED, f"nothing was committed: {quote_path(name)} {reason}"
            )
    await check_filters(git, wanted, "`git_commit`")
    if wanted:
        stdin = b"".join(os.fsencode(name) + b"\0" for name in wanted)
        await git.run_checked(
            "add", "--update", "--pathspec-from-file=-", "--pathspec-file-nul", stdin=stdin
        )


async def configure_author(git: GitRunner, workbench: Workbench, context: Context) -> None:
    """Tell git who commits: the author of the options, or the person's own settings.

    Raises:
        ToolFailed: Neither names an author.
    """
    author = GitOptions.from_context(context).author
    if author is None:
        home = os.environ.get("HOME", "")
        author = await find_person(git, home, os.environ.get("XDG_CONFIG_HOME", ""))
    if author is None:
        raise ToolFailed(
            ErrorType.NOT_FOUND,
            "nothing was committed: the person's git settings (~/.gitconfig) do not say who "
            "they are; ask them to set `user.name` and `user.email`",
        )
    workbench.configure(format_section("user", {"name": author[0], "email": author[1]}))
