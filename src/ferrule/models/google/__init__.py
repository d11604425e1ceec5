"""Google's Gemini models (`generateContent`), over the Gemini API and over Vertex AI.

Modules: `addresses`, `answers`, `client`, `files`, `schemas`.
"""
