from pydantic import BaseModel

from ferrule import Agent


class Place(BaseModel):
    city: str
    country: str


run = Agent("openai:gpt-5.2", output_type=Place).run_sync("Which city had the games of 2012?")
print(run.output)
print(run.usage)
