"""A run, event by event: what a terminal or a web page would draw. `--model ollama:llama3.2` asks a
real model.
"""

import argparse
import asyncio

from ferrule import Agent, Context, Progress, Scripted, TextDelta, tool
from ferrule.events import CallEvaluated, ModelAnswered, RunFinished, ToolAnswered
from ferrule.testing import calls, says


@tool(side_effect="none")
def count(to: int, context: Context) -> int:
    """Count from 1 up to a number."""
    context.progress(f"counting to {to}")
    return len(range(to))


async def main(model: str | None) -> None:
    agent = Agent(
        model or Scripted([calls(("count", {"to": 3})), says("I counted to three.")]), [count]
    )
    async for item in agent.stream("Count to 3."):
        match item:
            case TextDelta(text):
                print(text, end="", flush=True)
            case Progress(text=text):
                print(f"         {text}")
            case ModelAnswered(calls=made):
                print("".join(f"call     {call.tool} {call.arguments}\n" for call in made), end="")
            case CallEvaluated(verdict=verdict, reason=reason):
                print(f"gate     {verdict}: {reason}")
            case ToolAnswered(result):
                print(f"result   {result.to_text()}")
            case RunFinished(stop=stop):
                print(f"\nfinished {stop}")
            case _:
                pass


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model", help="such as ollama:llama3.2; without it, a script plays the model")
asyncio.run(main(parser.parse_args().model))
