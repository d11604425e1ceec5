"""Odd trees that a command leaves behind: each call has its result, and the run goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ferrule import Agent, Permissions, Scripted, Storage
from ferrule.core.calls import ErrorType
from ferrule.models.scripted import calls, says
from ferrule.toolkits import commands
from ferrule.toolkits.files import browse, tools
from ferrule.toolkits.search import search_files

TREES = {
    "folders beyond the longest path": (
        "import os\nfor _ in range(200): os.mkdir('d' * 40); os.chdir('d' * 40)\nopen('.env', 'w')"
    ),
    "many levels": "import os\nfor _ in range(600): os.mkdir('d'); os.chdir('d')",
    "a loop of links": "import os\nos.symlink('loop', 'loop'); os.symlink('b', 'a'); os.symlink('a', 'b')",
    "a link to its own folder": "import os\nos.mkdir('x'); os.symlink('.', 'x/me')",
    "the longest name": "open('n' * 255, 'w')",
    "a name that is no text": "open(b'\\xff\\xfe', 'w')",
    "names with line breaks": "open('a\\nb', 'w'); open('\\x1b[2J', 'w')",
    "a pipe and a socket": (
        "import os, socket\nos.mkfifo('pipe'); socket.socket(socket.AF_UNIX).bind('sock')"
    ),
    "a closed folder": "import os\nos.mkdir('shut'); open('shut/x', 'w'); os.chmod('shut', 0)",
    "a hole": "open('big', 'wb').truncate(1 << 31)",
}


@pytest.mark.parametrize("tree", TREES)
async def test_a_tree_that_a_command_made_ends_no_run(tree: str, tmp_path: Path) -> None:
    root = tmp_path / "work"
    root.mkdir()
    (root / "make.py").write_text(TREES[tree])
    steps: list[tuple[str, dict[str, Any]]] = [
        ("run_command", {"command": ["python3", "make.py"]}),
        ("run_command", {"command": "echo next > next.txt; ls | wc -l"}),
        ("list_files", {}),
        ("file_tree", {}),
        ("search_files", {"pattern": "next"}),
        ("write_file", {"path": "after.txt", "content": "x"}),
        ("delete_path", {"path": "d" * 40}),
        ("run_command", {"command": ["true"]}),
    ]
    agent = Agent(
        Scripted([calls(step) for step in steps] + [says("done")]),
        [*commands.TOOLS, *tools.TOOLS, *browse.TOOLS, *search_files.TOOLS],
        workspace=root,
        permissions=Permissions(mode="bypassPermissions"),
        # Copies for a rewind are kept where there is a store.
        storage=Storage(artifacts=tmp_path / "artifacts"),
    )
    try:
        result = await agent.run("go")
    finally:
        await agent.close()
    assert result.text == "done"
    found = list(result.results)
    assert len(found) == len(steps)
    broken = [one for one in found if one.error_type is ErrorType.INTERNAL_ERROR]
    assert not broken, [one.error_message for one in broken]
    for index in (0, 1, 2, 5, 7):
        assert found[index].success, found[index].error_message
    assert (root / "next.txt").read_text() == "next\n"
