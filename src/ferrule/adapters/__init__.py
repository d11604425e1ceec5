"""Tools in other frameworks: an agent's tools for their models, and their tools for our agents.

Each module knows one framework and is imported only when a program asks for it:

    pydantic_ai     a toolset for Pydantic AI; its tools and toolsets as ours
    langchain       tools for LangChain and LangGraph; LangChain's tools as ours
    openai_agents   function tools for the OpenAI Agents SDK
    openai          tools for a loop with OpenAI's SDK, chat completions or Responses
    anthropic       tools for a loop with Anthropic's SDK
    llm             the tools of plugins for `llm` as ours

Outward they have the same form: `async with guard(agent) as guarded` opens a session of the agent,
and `guarded.tools` is what the framework takes. No model of ours is asked.

Modules: `anthropic`, `converted_tools`, `framework_approvals`, `guard`, `guarded_session`,
`langchain`, `langgraph_interrupts`, `llm`, `openai`, `openai_agents`, `pydantic_ai`, `sdk_loops`.
"""
