"""Scripts: what they return, what they cannot do, and that whatever goes wrong is one typed
error.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from script_runs import PATIENT, Runs, descriptors

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.extensions.starlark.inside import computed as pure
from ferrule.extensions.starlark.inside import names
from ferrule.extensions.starlark.inside.preprocessing import find_recursion
from ferrule.extensions.starlark.pool import WorkerPool, shared_pool
from ferrule.extensions.starlark.script import Script, ScriptFailed, ScriptLimits

ENDLESS = (
    "def run(args):\n    for i in range(2000000000):\n        for j in range(2000000000):\n      "
    "      pass\n"
)
HELLO = "def run(args):\n    return 'hello'\n"


# ---- values


async def test_what_a_script_returns_is_json_with_true_and_null(run: Runs) -> None:
    source = """
def run(args):
    return {"ok": True, "no": False, "nothing": None, "list": [1, 2.5, "ä"], "pair": (1, 2), "got": args}
"""
    value = await run(source, {"a": [None, True, {"b": "c"}], "big": 2**70})
    assert value == {
        "ok": True,
        "no": False,
        "nothing": None,
        "list": [1, 2.5, "ä"],
        "pair": [1, 2],
        "got": {"a": [None, True, {"b": "c"}], "big": 2**70},
    }
    assert json.loads(json.dumps(value)) == value


@pytest.mark.parametrize("value", ["text", 3, -1.5, True, None, [], {}, [[["deep"]]]])
async def test_every_kind_of_value_goes_in_and_out(run: Runs, value: Any) -> None:
    assert await run("def run(args):\n    return args\n", value) == value


async def test_half_a_character_goes_in_as_a_question_mark(run: Runs) -> None:
    assert await run("def run(args):\n    return args\n", "ä\ud800b") == "ä?b"


async def test_a_value_that_is_no_json_is_an_error(run: Runs) -> None:
    failed = await run.fails("def run(args):\n    return run2\ndef run2(args):\n    return 1\n")
    assert (failed.reason, failed.error_type) == ("error", ErrorType.TOOL_ERROR)


async def test_nothing_lives_from_one_call_to_the_next(run: Runs) -> None:
    source = "made = [fs.read('a')]\ndef run(args):\n    return made\n"
    run.answers["fs.read"] = "first"
    assert await run(source) == ["first"]
    run.answers["fs.read"] = "second"
    assert await run(source) == ["second"]


async def test_what_the_top_level_made_cannot_be_changed(run: Runs) -> None:
    failed = await run.fails("seen = []\ndef run(args):\n    seen.append(1)\n    return seen\n")
    assert failed.message == "tool.md:3: Immutable"


# ---- what the language has not


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("def run(args):\n    return run(args)\n", "run"),
        (
            (
                "def a(n):\n    return b(n)\ndef b(n):\n    return a(n)\ndef run(args):\n    "
                "return a(1)\n"
            ),
            "a",
        ),
        ("f = lambda n: f(n - 1)\ndef run(args):\n    return f(3)\n", "f"),
        (
            "def run(args):\n    def inner(n):\n        return inner(n)\n    return inner(1)\n",
            "inner",
        ),
    ],
)
async def test_a_function_that_calls_itself_is_refused_by_name(
    run: Runs, source: str, name: str
) -> None:
    failed = await run.fails(source)
    assert failed.reason == "compile"
    assert f"`{name}` calls itself" in failed.message


@pytest.mark.parametrize(
    "source",
    [
        "def path(args):\n    path = args\n    return path\n",
        "def run(args):\n    return other(args)\ndef other(run):\n    return run\n",
        "def run(args):\n    return [other(x) for x in args]\ndef other(x):\n    return x\n",
        "not python at all $",
    ],
)
def test_a_name_of_its_own_inside_a_function_is_no_recursion(source: str) -> None:
    assert find_recursion(source) is None


async def test_calls_through_values_end_at_a_depth(run: Runs) -> None:
    source = """
def f(g, n):
    found = []
    for i in range(1):
        found = g(g, n + 1)
    return found
def run(args):
    return f(f, 0)
