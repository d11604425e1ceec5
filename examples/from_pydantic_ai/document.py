from ferrule import Agent, Document

agent = Agent("anthropic:claude-sonnet-5")
run = agent.run_sync(["Sum this up in a line.", Document.from_path("document.pdf")])
print(run.text)
