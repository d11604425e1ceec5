"""openai-agents with a SQLAlchemy session in PostgreSQL; a session per run. It keeps messages, not the state of calls."""

import os

from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool
from agents.extensions.memory import SQLAlchemySession
from effects import pay
from model import prompt
from openai import AsyncOpenAI
from sqlalchemy.ext.asyncio import create_async_engine


class System:
    async def start(self):
        url = os.environ["BENCH_DATABASE"].replace("postgresql://", "postgresql+psycopg://")
        self.engine = create_async_engine(url, pool_size=10, max_overflow=0, pool_timeout=120)
        model = OpenAIChatCompletionsModel(
            "gpt-4o", AsyncOpenAI(base_url=os.environ["BENCH_BASE_URL"], api_key="none")
        )
        self.agent = Agent(name="bench", model=model, tools=[function_tool(pay)])
        # The tables are made by the first session's first use; later sessions must find them.
        await SQLAlchemySession("first", engine=self.engine, create_tables=True).get_items()

    async def run(self, run):
        session = SQLAlchemySession(run, engine=self.engine)
        return (
            await Runner.run(self.agent, prompt(run), session=session, max_turns=100)
        ).final_output

    async def stop(self):
        await self.engine.dispose()
