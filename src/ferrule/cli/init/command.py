"""Define `ferrule init`: create an agent project, or only a commented settings file."""

from __future__ import annotations

import importlib.util
import os
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

import click

from ferrule.cli.new_files import write_new_files
from ferrule.core.errors import ConfigError
from ferrule.storage import paths
from ferrule.storage.trust import TrustStore

from .plugin_project import plugin_files
from .project import project_files
from .settings_template import render_settings


@click.command()
@click.argument("folder", default=".", type=click.Path(file_okay=False))
@click.option("--force", is_flag=True, help="Replace existing files; each is named.")
@click.option("--settings-only", is_flag=True, help="Write only FOLDER/.ferrule/ferrule.yaml.")
@click.option(
    "--user", is_flag=True, help="Write your own settings file, and nothing into a folder."
)
@click.option(
    "--plugin",
    metavar="NAME",
    help="Write a plugin as a distribution of its own, with tests: the package `ferrule_NAME`.",
)
def init(folder: str, force: bool, settings_only: bool, user: bool, plugin: str | None) -> int:
    """Create an agent project in FOLDER.

    It has two typed tools and an agent, a tool file, a hook, settings, tests and a README. Nothing
    is replaced without --force. The new files are trusted as they are; a change asks again
    (`ferrule trust`).

    \b
    Examples:
      ferrule init my-agent
      ferrule init --settings-only
    """  # noqa: D301  click reads the mark
    if user:
        return _write_user_settings(force)
    root = Path(folder)
    if plugin is not None:
        files = plugin_files(plugin)
        replaced = write_new_files(root, files, replace=force, hint="--force replaces them")
        _list_files(root, files, replaced)
        click.echo("hint: `pip install -e '.[test]'` there, then `python -m pytest`", err=True)
        return 0
    if settings_only:
        files = {".ferrule/ferrule.yaml": render_settings(project=True)}
        replaced = write_new_files(root, files, replace=force, hint="--force replaces it")
        _list_files(root, files, replaced)
        click.echo("hint: edit it, then `ferrule trust` lets it take effect", err=True)
        return 0
    files = project_files(Path(os.path.realpath(root)).name)
    hint = "--force replaces them; --settings-only writes only the settings"
    replaced = write_new_files(root, files, replace=force, hint=hint)
    _list_files(root, files, replaced)
    _show_next_steps(root, trusted=_trust_written(root, files))
    return 0


def _trust_written(root: Path, files: Mapping[str, str]) -> bool:
    """Trust the folder if its configuration is exactly what was just written. Return whether."""
    trust = TrustStore()
    snapshot = trust.read(root)
    written = {name: text.encode() for name, text in files.items()}
    differs = any(written.get(name) != data for name, data in snapshot.files.items())
    if snapshot.links or differs:
        return False
    trust.trust(root, digest=snapshot.digest)
    return True


def _list_files(root: Path, files: Iterable[str], replaced: list[str]) -> None:
    for name in files:
        action = "replaced" if name in replaced else "wrote"
        click.echo(f"{action} {root / name}", err=True)


def _show_next_steps(root: Path, *, trusted: bool) -> None:
    """Print the next three commands, and what trust means."""
    if str(root) != ".":
        click.echo(f"\ncd {shlex.quote(str(root))}", err=True)
    second = "ferrule tools list    list the tools: tools.py, .ferrule/tools/, and the shipped ones"
    trust_state = "The new files are trusted as they are: tools.py and the files in .ferrule/."
    if not trusted:
        second = "ferrule trust         review the configuration of this folder, let it take effect"
        trust_state = (
            "This folder had other configuration before, so none of it takes effect until you "
            "trust it."
        )
    tests = "python -m pytest      run the tests of tools.py: no model, no network"
    if importlib.util.find_spec("pytest") is None:
        tests = f"pip install pytest    it is not in this environment; then:\n  {tests}"
    click.echo(
        f"\nnext:\n  {tests}\n"
        f"  {second}\n"
        "  ferrule chat          chat with a model that has these tools\n"
        f"\n{trust_state}\n"
        "Tools and hooks are programs, and tools.py runs without a sandbox: a change asks again\n"
        "and shows the difference (`ferrule trust`), and a folder that you get from others has\n"
        "no effect until you have reviewed and trusted it.",
        err=True,
    )


def _write_user_settings(force: bool) -> int:
    """Write the person's own settings file. A link in their own folder is followed."""
    target = paths.config() / "ferrule.yaml"
    if os.path.lexists(target) and not force:
        raise click.UsageError(f"{target} exists; --force replaces it")
    try:
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        target.write_text(render_settings(project=False), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write `{target}`: {error.strerror}") from error
    click.echo(f"wrote {target}", err=True)
    return 0
