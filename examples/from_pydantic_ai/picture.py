from ferrule import Agent, Image

agent = Agent("openai:gpt-5.2")
run = agent.run_sync(["Whose logo is this?", Image.from_path("logo.png")])
print(run.text)
