"""Whether a request asks for a change, so that a tool that changes something may be called.

A small model cannot be trusted with this question, so it is not asked. The rule is the same for
every tool; its words are data (`actions.yaml`).

    order      the request gives an order (`Delete a.txt`, `could you please move ...`) whose verb
               is of the kind of the tool, as far as its name tells a kind; else it is a word of
               the tool's own name or description. Questions, conditions, denials and reported
               speech give no orders
    object     a tool that takes nothing but paths gets the path right after the verb: in `delete
               the last line of a.txt` the file is not what is to be deleted
    values     every value stands in the request, a text as a quotation or as something that is no
               common word, and no path or quotation of the request is left over

What does not pass is never called. If the request does give such an order, the person is asked for
what is missing; if not, the tool is as good as not there.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any, cast

from ferrule.core.value_class import frozen
from ferrule.models.client import ToolSpec
from ferrule.tools.word_stems import content_stems, first_sentence, stem

from .request import Request
from .slots import PATH_WORDS, Slot
from .spans import Atom, Span

_SENTENCE_END = re.compile(r"[.!?;\n]")
_CLAUSE_END = re.compile(r"[,:]")
_PLACING = frozenset(["in", "inside", "within", "to", "into", "from", "at", "on", "before"])
_MOST_PLACING_ATOMS = 6
_JOINS = frozenset(["and", "then", "but"])
_BEFORE_PATHS = frozenset(["called", "named", "to", "into", "as"])
_LONGEST_PHRASE = 4
_MOST_SHELL_WORDS = 4
_MOST_OPENING_ATOMS = 3


@frozen
class ActionKind:
    """A kind of change: what names it, what asks for it, and what speaks against it."""

    named: frozenset[str]
    verbs: tuple[tuple[str, ...], ...]
    never_with: frozenset[str]
    unless_with: tuple[tuple[str, ...], ...]
    objects: frozenset[str]


@frozen
class Order:
    """An order in a request: its verb, and the atoms from behind the verb to the sentence's end."""

    verb: tuple[str, ...]
    first: int
    last: int


@frozen
class _Words:
    kinds: Mapping[str, ActionKind]
    openers: tuple[tuple[str, ...], ...]
    polite: tuple[tuple[str, ...], ...]
    blockers: frozenset[str]
    not_before: frozenset[str]
    path_words: frozenset[str]
    pronouns: frozenset[str]
    keeping: frozenset[str]
    asking: tuple[tuple[str, ...], ...]
    shell_words: Mapping[str, str]


@cache
def load_words() -> _Words:
    """Return the words of `actions.yaml`, read once."""
    import yaml

    text = resources.files("ferrule_local.small_models").joinpath("actions.yaml").read_text()
    data = cast("dict[str, Any]", yaml.safe_load(text))
    kinds = {name: _read_kind(part) for name, part in data["kinds"].items()}
    return _Words(
        kinds,
        _phrases(data["openers"]),
        _phrases(data["polite"]),
        frozenset(data["blockers"]),
        frozenset(data["not_before"]),
        frozenset(data["path_words"]),
        frozenset(data["pronouns"]),
        frozenset(data["keeping"]),
        _phrases(data["asking"]),
        data["shell_words"],
    )


def _read_kind(part: Mapping[str, Sequence[str]]) -> ActionKind:
    return ActionKind(
        frozenset(part["named"]),
        _phrases(part["verbs"]),
        frozenset(part.get("never_with", ())),
        _phrases(part.get("unless_with", ())),
        frozenset(part.get("objects", ())),
    )


