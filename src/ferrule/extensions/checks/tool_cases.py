"""Run the `tests` and `examples` of a tool file, each through the real pipeline.

What a case gets, whoever wrote the file:

* An empty temporary folder as its workspace, with the `files` of the test in it. It is deleted
  afterwards. Nothing of the person's own workspace is in it, so a test states all that it needs and
  a hostile one finds nothing.
* The run's own pipeline: arguments are validated, every built-in is a call through a gate, commands
  run in the sandbox (and are refused where this machine has none). There is no network, no
  environment, nobody to ask, no model and no journal that is kept.
* The built-ins that the test itself answers (`answers`), which then do not run.

An example states no outcome. It passes unless its arguments do not fit or the script itself breaks
(a missing key, a wrong type, time or memory used up). What it does not find in an empty folder is
no fault of the file.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ferrule.core.calls import ErrorType, ToolResult
from ferrule.core.errors import ConfigError, FerruleError, ToolFailed
from ferrule.core.value_class import frozen
from ferrule.engine.agent import Agent
from ferrule.engine.agent_options import Permissions, Storage
from ferrule.engine.plugins.protocol import Parts
from ferrule.engine.web.domains import AllowedDomains
from ferrule.engine.web.fetch import WebClient
from ferrule.extensions.builtins.dispatch import ScriptEnvironment
from ferrule.extensions.starlark.pool import DEFAULT_LIMITS, OutputListener, WorkerPool, shared_pool
from ferrule.extensions.starlark.script import BuiltinHandler, Script, ScriptFailed, ScriptLimits
from ferrule.extensions.tool_files.loading import LoadedTools
from ferrule.extensions.tool_files.tool_file import ToolCase, ToolFile
from ferrule.models.scripted import Scripted
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.tools.definition import Tool

SECONDS = 30.0
"""For one case, unless the file's own timeout is shorter."""
_FAULTS = ("compile", "error", "timeout", "memory", "size", "depth", "ended")
"""Reasons of a failed script that are its own fault, whatever it found."""


@frozen
class CaseOutcome:
    """The outcome of one case.

    `kind` is `test` or `example`; `said` describes a failure; `asked` names the built-ins that ran.
    """

    tool: str
    kind: str
    where: str
    name: str
    passed: bool
    said: str = ""
    asked: tuple[str, ...] = ()


@frozen
class CaseEnvironment:
    """What cases run with: further tools, the resources for a folder, and the worker pool."""

    tools: Sequence[Tool] = ()
    resources: Callable[[Path], Iterable[object]] = lambda folder: ()
    pool: WorkerPool | None = None


async def run_cases(
    file: ToolFile, environment: CaseEnvironment, *, others: Iterable[ToolFile] = ()
) -> list[CaseOutcome]:
    """Run every test and example of a file, one after another.

    `others` are the other tools of the repository.
    """
    if file.script is None:
        return []
    others = [tool for tool in others if tool.name != file.name]
    outcomes = [await _run_case(file, case, environment, others) for case in file.cases]
    for number, example in enumerate(file.examples, 1):
        name = str(example.get("request") or f"example {number}")
        case = ToolCase(file.file, example["arguments"], {}, name=name, expects="")
        outcomes.append(await _run_case(file, case, environment, others, example=True))
    return outcomes


async def _run_case(
    file: ToolFile,
    case: ToolCase,
    bench: CaseEnvironment,
    others: Sequence[ToolFile],
    *,
    example: bool = False,
) -> CaseOutcome:
    watched = _WatchedPool(bench.pool or shared_pool(), file, case)
    with tempfile.TemporaryDirectory(prefix="ferrule-test-") as temporary:
        try:
            folder = _fill(temporary, case.files)
            result = await _call(file, case, bench, others, folder, watched)
            if example:
                failure = _example_failure(result, watched)
            else:
                failure = _test_failure(case, result, watched, folder)
        except FerruleError as error:
            failure = f"it could not be run: {error.detail}"
    asked = [name for name, _ in watched.asked if name not in case.answers]
    return CaseOutcome(
        tool=file.name,
        kind="example" if example else "test",
        where=case.where,
        name=case.name or case.where.rpartition("/")[2],
        passed=not failure,
        said=failure,
        asked=tuple(dict.fromkeys(asked)),
    )


async def _call(
    file: ToolFile,
    case: ToolCase,
    bench: CaseEnvironment,
    others: Sequence[ToolFile],
    folder: Path,
    watched: _WatchedPool,
) -> ToolResult:
    world = ScriptEnvironment(web=WebClient(AllowedDomains(((),))), variables={})
    tools = LoadedTools((file, *others)).make_tools(world, shipped=bench.tools, pool=watched)
    agent = Agent(
        Scripted([]),
        tools,
        workspace=folder,
        # Every tool is allowed: the folder, the sandbox and the closed network confine it.
        permissions=Permissions(allow=[tool.full_name for tool in tools]),
        storage=Storage(journal=SqliteJournal(":memory:")),
        plugins=[Parts(resources=bench.resources(folder))],
    )
    session = agent.session()
    try:
        return await session.call(file.name, **case.arguments)
    finally:
        await session.close()
        await agent.close()
        agent.journal.close()


