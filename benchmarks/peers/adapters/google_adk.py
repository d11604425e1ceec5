"""google-adk: LlmAgent over its LiteLlm model class, in-memory runner, one session per run."""

from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import InMemoryRunner
from google.genai import types

REQUIRES = ["google-adk", "litellm[mcp]"]
VERSION_OF = "google-adk"
ENV = {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}


class Session:
    def __init__(self, base_url, tools):
        agent = LlmAgent(
            name="bench",
            model=LiteLlm("openai/gpt-4o", api_base=base_url, api_key="none"),
            tools=tools,
        )
        self.runner = InMemoryRunner(agent, app_name="bench")

    async def events(self, prompt, **kw):
        s = await self.runner.session_service.create_session(app_name="bench", user_id="u")
        async for e in self.runner.run_async(
            user_id="u",
            session_id=s.id,
            new_message=types.Content(role="user", parts=[types.Part(text=prompt)]),
            run_config=RunConfig(max_llm_calls=100_000, **kw),
        ):
            yield e

    async def arun(self, prompt):
        async for e in self.events(prompt):
            last = e
        return last.content.parts[0].text

    async def astream(self, prompt):
        seen = {"text": 0, "args": 0}
        async for e in self.events(prompt, streaming_mode=StreamingMode.SSE):
            if e.partial and e.content:
                for p in e.content.parts:
                    seen["text" if p.text else "args"] += 1
        return seen
