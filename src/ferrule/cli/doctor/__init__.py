"""`ferrule doctor`: report what this machine supports, what is missing and what is not protected.

Modules: `attack`, `command`, `container`, `findings`, `model_report`, `sandbox_report`.
"""
