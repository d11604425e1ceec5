"""`git_switch`, `git_fetch`, `git_pull_ff_only`, `git_rebase`: moving branches and files.

What would change is found by comparing trees first; a path that no tool may write stops the
operation before it begins (`affected_files`). A rebase that meets a conflict is undone, so none of
these leaves anything half done.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from ferrule.core.calls import ErrorType
from ferrule.core.errors import RetryCall, ToolFailed
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.toolkits.files.preview import make_preview
from ferrule.tools.context import Context
from ferrule.tools.decorator import tool

from .affected_files import check_commits, check_switch
from .attempt import Attempt
from .receipt import Category, Outcome, make_result
from .refs import check_branch, check_remote
from .remote import allow_fetching, find_remote
from .run import MAX_SECONDS, GitResult, GitRunner
from .staging import configure_author, make_runner
from .writable_repository import Workbench, open_workbench

_MAX_SHOWN = 50


def _git_error(operation: str, ran: GitResult) -> ToolFailed:
    reason = ran.complaint or ran.text.strip() or f"exit status {ran.code}"
    return ToolFailed(
        ErrorType.IO_ERROR, f"`git_{operation}` did nothing: git refused: {reason[:2000]}"
    )


def _describe_switch(values: Mapping[str, Any], context: Context) -> str:
    branch = str(values["branch"])
    if values.get("force_create"):
        return (
            f"make {branch} a branch that begins at {values.get('start_point') or 'HEAD'}, "
            "whatever it was before, and check it out"
        )
    begin = f", new, from {values.get('start_point') or 'HEAD'}" if values.get("create") else ""
    return f"check out the branch {branch}{begin}: files of the workspace change"


@tool(
    side_effect="execute",
    risk="high",
    timeout=MAX_SECONDS + 10,
    parallel=False,
    preview=make_preview(_describe_switch),
)
async def git_switch(
    branch: Annotated[str, "The branch to check out."],
    context: Context,
    create: Annotated[bool, "Make the branch first. Not together with `force_create`."] = False,
    force_create: Annotated[
        bool, "Make the branch anew, also if it exists: where it was is lost."
    ] = False,
    start_point: Annotated[
        str | None, "Where a new branch begins; default: what is checked out."
    ] = None,
) -> dict[str, Any]:
    """Check out another branch, or make a new one and check it out. Local changes are never
    overwritten.
    """
    check_branch(branch)
    if create and force_create:
        raise RetryCall("`git_switch` takes `create` or `force_create`, not both")
    if start_point and not (create or force_create):
        raise RetryCall("`start_point` is for new branches: pass `create: true` with it")
    with open_workbench(context.resource(Workspace)) as made:
        made.check_full_checkout()
        git = make_runner(made, context)
        old = await git.find_head_tree()
        new = await _find_target(git, branch, create or force_create, start_point, old)
        changed = await check_switch(git, old, new, "`git_switch`") if new != old else []
        is_new = create or force_create
        option = "--no-guess"
        if create:
            option = "--create"
        elif force_create:
            option = "--force-create"
        start = [new] if is_new and start_point else []
        ran = await git.run(
            "switch",
            "--quiet",
            "--no-progress",
            "--no-recurse-submodules",
            "--no-overwrite-ignore",
            *(["--no-track"] if is_new else []),
            option,
            branch,
            *start,
        )
        if ran.code:
            raise _git_error("switch", ran)
        head = await git.find_commit("HEAD")
        made.install()
    value = {
        "branch": branch,
        "created": create or force_create,
        "head": head,
        "changed_files": changed[:_MAX_SHOWN],
        "changed_count": len(changed),
    }
    return make_result(
        git_switch,
        "switch",
        context,
        Outcome(value, ran.argv, paths=changed, outputs={"stdout": ran.output}),
    )


async def _find_target(
    git: GitRunner, branch: str, new: bool, start_point: str | None, old: str
) -> str:
    """Return the commit to check out, or `old` if there is nothing to move to."""
    existing = await git.find_commit(f"refs/heads/{branch}")
    if new:
        return await git.resolve_commit(start_point, "start_point") if start_point else old
    if existing is None:
        raise ToolFailed(
            ErrorType.NOT_FOUND,
            f"there is no branch `{branch}`; `git_branch_list` shows them, `create: true` "
            "makes one",
        )
    return existing


# ---- from remotes


async def _fetch(
    git: GitRunner, made: Workbench, context: Context, name: str, branch: str | None, prune: bool
) -> tuple[GitResult, list[str]]:
    """Fetch into `refs/remotes/NAME/`. Return the run and the refs there that changed."""
    check_remote(name)
    remote = await find_remote(git, made, name)
    where = f"refs/remotes/{name}"
    refs = f"+refs/heads/{branch or '*'}:{where}/{branch or '*'}"
    before = await _list_refs(git, where)
    with allow_fetching(git, made, context, remote):
        ran = await git.run(
            "fetch",
            "--quiet",
            "--no-progress",
            "--no-tags",
            "--no-recurse-submodules",
            "--no-auto-maintenance",
            "--no-write-fetch-head",
            "--no-write-commit-graph",
            "--refmap=",
            *(["--prune"] if prune else []),
            name,
            refs,
        )
    if ran.code:
        raise _fetch_error(name, remote.url, remote.shown_url, ran)
    after = await _list_refs(git, where)
    return ran, sorted(row.partition(" ")[2] for row in before ^ after)


def _fetch_error(name: str, url: str, shown: str, ran: GitResult) -> ToolFailed:
    reason = (ran.complaint or f"exit status {ran.code}").replace(url, shown)[:2000]
    return ToolFailed(
        ErrorType.IO_ERROR,
        f"nothing was fetched from `{name}` ({shown}): {reason}; if the network or a password "
        "is missing, ask the person to fetch",
    )


async def _list_refs(git: GitRunner, where: str) -> set[str]:
    ran = await git.run_checked("for-each-ref", "--format=%(objectname) %(refname)", where)
    return set(ran.text.splitlines())


def _describe_fetch(values: Mapping[str, Any], context: Context) -> str:
    return (
        f"reach the remote {values.get('remote', 'origin')} over the network and download "
        f"{values.get('branch') or 'its branches'}"
    )


@tool(
    side_effect="external",
    risk="high",
    timeout=MAX_SECONDS + 10,
    parallel=False,
    preview=make_preview(_describe_fetch),
)
async def git_fetch(
    context: Context,
    remote: Annotated[str, "The name of the remote."] = "origin",
    branch: Annotated[str | None, "Only this branch; default: all."] = None,
    prune: Annotated[bool, "Forget branches that the remote no longer has."] = False,
) -> dict[str, Any]:
    """Download new commits of a remote. Changes no branch of yours and no file."""
    if branch is not None:
        check_branch(branch)
    with open_workbench(context.resource(Workspace), allow_unfinished=True) as made:
        git = make_runner(made, context)
        ran, moved = await _fetch(git, made, context, remote, branch, prune)
        made.install()
    value = {
        "remote": remote,
        "updated": [_short_name(ref) for ref in dict.fromkeys(moved)][:_MAX_SHOWN],
    }
    category: Category = "success" if moved else "nothing_to_do"
    return make_result(
        git_fetch,
        "fetch",
        context,
        Outcome(value, ran.argv, category=category, outputs={"stderr": ran.complaint.encode()}),
    )


def _short_name(ref: str) -> str:
    return ref.removeprefix("refs/remotes/")


def _describe_pull(values: Mapping[str, Any], context: Context) -> str:
    return (
        f"{_describe_fetch(values, context)}; then move the checked-out branch and its files "
        "forward to what came"
    )


@tool(
    side_effect="external",
    risk="high",
    timeout=MAX_SECONDS + 10,
    parallel=False,
    preview=make_preview(_describe_pull),
)
async def git_pull_ff_only(
    context: Context,
    remote: Annotated[str, "The name of the remote."] = "origin",
    branch: Annotated[
        str | None, "The branch of the remote; default: the one of the same name as yours."
    ] = None,
) -> dict[str, Any]:
    """Download new commits and move the checked-out branch forward to them, if that needs no
    merge.
    """
    if branch is not None:
        check_branch(branch)
    with open_workbench(context.resource(Workspace)) as made:
        made.check_full_checkout()
        git = make_runner(made, context)
        symbolic = await git.run("symbolic-ref", "--quiet", "--short", "HEAD")
        if symbolic.code:
            raise ToolFailed(
                ErrorType.IO_ERROR,
                "nothing was pulled: no branch is checked out; use `git_switch` first",
            )
        wanted = branch or check_branch(symbolic.text.strip())
        await _fetch(git, made, context, remote, wanted, False)
        old = await git.find_head_tree()
        new = await git.resolve_commit(f"refs/remotes/{remote}/{wanted}", "branch")
        changed = await check_switch(git, old, new, "`git_pull_ff_only`")
        ran = await git.run(
            "merge",
            "--ff-only",
            "--quiet",
            "--no-progress",
            "--no-overwrite-ignore",
            "--no-autostash",
            "--no-stat",
            new,
        )
        if ran.code:
            raise _git_error("pull_ff_only", ran)
        head = await git.find_commit("HEAD")
        made.install()
    value = {
        "remote": remote,
        "branch": wanted,
        "head": head,
        "changed_files": changed[:_MAX_SHOWN],
        "changed_count": len(changed),
    }
    category: Category = "success" if changed else "nothing_to_do"
    done = Outcome(
        value, ran.argv, category=category, paths=changed, outputs={"stdout": ran.output}
    )
    return make_result(git_pull_ff_only, "pull_ff_only", context, done)


# ---- rebase


def _describe_rebase(values: Mapping[str, Any], context: Context) -> str:
    return (
        f"replay the commits of the checked-out branch on top of {values['onto']}: they get new "
        "ids, files change"
    )


@tool(
    side_effect="execute",
    risk="high",
    timeout=MAX_SECONDS + 10,
    parallel=False,
    preview=make_preview(_describe_rebase),
)
async def git_rebase(
    onto: Annotated[str, "The branch or commit to replay on."],
    context: Context,
) -> dict[str, Any]:
    """Replay the commits of the checked-out branch on top of another one. A conflict takes
    everything back.
    """
    with open_workbench(context.resource(Workspace)) as made:
        made.check_full_checkout()
        git = make_runner(made, context)
        target = await git.resolve_commit(onto, "onto")
        old = await git.find_commit("HEAD")
        if old is None:
            raise ToolFailed(ErrorType.IO_ERROR, "nothing was rebased: there is no commit yet")
        await _check_clean(git)
        await configure_author(git, made, context)
        what = "`git_rebase`"
        changed = [
            *await check_switch(git, old, target, what),
            *await check_commits(git, target, old, what),
        ]
        ran = await git.run(
            "rebase",
            "--quiet",
            "--no-stat",
            "--no-verify",
            "--no-gpg-sign",
            "--no-autostash",
            "--no-autosquash",
            "--no-fork-point",
            "--no-rerere-autoupdate",
            "--no-rebase-merges",
            "--empty=drop",
            "--merge",
            target,
        )
        if ran.code:
            raise await _undo(git, made, ran, old, Attempt.from_context(context))
        head = await git.find_commit("HEAD")
        made.install()
    paths = list(dict.fromkeys(changed))
    value = {
        "onto": target,
        "head": head,
        "before": old,
        "changed_files": paths[:_MAX_SHOWN],
        "changed_count": len(paths),
    }
    category: Category = "success" if head != old else "nothing_to_do"
    done = Outcome(value, ran.argv, category=category, paths=paths, outputs={"stdout": ran.output})
    return make_result(git_rebase, "rebase", context, done)


async def _check_clean(git: GitRunner) -> None:
    ran = await git.run_checked(
        "status",
        "--porcelain=v1",
        "-z",
        "--untracked-files=no",
        "--ignore-submodules=all",
        "--no-renames",
    )
    if ran.names():
        raise ToolFailed(
            ErrorType.IO_ERROR,
            "nothing was rebased: there are changes that are not committed; commit them first",
        )


async def _undo(
    git: GitRunner, made: Workbench, ran: GitResult, old: str, attempt: Attempt
) -> ToolFailed:
    """Abort a failed rebase. Return the error: the reason, or that it could not be aborted."""
    unmerged = (await git.run("ls-files", "--unmerged", "-z")).names()
    names = list(dict.fromkeys(row.partition("\t")[2] for row in unmerged))
    attempt.category = "conflict" if names else ""
    if (made.folder / "rebase-merge").exists():
        back = await git.run("rebase", "--abort")
        if back.code or await git.find_commit("HEAD") != old:
            return ToolFailed(
                ErrorType.IO_ERROR,
                f"`git_rebase` failed and could not be taken back ({back.complaint[:500]}): files "
                "of the workspace may be changed; look at `git_status` and tell the person",
            )
        made.install()
    if names:
        listed = ", ".join(f"`{name}`" for name in names[:20])
        return ToolFailed(
            ErrorType.IO_ERROR,
            f"`git_rebase` met conflicts in {listed}; it was taken back, and everything is "
            "as it was",
        )
    return _git_error("rebase", ran)
