from ferrule import Agent

agent = Agent("openai:gpt-5.2", instructions="Be kind.")
first = agent.run_sync("Make me laugh.")
print(first.text)
second = agent.run_sync("I do not get it.", history=first.messages)
print(second.text)
print(second.messages.to_json())
