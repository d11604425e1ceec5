"""Load all hooks of a workspace and of its person, and decide which of them take effect.

    .ferrule/hooks/*.md  .harness/hooks/*.md
        one hook each (`files`)
    .ferrule/hooks.json  .harness/hooks.json
        the format of Claude Code (`claude_settings`); also `.yaml`
    `hooks:` of a bundle (`extensions.tool_files.bundles`)
        a list of hooks with a `name` each, for the turns of their bundle
    `hooks:` of harness.md and ferrule.yaml
        the same; in harness.md also the format of Claude Code

    .claude/settings.json  .claude/settings.local.json
        hooks that were written for Claude Code, as they are (`claude_settings`)

The same files are read from the person's own settings folder (`hooks/`, `hooks.json`) and from
`~/.claude/settings.json`, which need no trust. Those of a repository do nothing until a person
trusts it (`storage.trust`), and what was trusted is what runs. An invalid trusted file is an error:
an unreadable guard must not disappear silently. For the same reason no hook replaces another: all
of them apply, whatever they are called and wherever they come from.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from ferrule.core.errors import ConfigError
from ferrule.core.value_class import frozen
from ferrule.engine.hooks.answers import read_answer
from ferrule.engine.hooks.events import Action, EventHook, Occasion, block
from ferrule.extensions.front_matter import FileWarning, get_field, get_text, parse_document
from ferrule.extensions.starlark.pool import WorkerPool
from ferrule.extensions.tool_files.bundles import (
    CONFIGURATION_FOLDERS,
    MAIN_FILES,
    Bundle,
    CurrentMessages,
    collect_conditions,
    find_bundle_kind,
    parse_bundle,
    parse_fields,
)
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.storage.private_files import read_own_files
from ferrule.storage.settings.yaml_tree import Node, parse_yaml
from ferrule.storage.trust import (
    CLAUDE_SETTINGS,
    ConfigurationSnapshot,
    find_hook_programs,
)

from .claude_settings import HookAccess, parse_hook_settings
from .commands import HookCommandRunner
from .hook_file import parse_hook, parse_hook_node

_TABLES = ("hooks.json", "hooks.yaml")
MAX_HOOKS = 200
_INVALID_HINT = (
    "a hook may be a guard, so nothing runs without it: correct the file, or remove it if you do "
    "not need it"
)
_CLAUDE_FILE = "settings.json"


@frozen
class LoadedHooks:
    """The loaded hooks, for an Agent. Close it together with the agent.

    `inert` names the repository's hook files that have no effect because nobody trusts them,
    `guards` the hooks of the version that was trusted last, which still restrict.
    """

    hooks: tuple[EventHook, ...]
    warnings: tuple[FileWarning, ...] = ()
    inert: tuple[str, ...] = ()
    idle: tuple[str, ...] = ()
    """What has no effect in files that were written for another program: to be said once."""
    commands: tuple[HookCommandRunner, ...] = ()
    guards: tuple[str, ...] = ()

    async def close(self) -> None:
        """Release the resources of commands."""
        for commands in self.commands:
            await commands.close()


def load_hooks(
    snapshot: ConfigurationSnapshot,
    *,
    settings_folder: Path | None = None,
    claude_folder: Path | None = None,
    hosts: Iterable[str] = (),
    policy: SandboxPolicy | None = None,
    passed_on: Sequence[str] = (),
    pool: WorkerPool | None = None,
    messages: CurrentMessages | None = None,
) -> LoadedHooks:
    """Load the hooks of a workspace and of the person's settings folder.

    Args:
        snapshot: The workspace as `Trust.read` read it.
        settings_folder: The person's settings folder.
        claude_folder: The person's folder of Claude Code, None to leave its hooks out, and those
            of the workspace that were written for it.
        hosts: Hosts that web hooks may ask.
        policy: What commands may do. Default: the workspace, and no network.
        passed_on: Names of variables that commands get although they look like secrets.
        pool: The worker pool for scripts.
        messages: The current messages (`ScriptEnvironment.messages`), where bundles have tools.

    Raises:
        ConfigError: Files are invalid. It lists all problems, each with its place.
    """
    is_trusted = snapshot.state == "trusted"
    repository_files = _select_hook_files(snapshot.files, claude_folder)
    inert: tuple[str, ...] = ()
    if not is_trusted:
        contains_hooks = _hook_detector(repository_files)
        inert = tuple(sorted(filter(contains_hooks, repository_files)))
    links = [name for name in snapshot.links if _kind_of(name) or name in _folders()]
    if links and is_trusted:
        raise ConfigError(
            f"`{links[0]}` is a link: hooks are read from files only",
            hint="put the file itself there",
        )

    def load(
        files: Mapping[str, bytes],
        copies: dict[str, bytes],
        folder: Path | None = None,
        shown_below: str = "",
        other_programs: Sequence[str] = (),
    ) -> LoadedHooks:
        commands = HookCommandRunner(
            snapshot.workspace,
            copies,
            policy=policy,
            readable=folder,
            variables=_variables(files),
            passed_on=passed_on,
            other_programs=other_programs,
        )
        reading = _Reading(HookAccess(commands, tuple(hosts)), pool)
        return _load(reading, files, commands, messages, shown_below)

    parts: list[LoadedHooks] = []
    restricted: list[LoadedHooks] = []
    if repository_files and is_trusted:
        parts.append(load(repository_files, _hook_folder(snapshot.files)))
    kept_files = _select_hook_files(snapshot.kept, claude_folder)
    if kept_files:
        changed = [
            name
            for name in find_hook_programs(snapshot.kept)
            if snapshot.files.get(name) != snapshot.kept.get(name)
        ]
        guards = load(kept_files, _hook_folder(snapshot.kept), other_programs=changed)
        restricted.append(replace(guards, hooks=tuple(_keep_guards(guards.hooks))))
    parts += restricted
    if settings_folder is not None:
        own_files = _own_files(settings_folder)
        shown = f"{settings_folder}/"
        parts.append(load(own_files, _hook_folder(own_files), shown_below=shown))
    claude_files = _claude_files(claude_folder)
    if claude_files:
        parts.append(load(claude_files, {}, claude_folder))
    loaded = LoadedHooks(
        hooks=tuple(chain.from_iterable(part.hooks for part in parts)),
        warnings=tuple(chain.from_iterable(part.warnings for part in parts)),
        inert=inert,
        guards=tuple(hook.name for part in restricted for hook in part.hooks),
        idle=tuple(chain.from_iterable(part.idle for part in parts)),
        commands=tuple(chain.from_iterable(part.commands for part in parts)),
    )
    if len(loaded.hooks) > MAX_HOOKS:
        raise ConfigError(f"{len(loaded.hooks)} hooks, the bound is {MAX_HOOKS}")
    return loaded


def _select_hook_files(files: Mapping[str, bytes], claude_folder: Path | None) -> dict[str, bytes]:
    return {
        name: data
        for name, data in files.items()
        if _kind_of(name) and (claude_folder is not None or name not in CLAUDE_SETTINGS)
    }


_GUARDED = ("tool.pre", "tool.post", "delegation.pre")
"""Events on which hooks of a folder that is no longer trusted still run: they guard calls."""


def _keep_guards(hooks: Iterable[EventHook]) -> Iterator[EventHook]:
    """Yield hooks that refuse what these refuse of calls and their results, and do no more."""
    for hook in hooks:
        events = tuple(event for event in hook.events if event in _GUARDED)
        if events:
            yield replace(hook, events=events, run=_only_restrict(hook))


def _only_restrict(hook: EventHook) -> Callable[[Occasion], Awaitable[Action]]:
    """Return what runs a hook and lets its answer only restrict.

    A result may be changed, as that may be how a secret is kept from the model. A call that it
    would change or have another agent do is refused: as it is, the hook does not want it.
    """

    async def run(occasion: Occasion) -> Action:
        action = read_answer(await hook.run(occasion), occasion.payload)
        is_other = action.verdict == "delegate" or action.payload is not None
        if is_other and occasion.event != "tool.post":
            return block("it would change the call, and this folder is no longer trusted")
        return Action(action.verdict, action.reason, action.payload, stop=action.stop)

    return run


def _load(
    reading: _Reading,
    files: Mapping[str, bytes],
    commands: HookCommandRunner,
    turns: CurrentMessages | None,
    shown_below: str,
) -> LoadedHooks:
    for name in sorted(files):
        reading.take(name, files[name])
    hooks = reading.finish(turns or CurrentMessages())
    if reading.problems:
        problems = (f"{shown_below}{problem}" for problem in reading.problems)
        raise ConfigError("\n".join(problems), code="hooks", hint=_INVALID_HINT)
    return LoadedHooks(
        tuple(_with_distinct_names(hooks)),
        tuple(reading.warnings),
        idle=tuple(reading.idle),
        commands=(commands,),
    )


class _Reading:
    """Goes through files and collects their hooks and problems.

    `_bundled` are the hooks of bundles, by file.
    """

    def __init__(self, reach: HookAccess, pool: WorkerPool | None) -> None:
        self.warnings: list[FileWarning] = []
        self.idle: list[str] = []
        self.problems: list[str] = []
        self._hooks: list[EventHook] = []
        self._bundled: list[tuple[str, EventHook]] = []
        self._bundles: list[Bundle] = []
        self._reach = reach
        self._pool = pool

    def take(self, name: str, data: bytes) -> None:
        """Parse one file."""
        try:
            match _kind_of(name):
                case "table":
                    self._take_table(parse_yaml(data, name))
                case "claude":
                    self._take_claude_settings(data, name)
                case "file":
                    hook, warnings = parse_hook(data, name, self._reach, pool=self._pool)
                    self._hooks.append(hook)
                    self.warnings += warnings
                case "bundle":
                    # Warnings about the bundle itself are reported with its tools.
                    bundle, _ = parse_bundle(
                        find_bundle_kind(name), parse_document(data, name), data
                    )
                    self._bundles.append(bundle)
                    hooks = self._parse_list(bundle.fields, bundle.name, data)
                    self._bundled += [(name, hook) for hook in hooks]
                case _:
                    self._take_main_file(parse_fields(data, name), data)
        except ConfigError as error:
            self.problems.append(str(error))

    def finish(self, turns: CurrentMessages) -> list[EventHook]:
        """Return all hooks, those of bundles limited to their turns."""
        by_file, errors = collect_conditions(self._bundles)
        self.problems += [str(error) for error in errors]
        hooks = list(self._hooks)
        for file, hook in self._bundled:
            condition = by_file.get(file)
            hooks.append(hook if condition is None else condition.restrict(hook, turns))
        if by_file:
            hooks.append(turns.make_hook())
        return hooks

    def _take_claude_settings(self, data: bytes, name: str) -> None:
        try:
            tree = parse_yaml(data, name)
        except ConfigError as error:
            # Another program's file, which that program reports too: nothing here depends on it.
            place, _, problem = error.detail.partition(": ")
            self.warnings.append(FileWarning(place, f"{problem}; its hooks are left out"))
            return
        switch = get_field(tree, "disableAllHooks")
        if switch is None or switch.value is not True:
            self._take_table(tree, is_foreign=True)

    def _take_table(self, tree: Node, *, is_foreign: bool = False) -> None:
        parsed = parse_hook_settings(tree, self._reach, is_foreign=is_foreign)
        self._hooks += parsed.hooks
        if is_foreign:
            self.idle += map(str, parsed.idle)
        else:
            self.warnings += parsed.idle
        self.warnings += parsed.warnings

    def _take_main_file(self, fields: Node, data: bytes) -> None:
        hooks = get_field(fields, "hooks")
        if hooks is None or hooks.pairs is None:
            self._hooks += self._parse_list(fields, "", data)
        elif not fields.file.endswith(".yaml"):
            # In a settings file, a mapping `hooks` is a section of settings.
            self._take_table(fields)

    def _parse_list(self, fields: Node, bundle: str, data: bytes) -> list[EventHook]:
        """Parse the hooks of a list. An invalid one is a problem of its own."""
        hooks = get_field(fields, "hooks")
        if hooks is None:
            return []
        if hooks.items is None:
            raise hooks.error(
                "`hooks` must be a list of hooks",
                hint="write `- name: my_hook`, and its keys below",
            )
        parsed: list[EventHook] = []
        for number, item in enumerate(hooks.items, 1):
            try:
                name = _hook_name(item, bundle, number)
                hook, warnings = parse_hook_node(item, name, data, self._reach, pool=self._pool)
            except ConfigError as error:
                self.problems.append(str(error))
                continue
            parsed.append(hook)
            self.warnings += warnings
        return parsed


def _hook_name(item: Node, bundle: str, number: int) -> str:
    """Name a hook in a list: its own name, else one after its bundle or file."""
    named = get_text(item, "name") or get_text(item, "handler")
    return named or f"{bundle or item.file.rpartition('/')[2]} hook {number}"


def _hook_detector(files: Mapping[str, bytes]) -> Callable[[str], bool]:
    """Make a predicate that tells which of some untrusted files contain hooks.

    An unreadable file counts as having none.
    """

    def contains_hooks(name: str) -> bool:
        if _kind_of(name) in ("table", "file", "claude"):
            return True
        try:
            hooks = get_field(parse_fields(files[name], name), "hooks")
        except ConfigError:
            return False
        if hooks is None:
            return False
        is_settings_section = name.endswith(".yaml") and hooks.pairs is not None
        return not is_settings_section

    return contains_hooks


def _hook_folder(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return what commands find below `$FERRULE_HOOKS`.

    Raises ConfigError where two different files would have one name.
    """
    copies: dict[str, bytes] = {}
    parents = ("", *(f"{root}/" for root in CONFIGURATION_FOLDERS))
    for name, data in files.items():
        folder, _, rest = name.partition("hooks/")
        if folder not in parents or not rest:
            continue
        if copies.setdefault(rest, data) != data:
            raise ConfigError(
                f"`{name}`: there is another hook file `{rest}`", hint="give them different names"
            )
    return copies


