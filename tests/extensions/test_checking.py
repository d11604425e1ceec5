"""Checking files says everything that is wrong with them at once, with its place, and does nothing
else.
"""

from __future__ import annotations

import os
import textwrap
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ferrule.extensions.checks.files import check_file, is_checkable, parse_tools
from ferrule.extensions.checks.hooks import check_hook
from ferrule.extensions.checks.script_text import ScriptText
from ferrule.extensions.checks.tool_file import Problem, check_tool, make_problem
from ferrule.extensions.checks.workspace import check_workspace
from ferrule.extensions.starlark.pool import WorkerPool
from ferrule.extensions.starlark.script import ScriptLimits
from ferrule.extensions.tool_files.loading import MAIN_FILES
from ferrule.storage.trust import COVERED_NAMES, TrustStore

CASES = int(os.environ.get("FERRULE_FILE_CASES", "250"))
"""How many texts a property is tried with. `make lab NAME=files` asks for 100,000."""

LOTS = settings(max_examples=CASES, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def front(text: str, body: str = "Mine.") -> bytes:
    return ("---\n" + textwrap.dedent(text).strip("\n") + f"\n---\n{body}\n").encode()


def shown(problems: list[Problem]) -> list[str]:
    return [str(one) for one in problems]


# ---- tools


GOOD = """
parameters:
  path: { type: string, required: true }
  lines: { type: number, default: 10 }
script: |
  def run(args):
      return fs.read_lines(args["path"], 1, args["lines"])
examples: [{ path: a.txt }]
tests:
  - { arguments: { path: a.txt }, files: { a.txt: "x" }, contains: x }
"""


async def test_a_good_file_has_nothing_wrong(shared_workers: WorkerPool) -> None:
    assert await check_tool(front(GOOD), "t.md", pool=shared_workers) == []


async def test_every_kind_of_problem_of_one_file_is_said_at_once_with_its_line(
    shared_workers: WorkerPool,
) -> None:
    text = """
    parameters:
      path: { type: string }
      unused: { type: number }
    paramters: {}
    examples: [{ path: 3 }]
    tests: [{ arguments: { path: [] }, returns: 1 }]
    script: |
      def run(args, more):
          x = fs.raed(args["pth"])
          return args["path"] + zzzzzz
    """
    assert shown(await check_tool(front(text), "t.md", pool=shared_workers)) == [
        (
            "t.md:5:1: warning: `paramters` is not a key of a tool and was ignored; did you mean "
            "`parameters`?"
        ),
        (
            "t.md:6:12: error: an example does not fit the parameters: `path`: 3 is not of type "
            '"string"'
        ),
        't.md:7:9: error: the test\'s arguments do not fit: `path`: [] is not of type "string"',
        "t.md:11: error: Variable `zzzzzz` not found",
        "t.md:9: error: `run` must take one argument: write `def run(args):`",
        "t.md:10: error: there is no built-in `fs.raed`; did you mean `fs.read`?",
        "t.md:10: error: the script reads `pth`, which is not a parameter; did you mean `path`?",
        (
            "t.md:11: warning: `path` may be left out, and then this fails; write "
            '`args.get("path")`, or make it required or give it a default'
        ),
        "t.md:4:3: warning: the script never reads the parameter `unused`",
    ]


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("def run():\n    return 1", "2: error: `run` must take one argument"),
        ("def run(args, b):\n    return 1", "2: error: `run` must take one argument"),
        ("def run(args, *, b):\n    return 1", "2: error: `run` must take one argument"),
        ("def ran(args):\n    return 1", "2: error: the script defines no function `run(args)`"),
        ("x = 1", "2: error: the script defines no function `run(args)`"),
        ("def run(args)\n    return 1", "error: "),
        ("def run(args):\n    return run(args)", "2: error: `run` calls itself"),
        (
            "def run(args):\n    return http.fetch('x')",
            "3: error: there is no built-in `http.fetch`",
        ),
    ],
)
async def test_a_script_that_cannot_be_called_is_found(
    shared_workers: WorkerPool, script: str, said: str
) -> None:
    found = shown(
        await check_tool(
            front("script: |\n" + textwrap.indent(script, "  ")), "t.md", pool=shared_workers
        )
    )
    line = int(said.partition(":")[0]) + 1 if said[0].isdigit() else 0
    wanted = f"t.md:{line}: {said.partition(': ')[2]}" if line else said
    assert any(wanted in one for one in found), found


