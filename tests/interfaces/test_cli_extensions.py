"""What files bring to the command line: tools inline in a settings file, skills, instructions."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ferrule.cli.terminal_agent import assemble_at_terminal

sys.path.insert(0, str(Path(__file__).parent))

INLINE = """tools:
  - name: shout
    description: Say it louder.
    side_effect: none
    parameters:
      text: { type: string, required: true }
    script: |
      def run(args):
          return string.upper(args["text"])
"""


@pytest.mark.parametrize("name", ["ferrule.yaml", ".ferrule/ferrule.yaml"])
def test_tools_stand_inline_in_a_settings_file(
    name: str, folder: Path, ferrule: Callable[..., Any]
) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(INLINE)
    assert ferrule("tools", "call", "shout", "text=hi").code == 2
    ferrule("trust", "--yes")
    ran = ferrule("tools", "call", "shout", "text=hi", "--allow", "shout")
    assert (ran.code, ran.out) == (0, "HI\n")


def test_the_model_is_told_what_agents_md_says_and_which_skills_there_are(folder: Path) -> None:
    (folder / "AGENTS.md").write_text("Lamps are dimmed at dawn.\n")
    skill = folder / ".agents/skills/lamps/SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: lamps\ndescription: How lamps are kept.\n---\nWith care.\n")
    told = assemble_at_terminal({}).agent
    text = told.plugins.make_text(told.catalog)
    assert "Lamps are dimmed at dawn." in text
    assert "How lamps are kept." in text
    assert "skill" in told.catalog
    without = assemble_at_terminal({"tools__denied": ("skill",)}).agent
    assert "How lamps are kept." not in without.plugins.make_text(without.catalog)
    assert "skill" not in without.catalog
