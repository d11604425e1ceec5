"""strands-agents: Agent over OpenAIModel. An agent is one conversation, so one per run.

NullConversationManager: the default keeps a sliding window of 40 messages, so histories would not
    compare.
"""

from strands import Agent, tool
from strands.agent.conversation_manager import NullConversationManager
from strands.models.openai import OpenAIModel

REQUIRES = ["strands-agents[openai]"]
VERSION_OF = "strands-agents"
NOTE = "streams by default, so its plain runs parse SSE too"


class Session:
    def __init__(self, base_url, tools):
        self.model = OpenAIModel(
            client_args={"base_url": base_url, "api_key": "none"}, model_id="gpt-4o"
        )
        self.tools = [tool(f) for f in tools]

    def agent(self):
        return Agent(
            model=self.model,
            tools=self.tools,
            callback_handler=None,
            conversation_manager=NullConversationManager(),
        )

    async def arun(self, prompt):
        return str(await self.agent().invoke_async(prompt)).strip()

    async def astream(self, prompt):
        seen = {"text": 0, "args": 0}
        async for e in self.agent().stream_async(prompt):
            if "current_tool_use" in e:
                seen["args"] += 1
            elif "data" in e:
                seen["text"] += 1
        return seen
