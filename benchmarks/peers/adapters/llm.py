"""llm (simonw): AsyncChat.chain(), not streaming unless asked. The library, without its SQLite
log.
"""

import llm
from llm.default_plugins.openai_models import AsyncChat

REQUIRES = ["llm"]
VERSION_OF = "llm"


class Session:
    def __init__(self, base_url, tools):
        self.model = AsyncChat("gpt-4o", key="none", api_base=base_url, supports_tools=True)
        self.tools = [llm.Tool.function(f) for f in tools]

    def chain(self, prompt, stream):
        return self.model.conversation().chain(
            prompt, tools=self.tools, stream=stream, chain_limit=0, key="none"
        )

    async def arun(self, prompt):
        return (await self.chain(prompt, False).text()).strip()

    async def astream(self, prompt):
        seen = {"text": 0, "args": 0}
        async for e in self.chain(prompt, True).astream_events():
            seen["text" if e.type == "text" else "args"] += 1
        return seen
