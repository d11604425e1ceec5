"""`read_file` again: what has not changed is not repeated, while the model still has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ferrule.core.messages import ToolMessage
from ferrule.engine.agent import Agent
from ferrule.engine.agent_options import Permissions
from ferrule.engine.session import Session
from ferrule.models.scripted import Scripted, calls, says
from ferrule.plugins import Parts
from ferrule.runtime.assemble import assemble
from ferrule.toolkits.files.lines import cut_middle
from ferrule.toolkits.files.rereading import ShortRereading
from ferrule.toolkits.files.tools import edit_file, read_file
from ferrule.tools.context import Context
from ferrule.tools.decorator import tool

TEXT = "".join(f"line number {number} of the poem\n" for number in range(1, 101))


class Reader:
    """A session whose model makes the calls that a test names, one a run."""

    def __init__(self, root: Path, *steps: Any, is_on: bool = True, tools: Any = ()) -> None:
        self.root = root
        (root / "a.txt").write_text(TEXT)
        scripted: list[Any] = []
        for step in steps:
            scripted += [calls(step), says("ok")]
        agent = Agent(
            Scripted(scripted),
            [read_file, edit_file, *tools],
            workspace=root,
            permissions=Permissions(allow=["Read", "Edit", "*"]),
            plugins=[Parts(resources=[ShortRereading(is_on)])],
        )
        self.session: Session = agent.session()

    async def step(self) -> str:
        """Let the model make its next call; return what it was sent for it."""
        await self.session.run("go on")
        return next(
            one.text for one in reversed(self.session.history) if isinstance(one, ToolMessage)
        )


def read(**more: Any) -> tuple[str, dict[str, Any]]:
    return ("read_file", {"path": "a.txt", **more})


async def test_what_has_not_changed_is_said_in_one_line_and_given_when_asked_once_more(
    tmp_path: Path,
) -> None:
    reader = Reader(tmp_path, *[read()] * 3)
    whole = await reader.step()
    assert whole.count("\n") == 99
    again = await reader.step()
    assert again == (
        "[`a.txt`, lines 1-100: not changed since you read them; the text is in the earlier "
        "result. `full: true` shows it again]"
    )
    assert await reader.step() == whole


async def test_full_and_another_range_and_short_files_are_read_as_ever(tmp_path: Path) -> None:
    reader = Reader(tmp_path, read(), read(full=True), read(line_start=2, line_end=3), read())
    whole = await reader.step()
    assert await reader.step() == whole
    assert "2: line number 2" in await reader.step()
    (tmp_path / "a.txt").write_text("short\n")
    assert await reader.step() == "1: short"


async def test_what_has_changed_is_shown_with_its_line_numbers(tmp_path: Path) -> None:
    reader = Reader(tmp_path, read(), read(), read())
    await reader.step()
    lines = TEXT.splitlines()
    lines[49] = "another line"
    lines.insert(0, "a new first line")
    (tmp_path / "a.txt").write_text("\n".join(lines) + "\n")
    changed = await reader.step()
    assert changed.splitlines()[1:] == [
        "+1: a new first line",
        " 2: line number 1 of the poem",
        " 3: line number 2 of the poem",
        "...",
        " 49: line number 48 of the poem",
        " 50: line number 49 of the poem",
        "-50: line number 50 of the poem",
        "+51: another line",
        " 52: line number 51 of the poem",
        " 53: line number 52 of the poem",
    ]
    # The new state is known now, by both results together.
    assert "not changed" in await reader.step()


async def test_a_text_that_has_changed_in_most_lines_is_read_whole(tmp_path: Path) -> None:
    reader = Reader(tmp_path, read(), read())
    await reader.step()
    (tmp_path / "a.txt").write_text(TEXT.replace("line", "row"))
    assert (await reader.step()).startswith("1: row number 1")


async def test_after_compaction_a_reading_is_whole_again(tmp_path: Path) -> None:
    others = [read(line_start=number, line_end=90) for number in range(2, 12)]
    reader = Reader(tmp_path, read(), *others, read(), read())
    whole = await reader.step()
    for _ in others:
        await reader.step()
    compacted = await reader.session.compact(summary=False)
    assert compacted is not None and compacted.elided
    sent = [one.text for one in reader.session.history if isinstance(one, ToolMessage)]
    assert whole not in sent
    assert await reader.step() == whole
    assert "not changed" in await reader.step()


async def test_a_reading_of_another_caller_is_whole_and_spoils_nothing(tmp_path: Path) -> None:
    @tool(side_effect="read")
    async def summarize(context: Context) -> str:
        """Summarize the poem."""
        assert context.call is not None
        found = [await context.call("read_file", {"path": "a.txt"}) for _ in range(2)]
        return ",".join(str(str(one.data).count("\n")) for one in found)

    reader = Reader(tmp_path, read(), ("summarize", {}), read(), tools=[summarize])
    whole = await reader.step()
    assert await reader.step() == "99,99"
    direct = [await reader.session.call("read_file", path="a.txt") for _ in range(2)]
    assert [one.data for one in direct] == [whole, whole]
    assert await reader.step() == whole


async def test_it_is_off_without_the_option_and_for_embedded_models(tmp_path: Path) -> None:
    reader = Reader(tmp_path, read(), read(), is_on=False)
    assert await reader.step() == await reader.step()
    for model, is_on in (("local:smollm2", False), ("scripted:x", True)):
        assembly = assemble({"workspace": str(tmp_path), "model": model}, notice=print)
        found = assembly.agent.resources[ShortRereading]
        assert isinstance(found, ShortRereading) and found.is_on == is_on
        await assembly.close()


async def test_a_long_line_is_cut_in_the_middle_with_its_length(tmp_path: Path) -> None:
    reader = Reader(tmp_path, read(), read(full=True))
    (tmp_path / "a.txt").write_text("one\n" + "a" * 6000 + "z" * 4000 + "\r\nthree\n")
    cut = (await reader.step()).splitlines()
    assert cut[1] == (
        "2: " + "a" * 1500 + "[... 8,000 of 10,000 characters left out ...]" + "z" * 500
    )
    assert cut[2:] == [
        "3: three",
        "[1 long line cut in the middle; `read_file` with `full: true` shows whole lines]",
    ]
    assert "a" * 6000 + "z" * 4000 in await reader.step()
    assert cut_middle("x" * 2000 + "\n") == "x" * 2000 + "\n"