def _kind_of(name: str) -> str | None:
    """Return `file`, `table`, `bundle`, `main`, `claude` or None, by the place of a file.

    Names are relative to the workspace, or to the person's folder (`hooks/x.md`).
    """
    if name in CLAUDE_SETTINGS or name.startswith("~/"):
        return "claude"
    if name in MAIN_FILES:
        return "main"
    if find_bundle_kind(name):
        return "bundle"
    folder, _, rest = name.partition("/")
    if folder in CONFIGURATION_FOLDERS:
        name = rest
    if name in _TABLES:
        return "table"
    folder, _, leaf = name.partition("/")
    if folder == "hooks" and "/" not in leaf and leaf.endswith(".md"):
        return "file"
    return None


def _folders() -> frozenset[str]:
    return frozenset((*CONFIGURATION_FOLDERS, *(f"{root}/hooks" for root in CONFIGURATION_FOLDERS)))


def _own_files(folder: Path) -> dict[str, bytes]:
    """Read the hook files of a settings folder. A file that others may write to is refused."""
    tables = (folder / name for name in _TABLES)
    return read_own_files(folder, (*tables, *sorted((folder / "hooks").glob("**/*"))))


def find_own_programs(settings_folder: Path, claude_folder: Path | None) -> tuple[str, ...]:
    """Return the programs of a workspace that the person's own hooks start by a path in it."""
    return find_hook_programs({**_own_files(settings_folder), **_claude_files(claude_folder)})


