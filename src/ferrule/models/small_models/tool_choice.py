"""Which tool a request is for: a score made of meaning, words and fit. Pure; the vectors come from
the model.

    meaning   a ridge classifier over the model's own hidden state after "means in one word" (Jiang et al. 2023,
              "Scaling Sentence Embeddings with Large Language Models"): its classes are the tools,
              its few examples their descriptions and example requests
    words     BM25 over names, descriptions and example requests
    name      words of its name that no other tool's name has
    fit       whether the request holds what the tool needs, and whether the tool has a place for what it holds

What a request is about must not hang on the names in it, so paths and quoted text are masked before
it is embedded. The weights were set on evals/tasks.yaml, for all tools alike.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from operator import mul

from ferrule.core.frozen import frozen
from ferrule.tools.search.bm25 import Bm25
from ferrule.tools.word_stems import content, first_sentence

from .request import Request
from .slots import Slot

MEANING = 'This request: "{}" means in one word: "'
"""What is embedded. The word that would follow is what the request is about."""

EVERYDAY = (
    "put on some jazz",
    "wake me at half past six",
    "how much is 20 dollars in euro?",
    "Tell Maria by mail that the meeting is moved",
    "What will the weather be like in Oslo tomorrow?",
    "Translate 'good night' into French",
    "Turn off the lights in the kitchen",
    "Who won the match yesterday?",
    "Book a table for four at seven",
    "Resize photo.jpg to 800 pixels",
    "How far is it from Paris to Lyon?",
    "Compute the square root of 144",
    "Convert report.docx to PDF",
    "Which of my friends have a birthday in May?",
    "Close all windows",
    "List the cheapest flights to Rome",
    "Set the volume to 30 percent",
    "Restart the printer",
)
"""Requests of every kind. Their mean is what all requests have in common."""

SMALL_TALK = (
    "Hello, how are you?",
    "Thanks, that was helpful",
    "Tell me a joke",
    "Who are you?",
    "Explain to me what recursion is",
    "Why is the sky blue?",
    "What is your opinion on poetry?",
    "Good morning!",
)
"""What no tool is for: answered in words."""

WORDS, MISSING, UNPLACED, LOOSE, RIDGE, GAIN = 0.06, 0.2, 0.2, 0.05, 1.5, 1.5
DISTINCT, MOST_DISTINCT = 0.2, 2
"""For a word of the request that only one tool's name has, and how many such words count. Of a tool
with example requests these say more than its name, so there it counts nothing.
"""

_FILE_LIKE = re.compile(r"\.\w+$")


Learned = tuple[list[float], list[list[float]]]
"""The mean of everyday requests, and a weight vector a tool and one for words."""


@frozen
class Offer:
    """A tool as a candidate: its wire name, what it says of itself, its slots, how people ask for
    it.
    """

    name: str
    description: str
    slots: tuple[Slot, ...]
    requests: tuple[str, ...] = ()


def masked(request: Request) -> str:
    """The request with its paths and quotations replaced by common words."""
    parts: list[str] = []
    at = 0
    for atom in request.atoms:
        if atom.kind == "quoted":
            common = '"text"'
        elif atom.kind == "path":
            common = "the file" if _FILE_LIKE.search(atom.text) else "the path"
        else:
            continue
        parts += [request.text[at : atom.start], common]
        at = atom.end
    return "".join([*parts, request.text[at:]])


def asked(text: str) -> str:
    """The prompt whose vector is the meaning of a request."""
    return MEANING.format(masked(Request(text)))


def told(offer: Offer) -> str:
    """The prompt whose vector is the meaning of a tool's description."""
    name = re.sub(r"[_.\-:]+", " ", offer.name)
    return MEANING.format(f"{name}: {first_sentence(offer.description)}")


class Chooser:
    """Ranks the offers for a request. `vector` of a prompt is looked up in what `prompts` asked
    for.
    """

    def __init__(self, offers: Sequence[Offer]) -> None:
        self.offers = tuple(offers)
        self._lexicon = Bm25([_words(offer) for offer in offers])
        self._distinct = distinct([offer.name for offer in offers])
        self._weights: list[list[float]] = []
        self._middle: list[float] = []

    def prompts(self) -> list[str]:
        """Everything to embed before the first `rank`: the same for the same tools."""
        found = [asked(r) for r in (*EVERYDAY, *SMALL_TALK)] + [told(o) for o in self.offers]
        return found + [asked(r) for o in self.offers for r in o.requests]

    @property
    def ready(self) -> bool:
        return bool(self._weights)

    def learn(self, vectors: Sequence[Sequence[float]]) -> None:
        """Take the vectors of `prompts`, in order."""
        self.use(self.learned(vectors))

    def use(self, learned: Learned) -> None:
        """Take what another chooser of the same tools and the same model has learned."""
        self._middle, self._weights = learned

    def learned(self, vectors: Sequence[Sequence[float]]) -> Learned:
        """What the vectors of `prompts` teach; about half a second for twenty tools with
        examples.
        """
        everyday, rest = vectors[: len(EVERYDAY)], vectors[len(EVERYDAY) :]
        talk, rest = rest[: len(SMALL_TALK)], rest[len(SMALL_TALK) :]
        descriptions, examples = rest[: len(self.offers)], rest[len(self.offers) :]
        middle = mean(everyday)
        between = mean(descriptions) if len(descriptions) > 1 else middle
        rows = [unit(_minus(v, between)) for v in descriptions] + [
            unit(_minus(v, middle)) for v in examples
        ]
        classes = list(range(len(self.offers)))
        classes += [i for i, o in enumerate(self.offers) for _ in o.requests]
        rows += [unit(_minus(v, middle)) for v in talk]
        classes += [len(self.offers)] * len(talk)
        return middle, ridge(rows, classes, len(self.offers) + 1, RIDGE)

    def rank(self, request: Request, vector: Sequence[float]) -> list[tuple[float, Offer | None]]:
        """Offers with their scores, best first; None stands for an answer in words. Ties keep the
        catalog's order.
        """
        point = unit(_minus(vector, self._middle))
        said = set(content(request.text))
        words = self._lexicon.scores(said)
        scored: list[tuple[float, Offer | None]] = []
        for number, (offer, weights) in enumerate(
            zip((*self.offers, None), self._weights, strict=True)
        ):
            value = GAIN * sum(map(mul, point, weights))
            if offer is not None:
                missing, unplaced, loose = misfit(request, offer)
                value += WORDS * words.get(number, 0.0)
                if not offer.requests:
                    value += DISTINCT * min(len(said & self._distinct[number]), MOST_DISTINCT)
                value -= MISSING * missing + UNPLACED * unplaced + LOOSE * loose
            scored.append((value, offer))
        return sorted(scored, key=lambda pair: -pair[0])


