"""Choose the tool that a request is for, by a score made of meaning, words and fit.

    meaning   a ridge classifier over the model's own hidden state after "means in one word" (Jiang
              et al. 2023, "Scaling Sentence Embeddings with Large Language Models"): its classes
              are the tools, its few examples their descriptions and example requests
    words     BM25 over names, descriptions and example requests
    name      words of its name: the one that the request begins with, and those that no other
              tool's name has
    fit       whether the request holds what the tool needs, and whether the tool has a place for
              what it holds

Pure; the vectors come from the model. What a request is about must not depend on the names in it,
so paths and quoted text are masked before it is embedded. The weights were set on evals/tasks.yaml,
for all tools alike.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from operator import mul

from ferrule.core.value_class import frozen
from ferrule.tools.search.bm25 import Bm25
from ferrule.tools.word_stems import content_stems, first_sentence, stem

from .request import Request
from .slots import FOLDER_WORDS, Slot

MEANING_PROMPT = 'This request: "{}" means in one word: "'
"""The text that is embedded. The word that would follow is what the request is about."""

EVERYDAY_REQUESTS = (
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
"""Requests of every kind. The mean of their vectors is what all requests have in common."""

SMALL_TALK = (
    "Hello, how are you?",
    "Thanks, that was helpful",
    "Tell me a joke",
    "Who are you?",
    "Explain to me what recursion is",
    "Why is the sky blue?",
    "What is your opinion on poetry?",
    "Good morning!",
    "What is 12 plus 30?",
    "We should all drive less",
    "I sold my old car last year",
    "How do I bake bread?",
)
"""Requests that no tool is for, and that are answered in words."""

GAIN = 1.5
"""Weight of the meaning."""

RIDGE = 3.0
"""Penalty of the ridge regression."""

WORDS = 0.06
"""Weight of the words' BM25 score."""

MISSING = 0.2
UNPLACED = 0.2
LOOSE = 0.05
"""Weights of what does not fit; see `count_misfits`."""

DISTINCT = 0.2
"""Weight of a word of the request that only this tool's name has.

The example requests of a tool say more than its name, so where it has some this counts nothing.
"""

OPENING = 0.1
"""Weight of a request that begins with a word of the tool's name: `add` for `add_task`."""

MOST_DISTINCT = 2
"""How many such words count."""

_FILE_LIKE = re.compile(r"\.\w+$")
_FILE_ENDING = re.compile(r"\w\.[A-Za-z]\w{0,4}$")


LearnedWeights = tuple[list[float], list[list[float]]]
"""The mean of everyday requests, and a weight vector for each tool and one for words."""


@frozen
class ToolOffer:
    """A tool as a candidate: its API name, its description, its slots, and example requests."""

    name: str
    description: str
    slots: tuple[Slot, ...]
    requests: tuple[str, ...] = ()


def mask_values(request: Request) -> str:
    """Return a request with its paths and quotations replaced by common words."""
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


def request_prompt(text: str) -> str:
    """Return the prompt whose vector is the meaning of a request."""
    return MEANING_PROMPT.format(mask_values(Request(text)))


def tool_prompt(offer: ToolOffer) -> str:
    """Return the prompt whose vector is the meaning of a tool's description."""
    name = re.sub(r"[_.\-:]+", " ", offer.name)
    return MEANING_PROMPT.format(f"{name}: {first_sentence(offer.description)}")


