"""The models that are on this machine, and whether their bytes are those that were fetched.

A model of `known_models` lies in the models' folder under its file's name, and its hash is part of
the program. Any other that was pulled has a record there, `<name>.model.json`, with the file, its
size, hash and source; the file itself is in the folder (pulled from a URL) or where it was (pulled
from a path).
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ferrule.core.calls import parse_json
from ferrule.core.errors import ConfigError, ProviderError
from ferrule.core.value_class import frozen
from ferrule.storage import paths

from . import gguf
from .known_models import MODELS, PullableModel, find_model

RECORD_SUFFIX = ".model.json"
_RECORD_VERSION = 1


@frozen
class ModelRecord:
    """A model that was pulled from a URL or a path.

    Attributes:
        name: The name in `local:<name>`.
        file: Its file: a name in the models' folder, or an absolute path.
        size: Bytes of the file.
        sha256: Its hash in hex, as it was when it was pulled.
        source: The URL or path it was pulled from.
    """

    name: str
    file: str
    size: int
    sha256: str
    source: str


def models_folder() -> Path:
    """Return where models are kept. The folder is not created.

    It is `FERRULE_MODELS`, else `models` in the user's cache folder.
    """
    chosen = os.environ.get("FERRULE_MODELS")
    if chosen:
        return Path(chosen).expanduser()
    return paths.cache() / "models"


def make_folder(folder: Path) -> None:
    """Create a folder for models, and its parents, unless it is there.

    Raises:
        ConfigError: It cannot be created (`folder`).
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"cannot create the folder for models `{folder}`: {error.strerror}",
            code="folder",
            hint="set FERRULE_MODELS to a folder that you can write",
        ) from error


def model_path(name: str | PullableModel) -> Path:
    """Return the path of a known model's file, whether or not it was fetched."""
    model = find_model(name) if isinstance(name, str) else name
    return models_folder() / model.file


def read_records() -> dict[str, ModelRecord]:
    """Return the models that were pulled from elsewhere, by name, without unreadable records."""
    found: dict[str, ModelRecord] = {}
    for place in sorted(models_folder().glob(f"*{RECORD_SUFFIX}")):
        with suppress(OSError, ValueError, TypeError):
            content: dict[str, Any] = parse_json(place.read_text())
            if content.pop("version") == _RECORD_VERSION:
                record = ModelRecord(**content)
                found[record.name] = record
    return found


def write_record(record: ModelRecord) -> None:
    """Write a model's record, whole or not at all."""
    place = models_folder() / f"{record.name}{RECORD_SUFFIX}"
    make_folder(place.parent)
    part = place.with_suffix(".part")
    part.write_text(json.dumps({"version": _RECORD_VERSION, **asdict(record)}, indent=2))
    part.replace(place)


def check_name(name: str) -> None:
    """Check that there is a model of that name.

    Raises:
        ConfigError: There is none; the error lists the names.
    """
    if name not in read_records():
        find_model(name)


def installed_path(name: str | PullableModel) -> Path:
    """Return the checked file of a model on this machine.

    A file that was checked and has not been written since is not read again: its size, place on the
    disk and modification times are remembered in the models' folder.

    Raises:
        ConfigError: There is no such model.
        ProviderError: `model_missing` if it is not there, `model_damaged` if its bytes are not
            those that were fetched.
    """
    if isinstance(name, str):
        record = read_records().get(name)
        if record is not None and name not in MODELS:
            return check_recorded_file(record)
    model = find_model(name) if isinstance(name, str) else name
    place = model_path(model)
    note = place.with_name(f"{place.name}.checked")
    _check_file(place, model.name, model.size, model.sha256, note, model.name)
    return place


def check_recorded_file(record: ModelRecord) -> Path:
    """Return the file of a pulled model, if its bytes are still the same.

    Raises:
        ProviderError: `model_missing`, `model_damaged`.
    """
    place = models_folder() / record.file
    note = models_folder() / f"{record.name}.checked"
    _check_file(place, record.name, record.size, record.sha256, note, record.source)
    return place


def check_path(place: Path) -> None:
    """Check a file that is named by its path, if it was pulled: then its hash is known.

    Raises:
        ProviderError: `model_missing`, `model_damaged`.
    """
    if not place.is_file():
        raise ProviderError(
            f"the model file `{place}` does not exist",
            code="model_missing",
            hint="check the path; `ferrule models list` shows the models that are installed",
        )
    resolved = Path(os.path.realpath(place))
    for record in read_records().values():
        if Path(os.path.realpath(models_folder() / record.file)) == resolved:
            check_recorded_file(record)
            return