@pytest.mark.parametrize(
    "script",
    [
        "def run(args, more = 1):\n    return 1",
        "def run(*all):\n    return 1",
        "run = lambda args: 1",
        "def other(a):\n    return a\nrun = other",
    ],
)
async def test_every_way_to_take_one_argument_is_right(
    shared_workers: WorkerPool, script: str
) -> None:
    assert (
        await check_tool(
            front("script: |\n" + textwrap.indent(script, "  ")), "t.md", pool=shared_workers
        )
        == []
    )


@pytest.mark.parametrize(
    ("script", "read", "hidden"),
    [
        ('def run(args):\n    return args["a"]', {"a"}, False),
        ('def run(given):\n    return given.get("a", given.get("b"))', {"a", "b"}, False),
        ('def run(args):\n    return args.get("a", args["b"])', {"a", "b"}, False),
        ('def run(args):\n    return args.pop("a", args)', {"a"}, True),
        ('def run(args):\n    if "a" in args:\n        return 1', set[str](), False),
        ('def run(args):\n    return help(args)\ndef help(x):\n    return x["a"]', {"a"}, False),
        ('def run(args):\n    return [args["a"] for _ in range(2)]', {"a"}, False),
        ('def run(args):\n    return dict(x=args["a"])', {"a"}, False),
        ('def run(args):\n    for name in args:\n        print(name)', set[str](), True),
        ("def run(args):\n    return args[k]", set[str](), True),
        ("def run(args):\n    return json.encode(args)", set[str](), True),
        ('def run(args):\n    args["a"] = 1\n    return args["a"]', set[str](), False),
        ('def run(args):\n    return (lambda args: args["b"])({})', set[str](), False),
    ],
)  # fmt: skip
def test_what_a_script_reads_of_its_arguments_is_seen(
    script: str, read: set[str], hidden: bool
) -> None:
    looked = ScriptText(script).trace_argument("run", 0)
    assert looked is not None
    assert (set(looked.read), looked.escapes) == (read, hidden)


