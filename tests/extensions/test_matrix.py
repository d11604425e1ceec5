"""The whole matrix of built-ins, member by member: each is called by a script in a real session."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from script_sessions import ScriptSession

from ferrule import Agent
from ferrule.engine.hooks.events import Action, Custom, block, modify
from ferrule.engine.registration.registration import Registering
from ferrule.extensions.builtins.dispatch import ScriptEnvironment
from ferrule.extensions.hooks.decorator import hook
from ferrule.extensions.starlark.inside import names
from ferrule.extensions.tool_files.registration_tools import (
    handle_meta_call,
    make_registration_tools,
)
from ferrule.models.scripted import Scripted, calls, says
from ferrule.tools.context import Context
from grouped_options import grouped

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[47][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
TEXT = "one\r\ntwo\n\nlast"

TOOL = """{'description': 'More.', 'parameters': {'a': {'type': 'number', 'required': True}}, 'script': "def run(args):\\n    return args['a'] + 1"}"""
HOOK = (
    """{'events': ['tool.pre'], 'script': "def handle(event, payload):\\n    return block('no')"}"""
)
AGENT = "{'description': 'Counts.', 'prompt': 'Count.'}"

# What a script evaluates, and what comes of it: a value, a type, or a pattern. `=>` stands before
# the last line.
MATRIX: dict[str, tuple[str, Any]] = {
    "time.now": ("time.now()", float),
    "uuid.v4": ("uuid.v4()", UUID),
    "uuid.v7": ("uuid.v7()", UUID),
    "os.cwd": ("os.cwd()", "."),
    "os.hostname": ("os.hostname()", "localhost"),
    "os.platform": ("os.platform()", sys.platform),
    "os.args": ("os.args()", ["--fast", "x"]),
    "json.encode": ("json.encode({'a': [1, None, True]})", '{"a":[1,null,true]}'),
    "json.decode": ("json.decode('[1, 2.5, null]')", [1, 2.5, None]),
    "url.parse": ("url.parse('https://a.test:8/x?q=1#f')['port']", 8),
    "url.encode": (
        "[url.encode({'a': 'b c', 'n': 1}), url.encode('a/b c')]",
        ["a=b+c&n=1", "a%2Fb%20c"],
    ),
    "hash.sha256": ("hash.sha256('')[:8]", "e3b0c442"),
    "hash.sha1": ("hash.sha1('')[:8]", "da39a3ee"),
    "hash.sha512": ("hash.sha512('')[:8]", "cf83e135"),
    "hash.md5": ("hash.md5('')[:8]", "d41d8cd9"),
    "base64.encode": ("base64.encode('hé')", "aMOp"),
    "base64.decode": ("base64.decode('aMOp')", "hé"),
    "crypto.hmac_sha256": ("crypto.hmac_sha256('k', 't')[:8]", re.compile("[0-9a-f]{8}")),
    "crypto.hmac_sha512": ("len(crypto.hmac_sha512('k', 't'))", 128),
    "math.abs": ("[math.abs(-3), math.abs(-0.5)]", [3, 0.5]),
    "math.min": ("[math.min(2, 1), math.min([4, 3])]", [1, 3]),
    "math.max": ("[math.max(2, 1), math.max([4, 3])]", [2, 4]),
    "math.floor": ("math.floor(1.9)", 1),
    "math.ceil": ("math.ceil(1.1)", 2),
    "math.round": ("math.round(1.6)", 2),
    "string.upper": ("string.upper('aé')", "AÉ"),
    "string.lower": ("string.lower('AÉ')", "aé"),
    "string.trim": ("string.trim(' a ')", "a"),
    "string.split": (
        "[string.split('a,b', ','), string.split(' a  b ')]",
        [["a", "b"], ["a", "b"]],
    ),
    "string.join": ("string.join(['a', 1, None], '-')", "a-1-null"),
    "string.truncate": ("string.truncate('äbc', 2)", "äb"),
    "string.pad_left": ("string.pad_left('7', 3, '0')", "007"),
    "string.pad_right": ("string.pad_right('7', 3)", "7  "),
    "re.match": (
        "re.match('(a)(?P<n>b)?', 'abc')",
        {"match": "ab", "groups": ["a", "b"], "named": {"n": "b"}, "start": 0, "end": 2},
    ),
    "re.search": ("[re.match('b', 'ab'), re.search('b', 'ab')['start']]", [None, 1]),
    "re.findall": ("re.findall('[0-9]', 'a1b2')", ["1", "2"]),
    "re.find_all": ("re.find_all('([a-z])([0-9])', 'a1b2')", [["a", "1"], ["b", "2"]]),
    "re.replace": ("re.replace('(b)', '<\\\\1>', 'abc')", "a<b>c"),
    "re.split": ("re.split(',', 'a,b')", ["a", "b"]),
    "set.new": ("set.new([1, 1, 2])", [1, 2]),
    "set.values": ("set.values([2, 1, 2])", [2, 1]),
    "set.size": ("set.size([1, 1, 2])", 2),
    "set.contains": ("[set.contains([1], 1), set.contains([1], 2)]", [True, False]),
    "set.union": ("set.union([1, 2], [2, 3])", [1, 2, 3]),
    "set.intersection": ("set.intersection([1, 2], [2, 3])", [2]),
    "set.intersect": ("set.intersect([1, 2], [2, 3])", [2]),
    "set.difference": ("set.difference([1, 2], [2, 3])", [1]),
    "set.diff": ("set.diff([1, 2], [2, 3])", [1]),
    "set.symmetric_difference": ("set.symmetric_difference([1, 2], [2, 3])", [1, 3]),
    "set.is_subset": ("[set.is_subset([1], [1, 2]), set.is_subset([3], [1])]", [True, False]),
    "template.render": ("template.render('{{a.b}}!', {'a': {'b': 1}})", "1!"),
    "validate.email": ("[validate.email('a@b.test'), validate.email('a@b')]", [True, False]),
    "validate.url": ("[validate.url('https://a.test'), validate.url('a')]", [True, False]),
    "validate.json": ("[validate.json('{}'), validate.json('{')]", [True, False]),
    "cache.get": ("cache.get('k', 'none')", "none"),
    "cache.set": ("cache.set('k', {'a': 1})\n=> cache.get('k')", {"a": 1}),
    "cache.has": ("cache.set('k', 1)\n=> [cache.has('k'), cache.has('l')]", [True, False]),
    "cache.delete": ("cache.set('k', 1)\ncache.delete('k')\n=> cache.has('k')", False),
    "cache.clear": ("cache.set('k', 1)\ncache.clear()\n=> cache.has('k')", False),
    "ctx.get": ("ctx.get('k', 'none')", "none"),
    "ctx.set": ("ctx.set('k', 1)\n=> ctx.get('k')", 1),
    "ctx.has": ("ctx.set('k', 1)\n=> [ctx.has('k'), ctx.has('l')]", [True, False]),
    "ctx.delete": ("ctx.set('k', 1)\nctx.delete('k')\n=> ctx.has('k')", False),
    "ctx.clear": ("ctx.set('k', 1)\nctx.clear()\n=> ctx.snapshot()", {}),
    "ctx.snapshot": ("ctx.set('k', 1)\n=> ctx.snapshot()", {"k": 1}),
    "metrics.incr": ("metrics.incr('a.b')\n=> metrics.incr('a.b', 2)", 3),
    "metrics.get": ("metrics.incr('a')\n=> [metrics.get('a'), metrics.get('b')]", [1, 0]),
    "metrics.reset": (
        "metrics.incr('a')\nmetrics.incr('b')\nmetrics.reset('a')\n=> metrics.snapshot()",
        {"b": 1},
    ),
    "metrics.snapshot": ("metrics.incr('a', 0.5)\n=> metrics.snapshot()", {"a": 0.5}),
    "fs.read": ("fs.read('a.txt')", TEXT),
    "fs.write": ("fs.write('b.txt', 'hé')", 3),
    "fs.append": ("fs.append('a.txt', '!')\n=> fs.read('a.txt')", TEXT + "!"),
    "fs.exists": ("[fs.exists('a.txt'), fs.exists('b.txt')]", [True, False]),
    "fs.remove": ("fs.remove('a.txt')\n=> fs.exists('a.txt')", False),
    "fs.mkdir": ("fs.mkdir('d/e')\n=> fs.stat('d/e')['kind']", "dir"),
    "fs.list": ("[one['name'] for one in fs.list('.')]", ["a.txt"]),
    "fs.stat": ("fs.stat('a.txt')['size']", 14),
    "fs.glob": (
        (
            "fs.write('d/e/f.py', '')\nfs.write('d/g.py', '')\n=> [fs.glob('d/**/*.py'), "
            "fs.glob('*.txt'), fs.glob('d/*.py')]"
        ),
        [["d/e/f.py", "d/g.py"], ["a.txt"], ["d/g.py"]],
    ),
    "fs.copy": ("fs.copy('a.txt', 'd/b.txt')\n=> fs.read('d/b.txt') == fs.read('a.txt')", True),
    "fs.move": (
        "fs.move('a.txt', 'b.txt')\n=> [fs.exists('a.txt'), fs.exists('b.txt')]",
        [False, True],
    ),
    "fs.diff": (
        (
            "fs.write('b.txt', '1\\n2\\n')\nfs.write('c.txt', '1\\n3\\n')\n=> fs.diff('b.txt', "
            "'c.txt')"
        ),
        "--- b.txt\n+++ c.txt\n@@ -1,2 +1,2 @@\n 1\n-2\n+3",
    ),
    "fs.replace": (
        "fs.write('b.txt', 'ab')\nfs.replace('b.txt', 'a', 'c')\n=> fs.read('b.txt')",
        "cb",
    ),
    "fs.replace_all": (
        "fs.write('b.txt', 'aba')\nfs.replace_all('b.txt', 'a', 'c')\n=> fs.read('b.txt')",
        "cbc",
    ),
    "fs.read_lines": ("fs.read_lines('a.txt', 2, 3)", ["two", ""]),
    "fs.line_count": (
        "fs.write('b.txt', '1\\n2\\n')\n=> [fs.line_count('a.txt'), fs.line_count('b.txt')]",
        [4, 2],
    ),
    "fs.insert_at": (
        "fs.write('b.txt', '1\\n')\nfs.insert_at('b.txt', 1, '0')\n=> fs.read('b.txt')",
        "0\n1\n",
    ),
    "fs.replace_lines": (
        "fs.write('b.txt', '1\\n2\\n')\nfs.replace_lines('b.txt', 2, 2, 'x')\n=> fs.read('b.txt')",
        "1\nx\n",
    ),
    "fs.delete_lines": (
        "fs.write('b.txt', '1\\n2\\n3\\n')\nfs.delete_lines('b.txt', 1, 2)\n=> fs.read('b.txt')",
        "3\n",
    ),
    "fs.find": ("fs.find('.', '*.txt')", ["a.txt"]),
    "exec.run": ("exec.run('printf', ['hi'])['stdout']", "hi"),
    "http.get": ("http.get('http://localhost:1/')", "`localhost`"),
    "http.post": ("http.post('ftp://a.test/', {})", "ftp"),
    "parallel.launch": ("parallel.launch('read_text', {'path': 'a.txt'})", "async_tool_1"),
    "parallel.wait_all": (
        (
            "parallel.launch('read_text', {'path': 'a.txt'})\n=> "
            "parallel.wait_all()[0]['result']['text']"
        ),
        TEXT,
    ),
    "parallel.wait_any": (
        (
            "parallel.launch('read_text', {'path': 'a.txt'})\n=> "
            "parallel.wait_any(['async_tool_1'])['ok']"
        ),
        True,
    ),
    "parallel.join": (
        (
            "parallel.launch('read_text', {'path': 'a.txt'})\n=> [one['ok'] for one in "
            "parallel.join('first_success')]"
        ),
        [True],
    ),
    "parallel.race": (
        "parallel.launch('read_text', {'path': 'a.txt'})\n=> parallel.race()['id']",
        "async_tool_1",
    ),
    "delegate": ("delegate('sum up', agent='a')", {"task": "sum up", "agent": "a"}),
    "emit": ("emit('custom.built', {'n': 1})", {"blocked": None, "data": {"n": 1}}),
    "assert": ("assert(1 < 2, 'order')\n=> 'holds'", "holds"),
    "log": ("log('plain', n=1)\n=> 'said'", "said"),
    "log.info": ("log.info('x')\n=> 'said'", "said"),
    "log.warn": ("log.warn('x')\n=> 'said'", "said"),
    "log.error": ("log.error('x')\n=> 'said'", "said"),
    "log.debug": ("log.debug('x')\n=> 'said'", "said"),
    "print": ("print('x')\n=> 'said'", "said"),
    "env": ("[env('LANG'), env('API_TOKEN', 'withheld')]", ["C", "withheld"]),
    "random": ("[random(1, 3) in (1, 2, 3) for n in range(9)]", [True] * 9),
    "sleep": ("sleep(1)", None),
    "block": ("block('no')", {"action": "block", "reason": "no"}),
    "allow": ("allow()", {"action": "allow"}),
    "modify": ("modify({'a': 1})", {"action": "modify", "payload": {"a": 1}}),
    "task.poll": ("task.poll('task_x')", "task_poll"),
    "task.wait": ("task.wait('task_x', 5)", "task_await"),
    "meta.call_tool": ("meta.call_tool('read_text', {'path': 'a.txt'})['text']", TEXT),
    "meta.list_tools": ("meta.list_tools('mi*')", ["mine"]),
    "meta.tool_register": (
        (
            f"meta.tool_register('t', {TOOL})\n=> [meta.list_tools('t'), meta.call_tool('t', "
            f"{{'a': 2}})]"
        ),
        [["t"], 3],
    ),
    "meta.register_tool": (
        (
            f"meta.register_tool('t', script={TOOL}['script'], parameters={TOOL}['parameters'], "
            "description='More.')"
        ),
        {"registered": "t", "kind": "tool", "left": 49},
    ),
    "meta.hook_register": (
        f"meta.hook_register('h', {HOOK})\n=> meta.call_tool('read_text', {{'path': 'a.txt'}})",
        "error (permission_denied): `read_text` was not run: the hook `h`: no",
    ),
    "meta.register_hook": (
        f"meta.register_hook('h', {HOOK})",
        {"registered": "h", "kind": "hook", "left": 29},
    ),
    "meta.agent_register": (
        f"meta.agent_register('a', {AGENT})",
        {"registered": "a", "kind": "agent", "left": 9},
    ),
    "meta.register_agent": (
        f"meta.register_agent('a', {AGENT})",
        {"registered": "a", "kind": "agent", "left": 9},
    ),
}
REFUSED = ("http.get", "http.post", "task.poll", "task.wait")
"""Those that this run has nothing for: the error names what was wanted."""


def test_the_table_is_the_whole_matrix() -> None:
    members = {
        names.full_name(space, one)
        for space, found in names.list_namespaces().items()
        for one in found
    }
    assert set(MATRIX) == members


def test_the_page_for_script_authors_names_every_member() -> None:
    page = (Path(__file__).parents[2] / "docs/built-ins.md").read_text()
    assert [member for member in MATRIX if not re.search(rf"`{re.escape(member)}[`(]", page)] == []


async def _delegate(context: Context, given: Mapping[str, Any]) -> Any:
    return dict(given)


@pytest.mark.parametrize("member", MATRIX)
async def test_each_member_does_what_the_matrix_says(
    script_session: ScriptSession, member: str
) -> None:
    expression, expected = MATRIX[member]
    before, _, last = expression.rpartition("=> ")
    script_session.world = ScriptEnvironment(
        delegate=_delegate,
        meta=handle_meta_call,
        variables={"LANG": "C", "API_TOKEN": "secret"},
        arguments=["--fast", "x"],
    )
    if member.startswith("meta."):
        script_session.options["plugins"] = [Registering()]
        script_session.open(
            script_session.tool(f"{before}return {last}"),
            *make_registration_tools(script_session.pool),
        )
    result = await script_session.run(f"{before}return {last}")
    if member in REFUSED:
        assert not result.success
        assert expected in (result.error_message or "")
        return
    assert result.success, result.error_message
    if isinstance(expected, re.Pattern):
        assert expected.fullmatch(result.data)
    elif isinstance(expected, type):
        assert type(result.data) is expected
    else:
        assert result.data == expected


async def test_a_script_learns_nothing_of_the_machine_that_a_person_did_not_give(
    script_session: ScriptSession,
) -> None:
    body = "return [os.cwd(), os.hostname(), os.args()]"
    assert await script_session.value(body) == [".", "localhost", []]


async def test_a_script_learns_what_a_person_gave(script_session: ScriptSession) -> None:
    script_session.world = ScriptEnvironment(arguments=("a",), hostname="build-7")
    assert await script_session.value("return [os.hostname(), os.args()]") == ["build-7", ["a"]]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("assert(1 == 2, 'order')", "order"),
        ("assert(False)", "does not hold"),
        ("assert [] == [1], 'two'  # with a comment", "two"),
        ("x = 'ä'; assert(x == 'a', 'ä ' + x)", "ä ä"),
        ("assert(len(args) > 0,\n       'in two lines')", "in two lines"),
        ("assert(0, {'code': 1})", '{"code": 1}'),
    ],
)
async def test_an_assertion_that_does_not_hold_fails_with_its_text_and_line(
    script_session: ScriptSession, line: str, said: str
) -> None:
    result = await script_session.run("pass\n" + line)
    assert not result.success
    message = result.error_message or ""
    assert ".harness/tools/mine.md:5: " in message
    assert said in message


async def test_what_looks_like_an_assertion_or_a_log_within_text_stays_as_it_is(
    script_session: ScriptSession,
) -> None:
    body = "assert(True, 'x'); return ['assert(1)', 'log(1)', log == log]"
    assert await script_session.value(body) == ["assert(1)", "log(1)", True]


async def test_a_script_may_have_a_log_of_its_own(script_session: ScriptSession) -> None:
    body = "def log(x):\n    return [x]\nreturn log(3)"
    assert await script_session.value(body) == [3]


async def test_a_turns_store_is_shared_by_files_and_gone_with_the_next_message(
    script_session: ScriptSession,
) -> None:
    one = script_session.tool("ctx.set('k', 'v')\nreturn ctx.snapshot()", "one")
    two = script_session.tool("return ctx.get('k', 'gone')", "two")
    steps = [calls(("one", {})), calls(("two", {})), says("a"), calls(("two", {})), says("b")]
    agent = Agent(
        Scripted(steps),
        [one, two],
        **grouped(journal=script_session.journal, **script_session.options),
    )
    script_session.session = agent.session()
    first = await script_session.session.run("go")
    second = await script_session.session.run("on")
    assert [one.data for one in first.results] == [{"k": "v"}, "v"]
    assert [one.data for one in second.results] == ["gone"]


@pytest.mark.parametrize("store", ["cache", "ctx"])
async def test_a_store_is_bounded(script_session: ScriptSession, store: str) -> None:
    result = await script_session.run(
        f"for n in range(2000):\n    {store}.set(str(n), n)\nreturn 1"
    )
    assert (result.success, str(result.error_type)) == (False, "limit")


async def test_counters_are_shared_by_files_for_the_session_and_bounded(
    script_session: ScriptSession,
) -> None:
    script_session.open(
        script_session.tool("return metrics.incr('a')"),
        script_session.tool("metrics.incr('a')\nreturn metrics.snapshot()", "theirs"),
        script_session.tool("for n in range(2000):\n    metrics.incr(str(n))", "many"),
    )
    assert script_session.session is not None
    assert (await script_session.session.call("mine")).data == 1
    assert (await script_session.session.call("theirs")).data == {"a": 2}
    assert str((await script_session.session.call("many")).error_type) == "limit"


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("**/*.py", ["a.py", "b/c.py", "b/d/e.py"]),
        ("b/**", ["b/c.py", "b/d/e.py"]),
        ("b/*/e.py", ["b/d/e.py"]),
        ("./b/c.py", ["b/c.py"]),
        ("?.py", ["a.py"]),
        ("[ab].py", ["a.py"]),
        ("none/*.py", []),
        ("**/**/**/**/**/**/**/**/z.py", []),
    ],
)
async def test_a_glob_goes_by_names_of_folders(
    script_session: ScriptSession, pattern: str, found: list[str]
) -> None:
    for name in ("a.py", "b/c.py", "b/d/e.py"):
        (script_session.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (script_session.folder / name).touch()
    assert sorted(await script_session.value(f"return fs.glob('{pattern}')")) == found


@pytest.mark.parametrize(
    "body",
    [
        "return fs.glob('../*')",
        "return fs.copy('.env', 'b.txt')",
        "return fs.copy('a.txt', '.env')",
        "return fs.diff('a.txt', '.env')",
        "return fs.line_count('.env')",
        "return fs.delete_lines('.env', 1, 1)",
        "parallel.launch('read_text', {'path': '.env'})\nfail(parallel.wait_any()['error_type'])",
    ],
)
async def test_new_ways_to_files_are_refused_what_the_old_ones_are(
    script_session: ScriptSession, body: str
) -> None:
    result = await script_session.run(body)
    assert not result.success
    assert "SECRET" not in (result.error_message or "")
    assert not (script_session.folder / "b.txt").exists()
    assert (script_session.folder / ".env").read_text() == "SECRET=1"


async def test_an_emitted_event_reaches_hooks_and_their_word_comes_back(
    script_session: ScriptSession,
) -> None:
    @hook("custom.deployed")
    def judge(event: Custom) -> Action:
        return (
            block("not today") if event.data == "now" else modify({"data": [event.data, "later"]})
        )

    script_session.options["hooks"] = [judge]
    value = await script_session.value(
        "return [emit('custom.deployed', 'now'), emit('custom.deployed', 'x')]"
    )
    assert "not today" in value[0]["blocked"]
    assert value[1] == {"blocked": None, "data": ["x", "later"]}


@pytest.mark.parametrize("event", ["tool.pre", "custom.*", "custom", "session.end"])
async def test_a_script_emits_events_of_its_own_only(
    script_session: ScriptSession, event: str
) -> None:
    result = await script_session.run(f"emit('{event}', 1)")
    assert (result.success, str(result.error_type)) == (False, "validation_failed")
