"""What an operation would do to files, found out and judged before it does it.

Two questions, for names of files as git has them (trees, index, work tree):

* may a tool *write* it? asked of every path that a switch, pull or rebase would change. One that
  may not be written stops the whole operation, naming it: a person can do it.
* may a tool *read* it? asked of every path that would go into the index or into a commit: what no
  tool may read is never made part of the history by one.

Files whose attributes name a filter (git-lfs and the like) are refused too: the filter is a program
of the repository's configuration, and without it the wrong content would be stored or written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.permissions.filesystem.paths import shown
from ferrule.permissions.filesystem.workspace import Workspace

from .run import Runner

_NAMES = 10
_SUBMODULE = "160000"


async def check_switch(git: Runner, old: str, new: str, what: str) -> list[str]:
    """The paths that differ between two trees; raises ToolFailed if a tool may not write one of
    them.
    """
    ran = await git.must("diff-tree", "-r", "-z", "--no-renames", "--raw", old, new)
    return await _check_rows(git, ran.names(), what)


async def check_commits(git: Runner, base: str, head: str, what: str) -> list[str]:
    """The same for every commit that `head` has and `base` has not."""
    ran = await git.must(
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


async def _check_rows(git: Runner, fields: Sequence[str], what: str) -> list[str]:
    """Rows of `--raw -z`. Format: git-diff-tree(1), "Raw output format"."""
    rows = list(zip((row.lstrip("\n") for row in fields[::2]), fields[1::2], strict=True))
    if any(not row.startswith(":") for row, _ in rows):
        raise ToolFailed(
            ErrorType.IO_ERROR, f"{what} was not done: what it would change cannot be read"
        )
    names = list(dict.fromkeys(name for _, name in rows))
    refuse(git.workspace, names, write=True, what=what)
    await check_attributes(
        git,
        [(row.split(" ")[3], name) for row, name in rows if row.split(" ")[1] != _SUBMODULE],
        what,
    )
    await check_filters(git, names, what)
    return names


def refuse(workspace: Workspace, names: Iterable[str], *, write: bool, what: str) -> None:
    """Raises ToolFailed naming those of the names that a tool may not write (or read)."""
    found = [(name, why) for name in names if (why := workspace.names.check(name, write=write))]
    if not found:
        return
    listed = ", ".join(shown(name) for name, _ in found[:_NAMES])
    more = f" and {len(found) - _NAMES} more" if len(found) > _NAMES else ""
    word = "changed" if write else "part of it"
    raise ToolFailed(
        ErrorType.PERMISSION_DENIED,
        f"{what} was not done: {listed}{more} would be {word}, and "
        f"{'that is' if len(found) == 1 else 'the first is'} "
        f"{_article(found[0][1])}; ask the person to do it",
    )


def _article(reason: str) -> str:
    return reason if reason.startswith(("reserved", "protected")) else f"a name that {reason}"


async def check_filters(git: Runner, names: Sequence[str], what: str) -> None:
    """Raises ToolFailed if attributes in the work tree give one of these files a filter."""
    if not names:
        return
    stdin = b"".join(name.encode("utf-8", "surrogateescape") + b"\0" for name in names)
    ran = await git.must("check-attr", "-z", "--stdin", "filter", stdin=stdin)
    fields = ran.output.split(b"\0")
    found = [
        (fields[at].decode("utf-8", "replace"), fields[at + 2].decode("utf-8", "replace"))
        for at in range(0, len(fields) - 2, 3)
        if fields[at + 2] not in (b"unspecified", b"unset")
    ]
    if found:
        raise _filtered(what, *found[0])


async def check_attributes(git: Runner, rows: Iterable[tuple[str, str]], what: str) -> None:
    """The same for attributes that only come with the change: rows are (id, path) of what will be
    there.
    """
    for blob, name in rows:
        if name.rpartition("/")[2].lower() != ".gitattributes" or not blob.strip("0"):
            continue
        text = (await git.must("cat-file", "blob", blob)).text
        for line in text.splitlines():
            words = [word for word in line.split()[1:] if word.startswith("filter=")]
            if words and not line.lstrip().startswith("#"):
                raise _filtered(what, name, words[0].removeprefix("filter="))


def _filtered(what: str, name: str, filter: str) -> ToolFailed:
    return ToolFailed(
        ErrorType.PERMISSION_DENIED,
        f"{what} was not done: {shown(name)} asks for the filter `{filter}`, a program of "
        "the repository's configuration, "
        "which is not run here; ask the person to do it",
    )
