"""Instructions for the model beside its task: the catalogue of skills, and instruction files.

They are text only and permit nothing.
"""

from __future__ import annotations

from pathlib import Path

from ferrule.core.value_class import frozen
from ferrule.extensions.instructions import FILE_NAME, read_instructions
from ferrule.extensions.skills.loading import load_skills
from ferrule.permissions.protected_names import ProtectedNames
from ferrule.permissions.rule_evaluation import PermissionGate
from ferrule.storage import paths
from ferrule.storage.settings.settings import Settings
from ferrule.tools.catalog import Catalog
from ferrule.tools.definition import Tool


@frozen
class Instructions:
    """Instructions for the model.

    Attributes:
        skills: The catalogue of skills, "" if there are none.
        instructions: The text of instruction files, "" if there are none.
        tools: The tools that read skills.
        notices: Problems that the person should know of.
    """

    skills: str = ""
    instructions: str = ""
    tools: tuple[Tool, ...] = ()
    notices: tuple[str, ...] = ()

    def select(self, catalog: Catalog) -> list[str]:
        """Return the texts for a run with these tools.

        The skills are left out if the run lacks the tool that reads them.
        """
        has_skill_tools = all(tool.full_name in catalog for tool in self.tools)
        skills = self.skills if has_skill_tools else ""
        return [text for text in (skills, self.instructions) if text]


def own_instruction_files() -> tuple[Path, ...]:
    """Return where a person may have instructions of their own, the first one first."""
    home = Path.home()
    return (
        paths.config() / FILE_NAME,
        home / ".agents" / FILE_NAME,
        paths.claude() / "CLAUDE.md",
    )


def collect_instructions(
    settings: Settings, gate: PermissionGate, names: ProtectedNames
) -> Instructions:
    """Read the skills and instruction files that the settings allow.

    Raises:
        ConfigError: A file cannot be used.
    """
    skills = ""
    instructions = ""
    tools: tuple[Tool, ...] = ()
    notices: list[str] = []
    if settings["skills.enabled"]:
        loaded = load_skills(settings.workspace, settings.repository, paths.config(), names=names)
        permitted = loaded.filter_by(gate)
        skills = permitted.catalogue_text
        tools = permitted.tools
        notices += map(str, permitted.warnings)
    if settings["instructions.enabled"]:
        files = read_instructions(
            settings.workspace,
            settings["instructions.fallbacks"],
            max_bytes=settings["instructions.max_bytes"],
            names=names,
            refuses=gate.find_refusal,
            own_files=own_instruction_files(),
        )
        instructions = files.text
        notices += map(str, files.warnings)
    return Instructions(skills, instructions, tools, tuple(notices))
