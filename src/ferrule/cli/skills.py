"""`ferrule skills`: which skills there are, what one says, and whether all are well made."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ferrule.extensions.skills.loading import LoadedSkills
    from ferrule.extensions.skills.tool import Found


@click.group()
def skills() -> None:
    """List the skills of this folder and of yours, show one, check that all are well made."""


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
    """One line per skill: name, who answers for it, what it is for."""
    from .terminal import visible

    found = _load(workspace)
    if as_json:
        click.echo(json.dumps([_row(one) for one in found.found], indent=2))
        return
    width = max((len(skill.name) for skill in found.skills), default=0)
    for skill in found.skills:
        click.echo(
            visible(
                f"{skill.name:{width}}  {skill.origin:10}  {' '.join(skill.description.split())}"
            )
        )
    _warn(found)


@skills.command()
@click.argument("name")
@click.argument("path", default="")
@_workspace
def show(name: str, path: str, workspace: str | None) -> None:
    """What a skill says, as the model gets it; with PATH, one of its files outside the
    workspace.
    """
    from ferrule.core.errors import ConfigError, ToolFailed
    from ferrule.extensions.skills.tool import text_of

    from .terminal import visible

    loaded = _load(workspace)
    found = next((one for one in loaded.found if one.skill.name == name), None)
    if found is None:
        raise click.UsageError(_no_skill(name, loaded))
    if not path:
        for line in _facts(found):
            click.echo(visible(line))
    try:
        click.echo(visible(text_of(found, path)))
    except ToolFailed as error:
        raise ConfigError(error.message) from error


@skills.command()
@_workspace
def check(workspace: str | None) -> int:
    """Say all that is wrong with skills, also with those that are not trusted yet. Exit code 1 if
    one cannot be loaded.
    """
    from .terminal import visible

    found = _load(workspace, as_trusted=True)
    for one in found.warnings:
        click.echo(visible(f"{'error' if one in found.broken else 'warning'}: {one}"))
    click.echo(f"{len(found.skills)} skills, {len(found.broken)} left out", err=True)
    return 1 if found.broken else 0


def _load(workspace: str | None, *, as_trusted: bool = False) -> LoadedSkills:
    from dataclasses import replace

    from ferrule.extensions.skills.loading import load_skills
    from ferrule.permissions.protected_names import DEFAULT
    from ferrule.storage import paths
    from ferrule.storage.settings.settings import load_settings

    settings = load_settings(workspace=workspace)
    seen = settings.repository
    names = DEFAULT.extended(
        reserved=settings["reserved.extend"], secret=settings["secrets.extend"]
    )
    # Nothing of a repository takes effect by being checked: it is read, and that is all.
    seen = replace(seen, state="trusted") if as_trusted and seen.state != "absent" else seen
    return load_skills(settings.workspace, seen, paths.config(), names=names)


def _row(found: Found) -> dict[str, Any]:
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


def _facts(found: Found) -> list[str]:
    skill = found.skill
    lines = [f"{skill.name}  ({skill.origin}; {skill.file})", "", skill.description, ""]
    if skill.license:
        lines.append(f"license: {skill.license}")
    lines += [f"{key}: {value}" for key, value in skill.metadata.items()]
    if skill.allowed_tools:
        lines.append(
            f"asks for the tools {', '.join(skill.allowed_tools)}: rules and you decide, not "
            "the skill"
        )
    return [*lines, ""] if lines[-1] else lines


def _no_skill(name: str, loaded: LoadedSkills) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, [skill.name for skill in loaded.skills], 2, 0.5)
    meant = (
        f"did you mean {' or '.join(f'`{one}`' for one in near)}?"
        if near
        else "`ferrule skills check` says why one is left out"
    )
    return f"there is no skill `{name}`; {meant}"


def _warn(found: LoadedSkills) -> None:
    from .terminal import visible

    for one in found.warnings:
        click.echo(visible(f"! {one}"), err=True)
    if not found.skills:
        click.echo(
            "there are no skills\nhint: docs/skills.md says where they are looked for", err=True
        )
