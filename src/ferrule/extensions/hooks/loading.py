"""All hooks of a workspace and of its person: which files there are, which of them take effect, and
what is wrong with them.

    .ferrule/hooks/*.md  .harness/hooks/*.md        one hook each (`files`)
    .ferrule/hooks.json  .harness/hooks.json        the shape of Claude Code (`claude_settings`); also `.yaml`
    `hooks:` of a bundle (`extensions.tool_files.bundles`)         a list of hooks with a `name` each, asked in the turns of their bundle
    `hooks:` of harness.md and ferrule.yaml         the same; in harness.md also the shape of Claude Code

The same in the person's own settings folder (`hooks/`, `hooks.json`), which is theirs and needs no
trust. What a repository brings does nothing until a person trusts it as it stands
(`storage.trust`), and what was trusted is what runs. A trusted file that is wrong is an error: a
guard that is there and cannot be read must not be gone in silence. For the same reason no hook
takes the place of
another: all of them hold, whatever they are called and wherever they come from.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ferrule.core.errors import ConfigError
from ferrule.engine.hooks.events import EventHook
from ferrule.extensions.front_matter import Warned, field, parse_document, text_of
from ferrule.extensions.starlark.pool import Pool
from ferrule.extensions.tool_files.bundles import (
    INLINE,
    ROOTS,
    Bundle,
    Condition,
    Turns,
    conditions,
    fields_of,
    kind_of,
    read_bundle,
)
from ferrule.sandbox.policy import Policy
from ferrule.storage.settings.yaml_tree import Node, parse_yaml
from ferrule.storage.trust import Snapshot

from .claude_settings import Reach, read_configured
from .commands import HookCommands
from .files import read_hook, read_hook_node

_TABLES = ("hooks.json", "hooks.yaml")
MOST_HOOKS = 200


@dataclass(frozen=True, slots=True)
class LoadedHooks:
    """`hooks` are for an Agent. `inert` names the repository's hook files that have no effect
    because nobody trusts them.

    Close it when the agent is closed: it holds what commands need.
    """

    hooks: tuple[EventHook, ...]
    warnings: tuple[Warned, ...] = ()
    inert: tuple[str, ...] = ()
    commands: tuple[HookCommands, ...] = ()

    async def close(self) -> None:
        """Give back what commands needed."""
        for commands in self.commands:
            await commands.close()


def load_hooks(
    seen: Snapshot,
    *,
    own: Path | None = None,
    hosts: Iterable[str] = (),
    policy: Policy | None = None,
    pool: Pool | None = None,
    turns: Turns | None = None,
) -> LoadedHooks:
    """The hooks of a workspace as `Trust.look` saw it, and of `own`, the person's settings folder.

    `hosts` are those that web hooks may ask, `policy` what commands may do (by default: the
    workspace, no network), `turns` those of the tools (`World.turns`), where bundles have tools.
    Raises ConfigError, all problems at once, each with its place.
    """
    theirs = {name: data for name, data in seen.files.items() if _is_hook(name) is not None}
    inert = tuple(sorted(filter(_hooks_in(theirs), theirs))) if seen.state != "trusted" else ()
    linked = [name for name in seen.links if _is_hook(name) is not None or name in _folders()]
    if linked and seen.state == "trusted":
        raise ConfigError(
            f"`{linked[0]}` is a link: hooks are read from files only",
            hint="put the file itself there",
        )
    loaded = (
        [_load(theirs, seen.files, seen.workspace, tuple(hosts), policy, pool, turns)]
        if theirs and seen.state == "trusted"
        else []
    )
    if own is not None:
        mine = _own_files(own)
        loaded.append(_load(mine, mine, seen.workspace, tuple(hosts), policy, pool, turns))
    hooks = tuple(hook for part in loaded for hook in part.hooks)
    if len(hooks) > MOST_HOOKS:
        raise ConfigError(f"{len(hooks)} hooks, the bound is {MOST_HOOKS}")
    return LoadedHooks(
        hooks,
        tuple(warning for part in loaded for warning in part.warnings),
        inert,
        tuple(commands for part in loaded for commands in part.commands),
    )


def _load(
    files: Mapping[str, bytes],
    beside: Mapping[str, bytes],
    root: str,
    hosts: tuple[str, ...],
    policy: Policy | None,
    pool: Pool | None,
    turns: Turns | None,
) -> LoadedHooks:
    commands = HookCommands(root, _copies(beside), policy=policy)
    reading = _Reading(Reach(commands, hosts), pool)
    for name in sorted(files):
        reading.take(name, files[name])
    hooks = reading.finished(turns or Turns())
    if reading.problems:
        raise ConfigError("\n".join(reading.problems), code="hooks")
    return LoadedHooks(tuple(_distinct(hooks)), tuple(reading.warnings), (), (commands,))


class _Reading:
    """Goes through files and keeps the hooks they hold, problems included. `_bundled` are those of
    bundles, by file.
    """

    def __init__(self, reach: Reach, pool: Pool | None) -> None:
        self.warnings: list[Warned] = []
        self.problems: list[str] = []
        self._hooks: list[EventHook] = []
        self._bundled: list[tuple[str, EventHook]] = []
        self._bundles: list[Bundle] = []
        self._reach, self._pool = reach, pool

    def take(self, name: str, data: bytes) -> None:
        """Read one file."""
        try:
            match _is_hook(name):
                case "table":
                    self._table(parse_yaml(data, name))
                case "file":
                    hook, warned = read_hook(data, name, self._reach, pool=self._pool)
                    self._hooks.append(hook)
                    self.warnings += warned
                case "bundle":
                    # What is odd about the bundle itself is said with its tools.
                    bundle, _ = read_bundle(kind_of(name), parse_document(data, name), data)
                    self._bundles.append(bundle)
                    self._bundled += [
                        (name, hook) for hook in self._listed(bundle.fields, bundle.name, data)
                    ]
                case _:
                    self._inline(fields_of(data, name), data)
        except ConfigError as error:
            self.problems.append(str(error))

    def finished(self, turns: Turns) -> list[EventHook]:
        """All hooks, those of bundles kept to their turns."""
        held, wrong = conditions(self._bundles)
        self.problems += [str(error) for error in wrong]
        bundled = [_kept(hook, held.get(file), turns) for file, hook in self._bundled]
        return [*self._hooks, *bundled, *([turns.hook()] if held else [])]

    def _table(self, tree: Node) -> None:
        read = read_configured(tree, self._reach)
        self._hooks += read.hooks
        self.warnings += read.warnings

    def _inline(self, fields: Node, data: bytes) -> None:
        hooks = field(fields, "hooks")
        if hooks is None or hooks.pairs is None:
            self._hooks += self._listed(fields, "", data)
        elif not fields.file.endswith(".yaml"):
            self._table(
                fields
            )  # In a settings file a mapping of that name is a section of settings.

    def _listed(self, fields: Node, bundle: str, data: bytes) -> list[EventHook]:
        """The hooks of a list. One that is wrong is a problem of its own."""
        hooks = field(fields, "hooks")
        if hooks is None:
            return []
        if hooks.items is None:
            raise hooks.error(
                "`hooks` must be a list of hooks",
                hint="write `- name: my_hook`, and its keys below",
            )
        found: list[EventHook] = []
        for number, item in enumerate(hooks.items, 1):
            try:
                hook, warned = read_hook_node(
                    item, _name(item, bundle, number), data, self._reach, pool=self._pool
                )
                found.append(hook)
                self.warnings += warned
            except ConfigError as error:
                self.problems.append(str(error))
        return found


def _kept(hook: EventHook, condition: Condition | None, turns: Turns) -> EventHook:
    return hook if condition is None else condition.over(hook, turns)


def _name(item: Node, bundle: str, number: int) -> str:
    """What a hook in a list is called: by itself, else after its bundle or its file."""
    named = text_of(item, "name") or text_of(item, "handler")
    return named or f"{bundle or item.file.rpartition('/')[2]} hook {number}"


def _hooks_in(files: Mapping[str, bytes]) -> Callable[[str], bool]:
    """Whether a file holds hooks, of files that nobody trusts yet: one that cannot be read says
    nothing.
    """

    def holds(name: str) -> bool:
        if _is_hook(name) in ("table", "file"):
            return True
        try:
            found = field(fields_of(files[name], name), "hooks")
        except ConfigError:
            return False
        return found is not None and not (name.endswith(".yaml") and found.pairs is not None)

    return holds


def _copies(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """What commands find below `$FERRULE_HOOKS`. Raises ConfigError where two different files would
    have one name.
    """
    found: dict[str, bytes] = {}
    for name, data in files.items():
        folder, _, rest = name.partition("hooks/")
        if folder not in ("", *(f"{root}/" for root in ROOTS)) or not rest:
            continue
        if found.setdefault(rest, data) != data:
            raise ConfigError(
                f"`{name}`: there is another hook file `{rest}`", hint="give them different names"
            )
    return found


def _is_hook(name: str) -> str | None:
    """`file`, `table`, `bundle`, `main` or None. Names are relative to the workspace, or to the
    person's folder (`hooks/x.md`).
    """
    if name in INLINE:
        return "main"
    if kind_of(name):
        return "bundle"
    folder, _, rest = name.partition("/")
    if folder in ROOTS:
        name = rest
    if name in _TABLES:
        return "table"
    parts = name.split("/")
    return "file" if len(parts) == 2 and parts[0] == "hooks" and parts[1].endswith(".md") else None


def _folders() -> frozenset[str]:
    return frozenset((*ROOTS, *(f"{root}/hooks" for root in ROOTS)))


def _own_files(folder: Path) -> dict[str, bytes]:
    """What a person's settings folder holds; a folder that others may write to is refused."""
    found: dict[str, bytes] = {}
    for path in (*(folder / name for name in _TABLES), *sorted((folder / "hooks").glob("**/*"))):
        if path.is_file():
            about = path.stat()
            if about.st_uid not in (os.getuid(), 0) or about.st_mode & 0o022:
                raise ConfigError(
                    f"`{path}`: others can write it", hint=f"check it, then `chmod go-w {path}`"
                )
            found[path.relative_to(folder).as_posix()] = path.read_bytes()
    return found


def _distinct(hooks: Iterable[EventHook]) -> Iterable[EventHook]:
    """Two hooks with one name are told apart by where they stand."""
    seen: set[str] = set()
    for hook in hooks:
        where = re.sub(r"[^A-Za-z0-9_.:/ -]", "_", f"{hook.name} of {hook.source}")
        yield hook if hook.name not in seen else replace(hook, name=where[:128])
        seen.add(hook.name)
