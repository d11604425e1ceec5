"""The linters and type checkers of a project: how to see that it uses one, and how to run it.

They run as commands of hooks do (`commands.HookCommandRunner`), with the rights of commands alone,
since they are the project's own programs and load its code: confined, without a network, with a
home of their own for their caches. Before the first change of a file it is checked as it is, so
that what was wrong before is never reported; a later edit is compared with the check before it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ferrule.core.errors import FerruleError, ToolFailed
from ferrule.core.value_class import frozen
from ferrule.engine.hooks.events import Occasion
from ferrule.engine.threads import run_blocking
from ferrule.extensions.hooks.commands import CacheFolder, HookCommandRunner
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.permissions.provenance import find_any_program
from ferrule.sandbox.command import Capture
from ferrule.sandbox.deputies import DeputyRights

from .compile_flags import DATABASES, FLAGS_FILE, SIZE_LIMIT, find_flags
from .findings import CheckFailed, Diagnostic, Findings, make_diagnostic

COLD = 3
"""How much longer a checker may take the first time in a session, when its caches are empty."""
_CACHES = {"MYPY_CACHE_DIR": CacheFolder("mypy"), "CARGO_TARGET_DIR": CacheFolder("cargo")}
"""Variables that keep the checkers' caches out of the workspace."""
_MAX_OUTPUT = 1 << 20
_CONFIGURATION_LIMIT = 1 << 20

_WITH_COLUMN = re.compile(
    r"\s*(?P<path>[^\s:][^:\n]*?):(?P<line>\d+)(?::\d+)?(?::| -) ?(?P<text>.+)"
)
_TYPESCRIPT = re.compile(r"(?P<path>[^\s(][^(\n]*)\((?P<line>\d+),\d+\): (?P<text>.+)")


@frozen
class Checker:
    """A linter or type checker, and how to see that a project uses it.

    Attributes:
        name: The program.
        endings: Of the files that it checks.
        argv: Its arguments, which the files follow.
        files: Names of configuration files whose presence is enough.
        sections: Files, and a text in them that shows the checker's own section.
        pattern: What a diagnostic looks like.
        whole: It checks the project; files are not named.
    """

    name: str
    endings: tuple[str, ...]
    argv: tuple[str, ...]
    files: tuple[str, ...] = ()
    sections: tuple[tuple[str, str], ...] = ()
    pattern: re.Pattern[str] = _WITH_COLUMN
    whole: bool = False


_PYTHON = (".py", ".pyi")
_SCRIPT = (".js", ".jsx", ".mjs", ".cjs", ".ts", ".tsx", ".mts", ".cts", ".vue")

CHECKERS: tuple[Checker, ...] = (
    Checker(
        "ruff",
        _PYTHON,
        ("ruff", "check", "--output-format=concise", "--no-cache", "--force-exclude", "--quiet"),
        files=("ruff.toml", ".ruff.toml"),
        sections=(("pyproject.toml", "[tool.ruff"),),
    ),
    Checker(
        "mypy",
        _PYTHON,
        ("mypy", "--no-error-summary", "--hide-error-context", "--no-color-output", "--no-pretty"),
        files=("mypy.ini", ".mypy.ini"),
        sections=(("pyproject.toml", "[tool.mypy"), ("setup.cfg", "[mypy")),
    ),
    Checker(
        "pyright",
        _PYTHON,
        ("pyright",),
        files=("pyrightconfig.json",),
        sections=(("pyproject.toml", "[tool.pyright"),),
    ),
    Checker(
        "tsc",
        (".ts", ".tsx", ".mts", ".cts"),
        ("tsc", "--noEmit", "--pretty", "false"),
        files=("tsconfig.json",),
        pattern=_TYPESCRIPT,
        whole=True,
    ),
    Checker(
        "eslint",
        _SCRIPT,
        ("eslint", "--format", "stylish", "--no-color"),
        files=(
            "eslint.config.js",
            "eslint.config.mjs",
            "eslint.config.cjs",
            "eslint.config.ts",
            ".eslintrc.json",
            ".eslintrc.js",
            ".eslintrc.cjs",
            ".eslintrc.yml",
        ),
    ),
    Checker("go", (".go",), ("go", "vet", "./..."), files=("go.mod",), whole=True),
    Checker(
        "cargo",
        (".rs",),
        ("cargo", "check", "--quiet", "--offline", "--message-format", "short"),
        files=("Cargo.toml",),
        whole=True,
    ),
    Checker(
        "gcc",
        (".c", ".cc", ".cpp", ".cxx"),
        ("gcc", "-fsyntax-only", "-fdiagnostics-color=never"),
        files=(FLAGS_FILE, *DATABASES),
    ),
)
NAMES = tuple(checker.name for checker in CHECKERS)


