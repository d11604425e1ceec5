"""`ferrule doctor`: what this machine can do, what is missing, and what is not protected."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

import click

from ferrule.core.errors import FerruleError
from ferrule.sandbox.policy import Aspect

from .findings import Finding


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
@click.option(
    "--require",
    multiple=True,
    type=click.Choice([str(aspect) for aspect in Aspect]),
    help=(
        "Fail unless commands are held in this way too, beside what the settings require. "
        "Repeatable."
    ),
)
def doctor(as_json: bool, require: tuple[str, ...]) -> int:
    """Say what this machine can do and what is missing. Exit code 1 if something needed is broken.

    With `--require`, exit code 7 if commands, under the settings in force here, are not held in the
    ways that are named and in those that `sandbox.require` names.
    """
    findings = [finding for check in CHECKS for finding in _several(check())]
    if as_json:
        click.echo(json.dumps([asdict(f) for f in findings], indent=2))
    else:
        for finding in findings:
            mark = {"ok": "✓", "note": "·", "bad": "✗"}[finding.level]
            click.echo(f"{mark} {finding.name:20} {finding.detail}")
    _check_required(require)
    return 1 if any(finding.level == "bad" for finding in findings) else 0


def _several(found: Finding | Iterable[Finding]) -> Iterable[Finding]:
    return [found] if isinstance(found, Finding) else found


def _system() -> Finding:
    detail = f"Python {platform.python_version()}, {platform.system()} {platform.release()}"
    return Finding("system", "ok" if sys.platform == "linux" else "note", detail)


def _state() -> Finding:
    from ferrule.storage import paths

    folder = paths.state()
    nearest = next(p for p in (folder, *folder.parents) if p.exists())
    if not os.access(nearest, os.W_OK):
        return Finding(
            "state", "bad", f"{nearest} cannot be written: no journal; set FERRULE_STATE"
        )
    return Finding("state", "ok", str(folder))


def _beneath() -> Finding:
    from ferrule.permissions.filesystem.open_beneath import best, by_openat2

    if best() is by_openat2:
        return Finding(
            "workspace", "ok", "paths are resolved beneath the root by the kernel (openat2)"
        )
    return Finding(
        "workspace",
        "note",
        "no openat2 here: paths are walked part by part without following links",
    )


def _search() -> Finding:
    from ferrule.toolkits.search.ripgrep import find_ripgrep

    found = find_ripgrep(outside=str(Path.cwd()))
    if found:
        return Finding("search", "ok", f"ripgrep: {found}")
    return Finding(
        "search", "note", "no ripgrep: searching in Python, slower; `pip install 'ferrule[cli]'`"
    )


def _git() -> Finding:
    found = shutil.which("git")
    return Finding("git", "ok" if found else "note", found or "no git: git_command will say so")


def _model() -> Finding:
    from ferrule.models.local.pull import path

    if find_spec("xllamacpp") is None:
        return Finding(
            "local model", "note", "llama.cpp is not installed; `pip install 'ferrule[local]'`"
        )
    where: Path = path("smollm2")
    if not where.exists():
        return Finding("local model", "note", "not pulled; `ferrule models pull smollm2`")
    return Finding("local model", "ok", f"{where} ({where.stat().st_size // 1_000_000} MB)")


def _terminal() -> Finding:
    missing = [name for name in ("rich", "prompt_toolkit") if find_spec(name) is None]
    if missing:
        return Finding(
            "terminal",
            "note",
            f"{', '.join(missing)} missing: `pip install 'ferrule[cli]'` for chat",
        )
    return Finding("terminal", "ok", "chat can run")


def _sandbox() -> Iterable[Finding]:
    from ferrule.runtime.confinement import policy_of
    from ferrule.sandbox.backends.probes import probe
    from ferrule.storage.settings.settings import load_settings

    from .sandbox_report import report

    try:
        settings = load_settings()
        return list(report(policy_of(settings), probe(), settings["sandbox.mode"]))
    except FerruleError as error:
        return [Finding("settings", "bad", f"{error.detail}; commands cannot run")]


def _check_required(require: tuple[str, ...]) -> None:
    """Raises SandboxGap if commands, under the settings in force here, are not held in these ways
    too.
    """
    from ferrule.runtime.confinement import policy_of
    from ferrule.sandbox.backends.probes import probe
    from ferrule.storage.settings.settings import load_settings

    from .sandbox_report import check_required

    if require:
        settings = load_settings()
        check_required(policy_of(settings), probe(), settings["sandbox.mode"], map(Aspect, require))


CHECKS: tuple[Callable[[], Finding | Iterable[Finding]], ...] = (
    _system, _state, _beneath, _search, _git, _model, _terminal, _sandbox,
)  # fmt: skip
"""In the order they are shown."""
