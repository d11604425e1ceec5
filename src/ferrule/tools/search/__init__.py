"""Find a tool among many: the index and the strategies that rank its tools, without I/O.

Modules: `bm25`, `document`, `embeddings`, `field_weights`, `index`, `inverted_index`,
`options`, `query`, `ranking`, `synonyms`, `vocabulary`.
"""
