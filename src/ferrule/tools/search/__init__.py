"""Find a tool among many: an index of tools and the strategies that rank them, without I/O.

Modules: `bm25`, `document`, `embeddings`, `field_weights`, `index`, `inverted_index`,
`options`, `query`, `ranking`, `synonyms`, `vocabulary`.
"""
