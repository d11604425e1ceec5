"""Tools as files: Markdown with parameters and a Starlark script in its front matter.

Modules: `bundles`, `companions`, `definitions`, `handlers`, `parameters`, `python_tools`,
`registering`, `sources`, `tool_file`. What a script prints is handled in `handlers`.
"""
