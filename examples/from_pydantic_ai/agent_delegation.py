from ferrule import Agent, Limits, tool

writer = Agent("openai:gpt-5.2", output_type=list[str])


@tool(side_effect="none")
async def write_jokes(count: int) -> list[str]:
    """Write so many jokes."""
    return (await writer.run(f"Write {count} jokes.")).output


chooser = Agent(
    "openai:gpt-5.2",
    [write_jokes],
    limits=Limits(max_turns=5, max_tokens=500),
    instructions="Have jokes written and give back the best one alone.",
)
run = chooser.run_sync("Make me laugh.")
print(run.text)
print(run.usage)
