"""What a command line would do, as far as its text says. Nothing runs and nothing is opened here.

    analyse("git diff | cat > out.txt") -> parts, file names, labels, and what cannot be known

The text is read as bash reads it (`bash_parser.py`). Every simple command is a part, wherever it
stands: in pipelines, lists, loops, functions, subshells, substitutions, here-documents fed to a
shell, and in the text given to `sh -c`. An argument list (`analyse(["git", "diff"])`) is judged
without a shell: its words are literal.

What this is not: a boundary. A program that is allowed can do what its name does not say, under a
name this file never heard of. These are refusals before anything happens; what a child process may
touch is for the kernel's sandbox to enforce. Where the text leaves a question open the answer is
never "allow": `problem` (cannot be parsed) and `doubts` (depends on what the shell finds) ask,
`over_limit` denies.
"""

from __future__ import annotations

from collections.abc import Sequence

from ferrule.permissions.protected_names import DEFAULT, Names

from .shell_words import literal
from .simple_commands import Walk
from .syntax import MAX_BYTES, MAX_DEPTH, MAX_PARTS, Analysis, Part, Redirect

__all__ = ["MAX_BYTES", "MAX_DEPTH", "MAX_PARTS", "Analysis", "Part", "Redirect", "analyse"]


def analyse(
    command: str | Sequence[str], *, root: str = "", home: str = "", names: Names | None = DEFAULT
) -> Analysis:
    """Take a command line apart. Never raises on any text.

    `root` is the absolute path of the workspace and of the folder the command starts in; `home`
    stands for `~`. Without a root every absolute path counts as outside.
    """
    if isinstance(command, str):
        text = command.strip(" \t\n")
        walk = Walk(root, home)
        return walk.conclude(text, walk.read(text), names)
    words = [str(word) for word in command]
    text = " ".join(literal(word).shown() for word in words)
    walk = Walk(root, home)
    return walk.conclude(text, walk.read_argv(text, words), names)
