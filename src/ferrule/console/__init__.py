"""The web console: watch runs, answer their questions and inspect results in a browser.

Packages: `pages`.

Modules: `app`, `artifact_views`, `assemblies`, `call_cards`, `charts`, `command`, `entries`,
`html`, `invisible_marks`, `jobs_page`, `markdown`, `message_search`, `navigation`, `open_sessions`,
`plugin_pages`, `questions`, `run_chart`, `schema_form`, `setup`, `state`, `statistics`, `stream`,
`timeline`, `timeline_cache`, `tool_trials`, `typed_output`, `uploads`, `users`, `viewer`.
"""
