"""Published hooks for Claude Code, run as their own READMEs set them up: `make lab NAME=foreign ARGS=hooks`.

Each package is installed into an environment of its own, its settings are put where its README puts
them, and calls are made that it is known to let pass or to refuse. Nothing of it is edited.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from ferrule.runtime.assemble import assemble
from ferrule.storage.trust import TrustStore

from .table import write_table

PLACES = {"pip": "tools/hooks", "npm": ".npm-global"}
"""Where a person has the programs of a registry, below their home."""
PASSES = ""
"""What a call is expected to come to; otherwise words of the refusal."""


@dataclass(frozen=True, slots=True)
class HookPackage:
    """A package with hooks, how its README sets it up, and calls with what each must come to.

    Attributes:
        source: `pip` or `npm`.
        requirement: The package with its version.
        settings: What its README puts into `~/.claude/settings.json`.
        setup: The command of its README that writes settings into the repository instead.
        files: Files that its README has people write.
        calls: Tool, arguments, and the expected outcome.
    """

    source: str
    requirement: str
    calls: tuple[tuple[str, dict[str, Any], str], ...]
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    setup: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict[str, str])


def _group(matcher: str, *commands: str) -> dict[str, Any]:
    return {"matcher": matcher, "hooks": [{"type": "command", "command": one} for one in commands]}


_RUN = "run_command"
_GUARD = """#!/usr/bin/env python3
from cchooks import create_context, PreToolUseContext, PostToolUseContext

c = create_context()
if isinstance(c, PostToolUseContext):
    assert c.tool_response
    c.output.challenge("formatted") if c.tool_name == "Write" else c.output.accept()
elif c.tool_name == "Write" and c.tool_input.get("file_path", "").endswith("/locked.txt"):
    c.output.exit_deny("Nope! that file is protected")
elif c.tool_name == "Bash" and "rm -rf" in c.tool_input.get("command", ""):
    c.output.deny(reason="System protection: rm -rf blocked")
else:
    c.output.exit_success()
