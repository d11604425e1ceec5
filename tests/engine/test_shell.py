"""The reliability shell: timeout, attempts, waits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ferrule import Reliability, RetryCall, Tool, ToolFailed, tool
from ferrule.core.calls import ErrorType
from ferrule.engine import shell
from ferrule.testing.fakes import FakeClock


def tool_that(side_effect: str = "read", **options: Any) -> Tool:
    async def act() -> str:
        return ""

    return tool(side_effect=side_effect, **options)(act)


class Tries:
    """An attempt that fails as told, then succeeds; counts."""

    def __init__(self, *failures: BaseException) -> None:
        self.failures = list(failures)
        self.count = 0

    async def __call__(self) -> str:
        self.count += 1
        if self.failures:
            raise self.failures.pop(0)
        return "done"


async def hangs() -> str:
    await asyncio.Event().wait()
    return "never"


def run(
    made: Tool, attempt: Callable[[], Awaitable[Any]], clock: FakeClock | None = None
) -> tuple[Any, list[str]]:
    notices: list[str] = []
    return asyncio.run(shell.run(made, attempt, clock or FakeClock(), notices.append)), notices


def transient() -> ToolFailed:
    return ToolFailed(ErrorType.IO_ERROR, "the service is busy", transient=True)


@pytest.mark.proves("reliability.retries")
def test_a_transient_failure_of_a_read_is_tried_again_and_said() -> None:
    clock, tries = FakeClock(), Tries(transient(), transient())
    answer, notices = run(tool_that(), tries, clock)
    assert (answer, tries.count) == ("done", 3)
    assert [notice.split("; ")[-1] for notice in notices] == ["attempt 2 of 4", "attempt 3 of 4"]
    assert len(clock.slept) == 2
    assert 0.15 <= clock.slept[0] <= 0.25 and 0.3 <= clock.slept[1] <= 0.5


@pytest.mark.proves("reliability.retries")
def test_the_last_attempt_is_the_last() -> None:
    tries = Tries(*(transient() for _ in range(9)))
    with pytest.raises(ToolFailed, match="busy"):
        run(tool_that(), tries)
    assert tries.count == 4


@pytest.mark.proves("reliability.no-retry-of-effects")
@pytest.mark.parametrize("effect", ["write", "execute", "external", "undeclared"])
@pytest.mark.parametrize("failure", [transient(), ConnectionResetError("gone"), TimeoutError("slow")])
def test_what_has_effects_is_never_repeated_by_itself(effect: str, failure: Exception) -> None:
    tries = Tries(failure)
    with pytest.raises(ToolFailed):
        run(tool_that(effect), tries)
    assert tries.count == 1


@pytest.mark.proves("reliability.no-retry-of-domain-errors")
@pytest.mark.parametrize(
    "failure",
    [
        ToolFailed(ErrorType.NOT_FOUND, "no such file"),
        RetryCall("use a date"),
        ValueError("x"),
        OSError("disk"),
    ],
)
def test_a_plain_domain_error_is_not_retried(failure: Exception) -> None:
    tries = Tries(failure)
    with pytest.raises(type(failure)):
        run(tool_that(max_attempts=4), tries)
    assert tries.count == 1


@pytest.mark.proves("reliability.retries")
def test_a_tool_with_effects_may_ask_for_retries_of_transient_failures() -> None:
    tries = Tries(transient())
    assert run(tool_that("write", max_attempts=2), tries)[0] == "done"
    assert tries.count == 2


@pytest.mark.proves("reliability.unknown-outcome-not-repeated")
def test_an_effect_that_timed_out_is_not_repeated_even_if_the_tool_asks_for_attempts() -> None:
    tries = Tries(TimeoutError("slow"))
    with pytest.raises(ToolFailed):
        run(tool_that("write", max_attempts=3), tries)
    assert tries.count == 1


@pytest.mark.proves("reliability.retries")
def test_only_the_named_classes_are_retried() -> None:
    tries = Tries(ConnectionRefusedError("nobody there"))
    with pytest.raises(ToolFailed, match="nobody there"):
        run(tool_that(reliability=Reliability(retry_on=("timeout",))), tries)
    assert tries.count == 1


@pytest.mark.proves("reliability.timeout")
def test_an_attempt_that_takes_too_long_is_a_timeout() -> None:
    with pytest.raises(ToolFailed) as failed:
        run(tool_that(timeout=0.01, max_attempts=1), hangs)
    assert failed.value.error_type is ErrorType.TIMEOUT
    assert "no answer within 0.01 s" in failed.value.message


@pytest.mark.proves("reliability.timeout")
def test_each_attempt_of_a_read_has_its_own_time() -> None:
    calls = 0

    async def slow_once() -> str:
        nonlocal calls
        calls += 1
        return await hangs() if calls == 1 else "second"

    assert run(tool_that(timeout=0.05), slow_once)[0] == "second"


@pytest.mark.proves("reliability.unknown-outcome-said")
def test_a_timeout_of_an_effect_says_what_is_known() -> None:
    with pytest.raises(ToolFailed, match="what it did so far may stand"):
        run(tool_that("write", timeout=0.01), hangs)

    @tool(side_effect="write", timeout=0.01)
    def blocking() -> str:
        return ""

    with pytest.raises(ToolFailed, match="it may still be running"):
        run(blocking, hangs)


@pytest.mark.proves("cancel.passes-the-shell")
def test_a_cancelled_run_is_not_taken_for_a_timeout() -> None:
    async def cancelled() -> bool:
        task = asyncio.ensure_future(shell.run(tool_that(), hangs, FakeClock(), lambda text: None))
        await asyncio.sleep(0)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            return True
        return False

    assert asyncio.run(cancelled())


def test_a_handlers_own_time_out_is_told_apart_in_words() -> None:
    with pytest.raises(ToolFailed, match="timed out: the database"):
        run(tool_that(max_attempts=1), Tries(TimeoutError("the database")))
