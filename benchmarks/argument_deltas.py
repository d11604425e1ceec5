"""Deltas of arguments that watchers see while they arrive, beside deltas of text.

    python benchmarks/argument_deltas.py [DELTAS]       # 40,000

A stub streams an answer of so many deltas over a socket: as text of five characters each, and as
the arguments of one call, four characters of JSON each. The one who runs the agent watches
(`stream`), or a reader of its event bus does, as consoles and servers do: what is shown there is
redacted. Every character must have been shown before the call ran. Rates are per second of this
process's processor time; each is the best of five, taken in turn.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from ferrule import Agent, ArgumentsDelta, OpenAIChat, Permissions, TextDelta
from ferrule.engine.agent_options import Host
from ferrule.engine.event_bus.bus import Bus
from ferrule.tools.decorator import tool

REPEATS = 5


@tool
def swallow(text: str, i: int = 0) -> str:
    """Look at a text."""
    return str(len(text))


async def streamed(agent: Agent, _: Bus, prompt: str) -> dict[type, str]:
    """Run, and return what the one who runs it was shown."""
    shown: dict[type, list[str]] = {TextDelta: [], ArgumentsDelta: []}
    async for item in agent.stream(prompt):
        if type(item) in shown:
            shown[type(item)].append(item.text)
    return {kind: "".join(pieces) for kind, pieces in shown.items()}


async def published(agent: Agent, bus: Bus, prompt: str) -> dict[type, str]:
    """Run, and return what a reader of the event bus was shown."""
    shown: dict[str, list[str]] = {"piece.text": [], "piece.arguments": []}
    session = agent.session()
    reader = bus.subscribe(session.identity, buffer=1 << 20)

    async def read() -> None:
        async for event in reader:
            if event.kind in shown:
                shown[event.kind].append(event.payload["text"])
            if event.kind == "run.finished":
                return

    reading = asyncio.create_task(read())
    await asyncio.sleep(0)
    await session.run(prompt)
    await reading
    await session.close()
    text, arguments = ("".join(pieces) for pieces in shown.values())
    return {TextDelta: text, ArgumentsDelta: arguments}


async def main() -> int:
    wanted = int(sys.argv[1]) if sys.argv[1:] else 40_000
    stub = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("stub.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert stub.stdout is not None
    url = f"http://127.0.0.1:{stub.stdout.readline().strip()}/v1"
    bus = Bus()
    agent = Agent(
        OpenAIChat("stub", base_url=url, api_key="none"),
        [swallow],
        permissions=Permissions(allow=["swallow"]),
        host=Host(bus=bus),
    )
    size = wanted * 4
    text = json.dumps({"rounds": 0, "text_deltas": wanted})
    arguments = json.dumps({"rounds": 1, "tool": "swallow", "argument_bytes": size})
    print(f"{wanted:,} deltas, load {os.getloadavg()[0]:.1f}")
    for watcher in (streamed, published):
        best = {TextDelta: 1e9, ArgumentsDelta: 1e9}
        for _ in range(REPEATS):
            for kind, prompt in ((TextDelta, text), (ArgumentsDelta, arguments)):
                begun = time.process_time()
                shown = await watcher(agent, bus, prompt)
                best[kind] = min(best[kind], time.process_time() - begun)
                expected = wanted * 5 if kind is TextDelta else size
                assert len(shown[kind]) >= expected, f"{len(shown[kind])} of {expected} characters"
        rates = {kind: wanted / taken for kind, taken in best.items()}
        print(
            f"{watcher.__name__}: text {rates[TextDelta]:,.0f} deltas/s, arguments "
            f"{rates[ArgumentsDelta]:,.0f}, {rates[ArgumentsDelta] / rates[TextDelta]:.2f} x"
        )
    await agent.close()
    stub.terminate()
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
