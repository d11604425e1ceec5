"""`ferrule init`: a settings file with every key commented."""

from __future__ import annotations

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
    if target.exists() and not force:
        raise click.UsageError(f"{target} exists; --force replaces it")
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    target.write_text(template(project=not user), encoding="utf-8")
    click.echo(f"wrote {target}", err=True)
    if not user:
        click.echo("hint: read it, change it, then `ferrule trust` lets it take effect", err=True)
    return 0


def template(*, project: bool) -> str:
    """Every setting as a comment, with its default and what it is for, made from the table of settings."""
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
            lines.append(
                f"#   one of: {', '.join(c for c in setting.choices if not (project and c in setting.refused))}"
            )
        lines.append(f"#{setting.key}: {_yaml(setting.default)}")
    return "\n".join(lines) + "\n"


def _yaml(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[" + ", ".join(str(item) for item in value) + "]"  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return str(value)
