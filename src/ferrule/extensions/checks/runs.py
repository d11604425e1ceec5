"""Runs what a tool file says of itself: its `tests` and `examples`, each through the real pipeline
in a folder of its own.

What a case gets, whoever wrote the file:

* an empty temporary folder, with the `files` of the test in it, as its workspace; it is deleted
  afterwards. Nothing of the person's own workspace is in it, so a test says all that it needs and a
  hostile one finds nothing;
* the run's own pipeline: arguments are validated, every built-in is a call through a gate, commands
  run in the sandbox (and are refused where this machine has none), there is no network, no
  environment, nobody to ask, no model and no journal that is kept;
* the built-ins that the test itself answers (`answers`), which then do not run.

An example says no outcome. It passes unless its arguments do not fit or the script itself breaks (a
missing key, a wrong type, time or memory used up); what it needs and does not find in an empty
folder is no fault of the file's.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ferrule.core.calls import ErrorType, Result
from ferrule.core.errors import ConfigError, FerruleError, ToolFailed
from ferrule.engine.agent import Agent
from ferrule.engine.agent_options import Permissions, Storage
from ferrule.extensions.builtins.builtins import World
from ferrule.extensions.starlark.pool import STANDARD, Pool, Told, shared
from ferrule.extensions.starlark.script import Bounds, Script, ScriptFailed, Serve
from ferrule.extensions.tool_files.sources import Loaded
from ferrule.extensions.tool_files.tool_file import Case, ToolFile
from ferrule.extensions.web.domains import Domains
from ferrule.extensions.web.fetch import Web
from ferrule.models.scripted import Scripted
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.tools.definition import Tool

SECONDS = 30.0
"""For one case, unless the file's own time is shorter."""
_FAULTS = ("compile", "error", "timeout", "memory", "size", "depth", "ended")
"""Reasons of a failed script that are the script's own, whatever it found."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one case. `kind` is `test` or `example`; `said` says what was wrong; `asked`
    names the built-ins that ran.
    """

    tool: str
    kind: str
    where: str
    name: str
    passed: bool
    said: str = ""
    asked: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Bench:
    """What cases run with: the tools that scripts find beside their own, and the resources for a
    folder.
    """

    tools: Sequence[Tool] = ()
    resources: Callable[[Path], Iterable[object]] = lambda folder: ()
    pool: Pool | None = None


async def run_cases(
    file: ToolFile, bench: Bench, *, beside: Iterable[ToolFile] = ()
) -> list[Outcome]:
    """Every test and example of a file, one after another. `beside` are the other tools of the
    repository.
    """
    if file.script is None:
        return []
    others = [one for one in beside if one.name != file.name]
    found = [await _run_case(file, case, bench, others) for case in file.cases]
    for number, example in enumerate(file.examples, 1):
        name = str(example.get("request") or f"example {number}")
        case = Case(file.file, example["arguments"], {}, name=name, expects="")
        found.append(await _run_case(file, case, bench, others, example=True))
    return found


async def _run_case(
    file: ToolFile, case: Case, bench: Bench, others: Sequence[ToolFile], *, example: bool = False
) -> Outcome:
    watched = _Watched(bench.pool or shared(), file, case)
    kind, name = ("example" if example else "test"), case.name or case.where.rpartition("/")[2]
    with tempfile.TemporaryDirectory(prefix="ferrule-test-") as made:
        try:
            folder = _filled(made, case.files)
            result = await _called(file, case, bench, others, folder, watched)
            said = _fault(result, watched) if example else _wrong(case, result, watched, folder)
        except FerruleError as error:
            said = f"it could not be run: {error.detail}"
    asked = tuple(dict.fromkeys(one for one, _ in watched.asked if one not in case.answers))
    return Outcome(file.name, kind, case.where, name, not said, said, asked)


async def _called(
    file: ToolFile,
    case: Case,
    bench: Bench,
    others: Sequence[ToolFile],
    folder: Path,
    watched: _Watched,
) -> Result:
    world = World(web=Web(Domains(((),))), environment={})
    tools = Loaded("trusted", (file, *others)).make(world, shipped=bench.tools, pool=watched)
    agent = Agent(
        Scripted([]),
        tools,
        workspace=folder,
        # Everything there is here may be used: what confines it is the folder, the sandbox and the
        # closed network.
        permissions=Permissions(allow=[tool.full_name for tool in tools]),
        storage=Storage(journal=SqliteJournal(":memory:")),
        resources=bench.resources(folder),
    )
    session = agent.session()
    try:
        return await session.call(file.name, **case.arguments)
    finally:
        await session.close()
        await agent.close()
        agent.journal.close()


