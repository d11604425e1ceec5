"""A language server, started here, confined, and asked for the diagnostics of files over stdio.

Files are sent whole when they change, whoever changed them: before every question all files that
the server has open are compared with what it was sent. It is then asked (`textDocument/diagnostic`)
if it can be, else heard out: `publishDiagnostics` for the text that was sent last, until it is
silent for a moment, since many servers publish what they know in pieces.

Errors and warnings count, hints do not. What a server asks is answered as far as it concerns
diagnostics; it can change nothing (no `workspace/applyEdit`).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from ferrule.core.errors import FerruleError, ToolFailed
from ferrule.engine.hooks.events import Occasion
from ferrule.engine.threads import run_blocking
from ferrule.extensions.hooks.commands import HookCommandRunner
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.sandbox.command import Capture
from ferrule.sandbox.deputies import DeputyRights
from ferrule.sandbox.running_command import Execution

from .checkers import COLD, find_project_program
from .findings import CheckFailed, Diagnostic, Findings, make_diagnostic
from .server_messages import InvalidMessage, Message, MessageSplitter, dig, dig_list, encode_message
from .server_settings import ServerEntry

SETTLE_SECONDS = 0.4
"""How long a server is silent after diagnostics until they count as all of them."""
SHUTDOWN_SECONDS = 2.0
"""Seconds that a server has to end by itself."""
_MAX_PUBLISHED = 20
"""Times that diagnostics of one text are waited for."""
_MAX_OPEN = 32
_MAX_DIAGNOSTICS = 2000
_MAX_FILE = 2 << 20
_MAX_ERRORS = 2048
_MAX_UNSENT = 16 << 20
"""Most bytes that wait for a server which does not read."""
_METHOD_NOT_FOUND = -32601
_ASK_AGAIN = (-32801, -32802)
"""The content was modified, or the server cancelled: what a question gets while a project loads."""
_AGAIN_SECONDS = 0.2
_SEVERITIES = {1: "error", 2: "warning"}


@dataclass(slots=True)
class _Document:
    """A file that the server has open."""

    text: str
    version: int = 1
    is_checked: bool = False
    """Whether the findings for this text were waited for."""
    times_published: int = 0
    """How often the server has published diagnostics of this text."""
    published: Findings = ()


class LanguageServer:
    """One server of one session: a `Source`. Nothing is started before the first check.

    Args:
        entry: What the settings say of it.
        workspace: Where files are read.
        commands: What starts it.
        seconds: Time for one answer; the first one may take three times that.
    """

    def __init__(
        self,
        entry: ServerEntry,
        workspace: Workspace,
        commands: HookCommandRunner,
        seconds: float,
    ) -> None:
        self.name = entry.name
        self.known: dict[str, Findings] = {}
        self.left_out = False
        self.sees_changes = True
        self._entry = entry
        self._workspace = workspace
        self._root = workspace.root
        self._commands = commands
        self._seconds = seconds
        self._loop: asyncio.AbstractEventLoop | None = None
        self._one_at_a_time = asyncio.Lock()
        self._forget_process()

    def _forget_process(self) -> None:
        self._execution: Execution | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._is_ready = False
        self._ending: asyncio.Task[None] | None = None
        self._errors = Capture(_MAX_ERRORS // 2, _MAX_ERRORS // 2)
        self._messages = MessageSplitter(self._take)
        self._news = asyncio.Event()
        """Set with everything that arrives, and with the end."""
        self._problem = ""
        """Why nothing more will arrive."""
        self._number = 0
        self._answers: dict[int, Message] = {}
        self._open: dict[str, _Document] = {}
        self._can_be_asked = False

    async def find_targets(self, names: Sequence[str]) -> Sequence[str]:
        return tuple(name for name in names if self._entry.find_language(name) is not None)

    async def check(self, target: str, occasion: Occasion) -> Findings:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            # The old loop is gone, and with it what ran in its sandbox.
            self._forget_process()
            self._loop = loop
            self._one_at_a_time = asyncio.Lock()
        async with self._one_at_a_time:
            if self.left_out:
                return ()
            seconds = self._seconds if self._is_ready else self._seconds * COLD
            try:
                async with asyncio.timeout(seconds):
                    if not self._is_ready:
                        await self.close()  # What a start that was cancelled has left.
                        await self._start(occasion)
                        self._is_ready = True
                    self.known[target] = await self._find(target)
            except TimeoutError as error:
                raise CheckFailed(f"it gave no diagnostics within {seconds:g} s") from error
            return self.known[target]

    async def close(self) -> None:
        """Ask the server to end, wait a moment, and end it with all it has started."""
        execution = self._execution
        if execution is not None and self._loop is asyncio.get_running_loop():
            if self._is_ready:
                with suppress(TimeoutError, CheckFailed):
                    async with asyncio.timeout(SHUTDOWN_SECONDS):
                        await self._ask("shutdown", None)
                        await self._send({"method": "exit"})
                        await execution.wait()
            await asyncio.shield(execution.end())
            if self._writer is not None:
                self._writer.close()
        self._forget_process()

    async def _start(self, occasion: Occasion) -> None:
        program, *arguments = self._entry.command
        # With variables of its own it has more than commands, whose files it must not start then.
        rights = DeputyRights.COMMANDS
        if self._entry.env:
            rights = DeputyRights.OWN
        else:
            program = find_project_program(self._root, program)
        reader, writer = os.pipe()
        try:
            self._execution = await self._commands.launch(
                (program, *arguments),
                occasion,
                reader,
                self._receive,
                self._errors,
                variables=self._entry.env,
                rights=rights,
            )
        except (ToolFailed, FerruleError) as error:
            os.close(writer)
            raise CheckFailed(str(error)) from error
        except BaseException:
            os.close(writer)
            raise
        finally:
            os.close(reader)
        self._execution.add_done_callback(self._end)
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.connect_write_pipe(
            asyncio.streams.FlowControlMixin, os.fdopen(writer, "wb", buffering=0)
        )
        self._writer = asyncio.StreamWriter(transport, protocol, None, loop)
        await self._initialize()

    async def _initialize(self) -> None:
        answer = await self._ask(
            "initialize",
            {
                # It sees no process of ours.
                "processId": None,
                "rootUri": self._root.as_uri(),
                "workspaceFolders": self._list_folders(),
                "initializationOptions": self._entry.options,
                "capabilities": {
                    "textDocument": {
                        "synchronization": {"didSave": True},
                        "publishDiagnostics": {"versionSupport": True},
                        "diagnostic": {"dynamicRegistration": True},
                    },
                    "workspace": {"configuration": True, "workspaceFolders": True},
                },
            },
        )
        if dig(answer, "error") is not None:
            raise CheckFailed(f"it refused to start: {str(dig(answer, 'error', 'message'))[:200]}")
        self._can_be_asked |= (
            dig(answer, "result", "capabilities", "diagnosticProvider") is not None
        )
        await self._send({"method": "initialized", "params": {}})
        # Also without settings: some read their configuration only once they are told of it.
        settings: object = {} if self._entry.settings is None else self._entry.settings
        params = {"settings": settings}
        await self._send({"method": "workspace/didChangeConfiguration", "params": params})

    def _list_folders(self) -> list[dict[str, str]]:
        return [{"uri": self._root.as_uri(), "name": self._root.name}]

    # Files

    async def _find(self, target: str) -> Findings:
        """Return the findings for a file as it is now."""
        for name in dict.fromkeys([*self._open, target]):
            await self._send_changes(name)
        document = self._open.get(target)
        if document is None:
            return ()
        if document.is_checked:
            return self.known.get(target, ())
        # Some say only after a while that they can be asked, and publish nothing then.
        await self._wait_until(lambda: self._can_be_asked or document.times_published > 0)
        found: Findings = ()
        if self._can_be_asked:
            found = await self._request_diagnostics(target)
        else:
            await self._hear_out(document)
        document.is_checked = True
        # Some say one part when they are asked, and publish another.
        return (*found, *(one for one in document.published if one not in found))

    async def _send_changes(self, name: str) -> None:
        """Send what has changed in a file since it was sent, if anything."""
        text = await run_blocking(lambda: self._read(name))
        identifier: dict[str, object] = {"uri": self._make_uri(name)}
        document = self._open.get(name)
        if text is None:
            if self._open.pop(name, None) is not None:
                await self._notify("didClose", textDocument=identifier)
            return
        if document is None:
            if len(self._open) >= _MAX_OPEN:
                oldest = next(iter(self._open))
                del self._open[oldest]
                await self._notify("didClose", textDocument={"uri": self._make_uri(oldest)})
            document = self._open[name] = _Document(text)
            language = self._entry.find_language(name)
            item = {**identifier, "languageId": language, "version": 1, "text": text}
            await self._notify("didOpen", textDocument=item)
        elif document.text != text:
            document = self._open[name] = _Document(text, document.version + 1)
            await self._notify(
                "didChange",
                textDocument={**identifier, "version": document.version},
                contentChanges=[{"text": text}],
            )
        else:
            return
        await self._notify("didSave", textDocument=identifier)

    def _read(self, name: str) -> str | None:
        try:
            return self._workspace.read_text(name, limit=_MAX_FILE)
        except ToolFailed:
            return None

    def _make_uri(self, name: str) -> str:
        return (self._root / name).as_uri()

    async def _request_diagnostics(self, target: str) -> Findings:
        params = {"textDocument": {"uri": self._make_uri(target)}}
        while True:
            answer = await self._ask("textDocument/diagnostic", params)
            code = dig(answer, "error", "code")
            if code is None:
                return _read_diagnostics(target, dig_list(answer, "result", "items"))
            if code not in _ASK_AGAIN:
                why = str(dig(answer, "error", "message"))[:200]
                raise CheckFailed(f"it answered with an error: {why}")
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _hear_out(self, document: _Document) -> None:
        for _ in range(_MAX_PUBLISHED):
            heard = document.times_published
            try:
                async with asyncio.timeout(SETTLE_SECONDS):
                    await self._wait_until(lambda heard=heard: document.times_published > heard)
            except TimeoutError:
                return

    # Messages

    async def _notify(self, method: str, **params: object) -> None:
        await self._send({"method": f"textDocument/{method}", "params": params})

    async def _ask(self, method: str, params: object) -> Message:
        """Send a request and return the message that answers it."""
        self._number += 1
        number = self._number
        self._answers.clear()
        await self._send({"id": number, "method": method, "params": params})
        await self._wait_until(lambda: number in self._answers)
        return self._answers.pop(number)

    async def _send(self, message: Message) -> None:
        if self._problem or self._writer is None:
            raise CheckFailed(self._problem or "it does not run")
        self._writer.write(encode_message(message))
        try:
            await self._writer.drain()
        except ConnectionError:
            await self._wait_until(lambda: False)  # Its end, which says why, is near.

    async def _wait_until(self, is_done: Callable[[], bool]) -> None:
        while True:
            # Before looking: what arrives from now on must not be slept through.
            self._news.clear()
            if self._problem:
                raise CheckFailed(self._problem)
            if is_done():
                return
            await self._news.wait()

    def _receive(self, data: bytes) -> bool:
        """Take what the server writes. Return whether to go on; if not, it is ended."""
        try:
            self._messages.feed(data)
        except InvalidMessage as error:
            self._problem = self._problem or str(error)
        self._news.set()
        return not self._problem

    def _take(self, message: Message) -> None:
        method = message.get("method")
        if method is None:
            number = message.get("id")
            if type(number) is int and number == self._number:
                self._answers[number] = message
        elif "id" in message:
            self._answer(message["id"], method, message.get("params"))
        elif method == "textDocument/publishDiagnostics":
            self._take_published(message.get("params"))

    def _take_published(self, params: object) -> None:
        path = unquote(str(dig(params, "uri")).removeprefix("file://"))
        name = path.removeprefix(f"{self._root}/")
        document = self._open.get(name)
        version = dig(params, "version")
        if document is None or (version is not None and version != document.version):
            return  # Of a file that nobody asked about, or of an earlier text.
        document.published = _read_diagnostics(name, dig_list(params, "diagnostics"))
        document.times_published += 1

    def _answer(self, number: object, method: object, params: object) -> None:
        """Answer a request of the server."""
        answer: dict[str, object] = {"id": number, "result": None}
        match method:
            case "workspace/configuration":
                answer["result"] = [
                    self._find_setting(str(dig(item, "section") or ""))
                    for item in dig_list(params, "items")
                ]
            case "workspace/workspaceFolders":
                answer["result"] = self._list_folders()
            case "client/registerCapability":
                self._can_be_asked |= any(
                    dig(one, "method") == "textDocument/diagnostic"
                    for one in dig_list(params, "registrations")
                )
            case "client/unregisterCapability" | "window/workDoneProgress/create":
                pass
            case "workspace/diagnostic/refresh":
                for document in self._open.values():
                    document.is_checked = False
            case _:
                why = f"this client has no {str(method)[:100]}"
                answer = {"id": number, "error": {"code": _METHOD_NOT_FOUND, "message": why}}
        if self._writer is None or self._writer.is_closing():
            return
        self._writer.write(encode_message(answer))
        if self._writer.transport.get_write_buffer_size() > _MAX_UNSENT:
            self._problem = "it asks without reading the answers"

    def _find_setting(self, section: str) -> Any:
        found = self._entry.settings
        for key in filter(None, section.split(".")):
            found = dig(found, key)
        return found

    def _end(self, execution: Execution) -> None:
        self._ending = asyncio.ensure_future(self._note_end(execution))

    async def _note_end(self, execution: Execution) -> None:
        ended = await execution.wait()
        how = f"was ended by {ended.signal}" if ended.signal else f"ended with {ended.exit_code}"
        said = " ".join(self._errors.text().split())[-200:]
        self._problem = self._problem or f"it {how}" + (f": {said}" if said else "")
        self._news.set()


def _read_diagnostics(name: str, items: Sequence[object]) -> Findings:
    found: list[Diagnostic] = []
    for item in items[:_MAX_DIAGNOSTICS]:
        kind = _SEVERITIES.get(dig(item, "severity") or 1)
        line = dig(item, "range", "start", "line")
        if kind is None or type(line) is not int:
            continue
        message = dig(item, "message")
        text = message if isinstance(message, str) else str(dig(message, "value"))
        code = dig(item, "code")
        rule = f" [{code}]" if isinstance(code, (str, int)) and str(code) else ""
        found.append(make_diagnostic(name, line + 1, f"{kind}: {text}{rule}"))
    return tuple(found)
