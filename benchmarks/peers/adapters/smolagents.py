"""smolagents ToolCallingAgent over OpenAIServerModel. Sync only; an agent holds one run's memory,
so one per run.
"""

from smolagents import LogLevel, OpenAIServerModel, ToolCallingAgent, tool
from smolagents.models import ChatMessageStreamDelta

REQUIRES = ["smolagents[openai]"]
VERSION_OF = "smolagents"
ENV = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
PROMPT_OPTS = {"final": "final_answer"}  # it ends only by this tool call, not by text
ASYNC_TOOLS = False


class Session:
    def __init__(self, base_url, tools):
        self.model = OpenAIServerModel("gpt-4o", api_base=base_url, api_key="none")
        self.tools = [tool(f) for f in tools]

    def agent(self, **kw):
        return ToolCallingAgent(
            self.tools, self.model, max_steps=10_000, verbosity_level=LogLevel.OFF, **kw
        )

    def run(self, prompt):
        return self.agent().run(prompt)

    def stream(self, prompt):
        seen = {"text": 0, "args": 0}
        for e in self.agent(stream_outputs=True).run(prompt, stream=True):
            if isinstance(e, ChatMessageStreamDelta):
                seen["text"] += bool(e.content)
                seen["args"] += len(e.tool_calls or ())
        return seen
