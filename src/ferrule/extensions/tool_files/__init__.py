"""Tools as files: Markdown with parameters and a Starlark script in its front matter.

Modules: `bundles`, `internal_tools`, `definitions`, `handlers`, `parameters`, `python_tools`,
`make_registration_tools`, `loading`, `render_tool_file`. What a script prints is handled in `handlers`.
"""
