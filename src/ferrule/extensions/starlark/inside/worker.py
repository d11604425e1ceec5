"""A worker: one process that runs one script at a time for its owner, until the owner closes the
socket.

It knows nothing but the scripts it is sent. Whatever a script wants of the world is a message to
the owner.
"""

from __future__ import annotations

import gc
import os
import re
import socket
from collections.abc import Callable
from typing import Any

from . import jail, pure
from .frames import TooLarge, packed, receive
from .names import ASKED, TOLD, full
from .scripts import Failed, Scripts

LINE_LIMIT = 8_192
"""Characters of one printed line, or of a message, at the most."""
LINES_LIMIT = 1_000
"""Printed and logged lines of one call at the most; later ones are counted and dropped."""

_PLACE = re.compile(r".+?:\d+: ")


def start() -> None:
    """Serve until the end of the socket, which is descriptor 0."""
    channel = socket.socket(fileno=0)
    worker = Worker(channel)
    worker.warm_up()
    gc.freeze()
    jail.lock()
    channel.sendall(packed({"ready": True}))
    worker.serve()
    os._exit(0)


class Worker:
    """Runs what comes through `channel`."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._watch = jail.Watch(channel)
        self._failure: Failed | None = None
        self._lines = 0
        asked = {full(space, member) for space, members in ASKED.items() for member in members}
        told = {full(space, member) for space, members in TOLD.items() for member in members}
        functions: dict[str, Callable[..., Any]] = {
            name: self._guarded(pure.FUNCTIONS[name]) for name in pure.FUNCTIONS
        }
        functions |= {name: self._asking(name) for name in asked}
        functions |= {name: self._telling(name) for name in told}
        functions["log"] = self._telling("log.info")
        self._scripts = Scripts(functions, self._watch)

    def warm_up(self) -> None:
        """Everything that could be imported later is used once now: later nothing can be opened."""
        source = (
            'def run(a):\n    return [json.encode(a), re.match("(?i)ä|b{2}", "ä"), '
            'url.parse("http://x"), print]\n'
        )
        for digest, text in (("", source), ("broken", "def run(:\n"), ("odd", "ä = ä\n")):
            try:
                self._scripts.parse(digest, text, "x")
                self._watch.begin(None, 1 << 30)
                self._scripts.call(digest, "run", [{}], pure=True)
            except Failed:
                continue

    def serve(self) -> None:
        """One request after the other."""
        while (request := receive(self._channel)) is not None:
            spent = False
            try:
                message = {"done": self._run(request)}
                frame = packed(message, request["result"])
            except Failed as failed:
                spent = failed.reason == "memory"
                frame = packed(
                    {
                        "failed": [failed.reason, failed.message[:LINE_LIMIT], failed.kind],
                        "spent": spent,
                    }
                )
            except TooLarge as error:
                frame = packed({"failed": ["size", f"its result is too large: {error}", ""]})
            except (RecursionError, MemoryError):
                said = "its result is too large, or nests too deeply, to be written as JSON"
                frame = packed({"failed": ["size", said, ""]})
            self._channel.sendall(frame)
            if spent:
                # What a script took and gave back is not always given back to the system.
                os._exit(0)

    def _run(self, request: dict[str, Any]) -> Any:
        self._failure, self._lines = None, 0
        digest = request["run"]
        self._watch.begin(request["seconds"], request["memory"])
        try:
            if "source" in request:
                self._scripts.parse(digest, request["source"], request["file"])
            elif not self._scripts.knows(digest):
                raise Failed("unknown", "the text of this script is not here")
            return self._scripts.call(
                digest, request["function"], request["arguments"], pure=request["pure"]
            )
        except Failed as failed:
            raise self._explained(failed) from None
        except MemoryError:
            raise Failed("memory", "") from None
        # boundary: the library panics with no Exception; one call fails, not the worker
        except BaseException as error:
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
            reason = "memory" if "memory" in str(error) else "error"
            raise Failed(reason, f"the runtime failed: {type(error).__name__}: {error}") from None

    def _explained(self, failed: Failed) -> Failed:
        """Why it ended, by the first cause: what stopped it, or the built-in that failed."""
        if self._watch.stopped:
            return Failed(self._watch.stopped, failed.message)
        if self._failure is None:
            return failed
        place = _PLACE.match(failed.message)
        cause = self._failure
        return Failed(cause.reason, f"{place[0] if place else ''}{cause.message}", cause.kind)

    def _guarded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def compute(*args: Any, **named: Any) -> Any:
            try:
                return function(*args, **named)
            except (TypeError, ValueError, AttributeError, OverflowError, re.error) as error:
                raise self._remember(Failed("error", str(error))) from None

        return compute

    def _asking(self, name: str) -> Callable[..., Any]:
        def ask(*args: Any, **named: Any) -> Any:
            self._send({"call": name, "args": args, "named": named})
            answer = receive(self._channel)
            if answer is None:
                os._exit(0)
            if "error" in answer:
                kind, message = answer["error"]
                raise self._remember(Failed("builtin", message, kind))
            return answer["value"]

        return ask

    def _telling(self, name: str) -> Callable[..., Any]:
        level = name.partition(".")[2]

        def tell(*args: Any, **named: Any) -> None:
            self._lines += 1
            text = " ".join(one if isinstance(one, str) else str(one) for one in args)[:LINE_LIMIT]
            if self._lines == LINES_LIMIT + 1:
                text, named = f"[more than {LINES_LIMIT} lines; the rest is left out]", {}
            if self._lines <= LINES_LIMIT + 1:
                self._send({"log": [level, text, named]} if level else {"print": text})

        return tell

    def _send(self, message: dict[str, Any]) -> None:
        try:
            self._channel.sendall(packed(message))
        except TooLarge as error:
            raise self._remember(Failed("size", f"an argument is too large: {error}")) from None

    def _remember(self, failure: Failed) -> Failed:
        self._failure = failure
        return failure
