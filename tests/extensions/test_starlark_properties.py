"""Rules of the runtime, tried with many scripts and values: every call has one outcome, and JSON
survives the way.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.extensions.starlark.pool import WorkerPool
from ferrule.extensions.starlark.script import Script, ScriptFailed, ScriptLimits

CASES = int(os.environ.get("FERRULE_FILE_CASES", "250"))
"""How many scripts and values a property is tried with. `make lab NAME=files` asks for 100,000."""

LOTS = settings(max_examples=CASES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
HELLO = Script("def run(args):\n    return 'hello'\n", "h.md")

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**200), 2**200)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)

PIECES = st.sampled_from(
    [
        "def run(args):",
        "    return args",
        "    return run(args)",
        "    x = [",
        "]",
        "    for i in range(100000000):",
        "        pass",
        "    fail(args)",
        "    return fs.read('a')",
        "    return {1: args}",
        "    x = args * 3",
        "    return x",
        "    print(args)",
        "    return json.decode(args)",
        "    return re.match('a*', str(args))",
        "load('a', 'b')",
        "    return [y for y in args]",
        "'",
        "    return http",
        "    return 'a' * 10000000",
        "    return lambda: 1",
        "\t",
        "x = fs.stat('a')",
        "    if args:",
        "    else:",
        "\x00",
        "é",
    ]
)


class Asked:
    """Runs scripts of this module in one loop, so that workers stay warm between examples."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.pool = WorkerPool(warm=1)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)


@pytest.fixture(scope="module")
def asked() -> Iterator[Asked]:
    made = Asked()
    yield made
    made.pool.close()
    made.loop.close()


async def refuse(name: str, positional: Any, named: Any) -> Any:
    raise ToolFailed(ErrorType.NOT_FOUND, f"no {name}")


@LOTS
@given(value=VALUES)
@example(value={"": [{}], "\U0001f600": "\u2028\x00"})
@example(value=-0.0)
def test_a_value_comes_back_as_it_went_in(asked: Asked, value: Any) -> None:
    echo = Script("def run(args):\n    return args\n", "e.md")
    got = asked.run(asked.pool.run(echo, "run", [value]))
    assert got == value
    assert json.dumps(got, sort_keys=True) == json.dumps(value, sort_keys=True)


@LOTS
@given(lines=st.lists(PIECES | st.text(max_size=10), max_size=8), value=VALUES)
@example(lines=["def run(args):", "    return args", "    " * 200 + "("], value=None)
def test_whatever_a_script_says_its_call_has_one_outcome(
    asked: Asked, lines: list[str], value: Any
) -> None:
    script = Script("\n".join(lines) + "\n", "any.md")
    bounds = ScriptLimits(seconds=0.2, memory=64 << 20, result=1 << 20)
    try:
        got = asked.run(asked.pool.run(script, "run", [value], serve=refuse, limits=bounds))
    except ScriptFailed as failed:
        assert failed.message
        assert failed.error_type is not ErrorType.NONE
        assert failed.reason in {
            "compile", "fail", "error", "builtin", "timeout", "memory", "size", "depth", "ended",
        }  # fmt: skip
        # Only a person or the kernel ends a worker from outside: a script never does.
        assert failed.reason != "ended", failed.message
    else:
        json.dumps(got)
    assert asked.run(asked.pool.run(HELLO, "run", [{}])) == "hello"
