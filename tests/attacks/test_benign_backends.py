"""Ordinary work goes on under the other backends: bubblewrap, a container, Landlock alone."""

from __future__ import annotations

import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import test_benign as benign
from benign_rows import WORK, Work
from confined import Confined, find_backend

from ferrule.sandbox.policy import SandboxPolicy

CHOSEN = {
    "make-parallel", "gcc-link", "git-commit", "venv-offline-pip", "test-key", "node-test",
    "multiprocessing", "sqlite", "process-substitution", "fifo", "links", "modes", "devices",
}  # fmt: skip
ROWS = [work for work in WORK if work.id in CHOSEN]
NOT_THERE = {
    "loopback-server": "there is no loopback",
    "pseudo-terminal": "there are no terminals of its own",
}
"""Work that Landlock alone has no place for."""


@pytest.fixture(scope="module")
def base() -> Iterator[Path]:
    # Not below /tmp: that is a folder of its own inside bubblewrap.
    made = Path(tempfile.mkdtemp(prefix="ferrule-work-", dir=Path.home())).resolve()
    benign._project(made / "kept")  # pyright: ignore[reportPrivateUsage]  the same project as in that table
    (made / "project").mkdir()
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="module", params=["bubblewrap", "container", "landlock"])
def confined(request: pytest.FixtureRequest, base: Path) -> Iterator[Confined]:
    policy = SandboxPolicy(base / "project", readable=(benign.PACKAGES,), require=frozenset())
    built = Confined(policy, find_backend(request.param, policy))
    yield built
    built.close()


def ran(confined: Confined, base: Path, work: Work) -> tuple[bool, str]:
    if work.id.startswith(("npm", "node")) and shutil.which("npm") is None:
        pytest.skip("node is not installed")
    benign._fill(base / "project", base / "kept")  # pyright: ignore[reportPrivateUsage]  the same project
    packages = shlex.quote(benign.PACKAGES)
    script = work.script.replace("<python>", shlex.quote(benign.PYTHON)).replace(
        "<packages>", packages
    )
    ended, shown = confined.run(script, timeout=120, **benign.ME)
    text = shown.decode(errors="replace")
    return (ended.exit_code, ended.signal, ended.refused_names) == (
        0,
        "",
        (),
    ) and work.says in text, text


@pytest.mark.parametrize("work", ROWS, ids=lambda work: work.id)
def test_ordinary_work_goes_on_where_the_machine_offers_less(
    base: Path, confined: Confined, work: Work
) -> None:
    worked, text = ran(confined, base, work)
    assert worked, text


@pytest.mark.parametrize("name", NOT_THERE)
def test_what_landlock_alone_has_no_place_for_is_known(
    base: Path, confined: Confined, name: str
) -> None:
    work = next(one for one in WORK if one.id == name)
    assert ran(confined, base, work)[0] is (confined.sandbox.protections().backend != "landlock")
