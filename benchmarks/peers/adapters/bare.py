"""The practical floor: a bare loop over httpx.AsyncClient and json."""

import json

import httpx

REQUIRES = ["httpx"]
VERSION_OF = "httpx"


class Session:
    def __init__(self, base_url, tools):
        import bench_loop as bare

        self.bare, self.table, self.schemas = (
            bare,
            {f.__name__: f for f in tools},
            bare.schemas(tools),
        )
        self.http = httpx.AsyncClient(timeout=60)  # default limits: 100 connections, 20 kept alive
        self.url = base_url + "/chat/completions"

    def body(self, messages, **kw):
        return {"model": self.bare.MODEL, "messages": messages, "tools": self.schemas, **kw}

    async def arun(self, prompt):
        messages = [{"role": "user", "content": prompt}]
        while True:
            r = await self.http.post(self.url, json=self.body(messages))
            r.raise_for_status()
            m = r.json()["choices"][0]["message"]
            messages.append(m)
            if not m.get("tool_calls"):
                return m["content"]
            messages += await self.bare.dispatch(m["tool_calls"], self.table)

    async def astream(self, prompt):
        messages, seen = [{"role": "user", "content": prompt}], {"text": 0, "args": 0}
        while True:
            merge = self.bare.Merge()
            merge.seen = seen
            async with self.http.stream(
                "POST", self.url, json=self.body(messages, stream=True)
            ) as r:
                async for line in r.aiter_lines():
                    if line.startswith("data: ") and line != "data: [DONE]":
                        for c in json.loads(line[6:])["choices"]:
                            merge.add(c["delta"])
            m = merge.message()
            messages.append(m)
            if not m.get("tool_calls"):
                return seen
            messages += await self.bare.dispatch(m["tool_calls"], self.table)
