"""A file's own tests run as its calls would: through the gate, in the sandbox, in a folder of their
own that is gone afterwards.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

from ferrule.core.errors import ConfigError
from ferrule.extensions.checks.tool_cases import CaseEnvironment, CaseOutcome, run_cases
from ferrule.extensions.starlark.pool import WorkerPool
from ferrule.extensions.tool_files.tool_file import ToolFile, parse_tool
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.toolkits import commands
from ferrule.toolkits.commands import CommandPolicy
from ferrule.toolkits.files import browse, tools

TOOLS = (*tools.TOOLS, *browse.TOOLS, *commands.TOOLS)


def tool(text: str, name: str = "t") -> ToolFile:
    return parse_tool(
        ("---\n" + textwrap.dedent(text).strip("\n") + "\n---\nMine.\n").encode(), f"{name}.md"
    )


def resources(folder: Path) -> list[object]:
    return [CommandPolicy(confine=SandboxPolicy(root=folder))]


async def outcomes(
    text: str, pool: WorkerPool, *, others: tuple[ToolFile, ...] = ()
) -> list[CaseOutcome]:
    return await run_cases(tool(text), CaseEnvironment(TOOLS, resources, pool), others=others)


READ = """
parameters: { path: { type: string, required: true } }
script: |
  def run(args):
      if args["path"] == "-":
          fail("no such place")
      return fs.read(args["path"]).upper()
