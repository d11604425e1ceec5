"""A loop by hand that keeps nothing: what the model, the HTTP client and the effects cost."""

import json
import os

import httpx
from effects import pay
from model import prompt

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "pay",
            "description": "Pay one bill.",
            "parameters": {
                "type": "object",
                "properties": {"run": {"type": "string"}, "number": {"type": "integer"}},
                "required": ["run", "number"],
            },
        },
    }
]


class System:
    async def start(self):
        self.http = httpx.AsyncClient(
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None)
        )

    async def run(self, run):
        history = [{"role": "user", "content": prompt(run)}]
        while True:
            got = await self.http.post(
                f"{os.environ['BENCH_BASE_URL']}/chat/completions",
                timeout=60,
                json={"model": "gpt-4o", "messages": history, "tools": TOOLS},
            )
            said = got.json()["choices"][0]["message"]
            history.append(said)
            if not said.get("tool_calls"):
                return said["content"]
            for call in said["tool_calls"]:
                text = await pay(**json.loads(call["function"]["arguments"]))
                history.append({"role": "tool", "tool_call_id": call["id"], "content": text})

    async def stop(self):
        await self.http.aclose()
