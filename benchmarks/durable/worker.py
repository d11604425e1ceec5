"""Inside a system's interpreter: `worker.py SYSTEM`. Each line of stdin is a list of run ids; they are run at once, and a line is the answer.

A system is a module in `systems/` with `System`: `await start()`, `await run(id) -> text`, or `await runs(ids) -> texts`; `await stop()`.
"""

import asyncio
import importlib
import json
import os
import sys
import time


async def main(name):
    system = importlib.import_module(name).System()
    await system.start()
    print("ready", flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        ids = json.loads(line)
        began, lateness, watching = time.perf_counter(), [], True

        async def watch():
            while watching:
                at = time.perf_counter()
                await asyncio.sleep(0.005)
                lateness.append(time.perf_counter() - at - 0.005)

        watcher = asyncio.create_task(watch())
        if hasattr(system, "runs"):
            texts = await system.runs(ids)
        else:
            texts = await asyncio.gather(*map(system.run, ids), return_exceptions=True)
        wall = time.perf_counter() - began
        watching = False
        await watcher
        wrong = [repr(t)[:300] for t in texts if t != "done"]
        lateness.sort()
        print(
            json.dumps(
                {
                    "wall": wall,
                    "wrong": len(wrong),
                    "example": wrong[:1],
                    "late_p50": lateness[len(lateness) // 2],
                    "late_p99": lateness[int(len(lateness) * 0.99)],
                }
            ),
            flush=True,
        )
    await system.stop()


if __name__ == "__main__":
    if out := os.environ.get("BENCH_PROFILE"):
        import cProfile

        profile = cProfile.Profile()
        profile.runcall(asyncio.run, main(sys.argv[1]))
        profile.dump_stats(out)
    else:
        asyncio.run(main(sys.argv[1]))
