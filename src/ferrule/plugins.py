"""Plugins: whatever is added to an agent, those that ship, and what your own is written with.

    from ferrule import Agent
    from ferrule.plugins import Git, TypedTools

    agent = Agent("ollama:llama3.2", workspace=".", plugins=[Git(tools="read"), TypedTools()])

`Plugin`, `Setup` and `Parts` are what a plugin consists of; `docs/plugins.md` shows one. Programs
connect to servers with `connect_mcp`, `connect_a2a`, `http_tools` and `openapi_tools`: the plugins
`mcp`, `a2a`, `http` and `extensions` read a person's settings and files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .core.lazy_names import lazy_names

if TYPE_CHECKING:
    from .console.plugin_pages import ConsolePage
    from .core.media import MediaOptions
    from .engine.plugins.plugin_set import make_plugin_folder
    from .engine.plugins.protocol import CatalogChanges, Parts, Plugin, Setup
    from .engine.registration.registration import Registering
    from .engine.telemetry.plugin import OpenTelemetry
    from .engine.travelling_files.plugin import TravellingFiles
    from .extensions.diagnostics.plugin import Diagnostics
    from .extensions.instructions import InstructionFiles
    from .extensions.skills.plugin import Skills
    from .toolkits.clock import Clock
    from .toolkits.code_index.plugin import CodeIndexing
    from .toolkits.code_mode.plugin import CodeMode
    from .toolkits.commands.plugin import Commands
    from .toolkits.files.plugin import Files
    from .toolkits.git.plugin import Git
    from .toolkits.model_family_tools.memory import Memory
    from .toolkits.model_family_tools.plugin import FamilyTools
    from .toolkits.pictures.plugin import Pictures
    from .toolkits.search.search_files import Search
    from .toolkits.stdlib.plugin import Ocr, TypedTools
    from .toolkits.tasks import Tasks

__all__ = [
    "CatalogChanges",
    "Clock",
    "CodeIndexing",
    "CodeMode",
    "Commands",
    "ConsolePage",
    "Diagnostics",
    "FamilyTools",
    "Files",
    "Git",
    "InstructionFiles",
    "MediaOptions",
    "Memory",
    "Ocr",
    "OpenTelemetry",
    "Parts",
    "Pictures",
    "Plugin",
    "Registering",
    "Search",
    "Setup",
    "Skills",
    "Tasks",
    "TravellingFiles",
    "TypedTools",
    "make_plugin_folder",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "ferrule.core.media": ("MediaOptions",),
        "ferrule.console.plugin_pages": ("ConsolePage",),
        "ferrule.engine.plugins.plugin_set": ("make_plugin_folder",),
        "ferrule.engine.plugins.protocol": ("CatalogChanges", "Parts", "Plugin", "Setup"),
        "ferrule.engine.registration.registration": ("Registering",),
        "ferrule.engine.telemetry.plugin": ("OpenTelemetry",),
        "ferrule.engine.travelling_files.plugin": ("TravellingFiles",),
        "ferrule.extensions.diagnostics.plugin": ("Diagnostics",),
        "ferrule.extensions.instructions": ("InstructionFiles",),
        "ferrule.extensions.skills.plugin": ("Skills",),
        "ferrule.toolkits.clock": ("Clock",),
        "ferrule.toolkits.code_index.plugin": ("CodeIndexing",),
        "ferrule.toolkits.code_mode.plugin": ("CodeMode",),
        "ferrule.toolkits.commands.plugin": ("Commands",),
        "ferrule.toolkits.files.plugin": ("Files",),
        "ferrule.toolkits.git.plugin": ("Git",),
        "ferrule.toolkits.model_family_tools.memory": ("Memory",),
        "ferrule.toolkits.model_family_tools.plugin": ("FamilyTools",),
        "ferrule.toolkits.pictures.plugin": ("Pictures",),
        "ferrule.toolkits.search.search_files": ("Search",),
        "ferrule.toolkits.stdlib.plugin": ("Ocr", "TypedTools"),
        "ferrule.toolkits.tasks": ("Tasks",),
    },
)
