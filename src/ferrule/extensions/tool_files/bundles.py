"""Bundles: several artifacts in one file, what they require, and the turns in which they take part.

    ---
    name: releases                            # kebab-case; a plugin must have one, and a description
    description: What a release needs.
    requires: [version-control]               # other bundles by name; also spelled `depends_on`
    when: 'regex(text, "(?i)release")'        # also spelled `condition`; in the language of hooks (`hooks.when`)
    tools: [...]
    hooks: [...]
    ---

`when` is decided for every turn, on the message of the person as hooks left it: its names are those
of `turn.start` (`text`, `event`, `payload`). Where it does not hold, or that of a bundle it
requires does not, the bundle's hooks are not asked and its tools refuse. They stay in the catalog,
since what a model is shown does not change within a session. Where it cannot be decided, tools
refuse and hooks count as broken. Between the turns, the last message counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ConfigError, ToolFailed
from ferrule.core.identity import Identity
from ferrule.engine.hooks.events import EventHook, Occasion, TurnStart
from ferrule.extensions.front_matter import (
    Document,
    Warned,
    begins,
    field,
    parse_document,
    text_of,
    texts_of,
    unknown_keys,
)
from ferrule.extensions.hooks.conditions import When, WhenError, decide, parse_when
from ferrule.storage.settings.yaml_tree import Node, parse_yaml

ROOTS = (".ferrule", ".harness")
INLINE = (
    ".ferrule/ferrule.yaml",
    ".harness/ferrule.yaml",
    ".harness/harness.md",
    ".ferrule/harness.md",
    "ferrule.yaml",
    "harness.md",
)
"""Main files: they may list `tools` and `hooks` of their own."""
FOLDERS = {"overrides": "override", "builtins": "builtin", "plugins": "plugin"}
"""Which kind of bundle lies where."""
KEYS = (
    "name",
    "description",
    "version",
    "type",
    "author",
    "tags",
    "when",
    "condition",
    "requires",
    "depends_on",
    "tools",
    "hooks",
)
MOST_SESSIONS = 1_000
"""Whose message is kept; of more, those that were heard of first are forgotten."""
_LAST = 1_000_000_000
_KEBAB = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


@dataclass(frozen=True, slots=True, eq=False)
class Bundle:
    """A file with several artifacts. `fields` is its front matter; `requires` names other
    bundles.
    """

    kind: str
    name: str
    description: str
    fields: Node
    when: When | None = None
    requires: tuple[str, ...] = ()

    @property
    def file(self) -> str:
        return self.fields.file


@dataclass(frozen=True, slots=True)
class Condition:
    """In which turns a bundle takes part: `parts` must all hold, its own and those of what it
    requires.
    """

    bundle: str
    parts: tuple[When, ...]

    def holds(self, text: str) -> bool:
        """Whether it does, for this message. Raises WhenError if that cannot be decided."""
        payload = TurnStart(text).as_dict()
        return all(decide(part, TurnStart.event, payload) for part in self.parts)

    def check(self, text: str, tool: str) -> None:
        """Raise ToolFailed (`permission_denied`) in a turn in which the tool takes no part."""
        try:
            if self.holds(text):
                return
            why = "its condition does not hold for this message"
        except WhenError as error:
            why = f"its condition cannot be decided: {error}"
        raise ToolFailed(
            ErrorType.PERMISSION_DENIED,
            (
                f"`{tool}` was not run: the bundle `{self.bundle}` takes no part in this turn, "
                f"as {why}"
            ),
        )

    def over(self, hook: EventHook, turns: Turns) -> EventHook:
        """The hook, asked in these turns only."""
        own = hook.when

        def applies(occasion: Occasion) -> bool:
            return (own is None or own(occasion)) and self.holds(turns.text_at(occasion))

        return replace(hook, when=applies)


class Turns:
    """The message that each session works on. Hears of it by `hook`, which must be among the hooks
    of the agent.
    """

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def hook(self) -> EventHook:
        """Asked last, so that it hears the message as the other hooks left it. It lets everything
        pass.
        """

        async def hear(occasion: Occasion) -> None:
            session = occasion.identity.session
            self._texts.pop(session, None)
            if isinstance(occasion.payload, TurnStart):
                self._texts[session] = occasion.payload.text
                while len(self._texts) > MOST_SESSIONS:
                    del self._texts[next(iter(self._texts))]

        return EventHook(
            name="turns of bundles",
            events=("turn.start", "session.end"),
            run=hear,
            priority=_LAST,
            source="ferrule",
        )

    def text(self, identity: Identity) -> str:
        """The message of this session's turn; empty before the first."""
        return self._texts.get(identity.session, "")

    def text_at(self, occasion: Occasion) -> str:
        """The same for a hook: at the turn's start it is the message that the hook is asked
        about.
        """
        payload = occasion.payload
        return payload.text if isinstance(payload, TurnStart) else self.text(occasion.identity)


