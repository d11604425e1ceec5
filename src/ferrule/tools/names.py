"""Check names of tools, and map them to the names that providers accept.

Providers accept letters, digits, `_` and `-`, at most 64 characters. Other characters are replaced
by `_`; if that makes two names equal, or a name is too long, a short hash of the full name makes it
unique. The mapping depends only on the set of names, never on their order.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

from ferrule.core.errors import ToolDefinitionError
from ferrule.core.lazy_patterns import compile_lazily

API_NAME_LIMIT = 64
_VALID = compile_lazily(r"[A-Za-z_][A-Za-z0-9_.\-]{0,127}")
_UNSAFE = compile_lazily(r"[^A-Za-z0-9_-]")


def check_name(name: str) -> None:
    """Check a tool's name: `[A-Za-z_][A-Za-z0-9_.-]*`, at most 128 characters.

    Raises:
        ToolDefinitionError: It cannot be the name of a tool.
    """
    if not _VALID.fullmatch(name):
        raise ToolDefinitionError(
            f"`{name}` cannot be the name of a tool",
            hint=(
                "use letters, digits, `_`, `-` and `.`, beginning with a letter or `_`, at most 128"
            ),
        )


def split_full_name(name: str, namespace: str = "") -> tuple[str, str]:
    """Split a full name, `math::calc`, into namespace and name.

    Args:
        name: A name, or a full name.
        namespace: The namespace that was given separately; a full name must not contradict it.

    Returns:
        The namespace, "" for none, and the name. Neither is checked.

    Raises:
        ToolDefinitionError: The full name has another namespace than the one given.
    """
    if not isinstance(name, str) or "::" not in name:  # pyright: ignore[reportUnnecessaryIsInstance]  from data
        return namespace, name
    own_namespace, _, short = name.rpartition("::")
    if namespace not in ("", own_namespace):
        raise ToolDefinitionError(
            f"`{name}` is given the namespace `{namespace}`",
            hint=f"name it `{short}`, or leave `namespace` out",
        )
    return own_namespace, short


def check_namespace(namespace: object) -> None:
    """Check a namespace: one name, or several joined by `::`, each as for tools.

    Raises:
        ToolDefinitionError: It cannot be a namespace.
    """
    if not isinstance(namespace, str):
        raise ToolDefinitionError(
            f"namespace: found {namespace!r}, which is a {type(namespace).__name__}",
            hint='give a name, such as "release", or leave it out',
        )
    for part in namespace.split("::"):
        check_name(part)


def make_api_names(names: Iterable[str]) -> dict[str, str]:
    """Return a unique API name for each full name, in the order given."""
    names = list(names)
    owners_by_base: dict[str, list[str]] = {}
    for name in names:
        owners_by_base.setdefault(_UNSAFE.sub("_", name.replace("::", "__")), []).append(name)
    mapped: dict[str, str] = {}
    crowded: list[tuple[str, str]] = []
    for base, owners in owners_by_base.items():
        for name in owners:
            # A name that is already safe stays as it is: no other name has the same spelling.
            if len(base) <= API_NAME_LIMIT and (len(owners) == 1 or base == name):
                mapped[name] = base
            else:
                crowded.append((name, base))
    taken = set(mapped.values())
    for name, base in sorted(crowded):
        mapped[name] = _append_hash(base, name, taken)
        taken.add(mapped[name])
    return {name: mapped[name] for name in names}


def make_free_api_name(name: str, taken: set[str]) -> str:
    """Return an API name for one more tool that differs from those in `taken`."""
    base = _UNSAFE.sub("_", name.replace("::", "__"))
    if len(base) <= API_NAME_LIMIT and base not in taken:
        return base
    return _append_hash(base, name, taken)


def _append_hash(base: str, name: str, taken: set[str]) -> str:
    digest = sha256(name.encode()).hexdigest()
    # A longer hash if the name with a shorter one is registered, by chance or to be called in its
    # place.
    for digits in (8, 16, 32, API_NAME_LIMIT - 2):
        candidate = f"{base[: API_NAME_LIMIT - 1 - digits]}_{digest[:digits]}"
        if candidate not in taken:
            return candidate
    raise ToolDefinitionError(f"no unique API name is left for `{name}`", hint="rename the tool")
