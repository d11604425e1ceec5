"""Run one trial: a case, worked through a session of an agent in a throw-away workspace."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ferrule.core.errors import ConfigError, FerruleError, ProviderError, ToolFailed
from ferrule.core.events import DelegationStarted, JournalRecord
from ferrule.core.media import Media
from ferrule.core.value_class import frozen
from ferrule.engine.agent import Agent
from ferrule.engine.replay.replay import replay
from ferrule.engine.rewind.states import read_state
from ferrule.permissions.approvals import ApprovalAnswer, ApprovalRequest, Approver, DenyingApprover
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.storage.export.bundles import read_recording, write_bundle
from ferrule.storage.journal.protocols import Journal
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.storage.settings.table import ToolModeSetting
from ferrule.tools.media_types import MAX_BYTES

from .call_matching import matches_call
from .cases import Case
from .evidence import Evidence, MadeCall, ToolFacts, read_evidence, read_tool_facts

RECORDING = "recording"
"""The model's name in reports about cases that were run from their recordings."""
_SCRIPTED = "scripted:"


@frozen
class Target:
    """What is evaluated: a model, and how it calls tools."""

    model: str
    tool_mode: ToolModeSetting = "auto"

    @property
    def name(self) -> str:
        """Its name in reports."""
        return self.model if self.tool_mode == "auto" else f"{self.model} ({self.tool_mode})"

    @property
    def is_repeatable(self) -> bool:
        """Whether it always does the same, so that every difference is one."""
        return self.model == RECORDING or self.model.startswith(_SCRIPTED)

    def model_for(self, case: Case) -> str:
        """Return the model's name for a case: a file of scripts has one for each."""
        if self.model.startswith(_SCRIPTED) and "#" not in self.model:
            return f"{self.model}#{case.name}"
        return self.model


@frozen
class TrialSetup:
    """What the agent of a trial is made with.

    Attributes:
        target: What is evaluated.
        case: The case.
        workspace: The throw-away folder, with the case's files in it.
        approver: Approves the calls that the case names, and no other.
        journal: Where its sessions must be kept.
    """

    target: Target
    case: Case
    workspace: Path
    approver: Approver
    journal: Journal


OpenAgent = Callable[[TrialSetup], AbstractAsyncContextManager[Agent[Any, Any]]]
"""Makes the agent of a trial, and closes it afterwards."""


def open_agents(make: Callable[[TrialSetup], Agent[Any, Any]]) -> OpenAgent:
    """Return an `OpenAgent` for a function that makes an agent.

    open_agents(
        lambda trial: Agent(
            trial.target.model,
            tools=[stock],
            permissions=Permissions(approver=trial.approver),
            storage=Storage(journal=trial.journal),
        )
    )
    """

    @asynccontextmanager
    async def open_agent(setup: TrialSetup) -> AsyncGenerator[Agent[Any, Any]]:
        agent = make(setup)
        try:
            yield agent
        except BaseException:
            # What went wrong first is what the person must read.
            with suppress(FerruleError):
                await agent.close()
            raise
        await agent.close()

    return open_agent


