"""`ferrule run -a`: files of the folder, and standard input, become part of the message."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from media_samples import PDF, make_png


def media_of(out: str) -> list[tuple[str, int]]:
    """The media of the run's first event, as `--json-stream` prints it."""
    events = [json.loads(line) for line in out.splitlines()]
    (started,) = [one for one in events if one["kind"] == "run.started"]
    return [(one["mime"], one["size"]) for one in started["media"]]


def test_files_and_standard_input_are_attached(folder: Path, ferrule: Any, script: Any) -> None:
    (folder / "p.png").write_bytes(make_png())
    (folder / "q.pdf").write_bytes(PDF)
    model = script({"say": "seen"})
    ran = ferrule("run", "-m", model, "--json-stream", "-a", "p.png", "-a", "q.pdf", "look")
    expected = [("image/png", len(make_png())), ("application/pdf", len(PDF))]
    assert (ran.code, media_of(ran.out)) == (0, expected)
    piped = ("run", "-m", script({"say": "seen"}), "--json-stream", "-a", "-", "look")
    ran = ferrule(*piped, stdin=PDF)
    assert (ran.code, media_of(ran.out)) == (0, expected[1:])


def test_what_cannot_be_attached_is_an_error_that_says_why(
    folder: Path, ferrule: Any, script: Any
) -> None:
    (folder / ".env").write_text("KEY=1")
    (folder / "half.png").write_bytes(make_png()[:-20])
    for name, said in (
        (".env", "secrets"),
        ("../x.png", "cannot be read"),
        ("half.png", "cut off"),
    ):
        ran = ferrule("run", "-m", script({"say": "seen"}), "-a", name, "look")
        assert ran.code == 2, ran.err
        assert said in ran.err
