"""Tools as files: Markdown with parameters and a Starlark script in its front matter.

Modules: `bundles`, `companions`, `definitions`, `handlers`, `parameters`, `python_tools`,
`registering`, `script_output`, `sources`, `tool_file`.
"""
