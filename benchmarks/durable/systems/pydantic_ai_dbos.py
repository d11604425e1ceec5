"""pydantic-ai with DBOS: the run is a workflow, model requests are steps (DBOSDurability), and so is the tool, as its documentation advises."""

import os

from dbos import DBOS
from effects import pay
from model import prompt
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

PLAIN = bool(os.environ.get("BENCH_PLAIN"))
MODEL = OpenAIChatModel(
    "gpt-4o", provider=OpenAIProvider(base_url=os.environ["BENCH_BASE_URL"], api_key="none")
)

if PLAIN:
    AGENT = Agent(MODEL, name="bench", tools=[pay])
else:
    from pydantic_ai.durable_exec.dbos import DBOSDurability

    TOOL = DBOS.step()(pay) if os.environ.get("BENCH_TOOL_STEP", "1") == "1" else pay
    AGENT = Agent(MODEL, name="bench", tools=[TOOL], capabilities=[DBOSDurability()])

    @DBOS.workflow()
    async def whole(text: str) -> str:
        return (await AGENT.run(text)).output


class System:
    async def start(self):
        if not PLAIN:
            url = os.environ["BENCH_DATABASE"].replace("postgresql://", "postgresql+psycopg://")
            DBOS(
                config={
                    "name": "bench",
                    "system_database_url": url,
                    "log_level": "ERROR",
                    "run_admin_server": False,
                }
            )
            DBOS.launch()

    async def run(self, run):
        if PLAIN:
            return (await AGENT.run(prompt(run))).output
        return await whole(prompt(run))

    async def stop(self):
        if not PLAIN:
            DBOS.destroy()