@dataclass(slots=True)
class ProjectChecker:
    """A checker in a workspace: a `Source`. `seconds` are for one run of it."""

    checker: Checker
    workspace: Workspace
    commands: HookCommandRunner
    seconds: float
    name: str = field(init=False)
    known: dict[str, Findings] = field(default_factory=dict[str, "Findings"])
    left_out: bool = False
    sees_changes: bool = False
    _has_run: bool = False

    def __post_init__(self) -> None:
        self.name = self.checker.name

    async def find_targets(self, names: Sequence[str]) -> Sequence[str]:
        chosen = tuple(name for name in names if name.endswith(self.checker.endings))
        if not chosen or not await run_blocking(self._is_configured):
            return ()
        return ("",) if self.checker.whole else chosen

    def _is_configured(self) -> bool:
        return any(self._read(name) is not None for name in self.checker.files) or any(
            text in (self._read(name) or "") for name, text in self.checker.sections
        )

    def _read(self, name: str) -> str | None:
        limit = SIZE_LIMIT if name in DATABASES else _CONFIGURATION_LIMIT
        try:
            return self.workspace.read_text(name, limit=limit)
        except ToolFailed:
            return None

    def _exists(self, name: str) -> bool:
        try:
            return self.workspace.stat(name).kind == "file"
        except ToolFailed:
            return False

    async def check(self, target: str, occasion: Occasion) -> Findings:
        argv = await run_blocking(lambda: self._make_arguments(target))
        self.known[target] = () if argv is None else await self._run(argv, occasion)
        return self.known[target]

    async def close(self) -> None:
        """Nothing runs on."""

    def _make_arguments(self, target: str) -> tuple[str, ...] | None:
        """Return the command that checks a target; None if there is nothing to check."""
        if target and not self._exists(target):
            return None
        flags: list[str] | None = []
        if self.name == "gcc":
            flags = find_flags(target, self.workspace.root, self._read)
            if flags is None:
                return None
        files = (f"./{target}",) if target else ()
        return (self._find_program(), *self.checker.argv[1:], *flags, *files)

    def _find_program(self) -> str:
        if self.name == "gcc" and find_any_program("gcc", _search_path()) is None:
            return "clang"  # The same flags, and diagnostics of the same form.
        return find_project_program(self.workspace.root, self.name)

    async def _run(self, argv: Sequence[str], occasion: Occasion) -> Findings:
        output = Capture(_MAX_OUTPUT, 0)
        seconds = self.seconds if self._has_run else self.seconds * COLD
        self._has_run = True
        try:
            ended = await self.commands.run(
                argv,
                occasion,
                b"",
                output,
                output,
                seconds,
                variables=_CACHES,
                rights=DeputyRights.COMMANDS,
            )
        except (ToolFailed, FerruleError) as error:
            raise CheckFailed(str(error)) from error
        if ended.timed_out:
            raise CheckFailed(f"it took longer than {seconds:g} s")
        found = read_output(self.checker, output.text(), str(self.workspace.root))
        if not found and ended.exit_code not in (0, None):
            last = output.text().strip().splitlines()[-1:] or ["it said nothing"]
            raise CheckFailed(f"status {ended.exit_code}: {last[0][:200]}")
        return found


def find_project_program(root: Path, name: str) -> str:
    """Return the project's own program if it has one, else the name, for the search path."""
    for folder in (".venv/bin", "node_modules/.bin"):
        place = root / folder / name
        if "/" not in name and place.exists():
            return str(place)
    return name


def _search_path() -> str:
    return os.environ.get("PATH", os.defpath)


def read_output(checker: Checker, output: str, root: str) -> Findings:
    """Return the diagnostics in what a checker wrote."""
    found: list[Diagnostic] = []
    file = ""
    for line in output.splitlines():
        if checker.name == "eslint":
            # A line with the file, then indented lines with place, severity, text and rule.
            if row := re.match(r"\s+(\d+):\d+\s+(.+)", line):
                found.append(_make(file, row[1], row[2], root))
            elif line and not line.startswith(" "):
                file = line
            continue
        if row := checker.pattern.fullmatch(line.removeprefix("vet: ")):
            found.append(_make(row["path"], row["line"], row["text"], root))
    return tuple(found)


def _make(path: str, line: str, text: str, root: str) -> Diagnostic:
    name = path.strip().removeprefix(f"{root}/").removeprefix("./")
    return make_diagnostic(name, int(line), text)
