"""The one pipeline, step by step: what is refused where, and that a refused call does nothing."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule import (
    READS,
    WRITES,
    Catalog,
    ConfigError,
    Context,
    ErrorType,
    RetryCall,
    Tool,
    ToolCall,
    ToolFailed,
    ToolResult,
    tool,
)
from ferrule.core.identity import Identity
from ferrule.engine.dispatcher import Dispatcher, PreparedCall, parse_arguments
from ferrule.engine.hooks.call_hooks import Hook
from ferrule.hooks import Block, Change
from ferrule.permissions.approvals import digest_arguments
from ferrule.permissions.rule_evaluation import PermissionGate
from ferrule.permissions.rules import RuleSet
from ferrule.testing.fakes import FakeClock
from ferrule.toolkits.commands.run_command_tool import run_command
from ferrule.tools.media_types import MediaInvalid

OUTPUT_CAP = 64 * 1024

BOUND = 20
ROOT = Path("/workspace")


class Trace(list[Any]):
    """What handlers did. Empty means: nothing happened."""


@pytest.fixture
def trace() -> Trace:
    return Trace()


@pytest.fixture
def catalog(trace: Trace) -> Catalog:
    @tool(side_effect="read")
    def read_file(path: Annotated[str, READS], limit: int = 10) -> str:
        """Read."""
        trace.append(("read", path, limit))
        return f"contents of {path}"

    @tool(side_effect="write")
    def write_file(path: Annotated[str, WRITES], content: str) -> str:
        """Write."""
        trace.append(("write", path, content))
        return "written"

    @tool(scopes=["admin"])
    def restart(delay: int = 0) -> str:
        """Restart."""
        trace.append(("restart", delay))
        return "restarting"

    return Catalog([read_file, write_file, restart])


def gate(**rules: Any) -> PermissionGate:
    return PermissionGate(RuleSet.parse(**rules), root=ROOT)


def dispatcher(catalog: Catalog, *, hooks: tuple[Hook, ...] = (), **options: Any) -> Dispatcher:
    rules = options.pop("gate", None) or gate(allow=["write_file"])
    return Dispatcher(catalog, rules, hooks=hooks, clock=FakeClock(), **options)


def context() -> Context:
    return Context(Identity("t", "u", "s", "r"), "c1")


def carry_out(of: Dispatcher, prepared: PreparedCall) -> ToolResult | PreparedCall:
    return asyncio.run(asyncio.wait_for(of.execute(prepared, context()), BOUND))


def dispatch(of: Dispatcher, name: str, arguments: Any = None, call_id: str = "c1") -> ToolResult:
    """A call through the whole pipeline; a question that would be asked is an error here."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    prepared = of.evaluate(ToolCall(call_id, name, text))
    assert prepared.evaluation.verdict != "ask", "nobody is here to ask"
    answer = carry_out(of, prepared)
    assert isinstance(answer, ToolResult)
    assert (answer.call_id, answer.tool) == (call_id, name)
    return answer


def refused(result: ToolResult, error: ErrorType, *words: str) -> None:
    assert (result.success, result.data, result.error_type) == (False, None, error)
    for word in words:
        assert word in (result.error_message or "")


# ---- 1 resolve


def test_an_unknown_tool_is_answered_with_the_nearest_names(catalog: Catalog, trace: Trace) -> None:
    refused(
        dispatch(dispatcher(catalog), "readfile"), ErrorType.NOT_FOUND, "did you mean `read_file`"
    )
    refused(dispatch(dispatcher(catalog), "zzz"), ErrorType.NOT_FOUND, "read_file, write_file")
    assert trace == []


@pytest.mark.proves("dispatch.unknown-tool-shows-only-what-may-be-used")
def test_an_unknown_tool_does_not_reveal_tools_this_run_may_not_use(catalog: Catalog) -> None:
    of = dispatcher(catalog, gate=gate(deny=["write_file"]))
    for name in ("restar", "writefile", "zzz"):
        message = dispatch(of, name).error_message or ""
        assert (
            "restart`" not in message and "write_file" not in message and "restart," not in message
        )


