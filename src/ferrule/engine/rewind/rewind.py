"""Rewinding: a session goes back to the end of one of its runs, with the files that its tools have
changed since.

    point = rewind_plan(records, 2)                       # what tools changed after the second run
    done = put_back(point, workspace, store, scope)
    again = fork(journal, session, 2, store)              # the history up to there, as a session of its own

The session itself stays in the journal as it was: nothing is ever taken out of it. A file is put
back only if it is what the session saw or made of it at some time; else it is left alone and named,
unless `force` says otherwise. See `copies` for what is not covered.

Whoever calls `put_back` holds the session's lease (`Journal.lease`), so that no other process works
in these files meanwhile, and brings a workspace that refuses what the person's settings protect.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import groupby
from secrets import token_hex

from ferrule.core import events
from ferrule.core.errors import ConfigError, FerruleError, ToolFailed
from ferrule.core.frozen import frozen
from ferrule.core.identity import Identity
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.storage.artifacts.store import ArtifactMissing, ArtifactStore, Scope
from ferrule.storage.journal.protocols import Journal

from .file_copies import BEYOND, NOTHING, state


@frozen
class Point:
    """The end of a run: what the paths were then (`wanted`), what the session saw or left there
    since (`known`), as states of `copies`, and how many calls since (commands, and others of which
    no file was kept) may have changed what nobody kept.
    """

    wanted: dict[str, str]
    known: dict[str, set[str]]
    uncovered: int


@dataclass(slots=True)
class PutBack:
    """What became of each path: restored, or left alone with the reason."""

    restored: list[str] = field(default_factory=list[str])
    left_alone: dict[str, str] = field(default_factory=dict[str, str])


def rewind_plan(records: Iterable[events.Record], runs: int) -> Point:
    """What to put back to be at the end of run number `runs` (0: before the first). Raises
    ConfigError if there is no such run.
    """
    finished, begun = 0, 0
    point = Point({}, {}, 0)
    started, kept = set[str](), set[str]()
    for record in records:
        event = record.event
        if isinstance(event, events.RunStarted):
            begun += 1
        elif isinstance(event, events.RunFinished):
            finished += 1
        elif begun > runs:
            _after(point, event)
            if isinstance(event, events.CallStarted):
                started.add(event.call_id)
            elif isinstance(event, events.FilesSeen):
                kept.add(event.call_id)
            elif isinstance(event, events.Noticed) and event.topic == BEYOND:
                started.add(f"{BEYOND} {record.seq}")
    if runs > finished:
        raise ConfigError(
            f"there is no finished run {runs}: the session has {finished}",
            hint="give a smaller number",
        )
    return replace(point, uncovered=len(started - kept))


def _after(point: Point, event: events.Event) -> None:
    if not isinstance(event, events.FilesSeen):
        return
    for path, seen in zip(event.paths, event.states, strict=True):
        if event.when == "before":
            point.wanted.setdefault(path, seen)
        else:
            # Made by a tool below a path that it named: it was not there before.
            point.wanted.setdefault(path, NOTHING)
            point.known.setdefault(path, {NOTHING})
        point.known.setdefault(path, set()).add(seen)


def put_back(
    point: Point,
    workspace: Workspace,
    store: ArtifactStore,
    scope: Scope,
    *,
    force: bool = False,
    dry: bool = False,
) -> PutBack:
    """Put every path back; with `dry` only say what would be. Folders come first and are removed
    last.
    """
    done = PutBack()
    wanted = sorted(point.wanted.items())
    for path, seen in [
        *(one for one in wanted if one[1] != NOTHING),
        *(one for one in reversed(wanted) if one[1] == NOTHING),
    ]:
        now = state(workspace, path, None)
        if now == seen:
            continue
        # A folder is removed only if it is empty by then: nothing is lost with it.
        empty = now == "dir" and seen == NOTHING
        if now not in point.known[path] and not empty and not force:
            done.left_alone[path] = "it was changed by something else since"
            continue
        if now.startswith("large:") and not force:
            done.left_alone[path] = (
                "it is too large to tell whether something else changed it since"
            )
            continue
        try:
            if why := _put(path, seen, now, workspace, store, scope, dry=dry):
                done.left_alone[path] = why
            else:
                done.restored.append(path)
        except ArtifactMissing:
            done.left_alone[path] = "what it held is not kept any more"
        except (ToolFailed, FerruleError, OSError) as error:
            done.left_alone[path] = str(error)
    return done


def _put(
    path: str,
    wanted: str,
    now: str,
    workspace: Workspace,
    store: ArtifactStore,
    scope: Scope,
    *,
    dry: bool,
) -> str:
    """Do it; why it cannot be done, or ""."""
    workspace.permit(path, write=True)
    kind, _, digest = wanted.partition(":")
    if kind in ("large", "link", "other") or now in ("link", "other"):
        return f"it was not kept ({wanted or now})"
    if kind == "file":
        artifact = store.find(scope, f"art-{digest}")
        if not dry:
            data = store.read(scope, artifact.reference, 0, artifact.size)
            if folder := path.rpartition("/")[0]:
                workspace.make_dir(folder)
            if now == "dir":
                workspace.delete(path)
            workspace.write(path, data)
    elif not dry and wanted == "dir":
        if now != NOTHING:
            workspace.delete(path)
        workspace.make_dir(path)
    elif not dry:
        workspace.delete(path)
    return ""


def fork(
    journal: Journal, session: str, runs: int, store: ArtifactStore | None = None, *, name: str = ""
) -> str:
    """A new session whose history is that of another one up to the end of run number `runs`; its
    id.

    Times are the recorded ones, what it kept is its own. The other session may be in use: what it
    has under way is none of the fork's. Raises SessionNotFound, ConfigError if there is no such
    run.
    """
    copied: list[events.Record] = []
    finished = 0
    for record in journal.records(session):
        if finished == runs and isinstance(record.event, events.RunStarted):
            break
        copied.append(record)
        finished += isinstance(record.event, events.RunFinished)
    if finished < runs:
        raise ConfigError(
            f"there is no finished run {runs}: the session has {finished}",
            hint="give a smaller number",
        )
    copied = _settled(copied)
    opened, name = copied[0], name or token_hex(16)
    if isinstance(opened.event, events.SessionOpened):
        copied[0] = opened._replace(
            event=replace(opened.event, forked=f"{session}:{copied[-1].seq}")
        )
    if store is not None:
        mine, theirs = (
            Scope(opened.tenant, opened.user, session),
            Scope(opened.tenant, opened.user, name),
        )
        for artifact in reversed(store.list(mine)):
            store.put(
                theirs,
                store.pieces(mine, artifact.reference),
                mime=artifact.mime,
                tool=artifact.tool,
            )
    try:
        for run, group in groupby(copied, key=lambda record: record.run):
            part = list(group)
            who = Identity(opened.tenant, opened.user, name, run)
            journal.append(
                name, run, [one.event for one in part], identity=who, at=[one.time for one in part]
            )
    finally:
        journal.release(name)
    return name


def _settled(records: list[events.Record]) -> list[events.Record]:
    """These records, up to a call behind the last run that is still open: else both sessions would
    finish it.
    """
    waiting: dict[str, int] = {}
    for at, record in enumerate(records):
        match record.event:
            case events.DirectCall():
                waiting[record.event.call.id] = at
            case events.RunFinished():
                waiting.clear()
            case events.ToolAnswered():
                waiting.pop(record.event.result.call_id, None)
            case events.CallEvaluated() if record.event.result is not None:
                waiting.pop(record.event.call_id, None)
            case _:
                pass
    return records[: min(waiting.values(), default=len(records))]