@pytest.mark.parametrize(
    ("top", "problem"),
    [
        ("x = 1 +", "the script ends here"),
        ("x = 1 // 0", "division by zero"),
        ("fail('not here')", "not here"),
        ("for i in range(1 << 30): pass", "stopped after 50 ms"),
        ("x = 'a' * (1 << 30)", "more than 256 MiB of memory"),
        (f"x = {'[' * 5000}{']' * 5000}", "nests too deeply"),
    ],
    ids=["compile", "error", "fail", "timeout", "memory", "depth"],
)
async def test_whatever_ends_a_script_before_it_is_called_is_a_problem(
    top: str, problem: str, shared_workers: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = ScriptLimits(seconds=0.05 if "ms" in problem else 5.0)
    monkeypatch.setattr("ferrule.extensions.checks.tool_file._BOUNDS", limits)
    script = f"script: |\n  {top}\n  def run(args):\n      return 1"
    (one,) = await check_tool(front(script), "t.md", pool=shared_workers)
    assert one.level == "error" and problem in one.message


async def test_checking_runs_no_built_in_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    script = (
        "script: |\n  exec.run('touch', ['made'])\n  fs.write('made', 'x')\n  def run(args):\n   "
        "   fs.write('made', 'x')\n      return 1\ntests: [{ returns: 1 }]"
    )
    assert await check_tool(front(script), "t.md") == []
    assert list(tmp_path.iterdir()) == []


@LOTS
@given(
    st.text(max_size=200)
    | st.lists(
        st.sampled_from(
            [
                "def run(args):",
                "    return args",
                '    x = args["a"]',
                '    args.get("b")',
                "    for k in args:",
                "        pass",
                "run = 1",
                "lambda args: args",
                "    if 'c' in args:",
                "def run(a, b):",
                "    fs.raed()",
                "    run(args)",
                ")",
                "é",
                "\\",
                "    return (lambda args: args)(args)",
            ]
        ),
        max_size=8,
    ).map("\n".join)
)
def test_any_text_of_a_script_can_be_looked_at(source: str) -> None:
    text = ScriptText(source)
    assert text.check_entry_point("run", ("args",)) is None or text.is_readable
    looked = text.trace_argument("run", 0)
    assert looked is None or not set(looked.read) & looked.assigned
    assert all(line >= 1 for line, _, _ in text.find_unknown_builtins())


@pytest.mark.parametrize(
    ("where", "message", "place"),
    [
        ("a.md", "x", ("a.md", 0, 0, "x")),
        ("a.md:3", "x", ("a.md", 3, 0, "x")),
        ("a.md:3:4", "x", ("a.md", 3, 4, "x")),
        ("a.md", "b c.md:5:6: x: y", ("b c.md", 5, 6, "x: y")),
        ("a.md", "`k` = 1:2: x", ("a.md", 0, 0, "`k` = 1:2: x")),
        ("a.md", "the value: 3:4: x", ("a.md", 0, 0, "the value: 3:4: x")),
    ],
)
def test_a_place_is_taken_apart(where: str, message: str, place: tuple[str, int, int, str]) -> None:
    found = make_problem(where, message)
    assert (found.file, found.line, found.column, found.message) == place


# ---- hooks


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("events: [tool.pos]\nscript: x = 1", "h.md:2:10: error: this hook is on `tool.pos`"),
        (
            (
                "events: [tool.pre]\nwhen: nam == 'x'\nscript: |\n  def handle(event, "
                "payload):\n    "
                "  return allow()"
            ),
            "h.md:3:7: error: tool.pre has no `nam`",
        ),
        (
            "events: [tool.pre]\nscript: |\n  def handle(event):\n      return allow()",
            "h.md:4: error: `handle` must take 2 arguments",
        ),
        (
            "events: [tool.pre]\nscript: |\n  def run(args):\n      return allow()",
            "defines no function `handle(event, payload)`",
        ),
        (
            (
                "events: [tool.pre]\nscript: |\n  def handle(event, payload):\n      return "
                "payload['arg']['command']"
            ),
            "h.md:5: error: the payload of `tool.pre` has no `arg`; did you mean `args`?",
        ),
        (
            (
                "events: [tool.pre]\nscript: |\n  def handle(event, payload):\n      return "
                "fs.read('x')"
            ),
            "not found",
        ),
        ("events: [tool.pre]\ntimeout_ms: 0\nscript: x = 1", "h.md:3:13: error: `timeout_ms` is 0"),
        ("events: [tool.pre]\nguard: no_guard", "there is no guard `no_guard`"),
        ("events: [tool.pre]", "a hook has one of"),
        ("events: [tool.pre]\nurl: https://example.com/hook", "no hosts are allowed for hooks"),
    ],
)
async def test_what_is_wrong_with_a_hook_is_found_before_it_is_asked(
    shared_workers: WorkerPool, text: str, said: str
) -> None:
    found = shown(await check_hook(front(text), "h.md", pool=shared_workers))
    assert any(said in one for one in found), found


async def test_a_good_hook_has_nothing_wrong(shared_workers: WorkerPool) -> None:
    text = (
        "events: [tool.pre, custom.made]\nscript: |\n  def handle(event, payload):\n      return "
        "block(payload['anything'])"
    )
    assert await check_hook(front(text), "h.md", pool=shared_workers) == []
    text = (
        "events: [tool.pre]\nscript: |\n  def handle(event, payload):\n      return "
        "block(payload['args']['command'])"
    )
    assert await check_hook(front(text), "h.md", pool=shared_workers) == []


