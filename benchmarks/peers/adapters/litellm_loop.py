"""A bare hand-written loop over litellm.acompletion."""

import litellm

REQUIRES = ["litellm[mcp]"]  # a plain litellm fails on any call with tools: "No module named 'mcp'"
VERSION_OF = "litellm"
ENV = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True"
}  # else it fetches its price list from the network at import


class Session:
    def __init__(self, base_url, tools):
        import bench_loop as bare

        self.bare, self.table, self.schemas = (
            bare,
            {f.__name__: f for f in tools},
            bare.schemas(tools),
        )
        self.kw = dict(
            model="openai/" + bare.MODEL, api_base=base_url, api_key="none", tools=self.schemas
        )

    async def arun(self, prompt):
        messages = [{"role": "user", "content": prompt}]
        while True:
            m = (await litellm.acompletion(messages=messages, **self.kw)).choices[0].message
            messages.append(m.model_dump(exclude_none=True))
            if not m.tool_calls:
                return m.content
            messages += await self.bare.dispatch(messages[-1]["tool_calls"], self.table)

    async def astream(self, prompt):
        messages, seen = [{"role": "user", "content": prompt}], {"text": 0, "args": 0}
        while True:
            merge = self.bare.Merge()
            merge.seen = seen
            async for chunk in await litellm.acompletion(messages=messages, stream=True, **self.kw):
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
