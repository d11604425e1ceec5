"""Names of tools: what may be registered, and what a provider sees.

Providers accept letters, digits, `_` and `-`, 64 at the most. Other characters are replaced by `_`;
where that loses the difference between two names, or a name is too long, a short hash of the full
name makes it unique. The mapping depends only on the set of names, never on their order.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

from ferrule.core.errors import ToolDefinitionError
from ferrule.core.lazy_patterns import expression

WIRE_LIMIT = 64
_VALID = expression(r"[A-Za-z_][A-Za-z0-9_.\-]{0,127}")
_UNSAFE = expression(r"[^A-Za-z0-9_-]")


def check_name(name: str) -> None:
    """Raises ToolDefinitionError if `name` cannot be a tool's name (`[A-Za-z_][A-Za-z0-9_.-]*`, 128
    at most).
    """
    if not _VALID.fullmatch(name):
        raise ToolDefinitionError(
            f"`{name}` cannot be the name of a tool",
            hint=(
                "letters, digits, `_`, `-` and `.`, beginning with a letter or `_`, 128 at the most"
            ),
        )


def check_namespace(namespace: object) -> None:
    """Raises ToolDefinitionError for what is no namespace: names as of tools, several joined by
    `::`.
    """
    if not isinstance(namespace, str):
        raise ToolDefinitionError(
            f"namespace: found {namespace!r}, which is a {type(namespace).__name__}",
            hint='give a name, such as "release", or leave it out',
        )
    for part in namespace.split("::"):
        check_name(part)


def wire_names(names: Iterable[str]) -> dict[str, str]:
    """Full name to wire name, one to one, in the order given."""
    names = list(names)
    plain: dict[str, list[str]] = {}
    for name in names:
        plain.setdefault(_UNSAFE.sub("_", name.replace("::", "__")), []).append(name)
    mapped: dict[str, str] = {}
    crowded: list[tuple[str, str]] = []
    for base, owners in plain.items():
        for name in owners:
            # A name that is already safe keeps itself: nothing else can have the same spelling.
            if len(base) <= WIRE_LIMIT and (len(owners) == 1 or base == name):
                mapped[name] = base
            else:
                crowded.append((name, base))
    taken = set(mapped.values())
    for name, base in sorted(crowded):
        mapped[name] = _hashed(base, name, taken)
        taken.add(mapped[name])
    return {name: mapped[name] for name in names}


def wire_name_beside(name: str, taken: set[str]) -> str:
    """The wire name of one more tool, where all others keep theirs (`taken`)."""
    base = _UNSAFE.sub("_", name.replace("::", "__"))
    return base if len(base) <= WIRE_LIMIT and base not in taken else _hashed(base, name, taken)


def _hashed(base: str, name: str, taken: set[str]) -> str:
    digest = sha256(name.encode()).hexdigest()
    # A longer hash where somebody registered the spelling of a shorter one, by chance or to be
    # called for it.
    for digits in (8, 16, 32, WIRE_LIMIT - 2):
        wire = f"{base[: WIRE_LIMIT - 1 - digits]}_{digest[:digits]}"
        if wire not in taken:
            return wire
    raise ToolDefinitionError(f"`{name}` has no wire name that no other tool has", hint="rename it")
