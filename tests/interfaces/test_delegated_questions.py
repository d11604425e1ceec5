"""The question of a sub-agent whose process was killed, asked again by each interface."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

from ferrule.runtime.assemble import open_journal

AT_A_TERMINAL = "import sys; from ferrule.cli.entry import main; sys.argv[0] = 'ferrule'; main()"
AGENT = """---
description: Writes files.
tools: [write_file]
---
You write.
"""
QUESTION = b"allow? [1-4] "


def play(words: list[str], environment: dict[str, str], keys: bytes | None) -> tuple[int, str]:
    """`ferrule` at a terminal; at the question, `keys` are typed, or it is killed."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (40, 100))
    running = subprocess.Popen(
        [sys.executable, "-c", AT_A_TERMINAL, *words],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
        start_new_session=True,
    )
    os.close(theirs)
    seen, is_answered = b"", False
    while select.select([ours], [], [], 60)[0]:
        try:
            piece = os.read(ours, 65536)
        except OSError:
            break
        if not piece:
            break
        seen += piece
        if not is_answered and QUESTION in seen:
            is_answered = True
            if keys is None:
                running.send_signal(signal.SIGKILL)
            else:
                os.write(ours, keys)
    code = running.wait(timeout=60)
    os.close(ours)
    return code, seen.decode().replace("\r\n", "\n")


def test_a_run_that_is_resumed_at_a_terminal_asks_for_its_agent_and_does_as_told(
    folder: Path, script: Any, a_call: Any, environment: dict[str, str]
) -> None:
    environment = {**environment, "NO_COLOR": "1"}
    agents = Path(environment["FERRULE_CONFIG"]) / "agents"
    agents.mkdir(parents=True, exist_ok=True)
    (agents / "writer.md").write_text(AGENT)
    delegated = a_call("delegate", task="write", agent="writer")
    written = a_call("write_file", path="a.txt", content="hi\n")
    for keys, happens in [(b"1\n", True), (b"not today\n", False)]:
        model = script(delegated, written, {"say": "done"})
        code, screen = play(["run", "-m", model, "go"], environment, None)
        assert code == -signal.SIGKILL and "the agent `writer`" in screen
        with open_journal() as store:
            [session, _] = [info.session for info in store.sessions()[:2]][::-1]
            opened = next(iter(store.records(session))).event
            assert not opened.parent, "the first of the two is the person's own"
        model = script({"say": "written"}, {"say": "all done"})
        words = ["sessions", "resume", session, "-m", model]
        code, screen = play(words, environment, keys)
        assert screen.count("the agent `writer`") == 1 and screen.endswith("all done\n"), screen
        assert (folder / "a.txt").exists() == happens, screen
        (folder / "a.txt").unlink(missing_ok=True)
