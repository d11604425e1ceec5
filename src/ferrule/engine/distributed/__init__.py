"""Runs on many machines: handed in on one, worked on others, through queues in PostgreSQL (extra
`scale`).

Modules: `draining`, `heartbeats`, `job_run`, `jobs`, `worker`.
"""