def _check_file(
    place: Path, name: str, size: int, sha256: str, note: Path, pulled_from: str
) -> None:
    hint = f"ferrule models pull {pulled_from}"
    if not place.is_file():
        raise ProviderError(
            f"the model `{name}` is not on this machine", code="model_missing", hint=hint
        )
    found = place.stat().st_size
    if found != size:
        detail = f"{place} has {found} bytes, but the model has {size}"
        raise ProviderError(detail, code="model_damaged", hint=hint)
    if not _is_intact(place, size, sha256, note):
        detail = f"{place} is not the model `{name}`: its bytes were changed"
        raise ProviderError(detail, code="model_damaged", hint=hint)


def _is_intact(place: Path, size: int, sha256: str, note: Path) -> bool:
    """Return whether the file has the model's hash. The result is kept until the file changes.

    Whoever can write the note could as well change the hash in the program or the record: the note
    saves time and does not protect against them.
    """
    before = _file_state(place, sha256)
    with suppress(OSError):
        if note.read_text() == before:
            return True
    if not has_hash(place, size, sha256):
        return False
    # If the file was written during the check, it is checked again the next time.
    if _file_state(place, sha256) == before:
        with suppress(OSError):
            note.write_text(before)
    return True


def _file_state(place: Path, sha256: str) -> str:
    """Return what changes with every write to a file."""
    seen = place.stat()
    return (
        f"{sha256} {seen.st_size} {seen.st_dev} {seen.st_ino} {seen.st_mtime_ns} {seen.st_ctime_ns}"
    )


def has_hash(place: Path, size: int, sha256: str) -> bool:
    """Return whether a file has this size and SHA-256."""
    return place.stat().st_size == size and hash_file(place) == sha256


def hash_file(place: Path) -> str:
    """Return the SHA-256 of a file in hex."""
    with place.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


async def find_models(base_url: str = "") -> list[str]:
    """Return the names of the models that can run in this process.

    Raises:
        ProviderError: llama.cpp is missing, or no model was fetched.
    """
    if find_spec("xllamacpp") is None:
        raise ProviderError(
            "llama.cpp is not installed",
            code="extra_missing",
            hint="`pip install 'ferrule[local]'`",
        )
    installed: list[str] = []
    problem: ProviderError | None = None
    for name in [*MODELS, *read_records()]:
        try:
            installed_path(name)
        except ProviderError as error:
            problem = problem or error
        else:
            installed.append(name)
    if problem is not None and not installed:
        raise problem
    return installed


def describe_models() -> list[tuple[str, bool, str]]:
    """Return the known and the pulled models: name, whether it can be used, and what it is.

    Size, window, what the chat template can say, licence.
    """
    rows: list[tuple[str, bool, str]] = []
    for name in dict.fromkeys([*MODELS, *read_records()]):
        try:
            place = installed_path(name)
        except (ProviderError, ConfigError) as problem:
            rows.append((name, False, _describe_missing(name, problem)))
        else:
            rows.append((name, True, _describe_installed(name, place)))
    return rows


def _describe_missing(name: str, problem: ProviderError | ConfigError) -> str:
    model = MODELS.get(name)
    if model is None or problem.code != "model_missing":
        return f"{problem.detail}: `{problem.hint}`"
    parts = [f"{model.download_size // 1_000_000} MB to fetch", model.license, model.remark]
    described = ", ".join(part for part in parts if part)
    return f"{described}: `ferrule models pull {name}`"


def _describe_installed(name: str, place: Path) -> str:
    model = MODELS.get(name)
    try:
        facts = gguf.read_facts(place)
    except (OSError, ValueError) as problem:
        return f"its head cannot be read: {problem}"
    template = facts.template
    if model is not None and model.template:
        from .known_models import read_template

        template = read_template(model)
    abilities = gguf.read_template_abilities(template)
    license_name = facts.license or (model.license if model else "") or "not stated"
    parts = [
        f"{place.stat().st_size // 1_000_000} MB",
        f"window {facts.context or 'unknown'}",
        f"template: {', '.join(abilities) or 'none'}",
        f"licence {license_name}",
        model.remark if model else "",
    ]
    return ", ".join(part for part in parts if part)
