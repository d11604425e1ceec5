"""Deterministic OpenAI-compatible /chat/completions stub (stream and non-stream).

Run:  <stub venv>/bin/python stub_server.py [--port 0]      prints {"port": N} and serves.

The scenario rides in the first user message, so every framework can carry it:

    [[run=ID;do=add;turns=50]]                 one add(a=k,b=1000000) call per turn, then final text
    [[run=ID;do=fan;k=32;tool=nap]]            k parallel calls of `tool`(i=0..k-1), then final text
    [[run=ID;do=text;n=10000]]                 one text answer of n deltas (when streamed)
    [[run=ID;do=write;size=200000;chunk=4]]    one write_file call with `size` chars of content, whose
                                               JSON arguments are streamed `chunk` chars a delta
    [[run=ID;do=echo]]                         text answer that states the request's size
  options for all: lat=MS (model latency), final=NAME (finish by calling tool NAME(answer=...)
  instead of by text; smolagents needs it)

The turn is the number of requests already seen for that run id: no history is parsed, so the cost
of a request does not depend on how a framework phrases its history. Instead the stub CHECKS that
every request after the first carries the result of the call it asked for; what fails is reported
in the run's `bad`. Bodies are searched as bytes, never JSON-decoded.

GET /stats?<prefix>  returns and forgets the runs whose id starts with prefix: per request the bytes
on the wire (headers+body), t_in (request complete) and t_out (response handed to the kernel), in s.
"""

import argparse
import asyncio
import functools
import json
import time

import httptools
import uvloop

RUNS: dict[str, "Run"] = {}
now = time.perf_counter


class Run:
    __slots__ = ("n", "wire", "t_in", "t_out", "bad", "streamed")

    def __init__(self):
        self.n = self.streamed = 0
        self.wire, self.t_in, self.t_out, self.bad = [], [], [], []


# ---------------------------------------------------------------- what the model says
B = 1_000_000


def call(cid, name, args):
    return {"id": cid, "name": name, "args": args}


