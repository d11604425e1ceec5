"""Names that commands make and that others may not see: whose they are, and how many there may
be.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from backend_sandboxes import Opens, opens, root
from shelled import says

from ferrule.sandbox.backends import namespaces
from ferrule.sandbox.inside.mediator.file_identity import identify_path

__all__ = ["opens", "root"]

REMADE = "for i in $(seq 60); do echo x > .env.$i; stat -c %i .env.$i; done; rm .env.*"


async def test_a_persons_file_is_not_a_commands_because_its_number_was(
    opens: Opens, root: Path
) -> None:
    sandbox = opens(root)
    _, said = await says(sandbox, REMADE, root)
    numbers = set(map(int, said.split()))
    assert len(numbers) > 1
    for count in range(200):
        saved = root / f"saved.{count}"
        saved.write_text("TOKEN=secret")
        if saved.stat().st_ino in numbers:
            saved.rename(root / ".env")
            break
    else:
        pytest.skip("this file system did not use a number again")
    _, said = await says(sandbox, "cat .env", root)
    assert "secret" not in said
    assert "denied" in said.lower()


def test_no_two_files_have_one_identity_though_they_have_one_number(root: Path) -> None:
    seen: set[str] = set()
    for _ in range(300):
        (root / "a").write_text("x")
        identity = identify_path(root / "a")
        status = (root / "a").stat()
        if not identity:
            pytest.skip("this file system cannot tell its files apart")
        assert identity.startswith(f"{status.st_dev}:{status.st_ino}:")
        assert identity == identify_path(root / "a")
        seen.add(identity)
        (root / "a").unlink()
    assert len(seen) == 300
    assert identify_path(root / "a") == ""


MAKERS = {
    "files": "for i in $(seq 40); do echo x > .env.$i; done",
    "folders": "mkdir $(seq -f %g.env 40)",
    "pipes": "for i in $(seq 40); do mkfifo .env.$i; done",
    "links": "for i in $(seq 40); do ln -s a .env.$i; done",
    "moved": "for i in $(seq 40); do echo x > $i; mv $i $i.key; done",
    "more-names": "echo x > k.pem; for i in $(seq 40); do ln k.pem plain$i; done",
    "named-before": "echo x > a; for i in $(seq 40); do ln a plain$i; done; mv a k.pem",
    "sockets": """python3 -c "
import socket
for i in range(40):
    try: socket.socket(socket.AF_UNIX).bind(f'{i}.s')
    except OSError: pass
" """,
    "nodes": """python3 -c "
import os, stat
for i in range(40):
    try: os.mknod(f'{i}.s', stat.S_IFSOCK | 0o600)
    except OSError: pass
" """,
}
MANY = 10


@pytest.mark.parametrize("maker", MAKERS)
async def test_names_that_must_be_hidden_are_bounded_whatever_they_are(
    opens: Opens, root: Path, maker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(namespaces, "MAX_HIDDEN_NAMES", MANY)
    sandbox = opens(root)
    script = f"({MAKERS[maker]}) 2>&1"
    first, second = await asyncio.gather(says(sandbox, script, root), says(sandbox, "true", root))
    assert first[0].exit_code is not None and second[0].exit_code == 0
    if maker not in ("sockets", "nodes"):
        assert "quota" in first[1].lower()
    await says(sandbox, script.replace("seq ", "seq 41 "), root)
    # What another session would have to hide, who knows nothing of what was made here.
    other = opens(root)
    masks = await other._confinement.scan_masks()  # pyright: ignore[reportPrivateUsage, reportOptionalMemberAccess]  what blocks is counted
    assert len(masks.masks) <= MANY
    ended, said = await says(other, "echo still here", root)
    assert (ended.exit_code, said.strip()) == (0, "still here")


async def test_what_is_taken_away_makes_room_again(
    opens: Opens, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(namespaces, "MAX_HIDDEN_NAMES", MANY)
    sandbox = opens(root)
    await says(sandbox, MAKERS["files"], root)
    assert len(os.listdir(root)) == MANY
    await says(sandbox, "rm .env.*", root)
    ended, _ = await says(sandbox, "echo x > .env.new", root)
    assert ended.exit_code == 0


@pytest.mark.proves("sandbox.mask.sockets")
async def test_a_socket_that_a_command_made_is_in_reach_of_the_next_one_and_of_no_other_session(
    opens: Opens, root: Path
) -> None:
    sandbox = opens(root)
    bind = "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"x.s\")'"
    ended, said = await says(sandbox, bind, root)
    assert ended.exit_code == 0, said
    found = [mask.path for mask in (await sandbox._confinement.scan_masks()).masks]  # pyright: ignore[reportPrivateUsage, reportOptionalMemberAccess]
    assert found == []
    hidden = [mask.path for mask in (await opens(root)._confinement.scan_masks()).masks]  # pyright: ignore[reportPrivateUsage, reportOptionalMemberAccess]
    assert hidden == [f"{root}/x.s"]
