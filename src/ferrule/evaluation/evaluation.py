"""Run the cases of a file by each target, as often as wanted, and report about it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from ferrule._version import __version__
from ferrule.core.errors import ConfigError, ProviderError
from ferrule.core.value_class import frozen
from ferrule.models.client import ModelClient

from .case_files import CaseFile
from .cases import Case
from .judging import Failure, Judges, judge_trial
from .model_judge import ModelJudge
from .output_checks import CheckFunctions
from .report import CaseReport, JudgeUse, Report, TargetReport, Trial
from .trials import RECORDING, OpenAgent, Target, read_recorded_evidence, run_trial


@frozen
class TrialDone:
    """Progress: a trial has ended."""

    target: str
    case: str
    passed: bool
    done: int
    of: int
    passed_so_far: int


@dataclass(slots=True)
class EvaluationOptions:
    """How cases are run.

    Attributes:
        trials: How often each case is run; None for what the file says.
        at_least: The share of all trials that must pass; None for what the file says.
        jobs: How many trials run at once.
        functions: The functions that cases may name.
        judge: The model that judges by rubrics; "" for the one that the file names.
        only: Patterns for names of cases (`*` is a wildcard); empty for all.
        record: A folder for recordings of the trials; None for none.
        progress: Is told when a trial has ended.
    """

    trials: int | None = None
    at_least: float | None = None
    jobs: int = 1
    functions: CheckFunctions = field(default_factory=CheckFunctions)
    judge: str | ModelClient = ""
    only: Sequence[str] = ()
    record: Path | None = None
    progress: Callable[[TrialDone], None] | None = None


async def evaluate(
    file: CaseFile,
    targets: Iterable[Target],
    open_agent: OpenAgent | None,
    options: EvaluationOptions | None = None,
) -> Report:
    """Run cases, and report how often they passed.

    Args:
        file: The cases.
        targets: What is evaluated.
        open_agent: Makes the agent of a trial; None runs the cases from their recordings, without
            any model.
        options: How they are run.

    Raises:
        ConfigError: No case is left, a case names what cannot be had, or no agent can be made.
    """
    options = options or EvaluationOptions()
    cases = select_cases(file, options.only)
    run = _Evaluation(file, open_agent, options)
    skipped: tuple[str, ...] = ()
    if open_agent is None:
        skipped = tuple(case.name for case in cases if case.recording is None)
        cases = [case for case in cases if case.recording is not None]
        targets = [Target(RECORDING)]
    chosen = list(dict.fromkeys(targets))
    run.check(cases, chosen)
    try:
        reports = await run.run_targets(chosen, cases)
    finally:
        if run.judges.model is not None:
            await run.judges.model.close()
    made = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    at_least = options.at_least if options.at_least is not None else file.at_least
    return Report(
        str(file.path), made, __version__, reports, at_least, skipped, _count_use(run.judges.model)
    )


def select_cases(file: CaseFile, only: Sequence[str]) -> list[Case]:
    """Return the cases whose names match. Raises ConfigError if a pattern matches none."""
    for pattern in only:
        if not any(fnmatchcase(case.name, pattern) for case in file.cases):
            raise ConfigError(
                f"no case of `{file.path}` is called `{pattern}`",
                hint=f"there are: {', '.join(case.name for case in file.cases[:20])}",
            )
    return [
        case
        for case in file.cases
        if not only or any(fnmatchcase(case.name, pattern) for pattern in only)
    ]


def _count_use(judge: ModelJudge | None) -> JudgeUse | None:
    if judge is None:
        return None
    return JudgeUse(judge.model, judge.usage.input, judge.usage.output, judge.cost)


class _Evaluation:
    def __init__(
        self, file: CaseFile, open_agent: OpenAgent | None, options: EvaluationOptions
    ) -> None:
        self._file = file
        self._open_agent = open_agent
        self._options = options
        self._trials = 1 if open_agent is None else options.trials or file.trials
        self._done = 0
        self._passed = 0
        self._of = 0
        self._free = asyncio.Semaphore(max(1, options.jobs))
        self.judges = Judges(options.functions)

    def check(self, cases: Sequence[Case], targets: Sequence[Target]) -> None:
        """Raise ConfigError for what would only show after hours."""
        if not cases:
            raise ConfigError(
                "no case is left to run", hint="only cases with a `recording` run offline"
            )
        if not targets:
            raise ConfigError("no model is named", hint="name one with `-m`, or under `models`")
        for case in cases:
            for text in (case.expect.output, *case.expect.files.values()):
                if text is not None and text.function:
                    self._options.functions.load(text.function)
        if any(case.expect.output.judge for case in cases):
            judge = self._options.judge or self._file.judge
            if not judge:
                raise ConfigError(
                    "cases are judged by a rubric, and no model is named that judges",
                    hint="name one with --judge, or under `judge`",
                )
            self.judges.model = ModelJudge(judge, self._file.rubrics)
        if self._options.record is not None:
            self._options.record.mkdir(parents=True, exist_ok=True)

    async def run_targets(
        self, targets: Sequence[Target], cases: Sequence[Case]
    ) -> tuple[TargetReport, ...]:
        self._of = len(targets) * len(cases) * self._trials
        return tuple([await self._run_target(target, cases) for target in targets])

    async def _run_target(self, target: Target, cases: Sequence[Case]) -> TargetReport:
        wanted = [(case, number) for case in cases for number in range(self._trials)]
        tasks = [
            asyncio.create_task(self._run_trial(target, case, number)) for case, number in wanted
        ]
        try:
            trials = iter(await asyncio.gather(*tasks))
        finally:
            # After an error, or Ctrl-C, no other trial goes on.
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        reports = tuple(
            CaseReport(
                case.name,
                case.digest(),
                case.at_least,
                tuple(next(trials) for _ in range(self._trials)),
            )
            for case in cases
        )
        return TargetReport(target.model, target.tool_mode, target.is_repeatable, reports)

    async def _run_trial(self, target: Target, case: Case, number: int) -> Trial:
        async with self._free:
            if self._open_agent is None:
                trial = await self._run_offline(case)
            else:
                trial = await self._run_live(target, case, number)
        self._report_progress(target, case, trial)
        return trial

    async def _run_live(self, target: Target, case: Case, number: int) -> Trial:
        assert self._open_agent is not None
        try:
            evidence = await run_trial(
                target, case, self._open_agent, record=self._choose_file(target, case, number)
            )
        except ProviderError as error:
            # Closing the model can fail, too: a script that was not used up, for example.
            failure = Failure("stop", f"{error.code}: {error.detail}")
            return Trial(False, (str(failure),), error=error.code, model_failed=True)
        verdict = await judge_trial(case, evidence, self.judges)
        return Trial.of(evidence, verdict)

    async def _run_offline(self, case: Case) -> Trial:
        evidence, differences = read_recorded_evidence(case)
        verdict = await judge_trial(case, evidence, self.judges)
        verdict.failures += [Failure("replay", one) for one in differences]
        return Trial.of(evidence, verdict)

    def _choose_file(self, target: Target, case: Case, number: int) -> Path | None:
        folder = self._options.record
        if folder is None:
            return None
        words = f"{target.name}-{case.name}-{number + 1}"
        safe = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in words)
        path = folder / f"{safe[:120]}.ferrule"
        if path.exists():
            raise ConfigError(f"`{path}` exists already", hint="give --record an empty folder")
        return path

    def _report_progress(self, target: Target, case: Case, trial: Trial) -> None:
        self._done += 1
        self._passed += trial.passed
        if self._options.progress is not None:
            done = TrialDone(
                target.name, case.name, trial.passed, self._done, self._of, self._passed
            )
            self._options.progress(done)
