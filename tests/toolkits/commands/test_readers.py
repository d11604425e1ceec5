"""Reading what commands said: in parts that come to the whole, and nothing else."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from command_world import World
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ferrule.core.calls import ErrorType, encode_json
from ferrule.core.errors import RetryCall, ToolFailed
from ferrule.engine.dispatcher import Dispatcher
from ferrule.engine.usable_tools import UsableTools
from ferrule.permissions.rule_evaluation import PermissionGate
from ferrule.toolkits.commands import CommandPolicy
from ferrule.toolkits.commands.output_folder import OutputFolder, remove_dead_folders
from ferrule.toolkits.commands.outputs import Outputs
from ferrule.tools.catalog import Catalog

OUTPUT_CAP = 64 * 1024


async def test_all_three_outputs_are_read_by_either_id_and_by_path(world: World) -> None:
    record = await world.run("echo out; echo err >&2")
    for locator in ("command_id", "handle_id"):
        for stream, text in (("stdout", "out\n"), ("stderr", "err\n")):
            read = await world.call(
                "read_command_output", **{locator: record[locator]}, stream=stream
            )
            assert (read["content"], read["bytes_read"], read["total_bytes"], read["eof"]) == (
                text,
                4,
                4,
                True,
            )
    for name, text in (("stdout_path", "out\n"), ("stderr_path", "err\n")):
        assert (await world.call("read_command_output", path=record[name]))["content"] == text
    assert (await world.call("read_command_output", command_id=record["command_id"]))[
        "total_bytes"
    ] == 8


async def test_a_part_and_the_end_can_be_read(world: World) -> None:
    record = await world.run(["seq", "100000"])
    part = await world.call(
        "read_command_output", command_id=record["command_id"], offset=4, length=4
    )
    assert (part["content"], part["offset"], part["eof"]) == ("3\n4\n", 4, False)
    end = await world.call("read_command_output_tail", command_id=record["command_id"])
    assert end["content"].endswith("99999\n100000\n") and end["bytes_read"] == 12_000 and end["eof"]
    beyond = await world.call("read_command_output", command_id=record["command_id"], offset=10**9)
    assert (beyond["content"], beyond["bytes_read"], beyond["eof"]) == ("", 0, True)


async def test_what_runs_can_be_read_and_is_not_at_its_end(world: World) -> None:
    gate = world.folder / "gate"
    os.mkfifo(gate)
    record = await world.run("echo first; cat gate", background_after_ms=200)
    read = await world.call("read_command_output", command_id=record["command_id"])
    assert (read["content"], read["eof"], read["status"]) == ("first\n", False, "running")
    gate.write_text("second\n")
    await world.wait(record)
    rest = await world.call(
        "read_command_output", command_id=record["command_id"], offset=read["bytes_read"]
    )
    assert (rest["content"], rest["eof"]) == ("second\n", True)


@pytest.mark.parametrize(
    "command",
    ["head -c 300000 /dev/zero", "head -c 300000 /dev/urandom", "seq 60000", "yes é | head -90000"],
)
async def test_reading_on_leads_to_the_end_in_results_that_fit(world: World, command: str) -> None:
    record = await world.run(command)
    offset, got = 0, ""
    while True:
        read = await world.call(
            "read_command_output", command_id=record["command_id"], offset=offset, length=10**9
        )
        assert len(encode_json(read).encode()) <= OUTPUT_CAP
        assert read["offset"] == offset and (read["bytes_read"] > 0 or read["eof"])
        got += read["content"]
        offset += read["bytes_read"]
        if read["eof"]:
            break
    assert offset == record["byte_count"]
    if "urandom" not in command:
        assert got == Path(record["output_path"]).read_text()
    end = await world.call(
        "read_command_output_tail", command_id=record["command_id"], length=10**9
    )
    assert len(encode_json(end).encode()) <= OUTPUT_CAP and end["eof"]


async def test_smaller_results_of_the_settings_are_kept_to(world: World) -> None:
    world.set(CommandPolicy(shell_allowed=True, result_bytes=4096))
    record = await world.run(["seq", "10000"])
    assert len(encode_json(record)) <= 4096
    assert (
        len(encode_json(await world.call("read_command_output", command_id=record["command_id"])))
        <= 4096
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"command_id": "a", "path": "b"},
        {"command_id": "x", "offset": -1},
        {"command_id": "x", "length": 0},
    ],
)
async def test_a_reader_must_be_told_what_to_read(world: World, wrong: dict[str, Any]) -> None:
    with pytest.raises(RetryCall):
        await world.call("read_command_output", **wrong)


@pytest.mark.proves("command.filtered-output-kept")
async def test_what_a_filter_hides_is_kept_and_read_like_any_output(world: World) -> None:
    record = await world.run("cd sub && seq 100 | tail -3")
    assert record["stdout"] == "98\n99\n100\n"
    capture = record["output_capture"]
    assert (capture["producer"], capture["filter"], capture["complete"]) == (
        "seq 100",
        "tail -3",
        True,
    )
    read = await world.call("read_command_output", path=capture["full_output_path"])
    assert (read["content"], read["eof"]) == ("".join(f"{n}\n" for n in range(1, 101)), True)
    assert capture["hint"].endswith("; `read_command_output` with `path` reads it")
    in_argv = await world.run(["sh", "-c", "seq 100 | wc -l"])
    assert in_argv["stdout"].strip() == "100" and in_argv["output_capture"]["bytes"] == 292
    for text in (
        "seq 100 | head -3",
        "seq 9 | grep -q 3",
        "echo $(date) | wc",
        "(echo a; echo b) | wc",
    ):
        assert "output_capture" not in await world.run(text)
    world.set(preserve_filtered_output=False)
    assert "output_capture" not in await world.run("seq 100 | tail -3")


@pytest.mark.proves("command.filtered-output-kept")
@pytest.mark.parametrize("reader", [True, False])
async def test_a_copy_is_named_only_where_a_tool_can_read_it(world: World, reader: bool) -> None:
    tools = [tool for tool in world.tools.values() if reader or tool.name != "read_command_output"]
    dispatcher = Dispatcher(Catalog(tools), PermissionGate(mode="bypassPermissions"))
    world.resources[UsableTools] = UsableTools(SimpleNamespace(dispatcher=dispatcher))
    record = await world.run("seq 100 | tail -3")
    assert record["stdout"] == "98\n99\n100\n"
    assert ("output_capture" in record) is reader


@pytest.mark.proves("command.filtered-output-kept")
async def test_a_copy_that_was_replaced_by_a_link_is_not_shown(world: World) -> None:
    (world.folder / "secret").write_text("secret")
    # The producer knows where copies lie, waits for the one of its own output, and puts a link in
    # its place.
    script = (
        'until ls "$FERRULE_STATE"/commands/*/.copies/* >/dev/null 2>&1; do :; done\n'
        'for f in "$FERRULE_STATE"/commands/*/.copies/*; do ln -sf "$PWD/secret" "$f"; '
        "done\necho x\n"
    )
    world.set(CommandPolicy(shell_allowed=True, allow_env=("FERRULE_STATE",)))
    (world.folder / "script.sh").write_text(script)
    record = await world.run("sh script.sh | cat")
    assert "output_capture" not in record
    assert "secret" not in record["stdout"]


# ---- attacks


async def test_a_path_is_a_name_for_an_output_and_nothing_else(world: World) -> None:
    record = await world.run(["echo", "hi"])
    (world.folder / "link").symlink_to(record["output_path"])
    kept = Path(record["output_path"])
    for path in (
        "/etc/passwd",
        "a.txt",
        str(world.folder / "a.txt"),
        str(world.folder / "link"),
        str(kept.parent),
        kept.name,
        f"{kept.parent}/../{kept.parent.name}/{kept.name}",
        f"{kept.parent}//{kept.name}",
        f"{kept}/",
        "../../etc/passwd",
        str(kept.parent) + ".lock",
        f"/proc/self/root{kept}",
        record["command_id"],
    ):
        for name in ("read_command_output", "read_command_output_tail"):
            with pytest.raises(ToolFailed) as raised:
                await world.call(name, path=path)
            assert raised.value.error_type is ErrorType.NOT_FOUND, path


@pytest.mark.parametrize("put", ["symlink", "hard link", "file", "fifo", "folder"])
async def test_what_was_put_in_the_place_of_an_output_is_not_read(world: World, put: str) -> None:
    (world.folder / "secret").write_text("secret")
    record = await world.run(["echo", "hi"])
    kept = Path(record["output_path"])
    kept.unlink()
    match put:
        case "symlink":
            kept.symlink_to(world.folder / "secret")
        case "hard link":
            os.link(world.folder / "secret", kept)
        case "file":
            kept.write_text("secret")
        case "fifo":
            os.mkfifo(kept)
        case _:
            kept.mkdir()
    with pytest.raises(ToolFailed, match="gone or was replaced"):
        await world.call("read_command_output", path=str(kept))


async def test_outputs_are_for_their_owner_alone_and_outside_the_workspace(world: World) -> None:
    record = await world.run(["echo", "hi"])
    kept = Path(record["output_path"])
    assert not kept.is_relative_to(world.folder)
    assert kept.parent.stat().st_mode & 0o777 == 0o700
    assert kept.stat().st_mode & 0o777 == 0o600


@pytest.mark.proves("command.outputs-reaped")
def test_what_a_dead_session_left_is_removed_and_what_a_living_one_has_is_not() -> None:
    living = OutputFolder()
    os.close(living.create("a"))
    above = living.path.parent
    dead = above / "0123"
    (dead / "deeper").mkdir(parents=True)
    (dead / "deeper/out").write_text("x")
    (above / "0123.lock").touch()
    (above / "0124.lock").touch()
    remove_dead_folders(above)
    assert sorted(path.name for path in above.iterdir()) == sorted(
        [living.path.name, living.path.name + ".lock"]
    )
    living.close()
    living.close()
    assert list(above.iterdir()) == []


def test_where_the_state_folder_cannot_be_made_outputs_have_a_folder_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("FERRULE_STATE", str(tmp_path / "file/state"))
    folder = OutputFolder()
    assert folder.path.stat().st_mode & 0o777 == 0o700
    folder.close()
    assert not folder.path.parent.exists()


@pytest.mark.proves("command.outputs-reaped")
def test_a_link_in_the_place_of_a_dead_session_removes_nothing_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/file").write_text("x")
    (tmp_path / "0123").symlink_to(tmp_path / "precious")
    (tmp_path / "0123.lock").touch()
    (tmp_path / "0124.lock").symlink_to(tmp_path / "precious/file")
    remove_dead_folders(tmp_path)
    assert (tmp_path / "precious/file").read_text() == "x"


# ---- the parts


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Any:
    patch = pytest.MonkeyPatch()
    patch.setenv("FERRULE_STATE", str(tmp_path_factory.mktemp("state")))
    folder = OutputFolder()
    yield folder
    folder.close()
    patch.undo()


def outputs(
    place: OutputFolder, pieces: list[bytes], *, keep: int, limit: int = 1 << 20
) -> Outputs:
    made = Outputs(place, os.urandom(8).hex(), keep=keep, limit=limit, merged=True)
    for piece in pieces:
        assert made.take(piece)
    made.close()
    return made


SLOW = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
TEXT = st.text(st.characters(exclude_characters="\ufffd", exclude_categories=["Cs"]), max_size=60)


@settings(max_examples=80, deadline=None, suppress_health_check=SLOW)
@given(TEXT, st.integers(1, 9), st.integers(0, 240))
def test_parts_in_a_row_are_the_whole_text_and_no_part_splits_a_character(
    place: OutputFolder, text: str, length: int, first: int
) -> None:
    stream = outputs(place, [text.encode()], keep=0).combined
    offset, got = 0, ""
    while offset < stream.stored_bytes:
        piece = stream.read(offset, length)
        assert piece.offset == offset and piece.size > 0
        got, offset = got + piece.content, offset + piece.size
    assert got == text
    anywhere = stream.read(first, length)
    assert "\ufffd" not in anywhere.content
    assert (
        anywhere.content
        == text.encode()[anywhere.offset : anywhere.offset + anywhere.size].decode()
    )
    assert anywhere.offset <= min(first, stream.stored_bytes)


@settings(max_examples=80, deadline=None, suppress_health_check=SLOW)
@given(TEXT, st.integers(0, 40), st.integers(0, 80), st.integers(0, 80))
def test_what_is_shown_is_all_or_both_ends_with_the_gap_counted(
    place: OutputFolder, text: str, keep: int, most: int, shrunk: int
) -> None:
    data = text.encode()
    stream = outputs(place, [data[i : i + 7] for i in range(0, len(data), 7)], keep=keep).combined
    for _ in range(2):
        shown = stream.text(most, "; HERE")
        assert "\ufffd" not in shown
        if shown != text:
            head, _, rest = shown.partition("\n[... ")
            missing, _, tail = rest.partition(" bytes left out; HERE ...]\n")
            assert text.startswith(head) and text.endswith(tail)
            assert len(head.encode()) + int(missing) + len(tail.encode()) == len(data)
            assert len(head.encode()) + len(tail.encode()) <= most
        assert text.endswith(stream.tail(most)) and len(stream.tail(most).encode()) <= most
        stream.shrink(shrunk)


@settings(max_examples=40, deadline=None, suppress_health_check=SLOW)
@given(st.lists(st.binary(max_size=50)), st.integers(0, 200))
def test_files_hold_the_beginning_and_counts_hold_for_all(
    place: OutputFolder, pieces: list[bytes], limit: int
) -> None:
    made = outputs(place, pieces, keep=10, limit=limit)
    data = b"".join(pieces)
    stream = made.combined
    kept = Path(stream.path).read_bytes()
    assert data.startswith(kept) and len(kept) == min(limit, len(data)) == stream.stored_bytes
    assert stream.size == len(data)
    assert stream.line_count == data.count(b"\n") + (bool(data) and not data.endswith(b"\n"))
    assert bool(made.incomplete) == (len(data) > limit)
    json.dumps(stream.text(10))
