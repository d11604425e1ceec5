"""Runs on many machines: handed in on one, worked on others, through durable queues in PostgreSQL (extra `scale`)."""
