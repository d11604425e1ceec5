"""Dependencies of a program's tools: what `Agent(deps_type=...)` promises to its runs."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin

from ferrule.core.errors import ConfigError
from ferrule.tools.definition import Tool


class Unset(Enum):
    """The type of `UNSET`."""

    UNSET = "unset"


UNSET: Final = Unset.UNSET
"""No dependencies were given; None may be the dependencies of an agent."""


def check_wanted_deps(owner: str, wanted: Any, deps_type: Any) -> None:
    """Check that an agent's dependencies are what a tool or a function asks for.

    Protocols that cannot be checked at run time are left to the type checker.

    Args:
        owner: What asks for them, for the error.
        wanted: The type in its `Context[...]`; Any if it asks for none.
        deps_type: The agent's.

    Raises:
        ConfigError: They are not.
    """
    if wanted is Any or deps_type is Any or _is_within(deps_type, wanted):
        return
    if deps_type is None:
        raise ConfigError(
            f"{owner} needs dependencies of type `{_name(wanted)}`, and the agent has none",
            hint=f"pass deps_type={_name(wanted)} to the Agent, and deps=... to its runs",
        )
    raise ConfigError(
        f"{owner} needs dependencies of type `{_name(wanted)}`, and the agent's are "
        f"`{_name(deps_type)}`",
        hint="give it an agent with other dependencies, or change its `Context[...]`",
    )


def check_tools(tools: Iterable[Tool], deps_type: Any) -> None:
    """Check that an agent's dependencies are what its tools ask for. Raises ConfigError."""
    for tool in tools:
        if tool.deps_type is not Any:
            check_wanted_deps(f"tool `{tool.full_name}`", tool.deps_type, deps_type)


def check_deps(deps: object, deps_type: Any) -> None:
    """Check the dependencies that a run was given.

    Raises:
        ConfigError: There are none and the agent needs them, or they are of another type.
    """
    if deps is UNSET:
        if deps_type is None or _accepts(None, deps_type):
            return
        raise ConfigError(
            f"the agent needs dependencies of type `{_name(deps_type)}`, and the run was given "
            "none",
            hint="pass deps=... to the run or to the session",
        )
    if deps_type is None and deps is not None:
        raise ConfigError(
            f"the run was given dependencies of type `{type(deps).__name__}`, and the agent has "
            "none",
            hint=f"pass deps_type={type(deps).__name__} to the Agent",
        )
    if not _accepts(deps, deps_type):
        raise ConfigError(
            f"the agent needs dependencies of type `{_name(deps_type)}`, and the run was given "
            f"`{type(deps).__name__}`"
        )


def _is_within(given: Any, wanted: Any) -> bool:
    """Return whether every value of one type is one of the other, as far as that can be known."""
    if given == wanted:
        return True
    if get_origin(given) in (Union, UnionType):
        return all(_is_within(one, wanted) for one in get_args(given))
    if get_origin(wanted) in (Union, UnionType):
        return any(_is_within(given, one) for one in get_args(wanted))
    if given is None or wanted is None:
        return False
    return _is_subclass(get_origin(given) or given, get_origin(wanted) or wanted)


def _accepts(deps: object, deps_type: Any) -> bool:
    if deps_type in (Any, object):
        return True
    if deps_type is None:
        return deps is None
    if get_origin(deps_type) in (Union, UnionType):
        return any(_accepts(deps, one) for one in get_args(deps_type))
    kind = get_origin(deps_type) or deps_type
    if _is_unchecked(kind):
        return True
    return isinstance(deps, kind)


def _is_subclass(given: Any, wanted: Any) -> bool:
    if _is_unchecked(wanted):
        return True
    return isinstance(given, type) and issubclass(given, wanted)


def _is_unchecked(kind: Any) -> bool:
    """Return whether nothing can be checked at run time: a protocol, a typed dict, an alias."""
    if not isinstance(kind, type):
        return True
    is_protocol = getattr(kind, "_is_protocol", False)
    return bool(is_protocol) or hasattr(kind, "__required_keys__")


def _name(kind: Any) -> str:
    return getattr(kind, "__name__", None) or str(kind)
