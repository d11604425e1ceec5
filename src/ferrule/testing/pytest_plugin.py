"""A pytest plugin that runs recorded sessions (`*.ferrule`) and cases (`*.cases.yaml`) as tests.

Each session of a bundle is one test: it is replayed through the installed version, offline, and
must equal the recording byte for byte (`engine.replay.replay`). The fixture `rerun_bundle`
gives the recorded answers to the tools of an agent as they are now:

    def test_the_tools_still_answer_as_recorded(rerun_bundle):
        rerun_bundle("tests/holiday.ferrule", Agent("scripted:none", tools=[holidays]))

It fails with the differences, and otherwise returns the results (`engine.replay.rerun.RerunReport`,
one per session).

Each case of a file of cases (`ferrule.evaluation`) is one test for each model: of `*.cases.yaml`,
and of any YAML file with `cases` that is named on the command line. The models are those of
`--ferrule-model`, else the file's `models`; a case with a recording is run offline if there are
none, or with `--ferrule-offline`. The fixture `evaluate_cases` runs a file with an agent of the
program's own:

    def test_the_agent_passes_its_cases(evaluate_cases):
        evaluate_cases("tests/shop.cases.yaml", make_agent, "openai:gpt-5.2")

The plugin is enabled by name, with `-p ferrule.testing.pytest_plugin` or in the
root `conftest.py`; an entry point would load it in every pytest that sees Ferrule's metadata.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ferrule.core.events import JournalRecord
from ferrule.engine.agent import Agent
from ferrule.engine.replay.recording import Recording
from ferrule.engine.replay.replay import replay
from ferrule.engine.replay.rerun import RerunReport, rerun
from ferrule.evaluation.case_files import CaseFile, load_cases
from ferrule.evaluation.cases import Case
from ferrule.evaluation.evaluation import EvaluationOptions, evaluate
from ferrule.evaluation.output_checks import CheckFunctions
from ferrule.evaluation.report import Report
from ferrule.evaluation.trials import Target, TrialSetup, open_agents
from ferrule.runtime.trial_agents import make_judge, open_assembled_agents
from ferrule.storage.export.bundles import read_recording

SUFFIX = ".ferrule"
CASE_SUFFIXES = (".cases.yaml", ".cases.yml")


class ReplayFailed(AssertionError):
    """Raised when a session differs from its recording."""


class CaseFailed(AssertionError):
    """Raised when not enough trials of a case passed."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options for cases."""
    group = parser.getgroup("ferrule", "cases of Ferrule")
    group.addoption("--ferrule-model", action="append", default=[], help="Model. Repeatable.")
    group.addoption(
        "--ferrule-tool-mode", action="append", default=[], help="Tool mode. Repeatable."
    )
    group.addoption("--ferrule-trials", type=int, help="How often each case is run.")
    group.addoption("--ferrule-judge", default="", help="Model that judges by rubrics.")
    group.addoption(
        "--ferrule-offline", action="store_true", help="Run cases from their recordings."
    )


def make_node(kind: type[Any], parent: pytest.Collector, **more: Any) -> Any:
    """Make a pytest node; the parameters of pytest's own constructor have no types."""
    return kind.from_parent(parent, **more)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.File | None:
    """Collect bundles and files of cases as test files."""
    if file_path.suffix == SUFFIX and file_path.is_file():
        return make_node(BundleFile, parent, path=file_path)
    if file_path.name.endswith(CASE_SUFFIXES) or _is_named_case_file(file_path, parent):
        return make_node(CasesFile, parent, path=file_path)
    return None


def _is_named_case_file(path: Path, parent: pytest.Collector) -> bool:
    """Whether a file that is named on the command line has cases; other YAML is not ours."""
    if path.suffix not in (".yaml", ".yml") or not parent.session.isinitpath(path):
        return False
    return re.search(r"^cases:", path.read_text(encoding="utf-8"), re.MULTILINE) is not None


class BundleFile(pytest.File):
    """A bundle of recorded sessions."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield a test for each session. A bundle that cannot be read fails as a whole."""
        for records in read_recording(self.path):
            session: RecordedSession = make_node(RecordedSession, self, name=records[0].session)
            session.records = records
            yield session


class RecordedSession(pytest.Item):
    """A recorded session of a bundle."""

    records: list[JournalRecord]

    def runtest(self) -> None:
        """Replay the session and compare it with its recording."""
        replayed = replay(self.records)
        if not replayed.same:
            raise ReplayFailed("; ".join(str(difference) for difference in replayed.differences))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return one line with the differences."""
        if isinstance(excinfo.value, ReplayFailed):
            return f"session {self.name}: {excinfo.value}"
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Return the bundle as the place of the test."""
        return self.path, None, f"session {self.name}"


