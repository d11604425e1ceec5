"""A small language server that complains of every line that begins with `bad`.

    python scripted_server.py HOW LOG

`HOW` is how it gives its diagnostics (`push`, `unversioned`, `pieces`, `pull`, `registered`) or how
it fails.
Every method that it is sent is a line in the file `LOG`.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

HOW = sys.argv[1]
LOG = sys.argv[2]
PULLS = ("pull", "registered")


def send(*messages: dict[str, Any]) -> None:
    """Write messages, at once."""
    bodies = [json.dumps({"jsonrpc": "2.0", **message}).encode() for message in messages]
    data = b"".join(b"Content-Length: %d\r\n\r\n%s" % (len(body), body) for body in bodies)
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def receive() -> dict[str, Any]:
    """Read a message."""
    length = 0
    while (line := sys.stdin.buffer.readline()) != b"\r\n":
        if not line:
            sys.exit(3)
        length = int(line.partition(b":")[2])
    return json.loads(sys.stdin.buffer.read(length))


def find(text: str) -> list[dict[str, Any]]:
    """Return the diagnostics of a text; hints, which do not count, among them."""
    found = [
        (number, severity, line)
        for number, line in enumerate(text.splitlines())
        for severity in (1, 4)
        if line.startswith("bad")
    ]
    return [
        {
            "range": {"start": {"line": number, "character": 0}},
            "severity": severity,
            "code": "B1",
            "message": line,
        }
        for number, severity, line in found
    ]


def publish(uri: str, version: int) -> None:
    """Publish the diagnostics of a text."""
    found = find(texts[uri])
    if HOW == "pieces":
        send(make_report(uri, version, found[:1]))
        time.sleep(0.05)
        send(make_report(uri, version, found))
    elif HOW == "unversioned":
        send(make_report(uri, None, found))
    else:
        # What an earlier text had comes late.
        late = make_report(uri, version - 1, find("bad late"))
        send(make_report(uri, version, found), late)


def make_report(uri: str, version: int | None, items: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a message with diagnostics of a version of a text."""
    known = {} if version is None else {"version": version}
    params = {"uri": uri, "diagnostics": items, **known}
    return {"method": "textDocument/publishDiagnostics", "params": params}


def note(line: str) -> None:
    """Add a line to the log."""
    with open(LOG, "a") as log:
        log.write(f"{line}\n")


def begin() -> None:
    """Ask what servers ask once they are initialized."""
    if HOW == "registered":
        wanted = [{"id": "1", "method": "textDocument/diagnostic"}]
        ask = {"method": "client/registerCapability", "params": {"registrations": wanted}}
        send({"id": 7, **ask})
        return
    items = {"items": [{"section": "rules.severity"}, {"section": "absent"}]}
    send({"id": 7, "method": "workspace/configuration", "params": items})
    send({"id": 8, "method": "workspace/applyEdit", "params": {}})


def change(uri: str, item: dict[str, Any], text: str) -> None:
    """Take a text."""
    texts[uri] = text
    if "crash" in text:
        sys.exit("it met a text that it cannot read")
    if HOW not in PULLS:
        publish(uri, item["version"])


def report(uri: str) -> dict[str, Any]:
    """Return the answer to a question; the first one is to be asked again."""
    if not asked:
        asked.append(uri)
        return {"error": {"code": -32802, "message": "loading"}}
    return {"result": {"kind": "full", "items": find(texts[uri])}}


texts: dict[str, str] = {}
asked: list[str] = []


def serve() -> None:
    """Answer until the end."""
    while True:
        message = receive()
        method = message.get("method", "answer")
        note(method)
        params = message.get("params") or {}
        item = params.get("textDocument", {})
        uri = item.get("uri", "")
        match method:
            case "initialize":
                can = {"diagnosticProvider": {}} if HOW == "pull" else {}
                send({"id": message["id"], "result": {"capabilities": can}})
            case "initialized":
                begin()
            case "answer":
                note(json.dumps(message.get("result") or message.get("error")))
            case "textDocument/didOpen":
                change(uri, item, item["text"])
            case "textDocument/didChange":
                change(uri, item, params["contentChanges"][0]["text"])
            case "textDocument/diagnostic":
                send({"id": message["id"], **report(uri)})
            case "shutdown":
                send({"id": message["id"], "result": None})
            case "exit":
                return
            case _:
                pass


if HOW == "junk":
    print("Welcome to this server!", flush=True)
    time.sleep(60)
elif HOW == "endless-header":
    sys.stdout.buffer.write(b"Content-Type: " + b"x" * 100_000)
    sys.stdout.buffer.flush()
    time.sleep(60)
elif HOW == "slow":
    time.sleep(60)
else:
    serve()
