"""The web console: watch runs, answer their questions and inspect results in a browser.

Packages: `pages`.

Modules: `app`, `artifact_views`, `assemblies`, `call_cards`, `charts`, `command`, `entries`,
`html`, `navigation`, `questions`, `run_chart`, `schema_form`, `open_sessions`, `setup`, `state`,
`statistics`, `stream`, `timeline`, `timeline_cache`, `tool_trials`, `users`, `viewer`.
"""
