"""Bad input through the public interfaces: a clear error of the right type and exit code, a next step,
nothing lost, no traceback.
"""

from __future__ import annotations

import gc
import io
import json
import os
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hostile_calls import TOOLS

from ferrule.cli.exit_codes import run
from ferrule.core.calls import ErrorType
from ferrule.core.errors import JournalError, ProviderError
from ferrule.core.messages import ToolMessage
from ferrule.engine.agent import Agent
from ferrule.engine.agent_options import Storage
from ferrule.models.ollama.client import Ollama
from ferrule.models.scripted import Scripted, calls, says
from ferrule.storage.journal.sqlite import SqliteJournal
from grouped_options import grouped
from ollama_double import OllamaDouble

CommandLine = Callable[..., tuple[int, str, str]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A workspace with a file of every awkward sort."""
    (tmp_path / "plain.txt").write_text("one\ntwo\n")
    (tmp_path / "binary.bin").write_bytes(bytes(range(256)))
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9\nplain\n")
    (tmp_path / "dir").mkdir()
    os.mkfifo(tmp_path / "pipe")
    return tmp_path


@pytest.fixture
def cli(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    own_folders: Path,
) -> CommandLine:
    """`cli("tools", "list")` -> exit code, standard output, standard error; a traceback fails the
    test.
    """
    monkeypatch.delenv("FERRULE_TRACEBACK", raising=False)
    monkeypatch.setenv("FERRULE_CACHE", str(own_folders / "cache"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(own_folders / "cache"))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO()))
    monkeypatch.chdir(folder)

    def call(*arguments: str) -> tuple[int, str, str]:
        code = run(list(arguments))
        gc.collect()  # A command ends with its process; here its journal must let go of the file.
        shown = capsys.readouterr()
        assert "Traceback" not in shown.out + shown.err
        return code, shown.out, shown.err

    return call


def agent(folder: Path, *steps: Any, **options: Any) -> Agent:
    given: dict[str, Any] = {
        "mode": "bypassPermissions",
        "journal": SqliteJournal(":memory:"),
        **options,
    }
    return Agent(Scripted(steps), TOOLS, **grouped(workspace=folder, **given))


# ---- arguments

BROKEN: list[tuple[str, str, ErrorType, str]] = [
    ("read_file", '{"path": true}', ErrorType.VALIDATION_FAILED, "`path` must be a string"),
    ("read_file", "{}", ErrorType.VALIDATION_FAILED, "`path` is missing"),
    ("read_file", '{"path": null}', ErrorType.VALIDATION_FAILED, "`path`"),
    ("read_file", '{"path": ["a"]}', ErrorType.VALIDATION_FAILED, "`path`"),
    ("read_file", '{"path": "plain.txt", "mode": "r"}', ErrorType.VALIDATION_FAILED, "`mode`"),
    (
        "read_file",
        '{"path": "plain.txt", "line_start": "first"}',
        ErrorType.VALIDATION_FAILED,
        "`line_start`",
    ),
    (
        "read_file",
        '{"path": "plain.txt", "line_start": 0}',
        ErrorType.VALIDATION_FAILED,
        "counted from 1",
    ),
    (
        "read_file",
        '{"path": "plain.txt", "line_start": 9}',
        ErrorType.VALIDATION_FAILED,
        "past the end",
    ),
    ("read_file", '{"path": "plain.txt"', ErrorType.PARSE_ERROR, "cut off"),
    ("read_file", "{'path': 'plain.txt'}", ErrorType.PARSE_ERROR, "not valid JSON"),
    ("read_file", "[" * 100_000, ErrorType.PARSE_ERROR, "nested too deeply"),
    ("read_file", '"plain.txt"', ErrorType.PARSE_ERROR, "JSON"),
    ("read_file", "7", ErrorType.VALIDATION_FAILED, "must be a JSON object"),
    ("read_file", '{"path": 1' + "0" * 5000 + "}", ErrorType.PARSE_ERROR, "cannot be read"),
    ("read_fil", '{"path": "plain.txt"}', ErrorType.NOT_FOUND, "did you mean `read_file`"),
    ("", "{}", ErrorType.NOT_FOUND, "there is no tool"),
    ("\ud800", "{}", ErrorType.NOT_FOUND, "there is no tool"),
    ("x" * 10_000, "{}", ErrorType.NOT_FOUND, "there is no tool"),
    ("list_files", '{"sort_by": "colour"}', ErrorType.VALIDATION_FAILED, "`sort_by`"),
    ("list_files", '{"max_entries": 1e400}', ErrorType.VALIDATION_FAILED, "`max_entries`"),
    ("git_command", '{"subcommand": "push"}', ErrorType.VALIDATION_FAILED, "`subcommand`"),
    ("run_command", '{"command": {"a": 1}}', ErrorType.VALIDATION_FAILED, "`command`"),
]


async def test_bad_arguments_of_a_model_are_one_typed_error_each_and_the_run_goes_on(
    folder: Path,
) -> None:
    asked = [(tool, text) for tool, text, _, _ in BROKEN]
    rounds = [calls(*asked[at : at + 10]) for at in range(0, len(asked), 10)]
    session = agent(folder, *rounds, says("done")).session()
    done = await session.run("go")
    assert done.text == "done" and len(done.results) == len(BROKEN)
    for result, (tool, text, error, words) in zip(done.results, BROKEN, strict=True):
        assert (result.error_type, words in (result.error_message or "")) == (error, True), (
            tool,
            text[:60],
            result,
        )
    told = [m for m in session.driver.machine.history if isinstance(m, ToolMessage)]
    assert [message.success for message in told] == [False] * len(BROKEN)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["tools", "call", "read_fil", "path=x"], 2, "did you mean `read_file`"),
        (["tools", "call", "read_file", "--json", "{"], 2, "--json"),
        (["tools", "call", "read_file", "--json", "[1]"], 2, "must be an object"),
        (["tools", "call", "read_file", "path"], 2, "KEY=VALUE"),
        (["tools", "call", "read_file", "--json", '{"path": true}'], 1, "`path` must be a string"),
        (["tools", "call", "read_file", "pfad=x"], 1, "pfad"),
        (["tools", "call", "write_file", "path=plain.txt", "content=x"], 4, "no one was available"),
        (
            ["tools", "call", "read_file", "path=plain.txt", "--ask", "Read"],
            4,
            "no one was available",
        ),
        (["tools", "call", "read_file", "path=.env", "--yes-to", "read_file"], 4, "secret"),
        (["tools", "call", "list_files", "path=nowhere"], 1, "not_found"),
        (["tools", "call", "list_files", "-C", "nowhere"], 2, "nowhere"),
        (["tools", "call", "list_files", "--mode", "yolo"], 2, "yolo"),
        (["tools", "call", "list_files", "--allow", "Bash("], 2, "parenthesis"),
        (["run"], 2, "no prompt given"),
        (["nothing"], 2, "nothing"),
        (["sessions", "show", "nope"], 2, "`ferrule sessions list` shows them"),
        (["run", "-m", "local:smolm2", "x"], 2, "did you mean `smollm2`?"),
        (["run", "-m", "local:none.gguf", "x"], 6, "hint: check the path"),
        (["mcp", "add", "x"], 2, "`ferrule mcp add x -- COMMAND ...`"),
    ],
    ids=lambda value: " ".join(value[:4]) if isinstance(value, list) else None,
)
def test_bad_arguments_of_the_command_line(
    arguments: list[str], code: int, words: str, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, _, said = cli(*arguments)
    assert (found, words in said) == (code, True), said


# ---- files


@pytest.mark.parametrize(
    ("path", "error", "words"),
    [
        ("binary.bin", ErrorType.PARSE_ERROR, "binary"),
        ("pipe", ErrorType.VALIDATION_FAILED, "pipe"),
        ("dir", ErrorType.VALIDATION_FAILED, "folder"),
        ("nowhere", ErrorType.NOT_FOUND, "not found"),
        ("plain.txt/x", ErrorType.NOT_FOUND, "not a folder"),
    ],
)
async def test_what_is_no_text_file_is_said_to_be_what_it_is(
    path: str, error: ErrorType, words: str, folder: Path
) -> None:
    session = agent(folder).session()
    for tool, more in (
        ("read_file", {}),
        ("read_file_tail", {}),
        ("file_outline", {}),
        ("edit_file", {"old_string": "a", "new_string": "b"}),
        ("replace_lines", {"line_start": 1, "line_end": 1, "new_content": "x"}),
    ):
        result = await session.call(tool, path=path, **more)
        assert (result.error_type, words in (result.error_message or "")) == (error, True), (
            tool,
            result,
        )
    assert (folder / "binary.bin").read_bytes() == bytes(range(256))


async def test_bytes_that_are_not_utf8_are_shown_as_such_and_survive_an_edit_elsewhere(
    folder: Path,
) -> None:
    session = agent(folder).session()
    read = await session.call("read_file", path="latin.txt")
    assert read.success and "\ufffd" in read.data and "not UTF-8" in read.data
    assert (
        await session.call("edit_file", path="latin.txt", old_string="plain", new_string="fancy")
    ).success
    assert (folder / "latin.txt").read_bytes() == b"caf\xe9\nfancy\n"


async def test_a_file_of_50_mb_is_read_in_parts(folder: Path) -> None:
    (folder / "large.log").write_bytes(b"0123456789abcde\n" * (50 * 65_536))
    session = agent(folder).session()
    whole = await session.call("read_file", path="large.log")
    assert whole.success and len(whole.data) < 20_000
    assert whole.data.endswith("of 3276800; go on at line 883]")
    part = await session.call(
        "read_file", path="large.log", line_start=3_000_000, line_end=3_000_001
    )
    assert part.success and "3000000: 0123456789abcde" in part.data
    assert (await session.call("read_file_tail", path="large.log", line_count=2)).success
    found = await session.call("search_files", pattern="one")
    assert found.success and "plain.txt" in found.data
    edited = await session.call("edit_file", path="large.log", old_string="0", new_string="1")
    assert edited.error_type is ErrorType.LIMIT
    assert (folder / "large.log").stat().st_size == 50 * 1024 * 1024


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    place = tmp_path / "small"
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(place)],
        capture_output=True,
        check=False,
    )
    if made.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {made.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


async def test_a_full_disk_is_said_and_leaves_the_old_content(small_disk: Path) -> None:
    (small_disk / "kept.txt").write_text("old\n")
    session = agent(small_disk).session()
    assert (await session.call("read_file", path="kept.txt")).success
    for tool, more in (
        ("write_file", {"content": "x" * 200_000}),
        ("edit_file", {"old_string": "old", "new_string": "x" * 200_000}),
    ):
        result = await session.call(tool, path="kept.txt", **more)
        assert result.error_type is ErrorType.IO_ERROR and "disk is full" in (
            result.error_message or ""
        )
        assert (small_disk / "kept.txt").read_text() == "old\n"
    assert sorted(os.listdir(small_disk)) == ["kept.txt"]


async def test_a_journal_on_a_full_disk_stops_the_run_before_any_effect(
    folder: Path, small_disk: Path
) -> None:
    (small_disk / "filler").write_bytes(b"x" * 60_000)
    ours = agent(
        folder,
        calls(("write_file", {"path": "made.txt", "content": "x"})),
        says("no"),
        journal=small_disk / "j.db",
    )
    with pytest.raises(JournalError):
        await ours.run("go")
    assert not (folder / "made.txt").exists()


async def test_a_read_only_folder_is_said_and_nothing_is_changed(small_disk: Path) -> None:
    (small_disk / "kept.txt").write_text("old\n")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    session = agent(small_disk).session()
    assert (await session.call("read_file", path="kept.txt")).success
    for tool, arguments in (
        ("write_file", {"path": "kept.txt", "content": "new"}),
        ("write_file", {"path": "new.txt", "content": "new"}),
        ("create_dir", {"path": "made"}),
        ("delete_path", {"path": "kept.txt"}),
        ("move_path", {"source": "kept.txt", "target": "moved.txt"}),
    ):
        result = await session.call(tool, **arguments)
        assert result.error_type is ErrorType.IO_ERROR and "read-only" in (
            result.error_message or ""
        ), (
            tool,
            result,
        )
    assert (
        sorted(os.listdir(small_disk)) == ["kept.txt"]
        and (small_disk / "kept.txt").read_text() == "old\n"
    )


# ---- models


@pytest.mark.parametrize(
    ("model", "code", "words"),
    [
        ("local:smollm2", 6, "hint: ferrule models pull smollm2"),
        ("local:nothing", 2, "hint: known models: `gemma3-270m`, `qwen2.5-coder-0.5b`, `smollm2`"),
        ("opnai:gpt", 2, "did you mean `openai`"),
        ("llama3.2", 2, "hint: write `provider:model`"),
        ("openai:gpt-5", 2, "hint: set OPENAI_API_KEY"),
        ("scripted:nowhere.yaml", 2, "nowhere.yaml"),
    ],
)
def test_a_model_that_cannot_be_had_names_the_next_step(
    model: str, code: int, words: str, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FERRULE_MODELS", raising=False)
    found, out, said = cli("run", "hello", "-m", model)
    assert (found, out, words in said) == (code, "", True), said


def closed_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def test_a_dead_server_is_exit_code_6_and_the_session_is_kept(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_HOST", f"127.0.0.1:{closed_port()}")
    code, _, said = cli("run", "hello there", "-m", "ollama:llama3.2")
    assert (code, "ollama serve" in said) == (6, True), said
    assert "hello there" in cli("sessions", "list")[1]


async def test_a_model_that_ollama_does_not_have_names_the_command_and_those_there_are(
    folder: Path,
) -> None:
    async with OllamaDouble([says("never")]) as double:
        ours = Agent(
            Ollama("qwen9", base_url=double.url),
            TOOLS,
            workspace=folder,
            storage=Storage(journal=SqliteJournal(":memory:")),
        )
        try:
            with pytest.raises(ProviderError) as caught:
                await ours.run("hello")
        finally:
            await ours.close()
    assert (caught.value.code, caught.value.exit_code) == ("model_not_found", 6)
    assert "ollama pull qwen9" in str(caught.value) and "llama3.2" in str(caught.value)


# ---- settings and journal


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (b"model: scripted:x\nlimits:\n  max_turns: many\n", "ferrule.yaml:3:14: "),
        (b"limits:\n  max_turns: 0\n", "ferrule.yaml:2:14: "),
        (b"model: [\n", "ferrule.yaml:2:1: "),
        (b"modle: x\n", "ferrule.yaml:1:1: "),
        (b"mode: default\nmode: plan\n", "ferrule.yaml:2:1: "),
        (b"mode: default\nmodel: \xff\n", "ferrule.yaml:2:1: "),
        (b"permissions:\n  allow: ['Bash(']\n", "ferrule.yaml:2:1"),
        (b"mode: !!python/object:os.system x\n", "ferrule.yaml:1:7: "),
        (b"a: &a [*a]\n", "ferrule.yaml:1:"),
        (b"[" * 100_000, "ferrule.yaml:1:"),
        (b"- a\n", "ferrule.yaml:1:1: "),
    ],
)
def test_a_corrupt_settings_file_names_file_line_and_column(
    text: bytes, place: str, cli: CommandLine, own_folders: Path
) -> None:
    file = own_folders / "config" / "ferrule.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text)
    for arguments in (
        ["tools", "list"],
        ["tools", "call", "list_files"],
        ["run", "hi"],
        ["sessions", "list"],
    ):
        code, out, said = cli(*arguments)
        assert (code, out, str(file.parent / place) in said) == (2, "", True), (arguments, said)
    assert file.read_bytes() == text


def journaled(cli: CommandLine, own_folders: Path, count: int = 3) -> tuple[Path, list[str]]:
    """A journal with some sessions of one call each, and their ids, the oldest first."""
    for number in range(count):
        assert cli("tools", "call", "add_task", f"content=task {number}")[0] == 0
    listed = json.loads(cli("sessions", "list", "--json")[1])
    return own_folders / "state" / "journal.db", [row["session"] for row in listed][::-1]


def test_a_journal_whose_last_event_was_altered_names_it_and_salvage_keeps_the_rest(
    cli: CommandLine, own_folders: Path
) -> None:
    path, sessions = journaled(cli, own_folders)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(
            "UPDATE records SET body = replace(body, 'task_1', 'task_9') WHERE id = (SELECT "
            "max(id) FROM records)"
        )
    db.close()
    code, _, said = cli("sessions", "verify", sessions[-1])
    assert (code, "event" in said) == (1, True), said
    for session in sessions[:-1]:
        code, out, _ = cli("sessions", "verify", session)
        assert (code, f"{session}: 4 events verify" in out) == (0, True), out
    code, out, said = cli("sessions", "salvage", "--yes")
    assert code == 0 and "of 3 sessions kept" in out and "lost:" in said
    assert [cli("sessions", "verify", session)[0] for session in sessions] == [0, 0, 0]
    assert list(path.parent.glob("journal.db.damaged-*"))


@pytest.mark.parametrize("damage", ["cut", "overwritten", "not a database"])
def test_a_damaged_journal_file_is_said_with_the_way_out_and_is_not_made_worse(
    damage: str, cli: CommandLine, own_folders: Path
) -> None:
    path, _ = journaled(cli, own_folders)
    data = path.read_bytes()
    broken = {
        "cut": data[: len(data) // 2 + 100],
        "overwritten": data[:4096] + b"\xff" * (len(data) - 4096),
        "not a database": b"hello " * 1000,
    }[damage]
    path.write_bytes(broken)
    for name in ("journal.db-wal", "journal.db-shm"):
        (path.parent / name).unlink(missing_ok=True)
    # In a process of its own: one that could not open a journal holds on to it until it ends.
    program = "from ferrule.cli.entry import main; main()"
    arguments = ["tools", "call", "add_task", "content=more"]
    ended = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False
    )
    assert ended.returncode in (0, 1) and "Traceback" not in ended.stderr
    assert ended.returncode == 0 or ("hint:" in ended.stderr and "salvage" in ended.stderr)
    code, _, said = cli("sessions", "salvage", "--yes")
    assert code == 0, said
    assert cli("tools", "call", "add_task", "content=again")[0] == 0
    assert (path.parent / "journal.db.damaged-1").exists()
