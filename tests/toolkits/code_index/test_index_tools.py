"""`find_symbol`, `find_references`, `code_outline`: answers about the files as they are now."""

from __future__ import annotations

import asyncio
import os
import stat
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ferrule.core.errors import ToolFailed
from ferrule.core.identity import Identity
from ferrule.engine.agent import Agent
from ferrule.engine.agent_options import Permissions
from ferrule.models.scripted import Scripted, says
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.runtime.assemble import assemble
from ferrule.storage import paths
from ferrule.toolkits.code_index import index as index_module
from ferrule.toolkits.code_index.index import CodeIndex
from ferrule.toolkits.code_index.ranking import rank
from ferrule.toolkits.code_index.tools import TOOLS, code_outline, find_references, find_symbol
from ferrule.tools.context import Context
from ferrule.tools.definition import Tool


class Asked:
    """A workspace with an index in memory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.workspace = Workspace(root)
        self.index = CodeIndex()

    def put(self, name: str, text: str | bytes) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())

    def call(self, tool: Tool, *, workspace: Workspace | None = None, **arguments: Any) -> str:
        resources = {Workspace: workspace or self.workspace, CodeIndex: self.index}
        context = Context(Identity("t", "u", "s", "r"), "call_1", resources=resources)
        checked = tool.arguments.check(arguments)
        assert not checked.problems, checked.problems
        return asyncio.run(tool.handler(**checked.values, context=context))


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[Asked]:
    root = tmp_path / "work"
    root.mkdir()
    one = Asked(root)
    yield one
    one.index.close()
    one.workspace.close()


POND = "class Pond:\n    def fill(self, n):\n        return pour(n)\n\ndef pour(n):\n    return n\n"


def test_a_definition_is_found_by_name_by_what_is_around_it_and_by_a_part(asked: Asked) -> None:
    asked.put("src/pond.py", POND)
    asked.put("src/lake.py", "class Lake:\n    def fill(self): ...\n")
    assert asked.call(find_symbol, name="pour") == "src/pond.py:5-6: function: def pour(n)"
    assert asked.call(find_symbol, name="Pond.fill()") == (
        "src/pond.py:2-3: method: def fill(self, n) (in Pond)"
    )
    assert asked.call(find_symbol, name="fill").count("\n") == 1
    assert asked.call(find_symbol, name="fill", path="src/lake.py").startswith("src/lake.py:2-2")
    assert asked.call(find_symbol, name="lak").splitlines() == [
        "nothing is called `lak`; these names contain it:",
        "src/lake.py:1-2: class: class Lake",
    ]
    assert asked.call(find_symbol, name="sea") == "no definition of `sea` found"


def test_the_source_of_a_definition_comes_with_line_numbers(asked: Asked) -> None:
    asked.put("pond.py", POND)
    assert asked.call(find_symbol, name="pour", show_source=True).endswith(
        "pond.py:\n5: def pour(n):\n6:     return n"
    )


def test_uses_come_with_the_definition_around_them_and_without_comments_and_texts(
    asked: Asked,
) -> None:
    asked.put("pond.py", POND + "# pour\nx = 'pour'\npour_all = 1\n")
    asked.put("b.py", "from pond import pour\npour(1)\n")
    assert asked.call(find_references, name="pour").splitlines() == [
        "`pour` is used on 3 lines in 2 files",
        "",
        "b.py",
        "1: from pond import pour",
        "2: pour(1)",
        "",
        "pond.py",
        "3 (Pond.fill): return pour(n)",
    ]
    short = asked.call(find_references, name="pour", max_results=1)
    assert "[2 more lines; narrow `path` or raise `max_results`]" in short


def test_an_answer_is_about_the_files_as_they_are_whoever_changed_them(asked: Asked) -> None:
    asked.put("a.py", "def one(): ...\n")
    asked.put("b.py", "def two(): ...\n")
    assert "a.py:1-1" in asked.call(find_symbol, name="one")
    before = (asked.root / "a.py").stat()
    asked.put("a.py", "def six(): ...\n")
    # The same size at the same time, as a command within the clock's tick would leave it.
    os.utime(asked.root / "a.py", ns=(before.st_atime_ns, before.st_mtime_ns))
    asked.put("c.py", "def three(): ...\n")
    (asked.root / "b.py").unlink()
    assert "a.py:1-1" in asked.call(find_symbol, name="six")
    assert "no definition" in asked.call(find_symbol, name="one")
    assert "c.py:1-1" in asked.call(find_symbol, name="three")
    assert "no definition" in asked.call(find_symbol, name="two")


def test_only_what_has_changed_is_parsed_again(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        asked.put(f"m{number}.py", f"def f{number}(): ...\n")
        os.utime(asked.root / f"m{number}.py", (1_000_000, 1_000_000))
    asked.call(find_symbol, name="f1")
    parsed: list[int] = []
    real = index_module.parse_contents

    async def count(contents: Any, **options: Any) -> Any:
        parsed.append(len(contents))
        return await real(contents, **options)

    monkeypatch.setattr(index_module, "parse_contents", count)
    asked.put("m3.py", "def other(): ...\n")
    os.utime(asked.root / "m4.py", (2_000_000, 2_000_000))
    assert "m3.py" in asked.call(find_symbol, name="other")
    assert parsed == [1]


def test_what_may_not_be_read_is_neither_kept_nor_shown(asked: Asked) -> None:
    asked.put("private/key.py", "def hidden_name(): return shown_name\n")
    asked.put(".env.py", "def other_hidden(): ...\n")
    asked.put(".ferrule/a.py", "def third_hidden(): ...\n")
    asked.put("ignored.py", "def fourth_hidden(): ...\n")
    asked.put(".gitignore", "ignored.py\n")
    asked.put("a.py", "def shown_name(): return hidden_name\n")
    (asked.root / "link.py").symlink_to("/etc/passwd")
    strict = asked.workspace.restrict(
        lambda path, write: "denied by a rule" if path.startswith("private") else ""
    )
    try:
        # Known to who may read it, and gone for who may not, from the next question on.
        assert "private/key.py" in asked.call(find_symbol, name="hidden_name")
        for tool in (find_symbol, find_references):
            assert "private" not in asked.call(tool, workspace=strict, name="shown_name")
            assert "key.py" not in asked.call(tool, workspace=strict, name="hidden_name")
        assert "key.py" not in asked.call(code_outline, workspace=strict)
        assert sorted(asked.index.store.files()) == ["a.py"]
        names = asked.index.store._ask("SELECT name FROM names")  # pyright: ignore[reportPrivateUsage]
        assert ("shown_name",) not in names
        with pytest.raises(ToolFailed):
            asked.call(find_symbol, workspace=strict, name="x", path="private/key.py")
    finally:
        strict.close()


def test_a_rule_that_comes_later_hides_at_once_even_while_the_index_is_not_compared(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked.put("private/key.py", "def hidden_name(): ...\n")
    asked.put("a.py", "hidden_name()\n")
    asked.call(find_symbol, name="hidden_name")
    monkeypatch.setattr(CodeIndex, "start", lambda self, workspace: 0)  # pyright: ignore[reportUnknownLambdaType]
    strict = asked.workspace.restrict(
        lambda path, write: "denied by a rule" if path.startswith("private") else ""
    )
    try:
        assert "key.py" in asked.call(find_symbol, name="hidden_name")
        assert "key.py" not in asked.call(find_symbol, workspace=strict, name="hidden_name")
        assert "private" not in asked.call(code_outline, workspace=strict)
    finally:
        strict.close()


def test_large_files_and_long_lines_are_left_out_and_the_number_of_files_is_bounded(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked.put("a.py", "def small(): ...\n")
    largest = ("def large(): ...\n".ljust(16_383) + "\n") * 64
    for more, answer in (("", ":1-1: function"), ("#", "no definition of")):
        asked.put("large.py", largest + more)
        assert len(largest) == 1_048_576
        asked.put("wide.js", "function wide() {}\n//".ljust(19 + 20_000, "x") + more)
        assert "a.py" in asked.call(find_symbol, name="small")
        for name in ("large", "wide"):
            found = asked.call(find_symbol, name=name)
            assert answer in found
            said = (
                "not in the index: 2 source files; large.py: more than 1048576 bytes; "
                "use `search_files`"
            )
            assert (said in found) is bool(more)
    monkeypatch.setattr(index_module, "MAX_FILES", 2)
    assert "[1 source files beyond the first" in asked.call(find_symbol, name="small")


def test_a_question_during_the_first_reading_says_that_the_answer_is_not_complete(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked.put("a.py", "def one(): ...\n")
    held = asyncio.Event()

    async def wait(*given: Any, **options: Any) -> Any:
        await held.wait()

    monkeypatch.setattr(index_module, "parse_contents", wait)
    monkeypatch.setattr("ferrule.toolkits.code_index.tools._MAX_SECONDS", 0.2)
    answer = asked.call(find_symbol, name="one")
    assert "[the index is not complete: 0 files are in it, 1 wait; ask again" in answer
    # It is ended in the middle, and the thread with it.
    asked.index.close()
    assert "ferrule-index" not in {thread.name for thread in threading.enumerate()}


def test_an_index_that_nobody_closes_ends_with_its_owner(tmp_path: Path) -> None:
    (tmp_path / "pond.py").write_text(POND)
    workspace = Workspace(tmp_path)
    index = CodeIndex()
    assert index.refresh(workspace, 30).files == 1
    for thread in threading.enumerate():
        if thread.name == "ferrule-index":
            thread.join(30)
    seen = weakref.ref(index)
    del index
    assert seen() is None
    workspace.close()


def test_the_outline_begins_with_what_is_used_most_and_keeps_to_its_tokens(asked: Asked) -> None:
    asked.put("core.py", "class WaterLevel: ...\ndef seldom_used_one(): ...\n")
    for number in range(12):
        asked.put(f"user{number}.py", f"from core import WaterLevel\ndef user_{number}(): ...\n")
    answer = asked.call(code_outline, tokens=100)
    rows = [row for row in answer.splitlines() if row]
    assert rows[1:3] == ["core.py", "1: class WaterLevel"]
    assert len(answer) < 100 * 4
    assert asked.call(code_outline, tokens=2000).count("user_") == 12


def test_ranks_follow_uses_and_add_up_to_one() -> None:
    files = {number: (f"{number}.py", "python") for number in range(4)}
    links = [(1, 0, "pour_water", 1, 1), (2, 0, "pour_water", 1, 1), (3, 2, "fill_pond", 1, 1)]
    ranking = rank(files, links)
    assert sum(ranking.files.values()) == pytest.approx(1)
    assert ranking.files[0] > ranking.files[2] > ranking.files[1]
    assert ranking.names[0, "pour_water"] > ranking.names[2, "fill_pond"]
    other = rank({**files, 1: ("1.go", "go")}, links)
    assert other.names[0, "pour_water"] < ranking.names[0, "pour_water"]


async def test_the_plugin_switches_it_on_and_the_index_is_kept_outside_the_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "project"
    root.mkdir()
    (root / "pond.py").write_text(POND)
    names = {tool.full_name for tool in TOOLS}
    plain = assemble({"workspace": str(root), "model": "scripted:x"}, notice=print)
    assert not names & {tool.full_name for tool in plain.agent.catalog}
    assert "index" not in plain.agent.plugins.names
    await plain.close()
    options = {"workspace": str(root), "model": "scripted:x", "plugins": ("index",)}
    monkeypatch.setenv("FERRULE_PLUGINS_INDEX_OUTLINE", "300")
    monkeypatch.setattr("ferrule.toolkits.code_index.plugin.OUTLINE_SECONDS", 30.0)
    assembly = assemble(options, notice=print)
    assert "index" in assembly.agent.plugins.names
    assert names <= {tool.full_name for tool in assembly.agent.catalog}
    model = Scripted([says("done")])
    assembly.agent.change_model(model)
    session = assembly.open_session(None)
    await session.run("hello")
    found = await session.call("find_symbol", name="pour")
    assert found.data == "pond.py:5-6: function: def pour(n)"
    sent = "".join(message.text for message in model.asks[0].history)
    assert "pond.py\n1: class Pond\n5: def pour(n)" in sent
    await assembly.close(session)
    (file,) = (paths.state() / "plugins/index").glob("*.db")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert not [path for path in root.iterdir() if path.name != "pond.py"]


async def test_a_program_gets_an_index_in_memory(tmp_path: Path) -> None:
    (tmp_path / "pond.py").write_text(POND)
    agent = Agent(Scripted([]), TOOLS, workspace=tmp_path, permissions=Permissions(allow=["Read"]))
    session = agent.session()
    found = await session.call("find_symbol", name="pour")
    assert found.data == "pond.py:5-6: function: def pour(n)", found
    await session.close()
    await agent.close()
    assert not (paths.state() / "plugins/index").exists()
