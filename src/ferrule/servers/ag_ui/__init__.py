"""Serve an agent to web pages and programs that speak AG-UI (Agent User Interaction), version 1.0.

Modules: `command`, `event_writer`, `inputs`, `interrupts`, `run_stream`, `server`, `threads`.
"""
