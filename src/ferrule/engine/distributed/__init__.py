"""Runs on many machines: submitted on one, worked on others, through queues in PostgreSQL.

Needs the extra `scale`. Modules: `jobs` (the queue), `worker`, `job_run` (from job to run),
`heartbeats`, `draining`.
"""