def _filled(made: str, files: Mapping[str, str]) -> Path:
    """The folder of a case with its files. Raises ConfigError where there cannot be such files."""
    folder = Path(made).resolve()
    for name, text in files.items():
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except (OSError, ValueError) as error:
            raise ConfigError(f"`files`: `{name}` cannot be written: {error}") from error
    return folder


def _wrong(case: Case, result: Result, watched: _Watched, folder: Path) -> str:
    """What is wrong with how a test ended, or nothing."""
    if case.expects == "fails":
        wanted = case.fails or ""
        if result.success:
            return case.wrong(result.data)
        if wanted not in (result.error_message or "") and wanted != result.error_type:
            return (
                f"the test should have failed with `{wanted}`, and failed with: "
                f"{result.error_message}"
            )
    elif not result.success:
        return f"the test failed: {result.error_type}: {result.error_message}"
    elif said := case.wrong(result.data):
        return said
    return _left(case, folder) or _unasked(case, watched)


def _left(case: Case, folder: Path) -> str:
    for name, wanted in case.leaves.items():
        # Resolved: a command of the test may have made a link that leads out, and nothing out there
        #     is compared or shown.
        path = (folder / name).resolve()
        try:
            found = (
                path.read_text(encoding="utf-8")
                if path.is_relative_to(folder) and path.is_file()
                else None
            )
        except ValueError:
            found = "(not text)"
        if found != wanted:
            return f"the test left `{name}` as {found!r}, not {wanted!r}"
    return ""


def _unasked(case: Case, watched: _Watched) -> str:
    for name, wanted in case.asks.items():
        seen = [given for one, given in watched.asked if one == name]
        if not any(given[: len(wanted)] == wanted for given in seen):
            said = f"it asked with {seen!r}" if seen else "it never did"
            return f"the test should have asked `{name}` with {wanted!r}; {said}"
    return ""


def _fault(result: Result, watched: _Watched) -> str:
    """What is the file's own fault in a failed example, or nothing."""
    if result.success:
        return ""
    if watched.failed in _FAULTS:
        return f"the example broke the script: {result.error_message}"
    if not watched.failed and result.error_type is ErrorType.VALIDATION_FAILED:
        return f"the example does not fit the parameters: {result.error_message}"
    return ""


@dataclass
class _Notes:
    asked: list[tuple[str, list[Any]]] = field(default_factory=list[tuple[str, list[Any]]])
    failed: str = ""


class _Watched(Pool):
    """Workers of another pool for one case: what the test answers is answered, the rest goes on,
    and all of it is noted.
    """

    def __init__(self, pool: Pool, file: ToolFile, case: Case) -> None:
        super().__init__(warm=0)
        self._pool, self._file, self._case, self._notes = pool, file, case, _Notes()
        self._seconds = min(SECONDS, file.timeout_ms / 1000 if file.timeout_ms else SECONDS)

    @property
    def asked(self) -> list[tuple[str, list[Any]]]:
        """Built-ins that the script asked, with their positional arguments."""
        return self._notes.asked

    @property
    def failed(self) -> str:
        """The reason why the script did not come to its value; empty if it did, or never began."""
        return self._notes.failed

    async def run(
        self,
        script: Script,
        function: str = "run",
        arguments: Sequence[Any] = (),
        *,
        serve: Serve | None = None,
        told: Told | None = None,
        bounds: Bounds = STANDARD,
        pure: bool = False,
    ) -> Any:
        """As `Pool.run`. Scripts of other tools, which this one calls, are not watched."""
        told, serve = told or _silent, serve or _refused
        if script != self._file.script:
            return await self._pool.run(
                script, function, arguments, serve=serve, told=told, bounds=bounds, pure=pure
            )

        async def answered(name: str, positional: Sequence[Any], named: Mapping[str, Any]) -> Any:
            self._notes.asked.append((name, list(positional)))
            if name in self._case.answers:
                return self._case.answers[name]
            return await serve(name, positional, named)

        bounds = Bounds(self._seconds, bounds.memory, bounds.result)
        try:
            return await self._pool.run(
                script, function, arguments, serve=answered, told=told, bounds=bounds, pure=pure
            )
        except ScriptFailed as failed:
            self._notes.failed = failed.reason
            raise


async def _refused(name: str, positional: Sequence[Any], named: Mapping[str, Any]) -> Any:
    raise ToolFailed(ErrorType.PERMISSION_DENIED, f"`{name}` cannot be used here")


def _silent(level: str, text: str, fields: Mapping[str, Any]) -> None:
    """What a script prints in a test is not shown."""
