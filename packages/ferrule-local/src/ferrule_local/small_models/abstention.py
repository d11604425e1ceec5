"""Whether any tool is called for, and where a message makes several requests.

*No tool* is a choice like any other: its weight against the best tool is a logistic regression over
a few figures that know no tool and no evaluation. `evals/fit_abstention.py` fits it, on the
development halves of the Berkeley leaderboard's questions with and without a fitting function,
those that people sent (*live*) among them; nothing of the other halves is used.

Pure.
"""

from __future__ import annotations

import math
import re
from operator import mul

from ferrule.tools.word_stems import content_stems, first_sentence, stem

from .candidates import find_mentioned_values, find_named_choices
from .request import Request
from .slots import Slot
from .tool_choice import ToolOffer, count_misfits, find_own_words
from .value_ranking import assign_values, rank_slots

WEIGHTS: tuple[float, ...] = (
    *(2.10, -0.29, 1.68, 0.70, -0.27, 0.09, 0.46),
    *(4.11, -0.90, 0.51, -0.69, 2.26, 2.02, -0.65),
)
"""Weights of the figures of `describe_fit`, in their order."""

BIAS = -2.91

MAX_NEED = 12.0
"""Log odds between which it counts by how much a model that was taught to call wants to."""

TAUGHT_WEIGHTS: tuple[float, ...] = (
    *(1.26, 1.04, 0.79, -0.37, 0.27, -0.02, -0.15),
    *(2.07, -0.58, 0.56, -0.69, 1.73, 1.28, -0.93, 0.23),
)
TAUGHT_BIAS = -1.73
"""The same for a model that was taught to call: the last figure is how much it wants to."""

MIN_PROBABILITY = 0.5
"""Below this a request is answered in words."""


_GENERIC = frozenset(
    map(stem, ["get", "find", "calculate", "search", "fetch", "check", "compute", "info", "data"])
)
_QUESTION_WORDS = frozenset(
    ["what", "why", "how", "who", "when", "where", "which", "is", "are", "do", "does", "did"]
)


def describe_fit(
    request: Request, offer: ToolOffer, need: float | None = None
) -> tuple[float, ...]:
    """Return the figures by which it is decided whether a tool is called for.

    They are: the shares of the tool's name's words, of those of them that say more than `get`, and
    of its description's, that were said; the words said that it says of itself, their share of what
    was said, and that share with the values that were found; the share of its parameters that were
    spoken of; the share of them that list a value which was said; the required parameters that
    nothing fills; the share of its numbers that the request has; how many it lacks; the share of
    its parameters that the request gives evidence for; how sure its required texts are; and
    whether the request begins with a question word.

    None of these is the model's: its hidden state tells tools apart, but not whether one is needed.
    Of a model that was taught to call, `need` is the last one: by how much it prefers to call the
    tool, as log odds.
    """
    said = set(content_stems(request.text))
    named = set(content_stems(offer.name))
    special = named - _GENERIC or named
    described = set(content_stems(first_sentence(offer.description)))
    own = find_own_words(offer)
    spoken_of = sum(bool(slot.words & said) for slot in offer.slots)
    listed = sum(_lists_what_is_said(slot, said) for slot in offer.slots)
    missing = count_misfits(request, offer)[0]
    numbers = len(request.free_atoms("number"))
    needed = sum(slot.required and _takes_numbers(slot) for slot in offer.slots)
    taken = min(numbers, sum(map(_takes_numbers, offer.slots)))
    texts = [slot for slot in offer.slots if slot.kind == "string"]
    assigned = assign_values(rank_slots(texts, request, offer.slots))
    values = [one.value for one in assigned.values() if one.value is not None]
    covered = set(own)
    for value in values:
        covered.update(content_stems(str(value.value)))
    evident = sum(math.exp(one.score) for one in assigned.values() if one.value is not None)
    evident += sum(bool(find_mentioned_values(slot, request)) for slot in offer.slots)
    sure = [
        math.exp(assigned[slot.name].score) if slot.name in assigned else 0.0
        for slot in texts
        if slot.required
    ]
    parameters = max(1, len(offer.slots))
    return (
        len(said & named) / max(1, len(named)),
        len(said & special) / max(1, len(special)),
        len(said & described) / max(1, len(described)),
        len(said & own) / 8,
        len(said & own) / max(1, len(said)),
        len(said & covered) / max(1, len(said)),
        spoken_of / parameters,
        listed / parameters,
        float(min(missing, 2)),
        min(1.0, taken / max(1, needed)),
        float(max(0, min(2, needed - numbers))),
        evident / parameters,
        sum(sure) / len(sure) if sure else 1.0,
        float(_begins_with_question(request)),
        *(() if need is None else (max(-MAX_NEED, min(MAX_NEED, need)),)),
    )


