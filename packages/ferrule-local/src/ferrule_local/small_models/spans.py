"""Find the pieces of a request that may be an argument, which a small model copies.

Pure. A request is cut into atoms (quoted text, paths, numbers, words); a span is a run of atoms.
Nothing here knows a tool: it goes by the forms of ordinary text (quotes, slashes, digits, English
function words). What it cannot see: values that must be worked out (sums, translations, units).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ferrule.core.value_class import frozen
from ferrule.tools.word_stems import FUNCTION_WORDS, stem

from .units import is_unit

MAX_SPAN_ATOMS = 24
"""Atoms in one span, at most. Of longer texts only parts are offered."""

_PIECE = re.compile(
    r"```(?:\w*\n)?(?P<fence>.*?)```"
    r"|`(?P<tick>[^`]+)`"
    r"|\"(?P<double>[^\"]*)\""
    r"|“(?P<curly>[^”]*)”"
    r"|‘(?P<single>[^’]*)’"
    r"|(?<![\w'])'(?P<plain>(?:[^']|(?<=\w)'(?=\w))+)'(?!\w)"
    r"|[:=,](?=['\"])"  # `'name':'Ann'`: the mark is no part of the value behind it
    r"|(?P<word>[^\s\"`“‘(\[{][^\s\"`“‘]*)",
    re.DOTALL,
)
_OPEN, _CLOSE = "([{<\"'“‘", ",;:!?)]}>\"'”’"
_LIST = re.compile(r"[,;](?!\d{3}(?!\d))|(?<!\d)[,;]|[()\[\]{}]+")
_RANGE = re.compile(r"(\d+)[-–](\d+)")
_ASSIGNMENT = re.compile(r"(\w{1,24})=([-+]?[\d.]+)")
_MEASURE = re.compile(r"(\d+(?:\.\d+)?)-(\w+)")
_INITIALS = re.compile(r"(?:[A-Za-z]\.){2,}")
_NUMBER = re.compile(r"[-+]?[$€£]?(\d{1,3}(?:,\d{3})+(?!\d)|\d+)?(\.\d+)?(?:[eE]([-+]?\d+))?")
_AFTER_NUMBER = re.compile(r"(?:%|°?[A-Za-zµΩ°²³]{0,4}(?:/[A-Za-z]{1,4}[²³]?)?|st|nd|rd|th)")
_FILE = re.compile(
    r"[\w.+@-]*\.[A-Za-z]\w{0,9}|\.[A-Za-z][\w.-]*|[~\w.@*+-]*(?:/[\w.@*+-]*)+|[\w-]*\*[\w.*-]*"
)
_URL = re.compile(r"[A-Za-z][A-Za-z+.-]*://\S+|[\w.+-]+@[\w-]+\.[\w.]+")
_SENTENCE = re.compile(r"[.!?;]\s+(?=[A-Z\"'`])|\n")

FIRST_PERSON = frozenset(["I", "I'm", "I'd", "I've", "I'll", "I’m", "I’d", "I’ve", "I’ll"])
"""Capitals that are no name."""

_SCALED = {"k": 10**3, "K": 10**3, "m": 10**6, "M": 10**6, "b": 10**9, "B": 10**9, "bn": 10**9}
_COUNTING = "zero one two three four five six seven eight nine ten eleven twelve"

NUMBER_WORDS = {word: value for value, word in enumerate(_COUNTING.split())} | {
    "twenty": 20,
    "thirty": 30,
    "forty": 40,
    "fifty": 50,
    "hundred": 100,
    "thousand": 1000,
    "dozen": 12,
}


@frozen
class Atom:
    """One piece of a request.

    Attributes:
        text: Its value, without quotes.
        start: Where it begins in the request.
        end: Where it ends.
        kind: `quoted`, `url`, `path`, `number` or `word`.
    """

    text: str
    start: int
    end: int
    kind: str


@frozen
class Span:
    """A run of atoms, `first` to `last` inclusive, and the text it stands for."""

    text: str
    first: int
    last: int
    kind: str

    def overlaps(self, other: Span) -> bool:
        return self.first <= other.last and other.first <= self.last

    def is_inside(self, other: Span) -> bool:
        """Return whether it is a part of another span, and less than all of it."""
        within = other.first <= self.first and self.last <= other.last
        return within and self.last - self.first < other.last - other.first


def split_atoms(request: str) -> list[Atom]:
    """Cut a request into atoms, in order."""
    found: list[Atom] = []
    for match in _PIECE.finditer(request):
        group = match.lastgroup
        if group is None:
            continue
        text = match.group(group)
        if group == "word":
            found.extend(_words(text, match.start()))
        elif text.strip():
            value = text.strip("\n") if group == "fence" else text
            found.append(Atom(value, *match.span(), "quoted"))
    return found


def _words(text: str, start: int) -> Iterator[Atom]:
    """Yield the atoms of what stands between two blanks, without punctuation around it.

    `[1,2]`, `a=2`, `12-14` and `0.5-second` are cut.
    """
    bare = text.lstrip(_OPEN)
    start += len(text) - len(bare)
    bare = bare.rstrip(_CLOSE)
    if not _INITIALS.fullmatch(bare):
        bare = bare.rstrip("." + _CLOSE)
    if bare.endswith(("'s", "’s")):
        bare = bare[:-2]
    pair = _RANGE.fullmatch(bare) or _ASSIGNMENT.fullmatch(bare)
    measure = _MEASURE.fullmatch(bare)
    if pair is None and measure and is_unit(stem(measure.group(2))):
        pair = measure
    if pair:
        pieces = [(pair.group(i), pair.start(i)) for i in (1, 2)]
    elif "," in bare and not _URL.fullmatch(bare):
        pieces = list(_cut(bare))
    else:
        pieces = [(bare, 0)]
    for piece, offset in pieces:
        if piece:
            yield Atom(piece, start + offset, start + offset + len(piece), _kind(piece))


def _cut(text: str) -> Iterator[tuple[str, int]]:
    """Yield the parts of a list, and where they begin."""
    at = 0
    for match in _LIST.finditer(text):
        yield text[at : match.start()], at
        at = match.end()
    yield text[at:], at


def _kind(text: str) -> str:
    if _URL.fullmatch(text):
        return "url"
    if parse_number(text) is not None:
        return "number"
    return "path" if _FILE.fullmatch(text) and text.strip(".*/") else "word"


def parse_number(text: str) -> float | int | None:
    """Return the number a piece is or begins with, or None.

    For instance `1,200`, `$5`, `3.5%`, `20kg`, `1e-9` or `seven`.
    """
    word = text.lower()
    if word in NUMBER_WORDS:
        return NUMBER_WORDS[word]
    match = _NUMBER.match(text)
    if match is None or not (match.group(1) or match.group(2)):
        return None
    rest = text[match.end() :]
    if text[0] in "$€£" and rest in _SCALED:
        return round(float(re.sub(r"[$€£,]", "", match.group(0))) * _SCALED[rest])
    if not _AFTER_NUMBER.fullmatch(rest):
        return None
    bare = re.sub(r"[$€£,+]", "", match.group(0))
    value = float(bare)
    if match.group(2) or match.group(3):
        return value
    return int(bare)


def find_spans(request: str, pieces: Sequence[Atom]) -> list[Span]:
    """Return all runs that may be a value.

    They have no function word at either end, and no end of a sentence inside. Quoted text, paths
    and links stand alone as well as in longer runs.
    """
    found: list[Span] = []
    for first in range(len(pieces)):
        if _has_no_content(request, pieces[first]):
            continue
        for last in range(first, min(first + MAX_SPAN_ATOMS, len(pieces))):
            if last > first:
                gap = (pieces[last - 1].end, pieces[last].start + 1)
                if _SENTENCE.search(request, *gap):
                    break
            if not _has_no_content(request, pieces[last]):
                found.append(_make_span(request, pieces, first, last))
    return found


def _has_no_content(request: str, atom: Atom) -> bool:
    """Return whether it is a function word. At the head of a sentence a capital says nothing."""
    if atom.kind != "word":
        return False
    if atom.text in FIRST_PERSON:
        return True
    before = request[: atom.start].rstrip()
    text = atom.text.lower() if not before or before[-1] in ".!?:" else atom.text
    return text in FUNCTION_WORDS or not re.search(r"\w", text)


def _make_span(request: str, pieces: Sequence[Atom], first: int, last: int) -> Span:
    if first == last:
        return Span(pieces[first].text, first, last, pieces[first].kind)
    return Span(request[pieces[first].start : pieces[last].end], first, last, "run")
