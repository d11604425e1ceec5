"""Published setups for Claude Code, imported and checked: `make lab NAME=foreign ARGS=setups`.

A folder with `.claude-plugin/plugin.json`, with `.claude`, or with a `settings.json` beside `agents` or
`commands` (which an installer would copy to `.claude`) is a setup. Each is imported into a folder of
its own, trusted, and checked with `ferrule validate`.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import click

from ferrule.cli.exit_codes import run
from ferrule.storage.trust import TrustStore

from .hooks import new_person
from .skills import unpack
from .table import write_table

PACKAGES = (
    ("pip", "clauderig==0.1.0"),
    ("pip", "claude-setup==1.0.0"),
    ("pip", "superclaude==4.3.0"),
    ("npm", "@torka/claude-workflows@0.10.0"),
)


def find_setups(files: Path, place: Path) -> list[Path]:
    """Copy the setups of an unpacked package into folders of their own, as projects or plugins."""
    found: list[Path] = []
    for marker in sorted(files.rglob("plugin.json")):
        if marker.parent.name == ".claude-plugin":
            found.append(shutil.copytree(marker.parents[1], place / f"plugin{len(found)}"))
    for settings in sorted(files.rglob("settings.json")):
        folder = settings.parent
        if folder.name == ".claude":
            found.append(shutil.copytree(folder.parent, place / f"project{len(found)}"))
        elif (folder / "agents").is_dir() or (folder / "commands").is_dir():
            project = place / f"project{len(found)}"
            shutil.copytree(folder, project / ".claude")
            found.append(project)
    return found


def ferrule(*words: str) -> tuple[int, str]:
    """Run a command in this process. Return its exit code and its output."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        code = run(list(words))
    return code, out.getvalue()


def import_setup(setup: Path, into: Path, left_out: Counter[str]) -> tuple[Counter[str], int]:
    """Import a setup. Return what kinds of files were written, and how many errors they have."""
    into.mkdir(exist_ok=True)
    words = ("import", "claude-code", str(setup), "-C", str(into))
    plan: dict[str, Any] = json.loads(ferrule(*words, "--json")[1])
    code, _ = ferrule(*words, "--yes")
    assert code == 0, setup
    TrustStore().trust(into)
    kinds: Counter[str] = Counter()
    for file in plan["files"]:
        name = Path(file["path"]).relative_to(into)
        commands = "/commands/" in file["from"]
        kind = {"agents": "agents", "skills": "skills"}.get(name.parts[1], "settings")
        kinds["commands" if commands else kind] += name.name == "SKILL.md" or kind != "skills"
    for one in plan["left_out"]:
        left_out[describe(one["what"], one["reason"])] += 1
    return kinds, int(ferrule("validate", str(into))[0] != 0)


def describe(what: str, reason: str) -> str:
    """Return what kind of thing was left out, without the names of files in it."""
    if what.startswith("the variable"):
        return "variables"
    if "rule `" in what:
        return f"rule {what.split('`')[1]}"
    if what.startswith("a part of the agent"):
        return f"{reason.split()[0]} of agents"
    if what.startswith("`") and " of the command" in what:
        return f"{what.split()[0]} of commands"
    if what.startswith("`") and " of `" in what:
        return f"{what.partition(' of `')[0]} of settings"
    if what.startswith("the ") and what.endswith("`"):
        return what.partition(" of `")[0].removeprefix("the ").partition(" `")[0]
    return f"`{Path(what.strip('`')).name}`"


def try_setups(names: list[str], *, verbose: bool = False) -> int:
    """Import the setups of the packages and write their table. Return how many have errors."""
    rows: list[list[str]] = []
    wrong = 0
    for source, requirement in PACKAGES:
        if names and not any(name in requirement for name in names):
            continue
        scratch = Path(tempfile.mkdtemp(prefix="ferrule-foreign-", dir=Path.home()))
        left_out: Counter[str] = Counter()
        kinds: Counter[str] = Counter()
        errors = 0
        try:
            unpack(source, requirement, scratch / "package")
            (scratch / "setups").mkdir()
            setups = find_setups(scratch / "package/files", scratch / "setups")
            with new_person(scratch / "home", scratch / "home/bin"):
                for number, setup in enumerate(setups):
                    made, failed = import_setup(setup, scratch / f"into{number}", left_out)
                    kinds += made
                    errors += failed
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        wrong += errors
        written = ", ".join(f"{many} {kind}" for kind, many in sorted(kinds.items()))
        rest = "; ".join(f"{many} × {what}" for what, many in left_out.most_common())
        click.echo(f"{requirement:36} {len(setups):3}  {written}  errors {errors}  {rest}")
        rows.append(
            [f"`{requirement}`", source, str(len(setups)), written, str(errors), rest or "-"]
        )
    if not names:
        head = ["package", "from", "setups", "taken over", "with errors", "no counterpart"]
        note = f"{sum(int(row[2]) for row in rows)} setups were imported, nothing edited."
        write_table("setups", head, rows, note)
    return wrong
