"""A hook that checks files after a tool changed them, and adds what is new to the result.

    after an edit of a.py  ->  the project's own checkers on it  ->  what they did not say before

Which checkers a project has is found in its configuration (`CHECKERS`). They run as commands of
hooks do (`commands.HookCommandRunner`): confined, without a network, with a home of their own for
their caches. Before the first change of a file it is checked as it is, so that what was wrong
before is never reported; a later edit is compared with the check before it. A checker that is
missing, fails or takes too long says so once and is left out for the rest of the session.

Off unless a person's settings name checkers: a checker may run code of the repository (plug-ins,
build scripts), which the sandbox confines and nobody approves call by call.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ferrule.core.errors import ConfigError, FerruleError, ToolFailed
from ferrule.core.invisible_characters import escape_for_approval
from ferrule.core.value_class import frozen
from ferrule.engine.hooks.events import Action, EventHook, Occasion, ToolPost, ToolPre, allow
from ferrule.engine.threads import run_blocking
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.sandbox.command import Capture

from .commands import HookCommandRunner

MAX_SHOWN = 20
"""New diagnostics that a result gets; the others are counted."""
MAX_TEXT = 300
_MAX_OUTPUT = 1 << 20
_MAX_CALLS = 100
_CONFIGURATION_LIMIT = 1 << 20
_COLD = 3
"""How much longer a checker may take the first time in a session, when its caches are empty."""
_PRIORITY = 200
"""After other hooks: they may still block the call."""

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
        ("gcc", "-fsyntax-only", "-fdiagnostics-color=never", "@compile_flags.txt"),
        files=("compile_flags.txt",),
    ),
)
NAMES = tuple(checker.name for checker in CHECKERS)


@frozen
class Diagnostic:
    """What a checker says about a line."""

    path: str
    line: int
    text: str


Findings = tuple[Diagnostic, ...]
"""All that a checker said."""


def diagnose_changes(
    checkers: Iterable[str],
    *,
    workspace: Workspace,
    commands: HookCommandRunner,
    seconds: float = 20.0,
) -> EventHook:
    """Return the hook.

    Args:
        checkers: Names of `CHECKERS`, or `auto` for all that the project has configured.
        workspace: Where changed files and configurations are read.
        commands: What runs the checkers.
        seconds: Time for one run of one checker; the first in a session may take three times that.

    Raises:
        ConfigError: There is no such checker.
    """
    chosen = tuple(checkers)
    for name in chosen:
        if name not in (*NAMES, "auto"):
            raise ConfigError(
                f"there is no checker `{name}`", hint=f"choose from: auto, {', '.join(NAMES)}"
            )
    run = _Diagnostics(chosen, workspace, commands, seconds)
    return EventHook(
        name="diagnostics",
        events=("tool.pre", "tool.post"),
        run=run.handle,
        priority=_PRIORITY,
        timeout=_COLD * len(CHECKERS) * seconds + 10,
        on_error="allow",
        source="shipped",
    )


@dataclass(slots=True)
class _Diagnostics:
    chosen: tuple[str, ...]
    workspace: Workspace
    commands: HookCommandRunner
    seconds: float
    known: dict[tuple[str, str], Findings] = field(
        default_factory=dict[tuple[str, str], "Findings"]
    )
    """What each checker said last, by checker and file (empty: the project)."""
    changing: dict[str, tuple[str, ...]] = field(default_factory=dict[str, "tuple[str, ...]"])
    """Files that running calls change, by call."""
    left_out: set[str] = field(default_factory=set[str])
    started: set[str] = field(default_factory=set[str])
    """Checkers that have run in this session."""

    async def handle(self, occasion: Occasion) -> Action | None:
        """Check before and after a call that writes files it names."""
        payload = occasion.payload
        if isinstance(payload, ToolPre):
            return await self._before(payload, occasion)
        if isinstance(payload, ToolPost):
            return await self._after(payload, occasion)
        return None

    async def _before(self, call: ToolPre, occasion: Occasion) -> Action | None:
        names = self._find_names(call.writes)
        if not names or call.side_effect != "write":
            return None
        while len(self.changing) >= _MAX_CALLS:
            del self.changing[next(iter(self.changing))]
        self.changing[call.id] = names
        notes: list[str] = []
        for checker in await self._find_checkers(names):
            for target in _targets(checker, names):
                if (checker.name, target) not in self.known:
                    await self._check(checker, target, occasion, notes)
        return allow(message="; ".join(notes)) if notes else None

    async def _after(self, result: ToolPost, occasion: Occasion) -> Action | None:
        names = self.changing.pop(result.id, ())
        if not names or not result.success:
            return None
        notes: list[str] = []
        new: list[str] = []
        for checker in await self._find_checkers(names):
            for target in _targets(checker, names):
                before = self.known.get((checker.name, target), ())
                found = await self._check(checker, target, occasion, notes)
                new += _list_new(checker, before, found or ())
        if not new and not notes:
            return None
        return allow(context=_format(new), message="; ".join(notes))

    def _find_names(self, paths: Sequence[str]) -> tuple[str, ...]:
        names: list[str] = []
        for path in paths:
            try:
                names.append(self.workspace.check_name(path, write=False))
            except ToolFailed:
                continue  # The call itself is refused for it.
        return tuple(dict.fromkeys(names))

    async def _find_checkers(self, names: Sequence[str]) -> list[Checker]:
        checkers = [
            checker
            for checker in CHECKERS
            if checker.name not in self.left_out
            and ("auto" in self.chosen or checker.name in self.chosen)
            and any(name.endswith(checker.endings) for name in names)
        ]
        return [one for one in checkers if await run_blocking(lambda one=one: self._uses(one))]

    def _uses(self, checker: Checker) -> bool:
        """Whether the project has configured a checker."""
        return any(self._contains(name, "") for name in checker.files) or any(
            self._contains(name, text) for name, text in checker.sections
        )

    def _contains(self, name: str, text: str) -> bool:
        try:
            return text in self.workspace.read_text(name, limit=_CONFIGURATION_LIMIT)
        except ToolFailed:
            return False

    def _exists(self, name: str) -> bool:
        try:
            return self.workspace.stat(name).kind == "file"
        except ToolFailed:
            return False

    async def _check(
        self, checker: Checker, target: str, occasion: Occasion, notes: list[str]
    ) -> Findings | None:
        """Run a checker on a file (or the project), and remember what it says."""
        if checker.name in self.left_out:
            return None
        if target and not self._exists(target):
            self.known[checker.name, target] = ()
            return ()
        output = Capture(_MAX_OUTPUT, 0)
        argv = (_find_program(self.workspace.root, checker), *checker.argv[1:])
        if target:
            argv = (*argv, f"./{target}")
        seconds = self.seconds if checker.name in self.started else self.seconds * _COLD
        self.started.add(checker.name)
        try:
            ended = await self.commands.run(
                argv, occasion, b"", output, output, seconds, _make_caches()
            )
        except (ToolFailed, FerruleError) as error:
            self._leave_out(checker, str(error), notes)
            return None
        if ended.timed_out:
            self._leave_out(checker, f"it took longer than {seconds:g} s", notes)
            return None
        found = _read_output(checker, output.text(), self.workspace.root)
        if not found and ended.exit_code not in (0, None):
            last = output.text().strip().splitlines()[-1:] or ["it said nothing"]
            self._leave_out(checker, f"status {ended.exit_code}: {last[0][:200]}", notes)
            return None
        self.known[checker.name, target] = found
        return found

    def _leave_out(self, checker: Checker, why: str, notes: list[str]) -> None:
        self.left_out.add(checker.name)
        notes.append(f"`{checker.name}` is left out of diagnostics from now on: {why}")


def _targets(checker: Checker, names: Sequence[str]) -> tuple[str, ...]:
    if checker.whole:
        return ("",)
    return tuple(name for name in names if name.endswith(checker.endings))


def _find_program(root: Path, checker: Checker) -> str:
    """Return the project's own program if it has one, else the name, for the search path."""
    for folder in (".venv/bin", "node_modules/.bin"):
        place = root / folder / checker.name
        if place.exists():
            return str(place)
    return checker.name


