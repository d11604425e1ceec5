"""`run_code`: a script calls tools and nothing else, within its bounds."""

from __future__ import annotations

import asyncio
import gc
import sys
import weakref
from contextvars import ContextVar, copy_context
from typing import Any

import pytest

from ferrule.core.calls import ErrorType, ToolResult
from ferrule.core.errors import ConfigError, ToolDefinitionError, ToolFailed
from ferrule.core.events import DirectCall
from ferrule.core.identity import Identity
from ferrule.engine.hooks.events import Action, ToolPre, block
from ferrule.extensions.hooks.decorator import hook
from ferrule.toolkits.code_mode import CodeLimits, code_tool
from ferrule.toolkits.code_mode.data import to_data
from ferrule.tools.context import Context
from ferrule.tools.decorator import tool

QUICK = CodeLimits(seconds=0.5, calls=5, memory=16 * 1024 * 1024, printed=100, nodes=1000)

pytestmark = pytest.mark.usefixtures("rust_runtimes")


def test_a_script_calls_tools_and_its_last_expression_is_the_value(world: Any) -> None:
    result = world.run(
        "prices = shop_price('all')\nwanted = [look(n, times=2) for n in "
        "sorted(prices)]\nprint(len(wanted))\n"
        "{'names': [w[0] for w in wanted], 'sum': sum(prices.values())}"
    )
    assert result.success, result.error_message
    assert result.data == {
        "value": {"names": ["pear", "plum"], "sum": 1.75},
        "output": "2\n",
        "calls": 3,
        "notes": [],
    }
    assert world.seen == ["price all", "look pear", "look plum"]


def test_nothing_of_a_run_outlives_its_scripts(world: Any) -> None:
    """Monty's threads let go of what they were given late: seen in one script of ten."""

    class Held:
        """A value of a context variable."""

    variable = ContextVar[Held]("of the run")

    def run() -> weakref.ref[Held]:
        held = Held()
        variable.set(held)
        assert world.run("print(look('a'))").success
        return weakref.ref(held)

    kept: list[Held | None] = []
    for _ in range(25):
        held = copy_context().run(run)
        gc.collect()
        kept.append(held())
    assert kept == [None] * 25


def test_every_call_of_a_script_is_a_call_of_the_run_in_the_journal(world: Any) -> None:
    assert world.run("look('a')\nlook('b')").success
    events = [record.event for record in world.journal.records(world.session)]
    direct = [(event.call.tool, event.by) for event in events if isinstance(event, DirectCall)]
    assert [name for name, _ in direct] == ["run_code", "look", "look"]
    assert direct[0][1] == "person"
    assert all(by.startswith("call direct_") for _, by in direct[1:])
    world.journal.verify(world.session)


def test_a_denied_call_is_an_exception_in_the_script_and_not_run(world: Any) -> None:
    caught = world.run(
        "try:\n  put('x')\nexcept PermissionError as e:\n  said = str(e)\nsaid", deny=["put"]
    )
    assert caught.data["value"].startswith("put: permission_denied: ")
    uncaught = world.run("a = 1\nput('x')", deny=["put"])
    assert (uncaught.success, uncaught.error_type) == (False, "permission_denied")
    assert uncaught.error_message.startswith("line 2: PermissionError: put: permission_denied: ")
    assert world.seen == []


def test_hooks_see_each_call_of_a_script_and_can_block_it(world: Any) -> None:
    asked: list[str] = []

    @hook("tool.pre", when='name == "look"')
    async def no_b(call: ToolPre) -> Action | None:
        asked.append(str(call.arguments["name"]))
        return block("not b") if call.arguments["name"] == "b" else None

    result = world.run(
        "look('a')\ntry:\n  look('b')\nexcept Exception as e:\n  said = str(e)\nsaid", hooks=[no_b]
    )
    assert result.success, result.error_message
    assert "not b" in result.data["value"]
    assert asked == ["a", "b"]
    assert world.seen == ["look a"]


