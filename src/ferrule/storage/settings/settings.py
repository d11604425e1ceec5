"""The settings of a run: read from every layer, merged, and ready to use.

    default  <  <config>/ferrule.yaml  <  <workspace>/.ferrule/ferrule.yaml  <  FERRULE_…  <  flags

The file in the workspace is used only as it was trusted (`storage.trust`), and only for what the
table allows a repository to set. What only restricts (`restrictions`) holds without trust, and from
the version that was trusted last where trust was lost. Lists that extend (rules, reserved names)
collect the items of all layers.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from ferrule.core.errors import ConfigError
from ferrule.core.limits import Limits
from ferrule.core.value_class import frozen
from ferrule.permissions.protected_names import DEFAULT_NAMES, ProtectedNames
from ferrule.permissions.rules import RuleSet
from ferrule.storage import paths
from ferrule.storage.plugins.added_providers import default_turns
from ferrule.storage.store_urls import is_url, refuse_password
from ferrule.storage.trust import PROJECT_FILE, ConfigurationSnapshot, TrustStore, is_python_file

from .merge import LAYER_ORDER, MergedSettings, Origin, find_setting
from .mistakes import Mistakes
from .table import ALIASES, BY_KEY, GLOBAL_KEYS, MODEL_SETTINGS, SETTINGS
from .values import (
    Entries,
    Entry,
    OwnEntries,
    TrustedEntries,
    parse_model_options,
    read_environment,
    read_flags,
    read_own_file,
    read_tree,
    unknown_setting_error,
)
from .yaml_tree import parse_yaml

USER_FILE_NAME = "ferrule.yaml"
"""The file's name in the config folder; in a workspace it is `PROJECT_FILE`."""


@frozen
class ModelSettings:
    """The settings of one model. None leaves the provider's default."""

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
    top_p: float | None = None
    top_k: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    stop: tuple[str, ...] | None = None
    service_tier: str | None = None
    cache_key: str | None = None
    cache_control: str | None = None
    upload_media_from: int | None = None
    logit_bias: Mapping[str, float] | None = None
    extra: Mapping[str, Any] | None = None


OPTION_NAMES = frozenset(
    {
        "temperature",
        "max_output_tokens",
        "num_ctx",
        "thinking",
        "seed",
        "timeout",
        "top_p",
        "top_k",
        "presence_penalty",
        "frequency_penalty",
        "stop",
        "service_tier",
        "cache_key",
        "cache_control",
        "upload_media_from",
        "logit_bias",
        "extra",
    }
)
"""The settings of a model that `model_options` may set."""


def apply_model_options(for_model: ModelSettings, given: Iterable[str]) -> ModelSettings:
    """Return the settings of a model with `NAME=VALUE` options in place of its own.

    Raises ConfigError for an unknown name or a wrong value.
    """
    given = tuple(given)
    if not given:
        return for_model
    table = [setting for setting in MODEL_SETTINGS if setting.key in OPTION_NAMES]
    return replace(for_model, **parse_model_options(given, table))


@frozen
class ProviderSettings:
    """Where a provider is.

    `api_key_env` names the variable that contains the key. For `force_native_tool_search` see the
    model clients that support it.
    """

    base_url: str = ""
    api_key_env: str = ""
    ca_bundle: Path | None = None
    provider_tools: tuple[Mapping[str, Any], ...] = ()
    force_native_tool_search: bool = False


