from ferrule import Agent

agent: Agent[None, list[str] | list[int]] = Agent(
    "openai:gpt-5.2",
    output_type=list[str] | list[int],
    instructions="List the colours of the shapes, or their sizes.",
)
for text in ("a red square and a blue circle", "a square of 10 and a circle of 20"):
    print(agent.run_sync(text).output)
