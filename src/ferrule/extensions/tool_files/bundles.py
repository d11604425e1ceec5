"""Bundles: several tools and hooks in one file, with requirements and a condition on the turn.

    ---
    name: releases                  # kebab-case; a plugin must have a name and a description
    description: What a release needs.
    requires: [version-control]     # other bundles by name; also spelled `depends_on`
    when: 'regex(text, "(?i)release")'     # also spelled `condition`; see `hooks.conditions`
    tools: [...]
    hooks: [...]
    ---

`when` is evaluated for every turn, on the person's message as hooks left it. Its names are those of
`turn.start` (`text`, `event`, `payload`). If it is false, or that of a required bundle is, the
bundle's hooks are skipped and its tools refuse. The tools stay in the catalog, since what a model
is shown does not change within a session. If it cannot be evaluated, tools refuse and hooks count
as broken. Between turns, the last message counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ConfigError, ToolFailed
from ferrule.core.identity import Identity
from ferrule.core.value_class import frozen
from ferrule.engine.hooks.events import EventHook, Occasion, TurnStart
from ferrule.extensions.front_matter import (
    Document,
    FileWarning,
    find_unknown_keys,
    get_field,
    get_text,
    get_texts,
    locate_text,
    parse_document,
)
from ferrule.extensions.hooks.conditions import (
    ConditionError,
    ParsedCondition,
    evaluate,
    parse_condition,
)
from ferrule.storage.settings.table import FOREIGN
from ferrule.storage.settings.yaml_tree import Node, parse_yaml

CONFIGURATION_FOLDERS = (".ferrule", ".harness")
MAIN_FILES = (
    ".ferrule/ferrule.yaml",
    ".harness/ferrule.yaml",
    ".harness/harness.md",
    ".ferrule/harness.md",
    "ferrule.yaml",
    "harness.md",
)
"""Main files: they may list `tools` and `hooks` of their own."""
KIND_BY_FOLDER = {"overrides": "override", "builtins": "builtin", "plugins": "plugin"}
"""The kind of the bundles in each folder."""
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
MAX_SESSIONS = 1_000
"""Sessions whose message is kept; beyond that, the oldest are forgotten."""
_LAST_PRIORITY = 1_000_000_000
_KEBAB = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


@dataclass(frozen=True, slots=True, eq=False)
class Bundle:
    """A file with several artifacts.

    `fields` is its front matter; `requires` names other bundles.
    """

    kind: str
    name: str
    description: str
    fields: Node
    when: ParsedCondition | None = None
    requires: tuple[str, ...] = ()

    @property
    def file(self) -> str:
        return self.fields.file


@frozen
class BundleCondition:
    """The turns in which a bundle is active.

    All `parts` must hold: its own condition and those of its requirements.
    """

    bundle: str
    parts: tuple[ParsedCondition, ...]

    def is_met(self, text: str) -> bool:
        """Return whether the bundle is active for this message.

        Raises ConditionError if that is undecidable.
        """
        payload = TurnStart(text).as_dict()
        return all(evaluate(part, TurnStart.event, payload) for part in self.parts)

    def require(self, text: str, tool: str) -> None:
        """Raise ToolFailed (`permission_denied`) unless the bundle is active for this message."""
        try:
            if self.is_met(text):
                return
            reason = "its condition is false for this message"
        except ConditionError as error:
            reason = f"its condition cannot be evaluated: {error}"
        raise ToolFailed(
            ErrorType.PERMISSION_DENIED,
            f"`{tool}` was not run: the bundle `{self.bundle}` is not active in this turn; "
            f"{reason}",
        )

    def restrict(self, hook: EventHook, messages: CurrentMessages) -> EventHook:
        """Limit a hook to the turns in which the bundle is active."""
        own_condition = hook.when

        def applies(occasion: Occasion) -> bool:
            if own_condition is not None and not own_condition(occasion):
                return False
            return self.is_met(messages.message_at(occasion))

        return replace(hook, when=applies)


class CurrentMessages:
    """The message that each session works on.

    It is kept up to date by `hook`, which must be among the hooks of the agent.
    """

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def make_hook(self) -> EventHook:
        """Make the hook that records messages.

        It runs last, after other hooks changed the message.
        """

        async def record(occasion: Occasion) -> None:
            session = occasion.identity.session
            self._texts.pop(session, None)
            if isinstance(occasion.payload, TurnStart):
                self._texts[session] = occasion.payload.text
                while len(self._texts) > MAX_SESSIONS:
                    del self._texts[next(iter(self._texts))]

        return EventHook(
            name="turns of bundles",
            events=("turn.start", "session.end"),
            run=record,
            priority=_LAST_PRIORITY,
            source="ferrule",
        )

    def message_of(self, identity: Identity) -> str:
        """Return the message of a session's current turn; empty before the first."""
        return self._texts.get(identity.session, "")

    def message_at(self, occasion: Occasion) -> str:
        """Return the message for a hook.

        At the start of a turn it is the one the hook is asked about.
        """
        payload = occasion.payload
        return (
            payload.text if isinstance(payload, TurnStart) else self.message_of(occasion.identity)
        )