@frozen
class Settings:
    """All settings with their origins, created by `load_settings`.

    `values` contains them by the key of the table. `notices` are sentences for the person: what was
    ignored, and why. `workspace` and `journal` are absolute; a `journal` that is text is the URL of
    a database (`storage.locations`).
    """

    values: Mapping[str, Any]
    origins: Mapping[str, Origin]
    rules: RuleSet = field(default_factory=RuleSet)
    notices: tuple[str, ...] = ()
    workspace: Path = field(default_factory=Path.cwd)
    journal: Path | str = field(default_factory=paths.default_journal)
    repository: ConfigurationSnapshot = ConfigurationSnapshot("", "absent", "")
    """The workspace's own configuration as it was read once; everything else uses it from here."""

    def __getitem__(self, key: str) -> Any:
        """Return the value of a key. Raises ConfigError for an unknown one."""
        key = ALIASES.get(key, key)
        if key not in self.values:
            raise unknown_setting_error("settings", key)
        return self.values[key]

    @property
    def names(self) -> ProtectedNames:
        """The protected names: the lists of the person and of the repository, and what is trusted.

        What trust covers could otherwise be changed by a command, which would end it.
        """
        return DEFAULT_NAMES.extend(
            reserved=self["reserved.extend"],
            secret=self["secrets.extend"],
            protected=tuple(f"/{name}" for name in self.repository.named_files),
        )

    def origin(self, key: str) -> Origin:
        """Return where the value of a key comes from."""
        return self.origins.get(ALIASES.get(key, key), Origin())

    @property
    def model(self) -> str:
        """The model's full name, or "" if none is named."""
        return self["model"] or ""

    @property
    def mode(self) -> str:
        return self["mode"]

    @property
    def limits(self) -> Limits:
        """The limits for all models; `for_model` returns those of one."""
        return Limits(**{name: self[f"limits.{name}"] for name in _LIMITS})

    def for_model(self, name: str) -> ModelSettings:
        """Return the settings of a model, by its full name.

        An entry without a provider is for this model of every provider. Between an entry of the
        model and the setting for all models, the stronger layer wins; in the same layer the entry
        does. What a repository sets for all models can only tighten an entry. Where only it sets
        `max_turns`, that is no more than the kind of model has without.
        """
        limits: dict[str, Any] = {}
        for key in _LIMITS:
            is_per_model = key in GLOBAL_KEYS
            limits[key] = self._choose(name, key) if is_per_model else self[f"limits.{key}"]
        limits["max_turns"] = self._choose_turns(name)
        others = {
            key: self._choose(name, key)
            for key in ModelSettings.__dataclass_fields__
            if key != "limits"
        }
        return ModelSettings(Limits(**limits), **others)

    def _choose_turns(self, model: str) -> int:
        """Return the turns of a model: at most those of its kind, unless the person set them."""
        turns = self._choose(model, "max_turns")
        keys = ("limits.max_turns", *_entries_for(model, "max_turns"))
        if any(self.origin(key).layer not in ("default", "project") for key in keys):
            return turns
        return min(turns, default_turns(model))

    def _choose(self, model: str, key: str) -> Any:
        """Choose between a model's entry and the setting for all models."""
        entries = [one for one in _entries_for(model, key) if one in self.values]
        entry = entries[0] if entries else ""
        same = GLOBAL_KEYS.get(key, "")
        if not entry:
            return self[same] if same else None
        if not same or _strength(self.origin(same)) <= _strength(self.origin(entry)):
            if self.origin(entry).layer == "project" and _only_tightens(entry):
                # The person's own entry may have the shorter name.
                return min(self.values[one] for one in entries)
            return self.values[entry]
        if self.origin(same).layer == "project" and _only_tightens(same):
            return min(self[same], self.values[entry])
        return self[same]

    def provider(self, name: str) -> ProviderSettings:
        """Return where a provider is, as the person set it."""
        found: dict[str, Any] = {}
        for key in ProviderSettings.__dataclass_fields__:
            value = self.values.get(f"providers.{name}.{key}")
            if value:
                found[key] = Path(value).expanduser() if key == "ca_bundle" else value
        return ProviderSettings(**found)

    def explain(self) -> Iterator[tuple[str, Any, Origin, str]]:
        """Yield `(key, value, origin, description)` of every setting.

        They are in the order of the table, then by model and provider.
        """
        keys = [setting.key for setting in SETTINGS if setting.key in self.values]
        keys += sorted(key for key in self.values if key not in BY_KEY)
        for key in keys:
            yield key, self.values[key], self.origin(key), find_setting(key).short


_LIMITS = tuple(Limits.__dataclass_fields__)


def _entries_for(name: str, key: str) -> tuple[str, ...]:
    without_provider = name.partition(":")[2]
    if not without_provider:
        return (f"models.{name}.{key}",)
    return (f"models.{name}.{key}", f"models.{without_provider}.{key}")


def _only_tightens(key: str) -> bool:
    return find_setting(key).project in ("lower", "off")


def _strength(origin: Origin) -> int:
    return LAYER_ORDER.index(origin.layer)


def load_settings(
    *,
    workspace: str | Path | None = None,
    flags: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    user_file: Path | None = None,
    trust: TrustStore | None = None,
) -> Settings:
    """Read and merge all layers.

    The workspace is the given one, else the one in flags, environment or the user's file, else the
    current folder.

    Args:
        workspace: The folder that is worked in.
        flags: Settings by key, as text or typed; None means not given.
        environment: The variables; those of this process by default.
        user_file: The person's own file; by default the usual place.
        trust: What the person trusts; by default their own store.

    Raises:
        ConfigError: Something is wrong. The message names all places, a line each.
    """
    merged = MergedSettings()
    mistakes = merged.mistakes
    own_file = user_file or paths.config() / USER_FILE_NAME
    user = _read_file(own_file, mistakes)
    from_environment, notices = read_environment(
        os.environ if environment is None else environment, mistakes
    )
    from_flags = read_flags(flags or {}, mistakes)
    root = _workspace(workspace, user, from_environment, from_flags)
    if user_file is None:
        _refuse_repository_folder(own_file.parent, root)
    merged.notices += notices
    merged.add_own(user)
    repository = (trust or TrustStore()).read(root)
    merged.open_folder(root, keeps_mode=repository.state in ("trusted", "absent"))
    if repository.state in ("untrusted", "changed"):
        _add_restrictions(root, repository, merged)
    merged.add_trusted(read_trusted(root, repository, mistakes))
    merged.add_own(from_environment)
    merged.add_own(from_flags)
    mistakes.raise_all()
    for key in ("journal.path", "artifacts.store"):
        location = merged.values[key]
        if is_url(location):
            refuse_password(location, merged.origins[key].where or key)
    return Settings(
        values=merged.values,
        origins=merged.origins,
        rules=RuleSet(merged.rules),
        notices=tuple(merged.notices),
        workspace=root,
        journal=_journal_location(merged.values["journal.path"]),
        repository=repository,
    )


