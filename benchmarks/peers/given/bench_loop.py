"""What the hand-written loops share: schemas as one would write them, tool dispatch, delta
merging.
"""

import asyncio
import inspect
import json

MODEL = "gpt-4o"  # a name every framework knows; the stub ignores it
TYPES = {int: "integer", str: "string", bool: "boolean", float: "number"}


def schemas(tools):
    out = []
    for f in tools:
        doc, _, args = f.__doc__.partition("Args:")
        about = dict(
            line.strip().split(": ", 1) for line in args.strip().splitlines() if ": " in line
        )
        ps = inspect.signature(f).parameters.values()
        out.append(
            {
                "type": "function",
                "function": {
                    "name": f.__name__,
                    "description": doc.strip(),
                    "parameters": {
                        "type": "object",
                        "properties": {
                            p.name: {"type": TYPES[p.annotation], "description": about[p.name]}
                            for p in ps
                        },
                        "required": [p.name for p in ps if p.default is p.empty],
                    },
                },
            }
        )
    return out


def tool_message(call, result):
    return {"role": "tool", "tool_call_id": call["id"], "content": str(result)}


async def dispatch(calls, table):
    """Async tools together; several blocking tools in threads, a single one inline."""

    async def one(c):
        f, args = table[c["function"]["name"]], json.loads(c["function"]["arguments"])
        if inspect.iscoroutinefunction(f):
            return tool_message(c, await f(**args))
        if len(calls) == 1:
            return tool_message(c, f(**args))
        return tool_message(c, await asyncio.to_thread(f, **args))

    if len(calls) == 1:
        return [await one(calls[0])]
    return await asyncio.gather(*map(one, calls))


class Merge:
    """Folds chat.completion.chunk deltas (dicts) into one assistant message."""

    def __init__(self):
        self.text, self.calls, self.seen = [], {}, {"text": 0, "args": 0}

    def add(self, delta):
        if delta.get("content"):
            self.text.append(delta["content"])
            self.seen["text"] += 1
        for t in delta.get("tool_calls") or ():
            c = self.calls.setdefault(t["index"], {"id": "", "name": "", "args": []})
            c["id"] = t.get("id") or c["id"]
            f = t.get("function") or {}
            c["name"] = f.get("name") or c["name"]
            if f.get("arguments"):
                c["args"].append(f["arguments"])
                self.seen["args"] += 1

    def message(self):
        m = {"role": "assistant", "content": "".join(self.text) or None}
        if self.calls:
            m["tool_calls"] = [
                {
                    "id": c["id"],
                    "type": "function",
                    "function": {"name": c["name"], "arguments": "".join(c["args"])},
                }
                for c in self.calls.values()
            ]
        return m
