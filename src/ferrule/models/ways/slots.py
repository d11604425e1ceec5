"""Parameters as slots: which pieces of a request may fill one, and whether an optional one was spoken of.

Pure, and the same for every tool: all that is known of a parameter is its schema, its name and its
description. What stays open (several pieces would do) is left to the model.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, cast

from ferrule.core.frozen import frozen
from ferrule.tools.words import FUNCTION_WORDS, content, first_sentence, stem, stems

from .spans import Atom, Span, atoms, number, spans

_PATHS = frozenset(stem(w) for w in ["path", "file", "folder", "directory", "dir", "filename", "filepath"])
_TEXTS = frozenset(
    stem(w)
    for w in [
        "text",
        "content",
        "message",
        "body",
        "string",
        "line",
        "lines",
        "note",
        "comment",
        "title",
        "code",
        "command",
        "query",
        "sentence",
    ]
)
_HEAD_ENDS = re.compile(r"\b(?:of|to|in|for|with|at|that|which|whose|where|from|such|when)\b|[,.:;(]")
_EXAMPLES = re.compile(r"(?<!^)(?<![.!?] )\b[A-Z][a-z]{2,}\b|(?<=['`\"])\w+(?=['`\"])")
_PLACES = frozenset(["in", "under", "below", "inside", "within", "from", "into"])
_JOINTS = frozenset(
    [
        "and",
        "or",
        "then",
        "with",
        "from",
        "by",
        "for",
        "in",
        "on",
        "at",
        "to",
        "into",
        "of",
        "using",
        "via",
        "as",
        "where",
        "that",
        "which",
        "who",
        "while",
        "if",
    ]
)
_SWITCHES = frozenset(
    stem(w)
    for w in [
        "include",
        "show",
        "use",
        "is",
        "with",
        "has",
        "want",
        "get",
        "allow",
        "enable",
        "do",
        "add",
        "return",
    ]
)
_NEGATIONS = frozenset(["no", "not", "without", "don't", "never", "except"])
_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}


@frozen
class Slot:
    """A parameter. `kind` is string, integer, number, boolean, enum, array, object; `role` is path, text or ""."""

    name: str
    kind: str
    required: bool
    about: str
    role: str = ""
    choices: tuple[Any, ...] = ()
    default: Any = None
    schema: Mapping[str, Any] = field(default_factory=dict[str, Any])
    item: Slot | None = None
    words: frozenset[str] = frozenset()


@frozen
class Value:
    """A possible value and, where it was copied, the piece of the request it was copied from."""

    value: Any
    span: Span | None = None


def read_slots(schema: Mapping[str, Any]) -> list[Slot]:
    """The parameters of a tool's schema, in its order."""
    properties = cast(Mapping[str, Mapping[str, Any]], schema.get("properties") or {})
    required = frozenset(cast(Sequence[str], schema.get("required") or ()))
    return [read_slot(name, part, name in required) for name, part in properties.items()]


def read_slot(name: str, schema: Mapping[str, Any], required: bool) -> Slot:
    part = _plainest(schema)
    about = str(schema.get("description") or part.get("description") or "")
    kind = _kind(part)
    choices = tuple(part.get("enum") or (() if "const" not in part else (part["const"],)))
    item = None
    if kind == "array":
        item = read_slot(name, cast(Mapping[str, Any], part.get("items") or {"type": "string"}), required)
    words = frozenset(content(name)) | frozenset(content(first_sentence(about)))
    role = _role(name, about) if kind == "string" else ""
    default = schema.get("default", part.get("default"))
    return Slot(name, kind, required, about, role, choices, default, part, item, words)


