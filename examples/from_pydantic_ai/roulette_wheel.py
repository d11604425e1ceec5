from ferrule import Agent, Context, tool


@tool(side_effect="none")
def spin(square: int, context: Context[int]) -> str:
    """Say whether a square of the wheel has won."""
    return "won" if square == context.deps else "lost"


agent = Agent(
    "openai:gpt-5.2",
    [spin],
    deps_type=int,
    output_type=bool,
    instructions="Let `spin` decide whether the guest has won.",
)
for bet in ("Eighteen, all of it", "I say five"):
    print(agent.run_sync(bet, deps=18).output)
