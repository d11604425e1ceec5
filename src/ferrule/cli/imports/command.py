"""Define `ferrule import`: show what would be taken over, ask, then write it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from ferrule.cli.confirmation import confirm
from ferrule.cli.terminal import encode_json, escape_invisible
from ferrule.runtime.lazy_group import CommandGroup
from ferrule.runtime.lazy_imports import lazy_imports

with lazy_imports():
    from ferrule.cli import mcp

    from . import claude_code as claude_code_files
    from . import plan as import_plan


_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


@click.group("import", cls=CommandGroup)
def import_() -> None:
    """Import what was set up for another program."""


@import_.command("claude-code")
@click.argument("folder", type=_FOLDER, default=Path())
@click.option(
    "-C",
    "--workspace",
    type=_FOLDER,
    help="Folder whose .ferrule is written (default: FOLDER; for a plugin this one).",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be written.")
@click.option("--yes", is_flag=True, help="Write without asking.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON; write nothing.")
def claude_code(
    folder: Path, workspace: Path | None, dry_run: bool, yes: bool, as_json: bool
) -> int:
    """Import settings, agents, slash commands and MCP servers of Claude Code.

    FOLDER is a project with `.claude`, or a plugin. Your own settings (`~/.claude`,
    `~/.claude.json`) go into your own files, the project's into its `.ferrule`. First you see what
    would be written, what works in place and what has no counterpart; nothing is overwritten and
    no secret is copied.
    """
    root = Path(os.path.realpath(folder))
    is_plugin = (root / ".claude-plugin").is_dir()
    into = Path(os.path.realpath(workspace or (Path() if is_plugin else root)))
    plan = claude_code_files.plan_import(root, into)
    if as_json:
        click.echo(encode_json(_describe(plan), indent=2))
        return 0
    _show(plan)
    if plan.is_empty:
        click.echo("nothing to write", err=True)
        return 0
    if dry_run:
        click.echo("nothing was written (--dry-run)", err=True)
        return 0
    refused = confirm("Write this?", yes)
    if refused:
        return refused
    _write(plan, into)
    return 0


def _write(plan: import_plan.Plan, into: Path) -> None:
    plan.write()
    if plan.servers:
        mcp.write_entries(plan.servers)
        click.echo("hint: `ferrule mcp approve` shows what each server gets", err=True)
    if any(file.root == into for file in plan.files):
        click.echo(
            "hint: what is in `.ferrule` takes effect once you trust it: `ferrule trust`", err=True
        )
    click.echo(f"wrote {len(plan.files)} files", err=True)


def _show(plan: import_plan.Plan) -> None:
    for file in plan.files:
        _print(f"+ {file.path}  from {file.source}")
        if file.name.endswith(".yaml"):
            _print(_indent(file.text))
    if plan.settings:
        _print("+ your own settings get:")
        _print(_indent(import_plan.format_settings(plan.settings)))
    for name in plan.servers:
        _print(f"+ MCP server {name}, to be approved")
    for text in plan.in_place:
        _print(f"= works in place: {text}")
    for one in plan.left_out:
        _print(f"- {one.what}: {one.reason}")


def _indent(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


def _print(text: str) -> None:
    click.echo(escape_invisible(text))


def _describe(plan: import_plan.Plan) -> dict[str, Any]:
    return {
        "files": [
            {"path": str(file.path), "from": file.source, "text": file.text} for file in plan.files
        ],
        "settings": plan.settings,
        "servers": plan.servers,
        "in_place": plan.in_place,
        "left_out": [{"what": one.what, "reason": one.reason} for one in plan.left_out],
    }