def kind_of(file: str) -> str:
    """`override`, `builtin` or `plugin` for a file that is a bundle, else empty."""
    parts = file.split("/")
    if len(parts) == 3 and parts[0] in ROOTS and parts[2].endswith(".md"):
        return FOLDERS.get(parts[1], "")
    return ""


def fields_of(data: bytes, file: str) -> Node:
    """The keys of a main file or a bundle: front matter, or the whole of a YAML file. Raises
    ConfigError.
    """
    return parse_yaml(data, file) if file.endswith(".yaml") else parse_document(data, file).fields


def read_bundle(kind: str, document: Document, data: bytes) -> tuple[Bundle, list[Warned]]:
    """What the front matter says of the bundle as a whole. Raises ConfigError, with the place."""
    fields = document.fields
    stem = document.file.rpartition("/")[2].removesuffix(".md")
    name = text_of(fields, "name") or stem
    description = text_of(fields, "description") or document.body
    if kind == "plugin" and not (_KEBAB.fullmatch(name) and description):
        raise fields.error(
            f"the plugin `{name}` needs a name in kebab-case and a description",
            hint="write `name: my-plugin`",
        )
    requires = texts_of(fields, _spelled(fields, "requires", "depends_on")) or ()
    bundle = Bundle(kind, name, description, fields, _when(fields, data), requires)
    return bundle, unknown_keys(fields, KEYS, "a bundle")


def _when(fields: Node, data: bytes) -> When | None:
    key = _spelled(fields, "when", "condition")
    text, place = text_of(fields, key), field(fields, key)
    if not text or place is None:
        return None
    return parse_when(text, place.file, *begins(place, data), (TurnStart.event,))


def _spelled(fields: Node, name: str, other: str) -> str:
    """Which of two spellings is used. Raises ConfigError for both."""
    if field(fields, name) is not None and (second := field(fields, other)) is not None:
        raise second.error(f"`{other}` and `{name}` are one key; write one of them")
    return name if field(fields, name) is not None else other


def conditions(bundles: Iterable[Bundle]) -> tuple[dict[str, Condition], list[ConfigError]]:
    """The conditions of those bundles that have any, by file; and what is wrong with what they
    require.
    """
    by_name: dict[str, Bundle] = {}
    wrong: list[ConfigError] = []
    everyone = list(bundles)
    for bundle in everyone:
        first = by_name.setdefault(bundle.name, bundle)
        if first is not bundle and any(bundle.name in one.requires for one in everyone):
            wrong.append(
                bundle.fields.error(
                    f"the bundle `{bundle.name}` is required, and {first.file} has that name too"
                )
            )
    found: dict[str, Condition] = {}
    for bundle in everyone:
        try:
            parts = [one.when for one in _with_required(bundle, by_name) if one.when is not None]
        except ConfigError as error:
            wrong.append(error)
            continue
        if parts:
            found[bundle.file] = Condition(bundle.name, tuple(parts))
    return found, wrong


def _with_required(bundle: Bundle, by_name: Mapping[str, Bundle]) -> list[Bundle]:
    """A bundle and all that it requires, directly or not. Raises ConfigError for one that is
    missing, and for a circle.
    """
    found = [bundle]
    for one in found:
        place = field(one.fields, "requires") or field(one.fields, "depends_on") or one.fields
        for name in one.requires:
            required = by_name.get(name)
            if required is None:
                known = ", ".join(f"`{other}`" for other in by_name if other != one.name)
                raise place.error(
                    f"the bundle `{one.name}` requires `{name}`, which is not there",
                    hint=f"there are: {known or 'no others'}",
                )
            if required is bundle:
                raise place.error(f"the bundle `{one.name}` requires `{name}`, which requires it")
            if required not in found:
                found.append(required)
    return found
