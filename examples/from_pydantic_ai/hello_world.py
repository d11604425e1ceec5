from ferrule import Agent

agent = Agent("openai:gpt-5.2", instructions="Answer in one short sentence.")
print(agent.run_sync("Who said `hello world` first?").text)
