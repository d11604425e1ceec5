"""What the probes find on this machine, and on one that is made to offer less."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ferrule.permissions import provenance
from ferrule.sandbox.backends import kernel_probe
from ferrule.sandbox.backends.probes import Probes, bwrap_trial_arguments, probe
from ferrule.sandbox.backends.selection import MissingProtections, choose_backend
from ferrule.sandbox.policy import Protection, SandboxPolicy
from ferrule.sandbox.view.toolchains import find_toolchains

sys.path.insert(0, str(Path(__file__).parent))
from without import without_user_namespaces

PROBE = [sys.executable, "-I", "-S", kernel_probe.__file__]


@pytest.fixture(autouse=True)
def ferrule_lies_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machines of these tests have a `/work`, and so may the one that runs them."""
    monkeypatch.setattr(provenance, "_list_own_code", lambda: iter(()))
    monkeypatch.setattr(provenance, "_list_packages", tuple)


@pytest.mark.proves("sandbox.backend.probes")
def test_the_probe_leaves_nothing_behind_and_answers_the_same_twice() -> None:
    before = sorted(os.listdir("/tmp"))
    answers = [
        json.loads(subprocess.run(PROBE, capture_output=True, check=True, env={}).stdout)
        for _ in range(2)
    ]
    assert answers[0] == answers[1]
    assert [
        name
        for name in sorted(os.listdir("/tmp"))
        if name not in before and name in ("lower", "upper")
    ] == []
    assert not list(Path("/sys/fs/cgroup").glob("*/ferrule-probe-*"))


@pytest.mark.proves("sandbox.backend.probes")
def test_what_is_said_to_be_there_is_there() -> None:
    found = probe()
    assert found is probe() and found.platform == sys.platform
    if found.landlock_abi:
        library = ctypes.CDLL(None, use_errno=True)
        assert library.syscall(444, None, ctypes.c_size_t(0), 1) == found.landlock_abi
    if found.bwrap:
        ran = subprocess.run([found.bwrap, *bwrap_trial_arguments()], check=False)
        assert ran.returncode == 0
    if found.user_namespaces and found.namespaces:
        command = [
            "unshare",
            "--user",
            "--map-root-user",
            "--mount",
            "--net",
            "--pid",
            "--fork",
            "true",
        ]
        assert subprocess.run(command, check=False).returncode == 0


@pytest.mark.proves("sandbox.backend.probes")
def test_without_user_namespaces_the_probe_says_so_and_why() -> None:
    ran = without_user_namespaces(PROBE)
    found = json.loads(ran.stdout)
    assert "user_namespaces" not in found and "ENOSPC" in found["why"]["namespaces"]
    known = {name: value for name, value in found.items() if name in Probes.__dataclass_fields__}
    with pytest.raises(MissingProtections) as raised:
        choose_backend(
            SandboxPolicy(Path("/work"), require=frozenset({Protection.FILE_READS})),
            Probes(**known),
        )
    assert "max_user_namespaces" in raised.value.hint


# ---- toolchains


def test_only_the_folders_of_programs_are_bound_never_what_is_beside_them(tmp_path: Path) -> None:
    home = tmp_path / "home"
    for name in (
        ".cargo/bin",
        ".rustup/toolchains/stable",
        ".nvm/versions/node",
        ".ssh",
        ".local/bin",
        "miniconda3/bin",
    ):
        (home / name).mkdir(parents=True)
    for name in (
        ".cargo/credentials.toml",
        ".npmrc",
        "miniconda3/.condarc",
        ".local/bin/.env",
        ".local/bin/tool",
    ):
        (home / name).write_text("x")
    path = os.pathsep.join([str(home / ".ssh"), str(home / ".cargo/bin"), "relative", str(home)])
    binds = {
        os.path.relpath(bind.shown_at, home): bind.hidden
        for bind in find_toolchains(home, path=path, prefixes=(str(home / ".ssh"),))
    }
    assert binds == {
        ".cargo/bin": (),
        ".local/bin": (str(home / ".local/bin/.env"),),
        ".nvm/versions": (),
        ".rustup/toolchains": (),
        "miniconda3": (str(home / "miniconda3/.condarc"),),
    }