"""
    failed = await run.fails(source)
    assert (failed.reason, failed.error_type) == ("depth", ErrorType.LIMIT)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("load('a.star', 'b')\ndef run(args):\n    return 1\n", "`load` is not allowed"),
        ("import os\ndef run(args):\n    return 1\n", "import"),
        ("def run(args):\n    while True:\n        pass\n", "while"),
        ("def run(args):\n    return open('/etc/passwd')\n", "Variable `open` not found"),
        ("def run(args):\n    return __import__('os')\n", "__import__"),
        ("def run(args):\n    return fs.read.__globals__\n", "__globals__"),
        ("def run(args):\n    return args.__class__\n", "__class__"),
        ("def run(args)\n    return 1\n", "tool.md:1"),
    ],
)
async def test_what_is_not_in_the_language_is_refused_with_its_line(
    run: Runs, source: str, said: str
) -> None:
    failed = await run.fails(source)
    assert said in failed.message
    assert failed.message.startswith("tool.md:")


async def test_a_script_without_the_function_says_so(run: Runs) -> None:
    failed = await run.fails("def other(args):\n    return 1\n")
    assert (failed.reason, failed.message) == ("compile", "the script defines no function `run`")


async def test_an_error_names_the_line_of_the_file_that_the_script_stands_in(run: Runs) -> None:
    script = Script("def run(args):\n    return nothing_here\n", "tools/x.md", 7)
    with pytest.raises(ScriptFailed, match=r"^tools/x\.md:8: Variable `nothing_here` not found"):
        await run.pool.run(script, "run", [{}])


# ---- bounds


async def test_an_endless_loop_is_stopped_and_the_next_call_is_fine(run: Runs) -> None:
    failed = await run.fails(ENDLESS, seconds=0.2)
    assert (failed.reason, failed.error_type) == ("timeout", ErrorType.TIMEOUT)
    assert "200 ms" in failed.message
    assert await run(HELLO) == "hello"


async def test_a_loop_that_the_library_cannot_stop_is_killed(run: Runs) -> None:
    # One call of the expression engine takes minutes, linear as it is, and holds the interpreter.
    source = (
        "def run(args):\n    return re.search('(?:(?:a?){50}){19}c|.*?x', ('a' * 5000 + '\\n') * "
        "1000)\n"
    )
    failed = await run.fails(source, seconds=0.2)
    assert (failed.reason, failed.error_type) == ("timeout", ErrorType.TIMEOUT)
    assert await run(HELLO) == "hello"


async def test_a_built_in_that_takes_too_long_is_cancelled_with_its_script(run: Runs) -> None:
    ended = asyncio.Event()

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    run.answers["env"] = forever
    failed = await run.fails("def run(args):\n    return env()\n", seconds=0.1)
    assert failed.reason == "timeout"
    assert ended.is_set()


@pytest.mark.parametrize(
    "body",
    [
        (
            "x = []\n    for i in range(100000000):\n        x.append('a' * 1000 + str(i))\n    "
            "return len(x)"
        ),
        "x = 'a'\n    for i in range(50):\n        x = x + x\n    return len(x)",
        "return ['a' * 2000000000]",
        "return [[0] * 100000000 for i in range(100)]",
    ],
)
async def test_a_script_that_takes_too_much_memory_is_stopped(run: Runs, body: str) -> None:
    failed = await run.fails(f"def run(args):\n    {body}\n", memory=32 << 20, seconds=PATIENT)
    assert (failed.reason, failed.error_type) == ("memory", ErrorType.LIMIT)
    assert "32 MiB" in failed.message
    assert await run(HELLO) == "hello"


async def test_a_result_of_a_hundred_megabytes_is_an_error_and_not_sent(run: Runs) -> None:
    source = "def run(args):\n    return 'a' * 100000000\n"
    failed = await run.fails(source, memory=1 << 30, seconds=PATIENT)
    assert (failed.reason, failed.error_type) == ("size", ErrorType.LIMIT)
    assert "4194304" in failed.message
    assert await run(HELLO) == "hello"


async def test_an_argument_of_a_built_in_is_bounded_too(run: Runs) -> None:
    source = "def run(args):\n    return fs.write('a', 'a' * 20000000)\n"
    failed = await run.fails(source, memory=1 << 30, seconds=PATIENT)
    assert failed.reason == "size"
    assert run.asked == []


async def test_arguments_that_are_too_large_to_hand_over_are_an_error(run: Runs) -> None:
    failed = await run.fails("def run(args):\n    return 1\n", "a" * (17 << 20))
    assert failed.reason == "size"
    assert await run(HELLO) == "hello"


@pytest.mark.parametrize(
    "source",
    ["x = " + "[" * 100_000 + "]" * 100_000, "x = " + "-" * 200_000 + "1", "x = " + "(" * 100_000],
)
async def test_a_text_that_breaks_the_parser_breaks_only_a_worker(run: Runs, source: str) -> None:
    failed = await run.fails(source, seconds=PATIENT)
    assert failed.reason in ("depth", "compile", "memory")
    assert await run(HELLO) == "hello"


async def test_a_result_that_nests_too_deeply_is_an_error(run: Runs) -> None:
    source = "def run(args):\n    x = []\n    for i in range(900):\n        x = [x]\n    return x\n"
    try:
        await run(source)
    except ScriptFailed as failed:
        assert failed.reason in ("size", "error")
    failed = await run.fails(source.replace("900", "5000"))
    assert failed.reason in ("size", "error")
    assert await run(HELLO) == "hello"


# ---- failing


async def test_fail_is_an_error_with_its_text_and_line(run: Runs) -> None:
    failed = await run.fails(
        "def run(args):\n    fail('no such branch:', args['b'])\n", {"b": "main"}
    )
    assert (failed.reason, failed.error_type) == ("fail", ErrorType.TOOL_ERROR)
    assert failed.message == "tool.md:2: no such branch: main"


async def test_an_error_dictionary_is_a_value_like_any_other(run: Runs) -> None:
    source = (
        'def run(args):\n    if not args.get("command"):\n        return '
        '{"error": "command is required"}\n'
    )
    assert await run(source) == {"error": "command is required"}


async def test_a_built_in_that_fails_fails_the_script_with_its_type(run: Runs) -> None:
    run.answers["fs.read"] = ToolFailed(ErrorType.PERMISSION_DENIED, "`.env` is secret")
    failed = await run.fails("def run(args):\n    return fs.read('.env')\n")
    assert (failed.reason, failed.error_type) == ("builtin", ErrorType.PERMISSION_DENIED)
    assert failed.message == "tool.md:2: `.env` is secret"


async def test_a_worker_killed_from_outside_answers_its_call_and_is_replaced(
    pool: WorkerPool,
) -> None:
    started = asyncio.Event()

    async def serve(name: str, positional: Any, named: Any) -> Any:
        started.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(
        pool.run(Script("def run(a):\n    return env('x')\n", "t.md"), "run", [{}], serve=serve)
    )
    await asyncio.wait_for(started.wait(), PATIENT)
    (pid,) = pool.pids
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not os.path.exists(f"/proc/{pid}")
    assert pool.pids == ()

    busy = asyncio.create_task(pool.run(Script(ENDLESS, "t.md"), "run", [{}]))
    async with asyncio.timeout(PATIENT):
        while not pool.pids:
            await asyncio.sleep(0)
        os.kill(pool.pids[0], signal.SIGKILL)
        with pytest.raises(ScriptFailed) as caught:
            await busy
    assert (caught.value.reason, caught.value.error_type) == ("ended", ErrorType.INTERNAL_ERROR)
    assert await pool.run(Script(HELLO, "t.md"), "run", [{}]) == "hello"


async def test_an_idle_worker_that_died_is_not_used(pool: WorkerPool) -> None:
    assert await pool.run(Script(HELLO, "t.md"), "run", [{}]) == "hello"
    (pid,) = pool.pids
    process = next(iter(pool._live))  # The test needs the handle, to wait for the end of it.
    os.kill(pid, signal.SIGKILL)
    process._process.wait(PATIENT)
    assert await pool.run(Script(HELLO, "t.md"), "run", [{}]) == "hello"
    assert pid not in pool.pids


# ---- telling


async def test_printed_and_logged_lines_come_in_order_with_their_level(run: Runs) -> None:
    source = (
        "def run(args):\n    print('a', 1, [2])\n    log.warn('careful', code=7)\n    "
        "log.info('fine')\n    return fs.read('x')\n"
    )
    run.answers["fs.read"] = "text"
    assert await run(source) == "text"
    assert run.told == [
        ("print", "a 1 [2]", {}),
        ("warn", "careful", {"code": 7}),
        ("info", "fine", {}),
    ]


async def test_a_flood_of_lines_is_cut_and_says_so(run: Runs) -> None:
    await run("def run(args):\n    for i in range(5000):\n        print('x' * 20000)\n")
    assert len(run.told) == 1001
    assert max(len(text) for _, text, _ in run.told) == 8192
    assert "more than 1000 lines" in run.told[-1][1]


# ---- names


def test_every_computed_name_is_there_and_no_other() -> None:
    listed = {
        names.full_name(space, member)
        for space, members in names.WORKER_BUILTINS.items()
        for member in members
    }
    assert listed | {"assert"} == set(pure.FUNCTIONS)


async def test_every_name_of_the_requirement_can_be_written(run: Runs) -> None:
    wanted = (
        "exec.run fs.read fs.write fs.exists fs.stat http.get http.post json.encode json.decode "
        "re.match re.search re.findall string.truncate cache.get cache.set delegate "
        "meta.tool_register meta.hook_register log.info log.warn block allow"
    )
    source = "def run(args):\n    return [type(x) for x in [" + ", ".join(wanted.split()) + "]]\n"
    assert set(await run(source)) <= {"function", "native_function", "python_callable_value"}


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("json.decode(json.encode({'a': [1, None, True]}))", {"a": [1, None, True]}),
        ("re.match('b', 'abc')", None),
        (
            "re.search('(?P<x>b)(c)?', 'ab')",
            {"match": "b", "groups": ["b", None], "named": {"x": "b"}, "start": 1, "end": 2},
        ),
        ("re.findall('[a-z]+', 'ab 1 cd')", ["ab", "cd"]),
        ("re.findall('(.)=(.)', 'a=1 b=2')", [["a", "1"], ["b", "2"]]),
        ("re.replace('(a)', '<\\\\1>', 'bab')", "b<a>b"),
        ("re.split(',\\\\s*', 'a, b,c')", ["a", "b", "c"]),
        ("string.truncate('héllo', 2)", "hé"),
        ("string.pad_left('a', 3, '.')", "..a"),
        ("string.pad_right('a', 3)", "a  "),
        ("string.trim('  a ')", "a"),
        ("math.floor(2.7)", 2),
        ("math.ceil(2.1)", 3),
        ("hash.sha256('')", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
        ("hash.md5('')", "d41d8cd98f00b204e9800998ecf8427e"),
        ("base64.decode(base64.encode('ä'))", "ä"),
        ("url.encode({'a': 'b c'})", "a=b+c"),
        (
            "url.parse('https://h:8/p?q=1#f')",
            {
                "scheme": "https",
                "host": "h",
                "port": 8,
                "path": "/p",
                "query": {"q": "1"},
                "fragment": "f",
            },
        ),
        (
            "crypto.hmac_sha256('key', 'The quick brown fox jumps over the lazy dog')[:8]",
            "f7bc83f4",
        ),
        ("set.union([1, 2, 1], [3, 2])", [1, 2, 3]),
        ("set.intersection([1, 2, 2], [2, 3])", [2]),
        ("set.difference([1, 2], [2])", [1]),
        ("template.render('{{a.b}} and {{ c }}', {'a': {'b': 'x'}, 'c': [1]})", "x and [1]"),
        (
            "[validate.email(x) for x in ['a@b.c', 'a@b', '@b.c', 'a b@c.d']]",
            [True, False, False, False],
        ),
        (
            "[validate.url(x) for x in ['https://a/b', 'ftp://a', 'x', 'http://a:99999']]",
            [True, False, False, False],
        ),
        ("[validate.json(x) for x in ['{}', '{', '[' * 100000]]", [True, False, False]),
        ("block('no')", {"action": "block", "reason": "no"}),
        ("allow()", {"action": "allow"}),
        ("modify({'a': 1})", {"action": "modify", "payload": {"a": 1}}),
    ],
)
async def test_what_only_computes_is_computed_in_the_worker(
    run: Runs, expression: str, value: Any
) -> None:
    assert await run(f"def run(args):\n    return {expression}\n") == value
    assert run.asked == []


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("re.match('(', 'a')", "the pattern cannot be read"),
        ("re.match('(?=a)', 'a')", "no look-around"),
        ("re.replace('a', '\\\\2', 'aa')", "no group `2`"),
        ("re.replace('a', '\\\\q', 'aa')", "bad escape"),
        ("re.match('a' * 5000, 'a')", "the bound is 4096"),
        ("re.findall('a', 'a' * 20000)", "more than 10000 matches"),
        ("re.match('a')", "missing 1 required positional argument"),
        ("string.truncate('a', -1)", "a length of -1"),
        ("string.pad_left('a', 2000000)", "the bound is 1048576"),
        ("base64.decode('%')", "base64"),
        ("json.decode('{')", "EOF"),
        ("template.render('{{a.b}}', {'a': 1})", "there is no `a.b`"),
        ("math.floor('a')", "math"),
    ],
)
async def test_wrong_use_of_a_built_in_is_an_error_with_its_line(
    run: Runs, expression: str, said: str
) -> None:
    failed = await run.fails(f"def run(args):\n    return {expression}\n")
    assert failed.reason == "error"
    assert failed.message.startswith("tool.md:2: ")
    assert said in failed.message or "must be" in failed.message


async def test_a_pure_run_has_no_name_that_does_something(run: Runs) -> None:
    for name in ("fs", "exec", "http", "cache", "delegate", "meta", "env"):
        failed = await run.fails(f"def run(args):\n    return str({name})\n", pure=True)
        assert f"Variable `{name}` not found" in failed.message
    assert await run("def run(args):\n    return re.match('a', 'a')['end']\n", pure=True) == 1
    assert run.asked == []


# ---- the worker


async def test_a_worker_that_has_forgotten_a_script_is_sent_it_again(pool: WorkerPool) -> None:
    script = Script(HELLO, "t.md")
    assert await pool.run(script, "run", [{}]) == "hello"
    for number in range(300):
        with contextlib.suppress(ScriptFailed):
            await pool.run(Script(f"x = {number}\n", "t.md"), "run", [{}])
    (process,) = pool._live
    process.known_scripts.add(script.digest)
    assert await pool.run(script, "run", [{}]) == "hello"
    assert process.calls == 302


async def test_a_script_that_failed_is_not_sent_again_unless_it_cannot_be_parsed(
    pool: WorkerPool,
) -> None:
    failing = Script("def run(args):\n    fail('no')\n", "t.md")
    unparsed = Script("def run(\n", "t.md")
    for script in (failing, unparsed):
        with pytest.raises(ScriptFailed):
            await pool.run(script, "run", [{}])
    (process,) = pool._live
    assert failing.digest in process.known_scripts
    assert unparsed.digest not in process.known_scripts


@pytest.mark.linux_only("limits and descriptors are read from /proc")
async def test_a_worker_can_open_nothing(pool: WorkerPool) -> None:
    await pool.run(Script(HELLO, "t.md"), "run", [{}])
    (pid,) = pool.pids
    with open(f"/proc/{pid}/limits") as file:
        limits = {line[:26].strip(): line[26:].split()[0] for line in file}
    opened = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
    assert opened == set(range(int(limits["Max open files"])))
    assert (limits["Max file size"], limits["Max core file size"]) == ("0", "0")
    assert os.listdir(f"/proc/{pid}/task") == [str(pid)]
    with open(f"/proc/{pid}/environ", "rb") as file:
        assert file.read() == b""


def test_a_worker_lives_with_the_limits_of_its_owner() -> None:
    program = """
