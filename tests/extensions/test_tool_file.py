"""Tool files: what they may say, what the model sees of them, and what running one does."""

from __future__ import annotations

import asyncio
import json
import textwrap
from typing import Any

import pytest

from ferrule import Agent, Limits, tool
from ferrule.core.calls import ErrorType, ToolResult
from ferrule.core.errors import ConfigError, LimitReached
from ferrule.core.identity import Identity
from ferrule.extensions.builtins.dispatch import ScriptEnvironment
from ferrule.extensions.checks.tool_file import find_problems
from ferrule.extensions.starlark.pool import WorkerPool
from ferrule.extensions.tool_files.handlers import CONTEXT, make_tool
from ferrule.extensions.tool_files.internal_tools import INTERNAL_TOOLS
from ferrule.extensions.tool_files.tool_file import ToolFile, parse_tool
from ferrule.hooks import Block, Hook
from ferrule.models.scripted import Scripted, calls, says
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.tools.context import Context
from ferrule.tools.definition import Risk, SideEffect, Tool
from grouped_options import grouped

REQUIREMENT = """---
parameters:
  command: { type: string, required: true }
  timeout_ms: { type: number, required: false }
script: |
  def run(args):
      return exec.run("bash", ["-lc", args["command"]], 15000)
timeout_ms: 30000
---

# run_command

Run a shell command.

```starlark
def run(args):
    fail("never executed")
```
"""


def parse(text: str, file: str = ".harness/tools/t.md") -> ToolFile:
    return parse_tool(textwrap.dedent(text).encode(), file)


def fields(text: str, body: str = "Mine.") -> ToolFile:
    return parse("---\n" + textwrap.dedent(text).strip("\n") + f"\n---\n{body}\n")


ECHO = "script: |\n  def run(args):\n      return args\n"


def test_the_example_of_the_requirement_is_read_as_it_says() -> None:
    found = parse_tool(REQUIREMENT.encode(), ".harness/tools/run_command.md")
    assert found.name == "run_command"
    assert found.description.startswith("# run_command\n\nRun a shell command.")
    assert found.timeout_ms == 30_000
    assert list(found.schema["properties"]) == ["command", "timeout_ms"]
    assert found.schema["required"] == ["command"]
    assert found.warnings == ()
    assert found.script is not None
    assert (
        found.script.source
        == 'def run(args):\n    return exec.run("bash", ["-lc", args["command"]], 15000)\n'
    )
    assert found.script.line == 6


def test_the_name_is_the_files_stem_and_an_empty_body_is_described_by_it() -> None:
    found = parse_tool(f"---\n{ECHO}---\n\n".encode(), ".harness/tools/verb_noun.md")
    assert (found.name, found.description) == ("verb_noun", "verb_noun")


def test_a_stem_that_cannot_be_a_name_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"a b\.md:\d+:\d+: `a b` cannot be the name of a tool"):
        parse_tool(f"---\n{ECHO}---\n".encode(), "tools/a b.md")


# ---- parameters


@pytest.mark.proves("file.parameters")
def test_flow_and_block_form_are_the_same_and_order_is_kept() -> None:
    block = """
    parameters:
      zeta:
        type: string
        description: Last letter.
        required: true
      alpha:
        type: number
        required: false
    """
    flow = (
        "parameters: "
        "{ zeta: { type: string, description: Last letter., required: true }, alpha: { type: number, required: false } }"
    )
    assert json.dumps(fields(block).schema) == json.dumps(fields(flow).schema)
    assert fields(block).schema == {
        "type": "object",
        "properties": {
            "zeta": {"type": "string", "description": "Last letter."},
            "alpha": {"type": "number"},
        },
        "required": ["zeta"],
    }
    assert list(fields(block).schema["properties"]) == ["zeta", "alpha"]


