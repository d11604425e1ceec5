"""The reliability policy of a handler: timeout, attempts, waits."""

from __future__ import annotations

import asyncio
import selectors
import urllib.error
from collections.abc import Awaitable, Callable, Sequence
from email.message import Message
from typing import Any

import pytest

from ferrule import (
    Agent,
    Context,
    Host,
    Reliability,
    RetryCall,
    Storage,
    Tool,
    ToolFailed,
    ToolResult,
    tool,
)
from ferrule.core.calls import ErrorType
from ferrule.core.errors import ProviderError
from ferrule.core.events import CallEvaluated, Event, Noticed, ToolAnswered
from ferrule.core.identity import Identity
from ferrule.engine import timeouts_and_retries as reliability
from ferrule.hooks import Hook
from ferrule.models.scripted import Scripted, calls, says
from ferrule.plugins import Parts
from ferrule.storage.journal.sqlite import SqliteJournal
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


class Listening(Context):
    """A context that keeps what is shown to the person and what is noted in the journal."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.noted: list[tuple[str, str]] = []
        super().__init__(
            Identity("t", "u", "s", "r"),
            "c1",
            progress=self.shown.append,
            note=lambda topic, text: self.noted.append((topic, text)),
        )


def failing(
    made: Tool, attempt: Callable[[], Awaitable[Any]], clock: FakeClock | None = None
) -> tuple[ToolFailed, list[tuple[str, str]]]:
    """The failure that is left when no attempt works, and what was noted in the journal."""
    context = Listening()
    with pytest.raises(ToolFailed) as failed:
        asyncio.run(reliability.run_with_policy(made, attempt, clock or FakeClock(), context))
    return failed.value, context.noted


async def hangs() -> str:
    await asyncio.Event().wait()
    return "never"


def run(
    made: Tool, attempt: Callable[[], Awaitable[Any]], clock: FakeClock | None = None
) -> tuple[Any, list[str]]:
    context = Listening()
    return asyncio.run(
        reliability.run_with_policy(made, attempt, clock or FakeClock(), context)
    ), context.shown


def transient() -> ToolFailed:
    return ToolFailed(ErrorType.IO_ERROR, "the service is busy", transient=True)


class Answered(Exception):
    """What an HTTP client raises for a status: the number is its own attribute or its
    response's.
    """

    def __init__(self, status: int, *, after: str = "", inside: bool = False) -> None:
        super().__init__(f"HTTP {status}")
        held: Any = self
        if inside:
            held = self.response = Response(status)
        else:
            self.status = status
        held.headers = {"retry-after": after} if after else {}


class Response:
    def __init__(self, status: int) -> None:
        self.status_code = status
        self.headers: dict[str, str] = {}


@pytest.mark.proves("reliability.retries")
def test_a_transient_failure_of_a_read_is_tried_again_and_said() -> None:
    clock, tries = FakeClock(), Tries(transient(), transient())
    answer, notices = run(tool_that(), tries, clock)
    assert (answer, tries.count) == ("done", 3)
    assert [notice.split("; ")[-1] for notice in notices] == [
        "attempt 2 of 4 in 0.2 s",
        "attempt 3 of 4 in 0.4 s",
    ]
    assert len(clock.slept) == 2
    assert 0.2 <= clock.slept[0] <= 0.21 and 0.4 <= clock.slept[1] <= 0.41


@pytest.mark.proves("reliability.retries")
def test_the_last_attempt_is_the_last() -> None:
    tries = Tries(*(transient() for _ in range(9)))
    with pytest.raises(ToolFailed, match="busy"):
        run(tool_that(), tries)
    assert tries.count == 4


@pytest.mark.proves("reliability.no-retry-of-effects")
@pytest.mark.parametrize("effect", ["write", "execute", "external", "undeclared"])
@pytest.mark.parametrize(
    "failure", [transient(), ConnectionResetError("gone"), TimeoutError("slow")]
)
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


class SkippingLoop(asyncio.SelectorEventLoop):
    """Where nothing is left to do, the time of what comes next is now."""

    def __init__(self) -> None:
        super().__init__(SkippingSelector())

    def time(self) -> float:
        return super().time() + self._selector.skipped  # type: ignore[attr-defined]


class SkippingSelector(selectors.DefaultSelector):
    """Waits for nothing and adds up how long it would have waited."""

    skipped = 0.0

    def select(self, timeout: float | None = None) -> Any:
        self.skipped += timeout or 0
        return super().select(0)


@pytest.mark.proves("reliability.timeout")
def test_an_attempt_has_300_seconds_where_the_tool_says_nothing() -> None:
    async def attempt() -> tuple[ToolFailed, float]:
        began = asyncio.get_running_loop().time()
        with pytest.raises(ToolFailed) as failed:
            await reliability.run_with_policy(tool_that("write"), hangs, FakeClock(), Listening())
        return failed.value, asyncio.get_running_loop().time() - began

    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        failure, seconds = runner.run(attempt())
    assert failure.error_type is ErrorType.TIMEOUT
    assert "no answer within 300 s" in failure.message
    assert 300 <= seconds < 301


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


STANDS = "; it was stopped, but what it did so far may stand"
UNKNOWN = "; outcome unknown: check what it did before doing it again"


@pytest.mark.proves("reliability.unknown-outcome-said")
@pytest.mark.parametrize(
    ("error", "said", "of_a_read", "of_an_effect", "more"),
    [
        (TimeoutError("slow"), "`act`: timed out: slow", "timeout", "", STANDS),
        (ConnectionResetError("gone"), "`act`: gone", "transient", "", UNKNOWN),
        (ConnectionRefusedError("closed"), "`act`: closed", "transient", "transient", ""),
        (Answered(429), "`act`: Answered: HTTP 429", "transient", "transient", ""),
        (Answered(500), "`act`: Answered: HTTP 500", "5xx", "", UNKNOWN),
        (Answered(599), "`act`: Answered: HTTP 599", "5xx", "", UNKNOWN),
        (ToolFailed(ErrorType.IO_ERROR, "off", kind="5xx"), "off", "5xx", "", ""),
        (ToolFailed(ErrorType.IO_ERROR, "late", kind="timeout"), "late", "timeout", "", ""),
        (transient(), "the service is busy", "transient", "transient", ""),
    ],
    ids=repr,
)
def test_a_failure_of_an_effect_has_a_class_only_where_it_surely_did_nothing(
    error: Exception, said: str, of_a_read: str, of_an_effect: str, more: str
) -> None:
    for side_effect, kind, message in (
        ("read", of_a_read, said), ("write", of_an_effect, said + more),
    ):  # fmt: skip
        failure, noted = failing(tool_that(side_effect, max_attempts=1), Tries(error))
        assert failure.message == message
        assert failure.data == ({"attempts": 1, "last_class": kind} if kind else None)
        assert len(noted) == bool(kind)


@pytest.mark.proves("reliability.classes")
@pytest.mark.parametrize("error", [Answered(428), Answered(499), Answered(600), ValueError("x")])
def test_another_status_or_error_has_no_class(error: Exception) -> None:
    with pytest.raises(type(error)):
        run(tool_that(), Tries(error))


def test_a_cancelled_run_is_not_taken_for_a_timeout() -> None:
    async def cancelled() -> bool:
        task = asyncio.ensure_future(
            reliability.run_with_policy(tool_that(), hangs, FakeClock(), Listening())
        )
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


# ---- classes


@pytest.mark.proves("reliability.classes")
@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize(("status", "kind"), [(500, "5xx"), (503, "5xx"), (429, "transient")])
def test_a_status_of_a_server_is_a_class_wherever_the_client_keeps_it(
    status: int, kind: str, inside: bool
) -> None:
    failure, noted = failing(
        tool_that(max_attempts=2), Tries(*(Answered(status, inside=inside),) * 2)
    )
    assert failure.data == {"attempts": 2, "last_class": kind}
    assert failure.error_type is ErrorType.IO_ERROR
    assert noted == [("policy_exhausted", f"`act`: 2 attempts, the last failed as {kind}")]


@pytest.mark.proves("reliability.classes")
@pytest.mark.parametrize(
    "error", [Answered(404), Answered(400), Answered(200), ProviderError("x", status=503)]
)
def test_what_the_client_did_wrong_and_what_a_model_refused_is_not_asked_again(
    error: Exception,
) -> None:
    tries = Tries(error)
    with pytest.raises(type(error)):
        run(tool_that(max_attempts=4), tries)
    assert tries.count == 1


@pytest.mark.proves("reliability.classes")
def test_a_real_client_of_the_standard_library_is_understood() -> None:
    headers = Message()
    headers["Retry-After"] = "7"
    clock = FakeClock()
    busy = urllib.error.HTTPError("http://x", 503, "busy", headers, None)
    assert run(tool_that(), Tries(busy), clock)[0] == "done"
    assert clock.slept == [7.0]
    busy.close()  # From Python 3.14 on it has a file.


@pytest.mark.proves("reliability.classes")
@pytest.mark.parametrize(
    "failure", [ToolFailed(ErrorType.IO_ERROR, "x", kind="5xx"), Answered(502)]
)
def test_retry_on_chooses_among_the_classes(failure: Exception) -> None:
    for chosen, count in (
        (("transient", "timeout"), 1),
        (("5xx",), 2),
        (("server",), 2),
        (("permanent",), 1),
    ):
        tries = Tries(failure)
        made = tool_that(reliability=Reliability(retry_on=chosen))
        if count == 1:
            failing(made, tries)
        else:
            run(made, tries)
        assert tries.count == count


@pytest.mark.proves("reliability.unknown-outcome-not-repeated")
@pytest.mark.parametrize(
    "failure",
    [
        ToolFailed(ErrorType.IO_ERROR, "x", kind="5xx"),
        ToolFailed(ErrorType.TIMEOUT, "x", kind="timeout"),
        Answered(503),
        ConnectionResetError("gone"),
        TimeoutError("slow"),
    ],
)
@pytest.mark.parametrize("effect", ["write", "external", "undeclared"])
def test_an_effect_that_may_have_happened_is_not_repeated_whatever_the_policy_says(
    effect: str, failure: Exception
) -> None:
    tries = Tries(failure)
    policy = Reliability(max_attempts=4, retry_on=("transient", "timeout", "5xx"))
    _, noted = failing(tool_that(effect, reliability=policy), tries)
    assert tries.count == 1 and noted == []


@pytest.mark.proves("reliability.retries")
@pytest.mark.parametrize("failure", [ConnectionRefusedError("nobody"), Answered(429), transient()])
def test_an_effect_that_surely_did_not_happen_is_repeated_if_the_tool_asks_for_attempts(
    failure: Exception,
) -> None:
    tries = Tries(failure)
    assert run(tool_that("write", max_attempts=2), tries)[0] == "done"


# ---- the end of attempts


@pytest.mark.proves("reliability.exhausted")
def test_one_attempt_that_fails_with_a_class_that_is_retried_exhausts_the_policy() -> None:
    failure, noted = failing(tool_that(max_attempts=1), Tries(transient()))
    assert failure.message == "the service is busy"
    assert failure.data == {"attempts": 1, "last_class": "transient"}
    assert noted == [("policy_exhausted", "`act`: 1 attempt, the last failed as transient")]


@pytest.mark.proves("reliability.exhausted")
def test_after_the_last_attempt_the_result_says_how_many_and_of_which_class_and_keeps_what_was_known() -> (
    None
):
    known = ToolFailed(ErrorType.IO_ERROR, "busy", transient=True, data={"host": "h"})
    failure, noted = failing(tool_that(), Tries(known, known, known, TimeoutError("slow")))
    assert failure.error_type is ErrorType.TIMEOUT
    assert failure.message == "`act`: timed out: slow (4 attempts, the last failed as timeout)"
    assert failure.data == {"attempts": 4, "last_class": "timeout"}
    failure, _ = failing(tool_that(), Tries(*(known,) * 4))
    assert failure.data == {"host": "h", "attempts": 4, "last_class": "transient"}
    assert len(noted) == 1


@pytest.mark.proves("reliability.exhausted")
def test_a_failure_that_is_not_retried_exhausts_nothing() -> None:
    failure, noted = failing(
        tool_that(), Tries(transient(), ToolFailed(ErrorType.NOT_FOUND, "no such file"))
    )
    assert (failure.message, failure.data, noted) == ("no such file", None, [])


# ---- Retry-After


@pytest.mark.parametrize(
    ("failure", "waited"),
    [
        (ToolFailed(ErrorType.IO_ERROR, "busy", kind="5xx", retry_after=3), 3.0),
        (Answered(503, after="5"), 5.0),
        (Answered(429, after="Tue, 14 Nov 2023 22:13:29 GMT", inside=True), 9.0),
    ],
)
def test_a_service_that_says_when_is_asked_again_then_and_no_attempt_pays_for_the_wait(
    failure: Exception, waited: float
) -> None:
    clock = FakeClock()
    assert run(tool_that(timeout=0.5), Tries(failure), clock)[0] == "done"
    assert clock.slept == [waited]


def test_a_wait_that_was_asked_for_is_never_shorter_than_our_own() -> None:
    clock = FakeClock()
    run(tool_that(), Tries(Answered(503, after="0"), Answered(503, after="nonsense")), clock)
    assert clock.slept[0] >= 0.2 and clock.slept[1] >= 0.4


@pytest.mark.parametrize("after", ["3600", "inf"])
def test_a_wait_that_is_too_long_is_not_begun_and_the_result_says_how_long_it_would_be(
    after: str,
) -> None:
    clock, tries = FakeClock(), Tries(Answered(503, after=after))
    failure, noted = failing(tool_that(), tries, clock)
    assert tries.count == 1 and clock.slept == []
    assert f"it asks to be left alone for {after} s" in failure.message and len(noted) == 1


# ---- whole runs


async def journaled(
    made: Sequence[Tool], called: tuple[str, dict[str, Any]], clock: FakeClock
) -> tuple[ToolResult, list[Event]]:
    """The result of one call of a model, and all that the journal holds of the run."""
    with SqliteJournal(":memory:") as journal:
        agent = Agent(
            Scripted([calls(called), says("done")]),
            made,
            storage=Storage(journal=journal),
            host=Host(clock=clock),
        )
        ran = await agent.run("go")
        return ran.results[0], [record.event for record in journal.records(ran.session)]


def report(times: list[int], failures: int, **policy: Any) -> Tool:
    """A tool whose service is unavailable so many times; `times` gets an entry per attempt."""

    @tool(side_effect="read", reliability=Reliability(**policy))
    def weather(city: str) -> str:
        times.append(len(times) + 1)
        if len(times) <= failures:
            raise Answered(503)
        return f"rain in {city}"

    return weather


@pytest.mark.proves("reliability.worked-example")
async def test_two_503_then_an_answer_are_three_attempts_with_waits_that_double_and_one_result() -> (
    None
):
    clock, times = FakeClock(), list[int]()
    result, events = await journaled([report(times, 2)], ("weather", {"city": "Ghent"}), clock)
    assert times == [1, 2, 3] and result.data == "rain in Ghent"
    assert [0.2 <= clock.slept[0] <= 0.21, 0.4 <= clock.slept[1] <= 0.41] == [True, True]
    assert len(clock.slept) == 2
    assert len([event for event in events if isinstance(event, ToolAnswered)]) == 1
    assert not [event for event in events if isinstance(event, Noticed)]


@pytest.mark.proves("reliability.worked-example")
async def test_with_one_attempt_a_503_is_one_attempt_and_the_journal_says_that_the_policy_is_exhausted() -> (
    None
):
    clock, times = FakeClock(), list[int]()
    made = [report(times, 2, max_attempts=1)]
    result, events = await journaled(made, ("weather", {"city": "Ghent"}), clock)
    assert times == [1] and clock.slept == [] and not result.success
    assert result.data == {"attempts": 1, "last_class": "5xx"}
    assert [event for event in events if isinstance(event, Noticed)] == [
        Noticed("policy_exhausted", "`weather`: 1 attempt, the last failed as 5xx")
    ]


@pytest.mark.proves("reliability.worked-example")
async def test_bad_arguments_are_no_attempt_and_an_event_that_says_so() -> None:
    clock, times = FakeClock(), list[int]()
    result, events = await journaled([report(times, 2)], ("weather", {"town": "Ghent"}), clock)
    assert times == [] and result.error_type is ErrorType.VALIDATION_FAILED
    judged = [event for event in events if isinstance(event, CallEvaluated)]
    assert [(event.verdict, event.result) for event in judged] == [("refuse", result)]


async def test_a_result_that_does_not_fit_its_schema_is_not_asked_for_again() -> None:
    clock, times = FakeClock(), list[int]()

    @tool(side_effect="read")
    def count() -> int:
        times.append(1)
        return "many"  # type: ignore[return-value]  a handler that does not keep to its type

    result, _ = await journaled([count], ("count", {}), clock)
    assert result.success
    assert "does not fit the tool's own schema" in result.notes[0]
    assert times == [1]


async def test_retries_of_a_call_within_a_call_do_not_multiply() -> None:
    clock, times = FakeClock(), list[int]()

    @tool(side_effect="read")
    async def forecast(context: Context) -> str:
        assert context.call is not None
        result = await context.call("weather", {"city": "Ghent"})
        raise ToolFailed(result.error_type, result.error_message or "")

    result, _ = await journaled([report(times, 99), forecast], ("forecast", {}), clock)
    assert len(times) == 4 and len(clock.slept) == 3
    assert "4 attempts, the last failed as 5xx" in (result.error_message or "")


async def test_a_result_that_a_hook_sees_is_that_of_all_attempts_together() -> None:
    clock, times, seen = FakeClock(), list[int](), list[bool]()

    class Watching(Hook):
        async def after(
            self, tool: Tool, result: ToolResult, context: Context
        ) -> ToolResult | None:
            seen.append(result.success)
            return None

    with SqliteJournal(":memory:") as journal:
        model = Scripted([calls(("weather", {"city": "Ghent"})), says("done")])
        agent = Agent(
            model,
            [report(times, 2)],
            storage=Storage(journal=journal),
            host=Host(clock=clock),
            plugins=[Parts(hooks=[Watching()])],
        )
        await agent.run("go")
    assert len(times) == 3 and seen == [True]
