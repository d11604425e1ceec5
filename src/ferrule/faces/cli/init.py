"""`ferrule init`: an agent project that works as it is made, or only a settings file with every key commented."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterable


@click.command()
@click.argument("folder", default=".", type=click.Path(file_okay=False))
@click.option("--force", is_flag=True, help="Replace files that are there; each is named.")
@click.option("--settings-only", is_flag=True, help="Write nothing but FOLDER/.ferrule/ferrule.yaml.")
@click.option("--user", is_flag=True, help="Write the person's own settings, and nothing into a folder.")
def init(folder: str, force: bool, settings_only: bool, user: bool) -> int:
    """Make an agent project in FOLDER: two typed tools and an agent, a tool file, a hook, settings, tests, a README.

    Nothing is replaced without --force. What is in .ferrule/ takes effect once trusted (`ferrule trust`).
    """
    if user:
        return _person_settings(force)
    from .new_files import write_new
    from .project import files_of
    from .settings_template import template

    root = Path(folder)
    files = files_of(root.resolve().name)
    if settings_only:
        files = {".ferrule/ferrule.yaml": template(project=True)}
    hint = "--force replaces" + (
        " it" if settings_only else " them; --settings-only writes the settings alone"
    )
    replaced = write_new(root, files, replace=force, hint=hint)
    _tell(root, files, replaced)
    if settings_only:
        click.echo("hint: read it, change it, then `ferrule trust` lets it take effect", err=True)
    else:
        _next(root)
    return 0


def _tell(root: Path, files: Iterable[str], replaced: list[str]) -> None:
    for name in files:
        click.echo(f"{'replaced' if name in replaced else 'wrote'} {root / name}", err=True)


def _next(root: Path) -> None:
    """The next three commands, and what trust is."""
    if str(root) != ".":
        click.echo(f"\ncd {shlex.quote(str(root))}", err=True)
    click.echo(
        "\nnext:\n"
        "  python -m pytest      the tests of tools.py: no model, no network\n"
        "  ferrule trust         read what .ferrule/ holds and let it take effect\n"
        "  ferrule chat          talk with a model that works in this folder\n"
        "\nFiles in .ferrule/ do nothing until you trust them, here and in every folder that you get from others: a tool or a\n"
        "hook is a program. Trust holds for the files as they are; a change asks again, and shows what is different.",
        err=True,
    )


def _person_settings(force: bool) -> int:
    """The person's own file: a link in their own folder is theirs, and followed."""
    from ferrule.core.errors import ConfigError
    from ferrule.store import paths

    from .settings_template import template

    target = paths.config() / "ferrule.yaml"
    if os.path.lexists(target) and not force:
        raise click.UsageError(f"{target} exists; --force replaces it")
    try:
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        target.write_text(template(project=False), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write `{target}`: {error.strerror}") from error
    click.echo(f"wrote {target}", err=True)
    return 0