"""


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("{ arguments: { path: a }, files: { a: x }, returns: X }", ""),
        (
            "{ arguments: { path: a }, files: { a: x }, returns: x }",
            "the test returned 'X', not 'x'",
        ),
        ("{ arguments: { path: a }, files: { a: one two }, contains: TWO }", ""),
        ("{ arguments: { path: a }, files: { a: one }, contains: TWO }", "does not contain 'TWO'"),
        ("{ arguments: { path: a }, answers: { fs.read: told }, returns: TOLD }", ""),
        ("{ arguments: { path: '-' }, fails: no such place }", ""),
        ("{ arguments: { path: '-' }, returns: 1 }", "the test failed: tool_error"),
        ("{ arguments: { path: b }, fails: not_found }", ""),
        (
            "{ arguments: { path: b }, fails: something else }",
            "should have failed with `something else`, and failed with",
        ),
        ("{ arguments: { path: a }, files: { a: x }, fails: x }", "should have failed"),
        ("{ arguments: { path: 3 }, fails: validation_failed }", ""),
        ("{ arguments: { path: 3 }, returns: 3 }", "the test failed: validation_failed"),
        ("{ arguments: { path: /etc/hostname }, fails: outside the workspace }", ""),
        ("{ arguments: { path: .env }, files: { .env: k }, fails: permission_denied }", ""),
        ("{ arguments: { path: a }, files: { a: x }, asks: { fs.read: [a] }, returns: X }", ""),
        (
            "{ arguments: { path: a }, files: { a: x }, asks: { fs.read: [b] } }",
            "should have called `fs.read` with ['b']",
        ),
        ("{ arguments: { path: a }, files: { a: x }, asks: { exec.run: [] } }", "it never did"),
        ("{ arguments: { path: a }, files: { a: x }, leaves: { a: x, b: null } }", ""),
        (
            "{ arguments: { path: a }, files: { a: x }, leaves: { a: y } }",
            "the test left `a` as 'x', not 'y'",
        ),
        (
            "{ arguments: { path: a }, files: { a: x, a/b: y }, returns: X }",
            "it could not be run: `files`: `a/b` cannot be written",
        ),
    ],
)
async def test_a_test_passes_if_all_it_says_holds(
    case: str, said: str, shared_workers: WorkerPool
) -> None:
    (found,) = await outcomes(f"{READ}\ntests:\n  - {case}", shared_workers)
    assert (found.passed, said in found.said) == (said == "", True), found


async def test_each_test_has_a_folder_of_its_own_that_is_gone_afterwards(
    shared_workers: WorkerPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.txt").write_text("private")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    text = """
    parameters: { path: { type: string } }
    script: |
      def run(args):
          fs.write("made.txt", "made")
          return sorted([one["path"] for one in fs.list(".")])
    tests:
      - { files: { a.txt: x }, returns: [a.txt, made.txt], leaves: { made.txt: made } }
      - { returns: [made.txt] }
    """
    assert [one.said for one in await outcomes(text, shared_workers)] == ["", ""]
    assert [one.name for one in tmp_path.iterdir()] == ["mine.txt"]


async def test_a_hostile_test_reaches_neither_files_nor_network_nor_environment(
    shared_workers: WorkerPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("private")
    monkeypatch.setenv("FERRULE_TRIED", "private")
    text = f"""
    script: |
      def run(args):
          what = args["what"]
          if what == "cat":
              return exec.run("cat", [{str(secret)!r}])["stdout"]
          if what == "sh":
              return exec.run("sh", ["-c", "cat {secret}; echo x > {secret}; echo $FERRULE_TRIED"])["stdout"]
          if what == "net":
              return exec.run("python3", ["-c", "import socket; socket.create_connection(('1.1.1.1', 53), 2); print('pri' + 'vate')"])["stdout"]
          if what == "http":
              return http.get("https://example.com/")
          if what == "env":
              return env("FERRULE_TRIED", "none")
          return fs.read(what)
    tests: [{", ".join(f"{{ arguments: {{ what: {what} }}, contains: private }}" for what in ("cat", "sh", "net", "http", "env", secret))}]
    """
    found = await outcomes(text.replace("\n    ", "\n"), shared_workers)
    assert [one.passed for one in found] == [False] * 6
    assert not any("private\\n" in one.said or "'private'," in one.said for one in found)
    assert secret.read_text() == "private"


async def test_commands_of_a_test_run_in_the_sandbox_and_what_ran_is_said(
    shared_workers: WorkerPool,
) -> None:
    text = """
    script: |
      def run(args):
          return exec.run("ls", ["."])["stdout"]
    tests: [{ name: lists, files: { a: x }, contains: a }]
    """
    (found,) = await outcomes(text, shared_workers)
    assert found == CaseOutcome("t", "test", "t.md:5:9", "lists", True, "", ("exec.run",))


async def test_a_test_may_call_the_other_tools_of_the_repository(
    shared_workers: WorkerPool,
) -> None:
    other = tool("script: |\n  def run(args):\n      return fs.read('a') + '!'", "other")
    text = """
    script: |
      def run(args):
          return meta.call_tool("other", {})
    tests: [{ files: { a: x }, contains: x! }]
    """
    (found,) = await outcomes(text, shared_workers, others=(other,))
    assert found.passed, found


@pytest.mark.parametrize(
    ("example", "passed"),
    [
        ("{ path: gone.txt }", True),
        ("{ path: '-' }", True),
        ("{ request: Read it, arguments: { path: a } }", True),
        ("{ path: 3 }", False),
    ],
)
async def test_an_example_fails_only_by_the_files_own_fault(
    example: str, passed: bool, shared_workers: WorkerPool
) -> None:
    (found,) = await outcomes(f"{READ}\nexamples: [{example}]", shared_workers)
    assert (found.kind, found.passed) == ("example", passed), found


async def test_an_example_that_breaks_the_script_fails(shared_workers: WorkerPool) -> None:
    text = "script: |\n  def run(args):\n      return args['gone']\nexamples: [{ a: 1 }]"
    (found,) = await outcomes(text, shared_workers)
    assert not found.passed
    assert "the example broke the script" in found.said


async def test_a_test_that_does_not_end_is_ended(shared_workers: WorkerPool) -> None:
    text = (
        "timeout_ms: 300\nscript: |\n  def run(args):\n      for i in range(1000000000):\n       "
        "   pass\ntests: [{ returns: 1 }]"
    )
    (found,) = await outcomes(text, shared_workers)
    assert "timeout" in found.said


async def test_what_a_link_leads_to_is_not_read_by_what_a_test_leaves(
    shared_workers: WorkerPool, tmp_path: Path
) -> None:
    (tmp_path / "secret.txt").write_text("private")
    text = (
        f"script: |\n  def run(args):\n      return exec.run('ln', ['-s', '{tmp_path}', "
        f"'out'])['ok']\ntests: [{{ leaves: {{ out/secret.txt: guessed }} }}]"
    )
    (found,) = await outcomes(text, shared_workers)
    assert not found.passed
    assert "private" not in found.said


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("{ returns: 1, fails: x }", "either"),
        ("{ arguments: {} }", "either"),
        ("{ returns: 1, expect: 2 }", "not a key of a test"),
        ("{ returns: 1, files: { /etc/x: y } }", "does not name a file below"),
        ("{ returns: 1, files: { ../x: y } }", "does not name a file below"),
        ("{ returns: 1, files: { x: 3 } }", "must be text"),
        ("{ asks: { fs.read: a } }", "the list of its arguments"),
    ],
)
def test_a_test_that_says_nothing_clear_is_an_error_with_its_place(case: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        tool(f"script: x = 1\ntests: [{case}]")
    assert caught.value.detail.startswith("t.md:3:")


def test_a_tool_without_a_script_has_nothing_to_run() -> None:
    import asyncio

    found: list[Any] = asyncio.run(run_cases(tool("tests: [{ returns: 1 }]"), CaseEnvironment()))
    assert found == []