class ToolChooser:
    """Ranks tools for a request.

    Before the first `rank`, embed what `prompts` returns and give the vectors to `learn`.
    """

    def __init__(self, offers: Sequence[ToolOffer]) -> None:
        self.offers = tuple(offers)
        self._lexicon = Bm25([_words(offer) for offer in offers])
        self._named = [content_stems(offer.name) for offer in offers]
        self._distinct = find_distinct_words([offer.name for offer in offers])
        self._weights: list[list[float]] = []
        self._middle: list[float] = []

    def prompts(self) -> list[str]:
        """Return everything to embed before the first `rank`: the same for the same tools."""
        found = [request_prompt(request) for request in (*EVERYDAY_REQUESTS, *SMALL_TALK)]
        found += [tool_prompt(offer) for offer in self.offers]
        for offer in self.offers:
            found += [request_prompt(request) for request in offer.requests]
        return found

    @property
    def is_ready(self) -> bool:
        """Whether it has learned what it needs to rank."""
        return bool(self._weights)

    def use_weights(self, learned: LearnedWeights) -> None:
        """Take what another chooser of the same tools and the same model has learned."""
        self._middle, self._weights = learned

    def compute_weights(self, vectors: Sequence[Sequence[float]]) -> LearnedWeights:
        """Return what the vectors of `prompts` teach.

        Takes about half a second for twenty tools with examples.
        """
        remaining = iter(vectors)
        everyday = list(islice(remaining, len(EVERYDAY_REQUESTS)))
        talk = list(islice(remaining, len(SMALL_TALK)))
        descriptions = list(islice(remaining, len(self.offers)))
        examples = list(remaining)
        middle = mean(everyday)
        between = mean(descriptions) if len(descriptions) > 1 else middle
        rows = [normalize(_minus(vector, between)) for vector in descriptions]
        rows += [normalize(_minus(vector, middle)) for vector in examples]
        rows += [normalize(_minus(vector, middle)) for vector in talk]
        classes = list(range(len(self.offers)))
        for index, offer in enumerate(self.offers):
            classes += [index] * len(offer.requests)
        classes += [len(self.offers)] * len(talk)
        return middle, ridge(rows, classes, len(self.offers) + 1, RIDGE)

    def rank(
        self, request: Request, vector: Sequence[float]
    ) -> list[tuple[float, ToolOffer | None]]:
        """Return the offers with their scores, best first; None stands for an answer in words.

        Ties keep the catalog's order.
        """
        point = normalize(_minus(vector, self._middle))
        said = set(content_stems(request.text))
        words = self._lexicon.scores(said)
        opening = request.stems[0] if request.stems else ""
        scored: list[tuple[float, ToolOffer | None]] = []
        choices = zip((*self.offers, None), self._weights, strict=True)
        for number, (offer, weights) in enumerate(choices):
            value = GAIN * sum(map(mul, point, weights))
            if offer is not None:
                missing, unplaced, loose = count_misfits(request, offer)
                value += WORDS * words.get(number, 0.0)
                value += OPENING * (opening in self._named[number])
                if not offer.requests:
                    value += DISTINCT * min(len(said & self._distinct[number]), MOST_DISTINCT)
                value -= MISSING * missing + UNPLACED * unplaced + LOOSE * loose
            scored.append((value, offer))
        return sorted(scored, key=lambda pair: -pair[0])


def find_distinct_words(names: Sequence[str]) -> list[set[str]]:
    """Return for each name the words that no other name has."""
    counted: Counter[str] = Counter()
    for name in names:
        counted.update(set(content_stems(name)))
    return [{word for word in content_stems(name) if counted[word] == 1} for name in names]


def _words(offer: ToolOffer) -> list[str]:
    """Return the words of a tool and its example requests; those of its name count twice."""
    found = content_stems(offer.name) * 2 + content_stems(offer.description)
    for text in offer.requests:
        found += content_stems(mask_values(Request(text)))
    return found


