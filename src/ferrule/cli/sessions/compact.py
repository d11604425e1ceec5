"""`ferrule sessions compact|restore`: make room in a session's context, and undo it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ferrule.runtime.options import common

if TYPE_CHECKING:
    from ferrule.cli.terminal_agent import Seated
    from ferrule.core.events import ContextCompacted
    from ferrule.engine.session import Session


@click.command()
@click.argument("session")
@click.option("--no-summary", is_flag=True, help="Only leave old results out; no model is asked.")
@common
def compact(session: str, no_summary: bool, **options: Any) -> int:
    """Leave the old part of a session out of what its model is sent; the journal keeps everything.

    Old results become references that the model can read; its model writes a summary of the rest.
    The last messages stay (`context.keep`). Exit code 1: there was nothing to compact, 3: the
    summary could not be had.
    """
    import asyncio

    return asyncio.run(_compact(session, not no_summary, options))


@click.command()
@click.argument("session")
@common
def restore(session: str, **options: Any) -> int:
    """Send a session's model the whole conversation again: undoes all that was compacted. Exit code
    1: nothing was.
    """
    import asyncio

    return asyncio.run(_restore(session, options))


async def _compact(wanted: str, summary: bool, options: dict[str, Any]) -> int:
    assembly, session = _opened(wanted, options)
    fine = False
    try:
        made = await session.compact(summary=summary)
        fine = True
    finally:
        await assembly.close(session, strict=fine)
    if made is None:
        assembly.terminal.say("nothing was compacted: what there is stays as it is")
        return 1
    assembly.terminal.say(outcome(made))
    return 3 if made.note else 0


async def _restore(wanted: str, options: dict[str, Any]) -> int:
    assembly, session = _opened(wanted, options)
    fine = False
    try:
        done = session.restore()
        fine = True
    finally:
        await assembly.close(session, strict=fine)
    assembly.terminal.say(
        "the whole conversation is sent again" if done else "nothing was compacted"
    )
    return 0 if done else 1


def _opened(wanted: str, options: dict[str, Any]) -> tuple[Seated, Session]:
    from ferrule.cli.terminal_agent import seat
    from ferrule.runtime.assemble import model_of

    options["model"] = options.get("model") or model_of(wanted)
    assembly = seat(options)
    return assembly, assembly.open(wanted)


def outcome(made: ContextCompacted) -> str:
    """A compaction in a line."""
    from ferrule.engine.context.compaction import said

    return said(made)
