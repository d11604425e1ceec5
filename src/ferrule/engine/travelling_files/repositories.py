"""What of a git repository goes along with a workspace.

All files of `.git` do, objects by their content, but not what makes git run programs: hooks stay
where they are, and of a configuration only the settings of `_SETTINGS`. A repository counts as the
session's own by the commits that its branches and tags name, since two clones of one commit have
different packs, indexes and logs. Format: gitrepository-layout(5).
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from ferrule.core.errors import FerruleError
from ferrule.permissions.repositories import find_repository, parse_git_config, read_text

_LEFT_OUT = re.compile(r"hooks|worktrees|config\.worktree|credentials.*|.*\.lock|tmp_obj_.*")
"""Names in a repository that stay: they run programs, hold secrets, or belong to a process."""
_SETTINGS = re.compile(
    r"core\.repositoryformatversion|extensions\.(objectformat|refstorage)|user\.(name|email)"
    r"|remote\..+\.(url|fetch)|branch\..+\.(remote|merge)|submodule\..+\.(url|active)",
    re.DOTALL,
)
_ADDRESS = re.compile(r"(https?|ssh|git|file)://(?![^/]*:[^/]*@)|[\w.-]+@[\w.-]+:(?!-)|[/.]")
"""Addresses of remotes that go along: of protocols that start no program, without a password."""


class WorkspaceCannotTravel(FerruleError):
    """A workspace has something that another machine cannot be given."""

    code = "workspace_cannot_travel"


def find_repository_folder(name: str) -> str:
    """Return the folder called `.git` that a name lies in, or "" if it lies in none."""
    before, separator, _ = f"{name}/".partition("/.git/")
    if separator and before:
        return f"{before}/.git"
    return ".git" if f"{name}/".startswith(".git/") else ""


def is_left_out(name: str) -> bool:
    """Return whether a name in a repository stays where it is."""
    parts = _split_inside(name)
    if parts[0] == "modules":
        return any(_LEFT_OUT.fullmatch(part) for part in parts)
    return _LEFT_OUT.fullmatch(parts[0]) is not None or parts[-1].endswith(".lock")


def is_config(name: str) -> bool:
    """Return whether a name is that of a repository's configuration."""
    *above, last = _split_inside(name)
    is_module = above[:1] == ["modules"] and not {"refs", "logs", "objects"}.intersection(above)
    return last == "config" and (not above or is_module)


def is_reference(name: str) -> bool:
    """Return whether a name belongs to what HEAD, branches, tags and the stash name."""
    parts = _split_inside(name)
    return parts in (["HEAD"], ["packed-refs"]) or (parts[0] == "refs" and len(parts) > 1)


def _split_inside(name: str) -> list[str]:
    """Return the parts of a name below its repository; `[""]` if it lies in none."""
    folder = find_repository_folder(name)
    return name[len(folder) + 1 :].split("/") if folder else [""]


def is_object(name: str) -> bool:
    """Return whether a file is an object of a repository: more of them do no harm."""
    return "/objects/" in name.removeprefix(find_repository_folder(name))


def select_settings(path: Path) -> bytes:
    """Return those settings of a repository that go along, as a configuration file."""
    lines: list[str] = []
    for key, value in parse_git_config(read_text(str(path))):
        is_worktree = key == "core.worktree" and not value.startswith("/")
        if not is_worktree and _SETTINGS.fullmatch(key) is None:
            continue
        section, _, name = key.rpartition(".")
        if name == "url" and _ADDRESS.match(value) is None:
            continue
        kind, _, subsection = section.partition(".")
        heading = f'{kind} "{_escape(subsection)}"' if subsection else kind
        lines.append(f'[{heading}]\n\t{name} = "{_escape(value)}"\n')
    return "".join(lines).encode()


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def describe_references(files: dict[str, bytes]) -> str:
    """Return the hash of what HEAD, branches, tags and the stash of a repository name.

    Args:
        files: The contents of HEAD, `packed-refs` and the files below `refs`, by their names in it.
    """
    found: dict[str, str] = {}
    for line in files.get("packed-refs", b"").decode(errors="replace").splitlines():
        target, _, name = line.partition(" ")
        if name and not line.startswith(("#", "^")):
            found[name] = target
    for name, data in files.items():
        if name != "packed-refs":
            found[name] = data.decode(errors="replace").strip()
    own = [f"{found[name]} {name}" for name in sorted(found) if not name.startswith("refs/remotes")]
    digest = hashlib.sha256("\n".join(own).encode()).hexdigest()
    return f"repository:{digest}"


def check_repository(root: Path) -> None:
    """Raise WorkspaceCannotTravel if the repository of a workspace lies outside of it."""
    repository = find_repository(root).repository
    if repository is None:
        return
    for place in (repository.git_dir, repository.common_dir):
        if not Path(place).is_relative_to(root):
            raise WorkspaceCannotTravel(
                f"the files of `{root}` cannot go along: its git repository is `{place}`, outside",
                hint="use a clone of the repository as the workspace",
            )
    alternates = read_text(f"{repository.common_dir}/objects/info/alternates").strip()
    if alternates:
        raise WorkspaceCannotTravel(
            f"the files of `{root}` cannot go along: its git repository borrows objects of "
            f"`{alternates.splitlines()[0]}`",
            hint="run `git repack -a -d` in it and remove `.git/objects/info/alternates`",
        )