def _plainest(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The first alternative that is not null: what a small model can manage."""
    for key in ("anyOf", "oneOf"):
        for part in cast(Sequence[Mapping[str, Any]], schema.get(key) or ()):
            if part.get("type") != "null":
                return _plainest(part)
    return schema


def _kind(part: Mapping[str, Any]) -> str:
    if "enum" in part or "const" in part:
        return "enum"
    kind = part.get("type", "string")
    if isinstance(kind, list):
        named = [str(k) for k in cast(list[object], kind) if k != "null"]
        kind = named[0] if named else "string"
    # Spellings of other dialects, as met in catalogs that were not made for JSON Schema.
    known = {
        "float": "number",
        "double": "number",
        "dict": "object",
        "tuple": "array",
        "list": "array",
        "any": "string",
    }
    return known.get(str(kind), str(kind))


def _role(name: str, about: str) -> str:
    named, head = set(stems(name)), set(stems(_HEAD_ENDS.split(about, maxsplit=1)[0]))
    if named & _PATHS or (head & _PATHS and not named & _TEXTS):
        return "path"
    return "text" if (named | head) & _TEXTS else ""


class Request:
    """A person's words, cut up once, with the pieces that are taken."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.atoms = atoms(text)
        self.spans = spans(text, self.atoms)
        self.stems = [stem(a.text) if a.kind == "word" else "" for a in self.atoms]
        self.taken: list[Span] = []

    def take(self, span: Span | None) -> None:
        if span is not None:
            self.taken.append(span)

    def free(self) -> list[Span]:
        return [s for s in self.spans if not any(s.overlaps(t) for t in self.taken)]

    def single(self, *kinds: str) -> list[Span]:
        return [s for s in self.free() if s.first == s.last and s.kind in kinds]

    def near(self, span: Span, words: frozenset[str], reach: int = 4) -> int:
        """How many atoms lie between a piece and the nearest of these words; `reach + 1` if none is that near."""
        best = reach + 1
        for index, word in enumerate(self.stems):
            if word in words and not span.first <= index <= span.last:
                gap = span.first - index if index < span.first else index - span.last
                best = min(best, gap)
        return best

    def before(self, span: Span) -> str:
        return self.atoms[span.first - 1].text.lower() if span.first else ""

    def after(self, span: Span) -> str:
        return self.atoms[span.last + 1].text.lower() if span.last + 1 < len(self.atoms) else ""


def values(slot: Slot, request: Request, others: Sequence[Slot] = ()) -> list[Value]:
    """What the request offers for a slot, in its order; empty if it offers nothing. `others` are still unfilled."""
    if slot.kind == "enum":
        return _enum(slot, request)
    if slot.kind == "boolean":
        return [Value(True), Value(False)]
    if slot.kind in ("integer", "number"):
        return _numbers(slot, request)
    if slot.kind == "string":
        found = _paths(slot, request) if slot.role == "path" else _texts(slot, request, others)
        return [Value(span.text, span) for span in found]
    return []


def _enum(slot: Slot, request: Request) -> list[Value]:
    """The choices that the request names, else all. The verb it begins with is the weakest naming."""
    text = " ".join(request.stems)
    named = [c for c in slot.choices if f" {' '.join(stems(str(c)))} " in f" {text} "]
    if len(named) > 1 and request.stems:
        later = [c for c in named if stems(str(c)) != request.stems[:1]]
        named = later or named
    return [Value(choice) for choice in (named or slot.choices)]


def _numbers(slot: Slot, request: Request) -> list[Value]:
    found: list[Value] = []
    pieces = request.single("number", "word")
    digits = [s for s in pieces if s.text[-1:].isdigit() or any(c.isdigit() for c in s.text)]
    for span in digits if any(number(s.text) is not None for s in digits) else pieces:
        value = number(span.text)
        if value is None:
            continue
        value = value * _SCALES.get(request.after(span), 1)
        if slot.kind == "number" and (span.text.endswith("%") or request.after(span) in ("percent", "%")):
            value = value / 100
        if slot.kind == "integer" and value != int(value):
            continue
        value = int(value) if slot.kind == "integer" else value
        low, high = slot.schema.get("minimum"), slot.schema.get("maximum")
        if (low is None or value >= low) and (high is None or value <= high):
            found.append(Value(value, span))
    return found


def _paths(slot: Slot, request: Request) -> list[Span]:
    """Paths if there are any; else single words, those first that stand beside a word for files and folders."""
    if found := request.single("path", "url"):
        return list({span.text: span for span in reversed(found)}.values())[::-1]
    singles = [s for s in request.single("word", "quoted", "number") if " " not in s.text]
    singles = [s for s in singles if s.kind == "quoted" or stem(s.text) not in slot.words | _PATHS]
    beside = [s for s in singles if request.near(s, _PATHS, 2) <= 2 and s.first > 0]
    return beside or [s for s in singles if s.first > 0] or singles


def _texts(slot: Slot, request: Request, others: Sequence[Slot]) -> list[Span]:
    if quoted := request.single("quoted"):
        return quoted
    free = request.free()
    if any(o.role == "path" for o in others) and len(request.single("path")) <= sum(
        o.role == "path" for o in others
    ):
        free = [s for s in free if s.kind != "path" and not _holds(request, s, "path")]
    free = [
        s for s in free if s.first > 0 or _entity(request.atoms[0]) or s.last == len(request.atoms) - 1
    ] or free
    trimmed = [s for s in free if not _edged(slot, request, s)] or free
    if slot.role != "text":
        trimmed = [s for s in trimmed if not _joined(request, s)] or trimmed
    return trimmed


def _holds(request: Request, span: Span, kind: str) -> bool:
    return any(a.kind == kind for a in request.atoms[span.first : span.last + 1])


def _entity(atom: Atom) -> bool:
    return atom.kind != "word" or bool(re.search(r"[\d_]|(?<=.)[A-Z]", atom.text))


def _edged(slot: Slot, request: Request, span: Span) -> bool:
    """Whether it begins or ends with the parameter's own word: `the user table` names the table `user`."""
    if span.first == span.last:
        return span.kind == "word" and stem(span.text) in slot.words and span.text.islower()
    ends = (request.atoms[span.first], request.atoms[span.last])
    return any(a.text.islower() and stem(a.text) in slot.words for a in ends)


def _joined(request: Request, span: Span) -> bool:
    """Whether a joint (`in`, `and`, a comma) stands inside, other than between capitals: `Bank of America`."""
    inside = request.atoms[span.first : span.last + 1]
    for index in range(1, len(inside)):
        gap = request.text[inside[index - 1].end : inside[index].start]
        atom = inside[index]
        if "," in gap and not (inside[index - 1].text[:1].isupper() and atom.text[:1].isupper()):
            return True
        if atom.text in _JOINTS and atom.text != "of":
            return True
        if atom.text == "of" and index + 1 < len(inside):
            rest = next((a for a in inside[index + 1 :] if a.text.lower() not in FUNCTION_WORDS), atom)
            if not (inside[index - 1].text[:1].isupper() and rest.text[:1].isupper()):
                return True
    return False


def assign(slots: Sequence[Slot], request: Request) -> dict[str, Value]:
    """Numbers for several numeric slots at once: by the words they stand near, then in the order of both.

    Only what is settled: with more numbers than slots and no word near, a slot is left out.
    """
    offered = {slot.name: [v for v in _numbers(slot, request) if v.span] for slot in slots}
    pieces = {v.span.first for found in offered.values() for v in found if v.span}
    if len(slots) < 2 or len(slots) > 5 or not pieces or len(pieces) > 8:
        return {}
    own = {s.name: s.words - frozenset(w for o in slots if o is not s for w in o.words) for s in slots}
    best: tuple[float, tuple[Value | None, ...]] = (math.inf, ())
    for chosen in itertools.product(*([*offered[s.name], None] for s in slots)):
        spans = [v.span.first for v in chosen if v and v.span]
        if len(set(spans)) < len(spans):
            continue
        cost = 0.4 * sum(a > b for a, b in itertools.combinations(spans, 2))
        for slot, value in zip(slots, chosen, strict=True):
            cost += (
                9.0 if value is None or value.span is None else request.near(value.span, own[slot.name], 4)
            )
        if cost < best[0]:
            best = (cost, chosen)
    enough = len(pieces) <= len(slots)
    found: dict[str, Value] = {}
    for slot, value in zip(slots, best[1], strict=True):
        if value and value.span and (enough or request.near(value.span, own[slot.name], 3) <= 3):
            found[slot.name] = value
    return found


def lists(slot: Slot, request: Request) -> list[tuple[list[Any], list[Span]]]:
    """Runs of pieces that stand together as a list (`1, 2 and 3`), longest first; for an array slot."""
    item = slot.item
    if item is None:
        return []
    if item.kind in ("integer", "number"):
        pieces = _numbers(item, request)
    elif quoted := request.single("quoted"):
        pieces = [Value(s.text, s) for s in quoted]
    else:
        return []
    runs: list[list[Value]] = []
    for piece in pieces:
        if runs and _adjoins(request, runs[-1][-1].span, piece.span):
            runs[-1].append(piece)
        else:
            runs.append([piece])
    return [([v.value for v in run], [v.span for v in run if v.span]) for run in runs]


def _adjoins(request: Request, left: Span | None, right: Span | None) -> bool:
    if left is None or right is None:
        return False
    between = request.text[request.atoms[left.last].end : request.atoms[right.first].start]
    return re.fullmatch(r"[\s,;&'\"]*(?:and|or)?[\s'\"]*", between) is not None


def spoken_of(slot: Slot, request: Request) -> list[Value]:
    """Values of an optional slot that the request gives evidence for; empty: leave the slot out."""
    if slot.kind == "enum":
        named = _enum(slot, request)
        return named if len(named) < len(slot.choices) else []
    if slot.kind == "boolean":
        return [Value(not slot.default)] if _told(slot, request) else []
    if slot.kind in ("integer", "number"):
        digits = [v for v in _numbers(slot, request) if v.span and any(map(str.isdigit, v.span.text))]
        return [v for v in digits if v.span and request.near(v.span, slot.words, 3) <= 3]
    if slot.kind == "string":
        return [Value(s.text, s) for s in _spoken_strings(slot, request)]
    if slot.kind == "array" and slot.item and slot.item.kind == "string":
        found = request.single("path", "quoted", "url")
        return [Value([s.text for s in found], _around(found))] if found else []
    return []


def _around(pieces: Sequence[Span]) -> Span:
    return Span("", pieces[0].first, pieces[-1].last, "run")


def _told(slot: Slot, request: Request) -> bool:
    """A switch is told of when the request has a content word of its name that is not a mere verb of showing."""
    named = [w for w in stems(slot.name) if w not in _SWITCHES]
    if not named or not all(w in request.stems for w in named):
        return False
    at = min(request.stems.index(w) for w in named)
    return not any(a.text.lower() in _NEGATIONS for a in request.atoms[max(0, at - 3) : at])


def _spoken_strings(slot: Slot, request: Request) -> list[Span]:
    if slot.role == "path":
        if found := request.single("path"):
            return found
        return [s for s in request.single("word", "quoted") if _placed(slot, request, s)]
    told = {w.lower() for w in _EXAMPLES.findall(slot.about)}
    if listed := [s for s in request.single("word") if s.text.lower() in told]:
        return listed[:1]
    named = frozenset(content(slot.name))
    near = [s for s in _texts(slot, request, ()) if request.near(s, named, 2) <= 2 and s.first > 0]
    return [s for s in near if s.kind == "quoted" or _proper(request.atoms[s.first : s.last + 1])]


def _proper(pieces: Sequence[Atom]) -> bool:
    return all(_entity(a) or a.text[:1].isupper() for a in pieces)


def _placed(slot: Slot, request: Request, span: Span) -> bool:
    """`in src`, `the lib directory`: a bare word that can only be a place."""
    if " " in span.text or stem(span.text) in slot.words | _PATHS:
        return False
    beside = stem(request.after(span)) in _PATHS
    return beside or (
        request.before(span) in _PLACES and (span.last == len(request.atoms) - 1 or not request.after(span))
    )
