"""Names inside a workspace that no tool may read, or that no tool may write.

Rules of this file:

* `RESERVED` and `SECRET` are neither read nor written, `PROTECTED` may be read but not written.
* A pattern without a slash matches a component at any depth, `a/b` matches these components in a
  row at any depth, and a leading slash ties a pattern to the workspace root. `*` and `?` stay
  within a component. What lies below a match is covered too: a folder `.envs/` hides all it holds.
* The lists hold for names, not files: a name is refused before it exists.
* Whoever extends the lists can only make them longer; there is no way to say "except".

Matching forgives spelling, so that no file system's idea of "the same name" slips through: case,
Unicode compatibility forms (NFKC), invisible characters, trailing dots and spaces, NTFS streams
(`k.pem::$DATA`), short names (`GIT~1`) and editors' backup endings (`.env~`, `id_rsa.bak`).

Decided here: `agents/` is reserved at the root only (requirement 000: "the agents/ subdirectory" of
the workspace), so `src/agents/x.py` is an ordinary file. `.env*` is taken as written: `.envoy` and
`.env.example` are refused, `child_environment.py` is not. Everything below `.git` is closed for
writing, since nearly any file there can make git run a program; `config` and `hooks` below it are
closed for reading too, as they hold tokens and commands.

Not protected: secrets in files with ordinary names, look-alike letters of other alphabets (a
different file on every file system), and a bare repository under another name (git must be told
`safe.bareRepository=explicit`).
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import cache, lru_cache

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
    # Version control: nearly every file can name a program.
    ".git",
    "git~1",
    ".hg",
    ".svn",
    ".bzr",
    ".jj",
    ".gitconfig",
    ".gitmodules",
    ".husky",
    ".pre-commit-config.yaml",
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
    ".inputrc",
    ".xinitrc",
    ".xprofile",
    ".xsessionrc",
    ".pythonrc",
    ".pythonrc.py",
    ".pdbrc",
    ".gdbinit",
    ".lldbinit",
    ".vimrc",
    ".nvimrc",
    ".nvim.lua",
    ".exrc",
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
    # Read by package managers and build tools before they do anything, and able to name a program
    # in place of theirs.
    ".yarnrc",
    ".mvn",
    ".cargo/config",
    ".cargo/config.toml",
    ".bazelrc",
    ".lefthook.yml",
    ".overcommit.yml",
    "lefthook.yml",
    # Settings of editors and agents that start servers, tasks or hooks.
    ".mcp.json",
    ".vscode",
    ".idea",
    ".zed",
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
    ".crush.json",
    ".aider.conf.yml",
    "*.code-workspace",
    "*.sublime-project",
    ".devcontainer",
    ".devcontainer.json",
    # Run by a build server with its rights.
    ".github/workflows",
    ".github/actions",
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


@dataclass(frozen=True, slots=True)  # not `core.frozen`: the sandbox loads this file alone
class Names:
    """The lists above, plus what settings add. Patterns as described at the top of this file."""

    reserved: tuple[str, ...] = ()
    secret: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()

    def check(self, name: str, *, write: bool) -> str | None:
        """Why a tool may not read (or write) `name`, a path relative to the workspace; None if it
        may.

        The answer begins with the reason and names the pattern that matched.
        """
        return _verdict(self, name, write)

    def extended(
        self,
        *,
        reserved: tuple[str, ...] = (),
        secret: tuple[str, ...] = (),
        protected: tuple[str, ...] = (),
    ) -> Names:
        """These lists and more."""
        return Names(self.reserved + reserved, self.secret + secret, self.protected + protected)


DEFAULT = Names()

_BACKUP = re.compile(r"(?:~|#|\.(?:bak|backup|old|orig|save|swp|swo|tmp))+$")
_SOME_BACKUP = re.compile(r"[~#]|\.(?:bak|backup|old|orig|save|swp|swo|tmp)(?:/|$)")


@lru_cache(maxsize=16_384)
def _verdict(names: Names, name: str, write: bool) -> str | None:
    spellings = _spellings(name)
    copies = spellings
    if any(_SOME_BACKUP.search(spelling) for spelling in spellings):
        copies = [
            *spellings,
            *(original for spelling in spellings for original in _originals(spelling)),
        ]
    for patterns, looks_like, reason, applies in (
        (RESERVED + names.reserved, spellings, "reserved: no tool may touch it", True),
        (SECRET + names.secret, copies, "may hold secrets: no tool may read or write it", True),
        (
            PROTECTED + names.protected,
            spellings,
            "protected: it may be read but not written by a tool",
            write,
        ),
    ):
        if applies and any(_any_of(patterns).matches(spelling) for spelling in looks_like):
            return f"{reason} (rule `{_first(patterns, looks_like)}`)"
    return None


def _spellings(name: str) -> list[str]:
    """The ways a file system may read this name: folded, and without NTFS streams where there is a
    colon.
    """
    folded = "/".join([_folded(part) for part in name.split("/")])
    if ":" not in folded:
        return [folded]
    return [folded, "/".join(part.partition(":")[0].rstrip(". ") for part in folded.split("/"))]


def _originals(spelling: str) -> tuple[str, str]:
    """The names that editors' copies were made of: `.ssh.bak`, `id_rsa~`; then `.id_rsa.swp`,
    `#id_rsa#`.
    """
    parts = [_BACKUP.sub("", part) for part in spelling.split("/")]
    return "/".join(parts), "/".join(part.lstrip(".#") for part in parts)


def _folded(part: str) -> str:
    """One component as the most forgiving file system would compare it."""
    if part.isascii():
        return part.lower().replace("\\", "/").strip().rstrip(". ")
    visible = "".join(c for c in unicodedata.normalize("NFKC", part) if not _invisible(c))
    folded = unicodedata.normalize("NFKC", visible.casefold())
    return folded.replace("\\", "/").strip().rstrip(". ")


def _invisible(character: str) -> bool:
    # HFS+ drops these when it compares names: `.g<zero width joiner>it` was a way into `.git`.
    return unicodedata.category(character) in ("Cf", "Cc") or "\ufe00" <= character <= "\ufe0f"


@dataclass(frozen=True, slots=True)
class _Patterns:
    """Patterns sorted by what is quick to ask: a walk asks for every name, and nearly all are
    ordinary.

    `heads` are first components of the patterns in `rest`; None if one of them has a wildcard
    there.
    """

    names: frozenset[str]
    beginnings: tuple[str, ...]
    endings: tuple[str, ...]
    heads: frozenset[str] | None
    rest: re.Pattern[str]

    def matches(self, folded: str) -> bool:
        parts = folded.split("/")
        for part in parts:
            if (
                part in self.names
                or part.startswith(self.beginnings)
                or part.endswith(self.endings)
            ):
                return True
        if self.heads is None or not self.heads.isdisjoint(parts):
            return self.rest.search(folded) is not None
        return False


@cache
def _any_of(patterns: tuple[str, ...]) -> _Patterns:
    """All the patterns as one question to a folded path."""
    names: set[str] = set()
    beginnings: list[str] = []
    endings: list[str] = []
    rest: list[str] = []
    for pattern in map(_folded_pattern, patterns):
        plain = pattern.strip("*")
        if "/" in pattern or "*" in plain or "?" in plain or not plain or pattern == f"*{plain}*":
            rest.append(pattern)
        elif pattern == plain:
            names.add(plain)
        else:
            (beginnings if pattern.endswith("*") else endings).append(plain)
    heads = {pattern.strip("/").split("/")[0] for pattern in rest}
    wild = any("*" in head or "?" in head for head in heads)
    return _Patterns(
        frozenset(names),
        tuple(beginnings),
        tuple(endings),
        None if wild else frozenset(heads | ({_SHORT_GIT} if ".git" in heads else set())),
        re.compile("|".join(map(_expression, rest)) or r"(?!)"),
    )


_SHORT_GIT = "git~1"


def _expression(pattern: str) -> str:
    """A folded pattern as a regular expression over a folded path."""
    start = "^" if pattern.startswith("/") else "(?:^|/)"
    parts: list[str] = []
    for part in pattern.strip("/").split("/"):
        if part == "**":
            parts.append("(?:[^/]+/)*")
        elif part == ".git":
            parts.append(rf"(?:\.git|{_SHORT_GIT})/")
        else:
            parts.append(re.escape(part).replace(r"\*", "[^/]*").replace(r"\?", "[^/]") + "/")
    return f"{start}{''.join(parts).removesuffix('/')}(?:/|$)"


def _folded_pattern(pattern: str) -> str:
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", pattern).casefold())


def _first(patterns: tuple[str, ...], spellings: list[str]) -> str:
    return next(p for p in patterns if any(_any_of((p,)).matches(s) for s in spellings))
