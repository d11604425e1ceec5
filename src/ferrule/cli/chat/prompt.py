"""The input of a chat: messages of several lines, their completion and history, and questions.

`prompt_toolkit` does the editing. Ours are the keys:

    Enter               sends the message
    Alt-Enter, Ctrl-J   begin another line, and so does Enter after a backslash
    Ctrl-R              searches what was typed before
    Ctrl-X Ctrl-E       opens the message in `$VISUAL` or `$EDITOR`, and sends what is saved
    Shift-Tab           goes to the next permission mode
    Ctrl-Z              goes back to the shell; `fg` returns to the message

A long text that is pasted stands as one mark, `[pasted 120 lines #1]`, until the message is sent.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence

import click
from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import FileHistory
from prompt_toolkit.input.typeahead import clear_typeahead, store_typeahead
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding import KeyBindings, KeyPress, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.patch_stdout import patch_stdout
from prompt_toolkit.shortcuts.choice_input import ChoiceInput
from prompt_toolkit.styles import Style

from ferrule.cli.line_input import discard_typed_input
from ferrule.cli.terminal import fit_encoding
from ferrule.core.errors import FerruleError
from ferrule.permissions.loaded_code import trust_environment
from ferrule.permissions.provenance import CommandWritable, find_program
from ferrule.sandbox.trusted_process import start_program
from ferrule.storage import paths

from .file_references import complete_path, find_open_reference

PROMPT = "› "
SHORT_PASTE = (10, 1_000)
"""Lines and characters up to which a pasted text is shown as it is."""
MENU_LINES = 6
"""Lines that are kept free for the menu of completions while it is open."""
_STYLE = Style.from_dict(
    {"bottom-toolbar": "noreverse fg:ansibrightblack", "selected-option": "bold"}
)


class ChatPrompt:
    """Reads what a person types.

    Args:
        commands: Names of the slash commands and a line of help each.
        complete: Returns what may follow a slash command: `complete(command, beginning)`.
        list_folder: Returns names in a folder of the workspace, folders with a slash at the end.
        status: Returns the line below the input; "" for none.
        next_mode: Goes to the next permission mode.
        colour: Whether there are colours.
        plain: Leave out what a screen reader would read again with each key: menu and status.
    """

    def __init__(
        self,
        commands: Callable[[], dict[str, str]],
        complete: Callable[[str, str], Iterable[str]],
        list_folder: Callable[[str], Sequence[str]],
        status: Callable[[], str],
        next_mode: Callable[[], None],
        *,
        colour: bool,
        plain: bool,
    ) -> None:
        self._plain = plain
        self._depth = None if colour else ColorDepth.DEPTH_1_BIT
        self._pasted: dict[str, str] = {}
        history = paths.make_private_folder(paths.state()) / "chat-history"
        history.touch(mode=0o600)
        self._session: PromptSession[str] = PromptSession(
            history=FileHistory(str(history)),
            completer=ChatCompleter(commands, complete, list_folder),
            complete_while_typing=Condition(_completes_while_typing) if not plain else False,
            reserve_space_for_menu=MENU_LINES,
            multiline=True,
            prompt_continuation="  ",
            enable_open_in_editor=True,
            enable_suspend=True,
            tempfile_suffix=".md",
            key_bindings=_make_keys(next_mode, self.mark_paste),
            bottom_toolbar=None if plain else lambda: FormattedText([("", status())]),
            style=_STYLE,
            color_depth=self._depth,
        )
        # Its own search for the editor would take one that a command has put on the PATH.
        self._session.default_buffer._open_file_in_editor = edit_file  # pyright: ignore[reportPrivateUsage]

    async def read(self) -> str:
        """Read a message or a command; "" where `wake` ended the reading.

        Raises:
            EOFError: The person wants to leave (Ctrl-D).
            KeyboardInterrupt: Ctrl-C dropped what was typed.
        """
        with patch_stdout(raw=True):
            typed = await self._session.prompt_async(
                FormattedText([("bold", fit_encoding(PROMPT, sys.stdout, ascii_only=self._plain))])
            )
        for mark, text in self._pasted.items():
            typed = typed.replace(mark, text)
        return typed

    def press_keys(self, keys: str) -> None:
        """Have the next prompt read these keys first, as if they were pressed then."""
        pressed: list[KeyPress] = []
        parser = Vt100Parser(pressed.append)
        parser.feed_and_flush(keys)
        store_typeahead(self._session.input, pressed)

    def mark_paste(self, text: str) -> str:
        """Return what stands for a pasted text in the input: a mark if it is long."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.rstrip("\n").count("\n") + 1
        most_lines, most_characters = SHORT_PASTE
        if lines <= most_lines and len(text) <= most_characters:
            return text
        size = f"{lines} lines" if lines > 1 else f"{len(text)} characters"
        mark = f"[pasted {size} #{len(self._pasted) + 1}]"
        self._pasted[mark] = text
        return mark

    def wake(self) -> None:
        """End the reading of a message, if there is one and nothing was typed yet."""
        if self.is_reading and not self.typed:
            self._session.app.exit(result="")

    @property
    def is_reading(self) -> bool:
        """Whether a message is being read."""
        app = self._session.app
        return app.is_running and not app.is_done

    @property
    def typed(self) -> str:
        """What was typed of the next message so far."""
        return self._session.default_buffer.text

    async def ask(self, text: str) -> str:
        """Read the answer to a question.

        Keys that were typed before the question appeared are dropped. Raises as `read`.
        """
        # A prompt of its own: answers do not belong in the history of messages.
        prompt: PromptSession[str] = PromptSession(color_depth=self._depth)
        clear_typeahead(prompt.input)
        discard_typed_input()
        shown = fit_encoding(text, sys.stdout, is_frame=True, ascii_only=self._plain)
        # With its own SIGINT handler, prompt-toolkit would remove ours when the prompt ends.
        return await prompt.prompt_async(
            FormattedText([("bold fg:ansiyellow", shown)]), handle_sigint=False
        )

    async def choose(self, title: str, options: Sequence[tuple[str, str]]) -> str:
        """Have one of some values chosen, which are shown with a label each; "" for none."""
        if self._plain:
            return await self._choose_by_number(title, options)
        keys = KeyBindings()

        @keys.add("escape", eager=True)
        @keys.add("c-c")
        @keys.add("c-d")
        def leave(event: KeyPressEvent) -> None:  # pyright: ignore[reportUnusedFunction]  called by key
            event.app.exit(result="")

        choice = ChoiceInput(
            message=title, options=options, key_bindings=keys, style=_STYLE, enable_interrupt=False
        )
        return await choice.prompt_async()

    async def _choose_by_number(self, title: str, options: Sequence[tuple[str, str]]) -> str:
        print(title)
        for number, (_, label) in enumerate(options, 1):
            print(f"{number}: {label}")
        typed = (await self.ask("number, or nothing: ")).strip()
        is_number = typed.isascii() and typed.isdigit() and 1 <= int(typed) <= len(options)
        return options[int(typed) - 1][0] if is_number else ""