def test_a_refusal_is_bounded_like_any_result(catalog: Catalog) -> None:
    message = dispatch(dispatcher(catalog, cap=300), "x" * 5000).error_message or ""
    assert len(message) < 400 and "truncated at 300 bytes" in message


# ---- 2 rights


def test_a_tool_that_wants_a_scope_is_refused_without_it(catalog: Catalog, trace: Trace) -> None:
    refused(dispatch(dispatcher(catalog), "restart"), ErrorType.PERMISSION_DENIED, "scope admin")
    assert trace == []
    assert dispatch(dispatcher(catalog, scopes=frozenset({"admin"})), "restart").success


# ---- 3 parse


@pytest.mark.parametrize("text", ["", "  ", "{}", "null", '"{}"'])
def test_nothing_at_all_means_no_arguments(text: str) -> None:
    assert parse_arguments(text)[0] == {}


def test_arguments_encoded_twice_are_read_and_the_repair_is_reported(catalog: Catalog) -> None:
    result = dispatch(dispatcher(catalog), "read_file", json.dumps(json.dumps({"path": "a"})))
    assert result.data == "contents of a"
    assert result.notes == ("[note: the arguments were JSON text inside JSON text]",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"path": "a', "cut off"),
        ('{"path": "a"', "cut off"),
        ("{'path': 'a'}", "not valid JSON"),
        ('{"path": "a"} trailing', "not valid JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"n": ' + "1" * 5000 + "}", "cannot be read"),
    ],
)
def test_broken_arguments_are_refused_and_never_completed_by_guessing(
    catalog: Catalog, trace: Trace, text: str, said: str
) -> None:
    refused(dispatch(dispatcher(catalog), "read_file", text), ErrorType.PARSE_ERROR, said)
    assert trace == []


@pytest.mark.parametrize("text", ["[1]", "5", "true", '"a"'])
def test_arguments_that_are_no_object_are_refused(catalog: Catalog, text: str) -> None:
    result = dispatch(dispatcher(catalog), "read_file", text)
    assert result.error_type in (ErrorType.VALIDATION_FAILED, ErrorType.PARSE_ERROR)


# ---- 4 validate


@pytest.mark.proves("tools.bad-arguments-named")
@pytest.mark.parametrize(
    "arguments", [{"path": True}, {}, {"path": ["a"]}, {"path": "a", "limit": "many"}, {"pth": "a"}]
)
def test_bad_arguments_are_answered_with_their_name_and_do_nothing(
    catalog: Catalog, trace: Trace, arguments: dict[str, Any]
) -> None:
    wrong = "limit" if "limit" in arguments else "path"
    refused(
        dispatch(dispatcher(catalog), "read_file", arguments), ErrorType.VALIDATION_FAILED, wrong
    )
    assert trace == []


def test_what_was_repaired_is_told_to_the_model_after_the_value(
    catalog: Catalog, trace: Trace
) -> None:
    result = dispatch(dispatcher(catalog), "read_file", {"path": "a", "limit": "5"})
    assert trace == [("read", "a", 5)]
    assert result.to_text() == 'contents of a\n[note: `limit`: "5" was read as 5]'


def test_thousands_of_repairs_are_not_listed(catalog: Catalog) -> None:
    @tool(side_effect="none")
    def total(numbers: list[int]) -> int:
        return sum(numbers)

    result = dispatch(dispatcher(Catalog([total])), "total", {"numbers": ["1"] * 5000})
    assert result.data == 5000
    assert len(result.to_text()) < 1000 and "and 4992 more" in result.to_text()


# ---- 5 policy


@pytest.mark.proves("gate.denied-does-nothing")
def test_a_denied_call_never_enters_the_handler(catalog: Catalog, trace: Trace) -> None:
    of = dispatcher(catalog, gate=gate(deny=["read_file"], allow=["read_file"]))
    refused(
        dispatch(of, "read_file", {"path": "a"}),
        ErrorType.PERMISSION_DENIED,
        "was not run",
        "read_file",
    )
    assert trace == []


