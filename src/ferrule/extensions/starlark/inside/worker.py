"""A worker: a process that runs one script at a time, until its owner closes the socket.

It knows only the scripts it is sent. Anything a script wants from outside is a message to the
owner.
"""

from __future__ import annotations

import gc
import os
import re
import socket
from collections.abc import Callable
from typing import Any

from . import computed as pure
from . import jail
from .frames import TooLarge, encode_frame, receive_frame
from .names import OUTPUT_BUILTINS, OWNER_BUILTINS, full_name
from .scripts import Interpreter, ScriptError

LINE_LIMIT = 8_192
"""Characters of one printed line, or of a message, at most."""
LINES_LIMIT = 1_000
"""Printed and logged lines of one call at most; later ones are counted and dropped."""

_PLACE = re.compile(r".+?:\d+: ")


def start() -> None:
    """Serve until the socket, which is descriptor 0, is closed."""
    channel = socket.socket(fileno=0)
    worker = Worker(channel)
    worker.warm_up()
    gc.freeze()
    jail.lock_down()
    channel.sendall(encode_frame({"ready": True}))
    worker.serve()
    os._exit(0)


class Worker:
    """Runs the scripts that come through `channel`."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._watch = jail.LimitWatch(channel)
        self._failure: ScriptError | None = None
        self._lines = 0
        functions: dict[str, Callable[..., Any]] = {
            name: self._make_pure(function) for name, function in pure.FUNCTIONS.items()
        }
        functions |= {name: self._make_request(name) for name in _full_names(OWNER_BUILTINS)}
        functions |= {name: self._make_output(name) for name in _full_names(OUTPUT_BUILTINS)}
        functions["log"] = self._make_output("log.info")
        self._scripts = Interpreter(functions, self._watch)

    def warm_up(self) -> None:
        """Use everything once that may be imported later, since later nothing can be opened."""
        source = (
            'def run(a):\n    return [json.encode(a), re.match("(?i)ä|b{2}", "ä"), '
            'url.parse("http://x"), print]\n'
        )
        for digest, text in (("", source), ("broken", "def run(:\n"), ("odd", "ä = ä\n")):
            try:
                self._scripts.parse(digest, text, "x")
                self._watch.begin(None, 1 << 30)
                self._scripts.call(digest, "run", [{}], pure=True)
            except ScriptError:
                continue

    def serve(self) -> None:
        """Serve one request after the other."""
        while (request := receive_frame(self._channel)) is not None:
            spent = False
            try:
                message = {"done": self._run(request)}
                frame = encode_frame(message, request["result"])
            except ScriptError as failed:
                spent = failed.reason == "memory"
                frame = encode_frame(
                    {
                        "failed": [failed.reason, failed.message[:LINE_LIMIT], failed.kind],
                        "spent": spent,
                    }
                )
            except TooLarge as error:
                frame = encode_frame({"failed": ["size", f"its result is too large: {error}", ""]})
            except (RecursionError, MemoryError):
                problem = "its result is too large, or nests too deeply, to be written as JSON"
                frame = encode_frame({"failed": ["size", problem, ""]})
            self._channel.sendall(frame)
            if spent:
                # Memory that a script freed is not always returned to the system.
                os._exit(0)

    def _run(self, request: dict[str, Any]) -> Any:
        self._failure = None
        self._lines = 0
        digest = request["run"]
        self._watch.begin(request["seconds"], request["memory"])
        try:
            if "source" in request:
                self._scripts.parse(digest, request["source"], request["file"])
            elif not self._scripts.is_parsed(digest):
                raise ScriptError("unknown", "the text of this script is not here")
            return self._scripts.call(
                digest, request["function"], request["arguments"], pure=request["pure"]
            )
        except ScriptError as failed:
            raise self._first_cause(failed) from None
        except MemoryError:
            raise ScriptError("memory", "") from None
        # boundary: the library panics with no Exception; one call fails, not the worker
        except BaseException as error:
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
            reason = "memory" if "memory" in str(error) else "error"
            raise ScriptError(
                reason, f"the runtime failed: {type(error).__name__}: {error}"
            ) from None

    def _first_cause(self, failed: ScriptError) -> ScriptError:
        """Return what stopped the script first: the watch, or a built-in that failed."""
        if self._watch.stopped:
            return ScriptError(self._watch.stopped, failed.message)
        if self._failure is None:
            return failed
        place = _PLACE.match(failed.message)
        cause = self._failure
        return ScriptError(cause.reason, f"{place[0] if place else ''}{cause.message}", cause.kind)

    def _make_pure(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def compute(*args: Any, **named: Any) -> Any:
            try:
                return function(*args, **named)
            except (TypeError, ValueError, AttributeError, OverflowError, re.error) as error:
                raise self._remember(ScriptError("error", str(error))) from None

        return compute

    def _make_request(self, name: str) -> Callable[..., Any]:
        def ask(*args: Any, **named: Any) -> Any:
            self._send({"call": name, "args": args, "named": named})
            answer = receive_frame(self._channel)
            if answer is None:
                os._exit(0)
            if "error" in answer:
                kind, message = answer["error"]
                raise self._remember(ScriptError("builtin", message, kind))
            return answer["value"]

        return ask

    def _make_output(self, name: str) -> Callable[..., Any]:
        level = name.partition(".")[2]

        def tell(*args: Any, **named: Any) -> None:
            self._lines += 1
            text = " ".join(map(str, args))[:LINE_LIMIT]
            if self._lines > LINES_LIMIT + 1:
                return
            if self._lines == LINES_LIMIT + 1:
                text = f"[more than {LINES_LIMIT} lines; the rest is left out]"
                named = {}
            self._send({"log": [level, text, named]} if level else {"print": text})

        return tell

    def _send(self, message: dict[str, Any]) -> None:
        try:
            self._channel.sendall(encode_frame(message))
        except TooLarge as error:
            raise self._remember(
                ScriptError("size", f"an argument is too large: {error}")
            ) from None

    def _remember(self, failure: ScriptError) -> ScriptError:
        self._failure = failure
        return failure


def _full_names(table: dict[str, tuple[str, ...]]) -> set[str]:
    names: set[str] = set()
    for space, members in table.items():
        names.update(full_name(space, member) for member in members)
    return names
