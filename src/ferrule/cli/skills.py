"""`ferrule skills`: list skills, show one, and check that all can be loaded."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import click

from ferrule.cli.rows import print_row
from ferrule.core.errors import ConfigError, ToolFailed
from ferrule.core.similar_names import suggest_names
from ferrule.extensions.skills.loading import LoadedSkills, load_skills
from ferrule.extensions.skills.tool import FoundSkill, render_skill
from ferrule.runtime.lazy_group import CommandGroup
from ferrule.storage import paths
from ferrule.storage.settings.settings import load_settings

from .terminal import escape_invisible


@click.group(cls=CommandGroup)
def skills() -> None:
    """List your skills and those of this folder, show one, check them.

    \b
    Examples:
      ferrule skills list
      ferrule skills show release-notes
    """  # noqa: D301  click reads the mark


_workspace = click.option(
    "-C",
    "--workspace",
    type=click.Path(file_okay=False),
    help="Folder to look in (default: this one).",
)


@skills.command("list")
@_workspace
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
def list_skills(workspace: str | None, as_json: bool) -> None:
    """List the skills: name, origin, description."""
    loaded = _load(workspace)
    if as_json:
        click.echo(json.dumps([_make_row(found) for found in loaded.found], indent=2))
        return
    width = max((len(skill.name) for skill in loaded.skills), default=0)
    for skill in loaded.skills:
        description = " ".join(skill.description.split())
        print_row(f"{skill.name:{width}}  {skill.origin:10}  ", description)
    _warn(loaded)


@skills.command()
@click.argument("name")
@click.argument("path", default="")
@_workspace
def show(name: str, path: str, workspace: str | None) -> None:
    """Show a skill as the model gets it; with PATH, one of its files outside the workspace."""
    loaded = _load(workspace)
    found = next((one for one in loaded.found if one.skill.name == name), None)
    if found is None:
        raise click.UsageError(_describe_unknown_skill(name, loaded))
    if not path:
        for line in _describe(found):
            click.echo(escape_invisible(line))
    try:
        click.echo(escape_invisible(render_skill(found, path)))
    except ToolFailed as error:
        raise ConfigError(error.message) from error


@skills.command()
@_workspace
def check(workspace: str | None) -> int:
    """Report all problems of skills, also of those that are not trusted yet.

    Exit code 1 if one cannot be loaded.
    """
    loaded = _load(workspace, as_trusted=True)
    for warning in loaded.warnings:
        level = "error" if warning in loaded.broken else "warning"
        click.echo(escape_invisible(f"{level}: {warning}"))
    click.echo(f"{len(loaded.skills)} skills, {len(loaded.broken)} left out", err=True)
    return 1 if loaded.broken else 0


def _load(workspace: str | None, *, as_trusted: bool = False) -> LoadedSkills:
    settings = load_settings(workspace=workspace)
    names = settings.names
    repository = settings.repository
    if as_trusted and repository.state != "absent":
        # Safe: checking only reads the files, nothing in them takes effect.
        repository = replace(repository, state="trusted")
    return load_skills(settings.workspace, repository, paths.config(), names=names)


def _make_row(found: FoundSkill) -> dict[str, Any]:
    skill = found.skill
    return {
        "name": skill.name,
        "origin": skill.origin,
        "description": skill.description,
        "file": skill.file,
        "license": skill.license,
        "compatibility": skill.compatibility,
        "metadata": dict(skill.metadata),
        "allowed_tools": list(skill.allowed_tools),
    }


def _describe(found: FoundSkill) -> list[str]:
    skill = found.skill
    lines = [f"{skill.name}  ({skill.origin}; {skill.file})", "", skill.description, ""]
    if skill.license:
        lines.append(f"license: {skill.license}")
    lines += [f"{key}: {value}" for key, value in skill.metadata.items()]
    if skill.allowed_tools:
        lines.append(
            f"asks for the tools {', '.join(skill.allowed_tools)}; permission rules and you "
            "decide about them, not the skill"
        )
    return [*lines, ""] if lines[-1] else lines


def _describe_unknown_skill(name: str, loaded: LoadedSkills) -> str:
    names = [skill.name for skill in loaded.skills]
    otherwise = "`ferrule skills check` says why a skill is left out"
    suggestion = suggest_names(name, names, otherwise, count=2, cutoff=0.5)
    return f"there is no skill `{name}`; {suggestion}"


def _warn(loaded: LoadedSkills) -> None:
    for warning in loaded.warnings:
        click.echo(escape_invisible(f"! {warning}"), err=True)
    if not loaded.skills:
        click.echo("no skills found\nhint: see docs/agents.md for where they belong", err=True)