def test_of_a_long_failure_the_first_2000_characters_are_told(world: Any) -> None:
    @hook("tool.pre", when='name == "look"')
    async def never(call: ToolPre) -> Action:
        return block("n" * 3_000)

    code = "try:\n  look('a')\nexcept Exception as e:\n  said = str(e)\nsaid"
    told = world.run(code, hooks=[never]).data["value"]
    assert len(told.removeprefix("look: permission_denied: ")) == 2_000
    failed = world.run("raise ValueError('x' * 3_000)").error_message
    assert len(failed.removeprefix("line 1: ")) == 2_000


def test_arguments_are_checked_as_those_of_any_call(world: Any) -> None:
    for code in (
        "look()",
        "look(1, 2, 3)",
        "look('a', name='b')",
        "look('a', times='many')",
        "look('a', more=1)",
    ):
        result = world.run(code)
        assert (result.success, result.error_type) == (False, "validation_failed"), code
        assert "line 1: ValueError: look: validation_failed" in result.error_message
    assert world.seen == []


def test_reads_that_are_awaited_together_run_together_and_answer_in_order(world: Any) -> None:
    world.together = 3
    result = world.run("import asyncio\nawait asyncio.gather(look('a'), look('b'), look('c'))")
    assert result.data["value"] == [["a"], ["b"], ["c"]]
    assert world.most == 3


def test_writes_never_run_beside_each_other_and_keep_their_order(world: Any) -> None:
    result = world.run("import asyncio\nawait asyncio.gather(*[put(str(n)) for n in range(5)])")
    assert result.success, result.error_message
    assert world.most == 1
    assert world.seen == [f"put {n}" for n in range(5)]


def test_no_more_run_at_a_time_than_the_bound(world: Any) -> None:
    result = world.run(
        "import asyncio\nlen(await asyncio.gather(*[look(str(n)) for n in range(9)]))",
        limits=CodeLimits(parallel=2),
    )
    assert result.data["value"] == 9
    assert world.most <= 2


def test_a_call_after_the_last_await_is_not_made_and_said(world: Any) -> None:
    result = world.run("await look('a')\nput('x')\n1")
    assert world.seen == ["look a"]
    assert result.data["notes"] == ["1 calls were not made because nothing awaited them"]


def test_one_failed_call_of_several_can_be_caught_and_waiting_takes_no_time(world: Any) -> None:
    code = (
        "import asyncio\nawait asyncio.sleep(1000)\n"
        "async def safe(n):\n  try:\n    return await look(n)\n  except Exception as e:\n    "
        "return type(e).__name__\n"
        "await asyncio.gather(safe('a'), safe(7), safe('b'))"
    )
    result = world.run(code)
    assert result.success, result.error_message
    assert result.data["value"] == [["a"], "ValueError", ["b"]]


@pytest.mark.parametrize(
    "code",
    [
        "open('/etc/passwd').read()",
        "import os\nos.environ['HOME']",
        "import os\nos.listdir('/')",
        "import os\nos.system('id')",
        "import subprocess",
        "import socket",
        "import ctypes",
        "import urllib.request",
        "import importlib",
        "__import__('os').system('id')",
        "from pathlib import Path\nPath('/etc/passwd').read_text()",
        "from pathlib import Path\nPath('/tmp/ferrule-escaped').write_text('x')",
        "import sys\nsys.modules['os']",
        "import datetime\ndatetime.datetime.now()",
        "import time\ntime.time()",
        "().__class__.__bases__[0].__subclasses__()",
        "look.__globals__",
        "look.__code__",
        "look.__self__",
        "(lambda: 0).__globals__",
        "getattr(look, '__call__').__self__",
        "'{0.__class__}'.format(look)",
        "vars()['__builtins__']",
        "globals()['__builtins__']",
        "breakpoint()",
        "input()",
        "exit()",
        "unknown_tool('x')",
        "run_code('1')",
        "eval(\"__import__('os')\")",
        "exec('import os\\nos.system(\"id\")')",
    ],
)
def test_nothing_else_is_reachable(world: Any, code: str, tmp_path: Any) -> None:
    result = world.run(code)
    assert not result.success, result.data
    assert result.error_type == "validation_failed"
    assert world.seen == []


