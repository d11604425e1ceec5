"""`ferrule doctor`: what this machine can do, what is missing, and what is not protected."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

import click


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. `level` is `ok`, `note` (works, with less) or `bad` (does not work)."""

    name: str
    level: str
    detail: str


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
def doctor(as_json: bool) -> int:
    """Say what this machine can do and what is missing. Exit code 1 if something needed is broken."""
    findings = [check() for check in CHECKS]
    if as_json:
        click.echo(json.dumps([asdict(f) for f in findings], indent=2))
    else:
        for finding in findings:
            mark = {"ok": "✓", "note": "·", "bad": "✗"}[finding.level]
            click.echo(f"{mark} {finding.name:16} {finding.detail}")
    return 1 if any(finding.level == "bad" for finding in findings) else 0


def _system() -> Finding:
    detail = f"Python {platform.python_version()}, {platform.system()} {platform.release()}"
    return Finding("system", "ok" if sys.platform == "linux" else "note", detail)


def _state() -> Finding:
    from ferrule.store import paths

    folder = paths.state()
    nearest = next(p for p in (folder, *folder.parents) if p.exists())
    if not os.access(nearest, os.W_OK):
        return Finding("state", "bad", f"{nearest} cannot be written: no journal; set FERRULE_STATE")
    return Finding("state", "ok", str(folder))


def _beneath() -> Finding:
    from ferrule.guard.beneath import best, by_openat2

    if best() is by_openat2:
        return Finding("workspace", "ok", "paths are resolved beneath the root by the kernel (openat2)")
    return Finding(
        "workspace", "note", "no openat2 here: paths are walked part by part without following links"
    )


def _search() -> Finding:
    from ferrule.toolkits.ripgrep import find_ripgrep

    found = find_ripgrep(outside=str(Path.cwd()))
    if found:
        return Finding("search", "ok", f"ripgrep: {found}")
    return Finding("search", "note", "no ripgrep: searching in Python, slower; `pip install 'ferrule[cli]'`")


def _git() -> Finding:
    found = shutil.which("git")
    return Finding("git", "ok" if found else "note", found or "no git: git_command will say so")


def _model() -> Finding:
    from ferrule.models.pull import path

    if find_spec("xllamacpp") is None:
        return Finding("local model", "note", "llama.cpp is not installed; `pip install 'ferrule[local]'`")
    where: Path = path("smollm2")
    if not where.exists():
        return Finding("local model", "note", "not pulled; `ferrule models pull smollm2`")
    return Finding("local model", "ok", f"{where} ({where.stat().st_size // 1_000_000} MB)")


def _terminal() -> Finding:
    missing = [name for name in ("rich", "prompt_toolkit") if find_spec(name) is None]
    if missing:
        return Finding(
            "terminal", "note", f"{', '.join(missing)} missing: `pip install 'ferrule[cli]'` for chat"
        )
    return Finding("terminal", "ok", "chat can run")


def _confinement() -> Finding:
    return Finding(
        "commands",
        "note",
        "child processes are not confined by the kernel: rules decide which commands start, and ask; "
        "what an allowed program does is not limited",
    )


CHECKS: tuple[Callable[[], Finding], ...] = (
    _system, _state, _beneath, _search, _git, _model, _terminal, _confinement,
)  # fmt: skip
"""In the order they are shown."""