@pytest.mark.proves("gate.denied-does-nothing", "gate.same-door")
@pytest.mark.parametrize(
    "path",
    ["../x", "/etc/passwd", ".env", "deep/.env.local", "k.pem", "agents/a.yaml", ".git/config"],
)
@pytest.mark.parametrize("name", ["read_file", "write_file"])
def test_a_path_no_tool_may_touch_is_refused_before_the_handler(
    catalog: Catalog, trace: Trace, name: str, path: str
) -> None:
    arguments = {"path": path} | ({"content": "x"} if name == "write_file" else {})
    refused(
        dispatch(dispatcher(catalog), name, arguments), ErrorType.PERMISSION_DENIED, "was not run"
    )
    assert trace == []


@pytest.mark.proves("gate.denied-does-nothing")
def test_a_refused_call_is_not_carried_out_even_if_somebody_tries(
    catalog: Catalog, trace: Trace
) -> None:
    of = dispatcher(catalog, gate=gate(deny=["read_file"]))
    prepared = of.evaluate(ToolCall("c1", "read_file", '{"path":"a"}'))
    answer = carry_out(of, prepared)
    assert isinstance(answer, ToolResult)
    refused(answer, ErrorType.PERMISSION_DENIED)
    assert trace == []


def test_a_write_that_no_rule_allows_is_a_question_bound_to_its_arguments(catalog: Catalog) -> None:
    of = dispatcher(catalog, gate=gate())
    one, other = (
        of.evaluate(
            ToolCall("c1", "write_file", json.dumps({"path": "a", "content": text}))
        ).evaluation
        for text in "xy"
    )
    assert one.verdict == other.verdict == "ask"
    assert one.digest != other.digest


def test_a_judge_that_fails_refuses_the_call(catalog: Catalog, trace: Trace) -> None:
    class BrokenGate(PermissionGate):
        def decide(self, tool: Tool, values: Mapping[str, Any]) -> Any:
            raise RuntimeError("broken")

    of = dispatcher(catalog, gate=BrokenGate())
    refused(
        dispatch(of, "read_file", {"path": "a"}), ErrorType.INTERNAL_ERROR, "was not run", "broken"
    )
    assert trace == []


@given(st.text(), st.text())
def test_any_text_as_name_and_arguments_gets_one_answer(name: str, arguments: str) -> None:
    @tool(side_effect="none")
    def echo(text: str = "") -> str:
        return text

    of = Dispatcher(Catalog([echo]), gate())
    for called in (name, "echo"):
        prepared = of.evaluate(ToolCall("c1", called, arguments))
        assert prepared.evaluation.verdict == "allow" or prepared.evaluation.result is not None


# ---- 7 pre hooks


