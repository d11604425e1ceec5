"""Engines that hand jobs to workers: adapters of `engine.distributed.engines.Engine`.

One module each: `procrastinate` (the default, in the database of the journal).
"""
