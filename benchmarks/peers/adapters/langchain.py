"""langchain 1.x create_agent (a langgraph graph) over langchain-openai's ChatOpenAI."""

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI

REQUIRES = ["langchain", "langchain-openai"]
VERSION_OF = "langchain"
ENV = {"LANGSMITH_TRACING": "false"}
CONFIG = {"recursion_limit": 100_000}


class Session:
    def __init__(self, base_url, tools):
        self.agent = create_agent(
            ChatOpenAI(model="gpt-4o", base_url=base_url, api_key="none"), tools=tools
        )

    async def arun(self, prompt):
        r = await self.agent.ainvoke({"messages": [{"role": "user", "content": prompt}]}, CONFIG)
        return r["messages"][-1].content

    async def astream(self, prompt):
        seen = {"text": 0, "args": 0}
        async for m, _ in self.agent.astream(
            {"messages": [{"role": "user", "content": prompt}]}, CONFIG, stream_mode="messages"
        ):
            if m.type == "AIMessageChunk":
                seen["text"] += bool(m.content)
                seen["args"] += len(m.tool_call_chunks)
        return seen
