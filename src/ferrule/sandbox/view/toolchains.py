"""Which folders of a home contain programs: what commands see of it, read-only, and nothing else.

    binds = toolchains(Path.home(), os.environ["PATH"], (sys.prefix, sys.base_prefix))

Compilers, interpreters and package managers install into the home. Each manager keeps them in
folders of its own, beside its configuration and credentials; the table names the first and leaves
out the second. A folder of PATH, or where the running interpreter is, is added only if it is below
a folder of the table: `PATH=~/bin:~/.ssh` opens nothing.

Not protected: a secret that somebody put into a folder of programs under a name that `HIDDEN` does
not know.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from ferrule.core.value_class import frozen
from ferrule.permissions.protected_names import DEFAULT_NAMES

TOOLCHAINS = (
    # Python
    ".pyenv/versions",
    ".pyenv/shims",
    ".pyenv/bin",
    ".pyenv/libexec",
    ".pyenv/plugins",
    ".pyenv/completions",
    ".pyenv/pyenv.d",
    ".pyenv/version",
    ".local/share/uv/python",
    ".local/share/uv/tools",
    ".local/share/pipx/venvs",
    ".local/pipx/venvs",
    ".local/bin",
    ".local/lib",
    ".local/share/mise/installs",
    ".local/share/mise/shims",
    ".local/share/rtx/installs",
    ".local/share/hatch/env",
    ".local/share/pypoetry/venv",
    ".local/share/pdm/venvs",
    ".virtualenvs",
    ".conda/envs",
    "miniconda3",
    "anaconda3",
    "miniforge3",
    "mambaforge",
    "micromamba/envs",
    ".rye/py",
    ".rye/shims",
    ".rye/self",
    ".pixi/bin",
    ".pixi/envs",
    # Rust, Go, Zig, Haskell, OCaml, Nim
    ".rustup/toolchains",
    ".rustup/settings.toml",
    ".cargo/bin",
    ".cargo/registry",
    ".cargo/git",
    ".cargo/env",
    "go/bin",
    "go/pkg/mod",
    "sdk",
    ".local/go",
    ".ghcup/bin",
    ".ghcup/ghc",
    ".cabal/bin",
    ".opam/default",
    ".nimble/bin",
    ".zvm",
    ".elan/toolchains",
    ".elan/bin",
    # JavaScript
    ".nvm/versions",
    ".nvm/alias",
    ".nvm/nvm.sh",
    ".nvm/nvm-exec",
    ".volta/bin",
    ".volta/tools",
    ".local/share/fnm/node-versions",
    ".fnm/node-versions",
    ".nodenv/versions",
    ".nodenv/shims",
    ".nodenv/bin",
    ".nodenv/libexec",
    ".bun/bin",
    ".bun/install/global/node_modules",
    ".deno/bin",
    ".local/share/pnpm",
    ".npm-global/bin",
    ".npm-global/lib",
    ".npm-packages/bin",
    ".npm-packages/lib",
    ".yarn/bin",
    "n/versions",
    # Ruby, PHP, Perl, Elixir
    ".rbenv/versions",
    ".rbenv/shims",
    ".rbenv/bin",
    ".rbenv/libexec",
    ".rbenv/plugins",
    ".rbenv/version",
    ".rvm/rubies",
    ".rvm/gems",
    ".rvm/bin",
    ".rvm/scripts",
    ".local/share/gem",
    ".composer/vendor",
    ".phpenv/versions",
    ".plenv/versions",
    ".plenv/shims",
    ".perl5",
    "perl5",
    ".kiex",
    # JVM
    ".sdkman/candidates",
    ".sdkman/bin",
    ".jenv/versions",
    ".jenv/shims",
    ".jenv/bin",
    ".jenv/libexec",
    ".jbang/bin",
    ".local/share/coursier/bin",
    ".local/share/coursier/jvm",
    # Several
    ".asdf/installs",
    ".asdf/shims",
    ".asdf/bin",
    ".asdf/lib",
    ".asdf/plugins",
    ".asdf/asdf.sh",
    ".proto/bin",
    ".proto/shims",
    ".proto/tools",
    ".nix-profile",
    ".local/state/nix/profiles",
    ".dotnet",
    ".swiftly/bin",
    ".local/share/swiftly/toolchains",
    ".linuxbrew",
    ".local/share/flatpak/exports/bin",
    "bin",
)
"""Files and folders below a home. None of them is where its manager keeps credentials."""

SYSTEM = ("/usr/", "/opt/", "/nix/")
"""Where links of the table may lead besides."""

HIDDEN = frozenset(
    {".condarc", "pip.conf", "credentials", "credentials.toml", "credentials.json", "auth.json"}
)
"""Names directly in these folders that are no programs and may be secret.

