"""Words of many texts, each taken apart once.

Names and prose say the same run of letters over and over, so it is runs that an index holds; what a
query asks for (stems, words in lower case, pieces of words) leads to the runs it stands in.
"""

from __future__ import annotations

import re
from collections import defaultdict

from ferrule.tools.word_stems import FUNCTION_WORDS, content, stem, tokens, words

PIECE = 4
_RUN = re.compile(r"[^\W_]+")


def runs(text: str) -> list[str]:
    """Runs of letters and digits, as they are written."""
    return _RUN.findall(text)


def pieces(text: str) -> list[str]:
    """What stands beside each other within words, four characters at a time; `#` is where a word
    begins and ends.
    """
    return [piece for word in words(text) for piece in _pieces(word.lower())]


def _pieces(word: str) -> list[str]:
    marked = f"#{word}#"
    return [marked[start : start + PIECE] for start in range(max(len(word) + 3 - PIECE, 1))]


def _plain(run: str) -> bool:
    """Whether a run is one word, as most are: nothing to take apart."""
    return run.isascii() and run.isalpha() and run[1:].islower()


class Stemmed(dict[str, list[str]]):
    """The stems with content in a run; a run that is not there is taken apart when it is asked
    for.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stems: defaultdict[str, list[str]] = defaultdict(list)
        """A stem and the runs that hold it, twice where it is in a run twice."""
        self.words: defaultdict[str, list[str]] = defaultdict(list)
        """The same for what BM25 takes for words (`tokens`)."""

    def __missing__(self, run: str) -> list[str]:
        if _plain(run):
            lower = run.lower()
            found = [] if lower in FUNCTION_WORDS else [stem(lower)]
            self.words[lower].append(run)
        else:
            found = content(run)
            for word in tokens(run):
                self.words[word].append(run)
        for one in found:
            self.stems[one].append(run)
        self[run] = found
        return found


class Pieced(dict[str, int]):
    """The number of pieces in a run, and which runs hold a piece."""

    def __init__(self) -> None:
        super().__init__()
        self.runs: defaultdict[str, list[str]] = defaultdict(list)

    def __missing__(self, run: str) -> int:
        found = _pieces(run.lower()) if _plain(run) else pieces(run)
        for piece in found:
            self.runs[piece].append(run)
        self[run] = len(found)
        return len(found)