import asyncio, resource
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
from ferrule.extensions.starlark.pool import shared_pool
from ferrule.extensions.starlark.script import Script, ScriptLimits
script = Script("def run(a):\\n    return 1\\n", "t.md")
print(asyncio.run(shared_pool().run(script, "run", [{}], limits=ScriptLimits(memory=8 << 30))))
"""
    ran = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=PATIENT,
        check=False,
    )
    assert (ran.stdout, ran.stderr) == ("1\n", "")


async def test_scripts_run_beside_each_other_and_none_waits_for_itself() -> None:
    pool = WorkerPool(warm=2, max_computing=1)
    depth = 4

    async def serve(name: str, positional: Any, named: Any) -> Any:
        return await nested(positional[0] + 1)

    async def nested(level: int) -> Any:
        source = "def run(n):\n    return n if n >= 4 else env(n)\n"
        return await pool.run(Script(source, "t.md"), "run", [level], serve=serve)

    try:
        async with asyncio.timeout(PATIENT):
            assert await asyncio.gather(nested(0), nested(0), nested(1)) == [depth] * 3
        assert len(pool.pids) <= 2
        assert pool._computing == 0
    finally:
        pool.close()


async def test_a_caller_that_is_cancelled_while_it_waits_gives_its_place_away() -> None:
    pool = WorkerPool(warm=1, max_computing=1)
    try:
        entered = asyncio.Event()
        busy = asyncio.create_task(
            pool.run(
                Script(
                    (
                        "def run(a):\n    print('in')\n    for i in range(100000):\n        "
                        "for j in "
                        "range(100000):\n            pass\n"
                    ),
                    "t.md",
                ),
                "run",
                [{}],
                listener=lambda *a: entered.set(),
            )
        )
        await asyncio.wait_for(entered.wait(), PATIENT)
        waiting = [
            asyncio.create_task(pool.run(Script(HELLO, "t.md"), "run", [{}])) for _ in range(3)
        ]
        await asyncio.sleep(0)
        waiting[0].cancel()
        busy.cancel()
        done = await asyncio.wait_for(
            asyncio.gather(busy, *waiting, return_exceptions=True), PATIENT
        )
        assert [type(one) for one in done[:2]] == [asyncio.CancelledError] * 2
        assert done[2:] == ["hello", "hello"]
        assert pool._computing == 0
    finally:
        pool.close()


def test_one_pool_serves_event_loops_one_after_the_other() -> None:
    pool = WorkerPool(warm=1)
    try:
        pids: set[int] = set()
        for _ in range(3):
            assert asyncio.run(pool.run(Script(HELLO, "t.md"), "run", [{}])) == "hello"
            pids |= set(pool.pids)
        assert len(pids) == 1
    finally:
        pool.close()


def test_one_pool_serves_event_loops_in_threads_at_the_same_time() -> None:
    pool = WorkerPool(warm=2, max_computing=2)

    async def many(name: str) -> list[Any]:
        script = Script("def run(args):\n    return env(args)\n", "t.md")

        async def serve(builtin: str, positional: Any, named: Any) -> Any:
            await asyncio.sleep(0)
            return f"{name} {positional[0]}"

        return await asyncio.gather(*(pool.run(script, "run", [n], serve=serve) for n in range(20)))

    try:
        with ThreadPoolExecutor(3) as threads:
            found = [*threads.map(lambda name: asyncio.run(many(name)), "abc", timeout=PATIENT)]
        assert found == [[f"{name} {n}" for n in range(20)] for name in "abc"]
        assert pool._computing == 0
        assert len(pool.pids) <= 2
    finally:
        pool.close()


def test_no_process_and_no_descriptor_is_left() -> None:
    before = descriptors()
    pool = WorkerPool(warm=2)

    async def everything() -> set[int]:
        seen: set[int] = set()
        sources = [HELLO, "def run(a):\n    fail('x')\n", "def run(a)\n", "x = " + "[" * 100_000]
        for source in sources * 2:
            with contextlib.suppress(ScriptFailed):
                await pool.run(
                    Script(source, "t.md"), "run", [{}], limits=ScriptLimits(seconds=PATIENT)
                )
            seen |= set(pool.pids)
        loop = Script(
            (
                "def run(a):\n    for i in range(100000):\n        for j in range(100000):\n     "
                "       pass\n"
            ),
            "t.md",
        )
        with pytest.raises(ScriptFailed):
            await pool.run(loop, "run", [{}], limits=ScriptLimits(seconds=0.05))
        return seen | set(pool.pids)

    pids = asyncio.run(everything())
    pool.close()
    assert pids
    assert [pid for pid in pids if os.path.exists(f"/proc/{pid}")] == []
    assert descriptors() == before


def test_workers_end_with_their_owner_however_that_ends() -> None:
    program = """
