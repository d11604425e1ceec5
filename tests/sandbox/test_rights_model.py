"""A model of rights: what a command can really read and write is within what the rules say.

Each tree is a small machine drawn at random: a home with secrets and interpreters, a workspace with
planted links, environments and repositories, folders that the person opened, and variables that
name some of them. A probe inside the sandbox tries every file and folder by its own path and
through every link; the kernel's answers are compared with a model that knows nothing of views,
masks or mounts. `FERRULE_RIGHTS_TREES` sets how many trees are tried (`make lab NAME=rights`: 20,000).
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from ferrule.permissions.child_environment import filter_environment
from ferrule.permissions.protected_names import DEFAULT_NAMES
from ferrule.sandbox.backends.probes import probe
from ferrule.sandbox.backends.selection import SandboxBackend, available_backends
from ferrule.sandbox.command import Capture, Command
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.sandbox.sandbox import Sandbox

TREES = int(os.environ.get("FERRULE_RIGHTS_TREES", "60"))
FIRST_SEED = int(os.environ.get("FERRULE_RIGHTS_SEED", "0"))
PYTHON = "/usr/bin/python3"

SECRETS = (".ssh/id_ed25519", ".config/gh/hosts.yml", ".aws/credentials", ".netrc", "diary.txt")
ENVIRONMENTS = (
    ".venv",
    "venv",
    "env",
    ".conda",
    "tools/venv",
    "node_modules",
    ".pixi/envs/default",
)
PARTS = ("bin", "lib", "lib64", "share", "include", "etc")
PLAIN = ("x", "data", "docs/more", "lib", "bin", "build")
PROTECTED = (
    ".env",
    ".git/config",
    ".git/hooks/pre-commit",
    "deploy/key.pem",
    "sub/.env.local",
    "vendor/.git/config",
    "vendor/.git/hooks/post-commit",
    ".ferrule/settings.yaml",
)
WORDS = ("README.md", "src/a.py", "docs/guide.md", "vendor/a.c")

PROBE = r"""
import json, os, sys
paths = json.load(sys.stdin)
read = []
for number, path in enumerate(paths):
    try:
        if os.path.isdir(path):
            with open(os.path.join(path, f"planted-{number}"), "x") as file:
                file.write("planted")
            continue
    except OSError:
        continue
    try:
        with open(path, "rb") as file:
            read.append([number, file.read(200).decode("utf-8", "replace")])
    except OSError:
        pass
    try:
        with open(path, "ab") as file:
            file.write(b"planted")
    except OSError:
        pass
