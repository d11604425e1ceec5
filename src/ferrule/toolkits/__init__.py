"""Tools that ship with Ferrule.

Packages: `code_index`, `code_mode`, `commands`, `files`, `git`, `model_family_tools`, `pictures`,
`search`, `stdlib`.
Modules: `clock`, `confined_program`, `examples`, `packs`, `process`, `remote_mcp`,
`session_folder`, `subfolder`, `tasks`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ferrule.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from .clock import TOOLS as CLOCK_TOOLS
    from .code_index.tools import TOOLS as INDEX_TOOLS
    from .code_mode import code_tool
    from .code_mode.limits import CodeLimits
    from .commands import TOOLS as COMMAND_TOOLS
    from .commands import CommandPolicy
    from .files.browse import TOOLS as BROWSE_TOOLS
    from .files.tools import TOOLS as FILE_TOOLS
    from .git.git_command import TOOLS as GIT_COMMAND_TOOLS
    from .git.tools import git_toolbox_tools, git_tools
    from .packs import (
        agent_command_tools,
        agent_edit_tools,
        agent_host_tools,
        agent_read_tools,
    )
    from .pictures import TOOLS as PICTURE_TOOLS
    from .search.search_files import TOOLS as SEARCH_TOOLS
    from .search.search_files import grep_search
    from .stdlib import stdlib_tools
    from .stdlib.recognizer import Recognizer
    from .tasks import TOOLS as TASK_TOOLS

__all__ = [
    "BROWSE_TOOLS",
    "CLOCK_TOOLS",
    "COMMAND_TOOLS",
    "FILE_TOOLS",
    "GIT_COMMAND_TOOLS",
    "INDEX_TOOLS",
    "PICTURE_TOOLS",
    "SEARCH_TOOLS",
    "TASK_TOOLS",
    "CodeLimits",
    "CommandPolicy",
    "Recognizer",
    "agent_command_tools",
    "agent_edit_tools",
    "agent_host_tools",
    "agent_read_tools",
    "code_tool",
    "git_toolbox_tools",
    "git_tools",
    "grep_search",
    "stdlib_tools",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".git.git_command": ("TOOLS as GIT_COMMAND_TOOLS",),
        ".tasks": ("TOOLS as TASK_TOOLS",),
        ".stdlib.recognizer": ("Recognizer",),
        ".code_mode.limits": ("CodeLimits",),
        ".clock": ("TOOLS as CLOCK_TOOLS",),
        ".code_index.tools": ("TOOLS as INDEX_TOOLS",),
        ".code_mode": ("code_tool",),
        ".commands": (
            "TOOLS as COMMAND_TOOLS",
            "CommandPolicy",
        ),
        ".files.browse": ("TOOLS as BROWSE_TOOLS",),
        ".files.tools": ("TOOLS as FILE_TOOLS",),
        ".git.tools": (
            "git_toolbox_tools",
            "git_tools",
        ),
        ".packs": (
            "agent_command_tools",
            "agent_edit_tools",
            "agent_host_tools",
            "agent_read_tools",
        ),
        ".pictures": ("TOOLS as PICTURE_TOOLS",),
        ".search.search_files": (
            "TOOLS as SEARCH_TOOLS",
            "grep_search",
        ),
        ".stdlib": ("stdlib_tools",),
    },
)
