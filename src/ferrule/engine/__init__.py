"""One driver carries out what the machine says; one dispatcher is the only way to a tool.

Packages: `artifacts`, `context`, `delegation`, `distributed`, `event_bus`, `hooks`,
`output`, `plugins`, `registration`, `replay`, `rewind`, `telemetry`, `tool_search`,
`travelling_files`, `web`.

Modules:
    agent, agent_options, agent_parts   what stays the same over many sessions, and its options;
                                        what the model is told first
    visible_tools                       an agent's tools as a model sees them
    model_layers                        the layers around the model, in their order
    model_fallbacks                     other models, for when one fails or costs too much
    session, session_builder            the facade that interfaces see, and how it is made
    agent_reload                        lets a session go on with another agent
    driver                              carries out the machine's commands; extensions
    dispatcher                          the one pipeline of every call
    timeouts_and_retries                applied to each call, exactly once
    stopping                            stops, which stay requested whatever swallowed them
    approval_requests                   the question to a person, and its answer
    running_calls                       calls under way, and calls that no model made
    served_tools                        what programs outside may call
    background, threads                 tasks that outlast their call, and blocking functions
    closed_by_with                      `with` blocks, and callers without an event loop
    recovery, cleanup                   what a crash left open, and what a session's end closes
    session_log, write_batching         events into the journal, of several sessions at once
    session_media                       pictures and the like: taken in, scaled, kept, read again
    message_history, run_inputs         earlier messages; dependencies, and what functions say
    keyed_runs, batches                 runs that are worked once for a key; many of them
    live_events                         what observers see
    usable_tools                        which tools a run may use
    unknown_options                     what was meant by options that there are not
    type_variables                      what agents, sessions and results are generic in
    budgets, result_bounds              tokens, money and calls; sizes of results
    owner_budgets                       what users and tenants may use of models
    rule_names, clock                   rules that name no tool; the time
"""
