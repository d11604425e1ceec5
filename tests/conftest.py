"""Shared by all tests: nothing of the person's own folders is read or written."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import HealthCheck, settings

from ferrule.models.registry import PROVIDERS
from ferrule.sandbox.backends.probes import probe
from ferrule.sandbox.backends.reduced_protection import MissingProtections
from ferrule.sandbox.backends.selection import choose_backend
from ferrule.sandbox.policy import SandboxPolicy
from ferrule_local.installed_models import find_model, model_path

sys.path.insert(0, str(Path(__file__).parent))

from everyday import EverydayRun, LongestFirst, ProcessorTimes
from left_open import kept_by_process, nothing_left_open

# That a machine is busy is no finding about Ferrule. How many cases there are and how large they
# may be stays bounded. Tests that want more cases than these say so.
settings.register_profile(
    "shared-machine", max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("shared-machine")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of `everyday.py`."""
    parser.addoption(
        "--everyday", action="store_true", help="leave out what tests/everyday.toml leaves out"
    )
    parser.addoption(
        "--times", type=Path, metavar="FOLDER", help="write the processor time of each test"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Switch on what these options ask for."""
    if config.option.everyday:
        config.pluginmanager.register(EverydayRun())
    if config.option.times is not None:
        config.pluginmanager.register(ProcessorTimes(config.option.times))
    worker = getattr(config, "workerinput", None)
    if worker is not None:
        config.pluginmanager.register(LongestFirst(worker["workercount"]))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs the embedded model where it is not, and what only Linux has where its calls
    are switched off (`make lab NAME=portable`).
    """
    is_portable = os.environ.get("FERRULE_PORTABLE") == "1"
    has_model = model_path(find_model("smollm2")).exists()
    no_model = "the embedded model is not pulled: `ferrule models pull smollm2`"
    for item in items:
        marker = item.get_closest_marker("linux_only")
        if marker is not None and is_portable:
            item.add_marker(pytest.mark.skip(reason=f"only on Linux: {marker.args[0]}"))
        if not has_model and item.get_closest_marker("model") is not None:
            item.add_marker(pytest.mark.skip(reason=no_model))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected, ten thousand tests and their modules, stays to the end: the garbage
    collector never walks it again.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


VARIABLES_OF_PROVIDERS = {
    variable
    for row in PROVIDERS.values()
    for variable in (row.key_variable, row.address_variable)
    if variable
}

MADE: Counter[Path] = Counter()
"""How many folders of each name were made: the next number, without reading a folder of ten
thousand entries for each test.
"""


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
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(home / "claude"))
    proxies = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
    for name in (*VARIABLES_OF_PROVIDERS, *proxies):
        monkeypatch.delenv(name, raising=False)
    yield home


@pytest.fixture
def commands_are_held(tmp_path: Path) -> None:
    """Skip a test that runs commands on a machine that cannot confine them as required."""
    try:
        choose_backend(SandboxPolicy(tmp_path), probe())
    except MissingProtections:
        pytest.skip("this machine cannot hold commands as required")


_last_item: list[pytest.Function] = []


def pytest_runtest_teardown(item: pytest.Function) -> None:
    """Remember which test is being torn down."""
    _last_item[:] = [item]


def scope_of_closing(fixture_name: str, config: pytest.Config) -> Literal["function", "module"]:
    """After each module; with FERRULE_LEFT_OPEN=test after each test, to find which one it is."""
    return "function" if os.environ.get("FERRULE_LEFT_OPEN") == "test" else "module"


@pytest.fixture(scope=scope_of_closing, autouse=True)
def closes_what_it_opens(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a module of tests that leaves descriptors, threads, processes or tasks behind.

    Where workers share the tests of a module, each of them looks after its own part.
    """
    if sys.platform != "linux":
        yield
        return
    with nothing_left_open():
        yield
        if request.scope == "module":
            # Its fixtures are finished, and would keep their values alive until the next test.
            _last_item[0].funcargs.clear()


@pytest.fixture(scope="session")
def rust_runtimes() -> None:
    """Start the threads, pollers and sockets that two libraries keep until the process ends."""
    obstore = pytest.importorskip("obstore")
    monty = pytest.importorskip("pydantic_monty")

    async def run_script() -> None:
        async with monty.AsyncMonty() as pool, pool.checkout() as session:
            await session.feed_run("1")

    with kept_by_process():
        obstore.put(obstore.store.MemoryStore(), "a", b"")
        asyncio.run(run_script())


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """The GGUF of SmolLM2: FERRULE_TEST_MODEL, else what `ferrule models pull` put into the
    cache.
    """
    if named := os.environ.get("FERRULE_TEST_MODEL"):
        return Path(named)
    from ferrule_local import installed_models

    found = installed_models.model_path("smollm2")
    if not found.is_file():
        pytest.skip(
            "the model is not here: `ferrule models pull smollm2`, or set FERRULE_TEST_MODEL"
        )
    return found


@pytest.fixture(scope="session")
def llama_url(smollm2_path: Path) -> Iterator[str]:
    """A llama.cpp server in this process with the model, a window of 4096 tokens and one slot."""
    xllamacpp = pytest.importorskip("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = str(smollm2_path)
    params.n_ctx, params.n_parallel, params.verbosity = 4096, 1, 0
    for cpu in (params.cpuparams, params.cpuparams_batch):
        # Two threads wait for each other at every layer, and spin where another test has the second
        # core.
        cpu.n_threads, cpu.poll = 1, 0
    with kept_by_process():
        server = xllamacpp.Server(params)
    yield server.listening_address
    del server
