"""Runs on many machines: submitted on one, worked on others, through a queue in PostgreSQL.

Needs the extra `scale`. Modules: `jobs` (what submits them), `job_queue` (the table), `cron`,
`worker`, `job_run` (from job to run), `draining`.
"""