def _begins_with_question(request: Request) -> bool:
    return bool(request.atoms) and request.atoms[0].text.lower() in _QUESTION_WORDS


def _takes_numbers(slot: Slot) -> bool:
    inner = slot.item if slot.item is not None else slot
    return inner.kind in ("integer", "number")


def _lists_what_is_said(slot: Slot, said: set[str]) -> bool:
    return any(said & set(content_stems(str(choice))) for choice in slot.choices)


def is_called_for(
    request: Request, offer: ToolOffer, score: float, talk: float, need: float | None = None
) -> bool:
    """Return whether a request calls for the tool that fits it best.

    `need` is that of `describe_fit`.

    Example requests tell the classifier what the tool is asked for, so where a tool has some, its
    lead over small talk decides. Who names a path to a tool that takes one is not making small
    talk. A call that changes something has to pass `action_check` besides.
    """
    if offer.requests:
        names_path = any(atom.kind == "path" for atom in request.atoms)
        takes_path = any(slot.role == "path" for slot in offer.slots)
        needed = SIGNED_LEAD if _says_value_of(request, offer) else MIN_LEAD
        return (names_path and takes_path) or score - talk >= needed
    weights, bias = (WEIGHTS, BIAS) if need is None else (TAUGHT_WEIGHTS, TAUGHT_BIAS)
    total = bias + sum(map(mul, weights, describe_fit(request, offer, need)))
    return 1 / (1 + math.exp(-total)) >= MIN_PROBABILITY


MIN_LEAD = 0.25
"""Lead over small talk that a tool with example requests needs.

Between requests for reading tools (five of 77 below: 0.03 to 0.21) and 70 lines of small talk
(highest: 0.24), written by hand or of development halves, with SmolLM2.
"""

SIGNED_LEAD = 0.1
"""The same where the request has a value that is hardly said in small talk."""


def _says_value_of(request: Request, offer: ToolOffer) -> bool:
    """Return whether a request names a choice that a tool needs, or an identifier for its text."""
    takes_text = any(slot.kind == "string" and slot.required for slot in offer.slots)
    if takes_text and any("_" in atom.text.strip("_") for atom in request.atoms):
        return True
    needed = [slot for slot in offer.slots if slot.required and slot.kind == "enum"]
    return any(
        value.span is not None and value.span.first > 0
        for slot in needed
        for value in find_named_choices(slot, request)
    )


_JOINT = re.compile(
    r"(?:[.;\n]\s*|,?\s+)(?:and\s+)?(?:then|after that|afterwards|finally)[, ]\s*|;\s+",
    re.IGNORECASE,
)
_BULLET = re.compile(r"(?m)^\s*(?:[-*]|\d+[.)])\s+")
_QUOTATION = re.compile(r"`[^`]*`|\"[^\"]*\"|“[^”]*”|(?<!\w)'[^'\n]*'(?!\w)")
_ALL_QUOTED = re.compile(r"\s*[\"“]([^\"“”]*\s[^\"“”]*)[\"”]\s*")
_PRONOUN = re.compile(r"\b(?:it|its)\b", re.IGNORECASE)


def unquote(text: str) -> str:
    """Return a message without quotation marks around all of it: they say nothing."""
    whole = _ALL_QUOTED.fullmatch(text)
    return whole[1] if whole else text


def split_request(text: str) -> list[str]:
    """Cut a message where one request ends and the next begins, outside quotations.

    It is cut at `then`, `after that`, semicolons and the marks of a list. A part that names no path
    and says `it` gets the path of the part before.
    """
    hidden = _QUOTATION.sub(lambda match: "\x00" * len(match[0]), text)
    places = [(m.start(), m.end()) for m in _JOINT.finditer(hidden)]
    if len(_BULLET.findall(hidden)) > 1:
        places += [(m.start(), m.end()) for m in _BULLET.finditer(hidden)]
    parts: list[str] = []
    at = 0
    for start, end in sorted(places):
        if start >= at:
            parts.append(text[at:start])
            at = end
    parts.append(text[at:])
    return _name_pronouns([part.strip() for part in parts if part.strip()])


def _name_pronouns(parts: list[str]) -> list[str]:
    named = ""
    found: list[str] = []
    for part in parts:
        paths = [atom.text for atom in Request(part).atoms if atom.kind == "path"]
        found.append(_PRONOUN.sub(named, part, count=1) if named and not paths else part)
        named = paths[-1] if paths else named
    return found