@pytest.mark.proves("file.parameters")
def test_parameters_may_be_nested_beyond_the_requirement() -> None:
    text = """
    strict: true
    parameters:
      branch:
        type: object
        properties:
          name: { type: string, required: true, pattern: "^[a-z]+$" }
          flags: { type: array, items: { type: string, enum: [force, quiet] }, maxItems: 2 }
    """
    assert fields(text).schema == {
        "type": "object",
        "properties": {
            "branch": {
                "type": "object",
                "properties": {
                    "name": {"type": "string", "pattern": "^[a-z]+$"},
                    "flags": {
                        "type": "array",
                        "items": {"type": "string", "enum": ["force", "quiet"]},
                        "maxItems": 2,
                    },
                },
                "required": ["name"],
                "additionalProperties": False,
            }
        },
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("parameters: [a]", "2:13", "must be a mapping"),
        ("parameters: text", "2:13", "must be a mapping"),
        ("parameters:\n  a: string", "3:6", "`a` must be a mapping"),
        ("parameters:\n  a: {}", "3:6", "`a` has no type"),
        ("parameters:\n  a: { type: text }", "3:14", "has the type `text`"),
        ("parameters:\n  a: { type: [string] }", "3:14", "`type` must be text"),
        ("parameters:\n  a: { type: string, required: maybe }", "3:32", "true or false"),
        (
            "parameters:\n  a: { type: string, properties: { b: { type: string } } }",
            "3:34",
            "its type `object`",
        ),
        (
            "parameters:\n  a: { type: object, properties: {}, required: [b] }",
            "3:48",
            "no property",
        ),
        ("timeout_ms: -1", "2:13", "timeout_ms must be >= 0"),
        ("timeout_ms: soon", "2:13", "whole number"),
        ("timeout_ms: 1.5", "2:13", "whole number"),
        ("strict: 1", "2:9", "true or false"),
        ("async: soon", "2:8", "true or false"),
        ("script: [a]", "2:9", "must be text"),
        ("side_effect: much", "2:14", "use one of none, read, write, execute, external"),
        ("risk: much", "2:7", "use one of safe, low"),
        ("network: [https://a.test]", "2:10", "it is a URL"),
        ("examples: text", "2:11", "list of mappings"),
        ("tests: [{returns: 1, fails: x}]", "2:9", "either"),
        ("tests: [{arguments: [], returns: 1}]", "2:21", "mapping"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, place: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        fields(text)
    assert caught.value.detail.startswith(f".harness/tools/t.md:{place}: ")
    assert said in str(caught.value)


def test_a_key_that_means_nothing_is_a_warning_with_the_nearest() -> None:
    found = fields("timeuot_ms: 5\n" + ECHO + "parameters:\n  a: { type: string, requird: true }\n")
    assert [str(one) for one in found.warnings] == [
        (
            ".harness/tools/t.md:7:22: `requird` is not a key of a parameter and was ignored; did "
            "you mean `required`?"
        ),
        (
            ".harness/tools/t.md:2:1: `timeuot_ms` is not a key of a tool and was ignored; did you "
            "mean `timeout_ms`?"
        ),
    ]
    assert found.timeout_ms == 0


def test_a_tool_without_a_script_and_one_without_run_are_warned_of() -> None:
    assert "no `script`" in str(fields("strict: false").warnings[0])
    assert "no function `run(args)`" in str(fields("script: 'x = 1'").warnings[0])
    assert fields("async: true\n" + ECHO).warnings == ()


@pytest.mark.parametrize(
    ("text", "effect", "risk"),
    [
        (ECHO, SideEffect.UNDECLARED, Risk.SAFE),
        (
            "script: |\n  def run(args):\n      return http.get('x')\n",
            SideEffect.EXTERNAL,
            Risk.MEDIUM,
        ),
        (
            "script: |\n  def run(args):\n      return delegate('x')\n",
            SideEffect.EXTERNAL,
            Risk.MEDIUM,
        ),
        ("side_effect: read\n" + ECHO, SideEffect.READ, Risk.SAFE),
        ("side_effect: write\nrisk: high\n" + ECHO, SideEffect.WRITE, Risk.HIGH),
    ],
)
def test_what_a_tool_does_is_what_it_says_or_what_its_script_reaches(
    text: str, effect: SideEffect, risk: Risk
) -> None:
    made = make_tool(fields(text), ScriptEnvironment())
    assert (made.side_effect, made.risk) == (effect, risk)


def test_positions_of_a_script_hold_for_every_way_to_write_it() -> None:
    for text, line in (
        ("script: |\n  def run(a):\n", 3),
        ("script: |2-  # why\n  def run(a):\n", 3),
        ("script:\n  'def run(a): pass'", 3),
        ("script: 'def run(a): pass'", 2),
    ):
        found = fields(text)
        assert found.script is not None
        assert found.script.line == line, text


# ---- running


def session_of(*tools: Tool, steps: tuple[Any, ...] = (), **options: Any) -> Agent:
    options.setdefault("journal", SqliteJournal(":memory:"))
    return Agent(Scripted(list(steps)), list(tools), **grouped(**options))


async def run(
    found: ToolFile, pool: WorkerPool, arguments: dict[str, Any] | None = None, **options: Any
) -> ToolResult:
    session = session_of(make_tool(found, ScriptEnvironment(), pool=pool), **options).session()
    try:
        return await session.call("t", **(arguments or {}))
    finally:
        await session.close()


async def test_a_model_reads_the_result_as_json(shared_workers: WorkerPool) -> None:
    found = fields(
        "script: |\n  def run(args):\n      return {'ok': True, 'none': None, 'args': args}\n"
    )
    agent = session_of(
        make_tool(found, ScriptEnvironment(), pool=shared_workers),
        steps=(calls(("t", {"a": 1})), says("done")),
    )
    await agent.run("go")
    answer = agent.model_client.histories[-1][-1].text  # type: ignore[attr-defined]
    assert answer == '{"ok":true,"none":null,"args":{"a":1}}'


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "command"),
        ({"command": 5}, "not of type"),
        ({"command": "x", "count": "5"}, "not of type"),
    ],
)
async def test_arguments_are_checked_before_hooks_and_script(
    shared_workers: WorkerPool, arguments: dict[str, Any], said: str
) -> None:
    fired: list[str] = []

    class Watch(Hook):
        async def before(self, tool: Any, values: Any, context: Any) -> Block | None:
            fired.append("before")
            return None

        async def after(self, tool: Any, result: Any, context: Any) -> None:
            fired.append("after")

    found = fields(
        "parameters:\n  command: { type: string, required: true }\n  count: "
        "{ type: number }\nscript: |\n  def run(args):\n      fail('it ran')\n"
    )
    result = await run(found, shared_workers, arguments, hooks=[Watch()])
    assert result.error_type is ErrorType.VALIDATION_FAILED
    assert said in (result.error_message or "")
    assert fired == []


