"""Select, rename, group and configure tools as a set, with small functions over `Tool` sequences.

Each function takes tools and returns tools in the same order, and is independent of the others, so
they compose:

    tools = toolset.select(pack, ["read"], without=["git_inspect"])
    tools = toolset.rename(tools, {"read_file": "look"})
    tools = toolset.add_namespace(tools, "release")

A tool has a *logical key*, which stays the same when the tool is renamed (its first name unless
`add_to_groups` sets another), and *groups*. Both are annotations, next to further facts for
programs:

    key, groups                     set by `add_to_groups`
    result_readers, see_also        names of other tools of the set; they follow a rename
                                    (`LINK_ANNOTATIONS`)
    defer_loading                   set by `mark_deferred`: no schema until a tool search has
                                    found it

All settings come from the person who builds the set, so an unknown name raises ConfigError and
suggests the nearest. A rename does not change the texts a handler produces while it runs (such as
error messages), nor permission rules that name a tool.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from ferrule.core.errors import ConfigError
from ferrule.core.similar_names import suggest_names

from .definition import Arguments, CheckedArguments, Loading, Risk, SideEffect, Tool
from .names import check_name, check_namespace, make_api_names
from .reliability import Policies, Reliability

Tools = tuple[Tool, ...]

ALL_TOOLS = "*"
"""Stands for all tools in settings by tool."""

LINK_ANNOTATIONS = ("result_readers", "see_also")
"""Annotations that hold one name or a list of names of other tools."""

_CONFIG = (
    "description",
    "side_effect",
    "risk",
    "namespace",
    "timeout",
    "max_attempts",
    "reliability",
    "idempotent",
    "polls",
    "parallel",
    "inline",
    "preview",
    "scopes",
    "cost",
    "latency",
    "examples",
    "annotations",
    "defer_loading",
)


def logical_key(tool: Tool) -> str:
    """Return the logical key of a tool."""
    return str(tool.annotations.get("key") or tool.name)


def tool_groups(tool: Tool) -> tuple[str, ...]:
    """Return the groups a tool is in."""
    return tuple(tool.annotations.get("groups", ()))


def add_to_groups(
    tools: Iterable[Tool], *groups: str, keys: Mapping[str, str] | None = None
) -> Tools:
    """Add tools to groups, and set logical keys; `keys` maps names to keys."""
    found: list[Tool] = []
    for tool in tools:
        joined = tuple(dict.fromkeys((*tool_groups(tool), *groups)))
        key = (keys or {}).get(tool.name, logical_key(tool))
        found.append(replace(tool, annotations={**tool.annotations, "key": key, "groups": joined}))
    return tuple(found)


# ---- selection


def select(
    tools: Iterable[Tool], enabled: Iterable[str] | None = None, *, without: Iterable[str] = ()
) -> Tools:
    """Select tools by logical key, name or group; `all` and `*` stand for every tool.

    Links to tools that are left out are dropped.

    Args:
        tools: The tools to select from.
        enabled: What to select; None selects all.
        without: What to leave out of that.

    Raises:
        ConfigError: An entry of either list names no tool and no group.
    """
    items = tuple(tools)
    selected = _select_positions(items, enabled, "enabled_tools")
    selected -= _find_named(items, without, "disabled_tools")
    removed = {tool.full_name for number, tool in enumerate(items) if number not in selected}
    return tuple(
        _drop_links(tool, removed) for number, tool in enumerate(items) if number in selected
    )


def _drop_links(tool: Tool, removed: set[str]) -> Tool:
    """Return the tool without links to removed tools."""
    links = {
        name: tool.annotations[name] for name in LINK_ANNOTATIONS if tool.annotations.get(name)
    }
    changed: dict[str, Any] = {}
    for name, value in links.items():
        targets = cast("list[str]", [value] if isinstance(value, str) else value)
        if not removed.isdisjoint(targets):
            changed[name] = [target for target in targets if target not in removed]
    return _with_annotations(tool, changed)


def _with_annotations(tool: Tool, changed: Mapping[str, Any]) -> Tool:
    if not changed:
        return tool
    return replace(tool, annotations={**tool.annotations, **changed})


def _select_positions(items: Tools, names: Iterable[str] | None, setting: str) -> set[int]:
    if names is None:
        return set(range(len(items)))
    return _find_named(items, names, setting)


def _find_named(items: Tools, names: Iterable[str], setting: str) -> set[int]:
    """Return the positions of tools named by logical key, name or group."""
    found: set[int] = set()
    for name in _check_list(names, setting):
        matches = {
            number
            for number, tool in enumerate(items)
            if name in ("all", ALL_TOOLS, *_names_of(tool))
        }
        if not matches:
            known = [other for tool in items for other in _names_of(tool)]
            raise _unknown_name(setting, name, known)
        found |= matches
    return found


def _names_of(tool: Tool) -> tuple[str, ...]:
    return (logical_key(tool), tool.name, *tool_groups(tool))


def _check_list(names: Iterable[str], setting: str) -> list[str]:
    if isinstance(names, str):
        raise ConfigError(f"{setting}: found the text {names!r}", hint=f"give a list: [{names!r}]")
    return list(names)


def _unknown_name(setting: str, name: object, known: Sequence[str]) -> ConfigError:
    listed = ", ".join(f"`{other}`" for other in sorted(set(known)))
    hint = suggest_names(str(name), known, f"there are: {listed or 'none'}")
    return ConfigError(f"{setting}: nothing here is called `{name}`", hint=hint)


def settings_by_position(
    items: Tools, given: Mapping[str, Any], where: str, *, shared: bool = False
) -> dict[int, Any]:
    """Turn settings by logical key or name into settings by position.

    With `shared`, the entry `*` is left to the caller.
    """
    found: dict[int, Any] = {}
    for name, value in given.items():
        if shared and name == ALL_TOOLS:
            continue
        matches = [
            number for number, tool in enumerate(items) if name in (logical_key(tool), tool.name)
        ]
        if not matches:
            known = [*map(logical_key, items), *(tool.name for tool in items)]
            raise _unknown_name(where, name, known)
        found.update(dict.fromkeys(matches, value))
    return found


# ---- names and descriptions


def rename(tools: Iterable[Tool], names: Mapping[str, str]) -> Tools:
    """Rename tools; `names` maps logical keys (or names) to new names.

    Whatever mentions a renamed tool follows: `LINK_ANNOTATIONS` in annotations, and descriptions of
    tools and parameters if the old name is in back-ticks or cannot be an ordinary word (it contains
    a `_`).

    Raises:
        ConfigError: A key is unknown, or two tools would have the same name.
        ToolDefinitionError: A new name cannot be the name of a tool.
    """
    items = tuple(tools)
    new = settings_by_position(items, names, "names")
    for name in new.values():
        check_name(name)
    after = [
        replace(tool, name=new[number]) if number in new else tool
        for number, tool in enumerate(items)
    ]
    _check_unique(after)
    keyed_tools = [
        replace(tool, annotations={"key": logical_key(old), **tool.annotations})
        for old, tool in zip(items, after, strict=True)
    ]
    mentions = {
        items[number].name: name for number, name in new.items() if items[number].name != name
    }
    links = {items[number].full_name: after[number].full_name for number in new}
    return tuple(_update_mentions(tool, mentions, links) for tool in keyed_tools)


def add_namespace(tools: Iterable[Tool], namespace: str) -> Tools:
    """Put tools into a namespace.

    Descriptions that mention them use the name a model will see: `release__read_file`.
    """
    if namespace == "":
        raise ConfigError("namespace: found nothing", hint="give a name, or leave it out")
    check_namespace(namespace)
    items = tuple(tools)
    after = [replace(tool, namespace=namespace) for tool in items]
    api_names = make_api_names([tool.full_name for tool in after])
    mentions = {old.name: api_names[new.full_name] for old, new in zip(items, after, strict=True)}
    links = {old.full_name: new.full_name for old, new in zip(items, after, strict=True)}
    return tuple(_update_mentions(tool, mentions, links) for tool in after)


def _check_unique(items: Sequence[Tool]) -> None:
    seen: dict[str, Tool] = {}
    for tool in items:
        other = seen.setdefault(tool.full_name, tool)
        if other is not tool:
            raise ConfigError(
                f"names: `{logical_key(other)}` and `{logical_key(tool)}` would both be called "
                f"`{tool.full_name}`",
                hint="give one of them another name",
            )


def _update_mentions(tool: Tool, mentions: Mapping[str, str], links: Mapping[str, str]) -> Tool:
    tool = rename_mentions(tool, mentions)
    changed = {
        name: _update_links(tool.annotations[name], links)
        for name in LINK_ANNOTATIONS
        if name in tool.annotations
    }
    return _with_annotations(tool, changed)


def _update_links(value: Any, links: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return links.get(value, value)
    return [links.get(name, name) for name in cast("list[str]", value)]


def describe(tools: Iterable[Tool], descriptions: Mapping[str, str]) -> Tools:
    """Replace descriptions of tools, by logical key or name."""
    items = tuple(tools)
    new = settings_by_position(items, descriptions, "descriptions")
    for number, text in new.items():
        if not text.strip():
            raise ConfigError(
                f"descriptions: that of `{logical_key(items[number])}` is empty",
                hint="say in a sentence what the tool does",
            )
    return tuple(
        replace(tool, description=new[number]) if number in new else tool
        for number, tool in enumerate(items)
    )


# ---- annotations and settings


def annotate(tools: Iterable[Tool], annotations: Mapping[str, Mapping[str, Any]]) -> Tools:
    """Merge annotations into tools, by logical key or name.

    Those under `*` go into all tools; a tool's own entry wins over them.
    """
    items = tuple(tools)
    shared = annotations.get(ALL_TOOLS, {})
    own = settings_by_position(items, annotations, "annotations", shared=True)
    for name, value in annotations.items():
        if not isinstance(value, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]  said by people
            raise ConfigError(
                f"annotations: those of `{name}` are {value!r}", hint="give a mapping"
            )
    return tuple(
        replace(tool, annotations={**tool.annotations, **shared, **own.get(number, {})})
        for number, tool in enumerate(items)
    )


def mark_deferred(
    tools: Iterable[Tool], names: Iterable[str] | None = None, *, defer: bool = True
) -> Tools:
    """Mark tools as deferred: all, or those named by logical key, name or group.

    Sets `Tool.loading` and the annotation `defer_loading`. It takes effect if the run has a tool
    search; otherwise a deferred tool is offered like any other. Internal tools stay internal.
    """
    if not isinstance(defer, bool):  # pyright: ignore[reportUnnecessaryIsInstance]  said by people
        raise ConfigError(f"defer_loading: found {defer!r}", hint="say true or false")
    items = tuple(tools)
    selected = _select_positions(items, names, "defer_loading")
    return tuple(
        _set_deferred(tool, defer) if number in selected else tool
        for number, tool in enumerate(items)
    )


def _set_deferred(tool: Tool, defer: bool) -> Tool:
    loading = Loading.DEFERRED if defer else Loading.ALWAYS
    if tool.loading is Loading.INTERNAL:
        loading = tool.loading
    return replace(tool, annotations={**tool.annotations, "defer_loading": defer}, loading=loading)


def configure(tools: Iterable[Tool], config: Mapping[str, Mapping[str, Any]]) -> Tools:
    """Override what tools declare, by logical key or name, `*` for all (a tool's own entry wins).

    An entry takes the keywords of `@tool` (`risk`, `side_effect`, `timeout`, `scopes`, `cost`,
    ...), `description`, `annotations` (merged) and `defer_loading`.

    Raises:
        ConfigError: A key is unknown (suggests the nearest), or its value is impossible.
    """
    items = tuple(tools)
    own = settings_by_position(items, config, "tool_config", shared=True)
    shared = config.get(ALL_TOOLS, {})
    return tuple(
        _configure(tool, {**shared, **own.get(number, {})}) for number, tool in enumerate(items)
    )


def apply_policies(tools: Iterable[Tool], policies: Policies) -> Tools:
    """Apply policies for retries and timeouts, by full name.

    What a tool declares itself wins over everything but its own entry in the policies.
    """
    return tuple(_apply_policy(tool, policies) for tool in tools)


def _apply_policy(tool: Tool, policies: Policies) -> Tool:
    reliability = policies.policy_for(tool.full_name, tool.reliability)
    if tool.reliability == reliability:
        return tool
    return replace(tool, reliability=reliability)


def _configure(tool: Tool, given: Mapping[str, Any]) -> Tool:
    where = f"tool_config of `{logical_key(tool)}`"
    fields: dict[str, Any] = {}
    for key, value in given.items():
        if key not in _CONFIG:
            raise _unknown_name(where, key, _CONFIG)
        if key in ("timeout", "max_attempts", "defer_loading", "annotations"):
            continue
        try:
            fields[key] = _CONVERTERS[key](value) if key in _CONVERTERS else value
        except (ValueError, TypeError) as error:
            raise ConfigError(f"{where}: {error}", hint=f"`{key}` cannot be {value!r}") from error
    limits = {key: given[key] for key in ("timeout", "max_attempts") if key in given}
    if limits:
        base = fields.get("reliability", tool.reliability)
        fields["reliability"] = _change_reliability(where, base, limits)
    changed = replace(tool, **fields)
    if "annotations" in given:
        changed = annotate([changed], {ALL_TOOLS: given["annotations"]})[0]
    if "defer_loading" in given:
        changed = mark_deferred([changed], defer=given["defer_loading"])[0]
    return changed


def _change_reliability(where: str, base: Reliability, given: Mapping[str, Any]) -> Reliability:
    try:
        return replace(base, **given)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{where}: {error}") from error


_CONVERTERS: Mapping[str, Callable[[Any], Any]] = {
    "side_effect": SideEffect,
    "risk": Risk,
    "scopes": frozenset,
    "examples": tuple,
}


def rename_mentions(tool: Tool, names: Mapping[str, str]) -> Tool:
    """Return the tool with names replaced in its description and those of its parameters.

    A name is replaced if it is alone in back-ticks; without them only if it contains a `_`, since
    `read` and `search` are also ordinary words. All are replaced at once, so two names may swap.
    """
    if not names:
        return tool
    description = replace_names(tool.description, names)
    schema = _rename_in_schema(tool.arguments.schema, names)
    if description == tool.description and schema == tool.arguments.schema:
        return tool
    return replace(
        tool, description=description, arguments=_RewordedArguments(tool.arguments, schema)
    )


def replace_names(text: str, names: Mapping[str, str]) -> str:
    """Return a text with names of tools replaced."""
    if not names:
        return text
    any_name = "|".join(re.escape(name) for name in names)
    quoted = rf"(?<=`)(?:{any_name})(?=`)"
    words = [name for name in names if "_" in name]
    # The longest first: a name may continue after a dot where another name ends.
    any_word = "|".join(re.escape(name) for name in sorted(words, key=len, reverse=True))
    pattern = quoted
    if words:
        pattern += rf"|(?<![\w./:-])(?:{any_word})(?![\w/:-])"
    return re.sub(pattern, lambda match: names[match[0]], text)


def _rename_in_schema(schema: Any, names: Mapping[str, str]) -> Any:
    """Replace names in texts under `description` only.

    Enumerations, defaults and names of properties are not prose.
    """
    if isinstance(schema, list):
        return [_rename_in_schema(item, names) for item in cast("list[Any]", schema)]
    if not isinstance(schema, Mapping):
        return schema
    changed: dict[str, Any] = {}
    for key, value in cast("Mapping[str, Any]", schema).items():
        if key == "description" and isinstance(value, str):
            changed[key] = replace_names(value, names)
        else:
            changed[key] = _rename_in_schema(value, names)
    return changed


class _RewordedArguments:
    """Arguments with other descriptions in their schema; they are checked as before."""

    def __init__(self, arguments: Arguments, schema: Mapping[str, Any]) -> None:
        self._arguments = arguments
        self._schema = schema

    @property
    def schema(self) -> Mapping[str, Any]:
        return self._schema

    def check(self, arguments: Mapping[str, Any]) -> CheckedArguments:
        return self._arguments.check(arguments)
