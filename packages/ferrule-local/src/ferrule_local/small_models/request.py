"""A person's request, cut into pieces once (`spans`), and which of them are taken.

All of a tool's slots are filled from it. Besides the pieces it knows what can be seen without a
tool: which words stand near which, which runs are names (`Bank of America`, `S&P 500`), which
pieces are dates, and which unit a number came with.
"""

from __future__ import annotations

import re

from ferrule.tools.forking import cached_property
from ferrule.tools.word_stems import stem

from .dates import Date, find_dates, find_relative_dates, find_times
from .spans import FIRST_PERSON, Span, find_spans, parse_number, split_atoms
from .units import UNITS

_WITHIN_NAMES = frozenset(["of", "the", "de", "la", "du", "von", "van", "&", "vs", "vs."])
_TERM = (
    r"(?:\d+(?:\.\d+)?[a-z]?|[a-z]|(?:sin|cos|tan|log|ln|exp|sqrt)\([^()]*\))"
    r"(?:(?:\^|\*\*)\(?[\w.]+\)?)?"
)
_FORMULA = re.compile(
    r"(?<![\w.'])(?:[a-z]\([a-z]\)\s*=\s*|[a-z]\s*=\s*)?"
    rf"(?P<body>{_TERM}(?:\s*[-+*/]\s*{_TERM})*)(?![\w])"
)
_GLUED = re.compile(r"(?:[\d.,]+(?:[eE][-+]?\d+)?)(%|°?[A-Za-z]{1,3})(?:/.*|\^?\d|[²³])?")


MAX_ATOMS = 1000
"""Atoms of a request that are looked at. Of a longer one only the head is."""