def _claude_files(folder: Path | None) -> dict[str, bytes]:
    """Read the person's settings of Claude Code if they have hooks."""
    path = folder / _CLAUDE_FILE if folder is not None else None
    if path is None or not path.is_file():
        return {}
    data = path.read_bytes()
    if b'"hooks"' not in data:
        return {}
    status = path.stat()
    if status.st_uid not in (os.getuid(), 0) or status.st_mode & 0o002:
        raise ConfigError(
            f"`{path}`: others can write it", hint=f"check it, then `chmod o-w {path}`"
        )
    return {f"~/.claude/{_CLAUDE_FILE}": data}


def _variables(files: Mapping[str, bytes]) -> dict[str, str]:
    """Return the variables that settings of Claude Code set for what they run (`env`)."""
    found: dict[str, str] = {}
    for name in files:
        if _kind_of(name) != "claude":
            continue
        try:
            node = get_field(parse_yaml(files[name], name), "env")
        except ConfigError:
            continue  # reported with its hooks
        pairs = node.pairs if node is not None else None
        for key, (_, value) in (pairs or {}).items():
            if isinstance(value.value, (str, int)) and not isinstance(value.value, bool):
                found[key] = str(value.value)
    return found


def _with_distinct_names(hooks: Iterable[EventHook]) -> Iterable[EventHook]:
    """Rename hooks whose name is taken, after the file they come from."""
    taken: set[str] = set()
    for hook in hooks:
        if hook.name in taken:
            name = re.sub(r"[^A-Za-z0-9_.:/ -]", "_", f"{hook.name} of {hook.source}")
            yield replace(hook, name=name[:128])
        else:
            yield hook
        taken.add(hook.name)
