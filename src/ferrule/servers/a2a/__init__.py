"""Serve an agent to other agents with the A2A protocol.

Modules: `command`, `conversations`, `server`, `signed_card`.
"""
