"""Tools and hooks from files: Markdown with a Starlark script in its front matter."""
