"""Engines that hand jobs to workers: adapters of `engine.distributed.engines.Engine`.

One module each: `procrastinate` (the default) and `pgqueuer`, both in the database of the journal,
and `temporal` and `restate`, on servers of their own. `coroutines` has what runs beside their
libraries, `database` the tables and connections of those in the database.
"""
