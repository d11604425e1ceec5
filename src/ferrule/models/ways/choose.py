"""Which tool a request is for: a score made of meaning, words and fit. Pure; the vectors come from the model.

    meaning   cosine of the request with the tool (and with its example requests), by the model's own
              hidden state after "means in one word" (Jiang et al. 2023, "Scaling Sentence Embeddings
              with Large Language Models"), centred so that what all requests share does not count
    words     BM25 over name and description
    fit       whether the request holds what the tool needs, and whether the tool has a place for what it holds

The weights were set on evals/tasks.yaml and public one-call tasks, for all tools alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .slots import Request, Slot
from .words import Lexicon, content, first_sentence

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

WORDS, EXAMPLES, MISSING, UNPLACED = 0.06, 0.5, 0.12, 0.06


@dataclass(frozen=True, slots=True)
class Offer:
    """A tool as a candidate. `vector` is centred; `examples` are its example requests' centred vectors."""

    name: str
    slots: tuple[Slot, ...]
    vector: Sequence[float]
    examples: tuple[Sequence[float], ...] = ()


def meaning(name: str, description: str) -> str:
    """What is embedded of a tool."""
    return MEANING.format(f"{name.replace('_', ' ')}: {first_sentence(description)}")


def lexicon(tools: Mapping[str, str]) -> Lexicon:
    """Over `name -> description`; a word of the name counts twice."""
    return Lexicon({n: content(n) + content(n) + content(d) for n, d in tools.items()})


def rank(request: Request, vector: Sequence[float], offers: Sequence[Offer], words: Lexicon) -> list[tuple[float, Offer]]:
    """Offers with their scores, best first; ties keep the catalog's order."""
    asked = content(request.text)
    scored = [(score(request, asked, vector, offer, words), offer) for offer in offers]
    return sorted(scored, key=lambda pair: -pair[0])


def score(request: Request, asked: Sequence[str], vector: Sequence[float], offer: Offer, words: Lexicon) -> float:
    near = cosine(vector, offer.vector)
    if offer.examples:
        near = (1 - EXAMPLES) * near + EXAMPLES * max(cosine(vector, e) for e in offer.examples)
    missing, unplaced = misfit(request, offer.slots)
    return near + WORDS * words.score(asked, offer.name) - MISSING * missing - UNPLACED * unplaced


def misfit(request: Request, slots: Sequence[Slot]) -> tuple[int, int]:
    """(required slots that the request has nothing for, pieces of the request that the tool has no slot for)."""
    numbers = len(request.single("number"))
    marked = len(request.single("path", "quoted", "url"))
    numeric = [s for s in slots if s.kind in ("integer", "number")]
    texts = [s for s in slots if s.kind in ("string", "array", "object")]
    open_words = [a for a in request.atoms if a.kind == "word" and content(a.text)]
    missing = max(0, sum(s.required for s in numeric) - numbers)
    missing += max(0, sum(s.required for s in texts) - marked - len(open_words))
    if texts and numbers > len(numeric):
        numbers = len(numeric)  # a number may be part of a text
    return missing, max(0, numbers - len(numeric)) + max(0, marked - len(texts))


def cosine(left: Sequence[float], right: Sequence[float]) -> float:
    size = math.sqrt(sum(a * a for a in left) * sum(b * b for b in right))
    return sum(a * b for a, b in zip(left, right, strict=True)) / size if size else 0.0


def centre(vector: Sequence[float], middle: Sequence[float]) -> list[float]:
    return [a - b for a, b in zip(vector, middle, strict=True)]


def mean(vectors: Sequence[Sequence[float]]) -> list[float]:
    return [sum(column) / len(vectors) for column in zip(*vectors, strict=True)]
