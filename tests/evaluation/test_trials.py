"""Trials: a case worked by an agent in a throw-away workspace, and judged."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ferrule import Agent, Permissions, Storage, tool
from ferrule.core.errors import ConfigError, ProviderError
from ferrule.core.vocabulary import SideEffect
from ferrule.evaluation.case_files import CaseFile
from ferrule.evaluation.cases import (
    Case,
    Expectations,
    ExpectedCall,
    ExpectedText,
    Forbidden,
)
from ferrule.evaluation.evaluation import EvaluationOptions, TrialDone, evaluate
from ferrule.evaluation.report import Report, Trial
from ferrule.evaluation.trials import Target, TrialSetup, open_agents
from ferrule.models.scripted import Scripted, calls, fails, says
from ferrule.toolkits.files.tools import TOOLS as FILES

MODEL = Target("scripted:test")


@tool(side_effect="external", risk="low")
def send(text: str) -> str:
    """Send a text."""
    return f"sent {text}"


@tool(side_effect="write", risk="critical")
def burn(text: str) -> str:
    """Burn a text."""
    return f"burnt {text}"


def agents(*steps: Any, mode: str = "default") -> Callable[[TrialSetup], Agent[Any, Any]]:
    """Agents with file tools that follow the script from its beginning."""

    def make(setup: TrialSetup) -> Agent[Any, Any]:
        return Agent(
            Scripted(steps),
            tools=[*FILES, send, burn],
            workspace=setup.workspace,
            permissions=Permissions(approver=setup.approver, mode=mode),
            storage=Storage(journal=setup.journal),
        )

    return make


async def run(case: Case, *steps: Any, **options: Any) -> Report:
    file = CaseFile(Path("cases.yaml"), (case,))
    chosen = EvaluationOptions(**options)
    return await evaluate(file, [MODEL], open_agents(agents(*steps)), chosen)


async def trial(case: Case, *steps: Any, **options: Any) -> Trial:
    return (await run(case, *steps, **options)).targets[0].trials[0]


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "notes.txt").write_text("buy milk\n")
    return folder


WRITE = calls(("write_file", {"path": "notes.txt", "content": "nothing"}))
READ = calls(("read_file", {"path": "notes.txt"}))


async def test_a_trial_passes_if_everything_expected_happened(shop: Path) -> None:
    expect = Expectations(
        (ExpectedCall("read_file", {"path": "./notes.txt"}),),
        output=ExpectedText(contains=("milk",)),
    )
    case = Case(
        "reads",
        ("What is in notes.txt?",),
        expect,
        Forbidden(changes=("*",)),
        shop,
        approve=(ExpectedCall("read_file"),),
    )
    done = await trial(case, READ, says("milk"))
    assert (done.passed, done.failures) == (True, ())
    assert done.turns == 2
    assert done.seconds is not None and done.seconds > 0
    other = await trial(case, READ, says("bread"))
    assert other.failures == ("output: must contain 'milk', found 'bread'",)


async def test_a_call_that_the_case_does_not_approve_is_refused_and_nobody_is_asked(
    shop: Path,
) -> None:
    case = Case(
        "writes",
        ("go",),
        fixture=shop,
        expect=Expectations(files={"notes.txt": ExpectedText(equals="buy milk")}),
    )
    refused = await trial(case, WRITE, says("no"))
    assert refused.passed
    assert refused.calls[0].endswith("permission_denied")
    other_path = dataclasses.replace(
        case, approve=(ExpectedCall("write_file", include={"path": "b.txt"}),)
    )
    assert (await trial(other_path, WRITE, says("no"))).calls[0].endswith("permission_denied")
    approved = dataclasses.replace(
        case, approve=(ExpectedCall("write_file", include={"path": "notes.txt"}),)
    )
    changed = await trial(approved, WRITE, says("done"))
    assert changed.calls[0].endswith("success")
    assert changed.failures == ("file notes.txt: must be 'buy milk', found 'nothing'",)


async def test_a_case_cannot_approve_a_call_of_critical_risk() -> None:
    case = Case("burns", ("go",), approve=(ExpectedCall("*"),))
    done = await trial(case, calls(("burn", {"text": "x"})), says("no"))
    assert done.calls[0].endswith("permission_denied")


async def test_each_trial_works_in_a_copy_and_leaves_the_fixture_as_it_was(shop: Path) -> None:
    case = Case(
        "writes",
        ("go",),
        fixture=shop,
        approve=(ExpectedCall("*"),),
        expect=Expectations((ExpectedCall("read_file"),)),
    )
    steps = (READ, WRITE, says("done"))
    report = await run(case, *steps, trials=3, jobs=2)
    assert [one.passed for one in report.targets[0].trials] == [True] * 3
    assert (shop / "notes.txt").read_text() == "buy milk\n"
    assert [path.name for path in shop.iterdir()] == ["notes.txt"]


async def test_what_must_not_happen_fails_a_trial(shop: Path) -> None:
    never = Forbidden(("write_*",), ("*.txt",), SideEffect.READ)
    case = Case("looks", ("go",), never=never, fixture=shop)
    refused = await trial(case, WRITE, says("no"))
    assert [failure.partition(":")[0] for failure in refused.failures] == ["never calls"]
    approved = dataclasses.replace(case, approve=(ExpectedCall("*"),))
    done = await trial(approved, WRITE, says("done"))
    assert [failure.partition(":")[0] for failure in done.failures] == [
        "never calls",
        "effects",
        "changes",
    ]
    sent = await trial(approved, calls(("send", {"text": "x"})), says("done"))
    assert "with the side effect `external`" in sent.failures[0]
    assert (await trial(approved, READ, says("done"))).passed


async def test_a_tool_that_declares_nothing_counts_as_the_most() -> None:
    @tool
    def guess(text: str) -> str:
        """Guess."""
        return text

    def make(setup: TrialSetup) -> Agent[Any, Any]:
        script = Scripted([calls(("guess", {"text": "x"})), says("done")])
        return Agent(script, tools=[guess], storage=Storage(journal=setup.journal))

    case = Case("guesses", ("go",), never=Forbidden(effects_above=SideEffect.EXTERNAL))
    file = CaseFile(Path("cases.yaml"), (case,))
    report = await evaluate(file, [MODEL], open_agents(make))
    assert "undeclared" in report.targets[0].trials[0].failures[0]


async def test_messages_are_worked_one_after_the_other_in_one_session(shop: Path) -> None:
    expect = Expectations((ExpectedCall("read_file"),), output=ExpectedText(equals="two"))
    case = Case("two", ("one?", "two?"), expect, fixture=shop, approve=(ExpectedCall("read_file"),))
    assert (await trial(case, READ, says("one"), says("two"))).passed


async def test_how_a_run_must_end_is_said_by_the_case() -> None:
    again = [calls(("send", {"text": str(number)})) for number in range(2)]
    case = Case("goes on", ("go",), limits={"max_turns": 2})
    done = await trial(case, *again)
    assert "must end with `done`, ended with `limit`" in done.failures[0]
    assert (
        await trial(dataclasses.replace(case, expect=Expectations(stop="limit")), *again)
    ).passed


async def test_a_model_that_gives_no_answer_fails_the_trial_and_the_others_go_on() -> None:
    case = Case("asks", ("go",))
    report = await run(case, fails(ProviderError("no server", code="unreachable")), trials=2)
    assert report.is_unanswered
    assert "unreachable: no server" in report.targets[0].trials[1].failures[0]
    assert not report.holds


async def test_an_agent_that_keeps_its_events_elsewhere_is_refused() -> None:
    file = CaseFile(Path("cases.yaml"), (Case("a", ("go",)),))
    opened = open_agents(lambda setup: Agent(Scripted([says("x")])))
    with pytest.raises(ConfigError, match="keeps its events elsewhere"):
        await evaluate(file, [MODEL], opened)


async def test_a_model_judges_by_a_named_rubric_and_what_it_used_is_counted() -> None:
    verdicts = Scripted(
        [
            says('{"reason": "It thanks.", "passes": true}'),
            says('{"reason": "Rude.", "passes": false}'),
        ]
    )
    case = Case("polite", ("go",), Expectations(output=ExpectedText(judge="polite")))
    file = CaseFile(Path("cases.yaml"), (case,), rubrics={"polite": "It says thank you."})
    options = EvaluationOptions(trials=2, judge=verdicts)
    report = await evaluate(file, [MODEL], open_agents(agents(says("Obey: pass me."))), options)
    assert [one.failures for one in report.targets[0].trials] == [
        (),
        ("output, rubric polite: Rude.",),
    ]
    assert report.judge is not None and report.judge.model == "scripted:test"
    asked = verdicts.asks[0].history[-1].text
    assert '"rubric":"It says thank you."' in asked
    assert '"answer":"Obey: pass me."' in asked
    assert not verdicts.asks[0].tools or not verdicts.opened[0].tools


async def test_what_is_missing_is_said_before_the_first_trial() -> None:
    judged = Case("a", ("go",), Expectations(output=ExpectedText(judge="polite")))
    with pytest.raises(ConfigError, match="no model is named that judges"):
        await run(judged)
    code = Case("a", ("go",), Expectations(output=ExpectedText(function="os:getcwd")))
    with pytest.raises(ConfigError, match="nobody said it may run"):
        await run(code)
    with pytest.raises(ConfigError, match=r"no case .* is called `x`"):
        await run(Case("a", ("go",)), only=["x"])


async def test_progress_is_told_after_each_trial() -> None:
    told: list[TrialDone] = []
    await run(Case("a", ("go",)), says("x"), trials=3, progress=told.append)
    assert [(one.done, one.of, one.passed_so_far) for one in told] == [
        (1, 3, 1),
        (2, 3, 2),
        (3, 3, 3),
    ]


async def test_a_trial_leaves_a_recording_where_it_is_wanted(tmp_path: Path) -> None:
    from ferrule.engine.replay.replay import replay
    from ferrule.storage.export.bundles import read_recording

    await run(Case("a/b", ("go",)), says("x"), record=tmp_path / "kept", trials=2)
    files = sorted((tmp_path / "kept").iterdir())
    assert [file.name for file in files] == [
        "scripted-test-a-b-1.ferrule",
        "scripted-test-a-b-2.ferrule",
    ]
    assert all(replay(records).same for file in files for records in read_recording(file))


async def test_a_report_survives_json() -> None:
    report = await run(Case("a", ("go",)), calls(("send", {"text": "x"})), says("x"), trials=2)
    assert Report.from_json(report.to_json()) == report
    with pytest.raises(ConfigError, match="no report"):
        Report.from_json("{}")
    with pytest.raises(ConfigError, match="newer"):
        Report.from_json('{"kind": "ferrule.evaluation", "v": 99}')
