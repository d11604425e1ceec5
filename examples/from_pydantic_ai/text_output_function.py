from ferrule import Agent


def split_words(text: str) -> list[str]:
    return text.split()


agent = Agent("openai:gpt-5.2", output_type=split_words)
print(agent.run_sync("Who was Ada Lovelace?").output)
