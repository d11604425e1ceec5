"""Judge a trial: what was expected and did not happen, and what happened and must not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ferrule.core.value_class import frozen
from ferrule.core.vocabulary import SideEffect
from ferrule.tools.safe_patterns import matches_glob

from .call_matching import find_call_problems
from .cases import EFFECT_ORDER, Case, ExpectedText
from .evidence import Evidence
from .model_judge import ModelJudge
from .output_checks import CheckFunctions, ask_function, find_text_problems


@frozen
class Failure:
    """An expectation that does not hold: which one (`calls`, `output`, ...), and why."""

    check: str
    detail: str

    def __str__(self) -> str:
        return f"{self.check}: {self.detail}"


@dataclass(slots=True)
class Verdict:
    """The judgement of a trial.

    Attributes:
        failures: What does not hold. The trial passed if there is nothing.
        unjudged: What could not be judged, each with the reason.
    """

    failures: list[Failure] = field(default_factory=list[Failure])
    unjudged: list[str] = field(default_factory=list[str])


@dataclass(slots=True)
class Judges:
    """What judges beyond the events: the person's functions, and a model."""

    functions: CheckFunctions = field(default_factory=CheckFunctions)
    model: ModelJudge | None = None


async def judge_trial(case: Case, evidence: Evidence, judges: Judges) -> Verdict:
    """Judge what happened.

    Raises:
        ConfigError: A function of the case cannot be had.
    """
    verdict = Verdict()
    verdict.failures += _judge_end(case, evidence)
    expect = case.expect
    if expect.calls is not None or not expect.other_calls:
        own = [call for call in evidence.calls if not call.by_sub_agent]
        problems = find_call_problems(
            expect.calls or (),
            own,
            order=expect.order,
            other_calls=expect.other_calls,
            tools=evidence.tools,
        )
        verdict.failures += [Failure("calls", problem) for problem in problems]
    problems = find_text_problems(evidence.output, expect.output)
    verdict.failures += [Failure("output", problem) for problem in problems]
    await _ask_judges(case, expect.output, evidence, judges, verdict)
    await _judge_files(case, evidence, judges, verdict)
    verdict.failures += _judge_effects(case, evidence)
    _judge_changes(case, evidence, verdict)
    return verdict


def _judge_end(case: Case, evidence: Evidence) -> Iterator[Failure]:
    if case.expect.stop in ("any", evidence.stop):
        return
    if case.expect.stop == "limit" and evidence.code.startswith("limit"):
        return
    why = f" ({evidence.code}: {evidence.detail})" if evidence.code else ""
    yield Failure("stop", f"must end with `{case.expect.stop}`, ended with `{evidence.stop}`{why}")


async def _ask_judges(
    case: Case, expected: ExpectedText, evidence: Evidence, judges: Judges, verdict: Verdict
) -> None:
    if expected.function:
        function = judges.functions.load(expected.function)
        reason = await ask_function(function, evidence.output, evidence)
        if reason:
            verdict.failures.append(Failure(f"output, {expected.function}", reason))
    if expected.judge:
        assert judges.model is not None, "checked before the first trial"
        judged = await judges.model.judge(expected.judge, case.messages, evidence.output)
        if not judged.passes:
            verdict.failures.append(Failure(f"output, rubric {expected.judge}", judged.reason))


async def _judge_files(case: Case, evidence: Evidence, judges: Judges, verdict: Verdict) -> None:
    for name, expected in case.expect.files.items():
        if evidence.changes is None:
            verdict.unjudged.append(f"the file `{name}`: a recording has no files")
            continue
        text = evidence.files.get(name)
        problems = find_text_problems(text, expected)
        if text is not None and expected is not None and expected.function:
            reason = await ask_function(judges.functions.load(expected.function), text, evidence)
            problems += [reason] if reason else []
        verdict.failures += [Failure(f"file {name}", problem) for problem in problems]


def _judge_effects(case: Case, evidence: Evidence) -> Iterator[Failure]:
    for call in evidence.calls:
        if any(matches_glob(call.tool, pattern) for pattern in case.never.calls):
            yield Failure("never calls", f"{call} was called ({call.outcome})"[:400])
    allowed = case.never.effects_above
    if allowed is None:
        return
    for call in evidence.calls:
        if call.has_run and _rank(call.effect) > _rank(allowed):
            effect = call.effect or "undeclared"
            yield Failure("effects", f"{call} ran, with the side effect `{effect}`"[:400])


def _rank(effect: str) -> int:
    """Return the place of a side effect; an undeclared one may be any, so it is above all."""
    known = {one.value: rank for rank, one in enumerate(EFFECT_ORDER)}
    return known.get(effect, len(known)) if effect != SideEffect.UNDECLARED else len(known)


def _judge_changes(case: Case, evidence: Evidence, verdict: Verdict) -> None:
    patterns = case.never.changes
    if not patterns:
        return
    if evidence.changes is None:
        verdict.unjudged.append("changes of files: a recording has no files")
        return
    for name in evidence.changes:
        if any(matches_glob(name, pattern) for pattern in patterns):
            verdict.failures.append(Failure("changes", f"`{name}` was changed"))