class Before:
    """A hook that answers as told, and passes results on."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.seen: list[Mapping[str, Any]] = []

    async def before(self, tool: Tool, values: Mapping[str, Any], context: Context) -> Any:
        self.seen.append(values)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def after(self, tool: Tool, result: ToolResult, context: Context) -> ToolResult | None:
        return None


def test_a_hook_blocks_a_call_with_its_reason(catalog: Catalog, trace: Trace) -> None:
    of = dispatcher(catalog, hooks=(Before(Block("not on a Sunday")),))
    refused(
        dispatch(of, "read_file", {"path": "a"}), ErrorType.PERMISSION_DENIED, "not on a Sunday"
    )
    assert trace == []


@pytest.mark.proves("hooks.broken-blocks")
def test_a_hook_that_raises_blocks_the_call(catalog: Catalog, trace: Trace) -> None:
    of = dispatcher(catalog, hooks=(Before(ValueError("typo")),))
    refused(
        dispatch(of, "read_file", {"path": "a"}),
        ErrorType.PERMISSION_DENIED,
        "a hook failed",
        "typo",
    )
    assert trace == []


@pytest.mark.proves("hooks.first-block-wins")
def test_hooks_after_a_block_are_not_asked(catalog: Catalog) -> None:
    second = Before(None)
    dispatch(dispatcher(catalog, hooks=(Before(Block("no")), second)), "read_file", {"path": "a"})
    assert second.seen == []


@pytest.mark.proves("hooks.change-is-checked-again")
def test_changes_chain_and_the_handler_gets_the_last(catalog: Catalog, trace: Trace) -> None:
    first, second = Before(Change({"path": "b"})), Before(Change({"path": "c", "limit": "3"}))
    dispatch(dispatcher(catalog, hooks=(first, second)), "read_file", {"path": "a"})
    assert [seen["path"] for seen in first.seen + second.seen] == ["a", "b"]
    assert trace == [("read", "c", 3)]


@pytest.mark.proves("hooks.change-is-checked-again")
@pytest.mark.parametrize(
    ("changed", "bound"),
    [
        # The values that run, and not the text that the hook wrote.
        ({"path": "c", "limit": "3"}, {"path": "c", "limit": 3}),
        ({"path": 5}, {"path": 5}),
    ],
)
def test_a_change_is_journaled_with_the_digest_of_what_runs(
    catalog: Catalog, changed: dict[str, Any], bound: dict[str, Any]
) -> None:
    journaled: list[Any] = []
    of = dispatcher(catalog, hooks=(Before(Change(changed)),))
    prepared = of.evaluate(ToolCall("c1", "read_file", '{"path":"a"}'))
    noting = replace(context(), record=journaled.append)
    asyncio.run(asyncio.wait_for(of.execute(prepared, noting), BOUND))
    (event,) = journaled
    assert json.loads(event.arguments) == changed
    assert event.digest == digest_arguments("read_file", bound)


@pytest.mark.proves("hooks.change-is-checked-again")
@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"path": 5}, ErrorType.VALIDATION_FAILED),
        ({"path": "a", "more": 1}, ErrorType.VALIDATION_FAILED),
        ({"path": ".env"}, ErrorType.PERMISSION_DENIED),
        ({"path": "../../etc/passwd"}, ErrorType.PERMISSION_DENIED),
    ],
)
def test_what_a_hook_changed_is_validated_and_gated_again(
    catalog: Catalog, trace: Trace, changed: dict[str, Any], error: ErrorType
) -> None:
    refused(
        dispatch(dispatcher(catalog, hooks=(Before(Change(changed)),)), "read_file", {"path": "a"}),
        error,
    )
    assert trace == []


@pytest.mark.proves("hooks.change-is-checked-again")
def test_values_that_a_hook_changes_in_place_do_not_run(catalog: Catalog, trace: Trace) -> None:
    class Sneaky(Before):
        async def before(self, tool: Tool, values: Any, context: Context) -> None:
            values["path"] = ".env"

    dispatch(dispatcher(catalog, hooks=(Sneaky(None),)), "read_file", {"path": "a"})
    assert trace == [("read", "a", 10)]


def test_a_change_after_the_approval_is_asked_once_more_and_then_runs(
    catalog: Catalog, trace: Trace
) -> None:
    of = dispatcher(catalog, gate=gate(), hooks=(Before(Change({"path": "b", "content": "x"})),))
    approved = of.evaluate(ToolCall("c1", "write_file", '{"path":"a","content":"x"}'))
    again = carry_out(of, approved)
    assert isinstance(again, PreparedCall), "other arguments than those that were approved"
    assert again.evaluation.verdict == "ask"
    assert again.evaluation.digest != approved.evaluation.digest
    assert trace == []
    done = carry_out(of, again)
    assert isinstance(done, ToolResult) and done.success
    assert trace == [("write", "b", "x")]


# ---- 8 execute


def one(handler: Any, **options: Any) -> Dispatcher:
    return dispatcher(Catalog([tool(name="act", **options)(handler)]))


class Odd(Exception):
    def __str__(self) -> str:
        raise ValueError("even my text is broken")


class SteersTheLoop(BaseException):
    """Not a tool's to raise; passes."""


