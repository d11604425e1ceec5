"""Manifests of plugins: what is known of a plugin before anything of it is imported.

`shipped.toml` describes the plugins that ship; `manifests` reads it. `installed` finds those of
other distributions, `metadata_index` which of these have any. `manifest_keys` has the keys of a
manifest and checks them. `added_providers` are the providers of models among what they bring.
"""
