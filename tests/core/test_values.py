"""Results, limits, identities and errors: the values everything else is made of."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.core.calls import ErrorType, ToolCall, ToolResult, encode_json
from ferrule.core.errors import (
    ConfigError,
    FerruleError,
    JournalError,
    LimitReached,
    ProviderError,
    RetryCall,
    RunCancelled,
    SessionNotFound,
    ToolDefinitionError,
    ToolFailed,
)
from ferrule.core.events import Access
from ferrule.core.identity import Identity
from ferrule.core.limits import Limits

OUTPUT_CAP = 64 * 1024

CALL = ToolCall("c1", "read_file", '{"path":"config.txt"}')


@pytest.mark.proves("result.shape")
def test_a_success_has_the_shape_of_the_requirement() -> None:
    result = ToolResult(
        "c1", "read_file", True, "1: port", duration_ms=3, size=7, timestamp=1705680000000
    )
    assert result.to_envelope() == {
        "success": True,
        "data": "1: port",
        "error_message": None,
        "error_type": "none",
        "metadata": {"execution_time_ms": 3, "data_size_bytes": 7, "timestamp": 1705680000000},
    }


@pytest.mark.proves("result.shape")
def test_a_failure_has_the_shape_of_the_requirement() -> None:
    result = ToolResult.error(CALL, ErrorType.NOT_FOUND, "there is no `config.txt`", timestamp=5)
    assert result.to_envelope() == {
        "success": False,
        "data": None,
        "error_message": "there is no `config.txt`",
        "error_type": "not_found",
        "metadata": {"execution_time_ms": 0, "data_size_bytes": 0, "timestamp": 5},
    }
    assert (result.call_id, result.tool) == ("c1", "read_file")


def test_the_error_types_are_the_named_ones() -> None:
    assert [str(kind) for kind in ErrorType] == [
        "none", "not_found", "validation_failed", "permission_denied", "io_error", "parse_error",
        "timeout", "cancelled", "limit", "tool_error", "internal_error",
    ]  # fmt: skip


@pytest.mark.proves("result.what-the-model-reads")
def test_the_model_reads_the_value_on_success() -> None:
    assert ToolResult("c", "t", True, "plain text").to_text() == "plain text"
    assert ToolResult("c", "t", True, {"à": [1, None]}).to_text() == '{"à":[1,null]}'


@pytest.mark.proves("result.what-the-model-reads")
def test_the_model_reads_the_result_object_on_failure() -> None:
    result = ToolResult.error(CALL, ErrorType.IO_ERROR, "no")
    assert json.loads(result.to_text()) == result.to_envelope()


def test_the_model_reads_the_result_object_always_if_asked_for() -> None:
    result = ToolResult("c", "t", True, "value")
    assert json.loads(result.to_text(envelope=True)) == result.to_envelope()


def test_notes_follow_the_value() -> None:
    assert ToolResult("c", "t", True, "value", notes=("[a]", "[b]")).to_text() == "value\n[a]\n[b]"


@pytest.mark.proves("bounds.says-partial")
def test_a_cut_result_says_so_in_its_object() -> None:
    assert ToolResult("c", "t", True, "va", partial=True).to_envelope()["partial"] is True
    assert "partial" not in ToolResult("c", "t", True, "va").to_envelope()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(json_values)
@pytest.mark.proves("result.what-the-model-reads")
def test_any_value_that_is_not_text_reaches_the_model_as_its_json(value: Any) -> None:
    shown = ToolResult("c", "t", True, value).to_text()
    assert shown == value if isinstance(value, str) else json.loads(shown) == value
    assert isinstance(value, str) or shown == encode_json(value)


@pytest.mark.proves("limits.defaults")
def test_limits_hold_where_nothing_was_set() -> None:
    limits = Limits()
    assert (limits.max_calls_per_turn, limits.max_output_bytes) == (15, 65_536)
    assert limits.turns == 200
    assert limits.fill_turns(10).turns == 10 and Limits(max_turns=3).fill_turns(10).turns == 3


@pytest.mark.proves("limits.tighten-only")
def test_the_output_cap_can_be_tightened_and_never_raised() -> None:
    assert Limits(max_output_bytes=256).max_output_bytes == 256
    for size in (255, OUTPUT_CAP + 1):
        with pytest.raises(ConfigError, match="max_output_bytes"):
            Limits(max_output_bytes=size)


@pytest.mark.proves("limits.defaults")
@pytest.mark.parametrize(
    "wrong", [{"max_turns": 0}, {"max_calls_per_turn": 0}, {"on_limit": "stop"}]
)
def test_senseless_limits_are_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Limits(**wrong)


@pytest.mark.parametrize("part", ["tenant", "user", "session", "run"])
@pytest.mark.parametrize("blank", ["", "  ", "\t\n"])
def test_an_identity_with_a_blank_part_is_refused_by_name(part: str, blank: str) -> None:
    parts = {"tenant": "t", "user": "u", "session": "s", "run": "r", part: blank}
    with pytest.raises(ConfigError, match=part) as refused:
        Identity(**parts)
    assert refused.value.code == "identity_blank"


def test_a_new_run_keeps_the_person_and_the_session() -> None:
    assert Identity("t", "u", "s", "one").for_run("two") == Identity("t", "u", "s", "two")


ERRORS: list[Exception] = [
    FerruleError("what", code="c", hint="do", retryable=True),
    ConfigError("what", hint="do"),
    ToolDefinitionError("what"),
    ProviderError("what", status=503, retry_after=2.5, retryable=True),
    JournalError("what"),
    SessionNotFound("what"),
    LimitReached("max_turns", 10, session="s", hint="do"),
    RunCancelled("what"),
    ToolFailed(ErrorType.IO_ERROR, "what", transient=True),
    RetryCall("what"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda e: pickle.loads(pickle.dumps(e))]
)
def test_a_copy_of_an_error_carries_everything(error: Exception, again: Any) -> None:
    twin = again(error)
    assert type(twin) is type(error)
    assert (str(twin), twin.args, vars(twin)) == (str(error), error.args, vars(error))


def test_an_error_ends_with_its_hint() -> None:
    assert str(ConfigError("rule `x` cannot be read", hint="write it as `Tool(path)`")) == (
        "rule `x` cannot be read\nhint: write it as `Tool(path)`"
    )


@pytest.mark.proves("limits.typed-error")
def test_only_the_limit_of_time_ends_a_command_as_a_timeout_does() -> None:
    assert LimitReached("max_seconds", 1).exit_code == 124
    for limit in ("max_turns", "max_tokens", "max_cost", "max_calls"):
        assert LimitReached(limit, 1).exit_code == 5


@pytest.mark.proves("limits.typed-error")
def test_a_limit_is_an_error_with_its_own_type_that_names_the_limit_and_the_session() -> None:
    error = LimitReached("max_turns", 3, session="s1")
    assert (error.code, error.limit, error.value, error.session) == (
        "limit_max_turns",
        "max_turns",
        3,
        "s1",
    )
    assert error.exit_code == 5


prefixes = st.sampled_from(["", "a", "a/b", "a/bc", "b", "ab"])
accesses = st.builds(
    Access, st.lists(prefixes, max_size=2).map(tuple), st.lists(prefixes, max_size=2).map(tuple)
)


@given(accesses, accesses)
def test_conflicts_are_mutual_and_need_a_writer(one: Access, other: Access) -> None:
    assert one.conflicts_with(other) == other.conflicts_with(one)
    if not one.writes and not other.writes:
        assert not one.conflicts_with(other)


def test_a_folder_with_the_same_beginning_is_another_folder() -> None:
    assert Access(writes=("work",)).conflicts_with(Access(reads=("work/a.txt",)))
    assert not Access(writes=("work",)).conflicts_with(Access(reads=("work2/a.txt",)))
    assert Access(writes=("",)).conflicts_with(Access(reads=("anything",)))
