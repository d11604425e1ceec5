"""`git_add` and `git_commit`: only what a tool may read becomes part of the history.

`git_add` makes the list of files itself: what git calls changed, without what no tool may read and
without what is no regular file or link. Only these names reach git, and what is in the index then
is compared with the list.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Annotated, Any

from ferrule.core.calls import ErrorType
from ferrule.core.errors import RetryCall, ToolFailed
from ferrule.permissions.filesystem.paths import quote_path
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.tools.context import Context
from ferrule.tools.decorator import tool
from ferrule.tools.definition import READS

from .affected_files import check_filters, check_names
from .attempt import GitResult
from .mutations import check_idle, check_message, describe_hooks, make_author_error, mutation
from .receipt import Outcome, make_result
from .run import MAX_SECONDS, GitRunner, make_git_error, open_git

MAX_FILES = 10_000
"""Most files that one `git_add` stages."""
_MAX_NAMES = 20


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
    wanted: list[str] = []
    left_out: list[str] = []
    before: set[str] = set()

    async def look(git: GitRunner) -> None:
        (changed, refused), index = await asyncio.gather(
            _find_changed(git, asked), _read_index(git)
        )
        wanted.extend(changed)
        left_out.extend(refused)
        before.update(index)

    async with open_git(context, changes="git_add", look=look) as git:
        if len(wanted) > MAX_FILES:
            raise ToolFailed(
                ErrorType.LIMIT,
                f"{len(wanted)} files changed, more than {MAX_FILES}; name folders",
            )
        _check_asked(workspace, asked, wanted, left_out)
        await check_filters(git, wanted, "`git_add`")
        staged = set[str]()
        argv: tuple[str, ...] = ()
        if wanted:
            argv = (await _stage(git, wanted, "--all")).argv
            after, git.references_after = await asyncio.gather(
                _read_index(git), git.read_references()
            )
            staged = _differing_names(before, after)
            await _check_staged(git, staged - set(wanted))
    value: dict[str, Any] = {"staged": sorted(staged)[:_MAX_NAMES], "count": len(staged)}
    if left_out:
        value["left_out"] = left_out[:_MAX_NAMES]
    category = "success" if staged else "nothing_to_do"
    return make_result(
        git_add, "add", context, Outcome(value, argv, category=category, paths=sorted(staged))
    )


async def _stage(git: GitRunner, names: list[str], option: str) -> GitResult:
    stdin = b"".join(os.fsencode(name) + b"\0" for name in names)
    ran = await git.run("add", option, "--pathspec-from-file=-", "--pathspec-file-nul", stdin=stdin)
    if ran.code:
        raise make_git_error("nothing was staged", ran)
    return ran


async def _check_staged(git: GitRunner, unexpected: set[str]) -> None:
    """Take back names that were not on the list: a file may become a folder meanwhile.

    Raises:
        ToolFailed: There are any.
    """
    if not unexpected:
        return
    names = sorted(unexpected)
    stdin = b"".join(os.fsencode(name) + b"\0" for name in names)
    await git.run_checked(
        "reset", "--quiet", "--pathspec-from-file=-", "--pathspec-file-nul", stdin=stdin
    )
    raise ToolFailed(
        ErrorType.IO_ERROR,
        f"{quote_path(names[0])} came in while files were staged and was taken out again; look at "
        "`git_status` and try again",
        transient=True,
    )


async def _find_changed(git: GitRunner, asked: list[str]) -> tuple[list[str], list[str]]:
    """Return changed names that may be staged, and changed names that may not, with the reason."""
    narrowed = ["--", *(name or "." for name in asked or [""])]
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
        name = git.name_in_workspace(row[3:])
        if code[1] == " " or name is None:
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
    arguments = ["--cached", "--name-only", "-z", "--no-renames", "--ignore-submodules=all"]
    ran = await git.run("diff-index", *arguments, "HEAD", "--")
    if ran.code:  # There is no commit yet.
        tree = await git.find_head_tree()
        ran = await git.run_checked("diff-index", *arguments, tree)
    return [git.name_in_workspace(name) or name for name in ran.names()]


def _describe_commit(values: Mapping[str, Any], context: Context) -> str:
    files = "all tracked files that changed" if values.get("all") else "what is staged"
    return f"commit {files} with the message:\n{str(values['message'])[:2000]}"


@mutation(_describe_commit)
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
    text = check_message(message)
    workspace = context.resource(Workspace)
    staged: list[str] = []

    async def look(git: GitRunner) -> None:
        if not all:
            staged.extend(await _find_staged(git))

    async with open_git(context, changes="git_commit", look=look) as git:
        check_idle(git)
        if all:
            await _stage_tracked(git)
            staged.extend(await _find_staged(git))
        check_names(workspace, staged, write=False, what="`git_commit`")
        if not staged and not allow_empty:
            raise ToolFailed(
                ErrorType.IO_ERROR, "nothing was committed: nothing is staged; use `git_add` first"
            )
        # Not `--all`: git would hold the index while hooks run, which may want to stage something.
        options = ["--allow-empty"] if allow_empty else []
        ran = await git.run(
            "commit",
            "--quiet",
            "--file=-",
            "--cleanup=whitespace",
            "--no-gpg-sign",
            "--no-edit",
            "--no-status",
            *options,
            stdin=text.encode("utf-8", "replace"),
            hooks=True,
        )
        if ran.code:
            raise _commit_error(ran)
        git.references_after = await git.read_references()
        commit = git.references_after["HEAD"]
    value = {
        **describe_hooks(git, ran, _COMMIT_HOOKS),
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


_REFUSING_HOOKS = ("pre-commit", "prepare-commit-msg", "commit-msg", "reference-transaction")
_COMMIT_HOOKS = ("pre-commit", "prepare-commit-msg", "commit-msg", "post-commit")


def _commit_error(ran: GitResult) -> ToolFailed:
    failed = (one.partition(" ") for one in ran.hooks if "(" in one)
    refused = next((one for one in failed if one[0] in _REFUSING_HOOKS), None)
    if refused:
        name, _, status = refused
        said = "\n".join(filter(None, (ran.text.strip(), ran.complaint)))
        return ToolFailed(
            ErrorType.TOOL_ERROR,
            f"nothing was committed: the repository's hook `{name}` refused it {status}: "
            f"{said[:2000]}",
        )
    return make_author_error(ran) or make_git_error("nothing was committed", ran)


async def _stage_tracked(git: GitRunner) -> None:
    ran = await git.run_checked(
        "diff-files", "--relative", "--name-only", "-z", "--ignore-submodules=all"
    )
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
        await _stage(git, wanted, "--update")
