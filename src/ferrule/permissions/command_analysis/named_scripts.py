"""Which programs and scripts a command names, so that their content decides what it does.

bash build.sh       build.sh
./run --now         ./run
timeout 5 sh x.sh   x.sh
bash < x.sh         x.sh
cat x.sh | bash     x.sh
python3 -m tool     tool.py, tool/__main__.py
sed --file=x.sed    x.sed, if it is there
bash x*.sh          what only the shell knows
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

from .program_facts import INTERPRETERS, PLAIN, SHELLS, WRITERS, program_name
from .shell_words import UNKNOWN
from .syntax import CommandPart, Word

_TAKE_DATA = PLAIN | WRITERS | {"git"}
"""Programs for which the content of a file that they name is data."""
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


def find_named_files(part: CommandPart) -> Iterator[str]:
    """Yield what may be the name of a file from which a program learns what to do.

    Of a program that is not known to take data these are its words and what stands in them: the
    value of an option, the members of a list, the words of a quoted command.
    """
    if part.wrapped_program in _TAKE_DATA:
        return
    for text in _known_texts(part.words)[1:]:
        yield text
        yield from filter(None, re.split(r"[=:,\s]+", text))
        if re.match(r"-[A-Za-z]", text):
            yield text[2:]


def find_script_patterns(part: CommandPart) -> Iterator[str]:
    """Yield patterns of what only the shell knows that an interpreter is given: `bash s*.sh`.

    `*` stands for any text; a word of which nothing is known (`sh $X`) is `*` alone.
    """
    programs = [program_name(word.text) in _RUN_FILES for word in part.words]
    if True not in programs:
        return
    for word in part.words[programs.index(True) :]:
        if not word.is_known:
            yield "*" if UNKNOWN in word.text else re.sub("[\1-\3]+", "*", word.text)


def _known_texts(words: Sequence[Word]) -> list[str]:
    return [word.text for word in words if word.is_known and word.text]


def _find_modules(arguments: Sequence[str]) -> Iterator[str]:
    """Yield the files of the module that `-m` of Python names."""
    for option, following in itertools.pairwise((*arguments, "")):
        if found := re.fullmatch(r"-[A-Za-ln-z]*m(.*)", option):
            place = (found[1] or following).replace(".", "/")
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
