"""Which folders of a home contain programs: what commands see of it, read-only, and nothing else.

    binds = find_toolchains(Path.home(), writable, os.environ["PATH"], (sys.prefix,))

Compilers, interpreters and package managers install into the home. Each manager keeps them in
folders of its own, beside its configuration and credentials; the table names the first and leaves
out the second. A folder of PATH, or where the running interpreter is, is added only if it is below
a folder of the table: `PATH=~/bin:~/.ssh` opens nothing. Nor does what commands can write, or a
link that they could have made.

Not protected: a secret that somebody put into a folder of programs under a name that `HIDDEN` does
not know.
"""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from ferrule.core.value_class import frozen
from ferrule.permissions.protected_names import DEFAULT_NAMES
from ferrule.permissions.provenance import (
    NOTHING_WRITABLE,
    CommandWritable,
    Origin,
    TrustedOrigin,
    TrustedPath,
    UntrustedPath,
    trust_path,
)

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
    ".local/share/hatch/pythons",
    ".local/share/pypoetry/venv",
    ".local/share/pypoetry/python",
    ".local/share/pdm/venvs",
    ".local/share/pdm/python",
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
    """A file or folder of the machine that commands see, read-only.

    `path` is where it really is, `place` where they see it: there too (the default), or where a
    link of the machine leads to it. `hidden` are paths in `place` that they do not see.
    """

    path: TrustedPath
    place: str = ""
    hidden: tuple[str, ...] = ()

    @property
    def shown_at(self) -> str:
        """The path at which commands see it."""
        return self.place or self.path

    @property
    def is_alias(self) -> bool:
        """Whether it is shown where a link leads to it."""
        return self.shown_at != self.path


def find_toolchains(
    home: Path,
    writable: CommandWritable = NOTHING_WRITABLE,
    path: str = "",
    prefixes: Iterable[str] = (),
    environments: Iterable[ReadOnlyBind] = (),
) -> tuple[ReadOnlyBind, ...]:
    """Return what exists of the table below `home`, and where links in it lead.

    The targets of links are included if they are in the table too. Looks, and changes nothing.

    Args:
        home: The person's home folder.
        writable: What commands can write: nothing there is included.
        path: A PATH. Of its folders those are added, without others beside them, that are below the
            table in whatever home (the interpreter that runs Ferrule may be another user's).
        prefixes: Where interpreters are; treated like the folders of `path`.
        environments: Further places, added as they are (`environments.find_environments`).
    """
    found: dict[str, ReadOnlyBind] = {}
    for place, reason in _list_places(home, path, prefixes):
        for bind in _make_binds(place, writable, reason):
            found.setdefault(bind.shown_at, bind)
    found |= {bind.shown_at: bind for bind in environments}
    return _outermost(found.values())


PROGRAMS_FOLDER = ".programs"
"""Folder of the home in which commands see the programs that come with Ferrule."""
SHIPPED_PROGRAMS = ("rg",)


def find_shipped_programs(
    home: str, writable: CommandWritable = NOTHING_WRITABLE
) -> Iterator[ReadOnlyBind]:
    """Yield the programs that come with Ferrule and are of use to commands, in their own folder.

    The folder they are in has others beside them, which must not take the place of the machine's.
    """
    if home in ("", "/"):
        return
    for name in SHIPPED_PROGRAMS:
        file = Path(sysconfig.get_path("scripts"), name)
        if not file.is_file():
            continue
        with suppress(UntrustedPath):
            real = trust_path(file, Origin.MACHINE, writable, reason="comes with Ferrule")
            yield ReadOnlyBind(real, f"{home}/{PROGRAMS_FOLDER}/{name}")


def add_shipped_programs(values: Mapping[str, str], home: str) -> dict[str, str]:
    """Return an environment whose PATH ends with the folder of `find_shipped_programs`."""
    path = values.get("PATH", os.defpath)
    return {**values, "PATH": f"{path}:{home}/{PROGRAMS_FOLDER}"}


def find_inside(
    home: Path, writable: CommandWritable, path: str = "", prefixes: Iterable[str] = ()
) -> tuple[str, ...]:
    """Return the toolchains that lie in what commands can write.

    Commands see them there anyway. They are to find them read-only, as everywhere.
    """
    found = (place for place, _ in _list_places(home, path, prefixes))
    real = {place for place in found if os.path.realpath(place) == place}
    return tuple(
        sorted(
            place
            for place in real
            if writable.find_replaceable(place) is not None and os.path.lexists(place)
        )
    )


def make_bind(
    place: str, writable: CommandWritable, origin: TrustedOrigin, reason: str
) -> ReadOnlyBind | None:
    """Return what shows a place; None if commands can write it, or it cannot be resolved."""
    try:
        real = trust_path(place, origin, writable, reason=reason)
    except UntrustedPath:
        return None
    seen_at = real if ".." in place.split("/") else place
    return ReadOnlyBind(real, seen_at, _hidden_paths(Path(seen_at)))


def _list_places(home: Path, path: str, prefixes: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the places that may be shown, and why."""
    for home_path in dict.fromkeys((home, Path(os.path.realpath(home)))):
        if home_path.is_absolute() and len(home_path.parts) > 1:
            yield from ((str(home_path / name), f"programs in `~/{name}`") for name in TOOLCHAINS)
    named = (*((entry, "named by PATH") for entry in path.split(os.pathsep)),)
    for entry, reason in (*named, *((one, "the interpreter in use") for one in prefixes)):
        if entry.startswith("/"):
            for folder in dict.fromkeys((entry.rstrip("/"), os.path.realpath(entry))):
                if _is_in_table(folder):
                    yield folder, reason


def _make_binds(place: str, writable: CommandWritable, reason: str) -> Iterator[ReadOnlyBind]:
    """Yield what shows a place, if it exists and leads to nothing but programs."""
    real = os.path.realpath(place)
    if not os.path.exists(real):  # noqa: PTH110  what another user closed to us is not there for commands either
        return
    in_table = real == place or _is_in_table(real)
    if not in_table and not real.startswith(SYSTEM):
        return
    shown = make_bind(place, writable, Origin.MACHINE, reason)
    if shown is None:
        return
    yield shown
    if shown.is_alias and in_table:
        yield ReadOnlyBind(shown.path, hidden=_hidden_paths(Path(real)))


def _is_in_table(path: str) -> bool:
    """Return whether a path is, or is below, a place of the table in some home.

    Names without a dot are too common for that.
    """
    text = path.rstrip("/") + "/"
    return any(f"/{name}/" in text for name in TOOLCHAINS if name[0] == ".")


def _hidden_paths(place: Path) -> tuple[str, ...]:
    """Return what is hidden in a folder of programs, or in the environments that it holds.

    Links in it are not followed: what they lead to is shown elsewhere, or not at all.
    """
    if not os.path.isdir(place):  # noqa: PTH112  what is closed to us raises no error
        return ()
    hidden: list[str] = []
    for folder in (place, *_folders_in(place)[:MAX_ENVIRONMENTS]):
        hidden += (f"{folder}/{name}" for name in _secret_names(folder))
    return tuple(sorted(hidden))


def _folders_in(place: Path) -> list[Path]:
    try:
        return sorted(
            Path(entry.path) for entry in os.scandir(place) if entry.is_dir(follow_symlinks=False)
        )
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
    for bind in sorted(binds, key=lambda one: one.shown_at.split("/")):
        if not (kept and Path(bind.shown_at).is_relative_to(kept[-1].shown_at)):
            kept.append(bind)
    return tuple(kept)
