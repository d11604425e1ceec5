"""What a run must have done: tools that have to succeed before it counts as done
(`require_successful_tools`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule import (
    Agent,
    ConfigError,
    Context,
    LimitReached,
    Limits,
    Scripted,
    Storage,
    ToolFailed,
    tool,
)
from ferrule.core.calls import ErrorType
from ferrule.core.events import RunFinished, RunStarted
from ferrule.core.required_tools import find_unmet, parse_required
from ferrule.engine.session import RunResult
from ferrule.hooks import TurnEnd, block, hook
from ferrule.models.scripted import calls, says
from ferrule.plugins import Parts
from ferrule.storage.journal.sqlite import SqliteJournal
from grouped_options import grouped

REQUIRED: Sequence[str | Sequence[str]] = ["run_command", ["read_output", "tail_output"]]


@tool(side_effect="external")
def run_command(works: bool = True) -> str:
    """Run."""
    if not works:
        raise ToolFailed(ErrorType.IO_ERROR, "it did not start")
    return "ran"


@tool(side_effect="none")
def read_output() -> str:
    """Read."""
    return "read"


@tool(side_effect="none")
def tail_output() -> str:
    """Read the end."""
    return "tail"


@tool(side_effect="none")
async def report(context: Context) -> str:
    """Reads with another tool."""
    assert context.call is not None
    return str((await context.call("read_output", {})).data)


async def ran(
    *made: tuple[str, dict[str, Any]], journal: SqliteJournal | None = None, **options: Any
) -> RunResult:
    """A run that makes these calls and then says that it is done."""
    agent = Agent(
        Scripted([calls(*made), says("done")] if made else [says("done")]),
        [run_command, read_output, tail_output, report],
        **grouped(
            journal=journal or SqliteJournal(":memory:"),
            **{"allow": ["run_command"], "require_successful_tools": REQUIRED, **options},
        ),
    )
    return await agent.run("go")


@pytest.mark.proves("required.worked-example")
async def test_a_run_that_ran_and_read_the_end_is_done() -> None:
    result = await ran(("run_command", {}), ("tail_output", {}))
    assert (result.stop, result.missing, result.text) == ("done", (), "done")


@pytest.mark.proves("required.worked-example")
async def test_a_run_that_only_ran_is_failed_and_says_what_is_missing() -> None:
    with SqliteJournal(":memory:") as journal:
        result = await ran(("run_command", {}), journal=journal)
        assert (result.stop, result.missing) == ("failed", (("read_output", "tail_output"),))
        assert (result.text, len(result.results)) == ("done", 1)
        [end] = [
            r.event for r in journal.records(result.session) if isinstance(r.event, RunFinished)
        ]
    assert (end.stop, end.code) == ("failed", "required_tools")
    assert end.detail == "required and never successful: `read_output` or `tail_output`"


@pytest.mark.proves("required.worked-example")
async def test_a_run_of_nothing_but_denials_is_failed() -> None:
    result = await ran(("run_command", {}), allow=[], deny=["run_command", "tail_output"])
    assert [one.error_type for one in result.results] == [ErrorType.PERMISSION_DENIED]
    assert (result.stop, result.missing) == (
        "failed",
        (("run_command",), ("read_output", "tail_output")),
    )


@pytest.mark.proves("required.success")
@pytest.mark.parametrize(
    ("made", "missing"),
    [
        ([], (("run_command",), ("read_output", "tail_output"))),
        ([("run_command", {"works": False}), ("read_output", {})], (("run_command",),)),
        ([("run_command", {"works": 3}), ("read_output", {})], (("run_command",),)),
        ([("run_command", {"works": False}), ("run_command", {}), ("read_output", {})], ()),
        ([("run_command", {}), ("report", {})], ()),
    ],
    ids=["no calls", "failed", "bad arguments", "failed, then not", "within another call"],
)
async def test_only_a_call_that_succeeded_counts_and_it_counts_wherever_it_was_made(
    made: list[tuple[str, dict[str, Any]]], missing: object
) -> None:
    assert (await ran(*made)).missing == missing


@pytest.mark.proves("required.success")
async def test_each_run_is_judged_by_its_own_calls_and_may_say_what_it_requires_itself() -> None:
    model = Scripted([calls(("read_output", {})), says("one"), says("two"), says("three")])
    session = Agent(
        model,
        [read_output],
        storage=Storage(journal=SqliteJournal(":memory:")),
        run_options={"require_successful_tools": ["read_output"]},
    ).session()
    assert (await session.run("first")).stop == "done"
    assert (await session.run("second")).missing == (("read_output",),)
    assert (await session.run("third", require_successful_tools=[])).stop == "done"


@pytest.mark.parametrize(
    "wrong", ["run_command", [[]], [""], [3], [["a", ""]], {"a": 1}, [["a", ["b"]]]]
)
def test_what_cannot_be_required_is_an_error_that_shows_the_form(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"(?s)require_successful_tools: .*a list of tool names"):
        Agent("local:smollm2", run_options={"require_successful_tools": wrong})


async def test_a_tool_that_is_not_there_is_refused_before_the_model_is_asked() -> None:
    model = Scripted([])
    agent = Agent(model, [read_output], storage=Storage(journal=SqliteJournal(":memory:")))
    with pytest.raises(
        ConfigError, match=r"(?s)there is no tool `read_outpt`.*did you mean `read_output`"
    ):
        await agent.run("go", require_successful_tools=[["read_output", "read_outpt"]])
    assert model.asks == []


async def test_a_run_that_ended_at_a_limit_ended_there() -> None:
    endless = [calls(("read_output", {})), calls(("tail_output", {}))]
    agent = Agent(
        Scripted(endless),
        [read_output, tail_output, run_command],
        storage=Storage(journal=SqliteJournal(":memory:")),
        limits=Limits(max_turns=2),
        run_options={"require_successful_tools": ["run_command"]},
    )
    with pytest.raises(LimitReached):
        await agent.run("go")


async def test_what_is_required_is_part_of_the_run_so_that_another_process_judges_the_same(
    tmp_path: Any,
) -> None:
    with SqliteJournal(tmp_path / "journal.db") as journal:
        made = Agent(
            Scripted([]), [read_output, tail_output, run_command], storage=Storage(journal=journal)
        )
        session = made.session()
        # As a process leaves it that dies before the model has answered.
        session.driver.log.add(RunStarted("go", made.model, require=parse_required(REQUIRED)))
        session.driver.log.flush()
        await session.close()
        taken = Agent(
            Scripted([says("done")]),
            [read_output, tail_output, run_command],
            storage=Storage(journal=journal),
        )
        result = await taken.resume(session.id).resume()
    assert result is not None and (result.stop, len(result.missing)) == ("failed", 2)


@pytest.mark.proves("required.success")
async def test_a_turn_that_a_hook_sends_on_is_not_asked_again_for_what_it_has_done() -> None:
    sent: list[int] = []

    @hook("turn.end")
    def once_more(payload: TurnEnd) -> object:
        sent.append(1)
        return block("say it again") if len(sent) == 1 else None

    agent = Agent(
        Scripted([calls(("read_output", {})), says("one"), says("two")]),
        [read_output],
        storage=Storage(journal=SqliteJournal(":memory:")),
        plugins=[Parts(hooks=[once_more])],
        run_options={"require_successful_tools": ["read_output"]},
    )
    result = await agent.run("go")
    assert (result.text, result.stop, len(sent)) == ("two", "done", 2)


NAMES = st.sampled_from(["a", "b", "c", "d"])


@pytest.mark.proves("required.success")
@given(
    st.lists(NAMES | st.lists(NAMES, min_size=1, max_size=3), max_size=4),
    st.lists(st.tuples(NAMES, st.booleans()), max_size=5),
)
def test_every_entry_needs_one_of_its_tools(
    required: list[str | list[str]], made: list[tuple[str, bool]]
) -> None:
    did = {name for name, success in made if success}
    entries = [[entry] if isinstance(entry, str) else entry for entry in required]
    missing = [tuple(entry) for entry in entries if not did & set(entry)]
    assert list(find_unmet(parse_required(required), did)) == missing
