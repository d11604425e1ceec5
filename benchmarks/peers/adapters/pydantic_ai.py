"""pydantic-ai: Agent over OpenAIChatModel."""

from pydantic_ai import Agent, UsageLimits
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

REQUIRES = ["pydantic-ai-slim[openai]"]
VERSION_OF = "pydantic-ai-slim"
LIMITS = UsageLimits(request_limit=None)  # default 50 requests


class Session:
    def __init__(self, base_url, tools):
        self.agent = Agent(
            OpenAIChatModel("gpt-4o", provider=OpenAIProvider(base_url=base_url, api_key="none")),
            tools=tools,
        )

    async def arun(self, prompt):
        return (await self.agent.run(prompt, usage_limits=LIMITS)).output

    async def astream(self, prompt):
        seen = {"text": 0, "args": 0}
        async with self.agent.run_stream_events(prompt, usage_limits=LIMITS) as events:
            async for e in events:
                if e.event_kind == "part_delta":
                    seen["text" if e.delta.part_delta_kind == "text" else "args"] += 1
        return seen
