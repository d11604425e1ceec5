"""Define tools: their schemas, the catalog of a run, and how calls are retried and timed out.

This package knows nothing about models, files or people.

Packages: `search`.
Modules: `catalog`, `chunked_output`, `context`, `decorator`, `define`, `definition`,
`description_names`, `docstring`, `launch`, `names`, `number_ranges`, `outcome_probe`,
`pack_options`, `parameters`, `plain_types`, `pydantic_types`, `reliability`, `result_facts`,
`result_formatting`, `safe_patterns`, `toolset`, `word_stems`.
"""