import asyncio, os, signal, sys
from ferrule.extensions.starlark.pool import shared_pool
from ferrule.extensions.starlark.script import Script
busy = Script("def run(a):\\n    print('in')\\n    for i in range(100000):\\n        for j in range(100000):\\n            pass\\n", "t.md")
async def main():
    await shared_pool().run(Script("def run(a):\\n    return 1\\n", "t.md"), "run", [{}])
    def told(*a):
        print(*shared_pool().pids, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    await shared_pool().run(busy, "run", [{}], listener=told)
asyncio.run(main())
"""
    ran = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=PATIENT,
        check=False,
    )
    pids = [int(word) for word in ran.stdout.split()]
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    assert pids
    for pid in pids:
        _gone(pid)


def _gone(pid: int) -> None:
    """Wait for the end of a process that is nobody's child here."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    import select

    poll = select.poll()
    poll.register(handle, select.POLLIN)
    ended = poll.poll(PATIENT * 1000)
    os.close(handle)
    assert ended, f"worker {pid} outlived its owner"


def test_the_shared_pool_ends_with_the_process_and_says_nothing() -> None:
    program = """
import asyncio
from ferrule.extensions.starlark.pool import shared_pool
from ferrule.extensions.starlark.script import Script
print(asyncio.run(shared_pool().run(Script("def run(a):\\n    return 1\\n", "t.md"), "run", [{}])), *shared_pool().pids)
"""
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=PATIENT,
        check=False,
    )
    value, pid = ran.stdout.split()
    assert (ran.returncode, value, ran.stderr) == (0, "1", "")
    assert not os.path.exists(f"/proc/{pid}")


def test_there_is_one_shared_pool() -> None:
    assert shared_pool() is shared_pool()
