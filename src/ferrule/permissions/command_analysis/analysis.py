"""The entry point of command analysis: what a command line would do, as far as its text says.

    analyse("git diff | cat > out.txt") -> parts, file names, labels, and what cannot be known

The text is parsed as bash does (`bash_parser`). Every simple command is a part, wherever it is: in
pipelines, lists, loops, functions, subshells, substitutions, here-documents fed to a shell, and in
the text given to `sh -c`. An argument list (`analyse_command(["git", "diff"])`) is judged without a
shell: its words are literal.

This is not a security boundary. An allowed program can do what its name does not say, and many
programs are unknown here. The analysis refuses commands before anything happens; the kernel's
sandbox enforces what a child process may touch. If the text leaves a question open, the answer is
never "allow": `problem` (cannot be parsed) and `doubts` (depends on what the shell finds) ask, and
`over_limit` denies.
"""

from __future__ import annotations

from collections.abc import Sequence

from ferrule.permissions.protected_names import DEFAULT_NAMES, ProtectedNames

from .shell_words import literal_word
from .simple_commands import CommandWalk
from .syntax import MAX_BYTES, MAX_DEPTH, MAX_PARTS, CommandAnalysis, CommandPart, Redirect

__all__ = [
    "MAX_BYTES",
    "MAX_DEPTH",
    "MAX_PARTS",
    "CommandAnalysis",
    "CommandPart",
    "Redirect",
    "analyse_command",
]


def analyse_command(
    command: str | Sequence[str],
    *,
    root: str = "",
    home: str = "",
    names: ProtectedNames | None = DEFAULT_NAMES,
    start: str = "",
) -> CommandAnalysis:
    """Analyse a command line. Never raises, whatever the text.

    Args:
        command: Shell text, or an argument list that no shell reads.
        root: The absolute path of the workspace, in which the command starts. Without one every
            absolute path counts as outside.
        home: The folder that `~` stands for.
        names: Names that no tool may touch; None for no such names.
        start: The folder in which it starts, relative to the workspace.
    """
    if isinstance(command, str):
        text = command.strip(" \t\n")
        walk = CommandWalk(root, home, start)
        return walk.conclude(text, walk.walk_text(text), names)
    words = [str(word) for word in command]
    text = " ".join(literal_word(word).to_text() for word in words)
    walk = CommandWalk(root, home, start)
    return walk.conclude(text, walk.walk_arguments(text, words), names)