def _fill(temporary: str, files: Mapping[str, str]) -> Path:
    """Fill the folder of a case with its files. Raises ConfigError if that is impossible."""
    folder = Path(os.path.realpath(temporary))
    for name, text in files.items():
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except (OSError, ValueError) as error:
            raise ConfigError(f"`files`: `{name}` cannot be written: {error}") from error
    return folder


def _test_failure(case: ToolCase, result: ToolResult, watched: _WatchedPool, folder: Path) -> str:
    """Return what is wrong with how a test ended, or ""."""
    if case.expects == "fails":
        wanted = case.fails or ""
        if result.success:
            return case.check_value(result.data)
        if wanted not in (result.error_message or "") and wanted != result.error_type:
            return (
                f"the test should have failed with `{wanted}`, and failed with: "
                f"{result.error_message}"
            )
    elif not result.success:
        return f"the test failed: {result.error_type}: {result.error_message}"
    else:
        failure = case.check_value(result.data)
        if failure:
            return failure
    return _file_failure(case, folder) or _call_failure(case, watched)


def _file_failure(case: ToolCase, folder: Path) -> str:
    for name, wanted in case.leaves.items():
        content = _content(folder, name)
        if content != wanted:
            return f"the test left `{name}` as {content!r}, not {wanted!r}"
    return ""


def _content(folder: Path, name: str) -> str | None:
    # Resolve first: a command of the test may have made a link that leads out, and nothing out
    # there is compared or shown.
    path = Path(os.path.realpath(folder / name))
    if not path.is_relative_to(folder) or not path.is_file():
        return None
    try:
        return path.read_text(encoding="utf-8")
    except ValueError:
        return "(not text)"


def _call_failure(case: ToolCase, watched: _WatchedPool) -> str:
    for name, wanted in case.asks.items():
        calls = [arguments for called, arguments in watched.asked if called == name]
        if not any(arguments[: len(wanted)] == wanted for arguments in calls):
            actual = f"it called it with {calls!r}" if calls else "it never did"
            return f"the test should have called `{name}` with {wanted!r}; {actual}"
    return ""


def _example_failure(result: ToolResult, watched: _WatchedPool) -> str:
    """Return what is the file's own fault in a failed example, or ""."""
    if result.success:
        return ""
    if watched.failed in _FAULTS:
        return f"the example broke the script: {result.error_message}"
    if not watched.failed and result.error_type is ErrorType.VALIDATION_FAILED:
        return f"the example does not fit the parameters: {result.error_message}"
    return ""


@dataclass
class _Record:
    asked: list[tuple[str, list[Any]]] = field(default_factory=list[tuple[str, list[Any]]])
    failed: str = ""


class _WatchedPool(WorkerPool):
    """Runs scripts in another pool for one case, and records what they do.

    Built-ins that the test answers are answered here.
    """

    def __init__(self, pool: WorkerPool, file: ToolFile, case: ToolCase) -> None:
        super().__init__(warm=0)
        self._pool = pool
        self._file = file
        self._case = case
        self._record = _Record()
        self._seconds = min(SECONDS, file.timeout_ms / 1000) if file.timeout_ms else SECONDS

    @property
    def asked(self) -> list[tuple[str, list[Any]]]:
        """Built-ins that the script called, with their positional arguments."""
        return self._record.asked

    @property
    def failed(self) -> str:
        """The reason why the script failed, or ""."""
        return self._record.failed

    async def run(
        self,
        script: Script,
        function: str = "run",
        arguments: Sequence[Any] = (),
        *,
        serve: BuiltinHandler | None = None,
        listener: OutputListener | None = None,
        limits: ScriptLimits = DEFAULT_LIMITS,
        pure: bool = False,
    ) -> Any:
        """Run like `WorkerPool.run`.

        Scripts of other tools, which this one calls, are not watched.
        """
        listener = listener or _ignore_output
        serve = serve or _refuse
        if script != self._file.script:
            return await self._pool.run(
                script,
                function,
                arguments,
                serve=serve,
                listener=listener,
                limits=limits,
                pure=pure,
            )

        async def answer(name: str, positional: Sequence[Any], named: Mapping[str, Any]) -> Any:
            self._record.asked.append((name, list(positional)))
            if name in self._case.answers:
                return self._case.answers[name]
            return await serve(name, positional, named)

        limits = ScriptLimits(self._seconds, limits.memory, limits.result)
        try:
            return await self._pool.run(
                script,
                function,
                arguments,
                serve=answer,
                listener=listener,
                limits=limits,
                pure=pure,
            )
        except ScriptFailed as failed:
            self._record.failed = failed.reason
            raise


async def _refuse(name: str, positional: Sequence[Any], named: Mapping[str, Any]) -> Any:
    raise ToolFailed(ErrorType.PERMISSION_DENIED, f"`{name}` cannot be used here")


def _ignore_output(level: str, text: str, fields: Mapping[str, Any]) -> None:
    """Ignore what a script prints."""
