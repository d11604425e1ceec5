"""Each attack on the sandbox does its harm where nothing holds it: else a row of the table would
prove nothing.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from sandbox_rows import ATTACKS, Attack
from sandbox_world import World


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    # Not below /tmp: that is a folder of its own inside the sandbox.
    built = World(Path(tempfile.mkdtemp(prefix="ferrule-attacks-", dir=Path.home())))
    yield built
    built.close()


def unconfined(world: World, script: str) -> bytes:
    """What a plain shell prints for a script, run in the workspace by a person who has all this."""
    environment = {**os.environ, "HOME": str(world.home), "DEPLOY_TOKEN": world.canary().strip()}
    shell = subprocess.Popen(
        ["bash", "--noprofile", "--norc", "-c", world.text(script)],
        cwd=world.root,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        return shell.communicate(timeout=20)[0]
    except subprocess.TimeoutExpired:
        os.killpg(shell.pid, signal.SIGKILL)
        return shell.communicate()[0]


SHARE = 1 if os.environ.get("FERRULE_TEST_ATTACKS") == "all" else 8
"""One row of so many: what a row does without the sandbox does not change with Ferrule. `make
attacks` takes all.
"""

ROOT_ALONE = re.compile(r"descriptor-(read-handle|read-mounted|chown|chown-empty-path)-")
"""Rows that the kernel refuses to everybody but root, with or without a sandbox."""


@pytest.mark.proves("sandbox.attacks.rows-do-harm")
@pytest.mark.parametrize("attack", ATTACKS[::SHARE], ids=lambda attack: attack.id)
def test_an_unconfined_shell_does_the_harm(world: World, attack: Attack) -> None:
    if attack.why_no_control:
        pytest.skip(attack.why_no_control)
    if os.getuid() != 0 and ROOT_ALONE.match(attack.id):
        pytest.skip("only root can do this harm")
    shown = unconfined(world, attack.script)
    assert world.harm(shown), shown.decode(errors="replace")[-500:]
