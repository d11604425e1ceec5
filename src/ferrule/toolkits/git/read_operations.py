"""Typed operations of git that only read: each a tool that returns a value and a receipt.

Differences are made by `git_command`, so what is left out there is left out here. Names of remotes
and their addresses are the only settings that are shown, without credentials.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from typing import Annotated, Any, Literal, TypeVar

from ferrule.core.calls import ErrorType
from ferrule.core.errors import RetryCall, ToolFailed
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.tools.context import Context
from ferrule.tools.decorator import tool
from ferrule.tools.definition import READS, Tool
from ferrule.tools.number_ranges import require_ranges

from .git_command import git_command
from .receipt import Outcome, cut_inline, make_result
from .refs import check_range, check_revision
from .run import MAX_SECONDS, GitRunner, open_git
from .settings import find_remotes, find_upstreams, make_printable, read_settings

A = TypeVar("A")
B = TypeVar("B")
_MAX_COMMITS = 1000
_MAX_SHOWN_ROWS = 500
Revision = Annotated[str, "A branch, a tag, an id, or the like of `HEAD~2`."]


def _path_arguments(git: GitRunner, paths: list[str] | None) -> list[str]:
    """Return paths for git. In a subfolder of a repository it is all that is looked at."""
    if not paths:
        return ["--", "."] if git.prefix else []
    return ["--", *(git.workspace.name(path) or "." for path in paths)]


async def _run_both(first: Coroutine[Any, Any, A], second: Coroutine[Any, Any, B]) -> tuple[A, B]:
    """Run two gits at the same time. Both are over when one has failed."""
    tasks = asyncio.ensure_future(first), asyncio.ensure_future(second)
    await asyncio.gather(*tasks, return_exceptions=True)
    return tasks[0].result(), tasks[1].result()


async def _find_head(git: GitRunner) -> tuple[str, str | None]:
    """Return the branch that is checked out and the id of its newest commit.

    The branch is empty if there is none, the id None if there is no commit yet.
    """
    symbolic, head = await _run_both(
        git.run("symbolic-ref", "--quiet", "--short", "HEAD"), git.find_commit("HEAD")
    )
    return "" if symbolic.code else symbolic.text.strip(), head


@tool(side_effect="read", risk="low", timeout=MAX_SECONDS + 10)
async def git_status(
    context: Context,
    paths: Annotated[list[str] | None, READS, "Only these files or folders."] = None,
    untracked: Annotated[bool, "Include files that git does not track."] = True,
) -> dict[str, Any]:
    """Show which files of the repository are changed, staged, untracked or in conflict, and on
    which branch.
    """
    async with open_git(context) as git:
        kind = "all" if untracked else "no"
        listing = git.run_checked(
            "status",
            "--porcelain=v1",
            "-z",
            "--ignore-submodules=all",
            f"--untracked-files={kind}",
            *_path_arguments(git, paths),
        )
        (branch, head), ran = await _run_both(_find_head(git), listing)
    entries = list(_read_status(git, ran.names()))
    value: dict[str, Any] = {
        "branch": branch,
        "detached": not branch,
        "head": head,
        "clean": not entries,
        "files": entries[:_MAX_SHOWN_ROWS],
    }
    if len(entries) > _MAX_SHOWN_ROWS:
        value["files_left_out"] = len(entries) - _MAX_SHOWN_ROWS
    named = [str(entry["path"]) for entry in entries]
    return make_result(
        git_status,
        "status",
        context,
        Outcome(value, ran.argv, paths=named, outputs={"stdout": ran.output}),
    )


_CODES = {
    "M": "modified",
    "T": "type changed",
    "A": "added",
    "D": "deleted",
    "R": "renamed",
    "C": "copied",
    "U": "unmerged",
}
_UNMERGED = ("DD", "AU", "UD", "UA", "DU", "AA", "UU")


def _read_status(git: GitRunner, rows: list[str]) -> Generator[dict[str, str]]:
    """Read rows of `status --porcelain=v1 -z`, see git-status(1), "Porcelain Format Version 1"."""
    waiting = iter(rows)
    for row in waiting:
        code = row[:2]
        path = row[3:]
        entry = {"path": git.name_in_workspace(path) or path}
        if "R" in code or "C" in code:
            source = next(waiting, "")
            entry["from"] = git.name_in_workspace(source) or source
        if code == "??":
            entry["state"] = "untracked"
        elif code in _UNMERGED:
            entry["state"] = "conflict"
        else:
            if code[0] != " ":
                entry["staged"] = _CODES.get(code[0], code[0])
            if code[1] != " ":
                entry["unstaged"] = _CODES.get(code[1], code[1])
        yield entry


@tool(side_effect="read", risk="low", timeout=MAX_SECONDS + 10)
async def git_current_branch(context: Context) -> dict[str, Any]:
    """Tell the name of the branch that is checked out, and its newest commit."""
    async with open_git(context) as git:
        branch, head = await _find_head(git)
        argv = next(ran.argv for ran in git.results if "symbolic-ref" in ran.argv)
    value = {"branch": branch or None, "detached": not branch, "head": head}
    return make_result(git_current_branch, "current_branch", context, Outcome(value, argv))


@tool(
    side_effect="read",
    risk="low",
    timeout=MAX_SECONDS + 10,
    impossible=require_ranges(max_count=(1, _MAX_COMMITS)),
)
async def git_log(  # noqa: PLR0913  the parameters that a model may give
    context: Context,
    rev: Annotated[
        str | None, "Where to begin; default: what is checked out. Not together with `rev_range`."
    ] = None,
    rev_range: Annotated[str | None, "Only commits in a range, as in `main..HEAD`."] = None,
    paths: Annotated[
        list[str] | None, READS, "Only commits that touch these files or folders."
    ] = None,
    max_count: Annotated[int, "How many commits, 1 to 1000."] = 20,
    author: Annotated[str | None, "Only commits whose author matches."] = None,
    grep: Annotated[str | None, "Only commits whose message matches."] = None,
    since: Annotated[
        str | None, "Only commits after this date, as in `2026-01-31` or `2 weeks ago`."
    ] = None,
    until: Annotated[str | None, "Only commits before this date."] = None,
) -> dict[str, Any]:
    """List commits, newest first: id, author, date and subject."""
    if rev and rev_range:
        raise RetryCall("`git_log` takes `rev` or `rev_range`, not both")
    if not 1 <= max_count <= _MAX_COMMITS:
        raise RetryCall(f"`max_count` must be from 1 to {_MAX_COMMITS}, found {max_count}")
    words = [f"--max-count={max_count}", "--format=%H%x1f%an%x1f%aI%x1f%s"]
    for option, given in (("author", author), ("grep", grep), ("since", since), ("until", until)):
        if given:
            words.append(f"--{option}={_check_text(option, given)}")
    if rev or rev_range:
        words.append(check_range(rev_range) if rev_range else check_revision(rev or ""))
    text = await _run_git_command("log", context, words, paths)
    rows = [line.split("\x1f") for line in text.split("\n") if line.count("\x1f") == 3]
    commits = [dict(zip(("commit", "author", "date", "subject"), row, strict=True)) for row in rows]
    done = Outcome(
        {"commits": commits},
        _argv("log", words, paths),
        outputs={"stdout": text.encode("utf-8", "replace")},
    )
    return make_result(git_log, "log", context, done)


@tool(
    side_effect="read",
    risk="low",
    timeout=MAX_SECONDS + 10,
    impossible=require_ranges(context_lines=(0, 100)),
)
async def git_diff(
    context: Context,
    rev: Annotated[
        str | None, "Compare with this commit instead of the index. Not together with `rev_range`."
    ] = None,
    rev_range: Annotated[
        str | None, "Compare two commits: `main..HEAD`, or from where they parted: `main...HEAD`."
    ] = None,
    staged: Annotated[
        bool, "Show what is staged, compared with the newest commit (or `rev`)."
    ] = False,
    paths: Annotated[list[str] | None, READS, "Only these files or folders."] = None,
    stat: Annotated[bool, "Only which files, and how many lines."] = False,
    context_lines: Annotated[int, "Lines around each change, 0 to 100."] = 3,
) -> dict[str, Any]:
    """Show differences line by line: what is not staged yet, what is staged, or between two
    commits.
    """
    if rev_range and (rev or staged):
        raise RetryCall("`git_diff`: `rev_range` goes neither with `rev` nor with `staged`")
    if not 0 <= context_lines <= 100:
        raise RetryCall(f"`context_lines` must be from 0 to 100, found {context_lines}")
    words = ["--stat"] if stat else [f"-U{context_lines}"]
    if staged:
        words.append("--cached")
    if rev or rev_range:
        words.append(check_range(rev_range) if rev_range else check_revision(rev or ""))
    return await _answer_with_text(git_diff, "diff", context, words, paths)


@tool(side_effect="read", risk="low", timeout=MAX_SECONDS + 10)
async def git_show(
    context: Context,
    rev: Revision = "HEAD",
    path: Annotated[str | None, READS, "A file: show it as it was in that commit."] = None,
    stat: Annotated[bool, "Only which files the commit changed, and how many lines."] = False,
) -> dict[str, Any]:
    """Show one commit with its message and changes, or a file as it was in that commit."""
    check_revision(rev)
    if path is not None:
        name = context.resource(Workspace).check_name(path, write=False)
        return await _answer_with_text(git_show, "show", context, [f"{rev}:{name}"], None)
    words = ["--stat", rev] if stat else [rev]
    return await _answer_with_text(git_show, "show", context, words, None)


@tool(side_effect="read", risk="low", timeout=MAX_SECONDS + 10)
async def git_branch_list(
    context: Context,
    kind: Annotated[Literal["local", "remote", "all"], "Which branches."] = "local",
    contains: Annotated[str | None, "Only branches that hold this commit."] = None,
) -> dict[str, Any]:
    """List branches with their newest commit, and which of them is checked out."""
    places = {
        "local": ["refs/heads"],
        "remote": ["refs/remotes"],
        "all": ["refs/heads", "refs/remotes"],
    }[kind]
    async with open_git(context) as git:
        branch, _ = await _find_head(git)
        wanted = (
            [f"--contains={await git.resolve_commit(contains, 'contains')}"] if contains else []
        )
        layout = "--format=%(refname)%00%(objectname)%00%(committerdate:iso-strict)%00%(subject)"
        ran = await git.run_checked("for-each-ref", layout, *wanted, *places)
        follows = find_upstreams(read_settings(git.repository))
    rows: list[dict[str, str]] = [
        dict(zip(("name", "commit", "date", "subject"), line.split("\0"), strict=False))
        for line in ran.text.splitlines()
    ]
    branches = [_describe_branch(row, branch, follows) for row in rows if len(row) == 4]
    value: dict[str, Any] = {"current": branch or None, "branches": branches[:_MAX_SHOWN_ROWS]}
    if len(branches) > _MAX_SHOWN_ROWS:
        value["branches_left_out"] = len(branches) - _MAX_SHOWN_ROWS
    return make_result(
        git_branch_list,
        "branch_list",
        context,
        Outcome(value, ran.argv, outputs={"stdout": ran.output}),
    )


def _describe_branch(row: dict[str, str], current: str, follows: dict[str, str]) -> dict[str, Any]:
    local = row["name"].startswith("refs/heads/")
    name = row["name"].removeprefix("refs/heads/").removeprefix("refs/remotes/")
    shown: dict[str, Any] = {**row, "name": name, "remote": not local}
    if local and name == current:
        shown["current"] = True
    if local and name in follows:
        shown["upstream"] = follows[name]
    return shown


@tool(side_effect="read", risk="low", timeout=MAX_SECONDS + 10)
async def git_remote_list(context: Context) -> dict[str, Any]:
    """List remotes with their addresses. Passwords and tokens in an address are not shown."""
    async with open_git(context) as git:
        found = find_remotes(read_settings(git.repository))
        argv = git.results[-1].argv if git.results else ()
    value = {
        "remotes": [
            {"name": make_printable(remote.name), "url": remote.shown_url} for remote in found
        ]
    }
    return make_result(git_remote_list, "remote_list", context, Outcome(value, argv))


@tool(side_effect="read", risk="low", timeout=MAX_SECONDS + 10)
async def git_discover(context: Context) -> dict[str, Any]:
    """Tell whether the workspace is a git repository, and the main facts about it: branch, newest
    commit, remotes.
    """
    try:
        async with open_git(context) as git:
            branch, head = await _find_head(git)
            form = await git.run_checked("rev-parse", "--show-object-format")
            names = [
                make_printable(remote.name)
                for remote in find_remotes(read_settings(git.repository))
            ]
            value: dict[str, Any] = {
                "repository": True,
                "root": "../" * git.prefix.count("/") or ".",
                "branch": branch or None,
                "head": head,
                "remotes": names,
                "object_format": form.text.strip(),
            }
            argv = form.argv
    except ToolFailed as failure:
        if failure.error_type not in (ErrorType.NOT_FOUND, ErrorType.PERMISSION_DENIED):
            raise
        value = {"repository": False, "why": failure.message}
        argv = ()
    return make_result(git_discover, "discover", context, Outcome(value, argv))


@tool(side_effect="read", risk="low", timeout=MAX_SECONDS + 10)
async def git_conflicts(context: Context) -> dict[str, Any]:
    """List files whose conflicts are not resolved yet, and which sides each has."""
    async with open_git(context) as git:
        ran = await git.run_checked("ls-files", "--unmerged", "-z")
    side_names = {"1": "base", "2": "ours", "3": "theirs"}
    sides: dict[str, list[str]] = {}
    for row in ran.names():
        facts, _, path = row.partition("\t")
        stage = facts.rsplit(" ", 1)[-1]
        sides.setdefault(path, []).append(side_names.get(stage, stage))
    value = {"conflicts": [{"path": path, "sides": found} for path, found in sides.items()]}
    return make_result(
        git_conflicts,
        "conflicts",
        context,
        Outcome(value, ran.argv, paths=list(sides), outputs={"stdout": ran.output}),
    )


@tool(side_effect="read", risk="low", timeout=MAX_SECONDS + 10)
async def git_merge_base(
    context: Context,
    rev: Annotated[str, "One commit or branch."],
    other: Annotated[str, "The other one."] = "HEAD",
) -> dict[str, Any]:
    """Find the newest commit that two branches have in common: where they parted."""
    async with open_git(context) as git:
        ends = [await git.resolve_commit(rev, "rev"), await git.resolve_commit(other, "other")]
        ran = await git.run("merge-base", *ends)
    if ran.code > 1:
        raise ToolFailed(ErrorType.IO_ERROR, f"`git merge-base` failed: {ran.complaint}")
    value = {"merge_base": ran.text.strip() or None, "rev": ends[0], "other": ends[1]}
    return make_result(git_merge_base, "merge_base", context, Outcome(value, ran.argv, ran.code))


def _check_text(option: str, text: str) -> str:
    if len(text) <= 500 and text.isprintable():
        return text
    raise RetryCall(f"`{option}` holds characters that cannot be shown, or is too long")


Subcommand = Literal["log", "diff", "show"]


def _argv(subcommand: str, words: list[str], paths: list[str] | None) -> list[str]:
    return ["git", subcommand, *words, *(["--", *paths] if paths else [])]


async def _run_git_command(
    subcommand: Subcommand, context: Context, words: list[str], paths: list[str] | None
) -> str:
    """Run `git_command` with these words: the only way to differences and files of commits."""
    # After `--` a name can only be a path; without paths a range must not be taken for one.
    tail: list[str] = []
    if paths:
        tail = ["--", *paths]
    elif ":" not in words[-1]:
        tail = ["--"]
    return await git_command.handler(subcommand=subcommand, args=[*words, *tail], context=context)


async def _answer_with_text(
    tool: Tool, subcommand: Subcommand, context: Context, words: list[str], paths: list[str] | None
) -> dict[str, Any]:
    text = await _run_git_command(subcommand, context, words, paths)
    done = Outcome(
        {"text": cut_inline(text)},
        _argv(subcommand, words, paths),
        paths=paths or (),
        outputs={"stdout": text.encode("utf-8", "replace")},
    )
    return make_result(tool, subcommand, context, done)