def _make_keys(next_mode: Callable[[], None], mark_paste: Callable[[str], str]) -> KeyBindings:
    keys = KeyBindings()

    @keys.add(Keys.BracketedPaste)
    def paste(event: KeyPressEvent) -> None:  # pyright: ignore[reportUnusedFunction]  called by key
        event.current_buffer.insert_text(mark_paste(event.data))

    @keys.add("enter")
    def send(event: KeyPressEvent) -> None:  # pyright: ignore[reportUnusedFunction]  called by key
        buffer = event.current_buffer
        completion = buffer.complete_state and buffer.complete_state.current_completion
        before = buffer.document.text_before_cursor
        if completion:
            buffer.apply_completion(completion)
        elif before.endswith("\\") and not before.endswith("\\\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @keys.add("tab")
    def complete(event: KeyPressEvent) -> None:  # pyright: ignore[reportUnusedFunction]  called by key
        buffer = event.current_buffer
        state = buffer.complete_state
        # By itself, Tab does nothing while the list that opens by itself is still looked for.
        asked = CompleteEvent(completion_requested=True)
        found = (
            state.completions
            if state
            else list(buffer.completer.get_completions(buffer.document, asked))
        )
        if len(found) == 1:
            # Not left open with one choice: Enter would close the list and send nothing.
            buffer.apply_completion(found[0])
        elif state:
            buffer.complete_next()
        else:
            buffer.start_completion(insert_common_part=True)

    @keys.add("escape", "enter")
    @keys.add("c-j")
    def begin_line(event: KeyPressEvent) -> None:  # pyright: ignore[reportUnusedFunction]  called by key
        event.current_buffer.insert_text("\n")

    @keys.add("s-tab", filter=~Condition(lambda: bool(get_app().current_buffer.complete_state)))
    def change_mode(event: KeyPressEvent) -> None:  # pyright: ignore[reportUnusedFunction]  called by key
        next_mode()
        event.app.invalidate()

    return keys


def _completes_while_typing() -> bool:
    return wants_completion(get_app().current_buffer.document.text_before_cursor)


def wants_completion(before: str) -> bool:
    """Return whether a list opens by itself behind this text: for commands and for `@path`."""
    if before.startswith("/") and " " not in before:
        return True
    return find_open_reference(before) is not None


class ChatCompleter(Completer):
    """Completes slash commands, what follows them, and `@path`. See `ChatPrompt` for arguments."""

    def __init__(
        self,
        commands: Callable[[], dict[str, str]],
        complete: Callable[[str, str], Iterable[str]],
        list_folder: Callable[[str], Sequence[str]],
    ) -> None:
        self._commands = commands
        self._complete = complete
        self._list_folder = list_folder

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        before = document.text_before_cursor
        if before.startswith("/"):
            name, blank, rest = before[1:].partition(" ")
            if not blank:
                for command, about in self._commands().items():
                    if command.startswith(name):
                        yield Completion(f"/{command}", -len(before), display_meta=about)
                return
            for value in self._complete(name, rest):
                yield Completion(value, -len(rest))
            return
        beginning = find_open_reference(before)
        if beginning is not None:
            for path in complete_path(beginning, self._list_folder):
                yield Completion(path, -len(beginning), display=path)


async def wait_forever() -> str:
    """Never return: for a question whose turn was stopped, which is withdrawn."""
    return await asyncio.get_running_loop().create_future()


_USUAL = ("/usr/bin/editor", "/usr/bin/nano", "/usr/bin/vi")


def edit_file(filename: str) -> bool:
    """Open a file in `$VISUAL`, `$EDITOR` or a usual editor. Return whether it ended well.

    An editor that commands can write is passed over, which is said.
    """
    writable = CommandWritable.from_current_folder()
    named = (os.environ.get("VISUAL"), os.environ.get("EDITOR"), *_USUAL)
    for text in named:
        words = shlex.split(text or "")
        if not words:
            continue
        try:
            program = find_program(words[0], os.environ.get("PATH", os.defpath), writable)
            editor = start_program(
                program,
                [*words[1:], filename],
                environment=trust_environment(os.environ, writable),
                folder=None,
                stdin=None,
                output=None,
            )
        except (FerruleError, OSError) as error:
            if text not in _USUAL:
                click.echo(f"`{text}` was not opened: {error}", err=True)
            continue
        return editor.wait() == 0
    return False
