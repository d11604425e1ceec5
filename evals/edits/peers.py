"""Other programs' editors on the same cases, each in an environment of its own.

An environment is a folder below `build/edits/envs` with the package of that name; `make_environment`
makes it. Nothing of it is imported here.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .changes import Change
from .forms import make_unified, make_v4a

PROGRAM = Path(__file__).with_name("peer_program.py")


@dataclass(frozen=True)
class Peer:
    """An editor: the package that has it, with its version, and the form it is sent."""

    name: str
    package: str
    version: str
    form: str


PEERS = (
    Peer("aider-blocks", "aider-chat", "0.86.2", "edits"),
    Peer("deepagents", "deepagents", "0.7.32", "edits"),
    Peer("codex", "codex-apply-patch", "0.4.0", "V4A patch"),
    Peer("aider-diff", "aider-chat", "0.86.2", "unified diff"),
)
OUTCOMES = ("right", "refused", "partly", "wrong")


def make_environment(peer: Peer, folder: Path) -> Path:
    """Return the Python of a peer's environment, made if it is not there."""
    python = folder / peer.package / "bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder / peer.package], check=True)
        wanted = f"{peer.package}=={peer.version}"
        subprocess.run([python, "-m", "pip", "install", "--quiet", wanted], check=True)
    return python


def send_all(
    peer: Peer, python: Path, by_mistake: Mapping[str, Sequence[Change]]
) -> dict[str, list[str]]:
    """Return what came of the cases of each mistake, each one of `OUTCOMES`.

    `partly`: the editor reported a failure and had changed the file by then.
    """
    cases = [case for each in by_mistake.values() for case in each]
    rows = [
        json.dumps(
            {
                "before": case.before,
                "edits": [[edit.old, edit.new] for edit in case.edits],
                "v4a": make_v4a(case.edits),
                "diff": make_unified(case.edits),
            }
        )
        for case in cases
    ]
    ended = subprocess.run(
        [python, PROGRAM, peer.name],
        input="".join(f"{row}\n" for row in rows),
        capture_output=True,
        text=True,
        check=True,
    )
    answers = [json.loads(line) for line in ended.stdout.split("\n") if line]
    assert len(answers) == len(cases), ended.stderr[-2000:]
    judged = map(_judge, cases, answers)
    return {name: list(itertools.islice(judged, len(each))) for name, each in by_mistake.items()}


def _judge(case: Change, answer: dict[str, object]) -> str:
    if answer["text"] == case.after:
        return "right"
    # Some editors only say that nothing fitted; what matters is that nothing changed.
    if answer["text"] == case.before:
        return "refused"
    return "partly" if answer["failed"] else "wrong"
