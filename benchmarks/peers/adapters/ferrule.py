"""Ferrule: Agent over OpenAIChat, as its guide shows it. The gate, the journal (in a file) and the
audit chain are on.
"""

from ferrule import Agent, Limits, OpenAIChat, Storage, TextDelta, tool

REQUIRES = ["$FERRULE_SRC"]
VERSION_OF = "ferrule"
LIMITS = Limits(max_turns=10_000, max_calls_per_turn=64)


class Session:
    def __init__(self, base_url, tools):
        import tempfile

        self.folder = tempfile.TemporaryDirectory(prefix="ferrule-bench-")
        self.agent = Agent(
            OpenAIChat("gpt-4o", base_url=base_url, api_key="none"),
            [tool(function, side_effect="none") for function in tools],
            limits=LIMITS,
            tool_calling="native",
            storage=Storage(journal=f"{self.folder.name}/journal.db"),
        )

    async def arun(self, prompt):
        return (await self.agent.run(prompt)).text

    async def astream(self, prompt):
        seen = {"text": 0, "args": 0}
        async for item in self.agent.stream(prompt):
            seen["text"] += isinstance(item, TextDelta)
        return seen
