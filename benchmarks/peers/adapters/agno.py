"""agno: Agent over OpenAIChat, telemetry off, no database."""

from agno.agent import Agent
from agno.models.openai import OpenAIChat

REQUIRES = ["agno", "openai"]
VERSION_OF = "agno"
ENV = {"AGNO_TELEMETRY": "false"}


class Session:
    def __init__(self, base_url, tools):
        self.agent = Agent(
            model=OpenAIChat(id="gpt-4o", base_url=base_url, api_key="none"),
            tools=tools,
            telemetry=False,
        )

    async def arun(self, prompt):
        return (await self.agent.arun(prompt)).content

    async def astream(self, prompt):
        seen = {"text": 0, "args": 0}
        async for e in self.agent.arun(prompt, stream=True, stream_events=True):
            if e.event == "RunContent":
                seen["text"] += 1
        return seen
