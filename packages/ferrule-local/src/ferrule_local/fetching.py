"""Get a model to this machine, by its name, a URL or a path: `ferrule models pull`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from ferrule.core.errors import ConfigError, ProviderError

from .downloads import choose_name, is_url, pull_url, record_file
from .installed_models import installed_path
from .known_models import MODELS, PullableModel, find_model
from .pull import Progress, pull

Tell = Callable[[str], None]
ShowProgress = Callable[[str], AbstractContextManager[Progress]]


def fetch_model(
    source: str, *, name: str, sha256: str, tell: Tell, show_progress: ShowProgress
) -> None:
    """Get a model to this machine unless it is here; see `models.registry.FetchModel`."""
    if is_url(source):
        with show_progress(choose_name(source, name)) as progress:
            record = asyncio.run(pull_url(source, name, sha256, progress))
    elif source not in MODELS and (source.endswith(".gguf") or Path(source).is_file()):
        record = record_file(Path(source), name, sha256)
    else:
        model = find_model(source)
        _refuse_other_name(model, name, sha256)
        _fetch_known(model, tell, show_progress)
        return
    tell(f"`local:{record.name}` is installed: SHA-256 {record.sha256}")


def _refuse_other_name(model: PullableModel, name: str, sha256: str) -> None:
    if name or sha256:
        raise ConfigError(
            f"`{model.name}` has its name and its hash already",
            hint="`--name` and `--hash` are for a URL or a path",
        )


def _fetch_known(model: PullableModel, tell: Tell, show_progress: ShowProgress) -> None:
    try:
        tell(f"{model.name} is installed: {installed_path(model)}")
        return
    except ProviderError as missing:
        if missing.code != "model_missing":
            tell(f"{missing.detail}; downloading it again")
    if model.remark:
        tell(f"{model.name}: {model.remark}")
    with show_progress(f"{model.name} ({model.download_size // 1_000_000} MB), once") as progress:
        file = pull(model, progress)
    tell(f"{model.name} is installed: {file}")
