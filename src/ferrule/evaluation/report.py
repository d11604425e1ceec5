"""Reports: how often the cases of a file passed, for each target, and why not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from statistics import median
from typing import Any, TypeVar, cast

from ferrule.core.calls import encode_json, parse_json
from ferrule.core.errors import ConfigError
from ferrule.core.value_class import frozen

from .evidence import Evidence
from .judging import Verdict
from .statistics import effective_trials, wilson_interval

FORMAT = 1
_KIND = "ferrule.evaluation"
_MAX_TEXT = 2_000
T = TypeVar("T")


@frozen
class Trial:
    """One trial: whether it passed, why not, and what it used."""

    passed: bool
    failures: tuple[str, ...] = ()
    unjudged: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    output: str = ""
    stop: str = ""
    error: str = ""
    turns: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
    seconds: float | None = None
    model_failed: bool = False

    @classmethod
    def of(cls, evidence: Evidence, verdict: Verdict) -> Trial:
        """Return the report about what happened and how it was judged."""
        return cls(
            not verdict.failures,
            tuple(str(failure)[:_MAX_TEXT] for failure in verdict.failures),
            tuple(verdict.unjudged),
            tuple(f"{call} -> {call.outcome}"[:_MAX_TEXT] for call in evidence.calls),
            evidence.output[:_MAX_TEXT],
            evidence.stop,
            evidence.code,
            evidence.turns,
            evidence.input_tokens,
            evidence.output_tokens,
            evidence.cost,
            evidence.seconds,
            evidence.model_failed,
        )


@frozen
class CaseReport:
    """The trials of a case."""

    name: str
    digest: str
    at_least: float
    trials: tuple[Trial, ...]

    @property
    def passed(self) -> int:
        """How many trials passed."""
        return sum(trial.passed for trial in self.trials)

    @property
    def holds(self) -> bool:
        """Whether enough of them passed."""
        return bool(self.trials) and self.passed >= self.at_least * len(self.trials)

    @property
    def is_uniform(self) -> bool:
        """Whether all trials did exactly the same."""
        return len({(trial.calls, trial.output) for trial in self.trials}) <= 1


@frozen
class TargetReport:
    """The cases of one target."""

    model: str
    tool_mode: str
    is_repeatable: bool
    cases: tuple[CaseReport, ...]

    @property
    def name(self) -> str:
        """The target's name."""
        return self.model if self.tool_mode == "auto" else f"{self.model} ({self.tool_mode})"

    @property
    def trials(self) -> list[Trial]:
        """The trials of all cases."""
        return [trial for case in self.cases for trial in case.trials]

    @property
    def passed(self) -> int:
        """How many trials passed."""
        return sum(trial.passed for trial in self.trials)

    @property
    def share(self) -> float:
        """The share of trials that passed."""
        return self.passed / len(self.trials) if self.trials else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the share, with trials of a case counted for what they are worth."""
        worth = effective_trials([(case.passed, len(case.trials)) for case in self.cases])
        return wilson_interval(self.share * worth, worth)

    @property
    def cost(self) -> float | None:
        """US dollars of all trials; None if a price is not known."""
        costs = [trial.cost for trial in self.trials]
        return None if None in costs else sum(cast("list[float]", costs))

    @property
    def tokens(self) -> tuple[int, int]:
        """Tokens that the models were sent, and that they wrote."""
        return (
            sum(trial.input_tokens for trial in self.trials),
            sum(trial.output_tokens for trial in self.trials),
        )

    @property
    def seconds(self) -> float | None:
        """The median of the seconds of a trial; None if none was measured."""
        measured = [trial.seconds for trial in self.trials if trial.seconds is not None]
        return median(measured) if measured else None


@frozen
class JudgeUse:
    """What a model as judge used."""

    model: str
    input_tokens: int
    output_tokens: int
    cost: float | None


@frozen
class Report:
    """An evaluation.

    Attributes:
        file: The file of cases.
        made: When it ended, in UTC, as ISO 8601.
        version: The version of Ferrule.
        targets: What was evaluated.
        at_least: The share of all trials of a target that had to pass; None: each case decided.
        skipped: Cases that were not run, since they have no recording.
        judge: What the judge used; None if there was none.
    """

    file: str
    made: str
    version: str
    targets: tuple[TargetReport, ...]
    at_least: float | None = None
    skipped: tuple[str, ...] = ()
    judge: JudgeUse | None = None

    @property
    def is_unanswered(self) -> bool:
        """Whether no trial had a model that answered."""
        trials = [trial for target in self.targets for trial in target.trials]
        return bool(trials) and all(trial.model_failed for trial in trials)

    @property
    def holds(self) -> bool:
        """Whether enough trials passed: of each target, or of each case."""
        if not any(target.trials for target in self.targets):
            return False
        if self.at_least is not None:
            return all(target.share >= self.at_least for target in self.targets)
        return all(case.holds for target in self.targets for case in target.cases)

    def to_json(self) -> str:
        """Return it as JSON, with what is computed beside what was counted."""
        body: dict[str, Any] = {"kind": _KIND, "v": FORMAT, "holds": self.holds, **asdict(self)}
        for target, written in zip(self.targets, body["targets"], strict=True):
            written["passed"] = target.passed
            written["interval"] = list(target.interval)
            for case, row in zip(target.cases, written["cases"], strict=True):
                row["passed"] = case.passed
                row["interval"] = list(wilson_interval(case.passed, len(case.trials)))
        return encode_json(body)

    @classmethod
    def from_json(cls, text: str | bytes, where: str = "the report") -> Report:
        """Read what `to_json` wrote; members that are not known are left out.

        Raises:
            ConfigError: It is no report, or a newer one.
        """
        try:
            body: Any = parse_json(text)
        except ValueError as error:
            raise ConfigError(f"{where}: not JSON: {error}", code="report") from error
        whole = cast("dict[str, Any]", body) if isinstance(body, dict) else {}
        if whole.get("kind") != _KIND:
            raise ConfigError(
                f"{where}: no report of an evaluation",
                code="report",
                hint="`ferrule eval cases.yaml -o report.json` writes one",
            )
        if whole["v"] > FORMAT:
            raise ConfigError(f"{where}: format {whole['v']} is newer than this version's {FORMAT}")
        try:
            return _read_report(whole)
        except (KeyError, TypeError) as error:
            raise ConfigError(f"{where}: not a whole report ({error})", code="report") from error


def load_report(path: Path) -> Report:
    """Read a report from a file. Raises ConfigError."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"`{path}` cannot be read: {error.strerror}", code="report") from error
    return Report.from_json(data, f"`{path}`")


