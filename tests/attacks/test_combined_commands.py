"""Commands of one session that work together reach no more than one alone: on each backend, whoever of
them ends first.

Each row is shown to do its harm where nothing holds it, or says why that cannot be shown. `make
attacks` takes all rows, other runs a share of them.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from combined_rows import PRELUDE, TOGETHER, Together
from confined import Confined
from sandbox_world import World

from ferrule.sandbox.backends import bubblewrap
from ferrule.sandbox.backends.probes import probe
from ferrule.sandbox.backends.selection import available_backends
from ferrule.sandbox.policy import SandboxPolicy

BACKENDS = ("namespaces", "bubblewrap", "landlock")
SHARE = 1 if os.environ.get("FERRULE_TEST_ATTACKS") == "all" else 15


def texts(world: World, row: Together, scripts: tuple[str, ...]) -> list[str]:
    """The scripts of a row as bash runs them in this world."""
    return [
        world.text(f"exec <python> - <<'END'\n{PRELUDE}\n{script}\nEND".replace("<row>", row.id))
        for script in scripts
    ]


@pytest.mark.parametrize("backend", BACKENDS, scope="module")
@pytest.mark.parametrize("row", TOGETHER[::SHARE], ids=lambda row: row.id)
def test_commands_that_work_together_reach_nothing(
    attacked_world: World, confined: Confined, row: Together
) -> None:
    tmp = confined.sandbox.scratch_folder
    assert tmp is not None
    shown = confined.run_at_once(
        texts(attacked_world, row, row.stay),
        texts(attacked_world, row, row.end),
        tmp[0] / row.id / "go",
        home=attacked_world.home,
    )
    assert not attacked_world.harm(shown), shown.decode(errors="replace")[-800:]


def unconfined(world: World, row: Together, tmp: Path) -> bytes:
    environment = {**os.environ, "HOME": str(world.home), "TMPDIR": str(tmp)}
    environment["DEPLOY_TOKEN"] = world.canary().strip()

    def start(text: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            ["bash", "--noprofile", "--norc", "-c", text],
            cwd=world.root,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def end(shell: subprocess.Popen[bytes]) -> bytes:
        try:
            return shell.communicate(timeout=20)[0]
        except subprocess.TimeoutExpired:
            os.killpg(shell.pid, signal.SIGKILL)
            return shell.communicate()[0]

    staying = [start(text) for text in texts(world, row, row.stay)]
    shown = [end(start(text)) for text in texts(world, row, row.end)]
    (tmp / row.id).mkdir(exist_ok=True)
    (tmp / row.id / "go").touch()
    return b"".join([*shown, *map(end, staying)])


@pytest.mark.proves("sandbox.attacks.rows-do-harm")
@pytest.mark.parametrize("row", TOGETHER[::SHARE], ids=lambda row: row.id)
def test_unconfined_commands_do_the_harm_together(attacked_world: World, row: Together) -> None:
    if row.why_no_control:
        pytest.skip(row.why_no_control)
    tmp = Path(tempfile.mkdtemp(prefix="ferrule-together-"))
    # What rows share beside the folder of their own: a socket that an earlier run left there is in
    # the way.
    left = Path("/var/tmp") / f"{row.id}.s"
    left.unlink(missing_ok=True)
    try:
        shown = unconfined(attacked_world, row, tmp)
    finally:
        shutil.rmtree(tmp)
        left.unlink(missing_ok=True)
    assert attacked_world.harm(shown), shown.decode(errors="replace")[-500:]


def test_the_table_is_large_and_each_row_has_its_own_name() -> None:
    assert len(TOGETHER) >= 60
    assert len({row.id for row in TOGETHER}) == len(TOGETHER)


def test_where_mounts_cannot_be_locked_no_folder_is_handed_on(
    attacked_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bubblewrap, "probe", lambda: replace(probe(), bwrap_locks=False))
    policy = SandboxPolicy(attacked_world.root, require=frozenset())
    found = next(
        (one for one in available_backends(policy, probe()) if one.name == "bubblewrap"), None
    )
    if found is None:
        pytest.skip("this machine cannot start `bubblewrap`")
    held = Confined(policy, found)
    try:
        scratch = held.sandbox.scratch_folder
        assert scratch is not None
        for row in TOGETHER:
            if row.id not in ("by-stream-read", "by-datagram-make"):
                continue
            stay, end = texts(attacked_world, row, row.stay), texts(attacked_world, row, row.end)
            shown = held.run_at_once(
                stay, end, scratch[0] / row.id / "go", home=attacked_world.home
            )
            assert b"Permission denied" in shown
            assert not attacked_world.harm(shown), shown
        pairs = attacked_world.text(
            "<python> -c 'import socket; socket.socketpair(); print(\"pairs\")'"
        )
        _, shown = held.run(pairs, home=attacked_world.home)
        assert shown == b"pairs\n"
    finally:
        held.close()


class Served:
    """`ferrule serve mcp` in the workspace, spoken to over its standard streams."""

    def __init__(self, world: World, state: Path) -> None:
        environment = {**os.environ, "HOME": str(world.home)}
        environment |= {"XDG_STATE_HOME": str(state), "XDG_CACHE_HOME": str(state)}
        environment["FERRULE_SANDBOX_MODE"] = "required"
        programs = os.path.dirname(os.path.realpath(sys.executable))
        environment["PATH"] = f"{programs}:/usr/bin:/bin"
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                "from ferrule.cli.entry import main; main()",
                "serve",
                "mcp",
                "--allow",
                "Bash(*)",
            ],
            cwd=world.root,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answers: dict[str, str] = {}
        client = {"name": "raw", "version": "1"}
        self.send(
            "initialize",
            {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client},
            "0",
        )
        self.answer("0")
        self.send("notifications/initialized", {})

    def send(self, method: str, parameters: object, number: str = "") -> None:
        assert self._process.stdin is not None
        named = {"id": number} if number else {}
        said = {"jsonrpc": "2.0", "method": method, "params": parameters, **named}
        self._process.stdin.write(json.dumps(said) + "\n")
        self._process.stdin.flush()

    def call(self, number: str, *command: str) -> None:
        self.send(
            "tools/call", {"name": "run_command", "arguments": {"command": list(command)}}, number
        )

    def answer(self, number: str) -> str:
        """What came back for a request, in whatever order answers come."""
        assert self._process.stdout is not None
        while number not in self._answers:
            line = self._process.stdout.readline()
            assert line, "the server ended"
            self._answers[str(json.loads(line).get("id"))] = line
        return self._answers[number]

    def close(self) -> None:
        self._process.communicate(timeout=30)


@pytest.mark.parametrize("name", ["by-stream-read", "by-stream-make"])
def test_two_calls_of_a_server_hand_each_other_nothing(
    attacked_world: World, tmp_path: Path, name: str
) -> None:
    if not probe().namespaces:
        pytest.skip("no namespaces here")
    row = next(row for row in TOGETHER if row.id == name)
    # Until the view that the folder was opened in is gone.
    gone = "[time.sleep(0.01) for _ in range(1000) if os.readlink(f'/proc/self/fd/{d}') != '/']"
    stays = row.stay[0].replace("there('go')", gone)
    for file, script in (("stays.py", stays), ("ends.py", row.end[0])):
        (attacked_world.root / file).write_text(
            attacked_world.text(f"{PRELUDE}\n{script}\n").replace("<row>", row.id)
        )
    server = Served(attacked_world, tmp_path)
    try:
        server.call("stays", "python3", "stays.py")
        server.call("ends", "python3", "ends.py")
        shown = server.answer("stays")
    finally:
        server.close()
    assert "no:" in shown, shown
    assert not attacked_world.harm(shown.encode()), shown
