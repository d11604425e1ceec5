"""Runs on many machines: submitted on one, handed out by an engine, worked on others.

Needs the extra `scale`. Modules: `job`, `jobs` (what submits them), `outcomes` (the table),
`schedules`, `engines` (what hands jobs to workers), `handing_in` (what tells the engine of jobs),
`worker`, `figures` (metrics), `runner` (what an engine calls), `job_run` (from job to run).
"""
