"""The settings of a run: read from every layer, merged, and ready to use.

    default  <  <config>/ferrule.yaml  <  <workspace>/.ferrule/ferrule.yaml  <  FERRULE_…  <  flags

The file in the workspace is used only as it was trusted (`storage.trust`), and only for what the
table lets a repository do. Lists that extend (rules, names that are off limits) gather the items of
all layers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from ferrule.core.errors import ConfigError
from ferrule.core.frozen import frozen
from ferrule.core.limits import Limits
from ferrule.permissions.rules import RuleSet
from ferrule.storage import paths
from ferrule.storage.store_urls import is_address, no_password
from ferrule.storage.trust import PROJECT_FILE, Snapshot, Trust, is_python_file

from .merge import ORDER, Merged, Origin, declared
from .table import ALIASES, BY_KEY, SAME_AS, SETTINGS
from .values import Entries, Entry, read_environment, read_flags, read_tree, unknown
from .yaml_tree import parse_yaml

NAME = "ferrule.yaml"
"""The file's name in the config folder; in a workspace it is `PROJECT_FILE`."""


@frozen
class ForModel:
    """What holds for one model. None leaves the provider's default."""

    limits: Limits
    tools_enabled: bool
    tool_mode: str
    results: str
    num_ctx: int | None
    temperature: float | None
    max_output_tokens: int | None
    thinking: bool | str | None
    seed: int | None
    timeout: float | None
    provider_tools: tuple[Mapping[str, Any], ...] | None = None


@frozen
class Provider:
    """Where a provider is. `api_key_env` names the variable that holds the key.
    `force_native_tool_search`: see the wires that take it.
    """

    base_url: str = ""
    api_key_env: str = ""
    ca_bundle: Path | None = None
    provider_tools: tuple[Mapping[str, Any], ...] = ()
    force_native_tool_search: bool = False


@frozen
class Settings:
    """All settings with their origins. Made by `load_settings`; `values` holds them by the key of
    the table.

    `notices` are sentences for the person: what was not taken, and why. `workspace` and `journal`
    are absolute; a `journal` that is text is the address of a database (`storage.locations`).
    """

    values: Mapping[str, Any]
    origins: Mapping[str, Origin]
    rules: RuleSet = field(default_factory=RuleSet)
    notices: tuple[str, ...] = ()
    workspace: Path = field(default_factory=Path.cwd)
    journal: Path | str = field(default_factory=paths.journal)
    repository: Snapshot = Snapshot("", "absent", "")
    """The workspace's own configuration as it was read once: what else takes effect of it is taken
    from here.
    """

    def __getitem__(self, key: str) -> Any:
        """The value of a key. Raises ConfigError for an unknown one."""
        key = ALIASES.get(key, key)
        if key not in self.values:
            raise unknown("settings", key)
        return self.values[key]

    def origin(self, key: str) -> Origin:
        """Where the value of a key comes from."""
        return self.origins.get(ALIASES.get(key, key), Origin())

    @property
    def model(self) -> str:
        return self["model"]

    @property
    def mode(self) -> str:
        return self["mode"]

    @property
    def limits(self) -> Limits:
        """The limits for all models; `for_model` gives those of one."""
        return Limits(**{name: self[f"limits.{name}"] for name in _LIMITS})

    def for_model(self, name: str) -> ForModel:
        """What holds for a model, by its full name; an entry without a provider holds for every
        provider's.

        Between an entry of the model and the setting for all, the stronger layer wins; the entry
        within one. What a repository sets for all models can only tighten an entry.
        """

        def chosen(key: str) -> Any:
            entry = next((n for n in _entries_for(name, key) if n in self.values), "")
            same = SAME_AS.get(key, "")
            if not entry:
                return self[same] if same else None
            if not same or _strength(self.origin(same)) <= _strength(self.origin(entry)):
                return self.values[entry]
            if self.origin(same).layer == "project" and declared(same).project in ("lower", "off"):
                return min(self[same], self.values[entry])
            return self[same]

        limits = {key: chosen(key) if key in SAME_AS else self[f"limits.{key}"] for key in _LIMITS}
        others = {key: chosen(key) for key in ForModel.__dataclass_fields__ if key != "limits"}
        return ForModel(Limits(**limits), **others)

    def provider(self, name: str) -> Provider:
        """Where a provider is, as the person set it."""
        found = {
            key: self.values.get(f"providers.{name}.{key}") for key in Provider.__dataclass_fields__
        }
        bundle = found.pop("ca_bundle")
        given = {key: value for key, value in found.items() if value}
        return Provider(**given, ca_bundle=Path(bundle).expanduser() if bundle else None)

    def explain(self) -> Iterator[tuple[str, Any, Origin, str]]:
        """`(key, value, origin, what it is)` of every setting, in the order of the table, then per
        model and provider.
        """
        own = sorted(key for key in self.values if key not in BY_KEY)
        for key in (*(s.key for s in SETTINGS if s.key in self.values), *own):
            yield key, self.values[key], self.origin(key), declared(key).short


