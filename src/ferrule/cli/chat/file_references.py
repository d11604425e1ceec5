"""`@path` in a message: files of the workspace that the model gets along with it.

They are read with the tools that the model has, through the same gate; the message stays as typed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

_REFERENCE = re.compile(r'(?:^|(?<=[\s(]))@(?:"([^"\n]+)"|([^\s"@]+))')
_OPEN = re.compile(r'(?:^|(?<=[\s(]))@("?)([^\s"@]*)$')
_END_OF_SENTENCE = ".,;:!?)"
MAX_COMPLETIONS = 50


def find_references(text: str) -> list[str]:
    """Return the paths that a message names with `@`, each once, in their order."""
    found = [quoted or bare for quoted, bare in _REFERENCE.findall(text)]
    return list(dict.fromkeys(found))


def possible_paths(reference: str) -> Iterator[str]:
    """Yield what a reference may mean: itself, and without the punctuation behind it."""
    yield reference
    shorter = reference.rstrip(_END_OF_SENTENCE)
    if shorter and shorter != reference:
        yield shorter


def find_open_reference(before: str) -> str | None:
    """Return the beginning of a path that is being typed behind `@`; None if there is none."""
    found = _OPEN.search(before)
    return None if found is None else found[2]


def complete_path(beginning: str, list_folder: Callable[[str], Sequence[str]]) -> list[str]:
    """Return the paths that begin like this.

    Args:
        beginning: What was typed.
        list_folder: Returns the names in a folder, folders with a slash at the end.
    """
    folder, slash, start = beginning.rpartition("/")
    names = list_folder(folder or ("/" if slash else "."))
    hidden = start.startswith(".")
    matching = [
        name for name in names if name.startswith(start) and (hidden or not name.startswith("."))
    ]
    return [f"{folder}{slash}{name}" for name in matching[:MAX_COMPLETIONS]]
