"""Define `ferrule doctor` and its checks, one function each."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from importlib.resources import files
from importlib.util import find_spec
from typing import Any

import click

from ferrule.cli.terminal import fit_encoding
from ferrule.core.calls import parse_json
from ferrule.core.errors import FerruleError
from ferrule.permissions.filesystem.open_beneath import (
    PORTABLE,
    is_portable,
    open_by_openat2,
    select_open_folder,
)
from ferrule.permissions.provenance import CommandWritable, ProgramNotFound, find_program
from ferrule.runtime.lazy_imports import lazy_imports
from ferrule.runtime.sandbox_findings import apply_sandbox_findings
from ferrule.runtime.sandbox_policy import make_sandbox_policy
from ferrule.sandbox.backends import probes
from ferrule.sandbox.policy import Protection
from ferrule.storage import paths
from ferrule.storage.settings.settings import load_settings

from .findings import Finding

with lazy_imports():
    from ferrule.models import registry
    from ferrule.runtime import chosen_providers
    from ferrule.toolkits.search import ripgrep

    from . import attack, model_report, sandbox_report
    from . import container as container_setup


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
@click.option(
    "--require",
    multiple=True,
    type=click.Choice([str(aspect) for aspect in Protection]),
    help=(
        "Fail unless commands have this protection too, besides those the settings require. "
        "Repeatable."
    ),
)
@click.option(
    "--attack",
    is_flag=True,
    help="Attack this machine's own sandbox in a throw-away folder, and report what held.",
)
@click.option(
    "--view",
    is_flag=True,
    help="List what commands see of this machine from this folder, and why.",
)
@click.option(
    "--container",
    metavar="[ENGINE]",
    is_flag=False,
    flag_value="",
    help=(
        "Build an image for commands with Docker or Podman (by default the first that is here), "
        "and use it where the system itself does not confine them."
    ),
)
@click.option(
    "--run-argument",
    "run_arguments",
    multiple=True,
    help="With `--container`: a further argument for the engine's `run`. Repeatable.",
)
@click.option(
    "--build-argument",
    "build_arguments",
    multiple=True,
    help="With `--container`: a further argument for the engine's `build`. Repeatable.",
)
def doctor(
    as_json: bool,
    require: tuple[str, ...],
    attack: bool,
    view: bool,
    container: str | None,
    run_arguments: tuple[str, ...],
    build_arguments: tuple[str, ...],
) -> int:
    """Report what this machine supports and what is missing.

    Exit code 1 if something needed is broken. With `--require`, exit code 7 if commands, under the
    settings in force here, lack one of the named protections or one that `sandbox.require` names.
    With `--attack`, exit code 1 if an attack came through a protection that was claimed.

    \b
    Examples:
      ferrule doctor
      ferrule doctor --require network
      ferrule doctor --attack
      ferrule doctor --container podman
    """  # noqa: D301  click reads the mark
    if attack:
        return _attack(as_json)
    apply_sandbox_findings()
    if container is not None:
        found = container_setup.set_up_container(container, run_arguments, build_arguments)
        _print_findings(list(found), as_json=as_json)
        return 0
    if view:
        _print_findings(_list_view(), as_json=as_json)
        return 0
    findings: list[Finding] = []
    for check in CHECKS:
        findings += check()
    _print_findings(findings, as_json=as_json)
    _check_required(require)
    return 1 if any(finding.level == "bad" for finding in findings) else 0


def _list_view() -> list[Finding]:
    settings = load_settings()
    return list(sandbox_report.report_view(make_sandbox_policy(settings), settings["sandbox.mode"]))


def _print_findings(findings: list[Finding], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps([asdict(f) for f in findings], indent=2))
    else:
        for finding in findings:
            mark = {"ok": "✓", "note": "·", "bad": "✗"}[finding.level]
            detail = finding.detail.replace("\n", f"\n{'':23}")
            click.echo(fit_encoding(f"{mark} {finding.name:20} {detail}", sys.stdout))


def _attack(as_json: bool) -> int:
    """Attack the sandbox and print the report; it names no path of a person and can be shared."""
    shows_progress = sys.stderr.isatty()

    def show(text: str) -> None:
        if shows_progress:
            click.echo(f"\r\x1b[2K{text}", err=True, nl=False)

    report = attack.attack_this_machine(show)
    show("")
    if as_json:
        click.echo(json.dumps(report, indent=2))
    else:
        click.echo(f"{report['machine']}: {report['seconds']} s")
        for name, shown in report["backends"].items():
            if not shown["rows"]:
                click.echo(f"· {name}: commands cannot be started with it yet, so nothing is shown")
                continue
            own = [row for row in report["came_through"] if row["backend"] == name]
            mark = "✗" if any(row["claimed"] for row in own) else "✓"
            untried = f", {shown['not_tried']} not tried" if shown["not_tried"] else ""
            click.echo(f"{mark} {name}: {shown['held_rows']} of {shown['rows']} held{untried}")
        for row in report["came_through"]:
            place = f"{row['backend']} {row['protection']}"
            if row["claimed"]:
                click.echo(f"  ✗ {place}: `{row['attempt']}` came through: {row['detail']}")
            else:
                click.echo(f"  · {place} is not claimed: `{row['attempt']}` is possible")
        if not report["backends"]:
            click.echo("· no sandbox backend is here: commands are not confined on this machine")
    return 1 if any(row["claimed"] for row in report["came_through"]) else 0


def _check_system() -> Iterable[Finding]:
    detail = f"Python {platform.python_version()}, {platform.system()} {platform.release()}"
    if "microsoft" in platform.release().lower():
        detail += " (WSL: commands are confined as on Linux; files below /mnt are those of Windows)"
    if is_portable():
        detail += f" ({PORTABLE}=1: the calls that only Linux has are switched off)"
    detail += f"; {_describe_tried_here('.'.join(platform.python_version_tuple()[:2]))}"
    yield Finding("system", "ok" if sys.platform == "linux" else "note", detail)


def describe_tried(tried: Mapping[str, Any]) -> str:
    """Say on which systems and with which Pythons Ferrule was tried."""
    pythons = sorted({tuple(map(int, one.split(".")[:2])) for one in tried["pythons"]})
    shown = ", ".join(f"{major}.{minor}" for major, minor in pythons)
    return f"tried on {', '.join(tried['systems'])} with Python {shown}"


def _describe_tried_here(version: str) -> str:
    """Say where Ferrule was tried, and whether this version of Python was among it."""
    tried = parse_json(files("ferrule.cli.doctor").joinpath("tried.json").read_text("utf-8"))
    pythons = {one.rpartition(".")[0] for one in tried["pythons"]}
    said = describe_tried(tried)
    return said if version in pythons else f"{said}, not with this one"


def _check_state_folder() -> Iterable[Finding]:
    folder = paths.state()
    nearest = next(path for path in (folder, *folder.parents) if path.exists())
    if os.access(nearest, os.W_OK):
        yield Finding("state", "ok", str(folder))
        return
    yield Finding(
        "state", "bad", f"{nearest} is not writable, so there is no journal; set FERRULE_STATE"
    )


def _check_path_resolution() -> Iterable[Finding]:
    if select_open_folder() is open_by_openat2:
        detail = "paths are resolved beneath the root by the kernel (openat2)"
        yield Finding("workspace", "ok", detail)
        return
    detail = "no openat2: paths are resolved part by part, without following links"
    yield Finding("workspace", "note", detail)


def _check_search() -> Iterable[Finding]:
    found = ripgrep.find_ripgrep(CommandWritable.from_current_folder())
    if found:
        yield Finding("search", "ok", f"ripgrep: {found}")
        return
    detail = "no ripgrep: searching in Python, slower; `pip install 'ferrule[cli]'`"
    yield Finding("search", "note", detail)


def _check_git() -> Iterable[Finding]:
    search_path = os.environ.get("PATH", os.defpath)
    try:
        found = find_program("git", search_path, CommandWritable.from_current_folder())
    except ProgramNotFound as error:
        detail = f"the git tools will fail: {error.detail}; {error.hint}"
        yield Finding("git", "note", detail)
        return
    yield Finding("git", "ok", found)


def _check_model() -> Iterable[Finding]:
    try:
        settings = load_settings()
    except FerruleError:
        return [Finding("model", "note", "not looked at: the settings are wrong, see below")]
    try:
        return list(model_report.report_model(settings))
    except FerruleError as error:
        hint = f"; {error.hint}" if error.hint else ""
        return [Finding("model", "bad", f"{error.detail}{hint}")]


def _check_local_model() -> Iterable[Finding]:
    import asyncio

    try:
        rows = chosen_providers.choose_providers(load_settings())
        fetching = {name: row for name, row in rows.items() if row.fetch_model}
        if not fetching:
            raise registry.build_provider_error("local")
        for name, row in fetching.items():
            models = asyncio.run(registry.import_object(row.find_models)(""))
            yield Finding("local model", "ok", ", ".join(f"{name}:{model}" for model in models))
    except FerruleError as error:
        yield Finding("local model", "note", f"{error.detail}; `{error.hint}`")


def _check_terminal() -> Iterable[Finding]:
    missing = [name for name in ("rich", "prompt_toolkit") if find_spec(name) is None]
    if missing:
        detail = f"{', '.join(missing)} missing; for chat, `pip install 'ferrule[cli]'`"
        yield Finding("terminal", "note", detail)
        return
    yield Finding("terminal", "ok", "chat can run")


def _check_sandbox() -> Iterable[Finding]:
    try:
        settings = load_settings()
        return list(
            sandbox_report.report_sandbox(
                make_sandbox_policy(settings), probes.probe(), settings["sandbox.mode"]
            )
        )
    except FerruleError as error:
        return [Finding("settings", "bad", f"commands cannot run, until this is mended:\n{error}")]


def _check_required(require: tuple[str, ...]) -> None:
    """Raise MissingProtections if commands lack these protections under the settings here."""
    if require:
        settings = load_settings()
        sandbox_report.check_required(
            make_sandbox_policy(settings),
            probes.probe(),
            settings["sandbox.mode"],
            map(Protection, require),
        )


CHECKS: tuple[Callable[[], Iterable[Finding]], ...] = (
    _check_system,
    _check_state_folder,
    _check_path_resolution,
    _check_search,
    _check_git,
    _check_model,
    _check_local_model,
    _check_terminal,
    _check_sandbox,
)
"""The checks, in the order of the report."""
