"""What a model is told beyond its task: the skills there are and what `AGENTS.md` says. Text, and
no power.
"""

from __future__ import annotations

from dataclasses import dataclass

from ferrule.permissions.gate import Gate
from ferrule.permissions.protected_names import Names
from ferrule.storage import paths
from ferrule.storage.settings.settings import Settings
from ferrule.tools.catalog import Catalog
from ferrule.tools.definition import Tool


@dataclass(frozen=True, slots=True)
class Texts:
    """`skills` is the catalogue of skills, `instructions` what files say; empty where there is
    nothing.
    """

    skills: str = ""
    instructions: str = ""
    tools: tuple[Tool, ...] = ()
    notices: tuple[str, ...] = ()

    def told(self, catalog: Catalog) -> list[str]:
        """The texts for a run with these tools: without the tool that reads them, skills are of no
        use.
        """
        readable = all(tool.full_name in catalog for tool in self.tools)
        return [text for text in (self.skills if readable else "", self.instructions) if text]


def read_texts(settings: Settings, gate: Gate, names: Names) -> Texts:
    """What the settings let a model read of the workspace and of the person's own folder. Raises
    ConfigError.
    """
    skills, instructions = "", ""
    tools: tuple[Tool, ...] = ()
    notices: list[str] = []
    if settings["skills.enabled"]:
        from ferrule.extensions.skills.loading import load_skills

        found = load_skills(settings.workspace, settings.repository, paths.config(), names=names)
        seen = found.seen_by(gate)
        skills, tools = seen.catalogue_text, seen.tools
        notices += map(str, seen.warnings)
    if settings["instructions.enabled"]:
        from ferrule.extensions.instructions import read_instructions

        told = read_instructions(
            settings.workspace,
            settings["instructions.fallbacks"],
            most=settings["instructions.max_bytes"],
            names=names,
            refuses=gate.refuses,
        )
        instructions = told.text
        notices += map(str, told.warnings)
    return Texts(skills, instructions, tools, tuple(notices))
