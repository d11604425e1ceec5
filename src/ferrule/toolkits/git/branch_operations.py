"""Moving branches and files: `git_switch`, `git_rebase`, `git_stash`; `git_fetch`,
`git_pull_ff_only` and `git_push` with a remote.

What would change is found by comparing trees first; a path that no tool may write stops the
operation before it begins (`affected_files`). What meets a conflict is undone, so none of these
leaves anything half done. Hooks of the repository run confined, and the result names them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from ferrule.core.calls import ErrorType
from ferrule.core.errors import RetryCall, ToolFailed
from ferrule.tools.context import Context

from .affected_files import check_commits, check_switch
from .attempt import Attempt, GitResult
from .mutations import (
    check_idle,
    check_message,
    describe_files,
    describe_hooks,
    make_author_error,
    mutation,
)
from .receipt import Category, Outcome, make_result
from .refs import check_branch, check_remote
from .remote import describe_remote, find_remote, run_with_remote
from .run import GitRunner, make_git_error, open_git
from .settings import make_printable

_MAX_SHOWN = 50


def _make_error(operation: str, ran: GitResult) -> ToolFailed:
    return make_git_error(f"`git_{operation}` did nothing: git refused", ran)


async def _check_full_checkout(git: GitRunner) -> None:
    """Raise ToolFailed if only a part of the files is checked out.

    What a move would write is then not what differs between trees.
    """
    ran = await git.run("config", "--type=bool", "--get", "core.sparseCheckout")
    if ran.text.strip() == "true":
        raise ToolFailed(
            ErrorType.PERMISSION_DENIED,
            "nothing was done: this repository checks out only a part of its files "
            "(sparse checkout); ask the person to do it",
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


@mutation(_describe_switch)
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
    async with open_git(context, changes="git_switch") as git:
        check_idle(git)
        await _check_full_checkout(git)
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
            hooks=True,
        )
        if ran.code:
            raise _make_error("switch", ran)
        head = await git.find_commit("HEAD")
    value = {
        **describe_hooks(git, ran, ("post-checkout",)),
        "branch": branch,
        "created": create or force_create,
        "head": head,
        **describe_files(changed),
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
    git: GitRunner, name: str, branch: str | None, prune: bool
) -> tuple[GitResult, list[str]]:
    """Fetch into `refs/remotes/NAME/`. Return the run and the refs there that changed."""
    check_remote(name)
    remote = find_remote(git.repository, name)
    where = f"refs/remotes/{name}"
    refs = f"+refs/heads/{branch or '*'}:{where}/{branch or '*'}"
    before = await _list_refs(git, where)
    arguments = [
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
    ]
    ran = await run_with_remote(git, remote, arguments, what="nothing was fetched from")
    after = await _list_refs(git, where)
    return ran, sorted(row.partition(" ")[2] for row in before ^ after)


async def _list_refs(git: GitRunner, where: str) -> set[str]:
    ran = await git.run_checked("for-each-ref", "--format=%(objectname) %(refname)", where)
    return set(ran.text.splitlines())


def _describe_fetch(values: Mapping[str, Any], context: Context) -> str:
    return (
        f"reach {describe_remote(str(values.get('remote', 'origin')), context)} and download "
        f"{values.get('branch') or 'its branches'}"
    )


@mutation(_describe_fetch, "external")
async def git_fetch(
    context: Context,
    remote: Annotated[str, "The name of the remote."] = "origin",
    branch: Annotated[str | None, "Only this branch; default: all."] = None,
    prune: Annotated[bool, "Forget branches that the remote no longer has."] = False,
) -> dict[str, Any]:
    """Download new commits of a remote. Changes no branch of yours and no file."""
    if branch is not None:
        check_branch(branch)
    async with open_git(context, changes="git_fetch") as git:
        ran, moved = await _fetch(git, remote, branch, prune)
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


@mutation(_describe_pull, "external")
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
    async with open_git(context, changes="git_pull_ff_only") as git:
        check_idle(git)
        await _check_full_checkout(git)
        wanted = branch or await _find_branch(git, "nothing was pulled")
        await _fetch(git, remote, wanted, False)
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
            hooks=True,
        )
        if ran.code:
            raise _make_error("pull_ff_only", ran)
        head = await git.find_commit("HEAD")
    value = {
        **describe_hooks(git, ran, ("post-merge",)),
        "remote": remote,
        "branch": wanted,
        "head": head,
        **describe_files(changed),
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


@mutation(_describe_rebase)
async def git_rebase(
    onto: Annotated[str, "The branch or commit to replay on."],
    context: Context,
) -> dict[str, Any]:
    """Replay the commits of the checked-out branch on top of another one. A conflict takes
    everything back.
    """
    async with open_git(context, changes="git_rebase") as git:
        check_idle(git)
        await _check_full_checkout(git)
        target = await git.resolve_commit(onto, "onto")
        old = await git.find_commit("HEAD")
        if old is None:
            raise ToolFailed(ErrorType.IO_ERROR, "nothing was rebased: there is no commit yet")
        await _check_clean(git, "nothing was rebased")
        what = "`git_rebase`"
        changed = [
            *await check_switch(git, old, target, what),
            *await check_commits(git, target, old, what),
        ]
        ran = await git.run(
            "rebase",
            "--quiet",
            "--no-stat",
            "--no-gpg-sign",
            "--no-autostash",
            "--no-autosquash",
            "--no-fork-point",
            "--no-rerere-autoupdate",
            "--no-rebase-merges",
            "--empty=drop",
            "--merge",
            target,
            hooks=True,
        )
        if ran.code:
            raise await _undo(git, ran, old, Attempt.from_context(context))
        head = await git.find_commit("HEAD")
    paths = list(dict.fromkeys(changed))
    value = {
        **describe_hooks(git, ran, ("pre-rebase", "post-rewrite")),
        "onto": target,
        "head": head,
        "before": old,
        **describe_files(paths),
    }
    category: Category = "success" if head != old else "nothing_to_do"
    done = Outcome(value, ran.argv, category=category, paths=paths, outputs={"stdout": ran.output})
    return make_result(git_rebase, "rebase", context, done)


async def _check_clean(git: GitRunner, what: str) -> None:
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
            f"{what}: there are changes that are not committed; commit them first",
        )


async def _find_conflicts(git: GitRunner) -> list[str]:
    unmerged = (await git.run("ls-files", "--unmerged", "-z")).names()
    return list(dict.fromkeys(row.partition("\t")[2] for row in unmerged))


async def _undo(git: GitRunner, ran: GitResult, old: str, attempt: Attempt) -> ToolFailed:
    """Abort a failed rebase. Return the error: the reason, or that it could not be aborted."""
    names = await _find_conflicts(git)
    attempt.category = "conflict" if names else ""
    if (Path(git.repository.git_dir) / "rebase-merge").exists():
        back = await git.run("rebase", "--abort", hooks=True)
        if back.code or await git.find_commit("HEAD") != old:
            return ToolFailed(
                ErrorType.IO_ERROR,
                f"`git_rebase` failed and could not be taken back ({back.complaint[:500]}): files "
                "of the workspace may be changed; look at `git_status` and tell the person",
            )
    if names:
        return _conflict_error("git_rebase", names)
    return make_author_error(ran) or _make_error("rebase", ran)


def _conflict_error(operation: str, names: list[str]) -> ToolFailed:
    listed = ", ".join(f"`{name}`" for name in names[:20])
    return ToolFailed(
        ErrorType.IO_ERROR,
        f"`{operation}` met conflicts in {listed}; it was taken back, and everything is as it was",
    )


async def _find_branch(git: GitRunner, what: str) -> str:
    """Return the branch that is checked out. Raises ToolFailed if there is none."""
    symbolic = await git.run("symbolic-ref", "--quiet", "--short", "HEAD")
    if symbolic.code:
        raise ToolFailed(
            ErrorType.IO_ERROR, f"{what}: no branch is checked out; use `git_switch` first"
        )
    return check_branch(symbolic.text.strip())


# ---- push


def _describe_push(values: Mapping[str, Any], context: Context) -> str:
    place = describe_remote(str(values.get("remote", "origin")), context)
    return f"send {values.get('branch') or 'the checked-out branch'} to {place}"


@mutation(_describe_push, "external")
async def git_push(
    context: Context,
    remote: Annotated[str, "The name of the remote."] = "origin",
    branch: Annotated[str | None, "The branch; default: what is checked out."] = None,
) -> dict[str, Any]:
    """Send the commits of a branch to the branch of the same name on a remote. Never overwrites
    what is there.
    """
    async with open_git(context, changes="git_push") as git:
        check_remote(remote)
        name = check_branch(branch) if branch else await _find_branch(git, "nothing was pushed")
        head = await git.resolve_commit(f"refs/heads/{name}", "branch")
        found = find_remote(git.repository, remote)
        arguments = [
            "push",
            "--porcelain",
            "--no-progress",
            "--no-follow-tags",
            "--recurse-submodules=no",
            remote,
            f"refs/heads/{name}:refs/heads/{name}",
        ]
        ran = await run_with_remote(git, found, arguments, what="nothing was pushed to", hooks=True)
    value = {
        **describe_hooks(git, ran, ("pre-push",)),
        "remote": make_printable(remote),
        "branch": name,
        "head": head,
    }
    is_new = "[up to date]" not in ran.text
    category: Category = "success" if is_new else "nothing_to_do"
    done = Outcome(value, ran.argv, category=category, outputs={"stdout": ran.output})
    return make_result(git_push, "push", context, done)


# ---- stash


def _describe_stash(values: Mapping[str, Any], context: Context) -> str:
    return {
        "push": "put away what changed in tracked files: the files are as in the newest commit",
        "pop": "bring back what was put away last: files of the workspace change",
    }[str(values["action"])]


@mutation(_describe_stash)
async def git_stash(
    action: Annotated[
        Literal["push", "pop"], "`push` puts changes away, `pop` brings the last ones back."
    ],
    context: Context,
    message: Annotated[str | None, "A name for what is put away."] = None,
) -> dict[str, Any]:
    """Put away changes of tracked files, or bring back what was put away last. A conflict takes
    everything back.
    """
    if message and action == "pop":
        raise RetryCall("`message` is for `push`")
    async with open_git(context, changes="git_stash") as git:
        check_idle(git)
        if action == "push":
            ran, changed = await _put_away(git, message)
        else:
            ran, changed = await _bring_back(git, Attempt.from_context(context))
    value = {
        "action": action,
        **describe_files(changed),
    }
    category: Category = "success" if changed else "nothing_to_do"
    done = Outcome(
        value, ran.argv, category=category, paths=changed, outputs={"stdout": ran.output}
    )
    return make_result(git_stash, "stash", context, done)


async def _put_away(git: GitRunner, message: str | None) -> tuple[GitResult, list[str]]:
    head = await git.find_commit("HEAD")
    if head is None:
        raise ToolFailed(ErrorType.IO_ERROR, "nothing was put away: there is no commit yet")
    made = await git.run("stash", "create", hooks=True)
    if made.code:
        raise make_author_error(made) or _make_error("stash", made)
    stash = made.text.strip()
    if not stash:
        return made, []
    changed = await check_switch(git, head, stash, "`git_stash`")
    named = ["--message", check_message(message).strip()] if message else []
    ran = await git.run("stash", "push", "--quiet", *named, hooks=True)
    if ran.code:
        raise _make_error("stash", ran)
    return ran, changed


async def _bring_back(git: GitRunner, attempt: Attempt) -> tuple[GitResult, list[str]]:
    stash = await git.find_commit("refs/stash")
    if stash is None:
        raise ToolFailed(ErrorType.NOT_FOUND, "nothing was brought back: nothing was put away")
    await _check_clean(git, "nothing was brought back")
    changed = await check_switch(git, f"{stash}^1", stash, "`git_stash`")
    ran = await git.run("stash", "pop", "--quiet", hooks=True)
    if not ran.code:
        return ran, changed
    names = await _find_conflicts(git)
    if not names:
        raise _make_error("stash", ran)
    attempt.category = "conflict"
    # There were no changes before, so nothing but those of the stash is lost, which is kept.
    back = await git.run("reset", "--hard", "--quiet", "HEAD", hooks=True)
    if back.code:
        raise make_git_error("`git_stash` met conflicts and could not be taken back", back)
    raise _conflict_error("git_stash", names)
