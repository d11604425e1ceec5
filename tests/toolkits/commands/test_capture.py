"""A copy of what a producer wrote, taken between it and its filter, without any other difference.

Every pipeline of `pipelines.yaml` is run for real: as it is, with a copy, and (the oracle) its
producer alone.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from captured import finish_capture

from ferrule.toolkits.commands.capture import (
    CapturePlan,
    NotCaptured,
    describe_copy,
    plan_capture,
)

TABLE = yaml.safe_load(Path(__file__).with_name("pipelines.yaml").read_text(encoding="utf-8"))
ROWS = [row if isinstance(row, dict) else {"text": row} for row in TABLE["captured"]]
SHELLS = [shell for shell in ("bash", "dash", "mksh") if shutil.which(shell)]
ENVIRONMENT = {"PATH": os.environ["PATH"], "HOME": "/nowhere", "LC_ALL": "C.UTF-8"}


@dataclass(frozen=True)
class Outcome:
    """All that a command does that somebody could see."""

    status: int
    stdout: bytes
    stderr: bytes
    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes])


def furnish(folder: Path) -> Path:
    (folder / "x").mkdir(parents=True)
    (folder / "words.txt").write_text("pear\nfig\nfig\napple\npear\nquince", encoding="utf-8")
    (folder / "table.csv").write_text("a,b,c\n1,22,333\n", encoding="utf-8")
    (folder / "blob.bin").write_bytes(bytes(range(256)) * 300)
    return folder


def run(argv: tuple[str, ...], folder: Path) -> Outcome:
    done = subprocess.run(
        argv,
        cwd=folder,
        env=ENVIRONMENT,
        input=b"one\ntwo\n",
        capture_output=True,
        timeout=60,
        check=False,
    )
    files = {
        str(file.relative_to(folder)): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file()
    }
    # mksh names the folder in full.
    return Outcome(
        done.returncode, done.stdout, done.stderr.replace(bytes(folder), b"<here>"), files
    )


def planned(text: str, shell: str, path: Path, **options: Any) -> CapturePlan:
    plan = plan_capture([shell, "-c", text], str(path), **options)
    assert isinstance(plan, CapturePlan), plan
    return plan


@pytest.mark.proves("capture.changes-nothing", "capture.full-output")
@pytest.mark.parametrize(
    ("shell", "row"),
    [(s, row) for s in SHELLS for row in ROWS if row.get("only", s) == s],
    ids=lambda value: value if isinstance(value, str) else value["text"].strip(),
)
def test_a_pipeline_does_the_same_with_and_without_a_copy(
    shell: str, row: dict[str, Any], tmp_path: Path
) -> None:
    if row.get("needs") and shutil.which(row["needs"]) is None:
        pytest.skip(f"{row['needs']} is not installed")
    text, captures = row["text"], tmp_path / "captures"
    captures.mkdir()
    plan = planned(text, shell, captures / "copy")
    assert isinstance(plan.command, tuple)
    assert row.get("producer", plan.producer) == plan.producer
    assert row.get("filter", plan.filter) == plan.filter
    without = run((shell, "-c", text), furnish(tmp_path / "without"))
    assert run(plan.command, furnish(tmp_path / "with")) == without
    record = finish_capture(plan)
    assert (record is None) == bool(row.get("none"))
    if record is None:
        return
    assert [file.name for file in captures.iterdir()] == ["copy"]  # the notes are gone
    assert (record["producer"], record["filter"]) == (plan.producer, plan.filter)
    if row.get("early"):
        return
    # The oracle: the same text up to the last pipe.
    alone = text[: text.rindex(plan.filter)].rstrip().removesuffix("|")
    oracle = run((shell, "-c", alone), furnish(tmp_path / "alone"))
    assert oracle.stdout == row.get("before", "").encode() + (captures / "copy").read_bytes()
    assert record["complete"] is True
    assert record["producer_exit_code"] == (
        None if row.get("unknown") and shell != "bash" else _code(oracle)
    )


def _code(ended: Outcome) -> int:
    """As a shell says it: also for a shell that a signal ended, as `sh -c 'kill $$'` may be run in
    its place.
    """
    return 128 - ended.status if ended.status < 0 else ended.status


@pytest.mark.proves("capture.conservative")
@pytest.mark.parametrize(("text", "reason"), TABLE["left_alone"].items())
def test_what_is_not_plainly_harmless_is_left_alone_with_a_reason(text: str, reason: str) -> None:
    for shell in ("bash", "sh"):
        left = plan_capture(text, "/captures/copy", shell=shell)
        assert isinstance(left, NotCaptured)
        assert reason in left.reason
        assert left.reason


@pytest.mark.proves("capture.conservative")
def test_text_that_other_shells_read_differently_is_left_alone_for_them() -> None:
    text = r"echo $'a\'b | c' | tail -1"
    assert isinstance(plan_capture(text, "/captures/copy", shell="bash"), CapturePlan)
    assert isinstance(plan_capture(text, "/captures/copy", shell="dash"), NotCaptured)


@pytest.mark.proves("capture.conservative")
@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        (["seq", "100"], "without a shell"),
        (["seq", "100", "|", "tail"], "without a shell"),
        ([], "without a shell"),
        (["bash", "script.sh"], "no text"),
        (["bash", "script.sh", "seq"], "`script.sh` is an option"),
        (["bash", "-x", "-c", "seq 3 | tail -1"], "`-x`"),
        (["bash", "-xc", "seq 3 | tail -1"], "`-xc`"),
        (["bash", "-i", "-c", "seq 3 | tail -1"], "`-i`"),
        (["bash", "-c"], "no text"),
        (["zsh", "-c", "seq 3 | tail -1"], "without a shell"),
        (["sh", "-c", "seq 3 | head -1"], "`head`"),
    ],
)
def test_only_the_text_of_a_known_shell_is_looked_into(argv: list[str], reason: str) -> None:
    left = plan_capture(argv, "/captures/copy")
    assert isinstance(left, NotCaptured)
    assert reason in left.reason


@pytest.mark.proves("capture.conservative")
def test_a_shell_that_was_not_checked_is_left_alone() -> None:
    assert plan_capture("seq 3 | tail -1", "/captures/copy", shell="zsh") == NotCaptured(
        "how `zsh` reads it was not checked"
    )


@pytest.mark.proves("capture.full-output")
@pytest.mark.parametrize(
    "argv",
    [
        ("bash", "--noprofile", "--norc", "-c", "seq 3 | tail -1"),
        ("bash", "-euo", "pipefail", "-c", "sh -c 'seq 3; exit 2' | tail -1"),
        ("bash", "-ec", "echo $1 | cat", "name", "argument"),
        ("/bin/sh", "-c", "echo $1 | cat", "name", "argument"),
        ("sh", "-c", "seq 3 | tail -1"),
    ],
)
def test_words_around_the_text_stay_as_they_are(argv: tuple[str, ...], tmp_path: Path) -> None:
    plan = plan_capture(argv, str(tmp_path / "copy"))
    assert isinstance(plan, CapturePlan)
    assert len(plan.command) == len(argv)
    assert run(tuple(plan.command), tmp_path).stdout == run(argv, tmp_path).stdout
    assert finish_capture(plan) is not None


def test_what_is_captured_already_is_not_captured_again() -> None:
    for shell in ("bash", "sh"):
        plan = plan_capture("seq 3 | tail -1", "/captures/copy", shell=shell)
        assert isinstance(plan, CapturePlan)
        again = plan_capture(plan.command, "/captures/other", shell=shell)
        assert isinstance(again, NotCaptured)
        assert again.reason == "it names `/captures`, where the copy would be"
        assert isinstance(plan_capture(plan.command, "/elsewhere/copy", shell=shell), NotCaptured)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_copy_stops_growing_at_its_limit_and_the_pipeline_goes_on(
    shell: str, tmp_path: Path
) -> None:
    plan = planned("seq 300000 | tail -1", shell, tmp_path / "copy", limit=64 * 1024)
    assert isinstance(plan.command, tuple)
    done = run(plan.command, furnish(tmp_path / "with"))
    assert (done.status, done.stdout, done.stderr) == (0, b"300000\n", b"")
    record = finish_capture(plan)
    assert record is not None
    assert (record["bytes"], record["complete"], record["producer_exit_code"]) == (
        64 * 1024,
        False,
        0,
    )
    assert "the first 65536 bytes" in record["hint"]


def test_a_sh_keeps_at_least_half_of_the_limit_whatever_it_counts_in(tmp_path: Path) -> None:
    plan = planned("seq 300000 | tail -1", "sh", tmp_path / "copy", limit=64 * 1024)
    assert isinstance(plan.command, tuple)
    run(plan.command, furnish(tmp_path / "with"))
    assert (tmp_path / "copy").stat().st_size in (32 * 1024, 64 * 1024)


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("path", ["/dev/full", "/nonexistent/folder/copy", "/proc/copy"])
def test_a_copy_that_cannot_be_written_costs_only_the_copy(
    shell: str, path: str, tmp_path: Path
) -> None:
    text = "set -e; sh -c 'seq 100000; exit 2' | tail -1"
    plan = planned(text, shell, Path(path))
    assert isinstance(plan.command, tuple)
    folder = furnish(tmp_path / "with")
    assert run(plan.command, folder) == run((shell, "-c", text), folder)
    assert finish_capture(plan) is None
    assert not Path("/dev/full.status").exists() or os.remove("/dev/full.status") is None


@pytest.mark.parametrize("shell", SHELLS)
def test_without_a_tee_the_bytes_go_on(shell: str, tmp_path: Path) -> None:
    only = tmp_path / "bin"
    only.mkdir()
    for name in ("seq", "tail"):
        (only / name).symlink_to(str(shutil.which(name)))
    (tmp_path / "captures").mkdir()
    plan = planned(f"PATH={only}; seq 1000 | tail -1", shell, tmp_path / "captures" / "copy")
    assert isinstance(plan.command, tuple)
    assert run(plan.command, tmp_path).stdout == b"1000\n"
    assert finish_capture(plan) is None


@pytest.mark.proves("capture.changes-nothing")
@pytest.mark.parametrize(
    "shell", [shell for shell in SHELLS if shell != "mksh"]
)  # which waits for the pipeline
def test_a_command_that_is_ended_leaves_a_copy_of_what_was_said_until_then(
    shell: str, tmp_path: Path
) -> None:
    """The shell alone gets the signal: what notes the status must not keep it alive."""
    plan = planned("{ echo first; sleep 600; } | cat", shell, tmp_path / "copy")
    with subprocess.Popen(
        plan.command, env=ENVIRONMENT, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"first\n"  # so the copy is being written
            process.terminate()
            assert process.wait(30) == -signal.SIGTERM
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    record = finish_capture(plan)
    assert record is not None
    assert (record["producer_exit_code"], record["complete"]) == (None, False)
    assert record["hint"].startswith("the first ")


def test_there_is_no_record_where_the_command_put_something_else_in_the_place_of_the_copy(
    tmp_path: Path,
) -> None:
    plan = planned("seq 3 | tail -1", "sh", tmp_path / "copy")
    (tmp_path / "copy").symlink_to("/etc/passwd")
    assert finish_capture(plan) is None


@pytest.mark.parametrize("shell", SHELLS)
def test_the_record_has_the_producers_status_where_a_shell_ends_at_the_first_failure(
    shell: str, tmp_path: Path
) -> None:
    plan = planned("set -e; sh -c 'seq 3; exit 4' | tail -1", shell, tmp_path / "copy")
    assert isinstance(plan.command, tuple)
    run(plan.command, tmp_path)
    record = finish_capture(plan)
    assert record is not None
    assert (record["producer_exit_code"], record["bytes"]) == (4, 6)


@pytest.mark.parametrize(
    "notes",
    [
        "parts a b c\n",
        "parts 1\n",
        "parts\n",
        "\n",
        "parts 1 0 0 0 0\n",
        "\xff\xfe",
        "producer x\ntee y\n",
    ],
)
def test_notes_that_say_nothing_usable_leave_the_status_unknown(notes: str, tmp_path: Path) -> None:
    plan = planned("seq 3 | tail -1", "bash", tmp_path / "copy")
    (tmp_path / "copy").write_text("1\n2\n3\n", encoding="utf-8")
    (tmp_path / "copy.status").write_text(notes, encoding="latin-1")
    record = finish_capture(plan)
    assert record is not None
    assert (record["producer_exit_code"], record["complete"]) == (None, False)


def test_the_record_says_where_the_copy_is_for_the_model() -> None:
    """In a sandbox the command, this process and the model's readers know the file by three
    names.
    """
    plan = plan_capture("seq 3 | tail -1", "/tmp/captures/copy", shell="bash")
    assert isinstance(plan, CapturePlan)
    assert describe_copy(plan, 6, b"tee 0\nparts 4 0 0\n", "captures/copy") == {
        "full_output_path": "captures/copy",
        "producer": "seq 3",
        "filter": "tail -1",
        "hint": "all 6 bytes that the producer wrote are in this file: read it instead of running "
        "the command "
        "again; the producer ended with status 4",
        "producer_exit_code": 4,
        "bytes": 6,
        "complete": True,
    }


@pytest.mark.parametrize(("path", "limit"), [("copy", 65536), ("/captures/copy", 10)])
def test_a_path_or_limit_that_cannot_be_meant_is_refused(path: str, limit: int) -> None:
    with pytest.raises(ValueError, match="absolute path"):
        plan_capture("seq 3 | tail -1", path, limit=limit)


def test_without_the_second_reader_the_text_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ferrule.toolkits.commands.pipelines._is_reader_missing", lambda: True)
    left = plan_capture("seq 3 | tail -1", "/captures/copy", shell="bash")
    assert isinstance(left, NotCaptured)
    assert "pip install 'ferrule[capture]'" in left.reason
