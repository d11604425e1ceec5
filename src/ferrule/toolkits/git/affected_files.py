"""What an operation would do to files, found out and judged before it does it.

There are two questions, for names of files as git has them (trees, index, work tree):

* May a tool *write* it? Asked of every path that a switch, pull or rebase would change. One that
  may not be written stops the whole operation and is named: a person can do it.
* May a tool *read* it? Asked of every path that would become part of the index or of a commit: what
  no tool may read is never made part of the history by one.

Files whose attributes name a filter (git-lfs and the like) are refused too: the filter is a program
of the repository's configuration, and without it the wrong content would be stored or written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.permissions.filesystem.paths import quote_path
from ferrule.permissions.filesystem.workspace import Workspace

from .run import GitRunner

_MAX_NAMES = 10
_SUBMODULE = "160000"


async def check_switch(git: GitRunner, old: str, new: str, what: str) -> list[str]:
    """Return the paths that differ between two trees.

    Raises:
        ToolFailed: A tool may not write one of them.
    """
    ran = await git.run_checked("diff-tree", "-r", "-z", "--no-renames", "--raw", old, new)
    return await _check_rows(git, ran.names(), what)


async def check_commits(git: GitRunner, base: str, head: str, what: str) -> list[str]:
    """Return the paths changed by the commits that `head` has and `base` has not, as above."""
    ran = await git.run_checked(
        "log",
        "-z",
        "--format=",
        "--raw",
        "--no-renames",
        "--no-abbrev",
        "--no-ext-diff",
        "--no-textconv",
        "--diff-merges=separate",
        f"{base}..{head}",
    )
    return await _check_rows(git, ran.names(), what)


async def _check_rows(git: GitRunner, fields: Sequence[str], what: str) -> list[str]:
    """Check rows of `--raw -z`, see git-diff-tree(1), "Raw output format"."""
    facts = (row.lstrip("\n") for row in fields[::2])
    rows = list(zip(facts, fields[1::2], strict=True))
    if any(not row.startswith(":") for row, _ in rows):
        raise ToolFailed(
            ErrorType.IO_ERROR, f"{what} was not done: what it would change cannot be read"
        )
    names = [_check_place(git, name, what) for name in dict.fromkeys(name for _, name in rows)]
    check_names(git.workspace, names, write=True, what=what)
    files = [(row.split(" ")[3], name) for row, name in rows if row.split(" ")[1] != _SUBMODULE]
    await check_attributes(git, files, what)
    await check_filters(git, names, what)
    return names


def _check_place(git: GitRunner, name: str, what: str) -> str:
    """Return the name in the workspace. Files beside a subfolder are none of a tool's."""
    found = git.name_in_workspace(name)
    if found is None:
        raise ToolFailed(
            ErrorType.PERMISSION_DENIED,
            f"{what} was not done: {quote_path(name)} would be changed, and it lies outside of the "
            f"workspace, which is the subfolder {quote_path(git.prefix)}; ask the person to do it",
        )
    return found


def check_names(workspace: Workspace, names: Iterable[str], *, write: bool, what: str) -> None:
    """Raise ToolFailed naming those of the names that a tool may not write (or read)."""
    reasons = [(name, workspace.names.check(name, write=write)) for name in names]
    found = [(name, reason) for name, reason in reasons if reason]
    if not found:
        return
    listed = ", ".join(quote_path(name) for name, _ in found[:_MAX_NAMES])
    more = f" and {len(found) - _MAX_NAMES} more" if len(found) > _MAX_NAMES else ""
    word = "changed" if write else "part of it"
    subject = "that is" if len(found) == 1 else "the first is"
    raise ToolFailed(
        ErrorType.PERMISSION_DENIED,
        f"{what} was not done: {listed}{more} would be {word}, and {subject} "
        f"{_article(found[0][1])}; ask the person to do it",
    )


def _article(reason: str) -> str:
    return reason if reason.startswith(("reserved", "protected")) else f"a name that {reason}"


async def check_filters(git: GitRunner, names: Sequence[str], what: str) -> None:
    """Raise ToolFailed if attributes in the work tree give one of these files a filter."""
    if not names:
        return
    stdin = b"".join(name.encode("utf-8", "surrogateescape") + b"\0" for name in names)
    ran = await git.run_checked("check-attr", "-z", "--stdin", "filter", stdin=stdin)
    fields = ran.output.split(b"\0")
    for index in range(0, len(fields) - 2, 3):
        value = fields[index + 2]
        if value not in (b"unspecified", b"unset"):
            name = fields[index].decode("utf-8", "replace")
            raise _filter_error(what, name, value.decode("utf-8", "replace"))


async def check_attributes(git: GitRunner, rows: Iterable[tuple[str, str]], what: str) -> None:
    """Raise ToolFailed if attributes that come with the change name a filter.

    The rows are (id, path) of the files that will be there.
    """
    for blob, name in rows:
        if name.rpartition("/")[2].lower() != ".gitattributes" or not blob.strip("0"):
            continue
        text = (await git.run_checked("cat-file", "blob", blob)).text
        for line in text.splitlines():
            words = [word for word in line.split()[1:] if word.startswith("filter=")]
            if words and not line.lstrip().startswith("#"):
                raise _filter_error(what, name, words[0].removeprefix("filter="))


def _filter_error(what: str, name: str, filter: str) -> ToolFailed:
    return ToolFailed(
        ErrorType.PERMISSION_DENIED,
        f"{what} was not done: {quote_path(name)} asks for the filter `{filter}`, a program of "
        "the repository's configuration, which is not run here; ask the person to do it",
    )
