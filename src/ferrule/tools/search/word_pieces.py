"""Split words of many texts, each only once.

Names and prose repeat the same runs of letters, so an index stores runs. What a query looks for
(stems, words in lower case, pieces of words) leads to the runs that contain it.
"""

from __future__ import annotations

import re
from collections import defaultdict

from ferrule.tools.word_stems import FUNCTION_WORDS, content_stems, stem, tokens, words

PIECE_LENGTH = 4
_RUN = re.compile(r"[^\W_]+")


def split_runs(text: str) -> list[str]:
    """Return the runs of letters and digits, as written."""
    return _RUN.findall(text)


def split_pieces(text: str) -> list[str]:
    """Return all groups of four neighbouring characters of words; `#` marks a word's ends."""
    return [piece for word in words(text) for piece in _pieces(word.lower())]


def _pieces(word: str) -> list[str]:
    marked = f"#{word}#"
    return [
        marked[start : start + PIECE_LENGTH]
        for start in range(max(len(word) + 3 - PIECE_LENGTH, 1))
    ]


def _plain(run: str) -> bool:
    """Return whether a run is a single word, as most are."""
    return run.isascii() and run.isalpha() and run[1:].islower()


class StemTable(dict[str, list[str]]):
    """Stems by run, without function words; a missing run is split when it is looked up."""

    def __init__(self) -> None:
        super().__init__()
        self.stems: defaultdict[str, list[str]] = defaultdict(list)
        """Runs by stem; a run that contains a stem twice is listed twice."""
        self.words: defaultdict[str, list[str]] = defaultdict(list)
        """Runs by word in lower case, as BM25 splits words (`tokens`)."""

    def __missing__(self, run: str) -> list[str]:
        if _plain(run):
            lower = run.lower()
            found = [] if lower in FUNCTION_WORDS else [stem(lower)]
            self.words[lower].append(run)
        else:
            found = content_stems(run)
            for word in tokens(run):
                self.words[word].append(run)
        for one in found:
            self.stems[one].append(run)
        self[run] = found
        return found


class PieceTable(dict[str, int]):
    """Number of pieces by run; `runs` are the runs that contain a piece."""

    def __init__(self) -> None:
        super().__init__()
        self.runs: defaultdict[str, list[str]] = defaultdict(list)

    def __missing__(self, run: str) -> int:
        found = _pieces(run.lower()) if _plain(run) else split_pieces(run)
        for piece in found:
            self.runs[piece].append(run)
        self[run] = len(found)
        return len(found)
