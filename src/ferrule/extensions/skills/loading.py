"""Load all skills of a person and of a workspace, and choose between those with the same name.

    <settings folder>/skills/*  ~/.agents/skills/*  ~/.claude/skills/*   the person's own
    .ferrule/skills/*                the repository's, once a person trusts it (`storage.trust`)
    .agents/skills/*   .claude/skills/*        the repository's: data, whether trusted or not

The first in this order is used, so that a repository cannot replace a person's text; the others are
reported. Skills are text and grant nothing, so those of a repository need no trust to be read. They
never count as the person's words: trust covers the bytes below `.ferrule`, and no digest covers the
rest. A person's folder that lies in the workspace counts as the repository's too, since tools can
write there.

Each skill is read once, by descriptor and through no link, and what was checked is what the model
gets. Invalid skills are left out and reported with their place. Limits: `MOST_SKILLS`,
`MOST_ENTRIES` examined in one folder, `skill_file.MOST_BYTES` each. A skill that git ignores is not
loaded: nobody reviewed what a build or an installer put there.
"""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import field
from pathlib import Path

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ConfigError, ToolFailed
from ferrule.core.value_class import frozen
from ferrule.extensions.front_matter import FileWarning
from ferrule.permissions.filesystem.entry import FileEntry
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.permissions.protected_names import DEFAULT_NAMES, ProtectedNames
from ferrule.permissions.rule_evaluation import Rules
from ferrule.storage.trust import ConfigurationSnapshot
from ferrule.tools.definition import Tool

from .catalogue import render_catalogue
from .git_ignored import GitIgnoredFiles
from .resources import DiskSkillFiles, SkillFiles, TrustedSkillFiles
from .skill_file import FILE_NAME, MOST_BYTES, Origin, Skill, parse_skill
from .tool import FoundSkill, make_skill_tool

TRUSTED_FOLDER = ".ferrule/skills"
REPOSITORY_FOLDERS: tuple[str, ...] = (".agents/skills", ".claude/skills")
MOST_SKILLS = 200
MOST_ENTRIES = 1_000


@frozen
class LoadedSkills:
    """The loaded skills, sorted by name.

    `tools` is empty, or holds the tool `skill`; `catalogue_text` is for the system text. Both leave
    out skills that are for the person alone. `warnings` are all a person should know; `broken` are
    those of them that kept a skill from being loaded. `inert` names the skills of a repository that
    is not trusted.
    """

    skills: tuple[Skill, ...] = ()
    warnings: tuple[FileWarning, ...] = ()
    tools: tuple[Tool, ...] = ()
    catalogue_text: str = ""
    inert: tuple[str, ...] = ()
    broken: tuple[FileWarning, ...] = ()
    found: tuple[FoundSkill, ...] = field(default=(), repr=False)

    def filter_by(self, rules: Rules) -> LoadedSkills:
        """Return these skills without the ones that the rules refuse.

        A skill is refused by a rule `Skill(name)`, or because no tool may read its file.
        """
        if not self.found:
            return self
        tool = make_skill_tool(self.found)
        kept = tuple(found for found in self.found if not _is_refused(rules, tool, found.skill))
        if len(kept) == len(self.found):
            return self
        return _assemble(kept, self.warnings, self.broken, self.inert)


def load_skills(
    workspace: Path,
    snapshot: ConfigurationSnapshot,
    settings_folder: Path | None = None,
    *,
    home: Path | None = None,
    names: ProtectedNames = DEFAULT_NAMES,
) -> LoadedSkills:
    """Load the skills of a workspace and of a person.

    Args:
        workspace: The workspace.
        snapshot: The repository's configuration as `Trust.read` read it.
        settings_folder: The person's settings folder. Without it the folders of their home are not
            read either.
        home: The person's home folder.
        names: Names that no tool may touch.

    Raises:
        ConfigError: The workspace is not a folder.
    """
    root = Path(os.path.realpath(workspace))
    home = home or Path.home()
    reading = _Reading()
    repository_folders: list[str] = list(REPOSITORY_FOLDERS)
    own_folders: list[Path] = []
    if settings_folder is not None:
        own_folders = [settings_folder / "skills", *(home / name for name in REPOSITORY_FOLDERS)]
    for folder in own_folders:
        real = Path(os.path.realpath(folder))
        if not real.is_relative_to(root):
            reading.take_own(folder, real, root)
            continue
        name = real.relative_to(root).as_posix()
        if name not in repository_folders:
            repository_folders.append(name)
    with (
        closing(Workspace(root, names=names)) as tree,
        closing(GitIgnoredFiles(tree, home)) as ignored,
    ):
        reading.take_trusted(snapshot, ignored)
        for name in repository_folders:
            reading.take_repository(tree, name, ignored)
    return reading.assemble()