class Request:
    """A person's request, cut into pieces once, and which of them are taken."""

    def __init__(
        self,
        text: str,
        own: frozenset[str] = frozenset(),
        parameter_words: frozenset[str] = frozenset(),
    ) -> None:
        """Cut a request into pieces.

        Args:
            text: The request.
            own: Stems of the tool's name. People ask for the tool by them; they are seldom values.
            parameter_words: Stems of the names of its parameters, which are seldom values either.
        """
        self.text = text
        self.tool_words = own
        self.parameter_words = parameter_words
        self.atoms = split_atoms(text)[:MAX_ATOMS]
        self.spans = find_spans(text, self.atoms)
        self.stems = [stem(a.text) if a.kind == "word" else "" for a in self.atoms]
        self.taken: list[Span] = []
        # A name with a full stop inside (`Mr. X`) is none of the runs within a sentence.
        known = {(s.first, s.last) for s in self.spans}
        self.spans += [n for n in self.names if (n.first, n.last) not in known]

    def take(self, span: Span | None) -> None:
        """Take a piece: no other slot can have it, or any part of it."""
        if span is not None:
            self.taken.append(span)

    def says_number(self, value: float) -> bool:
        """Return whether a number stands in the request, in digits or as a word."""
        return value in [parse_number(atom.text) for atom in self.atoms]

    def free_spans(self) -> list[Span]:
        """Return the pieces that are not taken."""
        return [s for s in self.spans if self.is_free(s)]

    def is_free(self, span: Span) -> bool:
        """Return whether no part of a piece is taken."""
        return not any(span.overlaps(t) for t in self.taken)

    def free_atoms(self, *kinds: str) -> list[Span]:
        """Return the free pieces of one atom that are of these kinds."""
        return [s for s in self.free_spans() if s.first == s.last and s.kind in kinds]

    @cached_property
    def formulas(self) -> list[Span]:
        """Runs that are formulas: `3x^2 + 2x - 1`."""
        found: list[Span] = []
        for match in _FORMULA.finditer(self.text):
            inside = [i for i, a in enumerate(self.atoms) if match.start() <= a.start < match.end()]
            body = match.group("body")
            if inside and re.search(r"[A-Za-z]", body) and re.search(r"[\^*+]|\s-\s", body):
                found.append(Span(match.group().strip(), inside[0], inside[-1], "formula"))
        return found

    def distance_to(self, span: Span, words: frozenset[str], reach: int = 4) -> int:
        """Return the distance in atoms from a piece to the nearest of these words.

        It is `reach + 1` if none is within reach.
        """
        best = reach + 1
        for index, word in enumerate(self.stems):
            if word in words and not span.first <= index <= span.last:
                gap = span.first - index if index < span.first else index - span.last
                best = min(best, gap)
        return best

    def word_before(self, span: Span) -> str:
        """Return the word before a piece, in lower case; "" at the beginning."""
        return self.atoms[span.first - 1].text.lower() if span.first else ""

    def word_after(self, span: Span) -> str:
        """Return the word after a piece, in lower case; "" at the end."""
        return self.atoms[span.last + 1].text.lower() if span.last + 1 < len(self.atoms) else ""

    def unit_of(self, span: Span) -> str:
        """Return the stem of the unit that a number came with (`6cm`, `$5`, `5 kg`).

        Without a known unit it is the stem of whatever word follows; "" if there is none.
        """
        if span.text[:1] in UNITS:
            return stem(UNITS[span.text[0]])
        glued = _GLUED.fullmatch(span.text)
        written = glued.group(1) if glued else self.word_after(span)
        return stem(UNITS.get(written.lower(), written)) if written else ""

    @cached_property
    def dates(self) -> list[tuple[Span, Date]]:
        """The dates in the request, and where they stand."""
        found: list[tuple[Span, Date]] = []
        for start, end, day in find_dates(self.text):
            inside = [i for i, a in enumerate(self.atoms) if a.start < end and a.end > start]
            if inside:
                found.append((Span(self.text[start:end], inside[0], inside[-1], "date"), day))
        return found

    @cached_property
    def times(self) -> list[tuple[int, int, int]]:
        """The times of day in the request: where they begin, hour and minute."""
        return find_times(self.text)

    @cached_property
    def relative_dates(self) -> list[Span]:
        """Where days are named as seen from today."""
        found: list[Span] = []
        for start, end in find_relative_dates(self.text):
            inside = [i for i, a in enumerate(self.atoms) if start <= a.start < end]
            if inside:
                found.append(Span(self.text[start:end], inside[0], inside[-1], "date"))
        return found

    @cached_property
    def names(self) -> list[Span]:
        """The longest runs of words that are written as names, without a comma inside."""
        found: list[Span] = []
        at = 0
        while at < len(self.atoms):
            last = self._name_from(at)
            if last is None:
                at += 1
                continue
            text = self.text[self.atoms[at].start : self.atoms[last].end]
            found.append(Span(text if last > at else self.atoms[at].text, at, last, "name"))
            at = last + 1
        return found

    def is_in_name(self, span: Span) -> bool:
        """Return whether it is a part of a longer name: `history` of `Natural History Museum`."""
        return any(span.is_inside(name) for name in self.names)

    def _name_from(self, first: int) -> int | None:
        """Return the last atom of the name that begins here, or None."""
        if not self._is_name_word(first):
            return None
        last = first
        at = first + 1
        while at < len(self.atoms) and (self._gap(at).isspace() or self._follows_abbreviation(at)):
            if self._is_name_word(at) or (
                self.atoms[at].kind == "number" and self._is_name_word(at - 1)
            ):
                last = at
            elif self.atoms[at].text not in _WITHIN_NAMES:
                break
            at += 1
        return last

    def _follows_abbreviation(self, index: int) -> bool:
        """Return whether the full stop before an atom belongs to an abbreviation: `Mr. X`."""
        return bool(_ABBREVIATION.search(self.text[: self.atoms[index].start].rstrip()))

    def _gap(self, index: int) -> str:
        return self.text[self.atoms[index - 1].end : self.atoms[index].start]

    def _is_name_word(self, index: int) -> bool:
        """Return whether an atom is written as a name is.

        At the head of a sentence one capital says nothing.
        """
        atom = self.atoms[index]
        if atom.kind == "word" and _IDENTIFIER.fullmatch(atom.text):
            return True
        if atom.kind == "quoted" or not re.match(r"[^\W\d_]", atom.text):
            return False
        if not atom.text[0].isupper() or atom.text in FIRST_PERSON:
            return False
        return bool(re.search(r"(?<=.)[A-Z]", atom.text)) or not self.is_sentence_start(index)

    def is_sentence_start(self, index: int) -> bool:
        """Return whether an atom is the first of a sentence."""
        before = self.text[: self.atoms[index].start].rstrip(" \"'(")
        return not before or (before[-1] in ".!?:" and not _ABBREVIATION.search(before))


_IDENTIFIER = re.compile(r"[a-z0-9]+(?:_[a-z0-9]+)+")
_ABBREVIATION = re.compile(r"\b(?:Mr|Mrs|Ms|Dr|St|vs|No|Prof|Jr|Inc|Ltd|[A-Z])\.$")


MAX_REQUEST_CHARACTERS = 2400
"""Characters of a request in a prompt."""


def cut_request(text: str) -> str:
    """Return a request as a prompt holds it: of a pasted text the middle is left out."""
    half = MAX_REQUEST_CHARACTERS // 2
    return text if len(text) <= MAX_REQUEST_CHARACTERS else f"{text[:half]} [...] {text[-half:]}"
