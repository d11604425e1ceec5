"""`ferrule init`: a settings file with every key commented."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click


@click.command()
@click.argument("folder", default=".", type=click.Path(exists=True, file_okay=False))
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@click.option("--user", is_flag=True, help="Write the person's own settings instead of the folder's.")
def init(folder: str, force: bool, user: bool) -> int:
    """Write a commented settings file into FOLDER/.ferrule. It takes effect once trusted (`ferrule trust`)."""
    from ferrule.store import paths

    target = paths.config() / "ferrule.yaml" if user else Path(folder) / ".ferrule" / "ferrule.yaml"
    if os.path.lexists(target) and not force:
        raise click.UsageError(f"{target} exists; --force replaces it")
    _write(target, template(project=not user), follow=user)
    click.echo(f"wrote {target}", err=True)
    if not user:
        click.echo("hint: read it, change it, then `ferrule trust` lets it take effect", err=True)
    return 0


def _write(target: Path, text: str, *, follow: bool) -> None:
    """A new file. In a folder that others may have filled, a link is not followed: it could lead anywhere."""
    from ferrule.core.errors import ConfigError

    if not follow and target.parent.is_symlink():
        raise ConfigError(f"`{target.parent}` is a link; nothing was written through it")
    try:
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not follow:
            target.unlink(missing_ok=True)
        flags = (
            os.O_WRONLY
            | os.O_CREAT
            | os.O_TRUNC
            | os.O_CLOEXEC
            | (0 if follow else os.O_EXCL | os.O_NOFOLLOW)
        )
        with os.fdopen(os.open(target, flags, 0o644), "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ConfigError(f"cannot write `{target}`: {error.strerror}") from error


def template(*, project: bool) -> str:
    """Every setting as a comment, with its default and what it is for, made from the table of settings.

    A line that begins with `#` and no blank can be uncommented as it stands.
    """
    from ferrule.store.settings_table import SETTINGS

    lines = ["# Settings of Ferrule. Uncomment what you want to change."]
    if project:
        lines += [
            "# A repository can only tighten some of these; `ferrule trust` lets this file take effect."
        ]
    for setting in SETTINGS:
        if project and setting.project == "never":
            continue
        lines += ["", f"# {setting.short} {setting.long}".rstrip()]
        if setting.choices:
            possible = [choice for choice in setting.choices if not (project and choice in setting.refused)]
            lines.append(f"#   one of: {', '.join(possible)}")
        empty = "{}" if setting.kind in ("actions", "models", "providers", "policy", "policies") else ""
        lines.append(f"#{setting.key}: {empty or _yaml(setting.default)}")
    return "\n".join(lines) + "\n"


def _yaml(value: object) -> str:
    """A default in YAML, which for these values is JSON; text is quoted so that no word is taken for another type."""
    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)  # pyright: ignore[reportUnknownArgumentType]  a tuple of texts
