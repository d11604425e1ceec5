"""Runs in a notebook: an executed one with its outputs, their display, and approvals in the cell."""

from __future__ import annotations

import importlib.util
import json
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ferrule import Agent, ConfigError, Image, Permissions, Scripted, notebook, tool
from ferrule.core.calls import ToolResult
from ferrule.core.events import Usage
from ferrule.core.messages import AssistantMessage, ToolMessage, UserMessage
from ferrule.engine.message_history import MessageHistory
from ferrule.engine.session import RunResult
from ferrule.models.scripted import calls, says
from ferrule.notebook import NotebookApprover, render_run

EXAMPLES = Path(__file__).parents[2] / "examples"


def load_script() -> ModuleType:
    """Load the program that executes the notebook."""
    path = EXAMPLES.parent / "docs" / "make_notebook.py"
    spec = importlib.util.spec_from_file_location("make_notebook", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_the_notebook_of_the_examples_has_the_outputs_that_it_has_when_it_is_executed() -> None:
    kept = json.loads((EXAMPLES / "notebook.ipynb").read_text())
    executed, asked = load_script().execute()
    assert len(asked) == 1 and "write_note" in asked[0]
    assert len(kept["cells"]) == len(executed.cells) > 8
    for one, other in zip(kept["cells"], executed.cells, strict=True):
        assert "".join(one["source"]) == other["source"]
        before = [join_lines(output) for output in one.get("outputs", [])]
        assert before == [join_lines(output) for output in other.get("outputs", [])]
    shown = json.dumps(kept)
    for piece in ("<table>", "data:image/png;base64,", "+nuts: 50", "allowed once", "Hello."):
        assert piece in shown
    assert "<script>alert(1)" not in "".join(
        "".join(output.get("data", {}).get("text/html", ""))
        for one in kept["cells"]
        for output in one.get("outputs", [])
    )


def join_lines(output: Any) -> Any:
    """An output as it is compared: a file has its texts as lists of lines."""
    if isinstance(output, dict):
        return {key: join_lines(one) for key, one in output.items()}
    if isinstance(output, list):
        return "".join(output)
    return output


# ---- display

HOSTILE = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "![x](http://evil.example/?q=1)",
    "[x](javascript:alert(1))",
    '"><svg onload=alert(1)>',
    "a\u202eb\u200bc",
)


def result_with(text: str) -> RunResult[str]:
    """A run in which a text stands wherever one may stand."""
    call = calls((text, text, "c1")).calls[0]
    messages = MessageHistory(
        (
            UserMessage("go"),
            AssistantMessage(text, (call,)),
            ToolMessage("c1", text, text, success=False),
            AssistantMessage(text),
        )
    )
    results = (ToolResult("c1", text, False),)
    return RunResult(text, text, "done", results, Usage(), 2, "s", messages=messages)


@pytest.mark.parametrize("has_markdown", [True, False])
@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_of_a_text_acts_in_the_page(
    text: str, has_markdown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_markdown:
        monkeypatch.setitem(sys.modules, "ferrule.console.markdown", None)
    page = render_run(result_with(text))
    for piece in ("<script", "<img", "<svg", 'href="javascript', "src=", "\u202e", "\u200b"):
        assert piece not in page.replace("&lt;img src=x", "").replace("&lt;script", "")


async def test_a_run_is_displayed_with_its_answer_its_calls_and_its_pictures() -> None:
    png = bytes.fromhex(
        "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154"
        "789c63606060000000040001f61738550000000049454e44ae426082"
    )

    @tool(side_effect="read")
    def draw() -> Image:
        """Draw."""
        return Image.from_bytes(png)

    edit = ("edit", {"path": "a.txt", "old_string": "one", "new_string": "two"}, "c2")

    @tool(name="edit", side_effect="read")
    def edit_text(path: str, old_string: str, new_string: str) -> str:
        """Edit."""
        return "edited"

    steps = [calls(("draw", {}, "c1"), edit), says("**Done.**")]
    agent = Agent(Scripted(steps), [draw, edit_text])
    result = await agent.run("Go.")
    shown = result._repr_mimebundle_()
    assert shown["text/plain"] == "**Done.**"
    page = shown["text/html"]
    assert "<strong>Done.</strong>" in page and "data:image/png;base64," in page
    assert ">-one</span>" in page and ">+two</span>" in page and "2 turns, 2 calls" in page


async def test_only_the_run_is_displayed_and_not_what_was_said_before() -> None:
    session = Agent(Scripted([says("First."), says("Second.")])).session()
    await session.run("One.")
    page = render_run(await session.run("Two."))
    assert "Second." in page and "First." not in page
    await session.close()


# ---- approvals

sent: list[str] = []


@tool(side_effect="write")
def send_mail(to: str) -> str:
    """Send a mail.

    Args:
        to: The address.
    """
    sent.append(to)
    return f"sent to {to}"


def agent_asking(approver: NotebookApprover) -> Agent[Any, Any]:
    sent.clear()
    steps = [
        calls(("send_mail", {"to": "ines"}, "c1")),
        calls(("send_mail", {"to": "bo"}, "c2")),
        says("Done."),
    ]
    return Agent(Scripted(steps), [send_mail], permissions=Permissions(approver=approver))


@pytest.mark.parametrize(
    ("answers", "done"),
    [
        (["y", "y"], ["ines", "bo"]),
        (["s"], ["ines", "bo"]),
        (["n", "yes"], ["bo"]),
        (["", "not him"], []),
    ],
)
async def test_an_answer_in_the_cell_decides(
    answers: list[str], done: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    left = list(answers)
    asked: list[str] = []

    def read(prompt: str) -> str:
        asked.append(prompt)
        return left.pop(0)

    result = await agent_asking(NotebookApprover(read=read)).run("Write to both.")
    assert sent == done and left == [] and len(asked) == len(answers)
    assert "ines" in capsys.readouterr().out
    if "not him" in answers:
        assert "not him" in (result.results[-1].error_message or "")


async def test_a_button_that_is_pressed_in_another_thread_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def press(row: Any) -> None:
        labels = [button.description for button in row.children]
        assert labels == ["Allow once", "Allow for the session", "Deny"]
        threading.Thread(target=row.children[1].click).start()

    monkeypatch.setattr(notebook, "_display_widget", press)
    await agent_asking(NotebookApprover(buttons=True)).run("Write to both.")
    assert sent == ["ines", "bo"]


def test_buttons_without_their_library_are_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    with pytest.raises(ConfigError, match="ipywidgets"):
        NotebookApprover(buttons=True)