They come on top of those of `permissions.protected_names`.
"""


MAX_ENVIRONMENTS = 500
"""Folders of one place that are looked into for names that are hidden."""


@frozen
class ReadOnlyBind:
    """A file or folder that commands see at its own path, read-only.

    `hidden` are paths in it that they do not see.
    """

    path: str
    hidden: tuple[str, ...] = ()


def find_toolchains(
    home: Path, path: str = "", prefixes: Iterable[str] = (), environments: Iterable[str] = ()
) -> tuple[ReadOnlyBind, ...]:
    """Return what exists of the table below `home`, and where links in it lead.

    The targets of links are included if they are in the table too. Looks, and changes nothing.

    Args:
        home: The person's home folder.
        path: A PATH. Of its folders those are added, without others beside them, that are below the
            table in whatever home (the interpreter that runs Ferrule may be another user's).
        prefixes: Where interpreters are; treated like the folders of `path`.
        environments: Further places, added as they are (`environments.find_environments`).
    """
    found: dict[str, ReadOnlyBind] = {}
    for home_path in {home, Path(os.path.realpath(home))}:
        if home_path.is_absolute() and len(home_path.parts) > 1:
            for name in TOOLCHAINS:
                _add(found, home_path / name)
    for entry in (*path.split(os.pathsep), *prefixes):
        if not entry.startswith("/"):
            continue
        for folder in {entry, os.path.realpath(entry)}:
            if _is_in_table(folder):
                _add(found, Path(folder))
    for place in environments:
        found[place] = ReadOnlyBind(place, _hidden_paths(Path(place)))
    return _outermost(found.values())


def _add(found: dict[str, ReadOnlyBind], place: Path) -> None:
    """Add a place, if it exists and leads to nothing but programs."""
    real = Path(os.path.realpath(place))
    if not os.path.exists(real):  # noqa: PTH110  what another user closed to us is not there for commands either
        return
    if real != place and not _is_in_table(str(real)):
        if not str(real).startswith(SYSTEM):
            return
    elif real != place:
        found[str(real)] = ReadOnlyBind(str(real), _hidden_paths(real))
    found[str(place)] = ReadOnlyBind(str(place), _hidden_paths(place))


def _is_in_table(path: str) -> bool:
    """Return whether a path is, or is below, a place of the table in some home.

    Names without a dot are too common for that.
    """
    text = path.rstrip("/") + "/"
    return any(f"/{name}/" in text for name in TOOLCHAINS if name[0] == ".")


def _hidden_paths(place: Path) -> tuple[str, ...]:
    """Return what is hidden in a folder of programs, or in the environments that it holds."""
    if not os.path.isdir(place):  # noqa: PTH112  what is closed to us raises no error
        return ()
    hidden: list[str] = []
    for folder in (place, *_folders_in(place)[:MAX_ENVIRONMENTS]):
        hidden += (f"{folder}/{name}" for name in _secret_names(folder))
    return tuple(sorted(hidden))


def _folders_in(place: Path) -> list[Path]:
    try:
        return sorted(Path(entry.path) for entry in os.scandir(place) if entry.is_dir())
    except OSError:
        return []  # what we cannot list, commands cannot either


def _secret_names(folder: Path) -> list[str]:
    try:
        names = [child.name for child in folder.iterdir()]
    except OSError:
        return []
    return [
        name
        for name in names
        if name in HIDDEN or DEFAULT_NAMES.check(name, write=False) is not None
    ]


def _outermost(binds: Iterable[ReadOnlyBind]) -> tuple[ReadOnlyBind, ...]:
    """Return the binds that are not below another, sorted."""
    kept: list[ReadOnlyBind] = []
    for bind in sorted(binds, key=lambda one: one.path.split("/")):
        if not (kept and Path(bind.path).is_relative_to(kept[-1].path)):
            kept.append(bind)
    return tuple(kept)
