"""What a peer says of itself: its card, bounded, hashed, with nothing in it that a person would not
see.

A card has a head (name, addresses, what it speaks, how it wants to be known) and skills. It is kept
as the protocol library read it, in the shape of the current protocol whatever older one it came in,
since that is what its hashes and the difference after a change are made from. Signatures are no
part of it: the same words signed again are the same words.

What a model reads is made from it: texts without invisible characters, cut, with the peer's name in
front so that it is known whose words they are. Bounds are on everything: bytes of the card
(`MAX_CARD`), skills (`MAX_SKILLS`), depth. A skill out of bounds is left out and named.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ferrule.connectors.cleaning import clean
from ferrule.connectors.json_values import list_of, mapping_of, objects_of, text_of
from ferrule.connectors.schemas import depth_of
from ferrule.core.calls import compact

MAX_CARD = 256 * 1024
MAX_SKILLS = 64
MAX_SKILL = 32 * 1024
MAX_DEPTH = 24
DESCRIPTION = 2_000
_EXAMPLES = 3
_EXAMPLE = 200
_LEFT_OUT = 20
_SKILL_KEYS = (
    "id",
    "name",
    "description",
    "tags",
    "examples",
    "inputModes",
    "outputModes",
    "securityRequirements",
)
_HEAD_KEYS = (
    "name",
    "description",
    "supportedInterfaces",
    "provider",
    "version",
    "documentationUrl",
    "capabilities",
    "securitySchemes",
    "securityRequirements",
    "defaultInputModes",
    "defaultOutputModes",
)
_FITS = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,79}")
_UNFIT = re.compile(r"[^A-Za-z0-9_.\-]+")


@dataclass(frozen=True)
class Skill:
    """One skill, as the peer described it (`raw`: the keys that mean something, nothing else)."""

    raw: Mapping[str, Any]

    @property
    def id(self) -> str:
        return str(self.raw["id"])

    @cached_property
    def hash(self) -> str:
        """SHA-256 (hex) over all that the peer says of the skill."""
        return _hash(self.raw)

    @property
    def tool_name(self) -> str:
        """The part of the tool's name that stands for it: the id, or what fits of it with a hash of
        all of it.
        """
        if _FITS.fullmatch(self.id):
            return self.id
        return f"{_UNFIT.sub('_', self.id)[:60]}_{hashlib.sha256(self.id.encode('utf-8', 'replace')).hexdigest()[:8]}"

    @property
    def description(self) -> str:
        """For the model: cleaned and cut."""
        name, said = (
            clean(text_of(self.raw.get("name"))),
            clean(text_of(self.raw.get("description"))),
        )
        lines = [
            ": ".join(one.strip() for one in (name, said) if one.strip())[:DESCRIPTION] or self.id
        ]
        for example in list_of(self.raw.get("examples"))[:_EXAMPLES]:
            lines.append(f"Example: {clean(text_of(example))[:_EXAMPLE]}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Card:
    """What a peer said at one time."""

    head: Mapping[str, Any] = field(default_factory=dict[str, Any])
    skills: tuple[Skill, ...] = ()
    left_out: tuple[str, ...] = field(default=(), compare=False)
    """Sentences about skills that are not offered."""

    @cached_property
    def head_hash(self) -> str:
        return _hash(self.head)

    @property
    def name(self) -> str:
        return clean(text_of(self.head.get("name")))[:100]

    @property
    def version(self) -> str:
        """Of the agent, as it says."""
        return clean(text_of(self.head.get("version")))[:40]

    @property
    def streams(self) -> bool:
        return mapping_of(self.head.get("capabilities")).get("streaming") is True

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where it says that it can be asked."""
        return tuple(
            text_of(one.get("url")) for one in objects_of(self.head.get("supportedInterfaces"))
        )

    def get(self, skill: str) -> Skill | None:
        """A skill by the peer's id for it."""
        return next((one for one in self.skills if one.id == skill), None)

    def digest(self) -> str:
        """What an approval is bound to."""
        return _hash([self.head_hash, sorted(one.hash for one in self.skills)])

    def as_json(self) -> dict[str, Any]:
        return {"head": dict(self.head), "skills": [dict(one.raw) for one in self.skills]}

    def text(self) -> str:
        """All of it for a person, one fact a line, so that two of them can be compared line by
        line.
        """
        lines = ["agent", *(f"  {line}" for line in _indented(self.head).splitlines())]
        for one in self.skills:
            lines += [
                f"skill {json.dumps(one.id)}",
                *(f"  {line}" for line in _indented(one.raw).splitlines()),
            ]
        return "\n".join(lines) + "\n"


def from_json(given: Mapping[str, Any]) -> Card:
    """A card that was kept. Raises KeyError, TypeError or ValueError where it is damaged."""
    skills = tuple(Skill(dict(one)) for one in given["skills"])
    for one in skills:
        _ = one.id
    return Card(dict(given["head"]), skills)


def read_card(said: Mapping[str, Any]) -> Card:
    """From a card in the shape of the current protocol. Never raises for what it says: what cannot
    be used is left out and named.
    """
    kept: dict[str, Skill] = {}
    left_out: list[str] = []
    for raw in objects_of(said.get("skills")):
        problem = _problem(raw, kept)
        if problem:
            left_out.append(f"skill `{clean(text_of(raw.get('id')))[:60]}` is left out: {problem}")
        else:
            kept[str(raw["id"])] = Skill({key: raw[key] for key in _SKILL_KEYS if raw.get(key)})
    head = {key: said[key] for key in _HEAD_KEYS if said.get(key)}
    more = len(left_out) - _LEFT_OUT
    told = (*left_out[:_LEFT_OUT], *((f"{more} more skills are left out",) if more > 0 else ()))
    return Card(head, tuple(kept[name] for name in sorted(kept)), told)


def _problem(raw: Mapping[str, Any], kept: Mapping[str, Skill]) -> str:
    name = raw.get("id")
    if not isinstance(name, str) or not name.strip() or len(name) > 200:
        return "it has no id that can be used"
    if name in kept:
        return "it is listed twice, and the first one counts"
    if len(kept) == MAX_SKILLS:
        return f"there are more than {MAX_SKILLS}"
    if depth_of(dict(raw), MAX_DEPTH + 1) > MAX_DEPTH or len(compact(dict(raw))) > MAX_SKILL:
        return "what it says of it is too much"
    return ""


def _hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _indented(value: Any) -> str:
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=True)