def count_misfits(request: Request, offer: ToolOffer) -> tuple[int, int, int]:
    """Count what does not fit.

    Words that the tool uses of itself need no place, and neither does the verb that the request
    begins with.

    Returns:
        Required slots without a piece, pieces without a slot, and words without a place.
    """
    own = find_own_words(offer)
    numeric = [slot for slot in offer.slots if slot.kind in ("integer", "number")]
    texts = [slot for slot in offer.slots if slot.kind in ("string", "array", "object")]
    takes_words = any(slot.role != "path" for slot in texts)
    numbers = len(request.free_atoms("number"))
    marked = len({span.text for span in request.free_atoms("path", "quoted", "url")})
    loose = 0
    for atom in request.atoms[1:]:
        words = content_stems(atom.text) if atom.kind == "word" else []
        if words and not own.issuperset(words):
            loose += 1
    needed_numbers = sum(slot.required for slot in numeric)
    needed_texts = sum(slot.required for slot in texts)
    missing = max(0, needed_numbers - numbers) + max(0, needed_texts - marked - loose)
    unplaced = max(0, marked - len(texts))
    unplaced += _takes_other_paths(request, offer)
    if takes_words:
        return missing, unplaced, 0
    unplaced += max(0, numbers - len(numeric))
    return missing, unplaced, max(0, loose - max(0, len(texts) - marked))


def _takes_other_paths(request: Request, offer: ToolOffer) -> bool:
    """Return whether a tool takes folders alone where a file is named, or files where a folder is.

    A file is known by its ending; a folder by the word for it, a slash, or by `in` before it. A
    tool that needs one file is not for a request that names none and speaks of several.
    """
    slots = [slot for slot in offer.slots if slot.role == "path"]
    paths = request.free_atoms("path")
    if len(slots) != 1:
        return False
    takes_files = stem("file") in slots[0].words
    takes_folders = not FOLDER_WORDS.isdisjoint(slots[0].words)
    if any(_FILE_ENDING.search(path.text) for path in paths):
        return takes_folders and not takes_files
    is_folder = not FOLDER_WORDS.isdisjoint(request.stems) or any(
        path.text.endswith("/") or request.word_before(path) == "in" for path in paths
    )
    if is_folder:
        return takes_files and not takes_folders
    # `all Python files` names none of them, and an identifier is none.
    names_none = any(
        atom.text.lower() == "files" or "_" in atom.text.strip("_") for atom in request.atoms
    )
    return not paths and names_none and slots[0].required and not takes_folders


def find_own_words(offer: ToolOffer) -> frozenset[str]:
    """Return the words that a tool uses of itself and its parameters."""
    found = set(content_stems(offer.name)) | set(content_stems(offer.description))
    for slot in offer.slots:
        found |= slot.words
        for choice in slot.choices:
            found.update(content_stems(str(choice)))
    return frozenset(found)


def ridge(
    rows: Sequence[Sequence[float]], classes: Sequence[int], count: int, penalty: float
) -> list[list[float]]:
    """Return one weight vector per class: ridge regression onto class membership.

    There are few rows and many columns, so it is done in its dual form. The system that is solved
    is rows by rows: (R R' + penalty I) A = Y, and the weights are R' A.
    """
    system = [[sum(map(mul, a, b)) for b in rows] for a in rows]
    for i in range(len(rows)):
        system[i][i] += penalty
    targets = [_centred_membership(number, count) for number in classes]
    factors = solve(system, targets)
    columns = list(zip(*rows, strict=True))
    return [
        [sum(map(mul, column, factor)) for column in columns]
        for factor in zip(*factors, strict=True)
    ]


def _centred_membership(number: int, count: int) -> list[float]:
    return [(1.0 if other == number else 0.0) - 1.0 / count for other in range(count)]


def solve(system: list[list[float]], targets: list[list[float]]) -> list[list[float]]:
    """Solve a system by Gaussian elimination. Both arguments are used up.

    It does without pivots, as the system is symmetric and positive definite.
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


def normalize(vector: Sequence[float]) -> list[float]:
    """Return a vector of length 1 in the same direction."""
    size = math.sqrt(sum(map(mul, vector, vector))) or 1.0
    return [a / size for a in vector]


def _minus(left: Sequence[float], right: Sequence[float]) -> list[float]:
    return [a - b for a, b in zip(left, right, strict=True)]


def mean(vectors: Sequence[Sequence[float]]) -> list[float]:
    """Return the mean of vectors."""
    return [sum(column) / len(vectors) for column in zip(*vectors, strict=True)]
