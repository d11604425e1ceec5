"""A strong model's hands: what it can do with the tools of an agent, and what that costs.

Modules:
    model_server   a scripted model on loopback, in three protocols
    tasks          twelve tasks with what a strong model calls to do them (`tasks/*.yaml`)
    model_habits   how families of models write these calls
    editor         an editor's half of ACP, which counts questions
    __main__       works the tasks through Ferrule and prints a table
    rival_agents   other agents: how each is started, and its names of tools
    measurements   one kind of work by each agent, as a table beside Ferrule
"""