print(json.dumps(read))
"""


@dataclass
class Tree:
    """A machine drawn from a seed. `base` holds all of it."""

    base: Path
    seed: int
    readable: list[Path] = field(default_factory=list)
    writable: list[Path] = field(default_factory=list)
    installations: list[Path] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    links: list[Path] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.home = self.base / "home"
        self.root = self.home / "work/project"
        self.outside = self.base / "outside"

    def build(self) -> None:
        for name in SECRETS:
            self.write(self.home / name)
        for name in ("notes.txt", "private/a.txt", ".env", "deep/er/b.txt"):
            self.write(self.outside / name)
        self.write(self.home / "work/other/main.py")
        for name in (*WORDS, *self.random.sample(PROTECTED, 4)):
            self.write(self.root / name)
        self.make_interpreter(self.home / ".pyenv/versions/3.11.9")
        self.make_interpreter(self.outside / "python")
        self.open_folders()
        for name in self.random.sample(ENVIRONMENTS, self.random.randint(1, 3)):
            self.plant_environment(self.root / name)
        for _ in range(self.random.randint(1, 4)):
            self.plant_link(self.root / self.random.choice(PLAIN))
        self.plant_git_file()
        self.choose_variables()

    def write(self, place: Path, text: str = "") -> None:
        if place.exists() or place.is_symlink():
            return
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            # Through a link that was planted before, a stranger's file would land elsewhere.
            if place.parent.resolve() == place.parent:
                place.write_text(text or f"canary of {place}\n")
        except OSError:
            return

    def make_interpreter(self, prefix: Path) -> None:
        self.write(prefix / "bin/python3")
        (prefix / "bin/python3").chmod(0o755)
        self.write(prefix / "lib/python3.11/os.py")
        self.write(prefix / "lib/python3.11/site-packages/package.py")
        self.installations.append(prefix)

    def targets(self) -> list[str]:
        return [
            str(self.home),
            str(self.home / ".config"),
            str(self.home / ".config/gh"),
            str(self.home / ".ssh"),
            str(self.home / ".pyenv/versions/3.11.9/lib"),
            str(self.home / "work/other"),
            str(self.outside),
            str(self.outside / "private"),
            str(self.outside / "python/bin"),
            str(self.base),
            "..",
            "../..",
            "src",
            str(self.root / "src"),
            "loop",
        ]

    def plant_link(self, place: Path) -> None:
        if place.exists() or place.is_symlink():
            return
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.parent.resolve() != place.parent:
            return
        place.symlink_to(self.random.choice(self.targets()))
        self.links.append(place)

    def plant_environment(self, place: Path) -> None:
        place.mkdir(parents=True, exist_ok=True)
        home = self.random.choice([*self.targets(), str(self.outside / "python/bin"), "/usr/bin"])
        if self.random.random() < 0.8:
            self.write(place / "pyvenv.cfg", f"home = {home}\n")
        if self.random.random() < 0.3:
            (place / "conda-meta").mkdir(exist_ok=True)
        for part in self.random.sample(PARTS, self.random.randint(1, 4)):
            if self.random.random() < 0.6:
                self.plant_link(place / part)
            else:
                self.write(place / part / "python3")
                self.plant_link(place / part / self.random.choice(("python", "node", "inner")))

    def plant_git_file(self) -> None:
        """A `.git` file or `commondir` that names a repository which never heard of this folder."""
        kind = self.random.choice(("none", "file", "commondir", "module"))
        repository = self.home / "work/other/.git"
        for name in ("HEAD", "config", "hooks/post-commit", "objects/ab/cd", "refs/heads/main"):
            self.write(repository / name)
        if kind == "file" and not (self.root / ".git").exists():
            (self.root / ".git").write_text(f"gitdir: {repository}\n")
        elif kind == "commondir" and (self.root / ".git").is_dir():
            self.write(self.root / ".git/commondir", f"{repository}\n")
        elif kind == "module":
            self.write(self.root / "vendor/lib/.git", f"gitdir: {repository}\n")

    def open_folders(self) -> None:
        for place in (self.outside / "shared", self.outside / "library", self.home / "data"):
            for name in ("plain.txt", ".env", "sub/id_rsa", ".git/config", ".git/hooks/pre-push"):
                self.write(place / name)
            if self.random.random() < 0.4:
                self.plant_link(place / "out")
            if self.random.random() < 0.3:
                (place / "lib").mkdir(exist_ok=True)
                (place / "lib64").symlink_to("lib")
            choice = self.random.random()
            if choice < 0.35:
                self.readable.append(place)
            elif choice < 0.7:
                self.writable.append(place)

    def choose_variables(self) -> None:
        folders = [
            *(self.root / name / "bin" for name in self.random.sample(ENVIRONMENTS, 2)),
            self.root,
            self.outside / "python/bin",
            self.home / ".pyenv/versions/3.11.9/bin",
            Path("."),
        ]
        chosen = self.random.sample(folders, self.random.randint(0, 4))
        self.variables["PATH"] = ":".join([*map(str, chosen), "/usr/local/bin:/usr/bin:/bin"])
        if self.random.random() < 0.5:
            name = self.random.choice(("VIRTUAL_ENV", "CONDA_PREFIX", "JAVA_HOME", "GOROOT"))
            self.variables[name] = str(self.root / self.random.choice(ENVIRONMENTS))

    # ---- the model

    def may_read(self, place: Path) -> bool:
        """Whether the rules let a command read a file, by its real path."""
        return (
            self.is_within(place, self.installations)
            or self.is_free(place, [self.root, *self.readable, *self.writable])
            or self.is_hook(place)
        )

    def may_write(self, place: Path) -> bool:
        return self.is_free(place, [self.root, *self.writable])

    def is_hook(self, place: Path) -> bool:
        """Whether git may run a file as a hook: where it can write the repository, alone."""
        folder = self.find_opened(place, [self.root, *self.writable])
        if folder is None:
            return False
        above, found, inside = f"/{place.relative_to(folder)}".partition("/.git/hooks/")
        names = (above.strip("/") or "plain", inside)
        return bool(found) and not any(DEFAULT_NAMES.check(name, write=False) for name in names)

    def is_free(self, place: Path, opened: list[Path]) -> bool:
        """Whether a file lies in an opened folder under no name that is off limits."""
        folder = self.find_opened(place, opened)
        if folder is None:
            return False
        return DEFAULT_NAMES.check(str(place.relative_to(folder)), write=False) is None

    @staticmethod
    def find_opened(place: Path, folders: list[Path]) -> Path | None:
        return next((folder for folder in folders if place.is_relative_to(folder)), None)

    @staticmethod
    def is_within(place: Path, folders: list[Path]) -> bool:
        return any(place.is_relative_to(folder) for folder in folders)

    # ---- what is tried

    def list_paths(self) -> list[str]:
        """Every file and folder by its own path, and what is seen through every link."""
        found: dict[str, None] = {}
        for folder, folders, files in os.walk(self.base):
            for name in (*folders, *files):
                found[os.path.join(folder, name)] = None
        for link in self.links:
            found[str(link)] = None
            for tail in ("hosts.yml", "gh/hosts.yml", "a.txt", "notes.txt", ".ssh/id_ed25519"):
                found[f"{link}/{tail}"] = None
        return list(found)


@pytest.fixture(scope="module")
def backends() -> list[SandboxBackend]:
    policy = replace(SandboxPolicy(Path("/")), require=frozenset())
    found = [one for one in available_backends(policy, probe()) if one.name != "none"]
    if not found or not Path(PYTHON).exists():
        pytest.skip(f"this machine confines no commands: {dict(probe().why)}")
    return found


@pytest.fixture
def base() -> Iterator[Path]:
    # Not below /tmp: commands have a folder of their own there.
    made = Path(tempfile.mkdtemp(prefix="ferrule-rights-", dir=Path.home())).resolve()
    yield made
    shutil.rmtree(made)


async def try_everything(tree: Tree, backend: SandboxBackend, paths: list[str]) -> dict[str, str]:
    """What the probe read, by path."""
    policy = SandboxPolicy(
        tree.root,
        readable=tuple(map(str, tree.readable)),
        writable=tuple(map(str, tree.writable)),
        require=frozenset(),
    )
    kept = Capture(1 << 20, 1 << 20)
    errors = Capture(1 << 16, 1 << 16)
    environment = filter_environment(
        {"HOME": str(tree.home), **tree.variables}, add=tuple(tree.variables)
    ).values
    sandbox = Sandbox(policy, backend=backend)
    directory = os.open(tree.root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        ended = await sandbox.run(
            Command(
                (PYTHON, "-I", "-S", "-c", PROBE),
                program=PYTHON,
                directory=directory,
                environment=environment,
                output=kept,
                errors=errors,
                stdin=json.dumps(paths).encode(),
                timeout=120,
            )
        )
    finally:
        os.close(directory)
        await sandbox.close()
    assert ended.exit_code == 0, errors.text()
    return {paths[number]: text for number, text in json.loads(kept.text())}


def find_changes(base: Path) -> Iterator[Path]:
    """Files that the probe made or added to, by their real paths."""
    for folder, _, files in os.walk(base):
        for name in files:
            place = Path(folder, name)
            if place.is_symlink():
                continue
            if name.startswith("planted-"):
                yield place.parent / "new"
            elif "planted" in place.read_text(errors="replace"):
                yield place


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + TREES))
def test_what_a_command_reaches_is_within_the_rules(
    base: Path, backends: list[SandboxBackend], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = Tree(base, seed)
    tree.build()
    monkeypatch.setenv("HOME", str(tree.home))
    backend = backends[seed % len(backends)]
    read = asyncio.run(try_everything(tree, backend, tree.list_paths()))
    seen = [path for path, text in read.items() if "canary" in text]
    too_much = [path for path in seen if not tree.may_read(Path(os.path.realpath(path)))]
    written = [str(place) for place in find_changes(base) if not tree.may_write(place)]
    assert (backend.name, too_much, written) == (backend.name, [], [])
    assert str(tree.root / "README.md") in read, "the probe reads what it may"