@pytest.mark.parametrize("blocking", [True, False])
@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (ValueError("bad"), ErrorType.INTERNAL_ERROR, "ValueError: bad"),
        (SystemExit(3), ErrorType.INTERNAL_ERROR, "SystemExit: 3"),
        (MemoryError(), ErrorType.INTERNAL_ERROR, "MemoryError"),
        (RecursionError("deep"), ErrorType.INTERNAL_ERROR, "deep"),
        (OSError(28, "No space left on device"), ErrorType.IO_ERROR, "No space left"),
        (FileNotFoundError(2, "No such file", "a.txt"), ErrorType.IO_ERROR, "a.txt"),
        (ConnectionResetError("gone"), ErrorType.IO_ERROR, "gone"),
        (TimeoutError("slow"), ErrorType.TIMEOUT, "slow"),
        (ToolFailed(ErrorType.NOT_FOUND, "no such task"), ErrorType.NOT_FOUND, "no such task"),
        (RetryCall("give a date"), ErrorType.VALIDATION_FAILED, "give a date"),
        (ConfigError("this tool needs a workspace"), ErrorType.INTERNAL_ERROR, "needs a workspace"),
        (MediaInvalid("p.png is empty"), ErrorType.TOOL_ERROR, "p.png is empty"),
        (StopIteration("done"), ErrorType.INTERNAL_ERROR, "StopIteration"),
        (AssertionError(), ErrorType.INTERNAL_ERROR, "AssertionError"),
        (ExceptionGroup("several", [ValueError("x")]), ErrorType.INTERNAL_ERROR, "several"),
        (asyncio.CancelledError(), ErrorType.CANCELLED, "cancelled"),
        (Odd(), ErrorType.INTERNAL_ERROR, "Odd"),
    ],
)
def test_whatever_a_handler_raises_is_one_result(
    blocking: bool, error: BaseException, kind: ErrorType, said: str
) -> None:
    def blocks() -> str:
        raise error

    async def awaits() -> str:
        raise error

    refused(dispatch(one(blocks if blocking else awaits, max_attempts=1), "act"), kind, said)


def test_something_a_handler_waited_for_and_that_was_cancelled_fails_only_that_call() -> None:
    async def waits() -> str:
        inner = asyncio.ensure_future(asyncio.Event().wait())
        inner.cancel()
        await inner
        return "never"

    refused(dispatch(one(waits), "act"), ErrorType.CANCELLED)


def test_cancelling_the_run_stops_an_async_handler_and_is_not_swallowed() -> None:
    states: list[str] = []

    async def stop_it() -> None:
        running = asyncio.Event()

        async def hangs() -> str:
            running.set()
            try:
                await asyncio.Event().wait()
            finally:
                states.append("stopped")
            return "never"

        of = one(hangs)
        task = asyncio.ensure_future(of.execute(of.evaluate(ToolCall("c1", "act")), context()))
        await running.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(asyncio.wait_for(stop_it(), BOUND))
    assert states == ["stopped"]


@pytest.mark.proves("reliability.timeout")
def test_a_blocking_handler_that_hangs_is_answered_in_time() -> None:
    release = threading.Event()

    def hangs() -> str:
        release.wait(BOUND)
        return "late"

    try:
        result = dispatch(one(hangs, timeout=0.02), "act")
        refused(result, ErrorType.TIMEOUT, "no answer within 0.02 s", "may still be running")
    finally:
        release.set()


def test_the_context_is_handed_to_the_handler_that_asks_for_it() -> None:
    def who(context: Context) -> str:
        return context.identity.user

    assert dispatch(one(who), "act").data == "u"


def test_a_sync_function_that_returns_a_coroutine_is_awaited() -> None:
    async def later() -> str:
        return "later"

    def starts():  # type: ignore[no-untyped-def]
        return later()

    assert dispatch(one(starts), "act").data == "later"


# ---- 9 validate the result


