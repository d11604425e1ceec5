"""Shared by all tests: nothing of the person's own folders is read or written."""

from __future__ import annotations

import gc
import re
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# That a machine is busy is no finding about Ferrule. How many cases there are and how large they may be stays bounded.
# Tests that want more cases than these say so.
settings.register_profile(
    "shared-machine", max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("shared-machine")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected, ten thousand tests and their modules, stays to the end: the garbage collector never walks it again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


MADE: Counter[Path] = Counter()
"""How many folders of each name were made: the next number, without reading a folder of ten thousand entries for each test."""


def numbered(place: Path, name: str) -> Path:
    """A new folder `<name><number>` in `place`."""
    while True:
        path = place / f"{name}{MADE[place / name]}"
        MADE[place / name] += 1
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            continue
        return path


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty folder of this test, with the name that pytest's own would have."""
    return numbered(tmp_path_factory.getbasetemp(), re.sub(r"\W", "_", request.node.name)[:30])


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the tests have their own folders."""
    return tmp_path_factory.mktemp("homes", numbered=False)


@pytest.fixture(autouse=True)
def own_folders(homes: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """State and settings of Ferrule in a folder of this test."""
    home = numbered(homes, "")
    monkeypatch.setenv("FERRULE_STATE", str(home / "state"))
    monkeypatch.setenv("FERRULE_CONFIG", str(home / "config"))
    for name in (
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_BASE_URL",
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        "OLLAMA_HOST",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "http_proxy",
        "https_proxy",
    ):
        monkeypatch.delenv(name, raising=False)
    yield home