def _read_report(body: Mapping[str, Any]) -> Report:
    targets = tuple(
        TargetReport(
            target["model"],
            target["tool_mode"],
            bool(target["is_repeatable"]),
            tuple(_read_case(case) for case in target["cases"]),
        )
        for target in body["targets"]
    )
    judge = None if body.get("judge") is None else _make(JudgeUse, body["judge"])
    return Report(
        body["file"],
        body["made"],
        body["version"],
        targets,
        body.get("at_least"),
        tuple(body.get("skipped", ())),
        judge,
    )


def _read_case(case: Mapping[str, Any]) -> CaseReport:
    trials = tuple(_make(Trial, _with_tuples(trial)) for trial in case["trials"])
    return CaseReport(case["name"], case["digest"], case["at_least"], trials)


def _make(kind: type[T], body: Mapping[str, Any]) -> T:
    names = {one.name for one in fields(cast("Any", kind))}
    return kind(**{name: value for name, value in body.items() if name in names})


def _with_tuples(body: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: tuple(cast("list[Any]", value)) if isinstance(value, list) else value
        for name, value in body.items()
    }


def first_failures(trials: Iterable[Trial]) -> tuple[str, ...]:
    """Return the failures of the first trial that did not pass."""
    return next((trial.failures for trial in trials if not trial.passed), ())