def _phrases(texts: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Return phrases as tuples of words, the longest first."""
    return tuple(sorted((tuple(text.split()) for text in texts), key=len, reverse=True))


def find_synonyms(verb: str) -> frozenset[str]:
    """Return the verbs of one word that ask for the kind of action that a verb names."""
    kinds = [kind for kind in load_words().kinds.values() if verb.lower() in kind.named]
    return frozenset(verb[0] for kind in kinds for verb in kind.verbs if len(verb) == 1)


def spell_out(text: str) -> str:
    """Return a request with the word of a shell that it begins with in plain English.

    Options are left to commands: `ls -la` stays as it is.
    """
    first, _, rest = text.strip().partition(" ")
    plain = load_words().shell_words.get(first)
    if plain is None or "-" in rest[:1] or len(rest.split()) > _MOST_SHELL_WORDS:
        return text
    return f"{plain} {rest or '.'}".strip()


def may_change(spec: ToolSpec) -> bool:
    """Return whether calls of a tool may change something.

    A tool that declares nothing is taken to change something if its name says so (`delete_user`).
    """
    if spec.side_effect:
        return spec.side_effect not in ("none", "read")
    return bool(_kinds_of(spec))


def is_only_asked_about(spec: ToolSpec, request: Request) -> bool:
    """Return whether a tool keeps something in the session, by its name, and is not told to.

    `add_task` changes nothing outside the session, so no order of its kind is needed; but whoever
    asks a question, or forbids something, has nothing kept.
    """
    first = re.split(r"[^a-z]+|(?<=[a-z])(?=[A-Z])", spec.api_name.lstrip("_"))[0]
    return first in load_words().keeping and all(
        _asks_or_forbids(request, *sentence) for sentence in _sentences(request)
    )


def _asks_or_forbids(request: Request, first: int, last: int, end: str) -> bool:
    words = load_words()
    if _match(request, first, last, words.polite):
        return False
    return end == "?" or bool(_match(request, first, last, words.asking))


def _kinds_of(spec: ToolSpec) -> list[ActionKind]:
    words = re.split(r"[^a-z]+|(?<=[a-z])(?=[A-Z])", spec.api_name)
    named = {word.lower() for word in words}
    kinds = load_words().kinds
    if named & kinds["folder"].named:
        # `create_dir` and `delete_dir`: what is done to the folder says more than the folder.
        others = [k for name, k in kinds.items() if name != "folder" and named & k.named]
        return others or [kinds["folder"]]
    return [kind for kind in kinds.values() if named & kind.named]


def find_orders(request: Request) -> list[Order]:
    """Return the orders that a request gives, in its order."""
    orders: list[Order] = []
    for first, last, end in _sentences(request):
        orders += _orders_of_sentence(request, first, last, end)
    return orders


def _sentences(request: Request) -> list[tuple[int, int, str]]:
    """Return the sentences as first and last atom, and the character that ends each."""
    found: list[tuple[int, int, str]] = []
    first = 0
    for index, atom in enumerate(request.atoms):
        is_last = index + 1 == len(request.atoms)
        until = len(request.text) if is_last else request.atoms[index + 1].start
        ends = _SENTENCE_END.findall(request.text[atom.end : until])
        if ends or is_last:
            found.append((first, index, ends[0] if ends else ""))
            first = index + 1
    return found


def _orders_of_sentence(request: Request, first: int, last: int, end: str) -> list[Order]:
    words = load_words()
    if end == "?" and not _match(request, first, last, words.polite):
        return []
    orders: list[Order] = []
    for start in _clause_starts(request, first, last):
        order = _order_at(request, start, last)
        if order is not None:
            orders.append(order)
    return orders


def _clause_starts(request: Request, first: int, last: int) -> list[int]:
    """Return where clauses begin, up to the first word after which there are no orders."""
    words = load_words()
    opener = _match(request, first, last, words.openers)
    starts = [first]
    if _word(request.atoms[first]) in _PLACING:  # `In a.txt replace ...`
        reach = range(first + 1, min(first + _MOST_PLACING_ATOMS, last))
        starts += [at + 1 for at in reach if request.atoms[at].kind == "path"][:1]
    for index in range(first + len(opener), last + 1):
        atom = request.atoms[index]
        word = _word(atom)
        if word in words.blockers:
            break
        gap = request.text[request.atoms[index - 1].end : atom.start] if index > first else ""
        if word in _JOINS:
            starts.append(index + 1)
        elif _CLAUSE_END.search(gap) or word in ("should", "i"):
            starts.append(index)
    return [start for start in starts if start <= last] + _wishes(request, first, last)


def _wishes(request: Request, first: int, last: int) -> list[int]:
    """Return where a sentence says how things should be: `line 3 should read ...`."""
    if any(_word(request.atoms[i]) in _QUESTION_WORDS for i in range(first, last + 1)):
        return []
    return [i for i in range(first + 1, last + 1) if _word(request.atoms[i]) == "should"]


_QUESTION_WORDS = frozenset(["why", "what", "how", "who", "if", "when", "whether", "not"])


def _order_at(request: Request, start: int, last: int) -> Order | None:
    """Return the order that begins at an atom, behind its openers; None if none does."""
    words = load_words()
    at = start
    while opener := _match(request, at, last, words.openers):
        at += len(opener)
    if at > last or request.atoms[at].kind != "word":
        return None
    phrases = [phrase for kind in words.kinds.values() for phrase in kind.verbs]
    verb = max((p for p in phrases if _match(request, at, last, (p,))), key=len, default=())
    verb = verb or (_word(request.atoms[at]),)
    behind = at + len(verb)
    if behind <= last and _word(request.atoms[behind]) in words.not_before:
        return None
    return Order(verb, behind, last)


def _match(
    request: Request, at: int, last: int, phrases: Sequence[tuple[str, ...]]
) -> tuple[str, ...]:
    """Return the first of the phrases that stands at an atom, or an empty one."""
    seen = tuple(_word(atom) for atom in request.atoms[at : min(last + 1, at + _LONGEST_PHRASE)])
    return next((phrase for phrase in phrases if seen[: len(phrase)] == phrase), ())


def _word(atom: Atom) -> str:
    return atom.text.lower().replace("’", "'") if atom.kind == "word" else ""


def find_order_for(spec: ToolSpec, request: Request) -> Order | None:
    """Return the order of a request that is of the kind of a tool; None if there is none."""
    kinds = _kinds_of(spec)
    for order in find_orders(request):
        if kinds:
            if any(_asks_for(kind, order, request) for kind in kinds):
                return order
        elif stem(order.verb[0]) in _own_verbs(spec):
            return order
    return None


def find_opening_order(spec: ToolSpec, request: Request) -> Order | None:
    """Return the order that a request begins with, if a tool is of its kind by its name."""
    kinds = _kinds_of(spec)
    if not kinds or not may_change(spec):
        return None
    order = next(iter(find_orders(request)), None)
    if order is None or order.first - len(order.verb) > _MOST_OPENING_ATOMS:
        return None
    return order if any(_asks_for(kind, order, request) for kind in kinds) else None


def _asks_for(kind: ActionKind, order: Order, request: Request) -> bool:
    if order.verb not in kind.verbs:
        return False
    said = {_word(atom) for atom in request.atoms[order.first : order.last + 1]}
    is_excepted = any(
        _match(request, at, order.last, kind.unless_with)
        for at in range(order.first, order.last + 1)
    )
    if said & kind.never_with and not is_excepted:
        return False
    return not kind.objects or order.verb == ("mkdir",) or bool(said & kind.objects)


def _own_verbs(spec: ToolSpec) -> set[str]:
    words = set(content_stems(spec.api_name.replace("_", " ")))
    return words | set(content_stems(first_sentence(spec.description))[:1])


def find_commands(request: Request) -> list[Span]:
    """Return what the request orders to be run, from behind the verb to the end of the order."""
    verbs = load_words().kinds["run"].verbs
    found: list[Span] = []
    for order in find_orders(request):
        if order.verb not in verbs or order.first > order.last:
            continue
        first, last = request.atoms[order.first], request.atoms[order.last]
        text = request.text[first.start : last.end]
        found.append(Span(text, order.first, order.last, "run"))
    return found


def find_problem(
    spec: ToolSpec, slots: Sequence[Slot], arguments: Mapping[str, Any], request: Request
) -> str:
    """Return what keeps a call that changes something from being made, "" if nothing does."""
    order = find_order_for(spec, request)
    if order is None:
        return "no such action was asked for"
    missing = [
        slot.name for slot in slots if slot.required and arguments.get(slot.name) in (None, "")
    ]
    if missing:
        return f"the request does not say its `{missing[0]}`"
    has_path = any(slot.role == "path" for slot in slots)
    for slot in slots:
        value = arguments.get(slot.name)
        if isinstance(value, str) and not _is_said(slot, value, order, request, spec, has_path):
            return f"the request does not say its `{slot.name}` clearly: put it in quotation marks"
        if not _is_number_said(slot, value, request):
            return f"the request does not say its `{slot.name}`"
    texts = [value for value in arguments.values() if isinstance(value, str)]
    if len(set(texts)) < len(texts):
        return "the request does not say all of its values"
    left = _left_over(arguments, request)
    if has_path and left:
        return f"there is no place in it for `{left}`"
    takes_paths_only = all(slot.role == "path" for slot in slots if slot.required)
    if has_path and takes_paths_only and not _is_object(order, arguments, request):
        return "the request speaks of a part of it, or of something else"
    return ""


def speaks_of_files(request: Request) -> bool:
    """Return whether a request names a path or a quotation, or speaks of files.

    Only such a request is asked back about: `Write a haiku` wants words.
    """
    kinds = {atom.kind for atom in request.atoms}
    return bool(kinds & {"path", "quoted"}) or not PATH_WORDS.isdisjoint(request.stems)


def _is_said(
    slot: Slot, value: str, order: Order, request: Request, spec: ToolSpec, has_path: bool
) -> bool:
    """Return whether a value stands in the request, as such a value does."""
    if slot.kind == "enum":
        return True
    if value.casefold() not in request.text.casefold():
        return False
    if spec.side_effect == "execute" and slot.role != "path":
        return _is_command(value, order, request)
    if slot.role == "path":
        return _is_path_said(value, order, request)
    if not has_path:
        return True
    literal = re.escape(value)
    return any(value == a.text and a.kind != "word" for a in request.atoms) or bool(
        re.search(rf":\s*{literal}\s*$|\bthe (?:text|words?) {literal}(?!\S)", request.text)
    )


def _is_number_said(slot: Slot, value: Any, request: Request) -> bool:
    """Return whether a number stands in the request: none is made up for a change."""
    if isinstance(value, bool) or not isinstance(value, int | float) or slot.kind == "enum":
        return True
    return request.says_number(value)


def _is_path_said(value: str, order: Order, request: Request) -> bool:
    """Return whether a path is written as one, or a bare word is called a path.

    It is called one by the word beside it (`the folder notes`, `called notes`, `to archive`), or by
    standing right behind the verb (`delete Makefile`), where no path stands elsewhere. Whoever is
    to put `yourself` in somebody's place moves no file.
    """
    is_alone = not any(atom.kind == "path" for atom in request.atoms)
    for index, atom in enumerate(request.atoms):
        if atom.text != value:
            continue
        before = _word(request.atoms[index - 1]) if index else ""
        after = _word(request.atoms[index + 1]) if index + 1 < len(request.atoms) else ""
        is_beside = before in _BEFORE_PATHS or {stem(before), stem(after)} & PATH_WORDS
        is_object = is_alone and index == order.first
        if atom.kind != "word" or is_beside or is_object:
            return True
    return False


def _is_command(value: str, order: Order, request: Request) -> bool:
    """Return whether a command was quoted, or follows the verb to the end of the order."""
    if any(value == atom.text and atom.kind == "quoted" for atom in request.atoms):
        return True
    if order.first > order.last:
        return False
    start = request.atoms[order.first]
    if len(content_stems(start.text)) == 0 and start.kind == "word":
        return False
    return value == request.text[start.start : request.atoms[order.last].end]


def _left_over(arguments: Mapping[str, Any], request: Request) -> str:
    """Return a path or quotation of the request that is in no argument, or ""."""
    given = "\n".join(str(value) for value in arguments.values())
    marked = (a.text for a in request.atoms if a.kind in ("quoted", "path", "url"))
    return next((text for text in marked if text.rstrip("/") not in given), "")


def _is_object(order: Order, arguments: Mapping[str, Any], request: Request) -> bool:
    """Return whether a path, or what stands for one, follows the verb."""
    words = load_words()
    paths = {str(value).strip("./").casefold() for value in arguments.values()}
    for atom in request.atoms[order.first : order.last + 1]:
        if atom.text.strip("./").casefold() in paths:
            return True
        word = _word(atom)
        if word in words.pronouns and word not in ("this", "that"):
            return True
        if word not in words.path_words:
            return False
    return False
