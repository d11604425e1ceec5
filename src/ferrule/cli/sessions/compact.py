"""`ferrule sessions compact|restore`: compact a session's context, and undo it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ferrule.runtime.lazy_imports import lazy_imports
from ferrule.runtime.shared_options import common_options

with lazy_imports():
    from ferrule.cli import terminal_agent
    from ferrule.engine.context import compaction
    from ferrule.runtime import resumed_sessions

if TYPE_CHECKING:
    from ferrule.core.events import ContextCompacted
    from ferrule.engine.session import Session


@click.command()
@click.argument("session")
@click.option(
    "--no-summary", is_flag=True, help="Only leave out old results, without asking a model."
)
@common_options
def compact(session: str, no_summary: bool, **options: Any) -> int:
    """Leave the older part of a session out of what its model is sent.

    Old results become references that the model can read, and the model writes a summary of the
    rest. The last messages stay (`context.keep`), and the journal keeps everything. Exit code 1:
    there was nothing to compact; 3: the summary failed.
    """
    import asyncio

    return asyncio.run(_compact(session, not no_summary, options))


@click.command()
@click.argument("session")
@common_options
def restore(session: str, **options: Any) -> int:
    """Undo all compaction of a session: its model gets the whole conversation again.

    Exit code 1: nothing was compacted.
    """
    import asyncio

    return asyncio.run(_restore(session, options))


async def _compact(wanted: str, summary: bool, options: dict[str, Any]) -> int:
    assembly, session = _open_session(wanted, options)
    succeeded = False
    try:
        made = await session.compact(summary=summary)
        succeeded = True
    finally:
        await assembly.close(session, strict=succeeded)
    if made is None:
        assembly.terminal.write_message("nothing was compacted: there is nothing to leave out")
        return 1
    assembly.terminal.write_message(describe_compaction(made))
    return 3 if made.note else 0


async def _restore(wanted: str, options: dict[str, Any]) -> int:
    assembly, session = _open_session(wanted, options)
    succeeded = False
    try:
        was_compacted = session.restore()
        succeeded = True
    finally:
        await assembly.close(session, strict=succeeded)
    if not was_compacted:
        assembly.terminal.write_message("nothing was compacted")
        return 1
    assembly.terminal.write_message("the whole conversation is sent again")
    return 0


def _open_session(
    wanted: str, options: dict[str, Any]
) -> tuple[terminal_agent.TerminalAssembly, Session]:
    options["model"] = options.get("model") or resumed_sessions.find_session_model(wanted)
    assembly = terminal_agent.assemble_at_terminal(options)
    return assembly, assembly.open_session(wanted)


def describe_compaction(made: ContextCompacted) -> str:
    """Describe a compaction in one line."""
    return compaction.describe(made)