class _Reading:
    """Goes through the folders and collects their skills."""

    def __init__(self) -> None:
        self.found: dict[str, FoundSkill] = {}
        self.warnings: list[FileWarning] = []
        self.broken: list[FileWarning] = []
        self.inert: tuple[str, ...] = ()
        self.bytes: dict[str, bytes] = {}

    def assemble(self) -> LoadedSkills:
        return _assemble(
            tuple(self.found.values()),
            (*self.broken, *self.warnings),
            tuple(self.broken),
            self.inert,
        )

    def take_own(self, folder: Path, real: Path, root: Path) -> None:
        """Take skills of a person's folder (`real` without links) outside the workspace.

        Only its owner may be able to change it.
        """
        if not folder.exists():
            return
        try:
            tree = Workspace(folder)
            if not _is_private(folder.stat()):
                self._leave_out(str(folder), *_WRITABLE)
                return
            entries = self._folders(tree, "", str(folder))
        except (ConfigError, ToolFailed) as error:
            self._leave_out(str(folder), str(error))
            return
        for entry in entries:
            shown = f"{folder}/{entry.name}/{FILE_NAME}"
            if entry.mode & 0o022:
                self._leave_out(f"{folder}/{entry.name}", *_WRITABLE)
                continue
            if root.is_relative_to(real / entry.name):
                self._leave_out(
                    f"{folder}/{entry.name}", "it contains the workspace, where tools can write"
                )
                continue
            data = self._read(tree, f"{entry.name}/{FILE_NAME}", shown, private=True)
            if data is not None:
                self._add(data, shown, "person", DiskSkillFiles(tree, entry.name))

    def take_trusted(self, snapshot: ConfigurationSnapshot, ignored: GitIgnoredFiles) -> None:
        """Take skills below `.ferrule`: exactly the bytes whose digest was trusted."""
        below = {
            name: data
            for name, data in snapshot.files.items()
            if name.startswith(f"{TRUSTED_FOLDER}/")
        }
        skills = [
            name
            for name in sorted(below)
            if name.endswith(f"/{FILE_NAME}") and name.count("/") == 3
        ]
        if snapshot.state != "trusted":
            self.inert = tuple(skills)
            if skills:
                self.warnings.append(
                    FileWarning(
                        TRUSTED_FOLDER, "these skills have no effect until you trust the folder"
                    )
                )
            return
        for name in snapshot.links:
            if f"{name}/".startswith(f"{TRUSTED_FOLDER}/"):
                self._leave_out(name, _LINK)
        for name in skills:
            folder = name.removesuffix(f"/{FILE_NAME}")
            if ignored(name):
                self._leave_out(name, _IGNORED)
            elif len(below[name]) > MOST_BYTES:
                self._leave_out(name, f"it has {len(below[name])} bytes, the bound is {MOST_BYTES}")
            else:
                self._add(below[name], name, "trusted", TrustedSkillFiles(snapshot.files, folder))

    def take_repository(self, tree: Workspace, folder: str, ignored: GitIgnoredFiles) -> None:
        """Take skills of a folder in the workspace that no digest covers."""
        try:
            entries = self._folders(tree, folder, folder)
        except ToolFailed as error:
            if error.error_type is not ErrorType.NOT_FOUND and not _is_link_to_another(
                tree.root, folder
            ):
                self._leave_out(folder, error.message)
            return
        for entry in entries:
            name = f"{entry.path}/{FILE_NAME}"
            if ignored(name):
                self._leave_out(name, _IGNORED)
                continue
            data = self._read(tree, name, name)
            if data is not None:
                self._add(data, name, "repository", None)

    def _folders(self, tree: Workspace, folder: str, shown: str) -> list[FileEntry]:
        """Return the folders in one folder, and report links among them. Raises ToolFailed."""
        entries = [entry for entry in tree.entries(folder) if not entry.name.startswith(".")]
        if len(entries) > MOST_ENTRIES:
            self._leave_out(
                shown,
                f"it has {len(entries)} entries; only the first {MOST_ENTRIES} were looked at",
            )
        for entry in entries[:MOST_ENTRIES]:
            if entry.kind == "link":
                self._leave_out(f"{shown}/{entry.name}", _LINK)
        return [entry for entry in entries[:MOST_ENTRIES] if entry.kind == "dir"]

    def _read(
        self, tree: Workspace, name: str, shown: str, *, private: bool = False
    ) -> bytes | None:
        try:
            with tree.open(name) as file:
                status = os.fstat(file.fileno())
                data = file.read(MOST_BYTES + 1)
        except ToolFailed as error:
            missing = error.error_type is ErrorType.NOT_FOUND
            self._leave_out(
                shown, f"there is no `{FILE_NAME}` in this folder" if missing else error.message
            )
            return None
        if private and not _is_private(status):
            self._leave_out(shown, *_WRITABLE)
            return None
        if len(data) > MOST_BYTES:
            self._leave_out(
                shown,
                f"it has {status.st_size} bytes, the bound is {MOST_BYTES}",
                "move what is not always needed into files of its own",
            )
            return None
        return data

    def _add(self, data: bytes, file: str, origin: Origin, resources: SkillFiles | None) -> None:
        try:
            skill = parse_skill(data, file, origin)
        except ConfigError as error:
            # The detail begins with the place.
            where, _, message = error.detail.partition(": ")
            self._leave_out(where, message or error.detail, error.hint)
            return
        self.warnings += skill.warnings
        first = self.found.get(skill.name)
        if first is not None:
            # The same skill is often kept in two folders, for programs that know only one of them.
            if self.bytes[skill.name] != data:
                self.warnings.append(
                    FileWarning(
                        file, f"`{skill.name}` is not used: {first.skill.file} takes precedence"
                    )
                )
        elif len(self.found) >= MOST_SKILLS:
            self._leave_out(file, f"there are more than {MOST_SKILLS} skills")
        else:
            self.found[skill.name] = FoundSkill(skill, resources)
            self.bytes[skill.name] = data

    def _leave_out(self, where: str, message: str, hint: str = "") -> None:
        self.broken.append(FileWarning(where, f"{message}; {hint}" if hint else message))