@pytest.mark.proves("file.extra-arguments")
async def test_arguments_that_nobody_declared_pass_unless_the_file_is_strict(
    shared_workers: WorkerPool,
) -> None:
    text = "parameters: { a: { type: string } }\n" + ECHO
    passed = await run(fields(text), shared_workers, {"a": "x", "self": 1, "name": 2, CONTEXT: 3})
    assert passed.data == {"a": "x", "self": 1, "name": 2}
    refused = await run(fields("strict: true\n" + text), shared_workers, {"a": "x", "b": 1})
    assert refused.error_type is ErrorType.VALIDATION_FAILED
    assert "`b` is not an argument" in (refused.error_message or "")


async def test_an_endless_loop_ends_with_the_tools_own_time(shared_workers: WorkerPool) -> None:
    loop = (
        "script: |\n  def run(args):\n      for i in range(2000000000):\n          for j in "
        "range(2000000000):\n              pass\n"
    )
    result = await run(fields("timeout_ms: 200\n" + loop), shared_workers)
    assert result.error_type is ErrorType.TIMEOUT
    assert "200 ms" in (result.error_message or "")


async def test_a_run_that_is_out_of_time_ends_a_script_without_a_time_of_its_own(
    pool: WorkerPool,
) -> None:
    loop = (
        "timeout_ms: 0\nscript: |\n  def run(args):\n      for i in range(2000000000):\n         "
        " for j in range(2000000000):\n              pass\n"
    )
    agent = session_of(
        make_tool(fields(loop), ScriptEnvironment(), pool=pool),
        steps=(calls(("t", {})), says("no")),
        limits=Limits(max_seconds=1),
    )
    with pytest.raises(LimitReached, match="max_seconds"):
        await agent.run("go")
    assert pool.pids == ()