@pytest.mark.parametrize("value", ["many", None, [1], {"deep": {"er": "x"}}, Path("a/b")])
def test_a_result_that_does_not_fit_its_own_schema_is_a_success_with_a_notice(value: Any) -> None:
    """The call took effect: a failure would be a reason to make it a second time."""
    done: list[int] = []

    def order() -> int:
        done.append(1)
        return value

    result = dispatch(one(order), "act")
    assert (result.success, result.error_type, done) == (True, ErrorType.NONE, [1])
    assert result.data == (str(value) if isinstance(value, Path) else value)
    (note,) = result.notes
    assert note.startswith(
        "[note: `act` ran; its result is as it came and does not fit the tool's own schema: "
    )


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("value", [b"bytes", object(), {"deep": b""}])
def test_a_value_that_is_no_json_is_left_out_with_a_notice_that_names_its_type(
    value: Any, declared: bool
) -> None:
    def give():  # type: ignore[no-untyped-def]
        return value

    def give_any() -> object:
        return value

    result = dispatch(one(give_any if declared else give), "act")
    assert (result.success, result.data) == (True, None)
    kind = "bytes" if isinstance(value, dict) else type(value).__name__
    assert any(f"a {kind} cannot be written as JSON" in note for note in result.notes)


def test_a_value_that_contains_itself_is_left_out_with_a_notice() -> None:
    def give() -> dict[str, Any]:
        value: dict[str, Any] = {}
        value["self"] = value
        return value

    result = dispatch(one(give), "act")
    assert (result.success, result.data) == (True, None)
    assert any("its value is left out" in note for note in result.notes)


def test_paths_in_a_declared_dictionary_are_written_as_text() -> None:
    def give() -> dict[str, Any]:
        return {"path": Path("a/b")}

    assert dispatch(one(give), "act").data == {"path": "a/b"}


# ---- 10 post hooks