_CATALOGUE = "skills"
_LINK = "it is a link, and links are not followed"
_IGNORED = "git ignores it, and nobody reviews what git ignores"
_WRITABLE = ("others can write it, so it may not be yours", "check it, then `chmod -R go-w` it")


def _assemble(
    found: tuple[FoundSkill, ...],
    warnings: tuple[FileWarning, ...],
    broken: tuple[FileWarning, ...],
    inert: tuple[str, ...],
) -> LoadedSkills:
    found = tuple(sorted(found, key=lambda one: one.skill.name))
    skills = tuple(one.skill for one in found)
    offered = [one for one in found if one.skill.is_for_model]
    text, shortened = render_catalogue([one.skill for one in offered])
    warnings = tuple(one for one in warnings if one.where != _CATALOGUE)
    if shortened:
        warnings = (*warnings, FileWarning(_CATALOGUE, shortened))
    tools = (make_skill_tool(offered),) if offered else ()
    return LoadedSkills(skills, warnings, tools, text, inert, broken, found)


def _is_refused(rules: Rules, tool: Tool, skill: Skill) -> bool:
    if rules.decide(tool, {"name": skill.name}).verdict == "deny":
        return True
    return skill.origin == "repository" and rules.find_refusal(skill.file, False) != ""


def _is_private(status: os.stat_result) -> bool:
    return status.st_uid in (os.getuid(), 0) and not status.st_mode & 0o022


def _is_link_to_another(root: Path, folder: str) -> bool:
    """Whether a folder is a link to another one that is read: many repositories link the two."""
    real = os.path.realpath(root / folder)
    return any(real == str(root / other) for other in REPOSITORY_FOLDERS if other != folder)
