"""The real model, where it has been pulled; tests that need it are skipped, and say so, where it has not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """The GGUF of SmolLM2: FERRULE_TEST_MODEL, else what `ferrule models pull` put into the cache."""
    if named := os.environ.get("FERRULE_TEST_MODEL"):
        return Path(named)
    from ferrule.models import pull

    found = pull.path("smollm2")
    if found is None or not Path(found).is_file():
        pytest.skip("the model is not here: `ferrule models pull smollm2`, or set FERRULE_TEST_MODEL")
    return Path(found)


@pytest.fixture(scope="session")
def llama_url(smollm2_path: Path) -> Iterator[str]:
    """A llama.cpp server in this process with the model, a window of 4096 tokens and one slot."""
    xllamacpp = pytest.importorskip("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = str(smollm2_path)
    params.n_ctx, params.n_parallel = 4096, 1
    for cpu in (params.cpuparams, params.cpuparams_batch):
        # Two threads wait for each other at every layer, and spin where another test has the second core.
        cpu.n_threads, cpu.poll = 1, 0
    server = xllamacpp.Server(params)
    yield server.listening_address
    del server