@functools.lru_cache
def write_args(size):
    line = 'def f_%06d(x):\n    return {"k": x, \'tab\': "\\t"}  # é\n'
    text = "".join(line % i for i in range(size // 40 + 1))[:size]
    return json.dumps({"path": "out/generated.py", "content": text}, ensure_ascii=False)


@functools.lru_cache
def words(n):
    """n tokens of 4 chars; neighbours differ (litellm aborts a stream that repeats itself)."""
    return "".join("%03d " % (i % 1000) for i in range(n))


def reply(o, turn, rid, size):
    """-> (text, calls) for this turn of scenario o."""
    do = o.get("do", "echo")
    if do == "add" and turn < int(o["turns"]):
        return None, [call(f"call_{rid}_{turn}", "add", '{"a":%d,"b":%d}' % (turn + 1, B))]
    if do == "fan" and turn == 0:
        t = o.get("tool", "nap")
        return None, [call(f"call_{rid}_{i}", t, '{"i":%d}' % i) for i in range(int(o["k"]))]
    if do == "write" and turn == 0:
        return None, [call(f"call_{rid}_0", "write_file", write_args(int(o["size"])))]
    if do == "text" and turn == 0:
        return words(int(o["n"])), None
    text = f"bytes={size}" if do == "echo" else "done"
    if "final" in o:
        return None, [call(f"call_{rid}_final", o["final"], json.dumps({"answer": text}))]
    return text, None


def missing(o, turn, body):
    """What the request of this turn ought to contain and does not ('' when all is well)."""
    if turn == 0:
        return ""
    do = o.get("do")
    if do == "add":
        want = [b"%d" % (B + turn)]
    elif do == "fan":
        want = [b"napped-%d" % i for i in range(int(o["k"]))]
    elif do == "write":
        want = [b"wrote %s chars" % o["size"].encode()]
    else:
        return ""
    lost = [w for w in want if w not in body]
    return f"turn {turn}: {len(lost)} of {len(want)} results absent" if lost else ""


# ---------------------------------------------------------------- how it is said
# Four bytes are a token: whoever compares it with what was sent finds nothing amiss.
USAGE = '"usage":{"prompt_tokens":%d,"completion_tokens":10,"total_tokens":%d}'
HEAD = '{"id":"chatcmpl-%s","object":"chat.completion%s","created":1700000000,"model":"stub-model",'


def fn(c):
    return {
        "id": c["id"],
        "type": "function",
        "function": {"name": c["name"], "arguments": c["args"]},
    }


def usage_of(size):
    return USAGE % (size // 4, size // 4 + 10)


def whole(rid, text, calls, size):
    msg = {"role": "assistant", "content": text}
    if calls:
        msg["tool_calls"] = [fn(c) for c in calls]
    body = (
        HEAD % (rid, "")
        + '"choices":[{"index":0,"message":%s,"logprobs":null,"finish_reason":"%s"}],%s}'
        % (json.dumps(msg), "tool_calls" if calls else "stop", usage_of(size))
    ).encode()
    return (
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        % len(body)
        + body
    )


def sse(payload):
    b = b"data: " + payload + b"\n\n"
    return b"%x\r\n" % len(b) + b + b"\r\n"  # one HTTP chunk per event, as real servers send


@functools.lru_cache(maxsize=64)
def deltas(text, args, chunk):
    """The repetitive middle of a stream; the same bytes for every run, so built once."""
    head = (HEAD % ("stub", ".chunk")).encode() + b'"choices":[{"index":0,"delta":'
    tail = b',"logprobs":null,"finish_reason":null}]}'
    if text is not None:
        return b"".join(
            sse(head + json.dumps({"content": text[i : i + chunk]}).encode() + tail)
            for i in range(0, len(text), chunk)
        )
    return b"".join(
        sse(
            head
            + b'{"tool_calls":[{"index":0,"function":{"arguments":'
            + json.dumps(args[i : i + chunk]).encode()
            + b"}}]}"
            + tail
        )
        for i in range(0, len(args), chunk)
    )


def streamed(rid, text, calls, chunk, usage, size):
    head = (HEAD % ("stub", ".chunk")).encode()

    def ev(delta, finish=None):
        return sse(
            head
            + (
                '"choices":[{"index":0,"delta":%s,"logprobs":null,"finish_reason":%s}]}'
                % (json.dumps(delta), json.dumps(finish))
            ).encode()
        )

    out = [
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n",
        ev({"role": "assistant", "content": "" if text is not None else None}),
    ]
    if text is not None:
        out.append(deltas(text, None, 4))
    elif len(calls) == 1 and len(calls[0]["args"]) > 256:
        c = calls[0]
        out.append(ev({"tool_calls": [{"index": 0, **fn({**c, "args": ""})}]}))
        out.append(deltas(None, c["args"], chunk))
    else:
        for i, c in enumerate(calls):
            out.append(ev({"tool_calls": [{"index": i, **fn({**c, "args": ""})}]}))
            out.append(ev({"tool_calls": [{"index": i, "function": {"arguments": c["args"]}}]}))
    out.append(ev({}, "tool_calls" if calls else "stop"))
    if usage:
        out.append(sse(head + b'"choices":[],' + usage_of(size).encode() + b"}"))
    out += [sse(b"[DONE]"), b"0\r\n\r\n"]
    return b"".join(out)


# ---------------------------------------------------------------- HTTP
class Server(asyncio.Protocol):
    def connection_made(self, tr):
        self.tr, self.parser, self.wire = tr, httptools.HttpRequestParser(self), 0

    def data_received(self, data):
        self.wire += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self.tr.close()

    def on_message_begin(self):
        self.body = []

    def on_url(self, url):
        self.url = url

    def on_body(self, b):
        self.body.append(b)

    def on_message_complete(self):
        t_in, wire, self.wire = now(), self.wire, 0
        keep = self.parser.should_keep_alive()
        if self.url.startswith(b"/stats"):
            return self.send(self.stats(self.url.partition(b"?")[2].decode()), keep)
        if not self.url.endswith(b"/chat/completions"):
            RUNS.setdefault("_other", Run()).bad.append(self.url.decode())
            return self.send(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", keep)
        body = b"".join(self.body)
        i = body.find(b"[[run=")
        o = (
            dict(kv.split("=", 1) for kv in body[i + 2 : body.find(b"]]", i)].decode().split(";"))
            if i >= 0
            else {}
        )
        rid = o.get("run", "_none")
        run = RUNS.get(rid) or RUNS.setdefault(rid, Run())
        turn, run.n = run.n, run.n + 1
        text, calls = reply(o, turn, rid, len(body))
        if b'"stream":true' in body or b'"stream": true' in body:
            run.streamed += 1
            wanted = b'"include_usage"' in body
            out = streamed(rid, text, calls, int(o.get("chunk", 4)), wanted, len(body))
        else:
            out = whole(rid, text, calls, len(body))
        bad = missing(o, turn, body)
        if bad:
            run.bad.append(bad)
        run.wire.append(wire)
        run.t_in.append(t_in)
        if "lat" in o:
            asyncio.get_running_loop().call_later(int(o["lat"]) / 1000, self.answer, out, keep, run)
        else:
            self.answer(out, keep, run)

    def answer(self, out, keep, run):
        self.send(out, keep)
        run.t_out.append(now())

    def send(self, out, keep):
        if not self.tr.is_closing():
            self.tr.write(out)
            if not keep:
                self.tr.close()

    def stats(self, prefix):
        hit = [r for r in RUNS if r.startswith(prefix)]
        body = json.dumps(
            {r: {k: getattr(RUNS[r], k) for k in Run.__slots__} for r in hit}
        ).encode()
        for r in hit:
            del RUNS[r]
        return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body


async def main(port):
    srv = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", port, backlog=4096)
    print(json.dumps({"port": srv.sockets[0].getsockname()[1]}), flush=True)
    await srv.serve_forever()


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--port", type=int, default=0)
    uvloop.run(main(ap.parse_args().port))
