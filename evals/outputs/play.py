"""Play one case, and say how it ended."""

from __future__ import annotations

import asyncio
from typing import Any

from ferrule import Agent, OutputInvalid, PartialOutput, ProviderError, Storage
from ferrule.models.client import Capabilities
from ferrule.models.output_modes import OUTPUT_TOOL
from ferrule.models.scripted import Scripted, Step, calls, says

from .manners import Manner, Said
from .types_asked import Asked

PLAIN = Capabilities(True, True, structured_with_tools=True)


def play(asked: Asked, manner: Manner, mode: str, *, streamed: bool) -> str:
    """Return `right`, `wrong value`, or what happened instead."""
    steps = [_step(said, mode) for said in manner.say(asked)]
    steps += [says("I would rather not say.")] * 3
    model = Scripted(steps, capabilities=PLAIN)
    storage = Storage(journal=":memory:")
    agent = Agent(model, output_type=asked.type, output_mode=mode, storage=storage)
    try:
        output = asyncio.run(_run(agent, streamed=streamed))
    except OutputInvalid:
        return "right" if manner.end == "invalid" else "no value"
    except ProviderError as error:
        refused = error.code == "content_filter" and manner.end == "refused"
        return "right" if refused else f"provider error {error.code}"
    if manner.end != "value":
        return "wrong value"
    same = output == asked.value and type(output) is type(asked.value)
    return "right" if same else "wrong value"


async def _run(agent: Agent[Any, Any], *, streamed: bool) -> Any:
    if not streamed:
        return (await agent.run("go")).output
    last: Any = None
    async for item in agent.stream("go"):
        if isinstance(item, PartialOutput):
            last = item
    assert last.final
    return last.output


def _step(said: Said, mode: str) -> Step:
    if mode == "tool" and said.is_plain:
        return calls((OUTPUT_TOOL, said.text), stop=said.stop if said.stop != "end" else "calls")
    return says(said.text, stop=said.stop)
