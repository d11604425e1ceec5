"""Scripts that add to their session, at the command line: only where the person's own settings say
so.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

MAKER = """---
side_effect: none
script: |
  def run(args):
      return meta.tool_register("shout", {
          "description": "Say it louder.",
          "side_effect": "none",
          "parameters": {"text": {"type": "string", "required": True}},
          "script": "def run(args):\\n    return args['text'].upper()",
      })
---
Make a tool.
"""
STEPS: tuple[dict[str, Any], ...] = (
    {"call": [{"tool": "maker", "arguments": {}}]},
    {"call": [{"tool": "shout", "arguments": {"text": "hey"}}]},
    {"say": "done"},
)


@pytest.fixture
def trusted(folder: Path, ferrule: Callable[..., Any]) -> Path:
    """A workspace with a tool that makes tools, trusted."""
    (folder / ".ferrule/tools").mkdir(parents=True)
    (folder / ".ferrule/tools/maker.md").write_text(MAKER)
    (folder / "ferrule.yaml").write_text("limits: { max_turns: 5 }\n")
    assert ferrule("trust", "--yes").code == 0
    return folder


def test_a_person_turns_it_on_and_says_yes_to_it(
    trusted: Path,
    ferrule: Callable[..., Any],
    script: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FERRULE_TOOLS_REGISTER", "true")
    ran = ferrule("run", "go", "--model", script(*STEPS), "--yes-to", "register_tool")
    assert (ran.code, ran.out) == (0, "done\n")
    assert "HEY" in ran.err


def test_a_flag_may_name_a_tool_that_a_script_will_register(
    trusted: Path,
    ferrule: Callable[..., Any],
    script: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = ("run", "go", "--model", script(*STEPS), "--allow", "register_tool", "--allow")
    refused = ferrule(*asked, "shout")
    assert refused.code != 0 and "no tool `shout`" in refused.err, "nothing can register it"
    monkeypatch.setenv("FERRULE_TOOLS_REGISTER", "true")
    ran = ferrule(*asked, "shout")
    assert (ran.code, ran.out) == (0, "done\n")
    assert "HEY" in ran.err
    misspelled = ferrule(*asked, "reed_file")
    assert misspelled.code != 0 and "`read_file`" in misspelled.err


def test_without_a_yes_nothing_is_added(
    trusted: Path,
    ferrule: Callable[..., Any],
    script: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FERRULE_TOOLS_REGISTER", "true")
    ran = ferrule("run", "go", "--model", script(*STEPS))
    assert "HEY" not in ran.err
    assert "there is no tool `shout`" in ran.err


@pytest.mark.parametrize("settings", ["", "tools: { register: true }\n"])
def test_by_default_it_is_off_and_a_repository_cannot_turn_it_on(
    trusted: Path, ferrule: Callable[..., Any], script: Callable[..., str], settings: str
) -> None:
    (trusted / "ferrule.yaml").write_text("limits: { max_turns: 5 }\n" + settings)
    assert ferrule("trust", "--yes").code == 0
    ran = ferrule("run", "go", "--model", script(*STEPS), "--yes-to", "register_tool")
    assert "HEY" not in ran.err
    assert "`tools.register`" in ran.err