def test_the_environment_of_this_process_is_not_the_interpreters(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVICE_TOKEN", "hunter2")
    result = world.run("import os\nos.getenv('SERVICE_TOKEN')")
    assert "hunter2" not in str(result)


@pytest.mark.parametrize(
    ("code", "error", "said"),
    [
        ("while True: pass", "timeout", "computed for more than 0.5 s"),
        (
            "while True:\n  try:\n    while True: pass\n  except BaseException: pass",
            "timeout",
            "computed",
        ),
        ("x = 'a' * 10**9", "limit", "memory"),
        ("x = [0]\nwhile True: x = x + x", "limit", "memory"),
        ("x = 10 ** 10 ** 9", "limit", "memory"),
        ("def f(): return f()\nf()", "limit", "within each other"),
        (
            "while True:\n  try: look('a')\n  except Exception: pass",
            "limit",
            "line 2: more than 5 calls",
        ),
        ("while True:\n  try: nothing()\n  except NameError: pass", "limit", "asked too often"),
        ("while True:\n  try: open('x')\n  except OSError: pass", "limit", "asked too often"),
        ("x = []\nfor i in range(60): x = [x, x]\nx", "limit", "too large"),
        ("x = []\nfor i in range(60): x = [x, x]\nlook(x)", "limit", "too large"),
        ("x = []\nfor i in range(500): x = [x]\nx", "limit", "too large"),
        ("'a' * 5_000_000", "limit", "too large"),
        ("#" * 20_001, "validation_failed", "the most is 20000"),
    ],
)
def test_a_script_that_takes_too_much_is_ended_with_the_bound_it_broke(
    world: Any, code: str, error: str, said: str
) -> None:
    result = world.run(code, limits=QUICK)
    assert (result.success, result.error_type) == (False, error), result
    assert said in result.error_message
    assert len(world.seen) <= 5


def test_what_is_printed_beyond_the_bound_is_counted_and_said(world: Any) -> None:
    result = world.run("for i in range(300): print('x')", limits=QUICK)
    assert result.data["output"] == "x\n" * 50
    assert result.data["notes"] == ["500 more characters were printed than the 100 that are kept"]


def test_a_call_that_does_not_end_is_ended_with_the_script(world: Any) -> None:
    world.together = 2  # it waits for another that never comes
    result = world.run("look('a')", limits=CodeLimits(total_seconds=0.2))
    assert (result.success, result.error_type) == (False, "timeout")
    assert "took more than 0.2 s" in result.error_message


@pytest.mark.parametrize(
    ("code", "error", "said"),
    [
        ("'\ud800'", "validation_failed", "half of a surrogate pair"),
        ("x = 1\ndef (", "parse_error", "line 2: the script cannot be read"),
        ("x = 1\n\nraise ValueError('bad')", "validation_failed", "line 3: ValueError: bad"),
        ("def f():\n  return 1 / 0\nf()", "validation_failed", "line 2: ZeroDivisionError"),
        ("nothing(1)", "validation_failed", "functions: look, put, shop_price"),
        ("await look('a')\nlook('b')[0]", "validation_failed", "every call has to be awaited"),
        ("await 1", "validation_failed", "leave `await` out"),
        ("list(map(look, ['a']))", "validation_failed", "in a loop or comprehension"),
        ("float('inf')", "validation_failed", "JSON does not have"),
        ("{(1, 2): 3}", "validation_failed", "keys of data are text"),
        ("class A: pass\nA()", "validation_failed", "not data"),
    ],
)
def test_what_goes_wrong_is_said_with_its_line(
    world: Any, code: str, error: str, said: str
) -> None:
    result = world.run(code)
    assert (result.success, result.error_type) == (False, error)
    assert said in result.error_message


def test_a_failed_script_says_what_it_had_printed_and_called(world: Any) -> None:
    result = world.run("print('before')\nlook('a')\n1 / 0")
    assert result.data == {"output": "before\n", "calls": 1, "notes": []}


def test_the_same_script_with_the_same_answers_does_the_same(world: Any) -> None:
    code = (
        "import random, time\ntime.sleep(1000)\n[random.random(), random.randint(1, 10**9), "
        "sorted({'b', 'a'})]"
    )
    assert world.run(code).data == world.run(code).data


def test_nothing_is_kept_between_scripts(world: Any) -> None:
    assert world.run("kept = 1\nkept").data["value"] == 1
    assert "NameError" in world.run("kept").error_message


def test_only_tools_that_read_are_bound_unless_a_program_says_otherwise(world: Any) -> None:
    with pytest.raises(ToolDefinitionError, match="`put` may do more than read"):
        code_tool(world.tools())
    assert code_tool(world.tools(), read_only=False).side_effect == "undeclared"
    assert world.run("look('a')", read_only=True).success
    with pytest.raises(ToolDefinitionError, match="no tools"):
        code_tool([])
    with pytest.raises(ToolDefinitionError, match="cannot start scripts"):
        code_tool([code_tool(world.tools(), read_only=False)], read_only=False)


def test_the_description_lists_the_functions_and_does_not_depend_on_their_order(world: Any) -> None:
    tools = world.tools()
    one, other = code_tool(tools, read_only=False), code_tool(tools[::-1], read_only=False)
    assert one.description == other.description
    assert one.description.endswith(
        "Functions:\n"
        "- look(name: str, times: int = 1) -> list[str]: Give a name back, several times.\n"
        "- put(name: str) -> str: Write something down.\n"
        "- shop_price(item: str) -> dict: What an item costs."
    )


def test_names_become_identifiers_that_no_builtin_has_and_that_differ() -> None:
    def named(name: str, namespace: str = "") -> Any:
        async def run() -> str:
            """Does it."""
            return ""

        return tool(name=name, namespace=namespace, side_effect="none")(run)

    made = code_tool(
        [named("print"), named("class"), named("a-b"), named("a.b"), named("b", "x"), named("z")]
    )
    functions = [
        line[2:].partition("(")[0]
        for line in made.description.splitlines()
        if line.startswith("- ")
    ]
    assert len(set(functions)) == 6
    assert {"tool_print", "tool_class", "x_b", "z"} <= set(functions)
    assert sum(name.startswith("a_b_") for name in functions) == 2
    assert all(name.isidentifier() for name in functions)


def test_a_missing_interpreter_is_said_with_the_way_to_get_it(
    monkeypatch: pytest.MonkeyPatch, world: Any
) -> None:
    monkeypatch.setitem(sys.modules, "pydantic_monty", None)
    result = world.run("1")
    assert (result.success, result.error_type) == (False, "not_found")
    assert "ferrule[code]" in result.error_message


def test_a_cut_result_of_a_call_is_said(world: Any) -> None:
    async def cut(name: str, arguments: dict[str, Any]) -> ToolResult:
        return ToolResult("c", name, True, "abc", size=99_999, partial=True)

    context = Context(Identity("t", "u", "s", "r"), "call_1", call=cut)
    made = code_tool(world.tools(), read_only=False)
    ran = asyncio.run(made.handler(code="# é𝄞é𝄞é𝄞é𝄞é𝄞é\nlook('a')", context=context))
    assert ran["notes"] == ["line 2: the result of `look` was cut (99999 bytes in all)"]


def test_without_a_run_there_is_nothing_to_call(world: Any) -> None:
    made = code_tool(world.tools(), read_only=False)
    with pytest.raises(ConfigError, match="no run here"):
        asyncio.run(made.handler(code="1", context=Context(Identity("t", "u", "s", "r"), "call_1")))


def test_data_keeps_what_json_has_and_refuses_what_it_has_not() -> None:
    assert to_data({"a": (1, [True, None]), 2: {"b", "a"}}, "it", 100) == {
        "a": [1, [True, None]],
        "2": ["a", "b"],
    }
    with pytest.raises(ToolFailed) as refused:
        to_data([0] * 101, "it", 100)
    assert refused.value.error_type is ErrorType.LIMIT
