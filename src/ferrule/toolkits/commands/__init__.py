"""Commands: the tools that run programs for a model.

    plugin              the plugin `commands`
    run_command_tool    the built-in `run_command`: few parameters, readable text
    full_command_tools  `command_tools(options)`: the full `run_command` of requirement 001
    jobs                `cmd &`, `jobs`, `wait %1`, `kill %1`: the background in a shell's words
    readers, lifecycle  the output of earlier commands, and commands in the background
    runner              from a call to a running command, with every check in order
    request, plan, policy, verdict                     the checks
    output_folding      an output as a terminal leaves it: progress, colours, repetitions
    equal_diagnostics   what a checker says of many places, said once with all of them
    output_reduction    test runners, compilers and installers, reduced to failures and summaries
    output_families     what of their outputs is noise, and what is not
    shell_state         the folder and variables that one command leaves to the next
    session_commands, outputs, output_folder, record   running commands, their output and records
    pipe_status                         pipelines that answer for their producers (plain form)
    capture, pipelines, output_copies   keeping the output that a filter hides (full form)
    output_files                        whole outputs under short names, for commands and file tools
    scratch_files                       files that commands write for us
    scripts, script_steps, retry_option                commands for programs instead of models
    start, confinement, session_sandbox, refused_access   the session's sandbox, what it refused
    json_output, syntax_tree, repositories             JSON results, shell grammar, git folders

`TOOLS` are those a session has unless its author asks for more.
"""

from __future__ import annotations

from ferrule.toolkits.examples import with_examples
from ferrule.tools.definition import Tool

from .full_command_tools import command_tools
from .policy import Behavior, CommandOptions, CommandPolicy
from .run_command_tool import run_command
from .session_commands import SessionCommands

__all__ = [
    "TOOLS",
    "Behavior",
    "CommandOptions",
    "CommandPolicy",
    "SessionCommands",
    "command_tools",
    "run_command",
]

TOOLS: tuple[Tool, ...] = with_examples(run_command)
