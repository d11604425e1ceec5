"""Analysis of shell commands: what a command would do, as far as its text says.

Nothing runs and no file is opened here.

Modules:
    analysis            the entry point: `analyse_command`
    syntax              the results: parts, redirects, findings
    simple_commands     finds the simple commands of a text
    bash_parser         parses shell text as bash does
    bash_builtins       built-ins that run text or change what words mean
    shell_words         words, and what of them only the shell knows
    wrappers            looks through `timeout`, `nice`, ...
    working_directory   the folder that each command starts in
    path_arguments      the files that a command names
    judged_arguments    what each argument of a known program is
    option_meanings     what the arguments of known programs mean, by hand
    tool_meanings       the same of test runners, linters and build programs
    program_arguments   the record in which both say it
    option_parsing      reads arguments as programs do
    subcommands         other names of subcommands, such as npm's abbreviations
    started_programs    programs that `uv run`, `npx`, `python -m`, ... start
    program_facts       tables of programs
    hazards             arguments that do more than a program's name says
    reading_commands    which commands only read
    harmless_code       which words of interpreters and fetchers only compute or ask the session
    named_scripts       programs and scripts that a command names by a path
    risk_labels         labels for people, such as `destructive`

Its functions are loaded with the first command: a third of the start-up time of permissions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ferrule.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from .analysis import analyse_command
    from .path_arguments import find_paths, is_device, judge_paths, possible_folders
    from .reading_commands import is_known_program, only_reads, part_only_reads
    from .risk_labels import publishes
    from .working_directory import absolute_folders

__all__ = [
    "absolute_folders",
    "analyse_command",
    "find_paths",
    "is_device",
    "is_known_program",
    "judge_paths",
    "only_reads",
    "part_only_reads",
    "possible_folders",
    "publishes",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".analysis": ("analyse_command",),
        ".path_arguments": ("find_paths", "is_device", "judge_paths", "possible_folders"),
        ".reading_commands": ("is_known_program", "only_reads", "part_only_reads"),
        ".risk_labels": ("publishes",),
        ".working_directory": ("absolute_folders",),
    },
)
