"""Load what files add to a run: tools, hooks, agents, skills and instructions.

Packages: `agents`, `builtins`, `checks`, `diagnostics`, `hooks`, `skills`, `starlark`,
`tool_files`.
Modules: `extensions`, `front_matter`, `instructions`, `plugin`, `repository`,
`untrusted_frames`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ferrule.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from .builtins.scope import ScriptEnvironment
    from .extensions import Extensions
    from .instructions import read_instructions
    from .skills.loading import load_skills
    from .skills.skill_file import parse_skill

__all__ = [
    "Extensions",
    "ScriptEnvironment",
    "load_skills",
    "parse_skill",
    "read_instructions",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".builtins.scope": ("ScriptEnvironment",),
        ".extensions": ("Extensions",),
        ".instructions": ("read_instructions",),
        ".skills.loading": ("load_skills",),
        ".skills.skill_file": ("parse_skill",),
    },
)