class CasesFile(pytest.File):
    """A file of cases."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield a test for each case and each model. A file with mistakes fails as a whole."""
        file = load_cases(self.path)
        for case in file.cases:
            for target in self._choose_targets(file, case):
                name = case.name if target is None else f"{case.name}[{target.name}]"
                item: CaseItem = make_node(CaseItem, self, name=name)
                item.file = replace(file, cases=(case,))
                item.target = target
                yield item

    def _choose_targets(self, file: CaseFile, case: Case) -> list[Target | None]:
        """Return what runs the case; None stands for its recording."""
        option = self.config.getoption
        models = option("--ferrule-model") or file.models
        if option("--ferrule-offline") or (not models and case.recording is not None):
            return [None]
        modes = option("--ferrule-tool-mode") or file.tool_modes or ("auto",)
        return [Target(model, mode) for model in models or ("",) for mode in modes]


class CaseItem(pytest.Item):
    """A case, run by one model or from its recording."""

    file: CaseFile
    target: Target | None

    def runtest(self) -> None:
        """Run the trials of the case, and fail if not enough of them passed."""
        option = self.config.getoption
        judge = option("--ferrule-judge") or self.file.judge
        options = EvaluationOptions(
            option("--ferrule-trials"),
            # What pytest runs may run: the project's own code stands beside its cases.
            functions=CheckFunctions(None),
            judge=make_judge(judge) if judge else "",
        )
        if self.target is None:
            if self.file.cases[0].recording is None:
                pytest.skip("it has no recording, and --ferrule-offline asks no model")
            report = asyncio.run(evaluate(self.file, (), None, options))
        elif not self.target.model:
            raise CaseFailed("no model is named: give --ferrule-model, or `models` in the file")
        else:
            opened = open_assembled_agents(
                lambda text: self.add_report_section("call", "log", text)
            )
            report = asyncio.run(evaluate(self.file, [self.target], opened, options))
        _require(report)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return a line for each expectation that does not hold."""
        if isinstance(excinfo.value, CaseFailed):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return the case's place in the file."""
        return self.path, max(0, self.file.cases[0].line - 1), self.name


def _require(report: Report) -> None:
    """Raise CaseFailed if a report does not hold, with the failures of each trial."""
    if report.holds:
        return
    lines: list[str] = []
    for target in report.targets:
        for case in target.cases:
            if case.holds:
                continue
            lines.append(f"{case.name}: {case.passed} of {len(case.trials)} trials passed")
            for number, trial in enumerate(case.trials, 1):
                lines += [f"  trial {number}: {failure}" for failure in trial.failures]
    raise CaseFailed("\n".join(lines) or "not enough trials passed")


@pytest.fixture
def evaluate_cases() -> Callable[..., Report]:
    """Run a file of cases with agents of the program, and fail if they do not hold.

    The function takes the file, a function that makes an agent of a `TrialSetup` (see
    `evaluation.trials.open_agents`), the model's name, and options of `EvaluationOptions`.
    """

    def evaluate_cases(
        path: str | Path,
        make_agent: Callable[[TrialSetup], Agent[Any, Any]],
        model: str,
        **options: Any,
    ) -> Report:
        chosen = EvaluationOptions(functions=CheckFunctions(None), **options)
        cases = load_cases(path)
        report = asyncio.run(evaluate(cases, [Target(model)], open_agents(make_agent), chosen))
        _require(report)
        return report

    return evaluate_cases


@pytest.fixture
def rerun_bundle() -> Callable[[str | Path, Agent[Any, Any]], list[RerunReport]]:
    """Rerun the sessions of a bundle with recorded answers and the agent's own tools.

    Fails if the tools answer differently.
    """

    def rerun_bundle(path: str | Path, agent: Agent[Any, Any]) -> list[RerunReport]:
        async def again() -> list[RerunReport]:
            sessions = read_recording(Path(path))
            return [await rerun(Recording.of(records), agent, tools="live") for records in sessions]

        seen = asyncio.run(again())
        different = [
            call for one in seen for run in one.runs for call in run.calls if not call.same
        ]
        if different or not all(one.same for one in seen):
            lines = [
                (
                    f"{call.call}\n  -> {call.result}\nrecorded {call.recorded_call}\n  -> "
                    f"{call.recorded_result}"
                )
                for call in different
            ]
            raise ReplayFailed("\n".join(lines) or "the runs ended otherwise")
        return seen

    return rerun_bundle