@pytest.mark.parametrize(
    ("header", "ends"), [("", False), ("timeout_ms: 0\n", False), ("timeout_ms: 86400000\n", True)]
)
async def test_without_a_time_or_with_0_a_script_goes_on_for_days(
    shared_workers: WorkerPool, monkeypatch: pytest.MonkeyPatch, header: str, ends: bool
) -> None:
    """Two days pass on the loop's clock while the script waits for a tool. A bound of one day is
    seen to end it.
    """
    reached = asyncio.Event()
    passed = asyncio.Event()

    @tool(side_effect="none", timeout=1_000_000_000.0)
    async def gate() -> str:
        """Wait."""
        reached.set()
        await passed.wait()
        return "open"

    script = "script: |\n  def run(args):\n      return meta.call_tool('gate', {})\n"
    made = make_tool(fields(header + script), ScriptEnvironment(), pool=shared_workers)
    session = session_of(made, gate).session()
    call = asyncio.create_task(session.call("t"))
    await asyncio.wait_for(reached.wait(), 10)
    loop = asyncio.get_running_loop()
    real = loop.time
    monkeypatch.setattr(loop, "time", lambda: real() + 2 * 86_400)
    for _ in range(3):
        await asyncio.sleep(0)
    passed.set()
    result = await call
    await session.close()
    if ends:
        assert result.error_type is ErrorType.TIMEOUT
    else:
        assert (result.success, result.data) == (True, "open")


@pytest.mark.parametrize(("policy", "attempts"), [("", 1), ("policy: {max_attempts: 2}\n", 2)])
async def test_a_script_that_ran_out_of_time_is_tried_again_only_if_its_file_says_so(
    shared_workers: WorkerPool, policy: str, attempts: int
) -> None:
    tried: list[int] = []

    @tool(side_effect="none")
    def count() -> int:
        """Count."""
        tried.append(1)
        return 1

    loop = (
        "script: |\n  def run(args):\n      meta.call_tool('count', {})\n      for i in "
        "range(2000000000):\n          pass\n"
    )
    header = "side_effect: none\ntimeout_ms: 100\n" + policy
    agent = session_of(
        make_tool(fields(header + loop), ScriptEnvironment(), pool=shared_workers), count
    )
    session = agent.session()
    result = await session.call("t")
    await session.close()
    assert result.error_type is ErrorType.TIMEOUT
    assert len(tried) == attempts


async def test_a_failing_script_is_a_result_with_the_files_line(shared_workers: WorkerPool) -> None:
    result = await run(
        fields("script: |\n  def run(args):\n      fail('no such thing')\n"), shared_workers
    )
    assert (result.success, result.error_message) == (False, ".harness/tools/t.md:4: no such thing")


async def test_a_tool_without_a_script_takes_its_handler_from_a_program(
    shared_workers: WorkerPool,
) -> None:
    found = fields("parameters: { a: { type: number, required: true } }")
    result = await run(found, shared_workers, {"a": 1})
    assert result.error_type is ErrorType.NOT_FOUND

    async def handler(a: float) -> float:
        return a * 2

    session = session_of(make_tool(found, ScriptEnvironment(), handler=handler)).session()
    assert (await session.call("t", a=2)).data == 4
    assert (await session.call("t")).error_type is ErrorType.VALIDATION_FAILED
    await session.close()
    with pytest.raises(ConfigError, match="takes no handler"):
        make_tool(fields(ECHO), ScriptEnvironment(), handler=handler)