def _make_caches() -> dict[str, str]:
    """Return variables that keep the checkers' caches out of the workspace."""
    return {"MYPY_CACHE_DIR": "/tmp/mypy", "CARGO_TARGET_DIR": "/tmp/cargo"}


def _read_output(checker: Checker, output: str, root: Path) -> Findings:
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


def _make(path: str, line: str, text: str, root: Path) -> Diagnostic:
    name = path.strip().removeprefix(f"{root}/").removeprefix("./")
    return Diagnostic(name, int(line), " ".join(text.split())[:MAX_TEXT])


def _list_new(checker: Checker, before: Findings, now: Findings) -> list[str]:
    """Return what was not said before. Lines have moved, so only files and texts are compared."""
    key: Callable[[Diagnostic], tuple[str, str]] = lambda one: (one.path, one.text)  # noqa: E731  used twice, here only
    known = Counter(map(key, before))
    new: list[str] = []
    for one in now:
        if known[key(one)]:
            known[key(one)] -= 1
            continue
        new.append(f"{one.path}:{one.line}: {checker.name}: {one.text}")
    return new


def _format(new: Sequence[str]) -> str:
    if not new:
        return ""
    rows = [escape_for_approval(row) for row in new[:MAX_SHOWN]]
    if len(new) > MAX_SHOWN:
        rows.append(f"and {len(new) - MAX_SHOWN} more")
    return "\n".join(["new since this change:", *rows])
