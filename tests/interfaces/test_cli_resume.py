"""`--resume` of a session that another process has is refused before an agent is loaded."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ferrule.runtime.assemble import open_journal
from ferrule.runtime.resumed_sessions import refuse_session_in_use

START = "import sys; from ferrule.cli.entry import main; sys.argv[0] = 'ferrule'; main()"


@pytest.fixture
def session(ferrule: Any, script: Callable[..., str], folder: Path) -> str:
    """The id of a session that ended."""
    assert ferrule("run", "-m", script({"say": "hello"}), "hello").code == 0
    with open_journal() as store:
        return store.sessions()[0].session


def test_a_session_in_use_is_refused_before_an_agent_is_loaded(session: str) -> None:
    with open_journal() as store:
        store.lease(session)
        ran = subprocess.run(
            [sys.executable, "-X", "importtime", "-c", START, "run", "--resume", session[:12], "x"],
            capture_output=True,
            text=True,
            timeout=60,
            env=dict(os.environ),
            check=False,
        )
    loaded = set(re.findall(r"\| +(ferrule\S*)", ran.stderr))
    assert f"session `{session}` is in use by another process" in ran.stderr
    assert ran.returncode != 0
    assert "ferrule.storage.journal.sqlite" in loaded
    assert not {"ferrule.engine.agent", "ferrule.runtime.assemble"} & loaded


def test_a_session_that_is_free_or_unknown_is_left_to_the_command_itself(session: str) -> None:
    refuse_session_in_use(session[:12])
    refuse_session_in_use("nothing")
    with open_journal() as store:
        store.lease(session)  # it was given back