@pytest.mark.proves("file.parameters")
def test_a_schema_that_cannot_be_used_names_the_file() -> None:
    with pytest.raises(ConfigError, match=r"^\.harness/tools/t\.md:3:3: "):
        fields("parameters:\n  a: { type: string, pattern: '(' }\n" + ECHO)


async def test_a_tools_network_narrows_what_the_run_may_reach(shared_workers: WorkerPool) -> None:
    text = (
        "side_effect: read\nnetwork: {}\nscript: |\n  def run(args):\n      return "
        "http.get('https://other.test/')\n"
    )
    for entries in ("[example.com]", "[]"):
        tool = make_tool(fields(text.format(entries)), ScriptEnvironment(), pool=shared_workers)
        session = session_of(tool, *INTERNAL_TOOLS, allow=["t"]).session()
        result = await session.call("t")
        await session.close()
        assert result.error_type is ErrorType.PERMISSION_DENIED
        assert "network sandbox" in (result.error_message or "")


def test_examples_are_requests_with_arguments() -> None:
    found = fields("examples:\n  - { request: Say hi, arguments: { a: 1 } }\n  - { a: 2 }\n" + ECHO)
    assert found.examples == (
        {"request": "Say hi", "arguments": {"a": 1}},
        {"request": "", "arguments": {"a": 2}},
    )


# ---- checking


async def test_a_good_file_has_no_problems(shared_workers: WorkerPool) -> None:
    text = """
    parameters: { n: { type: number, required: true } }
    examples: [{ n: 2 }]
    tests:
      - { arguments: { n: 2 }, answers: { fs.read: "x" }, returns: { n: 2, text: x } }
      - { arguments: { n: 0 }, fails: too small }
    script: |
      def run(args):
          if args["n"] < 1:
              fail("too small")
          return {"n": args["n"], "text": fs.read("f")}
    """
    assert await find_problems(fields(text), pool=shared_workers) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("script: |\n  def run(args):\n      return nope\n", "4: Variable `nope` not found"),
        ("script: |\n  def run(args)\n", "t.md:3: the script ends here, expected"),
        ("script: |\n  x = 1\n  y = nope\n", ".harness/tools/t.md:4: Variable `nope` not found"),
        ("script: |\n  def run(args):\n      return run(args)\n", "calls itself"),
        (
            "parameters: { n: { type: number } }\nexamples: [{ n: x }]\n" + ECHO,
            "an example does not fit",
        ),
        ("tests: [{ returns: 1 }]\n" + ECHO, "returned {}, not 1"),
        ("tests: [{ fails: x }]\n" + ECHO, "should have failed"),
        (
            "parameters: { n: { type: number, required: true } }\ntests: [{ returns: 1 }]\n" + ECHO,
            "do not fit",
        ),
        (
            "tests: [{ returns: 1 }]\nscript: |\n  def run(args):\n      return fs.read('x')\n",
            "no answer for `fs.read`",
        ),
    ],
)
async def test_what_is_wrong_with_a_file_is_found_before_it_is_used(
    shared_workers: WorkerPool, text: str, said: str
) -> None:
    found = await find_problems(fields(text), pool=shared_workers)
    assert any(said in str(one) for one in found), found


async def test_a_handler_needs_no_run_to_be_tried(shared_workers: WorkerPool) -> None:
    made = make_tool(fields(ECHO), ScriptEnvironment(), pool=shared_workers)
    context = Context(Identity("t", "u", "s", "r"), "c")
    assert await made(a=1, **{CONTEXT: context}) == {"a": 1}
