"""Rewind: a session goes back to the end of one of its runs, with the files that its tools changed.

    point = rewind_plan(records, 2)                # what tools changed after the second run
    done = put_back(point, workspace, store, scope)
    again = fork(journal, session, 2, store)       # the history up to there, as another session

The session itself stays in the journal as it was: nothing is ever removed from it. A file is
restored only if its content is one that the session saw or made at some time; otherwise it is left
alone and named, unless `force` says otherwise. See `file_copies` and `snapshots` for what is not
covered.

Whoever calls `restore_files` must hold the session's lease (`Journal.lease`), so that no other
process works in these files meanwhile, and must bring a workspace that refuses what the person's
settings protect.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import groupby
from secrets import token_hex

from ferrule.core import events
from ferrule.core.errors import ConfigError, FerruleError, ToolFailed
from ferrule.core.identity import Identity
from ferrule.core.value_class import frozen
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.storage.artifacts.store import ArtifactMissing, ArtifactStore, Scope
from ferrule.storage.journal.protocols import Journal

from .states import BEYOND, NOTHING, parse_content, read_state


@frozen
class RewindPoint:
    """The end of a run.

    Attributes:
        wanted: The state of each path then, as in `states`.
        known: The states that the session saw or left there since.
        uncovered: How many calls since may have changed files of which there is no copy: those of
            tools that do not say what they write, and commands of which there was no snapshot.
    """

    wanted: dict[str, str]
    known: dict[str, set[str]]
    uncovered: int


@dataclass(slots=True)
class RestoreReport:
    """The paths that were restored, and those that were left alone with the reason."""

    restored: list[str] = field(default_factory=list[str])
    left_alone: dict[str, str] = field(default_factory=dict[str, str])


def plan_rewind(records: Iterable[events.JournalRecord], runs: int) -> RewindPoint:
    """Plan what to restore to be at the end of run number `runs` (0: before the first).

    Raises ConfigError if there is no such run.
    """
    finished = 0
    begun = 0
    point = RewindPoint({}, {}, 0)
    started: set[str] = set()
    kept: set[str] = set()
    for record in records:
        event = record.event
        if isinstance(event, events.RunStarted):
            begun += 1
        elif isinstance(event, events.RunFinished):
            finished += 1
        elif begun > runs:
            _add_event(point, event)
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


def _add_event(point: RewindPoint, event: events.Event) -> None:
    if not isinstance(event, events.FilesSeen):
        return
    for path, seen in zip(event.paths, event.states, strict=True):
        if event.when == "before":
            point.wanted.setdefault(path, seen)
        else:
            # Created by a tool below a path that it named: it was not there before.
            point.wanted.setdefault(path, NOTHING)
            point.known.setdefault(path, {NOTHING})
        point.known.setdefault(path, set()).add(seen)


def restore_files(
    point: RewindPoint,
    workspace: Workspace,
    store: ArtifactStore,
    scope: Scope,
    *,
    force: bool = False,
    dry: bool = False,
) -> RestoreReport:
    """Restore every path; with `dry` only report what would be done.

    Folders are created first and removed last.
    """
    done = RestoreReport()
    wanted = sorted(point.wanted.items())
    present = [one for one in wanted if one[1] != NOTHING]
    absent = [one for one in reversed(wanted) if one[1] == NOTHING]
    for path, seen in [*present, *absent]:
        now = read_state(workspace, path, None)
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
            why = _restore(path, seen, now, workspace, store, scope, dry=dry)
            if why:
                done.left_alone[path] = why
            else:
                done.restored.append(path)
        except ArtifactMissing:
            done.left_alone[path] = "its content is no longer kept"
        except (ToolFailed, FerruleError, OSError) as error:
            done.left_alone[path] = str(error)
    return done


def _restore(
    path: str,
    wanted: str,
    now: str,
    workspace: Workspace,
    store: ArtifactStore,
    scope: Scope,
    *,
    dry: bool,
) -> str:
    """Restore one path. Return why that is not possible, or ""."""
    workspace.check_name(path, write=True)
    content = parse_content(wanted)
    if wanted.startswith(("large:", "link", "other")) or now in ("link", "other"):
        return f"it was not kept ({wanted or now})"
    if content is not None:
        digest, executable = content
        artifact = store.find(scope, f"art-{digest}")
        if not dry:
            data = store.read(scope, artifact.reference, 0, artifact.size)
            folder = path.rpartition("/")[0]
            if folder:
                workspace.make_dir(folder)
            if now == "dir":
                workspace.delete(path)
            workspace.write(path, data)
            workspace.set_executable(path, executable)
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
    """Create a session with another one's history up to the end of run number `runs`.

    Times are the recorded ones; artifacts are copied. The other session may be in use: what it has
    under way is not copied.

    Args:
        journal: The journal of both sessions.
        session: The session to copy.
        runs: The number of its last run to copy.
        store: The store of the session's artifacts.
        name: The id of the new session; by default a random one.

    Returns:
        The id of the new session.

    Raises:
        SessionNotFound: There is no such session.
        ConfigError: There is no such run.
    """
    copied: list[events.JournalRecord] = []
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
    copied = _trim_open(copied)
    opened = copied[0]
    name = name or token_hex(16)
    if isinstance(opened.event, events.SessionOpened):
        copied[0] = opened._replace(
            event=replace(opened.event, forked=f"{session}:{copied[-1].seq}")
        )
    if store is not None:
        source = Scope(opened.tenant, opened.user, session)
        target = Scope(opened.tenant, opened.user, name)
        for artifact in reversed(store.list(source)):
            store.put(
                target,
                store.read_chunks(source, artifact.reference),
                mime=artifact.mime,
                tool=artifact.tool,
            )
    try:
        for run, group in groupby(copied, key=lambda record: record.run):
            part = list(group)
            who = Identity(opened.tenant, opened.user, name, run)
            journal.append(
                name,
                run,
                [one.event for one in part],
                identity=who,
                times=[one.time for one in part],
            )
    finally:
        journal.release(name)
    return name


def _trim_open(records: list[events.JournalRecord]) -> list[events.JournalRecord]:
    """Return the records up to the first call behind the last run that is still open.

    Otherwise both sessions would finish it.
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
