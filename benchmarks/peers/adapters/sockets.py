"""The theoretical floor: the same loop over bare sockets (blocking; asyncio only for many runs at
once).
"""

import json
import socket

REQUIRES = []


def request(host, body):
    return (
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: %s\r\ncontent-length: %d\r\n\r\n"
        % (host, len(body))
        + body
    )


class Session:
    def __init__(self, base_url, tools):
        import bench_loop as bare

        self.bare, self.table, self.schemas = (
            bare,
            {f.__name__: f for f in tools},
            bare.schemas(tools),
        )
        self.host, self.port = base_url.split("//")[1].split("/")[0].split(":")
        self.hb = f"{self.host}:{self.port}".encode()
        self.sock = socket.create_connection((self.host, int(self.port)))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def body(self, messages, **kw):
        return json.dumps(
            {"model": self.bare.MODEL, "messages": messages, "tools": self.schemas, **kw}
        ).encode()

    def post(self, body):
        self.sock.sendall(request(self.hb, body))
        buf = b""
        while (i := buf.find(b"\r\n\r\n")) < 0:
            buf += self.sock.recv(65536)
        n = int(buf[buf.find(b"content-length: ") + 16 : i]) + i + 4
        while len(buf) < n:
            buf += self.sock.recv(65536)
        return json.loads(buf[i + 4 :])["choices"][0]["message"]

    def call(self, calls):
        def one(c):
            return self.bare.tool_message(
                c, self.table[c["function"]["name"]](**json.loads(c["function"]["arguments"]))
            )

        if len(calls) == 1:
            return [one(calls[0])]
        f = self.table[calls[0]["function"]["name"]]
        if f.__code__.co_flags & 0x80:  # async
            import asyncio

            return asyncio.run(self.bare.dispatch(calls, self.table))
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(len(calls)) as pool:
            return list(pool.map(one, calls))

    def run(self, prompt):
        messages = [{"role": "user", "content": prompt}]
        while True:
            m = self.post(self.body(messages))
            messages.append(m)
            if not m.get("tool_calls"):
                return m["content"]
            messages += self.call(m["tool_calls"])

    def stream(self, prompt):
        messages, seen = [{"role": "user", "content": prompt}], {"text": 0, "args": 0}
        while True:
            merge = self.bare.Merge()
            merge.seen = seen
            self.sock.sendall(request(self.hb, self.body(messages, stream=True)))
            buf, over = b"", 0
            while over < 2:  # the last HTTP chunk is "0\r\n\r\n"
                *lines, buf = (buf + self.sock.recv(262144)).split(b"\n")
                for line in lines:  # HTTP chunk sizes and blanks do not start with "data: "
                    if line.startswith(b"data: {"):
                        for c in json.loads(line[6:])["choices"]:
                            merge.add(c["delta"])
                    elif line == b"0\r":
                        over = 1
                    elif over:
                        over = 2
            m = merge.message()
            messages.append(m)
            if not m.get("tool_calls"):
                return seen
            messages += self.call(m["tool_calls"])

    async def arun(self, prompt):
        import asyncio

        r, w = await asyncio.open_connection(self.host, self.port)
        messages = [{"role": "user", "content": prompt}]
        while True:
            w.write(request(self.hb, self.body(messages)))
            head = await r.readuntil(b"\r\n\r\n")
            n = int(head[head.find(b"content-length: ") + 16 :].split(b"\r\n", 1)[0])
            m = json.loads(await r.readexactly(n))["choices"][0]["message"]
            messages.append(m)
            if not m.get("tool_calls"):
                w.close()
                return m["content"]
            messages += await self.bare.dispatch(m["tool_calls"], self.table)
