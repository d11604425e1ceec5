"""`ferrule init`: an agent project that works as it is made, or only a settings file with every key
commented.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@click.command()
@click.argument("folder", default=".", type=click.Path(file_okay=False))
@click.option("--force", is_flag=True, help="Replace files that are there; each is named.")
@click.option(
    "--settings-only", is_flag=True, help="Write nothing but FOLDER/.ferrule/ferrule.yaml."
)
@click.option(
    "--user", is_flag=True, help="Write the person's own settings, and nothing into a folder."
)
def init(folder: str, force: bool, settings_only: bool, user: bool) -> int:
    """Make an agent project in FOLDER: two typed tools and an agent, a tool file, a hook, settings,
    tests, a README.

    Nothing is replaced without --force. What was written is trusted as it stands; a change asks
    again (`ferrule trust`).
    """
    if user:
        return _person_settings(force)
    from ferrule.cli.new_files import write_new

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
        _next(root, trusted=_trust_written(root, files))
    return 0


def _trust_written(root: Path, files: Mapping[str, str]) -> bool:
    """Trust the folder if its configuration is what was written just now, byte for byte, and
    nothing else.
    """
    from ferrule.storage.trust import Trust

    book = Trust()
    seen = book.look(root)
    written = {name: text.encode() for name, text in files.items()}
    if seen.links or any(written.get(name) != data for name, data in seen.files.items()):
        return False
    book.trust(root, digest=seen.digest)
    return True


def _tell(root: Path, files: Iterable[str], replaced: list[str]) -> None:
    for name in files:
        click.echo(f"{'replaced' if name in replaced else 'wrote'} {root / name}", err=True)


def _next(root: Path, *, trusted: bool) -> None:
    """The next three commands, and what trust is."""
    if str(root) != ".":
        click.echo(f"\ncd {shlex.quote(str(root))}", err=True)
    second = (
        "ferrule tools list    the tools of this folder: tools.py, .ferrule/tools/, and those "
        "that ship"
    )
    said = "What was written now is trusted as it stands: tools.py and the files in .ferrule/."
    if not trusted:
        second = "ferrule trust         read what this folder brings and let it take effect"
        said = (
            "This folder held other configuration before, so nothing of it takes effect until "
            "you trust it."
        )
    click.echo(
        "\nnext:\n"
        "  python -m pytest      the tests of tools.py: no model, no network\n"
        f"  {second}\n"
        "  ferrule chat          talk with a model that has these tools\n"
        f"\n{said} A tool or a hook is a program, and tools.py\n"
        "runs without a sandbox: a change asks again and shows what is different (`ferrule "
        "trust`), and a folder that you get\n"
        "from others does nothing before you have seen it and said yes.",
        err=True,
    )


def _person_settings(force: bool) -> int:
    """The person's own file: a link in their own folder is theirs, and followed."""
    from ferrule.core.errors import ConfigError
    from ferrule.storage import paths

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
