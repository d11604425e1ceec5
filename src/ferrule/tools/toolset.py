"""Toolsets: what is done to tools as a set, as small functions over sequences of `Tool`.

Each takes tools and gives tools, in the order they came, and knows nothing of the others; so they
compose:

    tools = toolset.select(pack, ["read"], without=["git_inspect"])
    tools = toolset.renamed(tools, {"read_file": "look"})
    tools = toolset.namespaced(tools, "release")

A tool has a *logical key* (what it is, whatever it is called by now: its first name unless `keyed`
says otherwise) and *groups*. Both are kept in its annotations, beside what a program may want to
know:

    key, groups                     set by `keyed`
    result_readers, see_also        names of other tools of the set; they follow a rename (`LINKS`)
    defer_loading                   set by `deferred`: no schema until a tool search found it, where the engine has one

Everything here is said by the person who builds the set, so what cannot be meant raises ConfigError
naming the nearest word. Not changed by a rename: what a handler says while it runs (its error
messages), and rules that name a tool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, cast

from ferrule.core.errors import ConfigError

from .definition import Loading, Risk, SideEffect, Tool
from .description_names import reworded
from .names import check_name, check_namespace, wire_names
from .reliability import Policies, Reliability

Tools = tuple[Tool, ...]

EVERY = "*"
"""Stands for all tools of a set, where words go to settings."""

LINKS = ("result_readers", "see_also")
"""Annotations that hold names of other tools: one, or a list."""

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


def key_of(tool: Tool) -> str:
    """The logical key of a tool."""
    return str(tool.annotations.get("key") or tool.name)


def groups_of(tool: Tool) -> tuple[str, ...]:
    """The groups a tool is in."""
    return tuple(tool.annotations.get("groups", ()))


def keyed(tools: Iterable[Tool], *groups: str, keys: Mapping[str, str] | None = None) -> Tools:
    """Put tools into groups (beside those they are in), and give some a logical key: `keys` maps
    names to keys.
    """
    found: list[Tool] = []
    for tool in tools:
        joined = tuple(dict.fromkeys((*groups_of(tool), *groups)))
        key = (keys or {}).get(tool.name, key_of(tool))
        found.append(replace(tool, annotations={**tool.annotations, "key": key, "groups": joined}))
    return tuple(found)


# ---- which tools


def select(
    tools: Iterable[Tool], enabled: Iterable[str] | None = None, *, without: Iterable[str] = ()
) -> Tools:
    """Tools named by logical key, name or group (`all` and `*`: every one), less those named in
    `without`.

    `enabled` None means all. Links to tools that are left out are dropped. Raises ConfigError for a
    word that names nothing, in either list.
    """
    items = tuple(tools)
    wanted = set(range(len(items))) if enabled is None else _named(items, enabled, "enabled_tools")
    wanted -= _named(items, without, "disabled_tools")
    gone = {tool.full_name for number, tool in enumerate(items) if number not in wanted}
    return tuple(_unlinked(tool, gone) for number, tool in enumerate(items) if number in wanted)


def _unlinked(tool: Tool, gone: set[str]) -> Tool:
    """The tool without links to tools that are not there any more."""
    links = {name: tool.annotations[name] for name in LINKS if tool.annotations.get(name)}
    changed: dict[str, Any] = {}
    for name, value in links.items():
        targets = cast("list[str]", [value] if isinstance(value, str) else value)
        if not gone.isdisjoint(targets):
            changed[name] = [target for target in targets if target not in gone]
    return replace(tool, annotations={**tool.annotations, **changed}) if changed else tool


def _named(items: Tools, words: Iterable[str], where: str) -> set[int]:
    found: set[int] = set()
    for word in _listed(words, where):
        hit = {n for n, tool in enumerate(items) if word in ("all", EVERY, *_words(tool))}
        if not hit:
            raise _unknown(where, word, [w for tool in items for w in _words(tool)])
        found |= hit
    return found


def _words(tool: Tool) -> tuple[str, ...]:
    return (key_of(tool), tool.name, *groups_of(tool))


def _listed(words: Iterable[str], where: str) -> list[str]:
    if isinstance(words, str):
        raise ConfigError(f"{where}: found the text {words!r}", hint=f"give a list: [{words!r}]")
    return list(words)


def _unknown(where: str, word: object, known: Sequence[str]) -> ConfigError:
    near = get_close_matches(str(word), known, n=1)
    listed = ", ".join(f"`{name}`" for name in sorted(set(known)))
    hint = f"did you mean `{near[0]}`?" if near else f"there are: {listed or 'none'}"
    return ConfigError(f"{where}: nothing here is called `{word}`", hint=hint)


def named_settings(
    items: Tools, given: Mapping[str, Any], where: str, *, shared: bool = False
) -> dict[int, Any]:
    """Settings by logical key or name -> settings by position. With `shared`, `*` is left to the
    caller.
    """
    found: dict[int, Any] = {}
    for word, value in given.items():
        if shared and word == EVERY:
            continue
        hits = [n for n, tool in enumerate(items) if word in (key_of(tool), tool.name)]
        if not hits:
            raise _unknown(where, word, [w for tool in items for w in (key_of(tool), tool.name)])
        found.update(dict.fromkeys(hits, value))
    return found


# ---- what they are called and say


def renamed(tools: Iterable[Tool], names: Mapping[str, str]) -> Tools:
    """Give tools other names; `names` maps logical keys (or names) to names.

    Whatever mentions a renamed tool follows: `LINKS` in annotations, and descriptions of tools and
    parameters, where the old name stands in back-ticks or could be no ordinary word (it holds a
    `_`). Raises ConfigError for an unknown key and for two tools of one name, ToolDefinitionError
    for what cannot be a name.
    """
    items = tuple(tools)
    new = named_settings(items, names, "names")
    for name in new.values():
        check_name(name)
    after = [replace(tool, name=new[n]) if n in new else tool for n, tool in enumerate(items)]
    _check_unique(after)
    kept = [
        replace(t, annotations={"key": key_of(old), **t.annotations})
        for old, t in zip(items, after, strict=True)
    ]
    mentions = {items[n].name: name for n, name in new.items() if items[n].name != name}
    links = {items[n].full_name: after[n].full_name for n in new}
    return tuple(_followed(tool, mentions, links) for tool in kept)


def namespaced(tools: Iterable[Tool], namespace: str) -> Tools:
    """Put tools into a namespace. What mentions them says what a model will see:
    `release__read_file`.
    """
    if namespace == "":
        raise ConfigError("namespace: found nothing", hint="give a name, or leave it out")
    check_namespace(namespace)
    items = tuple(tools)
    after = [replace(tool, namespace=namespace) for tool in items]
    wire = wire_names([tool.full_name for tool in after])
    mentions = {old.name: wire[new.full_name] for old, new in zip(items, after, strict=True)}
    links = {old.full_name: new.full_name for old, new in zip(items, after, strict=True)}
    return tuple(_followed(tool, mentions, links) for tool in after)


def _check_unique(items: Sequence[Tool]) -> None:
    seen: dict[str, Tool] = {}
    for tool in items:
        other = seen.setdefault(tool.full_name, tool)
        if other is not tool:
            raise ConfigError(
                (
                    f"names: `{key_of(other)}` and `{key_of(tool)}` would both be called "
                    f"`{tool.full_name}`"
                ),
                hint="give one of them another name",
            )


def _followed(tool: Tool, mentions: Mapping[str, str], links: Mapping[str, str]) -> Tool:
    tool = reworded(tool, mentions)
    changed = {
        name: _linked(tool.annotations[name], links) for name in LINKS if name in tool.annotations
    }
    return replace(tool, annotations={**tool.annotations, **changed}) if changed else tool


def _linked(value: Any, links: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return links.get(value, value)
    return [links.get(name, name) for name in cast("list[str]", value)]


def described(tools: Iterable[Tool], descriptions: Mapping[str, str]) -> Tools:
    """Give tools other descriptions, by logical key or name."""
    items = tuple(tools)
    new = named_settings(items, descriptions, "descriptions")
    for number, text in new.items():
        if not text.strip():
            raise ConfigError(
                f"descriptions: that of `{key_of(items[number])}` is empty",
                hint="say in a sentence what it does",
            )
    return tuple(
        replace(tool, description=new[n]) if n in new else tool for n, tool in enumerate(items)
    )


# ---- what else is known of them


def annotated(tools: Iterable[Tool], annotations: Mapping[str, Mapping[str, Any]]) -> Tools:
    """Merge annotations into tools: those under `*` into all, those under a logical key or name
    over them.
    """
    items = tuple(tools)
    shared = annotations.get(EVERY, {})
    own = named_settings(items, annotations, "annotations", shared=True)
    for word, value in annotations.items():
        if not isinstance(value, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]  said by people
            raise ConfigError(
                f"annotations: those of `{word}` are {value!r}", hint="give a mapping"
            )
    return tuple(
        replace(tool, annotations={**tool.annotations, **shared, **own.get(n, {})})
        for n, tool in enumerate(items)
    )


def deferred(
    tools: Iterable[Tool], names: Iterable[str] | None = None, *, defer: bool = True
) -> Tools:
    """Mark tools (all, or those named by key, name or group) as deferred.

    The mark is `Tool.loading`, and the annotation `defer_loading`. It takes effect where a run has
    a tool search; without one a deferred tool is offered like any other. Tools for other tools
    alone stay that.
    """
    if not isinstance(defer, bool):  # pyright: ignore[reportUnnecessaryIsInstance]  said by people
        raise ConfigError(f"defer_loading: found {defer!r}", hint="say true or false")
    items = tuple(tools)
    wanted = set(range(len(items))) if names is None else _named(items, names, "defer_loading")
    return tuple(
        replace(
            tool,
            annotations={**tool.annotations, "defer_loading": defer},
            loading=_loading(tool, defer),
        )
        if n in wanted
        else tool
        for n, tool in enumerate(items)
    )


def _loading(tool: Tool, defer: bool) -> Loading:
    if tool.loading is Loading.INTERNAL:
        return tool.loading
    return Loading.DEFERRED if defer else Loading.ALWAYS


def configured(tools: Iterable[Tool], config: Mapping[str, Mapping[str, Any]]) -> Tools:
    """Override what tools say of themselves, by logical key or name, `*` for all (a tool's own
    entry wins).

    Takes the words of `@tool` (`risk`, `side_effect`, `timeout`, `scopes`, `cost`, ...),
    `description`, `annotations` (merged) and `defer_loading`. Raises ConfigError for an unknown
    word, naming the nearest, and for an impossible value.
    """
    items = tuple(tools)
    own = named_settings(items, config, "tool_config", shared=True)
    shared = config.get(EVERY, {})
    return tuple(_configured(tool, {**shared, **own.get(n, {})}) for n, tool in enumerate(items))


def governed(tools: Iterable[Tool], policies: Policies) -> Tools:
    """Tools under policies of attempts and times, by their full names. What a tool says of itself
    is weaker than its own entry only.
    """
    made = ((tool, policies.of(tool.full_name, tool.reliability)) for tool in tools)
    return tuple(
        tool if tool.reliability == wanted else replace(tool, reliability=wanted)
        for tool, wanted in made
    )


def _configured(tool: Tool, given: Mapping[str, Any]) -> Tool:
    where = f"tool_config of `{key_of(tool)}`"
    fields: dict[str, Any] = {}
    for word, value in given.items():
        if word not in _CONFIG:
            raise _unknown(where, word, _CONFIG)
        if word in ("timeout", "max_attempts", "defer_loading", "annotations"):
            continue
        try:
            fields[word] = _READ[word](value) if word in _READ else value
        except (ValueError, TypeError) as error:
            raise ConfigError(f"{where}: {error}", hint=f"`{word}` cannot be {value!r}") from error
    if shell := {word: given[word] for word in ("timeout", "max_attempts") if word in given}:
        fields["reliability"] = _reliability(
            where, fields.get("reliability", tool.reliability), shell
        )
    changed = replace(tool, **fields)
    if "annotations" in given:
        changed = annotated([changed], {EVERY: given["annotations"]})[0]
    return (
        deferred([changed], defer=given["defer_loading"])[0]
        if "defer_loading" in given
        else changed
    )


def _reliability(where: str, base: Reliability, given: Mapping[str, Any]) -> Reliability:
    try:
        return replace(base, **given)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{where}: {error}") from error


_READ: Mapping[str, Callable[[Any], Any]] = {
    "side_effect": SideEffect,
    "risk": Risk,
    "scopes": frozenset,
    "examples": tuple,
}
