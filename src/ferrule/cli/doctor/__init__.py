"""`ferrule doctor`: what this machine can do, what is missing, and what is not protected.

Modules: `command`, `findings`, `sandbox_report`.
"""
