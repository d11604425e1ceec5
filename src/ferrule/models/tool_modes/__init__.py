"""Tool modes: how a model calls tools, and the fallback from one mode to the next.

    selection            opens a conversation, chooses its tool mode and falls back to the next one
    constrained          the `constrained` mode: replies forced by a JSON Schema
    text                 the `text` mode: calls are read out of the reply's text
    commands             the `commands` mode: commands in back-ticks
    reading_sinks        sinks that read calls out of a streamed reply
    plain_history        a history with tools as messages without tools
    reprompting          one more question where a native answer is of no use
    refused_tools        which tools a provider's refusal is about
    live_probe           a small request that finds out whether a model calls tools

The `native` mode, the provider's own tools field, is the model client itself. Only `selection` and
what it imports are loaded for it; the other modes are loaded when they are used.
"""
