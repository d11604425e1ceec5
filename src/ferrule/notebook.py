"""Runs in a notebook: how they are displayed, and approvals that are asked in the cell.

    asks = Permissions(approver=NotebookApprover())
    agent = Agent("openai:gpt-5.2", [send_mail], permissions=asks)
    await agent.run("Write to Ines.")

Top-level `await` works, and so does `run_sync`. A run that a cell ends with is displayed: the
model's Markdown, the calls with their arguments, changes and results, and pictures that tools
returned. Texts of models and tools are data: nothing of them acts in the page (`console.markdown`),
and pictures are those of the run, never of an address.
"""

from __future__ import annotations

import asyncio
import html
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ferrule.core.errors import ConfigError, FerruleError
from ferrule.core.invisible_characters import escape_for_approval, escape_invisible
from ferrule.core.media import MediaReference
from ferrule.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from ferrule.engine.session import RunResult
from ferrule.permissions.approval_text import describe_call
from ferrule.permissions.approvals import ApprovalAnswer, ApprovalRequest
from ferrule.runtime.change_lines import diff_arguments

__all__ = ["NotebookApprover", "render_run"]

MAX_TEXT = 20_000
"""Most characters of an argument or a result that are shown."""
MAX_LINES = 400
"""Most lines of a change that are shown."""
MAX_PICTURE = 4 * 1024 * 1024
"""Largest picture that is shown, in bytes."""
_PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_BOX = "border-left:3px solid #8888;padding:0 .8em;margin:.4em 0"
_CODE = "white-space:pre-wrap;overflow-wrap:anywhere;margin:.3em 0"
_COLOURS = {"+": "#2a8a3e", "-": "#c0392b", "@": "#888"}


def display_data(result: RunResult[Any]) -> dict[str, str]:
    """Return what a notebook displays of a run, by media type."""
    return {"text/plain": result.text, "text/html": render_run(result)}


def render_run(result: RunResult[Any]) -> str:
    """Return a run as HTML: what the model said, its calls, and the pictures of their results.

    Args:
        result: The run. Of its session's messages, those of this run are shown.
    """
    pieces = list(_render_messages(_last_run(result.messages), result))
    if not pieces and result.text:
        pieces = [_render_markdown(result.text)]
    used = result.usage
    note = f"{_count(result.turns, 'turn')}, {_count(len(result.results), 'call')}"
    if used.input or used.output:
        note += f", {used.input} tokens read and {used.output} written"
    if result.stop != "done":
        note += f"; it ended with `{result.stop}`"
    return f"<div>{''.join(pieces)}<small>{_text(note)}</small></div>"


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _last_run(messages: Sequence[Message]) -> Sequence[Message]:
    starts = [at for at, one in enumerate(messages) if isinstance(one, UserMessage)]
    return messages[starts[-1] + 1 :] if starts else messages


def _render_messages(messages: Sequence[Message], result: RunResult[Any]) -> Iterator[str]:
    answers = {one.call_id: one for one in messages if isinstance(one, ToolMessage)}
    for message in messages:
        if not isinstance(message, AssistantMessage):
            continue
        if message.text:
            yield _render_markdown(message.text)
        for call in message.calls:
            yield _render_call(call.tool, call.arguments, answers.get(call.id), result)


def _render_call(
    tool: str, arguments: str, answer: ToolMessage | None, result: RunResult[Any]
) -> str:
    is_open = answer is not None and not answer.success
    failed = " <strong>failed</strong>" if is_open else ""
    change = diff_arguments(arguments)
    shown = _render_change(change) if change else _render_code(arguments)
    inner = f"<summary><code>{_text(tool)}</code>{failed}</summary>{shown}"
    pictures = ""
    if answer is not None:
        inner += _render_code(answer.text)
        pictures = "".join(_render_picture(one, result) for one in answer.media)
    state = " open" if is_open or change else ""
    return f'<details style="{_BOX}"{state}>{inner}</details>{pictures}'


def _render_change(lines: Sequence[str]) -> str:
    shown = [
        f'<span style="color:{_COLOURS.get(line[:1], "inherit")}">{_text(line)}</span>'
        for line in lines[:MAX_LINES]
    ]
    if len(lines) > MAX_LINES:
        shown.append(_text(f"[{len(lines) - MAX_LINES} more lines]"))
    return f'<pre style="{_CODE}">' + "\n".join(shown) + "</pre>"


def _render_code(text: str) -> str:
    shown = text[:MAX_TEXT]
    if len(text) > MAX_TEXT:
        shown += f"\n[{len(text) - MAX_TEXT} more characters]"
    return f'<pre style="{_CODE}">{_text(shown)}</pre>'


def _render_picture(one: MediaReference, result: RunResult[Any]) -> str:
    described = _text(one.describe())
    if one.mime not in _PICTURES or one.size > MAX_PICTURE:
        return f"<p><small>{described}</small></p>"
    try:
        data = result.messages.get_media(one)
    except FerruleError:
        return f"<p><small>{described}</small></p>"
    address = f"data:{one.mime};base64,{b64encode(data).decode()}"
    return f'<p><img src="{address}" alt="{described}" style="max-width:100%"></p>'


