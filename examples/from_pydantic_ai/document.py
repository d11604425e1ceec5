from ferrule import Agent, Document

agent = Agent("openai:gpt-5.2")
run = agent.run_sync(["Sum this up in a line.", Document.from_path("document.pdf")])
print(run.text)
