"""All hooks of a workspace and of its person: which files there are, which of them take effect, and what is wrong with them.

    .ferrule/hooks/*.md  .harness/hooks/*.md        one hook each (`files`)
    .ferrule/hooks.json  .harness/hooks.json        the shape of Claude Code (`configured`); also `.yaml`

The same in the person's own settings folder (`hooks/`, `hooks.json`), which is theirs and needs no trust. What a repository brings
does nothing until a person trusts it as it stands (`store.trust`), and what was trusted is what runs. A trusted file that is wrong is
an error: a guard that is there and cannot be read must not be gone in silence.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ferrule.core.errors import ConfigError
from ferrule.engine.hook_events import EventHook
from ferrule.extend.front_matter import Warned
from ferrule.extend.starlark.pool import Pool
from ferrule.guard.sandbox.policy import Policy
from ferrule.store.trust import Snapshot
from ferrule.store.yaml_tree import parse_yaml

from .commands import HookCommands
from .configured import Reach, read_configured
from .files import read_hook

ROOTS = (".ferrule", ".harness")
_TABLES = ("hooks.json", "hooks.yaml")
MOST_HOOKS = 200


@dataclass(frozen=True, slots=True)
class LoadedHooks:
    """`hooks` are for an Agent. `inert` names the repository's hook files that have no effect because nobody trusts them.

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
) -> LoadedHooks:
    """The hooks of a workspace as `Trust.look` saw it, and of `own`, the person's settings folder.

    `hosts` are those that web hooks may ask, `policy` what commands may do (by default: the workspace, no network). Raises
    ConfigError, all problems at once, each with its place.
    """
    theirs = {name: data for name, data in seen.files.items() if _is_hook(name) is not None}
    inert = tuple(sorted(theirs)) if seen.state != "trusted" else ()
    linked = [name for name in seen.links if _is_hook(name) is not None or name in _folders()]
    if linked and seen.state == "trusted":
        raise ConfigError(
            f"`{linked[0]}` is a link: hooks are read from files only", hint="put the file itself there"
        )
    loaded = (
        [_load(theirs, seen.files, seen.workspace, tuple(hosts), policy, pool)]
        if theirs and not inert
        else []
    )
    if own is not None:
        mine = _own_files(own)
        loaded.append(_load(mine, mine, seen.workspace, tuple(hosts), policy, pool))
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
) -> LoadedHooks:
    commands = HookCommands(root, _copies(beside), policy=policy)
    reach = Reach(commands, hosts)
    hooks: list[EventHook] = []
    warnings: list[Warned] = []
    problems: list[str] = []
    for name in sorted(files):
        try:
            if _is_hook(name) == "table":
                read = read_configured(parse_yaml(files[name], name), reach)
                hooks += read.hooks
                warnings += read.warnings
            else:
                hook, warned = read_hook(files[name], name, reach, pool=pool)
                hooks.append(hook)
                warnings += warned
        except ConfigError as error:
            problems.append(str(error))
    if problems:
        raise ConfigError("\n".join(problems), code="hooks")
    return LoadedHooks(tuple(_distinct(hooks)), tuple(warnings), (), (commands,))


def _copies(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """What commands find below `$FERRULE_HOOKS`. Raises ConfigError where two different files would have one name."""
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
    """`file`, `table` or None. Names are relative to the workspace, or to the person's folder (`hooks/x.md`)."""
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
        yield hook if hook.name not in seen else replace(hook, name=f"{hook.name} ({hook.source})")
        seen.add(hook.name)
