"""`git_command`: what happened in the repository of the workspace. It only reads and runs only git.

    arguments (options) -> git of the sandbox (run) -> names of commits are resolved (here) -> files
    that may not be read are left out (withheld_files) -> git

Names of commits are resolved first, by a git that takes them from its standard input, so that none
can be an option, a range in disguise or a path. What they stand for must be a commit, or a file
named by its path: a bare blob id could be any file's content.

Not protected: a committed secret under an ordinary name; names (not contents) of files that may not
be read, which `status` and `--stat` show.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from ferrule.core.calls import ErrorType
from ferrule.core.errors import RetryCall, ToolFailed
from ferrule.core.lazy_patterns import compile_lazily
from ferrule.core.value_class import frozen
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.toolkits.examples import with_examples
from ferrule.tools.context import Context
from ferrule.tools.decorator import tool
from ferrule.tools.definition import Tool

from .attempt import GitResult
from .options import ParsedArguments, Subcommand, parse_arguments
from .run import GitRunner, open_git
from .withheld_files import drop_sections, exclude_name, make_exclusions

_KEEP_BYTES = 1024 * 1024
_MAX_NAMES = 12
_DIFFERENCES = (
    "--no-ext-diff",
    "--no-textconv",
    "--no-color",
    "--src-prefix=a/",
    "--dst-prefix=b/",
)
_FORCED: dict[Subcommand, tuple[str, ...]] = {
    "status": ("--ignore-submodules=all",),
    "diff": (*_DIFFERENCES, "--submodule=short", "--ignore-submodules=all"),
    "log": (*_DIFFERENCES, "--submodule=short", "--ignore-submodules=all"),
    "show": (*_DIFFERENCES, "--submodule=short", "--ignore-submodules=all"),
    "blame": ("--no-textconv",),
}
_INDEX = ("", ":0", ":1", ":2", ":3")
_FILE = compile_lazily(r"(:[0-3]|(?:[^:{}]|\{[^}]*\})*):(.*)", re.DOTALL)
_PLAIN_REVISION = compile_lazily(r"(?!-)(?!.*\.\.)[A-Za-z0-9_./@{}~^-]{1,200}")


@frozen
class _Object:
    """The object that a name stands for: its full id and type (commit, tree, blob, tag)."""

    id: str
    type: str


async def _run(git: GitRunner, arguments: Sequence[str]) -> GitResult:
    """Run git for what it prints, of which the beginning is kept."""
    return await git.run(*arguments, keep=_KEEP_BYTES, patterns=True)


async def _resolve(git: GitRunner, name: str) -> _Object | None:
    """Return the object that a name stands for, or None."""
    ran = await git.run(
        "cat-file",
        "--batch-check=%(objectname) %(objecttype)",
        stdin=f"{name}\n".encode("utf-8", "surrogateescape"),
    )
    found = re.fullmatch(r"([0-9a-f]{40,64}) (commit|tree|blob|tag)\n", ran.text)
    return _Object(found[1], found[2]) if found else None


@dataclass(slots=True)
class _Plan:
    """The arguments of git: options, objects, paths (names in the workspace)."""

    options: list[str]
    objects: list[str]
    paths: list[str]
    blobs: bool = False

    def arguments(self, subcommand: str, *, left_out: Sequence[str] = ()) -> list[str]:
        paths = [self._pathspec(subcommand, path) for path in self.paths]
        return [subcommand, *self.options, *self.objects, "--", *paths, *left_out]

    @staticmethod
    def _pathspec(subcommand: str, path: str) -> str:
        if subcommand == "blame":
            return path  # It takes a file and no pattern.
        # Without `:(literal)` a name could be read as a pattern.
        return f":(literal){path}" if path else "."


def _format_command(values: Mapping[str, Any]) -> tuple[str, ...]:
    return ("git", str(values.get("subcommand")), *map(str, values.get("args") or ()))


@tool(side_effect="read", risk="low", command_form=_format_command)
async def git_command(
    subcommand: Annotated[Subcommand, "What to look at."],
    context: Context,
    args: Annotated[
        list[str] | None,
        (
            'Its arguments: ["--oneline", "-n", "5"], ["HEAD~1", "--", "src/a.py"]. Paths are '
            "from the root."
        ),
    ] = None,
) -> str:
    """Look at the git repository of the workspace: status, diff, log, show or blame. Changes
    nothing.

    Files that may hold secrets are left out.
    """
    parsed = parse_arguments(subcommand, args or [])
    workspace = context.resource(Workspace)
    async with open_git(context) as git:
        plan = await _make_plan(git, subcommand, parsed)
        left_out, withheld = await _find_withheld(git, subcommand, parsed, plan)
        ran = await _run(git, plan.arguments(subcommand, left_out=left_out))
    if ran.code > 1 or (ran.code and ran.complaint):
        raise ToolFailed(
            ErrorType.IO_ERROR,
            f"`git {subcommand}` failed: {ran.complaint or f'exit status {ran.code}'}",
        )
    text = ran.text
    if ran.is_cut:
        text += f"\n[cut at {_KEEP_BYTES} bytes; ask for less: `-n 20`, a path, `--stat`]"
    text, dropped = drop_sections(text, workspace.names)
    return _format(subcommand, text, ran.code, [*withheld, *dropped])


def _format(subcommand: Subcommand, text: str, code: int, withheld: Sequence[str]) -> str:
    parts = [text.removesuffix("\n") or f"(git {subcommand}: nothing to show)"]
    if code:
        parts.append(f"[exit status {code}]")
    names = list(dict.fromkeys(withheld))
    if names:
        listed = ", ".join(names[:_MAX_NAMES])
        more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
        parts.append(f"[left out, since tools may not read them: {listed}{more}]")
    return "\n".join(parts)


async def _make_plan(git: GitRunner, subcommand: Subcommand, parsed: ParsedArguments) -> _Plan:
    """Sort the arguments that are no options into objects and paths, each checked."""
    # In a subfolder of a repository the workspace is all that is looked at.
    narrowed = ["--relative"] if git.prefix and subcommand in ("diff", "log", "show") else []
    plan = _Plan([*_FORCED[subcommand], *narrowed, *parsed.options], [], [])
    positionals = list(parsed.positionals)
    paths = list(parsed.paths)
    if subcommand == "status":
        paths = positionals + paths
        positionals = []
        if git.prefix and not paths:
            paths = ["."]
    elif subcommand == "blame" and not paths and positionals:
        paths = [positionals.pop()]
    for name in positionals:
        revision = await _check_revision(git, subcommand, name, plan)
        if revision is not None:
            plan.objects.append(revision)
        elif parsed.separated or subcommand == "blame" or name.startswith("^") or ".." in name:
            raise ToolFailed(
                ErrorType.NOT_FOUND,
                f"`{name}` is not a commit of this repository; `log` lists them",
            )
        else:
            _check_exists(git.workspace, name)
            paths.append(name)
    plan.paths = [_check_path(git.workspace, subcommand, path) for path in paths]
    compares_two_files = len(plan.objects) == 2
    if plan.blobs and (plan.paths or subcommand != "show") and not compares_two_files:
        raise RetryCall(
            "compare two files by `COMMIT:path COMMIT:path`, or commits with the path after `--`"
        )
    if subcommand == "blame":
        _check_blame(git, plan)
    return plan


def _check_exists(workspace: Workspace, name: str) -> None:
    try:
        workspace.stat(name)
    except ToolFailed as error:
        if error.error_type is not ErrorType.NOT_FOUND:
            raise
        raise ToolFailed(
            ErrorType.NOT_FOUND,
            f"`{name}` is neither a commit nor a file; name a deleted file after `--`",
        ) from None


def _check_path(workspace: Workspace, subcommand: Subcommand, path: str) -> str:
    """Return the name of a path in the workspace.

    Only `status`, which shows no content, accepts names that may not be read.
    """
    if subcommand == "status":
        return workspace.name(path)
    return workspace.check_name(path, write=False)


def _check_blame(git: GitRunner, plan: _Plan) -> None:
    if len(plan.paths) != 1 or not plan.paths[0] or len(plan.objects) > 1:
        raise RetryCall(
            '`git blame` takes one file, and a commit before it if need be: ["HEAD~3", "src/a.py"]'
        )
    if plan.objects:
        return
    try:
        git.workspace.open(plan.paths[0]).close()
    except ToolFailed:
        # git would follow a link on the way to the file: then only committed content is shown.
        plan.objects.append("HEAD")


async def _check_revision(
    git: GitRunner, subcommand: Subcommand, name: str, plan: _Plan
) -> str | None:
    """Return a checked spelling of a commit, a range, or a file of a commit; None if it is none."""
    file = _FILE.fullmatch(name)
    if git.prefix and file and not name.startswith(":/") and not file[2].startswith("./"):
        name = f"{file[1]}:./{file[2]}"  # Paths begin at the workspace.
    if ":" not in name and ".." in name:
        left, dots, right = re.split(r"(\.{2,3})", name, maxsplit=1)
        first = await _resolve_commit(git, left or "HEAD")
        last = await _resolve_commit(git, right or "HEAD")
        if first is None or last is None:
            return None
        return f"{first}{dots}{last}"
    suffixed = re.fullmatch(r"(.+)(\^!|\^@|\^-\d{0,3})", name)
    if name.startswith("^") or suffixed:
        base = await _resolve_commit(git, suffixed[1] if suffixed else name[1:])
        if base is None:
            return None
        return f"{base}{suffixed[2]}" if suffixed else f"^{base}"
    found = await _resolve(git, name)
    if found is None:
        return None
    if found.type == "tag":
        await _check_tag(git, name)
    if found.type in ("blob", "tree"):
        found = await _check_file(git, subcommand, name, found)
        plan.blobs = plan.blobs or found.type == "blob"
        return found.id
    return name if _PLAIN_REVISION.fullmatch(name) else found.id


async def _resolve_commit(git: GitRunner, name: str) -> str | None:
    found = await _resolve(git, f"{name}^{{commit}}")
    return found.id if found else None


async def _check_tag(git: GitRunner, name: str) -> None:
    target = await _resolve(git, f"{name}^{{}}")
    if target is None or target.type != "commit":
        raise ToolFailed(
            ErrorType.PERMISSION_DENIED, f"`{name}` is a tag of something that is no commit"
        )


async def _check_file(git: GitRunner, subcommand: Subcommand, name: str, found: _Object) -> _Object:
    """Return the object that `COMMIT:path` names, if the path may be read.

    A path counts from the root only behind a commit or the index: a bare tree could be any folder.
    """
    whole = re.fullmatch(r"(.+)\^\{tree\}", name)
    if whole and subcommand == "show" and await _resolve_commit(git, whole[1]):
        return found  # It is shown as a list of names.
    split = _FILE.fullmatch(name)
    is_commit = split is not None and (
        split[1] in _INDEX or await _resolve_commit(git, split[1]) is not None
    )
    if split is None or not is_commit or (found.type == "tree" and subcommand != "show"):
        step = "name commits"
        if found.type == "blob":
            step = "name it by commit and path, as in `HEAD:src/a.py`"
        raise ToolFailed(
            ErrorType.PERMISSION_DENIED, f"`{name}` names a {found.type} by its id; {step}"
        )
    path = git.workspace.check_name(split[2], write=False)
    start = "./" if git.prefix else ""
    again = await _resolve(git, f"{split[1]}:{start}{path}")
    if again != found:
        raise ToolFailed(
            ErrorType.NOT_FOUND,
            f"`{name}` is not a file of that commit; write its path from the root",
        )
    return found


async def _find_withheld(
    git: GitRunner, subcommand: Subcommand, parsed: ParsedArguments, plan: _Plan
) -> tuple[list[str], list[str]]:
    """Return pathspecs that leave out what may not be read, and the names they are known to hit."""
    if not parsed.content or plan.blobs or subcommand in ("status", "blame"):
        return [], []
    general = make_exclusions(git.workspace.names)
    if not plan.paths:
        plan.paths = [""]
        if subcommand != "diff":
            # A path makes git hide commits that do not touch it; all commits are wanted.
            plan.options += ["--full-history", "--sparse"]
    if subcommand == "log":
        return general, []
    narrowed = ["--relative"] if git.prefix else []
    options = ["--name-only", "-z", "--no-renames", *narrowed, *_selecting_options(parsed)]
    if subcommand == "show":
        options += ["--format=", "-m"]
    listing = _Plan(options, plan.objects, plan.paths)
    answer = await git.run(*listing.arguments(subcommand), patterns=True)
    rows = answer.text.strip("\n").split("\0")
    names = list(dict.fromkeys(row for row in rows if row.strip("\n")))
    # Only `diff` without two commits reads files of the workspace.
    working = subcommand == "diff"
    hidden = [name for name in names if not _is_readable(git.workspace, name, working=working)]
    return [*general, *(exclude_name(name) for name in hidden)], hidden


_SELECTING = ("--cached", "--staged", "--merge-base", "--base", "--ours", "--theirs", "-R")


def _selecting_options(parsed: ParsedArguments) -> list[str]:
    """Return the options that decide which files are compared."""
    return [option for option in parsed.options if option in _SELECTING]


def _is_readable(workspace: Workspace, name: str, *, working: bool) -> bool:
    if workspace.names.check(name, write=False) is not None:
        return False
    if not working:
        return True
    try:
        if workspace.stat(name).kind == "file":
            workspace.open(name).close()
    except ToolFailed as error:
        # If the file is missing, only the committed side is shown. Anything else (a hard link to
        # elsewhere) is left out.
        return error.error_type is ErrorType.NOT_FOUND
    return True


TOOLS: tuple[Tool, ...] = with_examples(git_command)
