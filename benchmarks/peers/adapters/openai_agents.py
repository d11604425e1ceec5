"""openai-agents: Agent + Runner over OpenAIChatCompletionsModel."""

from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool
from openai import AsyncOpenAI

REQUIRES = ["openai-agents"]
VERSION_OF = "openai-agents"
ENV = {"OPENAI_AGENTS_DISABLE_TRACING": "1"}  # traces would be posted to api.openai.com


class Session:
    def __init__(self, base_url, tools):
        model = OpenAIChatCompletionsModel("gpt-4o", AsyncOpenAI(base_url=base_url, api_key="none"))
        self.agent = Agent(name="bench", model=model, tools=[function_tool(f) for f in tools])

    async def arun(self, prompt):
        return (await Runner.run(self.agent, prompt, max_turns=10_000)).final_output  # default 10

    async def astream(self, prompt):
        seen = {"text": 0, "args": 0}
        async for e in Runner.run_streamed(self.agent, prompt, max_turns=10_000).stream_events():
            if e.type == "raw_response_event":
                if e.data.type == "response.output_text.delta":
                    seen["text"] += 1
                elif e.data.type == "response.function_call_arguments.delta":
                    seen["args"] += 1
        return seen
