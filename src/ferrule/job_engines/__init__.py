"""Engines that hand jobs to workers: adapters of `engine.distributed.engines.Engine`.

One module each: `procrastinate` (the default) and `pgqueuer`, both in the database of the journal,
and `temporal`, on a server of its own. `blocking` runs what their libraries have in `asyncio` only.
"""