# ---- files by their place


async def test_a_file_outside_its_place_is_what_its_front_matter_says(
    shared_workers: WorkerPool,
) -> None:
    hook = front("events: [tool.pos]\nscript: x = 1")
    assert "this hook" in str((await check_file("drafts/h.md", hook, pool=shared_workers))[0])
    assert [one.name for one in parse_tools("drafts/count.md", front("script: x = 1"))] == ["count"]
    assert parse_tools("drafts/h.md", hook) == []
    # Below a folder of hooks it is a hook, even one that names no event.
    count = front("script: x = 1")
    (problem,) = await check_file("drafts/hooks/h.md", count, pool=shared_workers)
    assert "a hook needs `events`" in problem.message
    assert parse_tools("drafts/hooks/h.md", count) == []
    assert is_checkable(".ferrule/hooks.json") and not is_checkable(
        ".ferrule/hooks.json", hooks=False
    )
    assert not is_checkable("drafts/h.md")


# ---- a workspace


FILES = {
    ".ferrule/ferrule.yaml": (
        b"model: 3\nlimits: { max_turns: -1 }\njournal: { path: x }\npermissions: "
        b"{ allow: [NoSuch, 'Bash((('] }\n"
    ),
    ".ferrule/tools/t.md": front("script: |\n  def run(a, b):\n      return 1"),
    ".harness/tools/t.md": front("script: |\n  def run(args):\n      return 1"),
    ".ferrule/plugins/p.md": front(
        "name: p\ndescription: d\nrequires: [gone]\ntools: [{ script: x }]\nhooks: "
        "[{ name: h, events: [nope], script: x }]"
    ),
    ".ferrule/hooks/h.md": front(
        "events: [tool.pre]\nscript: |\n  def handle(event):\n      return 1"
    ),
    ".ferrule/hooks.json": b'{"hooks": {"PreToolUse": [{"hooks": [{"type": "prompt"}]}]}}',
    ".ferrule/agents/a.md": front("tools: [read_file]", ""),
    ".agents/skills/one/SKILL.md": b"---\nname: one\ndescription: d\nmetadata: 1\n---\nx\n",
}