"""

PACKAGES = (
    HookPackage(
        "pip",
        "cchooks==0.1.5",
        settings={
            "hooks": {
                "PreToolUse": [_group("Write|Bash", '"$HOME/.claude/hooks/guard.py"')],
                "PostToolUse": [_group("", '"$HOME/.claude/hooks/guard.py"')],
                "Notification": [_group("", "notify-send x")],
            }
        },
        files={"~/.claude/hooks/guard.py": _GUARD},
        calls=(
            ("write_file", {"path": "a.txt", "content": "x"}, PASSES),
            ("write_file", {"path": "locked.txt", "content": "x"}, "Nope!"),
            ("delete_path", {"path": "locked.txt"}, "Nope!"),
            (_RUN, {"command": ["rm", "-rf", "a.txt"]}, "System protection"),
            ("read_file", {"path": "note.txt"}, PASSES),
        ),
    ),
    HookPackage(
        "pip",
        "claude-safety-guard==0.2.0",
        settings={"hooks": {"PreToolUse": [_group("Bash", "claude-safety-guard hook")]}},
        calls=(
            (_RUN, {"command": ["echo", "hello"]}, PASSES),
            (_RUN, {"command": "git push --force origin main"}, "["),
            (_RUN, {"command": ["git", "push", "--force", "origin", "main"]}, "["),
        ),
    ),
    HookPackage(
        "pip",
        "cervellaswarm-agent-hooks==0.1.0",
        settings={
            "hooks": {
                "PreToolUse": [_group("Bash", "cervella-bash-validator")],
                "Stop": [_group("", "cervella-git-reminder")],
                "SessionEnd": [_group("", "cervella-file-limits", "cervella-session-checkpoint")],
                "SubagentStart": [_group("", "cervella-context-inject")],
            }
        },
        calls=(
            (_RUN, {"command": "echo hello"}, PASSES),
            (_RUN, {"command": ["echo", "DROP TABLE x"]}, "DROP TABLE"),
            (_RUN, {"command": "git reset --hard"}, "discards uncommitted changes"),
        ),
    ),
    HookPackage(
        "pip",
        "edit-guard==0.2.0",
        settings={
            "hooks": {
                "PreToolUse": [
                    _group("Edit|Write|MultiEdit|NotebookEdit", "edit-guard hook"),
                    _group("Read", "edit-guard hook --observe"),
                ],
                "PostToolUse": [
                    _group("Edit|Write|MultiEdit|NotebookEdit", "edit-guard hook --post-write")
                ],
                "SessionStart": [
                    {"hooks": [{"type": "command", "command": "edit-guard inject --session-start"}]}
                ],
            }
        },
        calls=(
            ("read_file", {"path": "note.txt"}, PASSES),
            (
                "replace_lines",
                {"path": "note.txt", "line_start": 1, "line_end": 1, "new_content": "uno"},
                PASSES,
            ),
            ("edit_file", {"path": "note.txt", "old_string": "two", "new_string": "due"}, PASSES),
            ("write_file", {"path": "new.txt", "content": "x"}, PASSES),
        ),
    ),
    HookPackage(
        "pip",
        "gateguard-ai==0.6.2",
        settings={
            "hooks": {
                "PreToolUse": [_group("Edit|Write|Bash", "gateguard-hook")],
                "PostToolUse": [_group("Read|Grep|Glob|Bash", "gateguard-read-tracker")],
            }
        },
        calls=(
            (
                "edit_file",
                {"path": "note.txt", "old_string": "two", "new_string": "due"},
                "has not been Read yet",
            ),
            ("read_file", {"path": "note.txt"}, PASSES),
            (
                "insert_lines",
                {"path": "note.txt", "line_start": 1, "new_content": "zero"},
                "gateguard",
            ),
            ("insert_lines", {"path": "note.txt", "line_start": 1, "new_content": "zero"}, PASSES),
            (_RUN, {"command": "git reset --hard"}, "gateguard"),
        ),
    ),
    HookPackage(
        "pip",
        "agent-guard-hooks==0.7.0",
        settings={
            "hooks": {
                "SessionStart": [
                    {"hooks": [{"type": "command", "command": "agent-guard hook-snapshot"}]}
                ],
                "Stop": [{"hooks": [{"type": "command", "command": "agent-guard hook-test"}]}],
                "PreToolUse": [
                    _group("Bash", "agent-guard hook-outbound"),
                    _group("Bash", "agent-guard hook-bashwrite"),
                    _group("Write|Edit", "agent-guard hook-commentslop"),
                    _group("Write|Edit", "agent-guard hook-cheatsniff"),
                ],
                "PostToolUse": [_group("Bash", "agent-guard hook-verify")],
            }
        },
        calls=(
            (_RUN, {"command": "echo hello"}, PASSES),
            (_RUN, {"command": "npm publish"}, "agent-guard"),
            ("write_file", {"path": "plain.py", "content": "x = 1\n"}, PASSES),
            (
                "write_file",
                {
                    "path": "tests/test_cart.py",
                    "content": "import random\nfrom unittest.mock import patch\n\n"
                    "random.seed(123)\n\n\n@patch('random.shuffle')\n"
                    "def test_cart(shuffle):\n    assert True\n",
                },
                "agent-guard",
            ),
        ),
    ),
    HookPackage(
        "pip",
        "hapax-agentgov==0.3.1",
        setup=("agentgov", "init", "--preset", "strict"),
        calls=(
            ("write_file", {"path": "plain.py", "content": "x = 1\n"}, PASSES),
            (
                "write_file",
                {"path": "keys.py", "content": "AWS = 'AKIAABCDEFGHIJKLMNOP'\n"},
                "BLOCKED",
            ),
            (_RUN, {"command": "echo hello"}, PASSES),
        ),
    ),
    HookPackage(
        "pip",
        "agent-sensorium==0.1.0",
        setup=("sensorium", "init", "claude-code"),
        calls=(
            (_RUN, {"command": "echo hello"}, PASSES),
            (_RUN, {"command": ["rm", "-rf", "note.txt"]}, "sensorium"),
            ("write_file", {"path": "plain.py", "content": "x = 1\n"}, PASSES),
        ),
    ),
    HookPackage(
        "npm",
        "@coo-quack/sensitive-canary@0.8.1",
        settings={
            "hooks": {
                "UserPromptSubmit": [
                    {
                        "hooks": [
                            {
                                "type": "command",
                                "command": "node $(npm root -g)/@coo-quack/sensitive-canary/dist/"
                                "user-prompt-submit-hook.js",
                            }
                        ]
                    }
                ],
                "PreToolUse": [
                    _group(
                        "Read|NotebookRead|Bash|Grep|mcp__.*",
                        "node $(npm root -g)/@coo-quack/sensitive-canary/dist/pre-tool-use-hook.js",
                    )
                ],
            }
        },
        calls=(
            ("read_file", {"path": "note.txt"}, PASSES),
            ("read_file", {"path": "people.csv"}, "anary"),
            (_RUN, {"command": "echo hello"}, PASSES),
        ),
    ),
)


def install(package: HookPackage, place: Path) -> Path:
    """Install a package into `place`. Return the folder of its programs."""
    if package.source == "npm":
        _run("npm", "install", "-g", "--prefix", place, package.requirement)
        return place / "bin"
    _run(sys.executable, "-m", "venv", "--without-pip", place)
    interpreter = place / "bin/python"
    _run(sys.executable, "-m", "pip", "--python", interpreter, "install", package.requirement)
    return place / "bin"


def _run(*words: str | Path) -> None:
    subprocess.run(words, check=True, capture_output=True)


@contextmanager
def new_person(home: Path, programs: Path) -> Iterator[None]:
    """Be a person with this home and these programs, until the end of the block."""
    before = dict(os.environ)
    for name in ("FERRULE_STATE", "FERRULE_CONFIG", "FERRULE_CACHE", "CLAUDE_CONFIG_DIR"):
        os.environ.pop(name, None)
    os.environ |= {"HOME": str(home), "PATH": f"{programs}:{before['PATH']}"}
    os.environ |= {"NPM_CONFIG_PREFIX": str(programs.parent)}
    try:
        yield
    finally:
        os.environ.clear()
        os.environ |= before


def set_up(package: HookPackage, home: Path, work: Path) -> None:
    """Set a package up as its README says, and trust the folder if it put hooks there."""
    work.mkdir(parents=True)
    (work / "note.txt").write_text("one\ntwo\nthree\n")
    (work / "locked.txt").write_text("x\n")
    (work / "people.csv").write_text("name,mail\nAda,ada.lovelace@acme-widgets.org\n")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com"]
    for words in (["init", "-q", "-b", "topic"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], cwd=work, check=True, capture_output=True)
    if package.settings:
        (home / ".claude").mkdir(parents=True)
        (home / ".claude/settings.json").write_text(json.dumps(package.settings))
    for name, text in package.files.items():
        path = Path(name.replace("~", str(home)))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    if package.setup:
        subprocess.run(package.setup, cwd=work, check=True, capture_output=True)
        TrustStore().trust(work)


async def try_calls(package: HookPackage, work: Path) -> tuple[list[str], list[str]]:
    """Make the calls. Return what did not come as expected, and what the person was told."""
    notices: list[str] = []
    rules = ["write_file", "edit_file", "delete_path", "replace_lines", "insert_lines", "Bash"]
    options = {"workspace": str(work), "permissions__allow": tuple(rules)}
    assembly = assemble(options, notice=notices.append, needs_model=False)
    session = assembly.open_session(None)
    wrong: list[str] = []
    try:
        for tool, arguments, expected in package.calls:
            result = await session.call_tool(tool, arguments)
            said = "" if result.success else (result.error_message or "failed")
            hooked = "hook" in said
            if expected == PASSES and hooked:
                wrong.append(f"{tool} {json.dumps(arguments)}: {said}")
            elif expected != PASSES and not (hooked and expected.lower() in said.lower()):
                wrong.append(
                    f"{tool} {json.dumps(arguments)}: expected {expected!r}, found {said!r}"
                )
    finally:
        await assembly.close(session, strict=False)
    return wrong, notices


def try_packages(names: list[str], *, verbose: bool = False) -> int:
    """Try the packages and write their table. Return how many did not run as expected."""
    rows: list[list[str]] = []
    failed = 0
    for package in PACKAGES:
        if names and not any(name in package.requirement for name in names):
            continue
        # Not below /tmp: commands have a temporary folder of their own.
        scratch = Path(tempfile.mkdtemp(prefix="ferrule-foreign-", dir=Path.home()))
        try:
            programs = install(package, scratch / "home" / PLACES[package.source])
            with new_person(scratch / "home", programs):
                set_up(package, scratch / "home", scratch / "work")
                wrong, told = asyncio.run(try_calls(package, scratch / "work"))
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        failed += bool(wrong)
        refused = sum(bool(expected) for _, _, expected in package.calls)
        events = _events(package)
        outcome = f"{len(package.calls)} of {len(package.calls)} calls as expected"
        if wrong:
            outcome = f"{len(wrong)} of {len(package.calls)} calls not as expected"
        click.echo(f"{package.requirement:36} {outcome} ({refused} refused)")
        for line in (*wrong, *(told if verbose else ())):
            click.echo(f"    {line}")
        where = "repository" if package.setup else "person"
        rows.append([f"`{package.requirement}`", package.source, where, events, outcome])
    if not names:
        write_table(
            "hooks",
            ["package", "from", "settings of", "events", "outcome"],
            rows,
            f"{len(rows)} packages, each set up as its README says, nothing edited.",
        )
    return failed


def _events(package: HookPackage) -> str:
    return ", ".join(package.settings.get("hooks", {})) or f"as `{' '.join(package.setup)}` writes"
