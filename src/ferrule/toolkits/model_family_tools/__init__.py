"""Shapes: the tools that families of models were trained on, each made of calls of our own tools.

    calls      calls of our own tools, and their refusals in the names that a model knows
    anthropic  `bash` and `str_replace_based_edit_tool`
    openai     `apply_patch`, `shell` and `local_shell` of the Responses API
    gemini     the names and parameters of Gemini CLI
    qwen       those of Qwen Code
    memory     the plugin and the tool `memory`: notes that a model keeps in a folder of their own
    found_files  files that are found by globs, for `gemini` and `qwen`
    plugin     the plugin `shapes`
    renamed_arguments  parameters of our own tools under the names that a family knows

A shape changes nothing itself, so gate, preview, hooks and record are those of the tool that it
calls. `memory` alone has no such tool: its files are in a workspace of their own.
"""
