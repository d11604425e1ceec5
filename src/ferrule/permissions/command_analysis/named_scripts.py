"""Which programs and scripts a command names by a path, so that their content decides what it does.

bash build.sh       build.sh
./run --now         ./run
timeout 5 sh x.sh   x.sh
"""

from __future__ import annotations

from collections.abc import Iterator

from .program_facts import INTERPRETERS, SHELLS, program_name
from .syntax import CommandPart

_RUN_FILES = INTERPRETERS | SHELLS | {".", "source"}


def find_scripts(part: CommandPart) -> Iterator[str]:
    """Yield the words of a command that may name a program or script which it runs.

    Of an interpreter they are all words that are no options: which of them is the script is known
    only to the interpreter. The first is the likeliest.
    """
    for words in (part.words, part.words_after_wrappers):
        known = [word.text for word in words if word.is_known and word.text]
        if not known:
            continue
        yield from (text for text in known[:1] if "/" in text)
        for index, text in enumerate(known):
            if program_name(text) in _RUN_FILES:
                yield from (other for other in known[index + 1 :] if not other.startswith("-"))
                break