def written(root: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return root


async def test_everything_that_is_wrong_with_a_workspace_is_said_at_once(
    tmp_path: Path, shared_workers: WorkerPool
) -> None:
    checked = await check_workspace(
        written(tmp_path, FILES), shipped=["read_file"], pool=shared_workers
    )
    errors = [one for one in checked.problems if one.level == "error"]
    assert {one.file for one in errors} == FILES.keys() - {".harness/tools/t.md"}
    said = "\n".join(shown(checked.problems))
    for words in (
        "`model` = `3`: must be text",
        "must be at least 1",
        "cannot be set by a repository",
        "no closing parenthesis",
        "`NoSuch` (allow, project) can never match",
        "`run` must take one argument",
        "tool `t` is defined more than once",
        "requires `gone`, which does not exist",
        "a tool without a name",
        "is on `nope`",
        "`handle` must take 2 arguments",
        "a hook of the type `prompt`",
        "has no description",
        "`metadata` must be a mapping",
    ):
        assert said.count(words) == 1, words
    assert checked.problems == sorted(
        checked.problems, key=lambda one: (one.file, one.line, one.column)
    )


async def test_a_workspace_is_checked_without_trust_and_gets_none(
    tmp_path: Path, shared_workers: WorkerPool
) -> None:
    root = written(tmp_path, FILES)
    first = await check_workspace(root, pool=shared_workers)
    assert TrustStore().state(root) == "untrusted"
    TrustStore().trust(root)
    assert (await check_workspace(root, pool=shared_workers)).problems == first.problems


@pytest.mark.parametrize(
    "line",
    ['if "path" in args: return args["path"]', 'args["path"] = "a"'],
    ids=["tested", "assigned"],
)
async def test_an_optional_parameter_that_the_script_looks_after_is_no_warning(
    line: str, shared_workers: WorkerPool
) -> None:
    text = f"""
    parameters:
      path: {{ type: string }}
    script: |
      def run(args):
          {line}
          return args["path"]
    """
    problems = shown(await check_tool(front(text), "t.md", pool=shared_workers))
    assert not [one for one in problems if "may be left out" in one]


async def test_what_is_shadowed_and_what_is_a_link_are_warnings(
    tmp_path: Path, shared_workers: WorkerPool
) -> None:
    tool = front("script: |\n  def run(args):\n      return 1")
    bundle = front("tools: [{ name: t, description: d, script: 'def run(args): return 1' }]")
    written(tmp_path, {".harness/tools/t.md": tool, ".harness/overrides/o.md": bundle})
    (tmp_path / ".harness/tools/l.md").symlink_to("t.md")
    found = (await check_workspace(tmp_path, pool=shared_workers)).problems
    assert {(one.level, one.file) for one in found} == {
        ("warning", ".harness/tools/l.md"),
        ("warning", ".harness/tools/t.md"),
    }


async def test_settings_that_name_tools_that_there_are_not_are_errors_at_their_place(
    tmp_path: Path,
) -> None:
    text = (
        "tools:\n  required: [read_file, reed_file|server__x, gone]\n  entries: "
        "[{name: read_fil}, {name: a__b}]\n"
    )
    written(tmp_path, {".ferrule/ferrule.yaml": text.encode()})
    found = (await check_workspace(tmp_path, shipped=["read_file"])).problems
    assert shown(found) == [
        (
            ".ferrule/ferrule.yaml:2:25: error: `tools.required` names a tool `reed_file`, and "
            "there is none; did you mean `read_file`?"
        ),
        (
            ".ferrule/ferrule.yaml:2:46: error: `tools.required` names a tool `gone`, and there "
            "is none; `ferrule tools list` lists them"
        ),
        (
            ".ferrule/ferrule.yaml:3:20: error: `tools.entries` names a tool `read_fil`, and "
            "there is none; did you mean `read_file`?"
        ),
    ]


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("x = 1\n      return [1, 2", 5),
        ("return (1,\n\n\n", 4),
        ("x = 1\n      y = =\n      return 2", 5),
    ],
)
async def test_what_cannot_be_read_is_said_at_its_own_line(
    shared_workers: WorkerPool, body: str, line: int
) -> None:
    data = front("script: |\n  def run(args):\n      " + body)
    found = await check_tool(data, "t.md", pool=shared_workers)
    assert [(one.line, one.level) for one in found] == [(line, "error")]
    assert "-->" not in found[0].message


@pytest.mark.parametrize(
    ("expression", "strict", "level"),
    [
        ("args.get('extra')", False, "warning"),
        ("args['extra'] if 'extra' in args else 0", False, "warning"),
        ("args['extra']", False, "error"),
        ("args.get('extra')", True, "error"),
    ],
)
async def test_asking_for_what_nobody_declared_is_wrong_only_where_it_cannot_come(
    shared_workers: WorkerPool, expression: str, strict: bool, level: str
) -> None:
    header = "strict: true\n" if strict else ""
    data = front(f"{header}script: |\n  def run(args):\n      return {expression}")
    found = await check_tool(data, "t.md", pool=shared_workers)
    assert [(one.level, "`extra`" in one.message) for one in found] == [(level, True)]


async def test_an_empty_workspace_has_nothing_wrong(tmp_path: Path) -> None:
    assert (await check_workspace(tmp_path)).problems == []


# ---- trust covers what is read


@pytest.mark.parametrize("name", MAIN_FILES)
def test_every_file_that_tools_are_read_from_is_covered_by_trust(name: str, tmp_path: Path) -> None:
    assert name.partition("/")[0] in COVERED_NAMES
    written(tmp_path, {name: b"---\ntools: []\n---\n"})
    assert TrustStore().state(tmp_path) == "untrusted"
