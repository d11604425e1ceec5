"""A bare hand-written loop over the official openai client."""

from openai import AsyncOpenAI

REQUIRES = ["openai"]
VERSION_OF = "openai"


class Session:
    def __init__(self, base_url, tools):
        import bench_loop as bare

        self.bare, self.table, self.schemas = (
            bare,
            {f.__name__: f for f in tools},
            bare.schemas(tools),
        )
        self.ai = AsyncOpenAI(base_url=base_url, api_key="none")

    async def arun(self, prompt):
        messages = [{"role": "user", "content": prompt}]
        while True:
            r = await self.ai.chat.completions.create(
                model=self.bare.MODEL, messages=messages, tools=self.schemas
            )
            m = r.choices[0].message
            messages.append(m.model_dump(exclude_none=True))
            if not m.tool_calls:
                return m.content
            messages += await self.bare.dispatch(messages[-1]["tool_calls"], self.table)

    async def astream(self, prompt):
        messages, seen = [{"role": "user", "content": prompt}], {"text": 0, "args": 0}
        while True:
            merge = self.bare.Merge()
            merge.seen = seen
            async for chunk in await self.ai.chat.completions.create(
                model=self.bare.MODEL, messages=messages, tools=self.schemas, stream=True
            ):
                for c in chunk.choices:
                    d = c.delta
                    merge.add(
                        {
                            "content": d.content,
                            "tool_calls": [
                                {
                                    "index": t.index,
                                    "id": t.id,
                                    "function": {
                                        "name": t.function.name,
                                        "arguments": t.function.arguments,
                                    },
                                }
                                for t in d.tool_calls or ()
                            ],
                        }
                    )
            m = merge.message()
            messages.append(m)
            if not m.get("tool_calls"):
                return seen
            messages += await self.bare.dispatch(m["tool_calls"], self.table)