def find_bundle_kind(file: str) -> str:
    """Return `override`, `builtin` or `plugin` for the file of a bundle, else ""."""
    parts = file.split("/")
    if len(parts) == 3 and parts[0] in CONFIGURATION_FOLDERS and parts[2].endswith(".md"):
        return KIND_BY_FOLDER.get(parts[1], "")
    return ""


def parse_fields(data: bytes, file: str) -> Node:
    """Parse the keys of a main file or bundle: front matter, or a whole YAML file.

    Raises ConfigError.
    """
    return parse_yaml(data, file) if file.endswith(".yaml") else parse_document(data, file).fields


def parse_bundle(kind: str, document: Document, data: bytes) -> tuple[Bundle, list[FileWarning]]:
    """Parse what the front matter says of the bundle as a whole, and return it with warnings.

    Raises:
        ConfigError: It is invalid. The message has the place.
    """
    fields = document.fields
    stem = document.file.rpartition("/")[2].removesuffix(".md")
    name = get_text(fields, "name") or stem
    description = get_text(fields, "description") or document.body
    if kind == "plugin" and not (_KEBAB.fullmatch(name) and description):
        raise fields.error(
            f"the plugin `{name}` needs a name in kebab-case and a description",
            hint="write `name: my-plugin`",
        )
    requires = get_texts(fields, _find_used_spelling(fields, "requires", "depends_on")) or ()
    bundle = Bundle(kind, name, description, fields, _when(fields, data), requires)
    return bundle, find_unknown_keys(fields, KEYS, "a bundle")


MAIN_KEYS = ("tools", "hooks", "name", "description", "version", "author")
"""Keys of `harness.md` that are read, or that no run depends on."""


def find_unread_keys(fields: Node) -> list[FileWarning]:
    """Return a warning for each key of `harness.md` that has no effect here.

    It holds the settings of the system that it comes from; nothing of them is lost without a word.
    """
    if not fields.file.endswith(".md"):
        return []
    warnings: list[FileWarning] = []
    for name, (key, _) in (fields.pairs or {}).items():
        if name not in MAIN_KEYS:
            lead = FOREIGN.get(name, "settings are in .ferrule/ferrule.yaml (docs/settings.md)")
            message = f"`{name}` of {fields.file.rpartition('/')[2]} has no effect: {lead}"
            warnings.append(FileWarning(key.where, message))
    return warnings


def _when(fields: Node, data: bytes) -> ParsedCondition | None:
    key = _find_used_spelling(fields, "when", "condition")
    text = get_text(fields, key)
    place = get_field(fields, key)
    if not text or place is None:
        return None
    return parse_condition(text, place.file, *locate_text(place, data), (TurnStart.event,))


def _find_used_spelling(fields: Node, name: str, other: str) -> str:
    """Return which of two spellings is used. Raises ConfigError for both."""
    if get_field(fields, name) is None:
        return other
    second = get_field(fields, other)
    if second is not None:
        raise second.error(f"`{other}` and `{name}` are one key; write one of them")
    return name


def collect_conditions(
    bundles: Iterable[Bundle],
) -> tuple[dict[str, BundleCondition], list[ConfigError]]:
    """Return the conditions of bundles that have any, by file, and errors about requirements."""
    bundles = list(bundles)
    by_name: dict[str, Bundle] = {}
    errors: list[ConfigError] = []
    required_names = {name for bundle in bundles for name in bundle.requires}
    for bundle in bundles:
        first = by_name.setdefault(bundle.name, bundle)
        if first is not bundle and bundle.name in required_names:
            errors.append(
                bundle.fields.error(
                    f"the bundle `{bundle.name}` is required, and {first.file} has that name too"
                )
            )
    by_file: dict[str, BundleCondition] = {}
    for bundle in bundles:
        try:
            group = _collect_required(bundle, by_name)
        except ConfigError as error:
            errors.append(error)
            continue
        parts = tuple(member.when for member in group if member.when is not None)
        if parts:
            by_file[bundle.file] = BundleCondition(bundle.name, parts)
    return by_file, errors


def _collect_required(bundle: Bundle, by_name: Mapping[str, Bundle]) -> list[Bundle]:
    """Return a bundle and all that it requires, directly or not.

    Raises ConfigError if one is missing, or requires itself.
    """
    members = [bundle]
    for member in members:
        place = (
            get_field(member.fields, "requires")
            or get_field(member.fields, "depends_on")
            or member.fields
        )
        for name in member.requires:
            required = by_name.get(name)
            if required is None:
                known = ", ".join(f"`{other}`" for other in by_name if other != member.name)
                raise place.error(
                    f"the bundle `{member.name}` requires `{name}`, which does not exist",
                    hint=f"there are: {known or 'no others'}",
                )
            if required is bundle:
                raise place.error(
                    f"the bundle `{member.name}` requires `{name}`, which requires it"
                )
            if required not in members:
                members.append(required)
    return members
