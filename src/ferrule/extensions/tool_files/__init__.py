"""Tools as files: Markdown with parameters and a Starlark script in its front matter.

Modules: `bundles`, `internal_tools`, `handlers`, `parameters`, `python_tools`,
`registration_tools`, `loading`, `tool_file`. What a script prints is handled in `handlers`.
"""
