"""Commands that nobody checked, run by a real shell inside the sandbox: the kernel refuses what
they are after.

No text rule, no gate and no approval stands before them: whatever they do not achieve here, the
sandbox prevented. That each would do its harm without it is shown in `test_sandbox_control.py`.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from confined import Confined
from sandbox_rows import ATTACKS, Attack
from sandbox_world import World

from ferrule.sandbox.backends.probes import probe
from ferrule.sandbox.backends.selection import choose_backend
from ferrule.sandbox.openings import Opening
from ferrule.sandbox.policy import ResourceLimits, SandboxPolicy

pytestmark = pytest.mark.skipif(
    not probe().user_namespaces, reason="no user namespaces: nothing to attack on this rung"
)


SHARE = 1 if os.environ.get("FERRULE_TEST_ATTACKS") == "all" else 3
"""One row of so many, some of each kind. `make lab NAME=attacks` takes all."""


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    # Not below /tmp: that is a folder of its own inside the sandbox.
    built = World(Path(tempfile.mkdtemp(prefix="ferrule-attacks-", dir=Path.home())))
    yield built
    built.close()


@pytest.fixture(scope="module")
def confined(world: World) -> Iterator[Confined]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(world.home))
        patch.setenv("DEPLOY_TOKEN", world.canary().strip())
        built = Confined(
            SandboxPolicy(
                world.root,
                readable=(str(world.library),),
                writable=(str(world.shared),),
                limits=ResourceLimits(memory=1 << 30, processes=128, file_size=1 << 28),
            )
        )
        yield built
        built.close()


@pytest.mark.proves("sandbox.attacks.nothing-reached")
@pytest.mark.parametrize("attack", ATTACKS[::SHARE], ids=lambda attack: attack.id)
def test_nothing_is_reached(world: World, confined: Confined, attack: Attack) -> None:
    ended, shown = confined.run(world.text(attack.script), home=world.home)
    assert not world.harm(shown), (ended, shown.decode(errors="replace")[-800:])
    assert not ended.surviving_processes


@pytest.fixture(scope="module")
def answered(world: World) -> Iterator[Confined]:
    """The folders are opened by an answer, after commands of the session have run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(world.home))
        policy = SandboxPolicy(world.root)
        built = Confined(policy)
        built.run("true", home=world.home)
        for opening in (Opening("read", str(world.library)), Opening("write", str(world.shared))):
            policy = opening.add_to(policy)
        built.change_policy(policy)
        yield built
        built.close()


@pytest.mark.parametrize(
    "attack",
    [attack for attack in ATTACKS if attack.id.startswith("opened-")][::SHARE],
    ids=lambda attack: attack.id,
)
def test_what_an_answer_opens_stays_covered(
    world: World, answered: Confined, attack: Attack
) -> None:
    ended, shown = answered.run(world.text(attack.script), home=world.home)
    assert not world.harm(shown), (ended, shown.decode(errors="replace")[-800:])


@pytest.mark.proves("sandbox.attacks.nothing-reached")
def test_the_table_is_large_and_each_row_has_its_own_name() -> None:
    assert len(ATTACKS) > 400
    assert len({attack.id for attack in ATTACKS}) == len(ATTACKS)
    assert choose_backend(SandboxPolicy(Path("/")), probe()).name == "namespaces"
