"""Help for models too small to plan: one step at a time, a tool is chosen and its arguments filled.

A plug-in: nothing imports this package. The row of a provider in `models.registry` names
`exchange.open_small_model_exchange` in place of a tool mode.

    exchange           a conversation with a small model: the `Exchange` that takes these steps
    tool_choice        which tool a request is for
    abstention         whether any tool is called for, and how many requests a message makes
    action_check       whether a request asks for a change; its words are in `actions.yaml`
    argument_filling   fills the arguments of a chosen tool, slot by slot
    repeated_calls     whether a request asks for one call several times, with other values
    slots              parameters, and what their schemas say of what may fill them
    request            a person's request, cut into pieces, and which of them are taken
    candidates         which values of a request may fill a slot that is for no text
    value_ranking      which pieces of a request fill the slots for texts, by fitted weights
    evidence           what the description of a slot says of its values
    whole_sentences    ends an answer that ran into its limit behind its last whole sentence

Kinds of pieces: `spans`, `numbers`, `units`, `dates`, `lists`.
"""
