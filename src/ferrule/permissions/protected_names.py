"""Names inside a workspace that no tool may read, or that no tool may write.

Rules of this file:

* `RESERVED` and `SECRET` are neither read nor written, `PROTECTED` may be read but not written.
  Nor is `INSTALLED`, by tools; commands may write it where it is not protected as well, since that
  is what a package manager does.
* A pattern without a slash matches a component at any depth, `a/b` matches these components in a
  row at any depth, and a leading slash anchors a pattern at the workspace root. `*` and `?` stay
  within a component. A match covers what lies below it, too: all in a folder `.envs/` is hidden.
* The lists are about names, not files: a name is refused before it exists.
* A name is judged by where it really lies, whatever folder was opened: `ProtectedNames.find_above`
  finds the part of a folder's path that a pattern can begin in, so that `hooks/x` in an opened
  `repo/.git` is `.git/hooks/x`, and `credentials` in `~/.cargo` is `.cargo/credentials`.
* A folder that git would take for a repository (`is_git_folder`) is judged as if it were `.git`.
* Settings can only make the lists longer; there are no exceptions.

Matching ignores differences of spelling that some file system ignores: case,
Unicode compatibility forms (NFKC), invisible characters, trailing dots and spaces, NTFS streams
(`k.pem::$DATA`), short names (`GIT~1`) and editors' backup endings (`.env~`, `id_rsa.bak`).

Decisions: `agents/` is reserved at the root only (requirement 000: "the agents/ subdirectory" of
the workspace), so `src/agents/x.py` is an ordinary file. `.env*` is taken literally: `.envoy` and
`.env.example` are refused, `environment.py` is not. Nothing below `.git` may be written,
since nearly any file there can make git run a program; `config` and `hooks` below it may not be
read either, as they contain tokens and commands.

Not protected: secrets in files with ordinary names, and look-alike letters of other alphabets (a
different file on every file system).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import NamedTuple, Protocol, final

RESERVED = (
    "/agents",
    ".ferrule",
    ".ferrule-tmp-*",  # files of an atomic write that a crash left behind
    ".harness",
    ".git/**/config",
    ".git/**/config.*",
    ".git/**/hooks",
    ".git/**/credentials*",
    ".hg/hgrc",
    ".svn/auth",
)

SECRET = (
    ".env*",
    "*.env",
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
    "*.ppk",
    "*.jks",
    "*.keystore",
    "*.kdbx",
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ecdsa_sk",
    "id_ed25519",
    "id_ed25519_sk",
    "authorized_keys",
    "authorized_keys2",
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".config/gcloud",
    ".docker/config.json",
    ".dockercfg",
    ".cargo/credentials*",
    ".gem/credentials",
    ".password-store",
    ".vault-token",
    ".netrc",
    "_netrc",
    ".pgpass",
    ".my.cnf",
    ".npmrc",
    ".yarnrc.yml",
    ".pypirc",
    ".htpasswd",
    ".git-credentials",
    "harvey.yaml",
    "harvey.yml",
    "ferrule.yaml",
    "ferrule.yml",
)

PROTECTED = (
    # Version control: nearly every file can make it run a program.
    ".git",
    "git~1",
    ".hg",
    ".svn",
    ".bzr",
    ".jj",
    ".gitconfig",
    ".gitmodules",
    ".lfsconfig",
    ".hgrc",
    ".config/hg",
    ".subversion",
    ".config/jj",
    ".jjconfig.toml",
    ".husky",
    ".pre-commit-config.yaml",
    # Started with a login or a desktop, or found on a person's search path, where a home is opened.
    ".config/autostart",
    ".config/environment.d",
    ".config/systemd",
    ".config/i3",
    ".config/sway",
    ".config/hypr",
    ".config/plasma-workspace",
    ".xserverrc",
    ".local/bin",
    ".local/share/systemd",
    ".local/share/applications",
    ".local/share/dbus-1",
    ".local/share/nautilus",
    ".local/share/bash-completion",
    ".pam_environment",
    ".xsession",
    ".config/git",
    # Read by shells and interpreters when they start.
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".bash_aliases",
    ".profile",
    ".login",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    ".zlogout",
    ".kshrc",
    ".cshrc",
    ".tcshrc",
    ".config/fish",
    ".config/zsh",
    ".oh-my-zsh",
    ".config/nushell",
    ".config/xonsh",
    ".xonshrc",
    ".config/powershell",
    ".bash_completion",
    ".config/direnv",
    ".direnvrc",
    ".rvmrc",
    ".cargo/env",
    "mise.toml",
    "mise.*.toml",
    ".mise.toml",
    ".mise.*.toml",
    ".mise",
    ".config/mise",
    ".config/mise.toml",
    ".tool-versions",
    ".autoenv*",
    ".inputrc",
    ".tmux.conf",
    ".screenrc",
    ".config/tmux",
    ".config/zellij",
    ".config/kitty",
    ".config/wezterm",
    ".wezterm.lua",
    ".config/ghostty",
    ".config/alacritty",
    ".emacs",
    ".emacs.d",
    ".config/emacs",
    ".bashrc.d",
    ".xinitrc",
    ".xprofile",
    ".xsessionrc",
    ".pythonrc",
    ".pythonrc.py",
    ".pdbrc",
    ".ipython",
    ".psqlrc",
    ".sqliterc",
    ".julia/config",
    ".mailcap",
    ".lessfilter",
    ".perldb",
    ".byebugrc",
    ".gdbinit",
    ".lldbinit",
    ".vimrc",
    ".nvimrc",
    ".nvim.lua",
    ".exrc",
    ".lvimrc",
    ".local.vimrc",
    ".vim",
    ".config/nvim",
    ".helix",
    ".config/helix",
    ".dir-locals.el",
    ".dir-locals-2.el",
    ".Rprofile",
    ".Renviron",
    ".ghci",
    ".irbrc",
    ".pryrc",
    ".iex.exs",
    ".ocamlinit",
    ".octaverc",
    "jupyter_*_config.py",
    "sitecustomize.py",
    "usercustomize.py",
    "site-packages/*.pth",
    # Read by package managers and build tools first, and able to replace the program they run.
    ".yarnrc",
    ".bazeliskrc",
    ".gradle/init.gradle",
    ".gradle/init.d",
    ".config/containers",
    ".mvn",
    ".cargo/config",
    ".cargo/config.toml",
    ".bazelrc",
    "bunfig.toml",
    ".pnpmfile.cjs",
    ".pnpmfile.mjs",
    ".lefthook*",
    ".overcommit.yml",
    "lefthook.*",
    "lefthook-local.*",
    # Settings of editors and agents that start servers, tasks or hooks; the first are our own.
    "/harness.md",
    ".mcp.json",
    ".vscode",
    ".idea",
    ".zed",
    ".lapce",
    ".theia",
    ".fleet",
    ".config/code",
    ".config/cursor",
    ".cursor",
    ".claude",
    ".agents",
    ".codex",
    ".gemini",
    ".windsurf",
    ".kiro",
    ".opencode",
    "opencode.json",
    "opencode.jsonc",
    ".continue",
    ".roo",
    ".junie",
    ".trae",
    ".qwen",
    ".amazonq",
    ".augment",
    ".factory",
    ".goose",
    ".kilocode",
    ".openhands",
    ".pi",
    ".clinerules/hooks",
    "*.agent.md",
    ".crush.json",
    "crush.json",
    ".claude.json",
    ".vibe",
    ".grok",
    ".copilot",
    ".amp",
    ".iflow",
    ".codebuddy",
    ".kimi",
    ".rovodev",
    ".config/opencode",
    ".config/goose",
    ".config/crush",
    ".aider.conf.yml",
    "*.code-workspace",
    "*.sublime-project",
    ".devcontainer",
    ".devcontainer.json",
    # Run by a build server with its rights.
    ".github/workflows",
    ".github/actions",
    ".github/hooks",
    ".github/agents",
    ".github/skills",
    ".gitlab-ci.yml",
    ".gitlab-ci.yaml",
    ".gitea/workflows",
    ".forgejo/workflows",
    ".circleci",
    ".buildkite",
    ".woodpecker",
    ".woodpecker.yml",
    ".woodpecker.yaml",
    ".drone.yml",
    ".build.yml",
    ".builds",
    ".zuul.yaml",
    ".zuul.d",
    ".tekton",
    "buildspec.yml",
    "cloudbuild.yaml",
    "bitrise.yml",
    "codemagic.yaml",
    ".travis.yml",
    "azure-pipelines.yml",
    "bitbucket-pipelines.yml",
    "appveyor.yml",
    ".appveyor.yml",
    ".cirrus.yml",
    ".semaphore",
    ".teamcity",
    "jenkinsfile",
)

INSTALLED = (
    "*.dist-info",
    "*.egg-info",
    "*.egg-link",
    "__editable__*",
    "entry_points.txt",
    "dist-packages/*.pth",
    "pyvenv.cfg",
    "conda-meta",
    "pip.conf",
    "pip.ini",
)
"""What says which code an environment holds, or where its pip gets more (pip reads `pip.conf` of
the environment that it runs in): whoever starts Python or pip there may load it unasked."""

GIT_FOLDER_ENTRIES = frozenset({"HEAD", "objects", "refs", "commondir"})
"""What git looks for in a folder before it takes it for a repository."""


def is_git_folder(entries: Collection[str]) -> bool:
    """Return whether git would take a folder with these entries for a repository.

    It is one with HEAD, objects and refs, or with HEAD and a file that names another one.
    """
    return "HEAD" in entries and (
        "commondir" in entries or ("objects" in entries and "refs" in entries)
    )


def judge_content(judged: str, entries: Collection[str], *, in_workspace: bool) -> str:
    """Return the name by which a folder is judged when its content is.

    Masks, the mediator and whatever else goes down into folders calls it for each of them, from
    an opened folder on (`ProtectedNames.find_above`). So it makes no difference which folder that
    was.

    Args:
        judged: The name that the folder itself is judged by.
        entries: The names in it; of those that are asked about here.
        in_workspace: Whether it lies in the workspace, whose root alone is what names begin at.
            Elsewhere names begin at the repository that they belong to.
    """
    if ".git" in judged.split("/"):
        return judged
    if is_git_folder(entries):
        return ".git"
    return "" if ".git" in entries and not in_workspace else judged


class NameRule(Protocol):
    """What refuses further names, beside the lists: deny rules, or the names of a wider folder.

    `creation_patterns` are patterns, in the language of the lists, for names that it forbids to
    create.
    """

    @property
    def creation_patterns(self) -> tuple[str, ...]: ...

    def find_refusal(self, name: str, write: bool) -> str:
        """Return why a name may not be read (or written); empty if it may."""
        ...

    def select_suspicious(self, folder: str, names: Sequence[str]) -> Sequence[str]:
        """Return those of the names in a folder that `find_refusal` has to decide about."""
        ...

    def for_commands(self) -> NameRule | None:
        """Return the part that also binds commands; None if nothing does."""
        ...


class _Lists(NamedTuple):
    """The lists that settings add. What they say of a name is remembered for the whole process.

    Rules are no part of them: they lead to the gate and the workspace of an agent, which end.
    """

    reserved: tuple[str, ...]
    secret: tuple[str, ...]
    protected: tuple[str, ...]


@final  # a copy that forgets what a subclass adds would open what that refuses
@dataclass(frozen=True, slots=True)  # not `core.value_class`: the sandbox loads this file alone
class ProtectedNames:
    """The lists above and what settings add. Patterns are described at the top of this file.

    `rules` refuse what the lists let pass. `above` is the part of the path of the folder that
    names are relative to in which a pattern can begin (`find_above`); empty for most folders.
    """

    reserved: tuple[str, ...] = ()
    secret: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()
    rules: tuple[NameRule, ...] = field(default=(), hash=False)
    above: str = field(default="", kw_only=True)
    _lists: _Lists = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        lists = _Lists(self.reserved, self.secret, self.protected)
        object.__setattr__(self, "_lists", lists)

    def __init_subclass__(cls) -> None:
        raise TypeError("ProtectedNames has no subclasses: give it `rules`")

    def check(self, name: str, *, write: bool) -> str | None:
        """Return why a tool may not read (or write) a name, or None if it may.

        Args:
            name: A path relative to the workspace.
            write: Check for writing.

        Returns:
            The reason, which names the pattern that matched.
        """
        if self.above:
            reason = _check(self._lists, f"{self.above}/{name}".rstrip("/"), write)
            if reason is not None:
                return reason
        reason = None if _is_plain(self._lists, name, write) else _check(self._lists, name, write)
        if reason is not None or not self.rules:
            return reason
        reason = self.check_rules(name, write=write)
        return f"is {reason}" if reason.startswith("denied") else reason or None

    def check_rules(self, name: str, *, write: bool) -> str:
        """Return why the rules, whatever the lists say, refuse a name; empty if they do not."""
        for rule in self.rules:
            reason = rule.find_refusal(name, write)
            if reason:
                return reason
        return ""

    @property
    def creation_patterns(self) -> tuple[str, ...]:
        """Patterns, in the language of the lists, for names that the rules forbid to create."""
        patterns = [pattern for rule in self.rules for pattern in rule.creation_patterns]
        return tuple(dict.fromkeys(patterns))

    def find_above(self, folder: str) -> str:
        """Return the end of a folder's path that has to be before a name when it is judged.

        It begins where the first pattern of several components could begin that could still match
        below the folder.
        """
        unread = RESERVED + self.reserved + SECRET + self.secret
        rows = _rows_of(unread + PROTECTED + self.protected + INSTALLED)
        parts = folder.strip("/").split("/")
        folded = [_fold(part) for part in parts]
        for start, part in enumerate(folded):
            if any(_may_go_on(row, folded[start:]) for row in rows.get(part, ())):
                return "/".join(parts[start:])
        return ""

    def hides_folder(self, folder: str) -> bool:
        """Return whether a folder has a name, or lies in one with a name, that hides all of it.

        Patterns that begin or end with a wildcard name files above all (`.env*`, `*.key`): a folder
        that a person named is not hidden by one.

        Args:
            folder: Its absolute path, free of links.
        """
        patterns = RESERVED + self.reserved + SECRET + self.secret
        literal = tuple(p for p in patterns if p[0] not in "/*" and p[-1] != "*")
        return _any_matches(literal, _spellings_of(folder.strip("/")))

    def find_protection(self, folder: str) -> str:
        """Return why nobody writes in a folder, since it has a protected name or lies in one.

        Empty if it may be written. In a `.git` the names in it decide: git writes there.

        Args:
            folder: Its path, relative to the repository that it is in or to the machine's root.
        """
        if {".git", _SHORT_GIT}.intersection(map(_fold, folder.split("/"))):
            return ""
        reason = _check(self._lists, folder, write=True) or ""
        return reason if reason.startswith(_PROTECTED_REASON) else ""

    def select_suspicious(
        self, folder: str, names: Sequence[str], *, write: bool = False
    ) -> Sequence[str]:
        """Return those of the names in a folder that may not be read, and perhaps a few more.

        For walks: what is not returned may be read; `check` decides about the others.

        Args:
            folder: A path relative to the workspace; empty for the workspace itself.
            names: Names in it, each a single component.
            write: Those that may not be written, too. Where there are rules, all names are returned
                then.
        """
        if self.above or (write and self.rules):
            return names
        suspicious = self._select_by_lists(folder, names, write)
        for rule in self.rules:
            others = rule.select_suspicious(folder, names)
            if others:
                suspicious = list(dict.fromkeys((*suspicious, *others)))
        return suspicious

    def _select_by_lists(self, folder: str, names: Sequence[str], write: bool) -> Sequence[str]:
        known = _known_components(self.reserved, self.secret, self.protected, write)
        is_known = not folder or known.issuperset(folder.split("/"))
        if not is_known and not _is_plain_folder(self._lists, folder, write):
            return names
        if known.issuperset(names):
            return ()
        new = [name for name in names if name not in known]
        suspicious = _select_suspicious(self._lists, new, write)
        known.update(new)
        known.difference_update(suspicious)
        if len(known) > _MOST_KNOWN:
            known.clear()
        return suspicious

    def extend(
        self,
        *,
        reserved: tuple[str, ...] = (),
        secret: tuple[str, ...] = (),
        protected: tuple[str, ...] = (),
        rules: Iterable[NameRule] = (),
    ) -> ProtectedNames:
        """Return these names with further patterns and rules; each is there once."""
        return replace(
            self,
            reserved=tuple(dict.fromkeys((*self.reserved, *reserved))),
            secret=tuple(dict.fromkeys((*self.secret, *secret))),
            protected=tuple(dict.fromkeys((*self.protected, *protected))),
            rules=(*self.rules, *(rule for rule in rules if rule not in self.rules)),
        )

    def only_lists(self) -> ProtectedNames:
        """Return the lists alone, for names that do not begin at the workspace."""
        return replace(self, rules=(), above="")

    def for_commands(self) -> ProtectedNames:
        """Return the names that bind commands, too."""
        bound = [rule.for_commands() for rule in self.rules]
        return replace(self, rules=tuple(rule for rule in bound if rule is not None))


DEFAULT_NAMES = ProtectedNames()

_BACKUP_ENDINGS = ("bak", "backup", "old", "orig", "save", "swp", "swo", "tmp")
_BACKUP_ENDING = re.compile(rf"(?:~|#|\.(?:{'|'.join(_BACKUP_ENDINGS)}))+$")
_MAYBE_BACKUP = re.compile(rf"[~#]|\.(?:{'|'.join(_BACKUP_ENDINGS)})(?:/|$)")
_UNUSUAL_MARKS = (
    *(":", "\\", "~", "#", "/ ", " /", "./"),
    *(f".{ending}/" for ending in _BACKUP_ENDINGS),
)
"""What components that have several spellings contain, in a text with `/` around each."""

_RESERVED_REASON = "reserved: no tool may touch it"
_SECRET_REASON = "may hold secrets: no tool may read or write it"
_PROTECTED_REASON = "protected: it may be read but not written by a tool"
_IGNORE_INSTEAD = "; a line of `.gitignore` does the same, and a person sees it"
_INSTALLED_REASON = "installed: only package managers write what an environment loads"


def _is_plain(names: _Lists, name: str, write: bool) -> bool:
    """Return whether a name can match no pattern, as far as its components say one by one.

    Walks check every name, and nearly all are like this. A pattern of several components matches
    only if its first one is there, so a component that is the first of none, matches none by
    itself, and has one spelling, adds nothing to a match.
    """
    folder, _, last = name.rpartition("/")
    return _is_plain_component(names, last, write) and (
        not folder or _is_plain_folder(names, folder, write)
    )


@lru_cache(maxsize=16_384)
def _is_plain_folder(names: _Lists, folder: str, write: bool) -> bool:
    return all(_is_plain_component(names, part, write) for part in folder.split("/"))


_MOST_KNOWN = 200_000
"""The most names without a match that are remembered for each set of lists."""


@lru_cache(maxsize=8)
def _known_components(
    reserved: tuple[str, ...], secret: tuple[str, ...], protected: tuple[str, ...], write: bool
) -> set[str]:
    """Return the components that are known to be plain, as a set to add to."""
    return set()


@lru_cache(maxsize=65_536)
def _is_plain_component(names: _Lists, part: str, write: bool) -> bool:
    if not part.isascii() or ":" in part or "\\" in part:
        return False
    folded = _fold(part)
    if not folded or _MAYBE_BACKUP.search(folded):
        return False
    for patterns in (RESERVED + names.reserved, SECRET + names.secret):
        if _index_of(patterns).may_begin_with(folded):
            return False
    if not write:
        return True
    unwritable = (PROTECTED + names.protected, INSTALLED)
    return not any(_index_of(patterns).may_begin_with(folded) for patterns in unwritable)


_GROUP = 1_000
"""How many names are judged with one look. Where one of them is suspicious, the halves are."""

_SMALL_GROUP = 8
"""Groups of this size are judged name by name."""


def _select_suspicious(names: _Lists, parts: Sequence[str], write: bool) -> list[str]:
    """Return the components that `_is_plain_component` does not hold for."""
    found: list[str] = []
    waiting = [parts[start : start + _GROUP] for start in range(0, len(parts), _GROUP)][::-1]
    while waiting:
        group = waiting.pop()
        if len(group) <= _SMALL_GROUP:
            found += [part for part in group if not _is_plain_component(names, part, write)]
        elif not _are_plain_components(names, group, write):
            middle = len(group) // 2
            waiting += (group[middle:], group[:middle])
    return found


def _are_plain_components(names: _Lists, parts: Sequence[str], write: bool) -> bool:
    """Return whether all of many components are plain; perhaps False if they are.

    It searches one text of them all for what makes a component suspicious, a tenth of the work of
    judging one after the other.
    """
    text = f"/{'/'.join(parts)}/"
    if not text.isascii() or not text.isprintable():
        return False
    folded = text.lower()
    if any(mark in folded for mark in _UNUSUAL_MARKS):
        return False
    components = folded.split("/")
    lists = [RESERVED + names.reserved, SECRET + names.secret]
    if write:
        lists += [PROTECTED + names.protected, INSTALLED]
    return not any(_index_of(one).may_begin_with_any(folded, components) for one in lists)


@lru_cache(maxsize=16_384)
def _check(names: _Lists, name: str, write: bool) -> str | None:
    spellings = _spellings_of(name)
    pattern = _find_match(RESERVED + names.reserved, spellings)
    if pattern is not None:
        return f"{_RESERVED_REASON} (rule `{pattern}`)"
    pattern = _find_match(SECRET + names.secret, _with_originals(spellings))
    if pattern is not None:
        return f"{_SECRET_REASON} (rule `{pattern}`)"
    if not write:
        return None
    for reason, patterns in (
        (_PROTECTED_REASON, PROTECTED + names.protected),
        (_INSTALLED_REASON, INSTALLED),
    ):
        pattern = _find_match(patterns, spellings)
        if pattern is not None:
            way_on = _IGNORE_INSTEAD if name.endswith("/info/exclude") else ""
            return f"{reason} (rule `{pattern}`){way_on}"
    return None


def _find_match(patterns: tuple[str, ...], spellings: list[str]) -> str | None:
    """Return the first pattern that matches one of the spellings."""
    if not _any_matches(patterns, spellings):
        return None
    return next(pattern for pattern in patterns if _any_matches((pattern,), spellings))


def _any_matches(patterns: tuple[str, ...], spellings: list[str]) -> bool:
    index = _index_of(patterns)
    return any(index.matches(spelling) for spelling in spellings)


def _spellings_of(name: str) -> list[str]:
    """Return a name as file systems may read it: folded, and without NTFS streams."""
    folded = "/".join([_fold(part) for part in name.split("/")])
    if ":" not in folded:
        return [folded]
    without_streams = [part.partition(":")[0].rstrip(". ") for part in folded.split("/")]
    return [folded, "/".join(without_streams)]


def _with_originals(spellings: list[str]) -> list[str]:
    """Return the spellings and, for the copies that editors make, the names of their originals.

    Copies are `.ssh.bak` and `id_rsa~`, or `.id_rsa.swp` and `#id_rsa#`.
    """
    if not any(_MAYBE_BACKUP.search(spelling) for spelling in spellings):
        return spellings
    found = list(spellings)
    for spelling in spellings:
        parts = [_BACKUP_ENDING.sub("", part) for part in spelling.split("/")]
        found.append("/".join(parts))
        found.append("/".join([part.lstrip(".#") for part in parts]))
    return found


def _fold(part: str) -> str:
    """Return a component as the most forgiving file system compares it."""
    if part.isascii():
        return part.lower().replace("\\", "/").strip().rstrip(". ")
    visible = "".join(
        character
        for character in unicodedata.normalize("NFKC", part)
        if not _is_invisible(character)
    )
    folded = unicodedata.normalize("NFKC", visible.casefold())
    return folded.replace("\\", "/").strip().rstrip(". ")


def _is_invisible(character: str) -> bool:
    # HFS+ ignores these when it compares names: `.g<zero width joiner>it` was a way into `.git`.
    return unicodedata.category(character) in ("Cf", "Cc") or "\ufe00" <= character <= "\ufe0f"


class _PatternIndex:
    """Patterns sorted by how fast they can be checked.

    Walks check every name, and nearly all are ordinary.

    Attributes:
        names: Patterns without wildcards.
        prefixes: Patterns that end with `*`.
        suffixes: Patterns that begin with `*`.
        first_components: Those of the patterns in `rest`; None if one contains a wildcard.
        rest: All other patterns.
        openings: The first components of those.
    """

    def __init__(
        self,
        names: frozenset[str],
        prefixes: tuple[str, ...],
        suffixes: tuple[str, ...],
        first_components: frozenset[str] | None,
        rest: re.Pattern[str],
        openings: re.Pattern[str],
    ) -> None:
        self.names = names
        self.prefixes = prefixes
        self.suffixes = suffixes
        self.first_components = first_components
        self.rest = rest
        self.openings = openings

    def may_begin_with(self, part: str) -> bool:
        """Return whether a component matches a pattern, or the first component of one."""
        return self._matches_component(part) or self.openings.fullmatch(part) is not None

    def may_begin_with_any(self, text: str, parts: list[str]) -> bool:
        """Return whether `may_begin_with` holds for a part of a text with `/` around each part."""
        return (
            not self.names.isdisjoint(parts)
            or any(f"/{prefix}" in text for prefix in self.prefixes)
            or any(f"{suffix}/" in text for suffix in self.suffixes)
            or self._opens_with_any(parts)
        )

    def _opens_with_any(self, parts: list[str]) -> bool:
        if self.first_components is not None:
            return not self.first_components.isdisjoint(parts)
        return any(self.openings.fullmatch(part) is not None for part in parts)

    def _matches_component(self, part: str) -> bool:
        return part in self.names or part.startswith(self.prefixes) or part.endswith(self.suffixes)

    def matches(self, folded: str) -> bool:
        parts = folded.split("/")
        if any(self._matches_component(part) for part in parts):
            return True
        if self.first_components is None or not self.first_components.isdisjoint(parts):
            return self.rest.search(folded) is not None
        return False


@cache
def _rows_of(patterns: tuple[str, ...]) -> dict[str, list[list[str]]]:
    """Return the patterns of several components that no root anchors, by their first component.

    A first component with a wildcard is left out: it names what lies in a folder of any name.
    """
    rows: dict[str, list[list[str]]] = {}
    for pattern in map(_fold_pattern, patterns):
        row = pattern.rstrip("/").split("/")
        if len(row) > 1 and row[0] and "*" not in row[0] and "?" not in row[0]:
            rows.setdefault(row[0], []).append(row)
            if row[0] == ".git":
                rows.setdefault(_SHORT_GIT, []).append(row)
    return rows


def _may_go_on(row: list[str], parts: list[str]) -> bool:
    """Return whether a name below the folder `parts` could match a row that begins in it."""
    for number, component in enumerate(row):
        if component == "**" or number == len(parts):
            return True
        if number and re.fullmatch(_component_expression(component), parts[number]) is None:
            return False
    # All of it matched: the folder itself, or one above it, is what the row names.
    return True


@cache
def _index_of(patterns: tuple[str, ...]) -> _PatternIndex:
    names: set[str] = set()
    prefixes: list[str] = []
    suffixes: list[str] = []
    rest: list[str] = []
    for pattern in map(_fold_pattern, patterns):
        plain = pattern.strip("*")
        has_inner_wildcard = "*" in plain or "?" in plain or pattern == f"*{plain}*"
        if "/" in pattern or not plain or has_inner_wildcard:
            rest.append(pattern)
        elif pattern == plain:
            names.add(plain)
        elif pattern.endswith("*"):
            prefixes.append(plain)
        else:
            suffixes.append(plain)
    return _PatternIndex(
        names=frozenset(names),
        prefixes=tuple(prefixes),
        suffixes=tuple(suffixes),
        first_components=_first_components(rest),
        rest=re.compile("|".join(map(_to_expression, rest)) or r"(?!)"),
        openings=re.compile(
            "|".join(_component_expression(pattern.strip("/").split("/")[0]) for pattern in rest)
            or r"(?!)"
        ),
    )


_SHORT_GIT = "git~1"


def _first_components(patterns: list[str]) -> frozenset[str] | None:
    first = {pattern.strip("/").split("/")[0] for pattern in patterns}
    if any("*" in component or "?" in component for component in first):
        return None
    if ".git" in first:
        first.add(_SHORT_GIT)
    return frozenset(first)


def _to_expression(pattern: str) -> str:
    """Return a folded pattern as a regular expression over a folded path."""
    start = "^" if pattern.startswith("/") else "(?:^|/)"
    parts: list[str] = []
    for part in pattern.strip("/").split("/"):
        if part == "**":
            parts.append("(?:[^/]+/)*")
        elif part == ".git":
            parts.append(rf"(?:\.git|{_SHORT_GIT})/")
        else:
            parts.append(_component_expression(part) + "/")
    return f"{start}{''.join(parts).removesuffix('/')}(?:/|$)"


def _component_expression(part: str) -> str:
    return re.escape(part).replace(r"\*", "[^/]*").replace(r"\?", "[^/]")


def _fold_pattern(pattern: str) -> str:
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", pattern).casefold())
