"""The effect of the tool: a row with a unique key, in a database of its own, so that its statements are not counted as the system's.

Four connections, shared; the same code in every system.
"""

import asyncio
import os

import psycopg
from model import answered

MOST = 4


class Effects:
    def __init__(self):
        self._idle = asyncio.Queue()
        self._made = 0

    async def pay(self, run: str, number: int) -> str:
        if self._idle.empty() and self._made < MOST:
            self._made += 1
            db = await psycopg.AsyncConnection.connect(os.environ["BENCH_EFFECTS"], autocommit=True)
        else:
            db = await self._idle.get()
        try:
            await db.execute("INSERT INTO effects VALUES (%s)", (f"{run}/{number}",))
        finally:
            self._idle.put_nowait(db)
        return answered(run, number)


EFFECTS = Effects()


async def pay(run: str, number: int) -> str:
    """Pay one bill.

    Args:
        run: The id of the run.
        number: Which bill.
    """
    return await EFFECTS.pay(run, number)