def _journal_location(journal: str | None) -> Path | str:
    if not journal:
        return paths.default_journal()
    if is_url(journal):
        return journal
    return Path(journal).expanduser().absolute()


def _workspace(given: str | Path | None, *layers: Entries) -> Path:
    chosen: str | Path = given or "."
    if not given:
        for entries in layers:
            chosen = entries["workspace"].value if "workspace" in entries else chosen
    return Path(chosen or ".").expanduser().absolute()


def _refuse_repository_folder(folder: Path, root: Path) -> None:
    """Raise ConfigError if FERRULE_CONFIG is a repository's folder.

    Files there have only a repository's rights. None of them may count as the person's own: no
    settings, servers, skills or secrets. Not noticed is a folder of another repository that is
    neither the workspace nor called `.ferrule`.
    """
    if not os.environ.get("FERRULE_CONFIG"):
        return
    real = Path(os.path.realpath(folder))
    is_inside = real.is_relative_to(os.path.realpath(root))
    if is_inside or real.name == str(Path(PROJECT_FILE).parent):
        raise ConfigError(
            f"FERRULE_CONFIG = `{folder}` is a folder of a repository, whose files are not your "
            "own: none of them was read",
            hint=(
                "unset FERRULE_CONFIG, or point it to a folder of your own; `ferrule trust` lets "
                f"the configuration in `{root}` take effect, as far as a repository's may"
            ),
        )


def _read_file(path: Path, mistakes: Mistakes) -> OwnEntries:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        data = b""
    except OSError as error:
        raise ConfigError(f"cannot read `{path}`: {error.strerror}") from error
    return read_own_file(data, path, mistakes)


def check_python_names(entry: Entry | None) -> None:
    """Raise ConfigError for a Python file in a repository's settings that trust does not cover."""
    if entry is None:
        return
    places = entry.parts or (entry.where,) * len(entry.value)
    for name, where in zip(entry.value, places, strict=True):
        if not is_python_file(name) and (name.endswith(".py") or "/" in name):
            raise ConfigError(
                f"{where}: `tools.python`: `{name}` is not a file below this folder",
                hint=(
                    "write it like `tools.py` or `lib/tools.py`, without `..`, or name an "
                    "installed module"
                ),
            )


def read_trusted(root: Path, snapshot: ConfigurationSnapshot, mistakes: Mistakes) -> TrustedEntries:
    """Read the settings of a repository; none unless the person trusts it as it is.

    Args:
        root: Its folder.
        snapshot: Its files, read once: they are not read a second time.
        mistakes: Where mistakes are collected.
    """
    entries: Entries = {}
    if snapshot.state == "trusted" and PROJECT_FILE in snapshot.files:
        tree = parse_yaml(snapshot.files[PROJECT_FILE], str(root / PROJECT_FILE))
        entries = read_tree(tree, mistakes)
        with mistakes.collect():
            check_python_names(entries.get("tools.python"))
    return TrustedEntries._make(entries)  # pyright: ignore[reportPrivateUsage]


def _add_restrictions(root: Path, snapshot: ConfigurationSnapshot, merged: MergedSettings) -> None:
    """Add what only restricts, from the version that was trusted last and from that of now."""
    held: dict[str, None] = {}
    for files, version in ((snapshot.kept, " (as you trusted it)"), (snapshot.files, "")):
        if PROJECT_FILE not in files:
            continue
        mistakes = Mistakes()
        with mistakes.collect():
            tree = parse_yaml(files[PROJECT_FILE], f"{root / PROJECT_FILE}{version}")
            held |= dict.fromkeys(merged.add_restrictions(read_tree(tree, mistakes)))
        merged.notices += [f"{error} (the rest holds)" for error in mistakes.errors[:_MOST_NAMED]]
    state = "was changed since you trusted it" if snapshot.state == "changed" else "is not trusted"
    effect = "and has no effect"
    if held:
        effect = f"and only what restricts has an effect ({', '.join(f'`{key}`' for key in held)})"
    merged.notices.append(
        f"the configuration in `{root}` {state} {effect}; `ferrule trust` shows it"
    )


_MOST_NAMED = 5
"""How many mistakes in settings that nobody trusts are named."""
