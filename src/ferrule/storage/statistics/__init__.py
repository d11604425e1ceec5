"""Numbers about past runs, read from their events: tokens, money, time and tools.

`finished_calls` reads how calls ended, `tools` and `spending` add up, `incremental` keeps both up
to date for a journal, `owner_spending` has what users and tenants used for their limits, `activity`
has how long runs took, and `timeline` shows a single run.
"""