def _render_markdown(text: str) -> str:
    try:
        from ferrule.console.markdown import render_markdown
    except ImportError:
        # Without the extra `console` there is no Markdown: the text as it is.
        return f'<div style="white-space:pre-wrap">{_text(text)}</div>'
    return str(render_markdown(text))


def _text(text: str) -> str:
    """Return a text for HTML, with what nobody would see spelled out."""
    return html.escape(escape_invisible(text))


class NotebookApprover:
    """Asks for approvals in the cell that runs.

    The question is displayed, and answered where the notebook asks for input: `y` allows the call
    once, `s` for the session, anything else denies it and is the reason.

    Args:
        buttons: Ask with buttons (`ipywidgets`) instead. They answer while a cell runs only where
            the notebook sends their events to a subshell of the kernel: ipykernel 7 and
            JupyterLab 4.4 do.
        read: Reads an answer; by default `input`.

    Raises:
        ConfigError: `ipywidgets` is not installed.
    """

    asks_about_unknown = True

    def __init__(self, *, buttons: bool = False, read: Callable[[str], str] | None = None) -> None:
        if buttons:
            _load_widgets()
        self._buttons = buttons
        self._read = read

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Implement `Approver.ask`."""
        rule = _session_rule(request)
        _display(_render_question(request), _question_text(request))
        if self._buttons:
            given = await _ask_with_buttons(rule)
        else:
            choices = f"y = once, s = allow `{rule}` for the session" if rule else "y = once"
            # On the event loop's own thread, where a notebook asks; nothing else runs meanwhile.
            read = self._read or input
            given = read(f"Allow? ({choices}, else no) ")
        answer = _read_answer(given, rule)
        _display(f"<small>{_text(_describe_answer(answer))}</small>", _describe_answer(answer))
        return answer


def _read_answer(given: str, rule: str) -> ApprovalAnswer:
    word = given.strip().lower()
    if word in ("y", "yes"):
        return ApprovalAnswer("once", by="notebook")
    if word in ("s", "session") and rule:
        return ApprovalAnswer("session", rule, by="notebook")
    why = given.strip() if word not in ("", "n", "no") else ""
    note = f"denied by a person: {why}" if why else "denied by a person"
    return ApprovalAnswer("deny", by="notebook", note=note)


def _describe_answer(answer: ApprovalAnswer) -> str:
    if answer.choice == "session":
        return f"allowed `{answer.grant}` for the session"
    return "allowed once" if answer.choice == "once" else answer.note


def _session_rule(request: ApprovalRequest) -> str:
    if request.has_unknown_outcome:
        return ""
    rules = [offer.rule for offer in request.offers if offer.choice == "session"]
    return next((rule for rule in rules if rule), "")


def _question_text(request: ApprovalRequest) -> str:
    return f"Allow `{request.tool.full_name}` to run? {request.reason}.\n{describe_call(request)}"


def _render_question(request: ApprovalRequest) -> str:
    head, _, shown = _question_text(request).partition("\n")
    lines = escape_for_approval(shown).split("\n")
    is_change = any(line.startswith("@@ ") for line in lines)
    body = "\n".join(
        f'<span style="color:{_COLOURS.get(line[:1], "inherit")}">{html.escape(line)}</span>'
        if is_change
        else html.escape(line)
        for line in lines
    )
    asked = html.escape(escape_for_approval(head))
    return f'<div style="{_BOX}"><strong>{asked}</strong><pre style="{_CODE}">{body}</pre></div>'


async def _ask_with_buttons(rule: str) -> str:
    widgets = _load_widgets()
    loop = asyncio.get_running_loop()
    waits: asyncio.Future[str] = loop.create_future()
    choices = [("Allow once", "y"), ("Allow for the session", "s"), ("Deny", "n")]

    def settle(word: str) -> None:
        if not waits.done():
            waits.set_result(word)

    def make_button(label: str, word: str) -> Any:
        def choose(button: object) -> None:
            # In whatever thread the kernel handles the event.
            loop.call_soon_threadsafe(settle, word)

        made = widgets.Button(description=label)
        made.on_click(choose)
        return made

    row = widgets.HBox([make_button(*one) for one in choices if one[1] != "s" or rule])
    _display_widget(row)
    try:
        return await waits
    finally:
        row.close()


def _load_widgets() -> Any:
    try:
        import ipywidgets
    except ImportError as error:
        raise ConfigError(
            "buttons need `ipywidgets`, which is not installed",
            hint="`pip install ipywidgets`, or leave `buttons` out: the cell then asks for input",
        ) from error
    return ipywidgets


def _display_widget(widget: Any) -> None:
    _load_display()(widget)


def _display(page: str, text: str) -> None:
    """Display HTML in the cell; without a notebook, print the text."""
    plain = escape_for_approval(text)
    if _is_in_notebook():
        _load_display()({"text/html": page, "text/plain": plain}, raw=True)
    else:
        print(plain)  # noqa: T201  the person at the terminal reads the question here


def _is_in_notebook() -> bool:
    try:
        from IPython.core.getipython import get_ipython
    except ImportError:
        return False
    return get_ipython() is not None


def _load_display() -> Callable[..., object]:
    from IPython import display

    return display.display  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]  its parameters have no types
