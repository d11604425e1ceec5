from pydantic import BaseModel

from ferrule import Agent


class Box(BaseModel):
    width: int
    height: int
    depth: int
    units: str


agent = Agent(
    "openai:gpt-5.2",
    output_type=[Box, str],
    instructions="Read the measures of the box; ask for what is missing.",
)
for text in ("A box of 10 by 20 by 30", "A box of 10 by 20 by 30 cm"):
    print(agent.run_sync(text).output)