class CaseApprover:
    """Approves the calls that a case says are approved. Nobody is asked about the others."""

    def __init__(self, case: Case) -> None:
        self._case = case

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Answer for the case; critical risk is never approved, whatever it says."""
        call = MadeCall(request.tool.full_name, request.values)
        facts = read_tool_facts([request.tool])
        is_possible = request.risk != "critical" and not request.has_unknown_outcome
        if is_possible and any(matches_call(one, call, facts) for one in self._case.approve):
            return ApprovalAnswer("once", by=f"case {self._case.name}")
        return await DenyingApprover().ask(request)


async def run_trial(
    target: Target, case: Case, open_agent: OpenAgent, *, record: Path | None = None
) -> Evidence:
    """Work a case once, and return what happened.

    Args:
        target: What is evaluated.
        case: The case.
        open_agent: Makes the agent.
        record: A new file for the recording of the trial; None for none.

    Raises:
        ConfigError: The agent cannot be made, or the case asks for what cannot be.
    """
    with tempfile.TemporaryDirectory(prefix="ferrule-trial-") as folder:
        root = Path(folder) / "workspace"
        await asyncio.to_thread(_fill_workspace, case, root)
        with SqliteJournal(":memory:") as journal:
            setup = TrialSetup(target, case, root, CaseApprover(case), journal)
            return await _work(setup, open_agent, record)


def _fill_workspace(case: Case, root: Path) -> None:
    if case.fixture is None:
        root.mkdir()
        return
    try:
        # Links stay links: what they lead to lies outside, where no tool reads.
        shutil.copytree(case.fixture, root, symlinks=True)
    except (OSError, shutil.Error) as error:
        raise ConfigError(
            f"case `{case.name}`: `{case.fixture}` cannot be copied: {error}"
        ) from error


async def _work(setup: TrialSetup, open_agent: OpenAgent, record: Path | None) -> Evidence:
    case = setup.case
    workspace = Workspace(setup.workspace)
    try:
        before = _read_states(workspace) if case.never.changes else {}
        began = time.monotonic()
        async with open_agent(setup) as agent:
            if agent.journal is not setup.journal:
                raise ConfigError(
                    "the agent of a trial keeps its events elsewhere",
                    hint="make it with `storage=Storage(journal=trial.journal)`",
                )
            session, tools, error = await _run_messages(agent, case)
        seconds = time.monotonic() - began
        names = [session, *_list_sub_agents(setup.journal, session)]
        if record is not None and names[0]:
            write_bundle(record, setup.journal, names)
        found = [list(setup.journal.records(name)) for name in names] if session else []
        evidence = read_evidence(
            found,
            changes=_find_changes(workspace, before, case),
            files=_read_files(workspace, case),
            tools=tools,
            seconds=seconds,
        )
        return _with_error(evidence, error)
    finally:
        workspace.close()


async def _run_messages(
    agent: Agent[Any, Any], case: Case
) -> tuple[str, Mapping[str, ToolFacts], FerruleError | None]:
    """Work the messages. Return the session's id ("" if nothing was recorded), and an error."""
    session = agent.session()
    session.change(limits=replace(session.limits, **case.limits))
    error = None
    try:
        for number, message in enumerate(case.messages):
            attached = [_read_attached(path) for path in case.attach] if number == 0 else []
            await session.run([message, *attached] if attached else message)
    except ConfigError:
        raise
    except FerruleError as raised:
        error = raised
    finally:
        tools = read_tool_facts(session.catalog)
        await session.close()
    return session.id if session.is_recorded else "", tools, error


def _read_attached(path: Path) -> Media:
    """Read a file that goes with a message. A file with a protected name is not read."""
    folder = Workspace(path.parent)
    try:
        return Media(folder.read(path.name, limit=MAX_BYTES), name=path.name)
    except ToolFailed as error:
        raise ConfigError(f"a case attaches `{path}`: {error.message}", code="cases") from error
    finally:
        folder.close()


def _with_error(evidence: Evidence, error: FerruleError | None) -> Evidence:
    if error is None:
        return evidence
    return replace(
        evidence,
        code=evidence.code or error.code,
        detail=evidence.detail or error.detail,
        model_failed=isinstance(error, ProviderError),
    )


def _list_sub_agents(journal: Journal, session: str) -> Iterator[str]:
    """Yield the sessions of sub-agents, and of theirs."""
    for record in journal.records(session) if session else ():
        if isinstance(record.event, DelegationStarted):
            yield record.event.session
            yield from _list_sub_agents(journal, record.event.session)


# ---- files


def _read_states(workspace: Workspace) -> dict[str, str]:
    try:
        return {
            entry.path: read_state(workspace, entry.path, None)
            for entry in workspace.walk(hidden=True)
        }
    except ToolFailed as error:
        raise ConfigError(
            f"the files of a trial cannot be compared: {error.message}",
            hint="use a smaller fixture, or leave out `never.changes`",
        ) from error


def _find_changes(workspace: Workspace, before: Mapping[str, str], case: Case) -> tuple[str, ...]:
    if not case.never.changes:
        return ()
    after = _read_states(workspace)
    names = sorted({*before, *after})
    return tuple(name for name in names if before.get(name) != after.get(name))


def _read_files(workspace: Workspace, case: Case) -> dict[str, str | None]:
    files: dict[str, str | None] = {}
    for name in case.expect.files:
        try:
            files[name] = workspace.read_text(name)
        except (ToolFailed, OSError):
            files[name] = None
    return files


# ---- recordings


def read_recorded_evidence(case: Case) -> tuple[Evidence, list[str]]:
    """Return what a case's recording says, and how its replay differs from it.

    Raises:
        ConfigError: The case has no recording, or it cannot be read.
    """
    if case.recording is None:
        raise ConfigError(f"case `{case.name}` has no recording")
    try:
        sessions: list[list[JournalRecord]] = list(read_recording(case.recording))
    except OSError as error:
        raise ConfigError(f"`{case.recording}` cannot be read: {error.strerror}") from error
    differences = [
        f"session {report.session}: {difference}"
        for report in map(replay, sessions)
        for difference in report.differences
    ]
    return read_evidence(sessions), differences