def distinct(names: Sequence[str]) -> list[set[str]]:
    """Of each name, the words that no other name has."""
    counted = Counter(word for name in names for word in set(content(name)))
    return [{word for word in content(name) if counted[word] == 1} for name in names]


def _words(offer: Offer) -> list[str]:
    """A word of the name counts twice."""
    examples = [word for text in offer.requests for word in content(masked(Request(text)))]
    return content(offer.name) * 2 + content(offer.description) + examples


def misfit(request: Request, offer: Offer) -> tuple[int, int, int]:
    """What does not fit: required slots without a piece, pieces without a slot, words without a
    place.

    Words that the tool uses of itself need no place; neither does the verb that the request begins
    with.
    """
    own = own_words(offer)
    numeric = [s for s in offer.slots if s.kind in ("integer", "number")]
    texts = [s for s in offer.slots if s.kind in ("string", "array", "object")]
    free = [s for s in texts if s.role != "path"]
    numbers = len(request.single("number"))
    marked = len({span.text for span in request.single("path", "quoted", "url")})
    loose = sum(
        atom.kind == "word"
        and index > 0
        and bool(rest := content(atom.text))
        and not own.issuperset(rest)
        for index, atom in enumerate(request.atoms)
    )
    needed = sum(s.required for s in texts)
    missing = max(0, sum(s.required for s in numeric) - numbers) + max(0, needed - marked - loose)
    unplaced = max(0, marked - len(texts))
    if not free:
        unplaced += max(0, numbers - len(numeric))
        loose = max(0, loose - max(0, len(texts) - marked))
    return missing, unplaced, 0 if free else loose


def own_words(offer: Offer) -> frozenset[str]:
    """The words a tool uses of itself and its parameters."""
    found = set(content(offer.name)) | set(content(offer.description))
    for slot in offer.slots:
        found |= slot.words | {word for choice in slot.choices for word in content(str(choice))}
    return frozenset(found)


def ridge(
    rows: Sequence[Sequence[float]], classes: Sequence[int], count: int, penalty: float
) -> list[list[float]]:
    """One weight vector a class: ridge regression onto class membership, in its dual form.

    Few rows and many columns, so the system solved is rows by rows: (R R' + penalty I) A = Y,
    weights R' A.
    """
    system = [[sum(map(mul, a, b)) for b in rows] for a in rows]
    for i in range(len(rows)):
        system[i][i] += penalty
    targets = [[(1.0 if c == k else 0.0) - 1.0 / count for k in range(count)] for c in classes]
    factors = solve(system, targets)
    columns = list(zip(*rows, strict=True))
    return [
        [sum(map(mul, column, factor)) for column in columns]
        for factor in zip(*factors, strict=True)
    ]


def solve(system: list[list[float]], targets: list[list[float]]) -> list[list[float]]:
    """Gaussian elimination without pivots: the system is symmetric and positive definite. Both are
    used up.
    """
    size = len(system)
    for i in range(size):
        pivot, right = system[i], targets[i]
        for j in range(i + 1, size):
            factor = system[j][i] / pivot[i]
            if factor:
                system[j][i:] = [
                    a - factor * b for a, b in zip(system[j][i:], pivot[i:], strict=True)
                ]
                targets[j] = [a - factor * b for a, b in zip(targets[j], right, strict=True)]
    for i in reversed(range(size)):
        row = targets[i]
        for j in range(i + 1, size):
            factor = system[i][j]
            row = [a - factor * b for a, b in zip(row, targets[j], strict=True)]
        targets[i] = [a / system[i][i] for a in row]
    return targets


def unit(vector: Sequence[float]) -> list[float]:
    size = math.sqrt(sum(map(mul, vector, vector))) or 1.0
    return [a / size for a in vector]


def _minus(left: Sequence[float], right: Sequence[float]) -> list[float]:
    return [a - b for a, b in zip(left, right, strict=True)]


def mean(vectors: Sequence[Sequence[float]]) -> list[float]:
    return [sum(column) / len(vectors) for column in zip(*vectors, strict=True)]
