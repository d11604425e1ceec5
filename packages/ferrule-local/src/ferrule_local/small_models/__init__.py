"""Help for models too small to plan: their calls, one step at a time.

A plug-in: nothing imports this package. The row of a provider in `models.registry` names
`exchange.open_small_model_exchange` in place of a tool mode.

    exchange           a conversation with a small model: the `Exchange` that takes these steps
    call_finding       the calls that a message asks for
    tool_ranking       the tools of a conversation, ranked for each request by `tool_choice`
    action_check       whether a request asks for a change; its words are in `actions.yaml`
    raw_model          what the help needs of a model client
    request            a person's request, cut into pieces, and which of them are taken
    slots              parameters, and what their schemas say of what may fill them
    abstention         whether any tool is called for, and how many requests a message makes
    argument_filling   fills the arguments of a chosen tool, slot by slot
    written_arguments  arguments that a model writes which was taught to, beside those of the rules
    call_format        the text that such a model continues, and its grammar
    repeated_calls     whether a request asks for one call several times, with other values
    candidates         which values of a request may fill a slot that is for no text
    value_ranking      which pieces of a request fill the slots for texts, by fitted weights
    evidence           what the description of a slot says of its values

Kinds of pieces: `spans`, `numbers`, `units`, `dates`, `lists`.
"""
