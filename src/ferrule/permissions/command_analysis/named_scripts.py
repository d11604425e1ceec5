"""Which programs and scripts a command names, so that their content decides what it does.

bash build.sh       build.sh
./run --now         ./run
timeout 5 sh x.sh   x.sh
bash < x.sh         x.sh
cat x.sh | bash     x.sh
python3 -m tool     tool.py, tool/__main__.py
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from .program_facts import INTERPRETERS, SHELLS, program_name
from .syntax import CommandPart, Word

_RUN_FILES = INTERPRETERS | SHELLS | {".", "source"}
_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
_BUILD_FILES = {
    "make": _MAKEFILES,
    "gmake": _MAKEFILES,
    "just": ("justfile", "Justfile", ".justfile"),
    "npm": ("package.json",),
    "pnpm": ("package.json",),
    "yarn": ("package.json",),
    "bun": ("package.json",),
}


def find_scripts(part: CommandPart, others: Sequence[CommandPart] = ()) -> Iterator[str]:
    """Yield the words of a command that may name a program or script which it runs.

    Of an interpreter they are the module that it is told to run, then all words that are no
    options: which of them is the script is known only to the interpreter. The first is the
    likeliest. Last comes what it reads from a file or from commands before it in a pipeline.

    Args:
        part: The command.
        others: The commands of its line.
    """
    for words in (part.words, part.words_after_wrappers):
        known = _known_texts(words)
        yield from (text for text in known[:1] if "/" in text)
        for index, text in enumerate(known):
            if program_name(text) in _RUN_FILES:
                arguments = known[index + 1 :]
                yield from _find_modules(arguments)
                yield from (other for other in arguments if not other.startswith("-"))
                yield from _find_input(part, others)
                break


def find_build_files(part: CommandPart) -> tuple[str, ...]:
    """Return the names of the files in which a build tool looks up what it runs."""
    return _BUILD_FILES.get(part.wrapped_program, ())


def _known_texts(words: Sequence[Word]) -> list[str]:
    return [word.text for word in words if word.is_known and word.text]


def _find_modules(arguments: Sequence[str]) -> Iterator[str]:
    """Yield the files of the module that `-m` of Python names."""
    for option, name in itertools.pairwise(arguments):
        if option == "-m":
            place = name.replace(".", "/")
            yield f"{place}.py"
            yield f"{place}/__main__.py"


def _find_input(part: CommandPart, others: Sequence[CommandPart]) -> Iterator[str]:
    """Yield the files from which an interpreter reads what it runs."""
    yield from _find_opened(part)
    for other in others:
        if other.wrapped_program in part.fed_by:
            texts = _known_texts(other.words_after_wrappers or other.words)
            yield from (text for text in texts[1:] if not text.startswith("-"))
            yield from _find_opened(other)


def _find_opened(part: CommandPart) -> Iterator[str]:
    opened = (file.target for file in part.redirects if not file.write)
    yield from _known_texts(tuple(opened))