INSTALLED = (
    ".pyenv/versions/3.12.1/bin/python3",
    ".pyenv/shims/python3",
    ".pyenv/bin/pyenv",
    ".pyenv/libexec/pyenv-exec",
    ".pyenv/plugins/pyenv-virtualenv/bin/pyenv-sh-activate",
    ".pyenv/completions/pyenv.bash",
    ".pyenv/pyenv.d/exec/pip-rehash.bash",
    ".pyenv/version",
    ".local/share/uv/python/cpython-3.12.1-linux-x86_64-gnu/bin/python3",
    ".local/share/uv/tools/ruff/bin/ruff",
    ".local/share/pipx/venvs/black/bin/black",
    ".local/pipx/venvs/black/bin/black",
    ".local/bin/uv",
    ".local/lib/python3.12/site-packages/requests/__init__.py",
    ".local/share/mise/installs/node/22.1.0/bin/node",
    ".local/share/mise/shims/node",
    ".local/share/rtx/installs/node/20.0.0/bin/node",
    ".local/share/hatch/env/virtual/demo/bin/python",
    ".local/share/pypoetry/venv/bin/poetry",
    ".local/share/pdm/venvs/demo/bin/python",
    ".virtualenvs/demo/bin/python",
    ".conda/envs/demo/bin/python",
    "miniconda3/bin/conda",
    "anaconda3/bin/conda",
    "miniforge3/bin/mamba",
    "mambaforge/bin/mamba",
    "micromamba/envs/demo/bin/python",
    ".rye/py/cpython@3.12.1/bin/python3",
    ".rye/shims/rye",
    ".rye/self/bin/python",
    ".pixi/bin/pixi",
    ".pixi/envs/demo/bin/python",
    ".rustup/toolchains/stable-x86_64-unknown-linux-gnu/bin/rustc",
    ".rustup/settings.toml",
    ".cargo/bin/cargo",
    ".cargo/registry/src/index.crates.io-1/serde-1.0.0/src/lib.rs",
    ".cargo/git/checkouts/demo-1/1/src/lib.rs",
    ".cargo/env",
    "go/bin/gopls",
    "go/pkg/mod/golang.org/x/tools@v0.1.0/go.mod",
    "sdk/go1.22.0/bin/go",
    ".local/go/bin/go",
    ".ghcup/bin/ghc",
    ".ghcup/ghc/9.4.8/bin/ghc",
    ".cabal/bin/hlint",
    ".opam/default/bin/dune",
    ".nimble/bin/nim",
    ".zvm/bin/zig",
    ".elan/toolchains/stable/bin/lean",
    ".elan/bin/lake",
    ".nvm/versions/node/v22.1.0/bin/node",
    ".nvm/alias/default",
    ".nvm/nvm.sh",
    ".nvm/nvm-exec",
    ".volta/bin/node",
    ".volta/tools/image/node/22.1.0/bin/node",
    ".local/share/fnm/node-versions/v22.1.0/installation/bin/node",
    ".fnm/node-versions/v22.1.0/installation/bin/node",
    ".nodenv/versions/22.1.0/bin/node",
    ".nodenv/shims/node",
    ".nodenv/bin/nodenv",
    ".nodenv/libexec/nodenv-exec",
    ".bun/bin/bun",
    ".bun/install/global/node_modules/prettier/package.json",
    ".deno/bin/deno",
    ".local/share/pnpm/pnpm",
    ".npm-global/bin/tsc",
    ".npm-global/lib/node_modules/typescript/bin/tsc",
    ".npm-packages/bin/tsc",
    ".npm-packages/lib/node_modules/typescript/bin/tsc",
    ".yarn/bin/yarn",
    "n/versions/node/22.1.0/bin/node",
    ".rbenv/versions/3.3.0/bin/ruby",
    ".rbenv/shims/ruby",
    ".rbenv/bin/rbenv",
    ".rbenv/libexec/rbenv-exec",
    ".rbenv/plugins/ruby-build/bin/ruby-build",
    ".rbenv/version",
    ".rvm/rubies/ruby-3.3.0/bin/ruby",
    ".rvm/gems/ruby-3.3.0/bin/rails",
    ".rvm/bin/rvm",
    ".rvm/scripts/rvm",
    ".local/share/gem/ruby/3.3.0/bin/rails",
    ".composer/vendor/bin/phpunit",
    ".phpenv/versions/8.3.0/bin/php",
    ".plenv/versions/5.38.0/bin/perl",
    ".plenv/shims/perl",
    ".perl5/bin/cpanm",
    "perl5/bin/cpanm",
    ".kiex/elixirs/elixir-1.16.0/bin/elixir",
    ".sdkman/candidates/java/current/bin/java",
    ".sdkman/bin/sdkman-init.sh",
    ".jenv/versions/21/bin/java",
    ".jenv/shims/java",
    ".jenv/bin/jenv",
    ".jenv/libexec/jenv-exec",
    ".jbang/bin/jbang",
    ".local/share/coursier/bin/scala",
    ".local/share/coursier/jvm/temurin-21/bin/java",
    ".asdf/installs/nodejs/22.1.0/bin/node",
    ".asdf/shims/node",
    ".asdf/bin/asdf",
    ".asdf/lib/utils.bash",
    ".asdf/plugins/nodejs/bin/exec-env",
    ".asdf/asdf.sh",
    ".proto/bin/proto",
    ".proto/shims/node",
    ".proto/tools/node/22.1.0/bin/node",
    ".nix-profile/bin/hello",
    ".local/state/nix/profiles/profile/bin/hello",
    ".dotnet/dotnet",
    ".swiftly/bin/swift",
    ".local/share/swiftly/toolchains/5.10.0/usr/bin/swift",
    ".linuxbrew/bin/brew",
    ".local/share/flatpak/exports/bin/org.gimp.GIMP",
    "bin/mine",
)
"""Where installers put programs below a home, and what those read to start."""


