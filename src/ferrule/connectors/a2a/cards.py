"""What a peer says of itself: its card, bounded and hashed, without invisible characters.

A card has a head (name, addresses, transports, authentication) and skills. It is kept as the
protocol library read it, in the shape of the current protocol whatever older one it came in, since
its hashes and the difference after a change are made from that. Signatures are no part of it: the
same words signed again are the same words.

What a model reads is derived from it: texts without invisible characters, cut, with the peer's name
in front so that it is clear whose words they are. Everything is bounded: the bytes of the card
(`MAX_CARD`), the number of skills (`MAX_SKILLS`), the depth. A skill out of bounds is left out and
named.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ferrule.connectors.bounded_schemas import nesting_depth
from ferrule.connectors.json_values import (
    list_or_empty,
    mapping_or_empty,
    objects_in,
    text_or_empty,
)
from ferrule.connectors.text_cleaning import clean_text
from ferrule.core.calls import encode_json
from ferrule.tools.forking import cached_property

MAX_CARD = 256 * 1024
MAX_SKILLS = 64
MAX_SKILL = 32 * 1024
MAX_DEPTH = 24
MAX_DESCRIPTION = 2_000
_MAX_EXAMPLES = 3
_MAX_EXAMPLE = 200
_MAX_NAMED = 20
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
_TOOL_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,79}")
_NOT_IN_TOOL_NAME = re.compile(r"[^A-Za-z0-9_.\-]+")


@dataclass(frozen=True)
class Skill:
    """One skill as the peer described it; `raw` holds the keys that mean something."""

    raw: Mapping[str, Any]

    @property
    def id(self) -> str:
        return str(self.raw["id"])

    @cached_property
    def hash(self) -> str:
        """SHA-256 (hex) of all that the peer says of the skill."""
        return _hash(self.raw)

    @property
    def tool_name(self) -> str:
        """The skill's part of the tool name: its id, or the valid part of it and a hash."""
        if _TOOL_NAME.fullmatch(self.id):
            return self.id
        valid = _NOT_IN_TOOL_NAME.sub("_", self.id)[:60]
        digest = hashlib.sha256(self.id.encode("utf-8", "replace")).hexdigest()
        return f"{valid}_{digest[:8]}"

    @property
    def description(self) -> str:
        """The description for the model, cleaned and cut."""
        texts = (text_or_empty(self.raw.get(key)) for key in ("name", "description"))
        cleaned = (clean_text(text).strip() for text in texts)
        lines = [": ".join(text for text in cleaned if text)[:MAX_DESCRIPTION] or self.id]
        for example in list_or_empty(self.raw.get("examples"))[:_MAX_EXAMPLES]:
            lines.append(f"Example: {clean_text(text_or_empty(example))[:_MAX_EXAMPLE]}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Card:
    """What a peer said of itself at one time."""

    head: Mapping[str, Any] = field(default_factory=dict[str, Any])
    skills: tuple[Skill, ...] = ()
    left_out: tuple[str, ...] = ()
    """Sentences about skills that are not offered."""

    @cached_property
    def head_hash(self) -> str:
        return _hash(self.head)

    @property
    def name(self) -> str:
        return clean_text(text_or_empty(self.head.get("name")))[:100]

    @property
    def version(self) -> str:
        """The version that the agent says it has."""
        return clean_text(text_or_empty(self.head.get("version")))[:40]

    @property
    def supports_streaming(self) -> bool:
        return mapping_or_empty(self.head.get("capabilities")).get("streaming") is True

    @property
    def addresses(self) -> tuple[str, ...]:
        """The URLs at which the peer says that it can be asked."""
        return tuple(
            text_or_empty(interface.get("url"))
            for interface in objects_in(self.head.get("supportedInterfaces"))
        )

    def get_skill(self, skill: str) -> Skill | None:
        """Return a skill by the peer's id for it."""
        return next((known for known in self.skills if known.id == skill), None)

    def digest(self) -> str:
        """Return the digest that an approval is bound to."""
        return _hash([self.head_hash, sorted(skill.hash for skill in self.skills)])

    def to_json(self) -> dict[str, Any]:
        return {"head": dict(self.head), "skills": [dict(skill.raw) for skill in self.skills]}

    def to_text(self) -> str:
        """Return everything as text for a person, one fact a line, to be compared line by line."""
        lines = ["agent", *(f"  {line}" for line in _format_json(self.head).splitlines())]
        for skill in self.skills:
            lines += [
                f"skill {json.dumps(skill.id)}",
                *(f"  {line}" for line in _format_json(skill.raw).splitlines()),
            ]
        return "\n".join(lines) + "\n"


def card_from_json(stored: Mapping[str, Any]) -> Card:
    """Read a stored card. Raises KeyError, TypeError or ValueError if it is damaged."""
    skills = tuple(Skill(dict(raw)) for raw in stored["skills"])
    for skill in skills:
        _ = skill.raw["id"]
    return Card(dict(stored["head"]), skills)


def read_card(card: Mapping[str, Any]) -> Card:
    """Read a card in the shape of the current protocol.

    Never raises for what it says: what cannot be used is left out and named.
    """
    skills: dict[str, Skill] = {}
    left_out: list[str] = []
    for raw in objects_in(card.get("skills")):
        problem = _problem(raw, skills)
        if problem:
            left_out.append(
                f"skill `{clean_text(text_or_empty(raw.get('id')))[:60]}` is left out: {problem}"
            )
        else:
            skills[str(raw["id"])] = Skill({key: raw[key] for key in _SKILL_KEYS if raw.get(key)})
    head = {key: card[key] for key in _HEAD_KEYS if card.get(key)}
    unnamed = len(left_out) - _MAX_NAMED
    if unnamed > 0:
        left_out = [*left_out[:_MAX_NAMED], f"{unnamed} more skills are left out"]
    return Card(head, tuple(skills[name] for name in sorted(skills)), tuple(left_out))


def _problem(raw: Mapping[str, Any], known: Mapping[str, Skill]) -> str:
    skill_id = raw.get("id")
    if not isinstance(skill_id, str) or not skill_id.strip() or len(skill_id) > 200:
        return "it has no usable id"
    if skill_id in known:
        return "it is listed twice, and the first one counts"
    if len(known) == MAX_SKILLS:
        return f"there are more than {MAX_SKILLS}"
    if (
        nesting_depth(dict(raw), MAX_DEPTH + 1) > MAX_DEPTH
        or len(encode_json(dict(raw))) > MAX_SKILL
    ):
        return "its description is too large"
    return ""


def _hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _format_json(value: Any) -> str:
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=True)