class After:
    """A hook that lets calls pass and answers about results as told."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.seen: list[ToolResult] = []

    async def before(self, tool: Tool, values: Mapping[str, Any], context: Context) -> None: ...

    async def after(self, tool: Tool, result: ToolResult, context: Context) -> ToolResult | None:
        self.seen.append(result)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer(result) if self.answer else None


def test_a_hook_redacts_a_result(catalog: Catalog) -> None:
    hook = After(lambda result: ToolResult(result.call_id, result.tool, True, "[redacted]"))
    assert (
        dispatch(dispatcher(catalog, hooks=(hook,)), "read_file", {"path": "a"}).data
        == "[redacted]"
    )


def test_a_hook_that_fails_on_a_result_withholds_it(catalog: Catalog) -> None:
    result = dispatch(
        dispatcher(catalog, hooks=(After(KeyError("x")),)), "read_file", {"path": "a"}
    )
    refused(result, ErrorType.INTERNAL_ERROR, "withheld")
    assert "contents" not in result.to_text()


def test_a_result_that_a_hook_made_is_bounded_and_answers_the_same_call(catalog: Catalog) -> None:
    hook = After(lambda result: ToolResult("another", "another", True, "x" * 1000))
    result = dispatch(dispatcher(catalog, hooks=(hook,), cap=300), "read_file", {"path": "a"})
    assert (result.partial, result.data) == (True, "x" * 300)


def test_a_result_that_a_hook_made_and_that_is_no_json_is_withheld(catalog: Catalog) -> None:
    hook = After(lambda result: ToolResult(result.call_id, result.tool, True, object()))
    refused(
        dispatch(dispatcher(catalog, hooks=(hook,)), "read_file", {"path": "a"}),
        ErrorType.INTERNAL_ERROR,
    )


def test_a_hook_sees_results_of_calls_that_failed() -> None:
    def fails() -> str:
        raise ValueError("bad")

    hook = After(None)
    dispatch(dispatcher(Catalog([tool(name="act")(fails)]), hooks=(hook,)), "act")
    assert [result.error_type for result in hook.seen] == [ErrorType.INTERNAL_ERROR]


# ---- 11 bound


@pytest.mark.proves("bounds.cut-at-64-kib")
def test_seventy_thousand_bytes_of_a_handler_are_cut_with_a_notice() -> None:
    result = dispatch(one(lambda: "x" * 70_000), "act")
    assert (result.partial, result.size) == (True, 70_000)
    assert result.to_text() == "x" * 65_536 + "\n[output truncated at 65536 bytes of 70000]"


@pytest.mark.proves("limits.tighten-only")
def test_no_setting_raises_the_cap() -> None:
    of = Dispatcher(Catalog([tool(name="act")(lambda: "x" * 200_000)]), gate(), cap=10**9)
    assert len(dispatch(of, "act").data) == OUTPUT_CAP


def test_a_long_error_message_is_cut_too() -> None:
    def fails() -> str:
        raise ToolFailed(ErrorType.IO_ERROR, "é" * 100_000)

    message = dispatch(one(fails), "act").error_message or ""
    assert len(message.encode()) < OUTPUT_CAP + 100


def test_a_name_that_is_not_utf_8_reaches_the_model_readable() -> None:
    assert dispatch(one(lambda: ["a\udcff"]), "act").data == ["a?"]


# ---- what the driver records


@pytest.mark.proves("result.shape")
def test_a_result_says_when_how_long_and_how_large() -> None:
    clock = FakeClock()

    def act() -> str:
        clock.advance(0.25)
        return "four"

    of = Dispatcher(Catalog([tool(name="act")(act)]), gate(), clock=clock)
    result = dispatch(of, "act")
    assert (result.duration_ms, result.size, result.timestamp) == (250, 4, clock.now() * 1000)


def test_an_evaluation_carries_what_the_machine_and_the_journal_need(catalog: Catalog) -> None:
    evaluation = (
        dispatcher(catalog)
        .evaluate(ToolCall("c1", "write_file", '{"path":"d/a","content":"x"}'))
        .evaluation
    )
    assert (evaluation.call_id, evaluation.verdict, evaluation.effect, evaluation.risk) == (
        "c1",
        "allow",
        "write",
        "medium",
    )
    assert (evaluation.rule, evaluation.access.writes) == ("write_file", ("d/a",))
    assert len(evaluation.digest) == 64


@pytest.mark.proves("names.one-to-one")
def test_a_tool_called_by_its_api_name_is_gated_by_its_full_name(trace: Trace) -> None:
    @tool(namespace="fs")
    def look() -> str:
        trace.append("looked")
        return ""

    of = dispatcher(Catalog([look]), gate=gate(deny=["fs::look"]))
    for name in ("fs::look", "fs__look"):
        refused(dispatch(of, name), ErrorType.PERMISSION_DENIED)
    assert trace == []


def test_what_steers_the_loop_passes_through_the_dispatcher() -> None:
    async def steers() -> str:
        raise SteersTheLoop

    of = one(steers)
    with pytest.raises(SteersTheLoop):
        carry_out(of, of.evaluate(ToolCall("c1", "act")))


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"command": ""}, "names no program"),
        ({"command": " \t"}, "names no program"),
        ({"command": []}, "names no program"),
        ({"command": ["", "-x"]}, "names no program"),
        ({"command": "ls", "timeout": 0}, "`timeout` must be from 0.001 to 3600"),
        ({"command": "ls", "timeout": 3601}, "`timeout` must be from 0.001 to 3600"),
    ],
)
def test_nobody_is_asked_about_a_call_that_can_never_work(
    arguments: dict[str, Any], why: str
) -> None:
    dispatcher = Dispatcher(Catalog([run_command]), PermissionGate(RuleSet.parse(), root=ROOT))
    refused = dispatcher.evaluate(ToolCall("c1", "run_command", json.dumps(arguments))).evaluation
    assert refused.verdict == "refuse"
    assert refused.result is not None
    assert refused.result.error_type is ErrorType.VALIDATION_FAILED
    assert why in (refused.result.error_message or "")


def test_a_tool_says_itself_what_it_cannot_do_before_any_rule_is_looked_at() -> None:
    def impossible(values: Mapping[str, Any]) -> list[str]:
        return ["`start` lies behind `end`"] if values["start"] > values["end"] else []

    @tool(side_effect="write", impossible=impossible)
    def span(start: int, end: int) -> str:
        """Span."""
        return "done"

    dispatcher = Dispatcher(Catalog([span]), PermissionGate(RuleSet.parse(), root=ROOT))
    asked = dispatcher.evaluate(ToolCall("c1", "span", '{"start": 1, "end": 2}')).evaluation
    refused = dispatcher.evaluate(ToolCall("c2", "span", '{"start": 3, "end": 2}')).evaluation
    assert (asked.verdict, refused.verdict) == ("ask", "refuse")
    assert "`start` lies behind `end`" in refused.reason