def test_what_each_installer_put_below_a_home_can_be_run(tmp_path: Path) -> None:
    for name in INSTALLED:
        place = tmp_path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
    opened = [Path(bind.shown_at) for bind in find_toolchains(tmp_path)]
    closed = [
        name
        for name in INSTALLED
        if not any((tmp_path / name).is_relative_to(place) for place in opened)
    ]
    assert closed == []


def test_a_link_of_the_table_opens_nothing_but_programs(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".pyenv/versions").mkdir(parents=True)
    (home / ".local").mkdir()
    os.symlink(home / ".ssh", home / ".local/bin")
    os.symlink(home / ".pyenv/versions", home / "bin")
    assert {os.path.relpath(bind.shown_at, home) for bind in find_toolchains(home)} == {
        ".pyenv/versions",
        "bin",
    }


def test_where_a_link_of_the_table_leads_is_bound_too_in_another_home_as_well(
    tmp_path: Path,
) -> None:
    home, other = tmp_path / "home", tmp_path / "other/.pyenv/versions"
    (home / ".pyenv").mkdir(parents=True)
    other.mkdir(parents=True)
    os.symlink(other, home / ".pyenv/versions")
    assert {bind.shown_at for bind in find_toolchains(home)} == {
        str(home / ".pyenv/versions"),
        str(other),
    }


def test_the_running_interpreter_is_bound_also_from_another_home(tmp_path: Path) -> None:
    other = tmp_path / "other/.pyenv/versions/3.11"
    (other / "bin").mkdir(parents=True)
    (tmp_path / "home").mkdir()
    assert [
        bind.shown_at for bind in find_toolchains(tmp_path / "home", prefixes=(str(other),))
    ] == [str(other)]
