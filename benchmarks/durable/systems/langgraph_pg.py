"""langchain's create_agent (a langgraph graph) with the checkpointer in PostgreSQL; a thread per run, a pool of 10 connections."""

import os

from effects import pay
from langchain.agents import create_agent
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from model import prompt
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

DURABILITY = os.environ.get("BENCH_DURABILITY", "async")  # langgraph's default


class System:
    async def start(self):
        self.pool = AsyncConnectionPool(
            os.environ["BENCH_DATABASE"],
            min_size=2,
            max_size=10,
            open=False,
            timeout=120,
            kwargs={"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row},
        )
        await self.pool.open()
        saver = AsyncPostgresSaver(self.pool)
        await saver.setup()
        model = ChatOpenAI(model="gpt-4o", base_url=os.environ["BENCH_BASE_URL"], api_key="none")
        self.agent = create_agent(model, tools=[pay], checkpointer=saver)

    async def run(self, run):
        config = {"configurable": {"thread_id": run}, "recursion_limit": 1000}
        got = await self.agent.ainvoke(
            {"messages": [{"role": "user", "content": prompt(run)}]}, config, durability=DURABILITY
        )
        return got["messages"][-1].content

    async def stop(self):
        await self.pool.close()
