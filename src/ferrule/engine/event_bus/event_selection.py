"""Scopes: whose events a subscription gets, and which kinds of them.

Who may subscribe to what is decided by whoever makes a scope for a known person: the bus enforces
the scope and never widens it. A person's own scope is never blank and never a pattern; an
operator's is a type of its own, so that nobody becomes one by leaving something out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from fnmatch import fnmatchcase

from ferrule.core.errors import ConfigError
from ferrule.core.identity import Identity
from ferrule.core.similar_names import suggest_names
from ferrule.core.value_class import frozen

from .events import CLOSED, DROPPED, KINDS, REDACTION_FAILED

Key = tuple[str | None, str | None, str | None]
"""Tenant, user and session; None stands for all."""


@frozen
class OwnSession:
    """One session of the person who owns it."""

    tenant: str
    user: str
    session: str

    def __post_init__(self) -> None:
        _require_names(self)

    @property
    def key(self) -> Key:
        return (self.tenant, self.user, self.session)


@frozen
class OwnSessions:
    """All sessions of one person."""

    tenant: str
    user: str

    def __post_init__(self) -> None:
        _require_names(self)

    @property
    def key(self) -> Key:
        return (self.tenant, self.user, None)


@frozen
class Operator:
    """Sessions of others: `name` is who looks, `reason` why.

    Such a subscription is an event itself (`bus.operator`). Without `tenant`, `user` or `session`
    it covers all of them. Each needs the one before it.
    """

    name: str
    reason: str = ""
    tenant: str | None = None
    user: str | None = None
    session: str | None = None

    def __post_init__(self) -> None:
        named = {
            name: part
            for name, part in (("name", self.name), *_parts(self.key))
            if part is not None
        }
        blank = [name for name, part in named.items() if not part.strip()]
        if blank:
            raise ConfigError(f"operator without {', '.join(blank)}", code="identity_blank")
        if None in self.key[: sum(part is not None for part in self.key)]:
            raise ConfigError(
                "an operator's scope names the session of no user, or the user of no tenant"
            )

    @property
    def key(self) -> Key:
        return (self.tenant, self.user, self.session)


Scope = OwnSession | OwnSessions | Operator


def parse_scope(given: Scope | Identity) -> Scope:
    """Return the scope; an identity stands for its session."""
    if isinstance(given, Identity):
        return OwnSession(given.tenant, given.user, given.session)
    return given


def _require_names(scope: OwnSession | OwnSessions) -> None:
    blank = [part.name for part in fields(scope) if not getattr(scope, part.name).strip()]
    if blank:
        raise ConfigError(f"subscription without {', '.join(blank)}", code="identity_blank")


def _parts(key: Key) -> Iterable[tuple[str, str | None]]:
    return zip(("tenant", "user", "session"), key, strict=True)


class Kinds:
    """Which kinds of events are wanted.

    Names, or the beginning of names with a `*` (`call.*`); None means all. What the bus itself
    tells the subscriber always comes, and so does an event whose payload was withheld.

    Raises ConfigError for a name or pattern of no existing kind: it would never match.
    """

    def __init__(self, patterns: Iterable[str] | None) -> None:
        self._patterns = (
            None if patterns is None else (*patterns, DROPPED, CLOSED, REDACTION_FAILED)
        )
        self._known: dict[str, bool] = {}
        for pattern in self._patterns or ():
            if not any(_matches(kind, pattern) for kind in KINDS):
                raise ConfigError(
                    f"no event is of the kind `{pattern}`", hint=suggest_names(pattern, KINDS)
                )

    def __contains__(self, kind: str) -> bool:
        if self._patterns is None:
            return True
        known = self._known.get(kind)
        if known is None:
            if len(self._known) > 1000:
                # Kinds of later versions can have any name.
                self._known.clear()
            known = self._known[kind] = any(_matches(kind, pattern) for pattern in self._patterns)
        return known

    @property
    def all(self) -> bool:
        """Whether every kind is wanted."""
        return self._patterns is None

    @property
    def pieces(self) -> bool:
        """Whether text is wanted as it arrives."""
        return "piece.text" in self or "piece.reasoning" in self


def _matches(kind: str, pattern: str) -> bool:
    return fnmatchcase(kind, pattern) if "*" in pattern else kind == pattern
