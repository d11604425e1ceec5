"""Commands: running programs for a model, and all that belongs to it.

    plain.py      the built-in `run_command`: few parameters, readable text
    full.py       `command_tools(options)`: the same with everything requirement 001 asks for
    readers.py, lifecycle.py    what commands said, and those in the background
    runner.py     from a call to a running command, every check in its order
    request.py, plan.py, policy.py, verdict.py    the checks
    session_commands.py, outputs.py, output_folder.py, record.py    what a running command is, keeps and tells

`TOOLS` is what a session has unless its author asks for more.
"""

from __future__ import annotations

from ferrule.toolkits.examples import with_examples
from ferrule.tools.definition import Tool

from .full import command_tools
from .plain import run_command
from .plan import plan
from .policy import Behavior, CommandOptions, CommandPolicy
from .session_commands import Commands

__all__ = [
    "TOOLS",
    "Behavior",
    "CommandOptions",
    "CommandPolicy",
    "Commands",
    "command_tools",
    "plan",
    "run_command",
]

TOOLS: tuple[Tool, ...] = with_examples(run_command)
