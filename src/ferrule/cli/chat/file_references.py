"""`@path` in a message: files of the workspace that the model gets along with it.

They are read with the tools that the model has, through the same gate; the message stays as typed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from ferrule.core.lazy_patterns import compile_lazily

_BEGIN = r"(?:^|(?<=[\s(\u2e80-\U0003ffff]))@"
"""Behind a blank, or a character of a script that is written without them; not in an address."""
_REFERENCE = compile_lazily(_BEGIN + r'(?:"([^"\n]+)"|([^\s"@]+))')
_OPEN = compile_lazily(_BEGIN + r'("[^"\n]*|[^\s"@]*)$')
_UNSPACED = compile_lazily("[\u2e80-\U0003ffff]")
_END_OF_SENTENCE = ".,;:!?)"
_MOST_ENDS = 100
MAX_COMPLETIONS = 50


def find_references(text: str) -> list[str]:
    """Return the paths that a message names with `@`, each once, in their order."""
    found = [quoted or bare for quoted, bare in _REFERENCE.findall(text)]
    return list(dict.fromkeys(found))


def possible_paths(reference: str) -> Iterator[str]:
    """Yield what a reference may mean: itself, and without the punctuation behind it.

    In scripts that are written without blanks the sentence may go on behind the name.
    """
    ends = [found.start() for found in _UNSPACED.finditer(reference)][:_MOST_ENDS]
    meant = [reference, reference.rstrip(_END_OF_SENTENCE)]
    meant += [reference[:end] for end in reversed(ends)]
    yield from filter(None, dict.fromkeys(meant))


def looks_like_path(reference: str) -> bool:
    """Whether a reference that names nothing was meant as a path, not as somebody's name."""
    return any(mark in reference.rstrip(_END_OF_SENTENCE) for mark in "/. ")


def find_open_reference(before: str) -> str | None:
    """Return what is being typed behind `@`, perhaps with an open quote; None if nothing is."""
    found = _OPEN.search(before)
    return None if found is None else found[1]


def complete_path(beginning: str, list_folder: Callable[[str], Sequence[str]]) -> list[str]:
    """Return what may stand in place of the beginning: paths, in quotes where they need them.

    Names that begin like what was typed come first, then those that have its letters in their
    order, whatever their case.

    Args:
        beginning: What was typed behind `@`.
        list_folder: Returns the names in a folder, folders with a slash at the end.
    """
    folder, slash, start = beginning.removeprefix('"').rpartition("/")
    names = list_folder(folder or ("/" if slash else "."))
    hidden = start.startswith(".")
    shown = [name for name in names if hidden or not name.startswith(".")]
    first = [name for name in shown if name.startswith(start)]
    scattered = re.compile(".*".join(map(re.escape, start)), re.IGNORECASE)
    rest = [name for name in shown if name not in first and scattered.search(name)]
    return [_quote(f"{folder}{slash}{name}") for name in [*first, *rest][:MAX_COMPLETIONS]]


def _quote(path: str) -> str:
    """Put a path with blanks in quotes; those of a folder stay open, for what is in it."""
    if not re.search(r"\s", path):
        return path
    return f'"{path}' if path.endswith("/") else f'"{path}"'