_LIMITS = (
    "max_rounds",
    "max_calls_per_round",
    "max_output_bytes",
    "max_seconds",
    "max_tokens",
    "on_limit",
    "max_cost",
    "max_calls",
    "warn_at",
)


def _entries_for(name: str, key: str) -> tuple[str, ...]:
    bare = name.partition(":")[2]
    return (f"models.{name}.{key}", *((f"models.{bare}.{key}",) if bare else ()))


def _strength(origin: Origin) -> int:
    return ORDER.index(origin.layer)


def load_settings(
    *,
    workspace: str | Path | None = None,
    flags: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    user_file: Path | None = None,
    trust: Trust | None = None,
) -> Settings:
    """Read and merge all layers. `flags` are settings by key, as text or typed; None means not
    given.

    The workspace is the one given, else the one that flags, environment or the user's file name,
    else the current folder. Raises ConfigError naming the place of the first thing that is wrong.
    """
    merged = Merged()
    own_file = user_file or paths.config() / NAME
    user = _read_file(own_file)
    from_environment, notices = read_environment(os.environ if environment is None else environment)
    from_flags = read_flags(flags or {})
    root = _workspace(workspace, user, from_environment, from_flags)
    if user_file is None:
        _check_own(own_file.parent, root)
    merged.notices += notices
    merged.add("user", _placed(user, own_file.parent), root=str(own_file.parent))
    repository = (trust or Trust()).look(root)
    merged.add("project", _read_project(root, repository, merged.notices))
    merged.add("environment", from_environment)
    merged.add("flags", from_flags)
    for key in ("journal.path", "artifacts.store"):
        if is_address(given := merged.values[key]):
            no_password(given, merged.origins[key].where or key)
    journal = merged.values["journal.path"]
    return Settings(
        merged.values,
        merged.origins,
        RuleSet(merged.rules),
        tuple(merged.notices),
        root,
        _place(journal),
        repository,
    )


def _place(journal: str | None) -> Path | str:
    if journal is not None and is_address(journal):
        return journal
    return Path(journal).expanduser().absolute() if journal else paths.journal()


def _workspace(given: str | Path | None, *layers: Entries) -> Path:
    chosen: str | Path = given or "."
    if not given:
        for entries in layers:
            chosen = entries["workspace"].value if "workspace" in entries else chosen
    return Path(chosen or ".").expanduser().absolute()


def _check_own(folder: Path, root: Path) -> None:
    """Raise ConfigError if FERRULE_CONFIG names a repository's folder: what stands there has the
    repository's rights.

    Nothing of it may count as the person's own: not its settings, servers, skills or secrets. Not
    seen is a folder of another repository that is neither the workspace nor called `.ferrule`.
    """
    if not os.environ.get("FERRULE_CONFIG"):
        return
    real = folder.resolve()
    if real.is_relative_to(root.resolve()) or real.name == str(Path(PROJECT_FILE).parent):
        raise ConfigError(
            f"FERRULE_CONFIG = `{folder}` is a folder of a repository, and what a repository "
            "holds is not yours:"
            " none of it was read",
            hint="unset FERRULE_CONFIG, or point it to a folder of your own; `ferrule trust` "
            "lets the configuration in"
            f" `{root}` take effect, as far as a repository's may",
        )


def _read_file(path: Path) -> Entries:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError(f"cannot read `{path}`: {error.strerror}") from error
    return read_tree(parse_yaml(data, str(path)))


def _placed(entries: Entries, folder: Path) -> Entries:
    """The person's own Python files, whose names begin in their settings folder; a repository's
    stay relative to its own.
    """
    entry = entries.get("tools.python")
    if entry is None:
        return entries
    names = tuple(
        str(folder / Path(name).expanduser()) if name.endswith(".py") else name
        for name in entry.value
    )
    return {**entries, "tools.python": replace(entry, value=names)}


def check_python_names(entry: Entry | None) -> None:
    """Raise ConfigError for a Python file of a repository's settings that trust does not cover."""
    if entry is None:
        return
    for name, where in zip(
        entry.value, entry.parts or (entry.where,) * len(entry.value), strict=True
    ):
        if not is_python_file(name) and (name.endswith(".py") or "/" in name):
            raise ConfigError(
                f"{where}: `tools.python`: `{name}` is no file below this folder",
                hint=(
                    "write it as in `tools.py` or `lib/tools.py`, without `..`, or name a module "
                    "that is installed"
                ),
            )


def _read_project(root: Path, snapshot: Snapshot, notices: list[str]) -> Entries:
    if snapshot.state in ("untrusted", "changed"):
        what = (
            "was changed since you trusted it" if snapshot.state == "changed" else "is not trusted"
        )
        notices.append(
            f"the configuration in `{root}` {what} and does nothing; `ferrule trust` shows it"
        )
    # The very bytes whose hash was trusted, not the file read a second time.
    data = snapshot.files.get(PROJECT_FILE) if snapshot.state == "trusted" else None
    entries = read_tree(parse_yaml(data, str(root / PROJECT_FILE))) if data is not None else {}
    check_python_names(entries.get("tools.python"))
    return entries
