"""Appends to many sessions in one statement: all of them are recorded, or none.

The statement moves the ends of sessions that this journal has, each under its token, opens new ones
with their end and their lease, and adds the events of all. If one session is not where it was
expected, the statement divides by zero, which undoes everything.

The planner takes any list for a hundred values, and reads a table of few pages as a whole: each
append would take longer for each session there is, until the table is analysed. Conditions that are
always true, each of which it takes to halve a list or more, let it look up each session by its
number.

Values travel as a few texts, which the driver sends as they are: converting arrays of values takes
a fifth of a run's time. The bodies are one JSON array, whose elements come out exactly as they were
written.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from . import hash_chain

OUTCOME_CHANNEL = "ferrule_outcomes"
"""Where the end of an awaited job is announced: by the MD5 of its run's id."""

APPEND_BATCHES = """
WITH given AS MATERIALIZED (
    SELECT * FROM ROWS FROM (
        unnest(%(nos)s::bigint[]), unnest(%(tokens)s::bigint[]),
        unnest(%(seqs_before)s::integer[]), unnest(%(hashes_before)s::bytea[]),
        unnest(%(seqs_after)s::integer[]), unnest(%(hashes_after)s::bytea[]),
        unnest(%(seals)s::bytea[]), unnest(%(ends)s::bigint[]),
        json_array_elements_text(%(sessions)s::json), json_array_elements_text(%(runs)s::json),
        json_array_elements_text(%(tenants)s::json), json_array_elements_text(%(users)s::json)
    ) WITH ORDINALITY AS given (no, token, seq_before, hash_before, seq_after, hash_after, seal,
        time, session, run, tenant, "user", place)
), moved AS (
    UPDATE {s}.sessions SET seq = seq_after, hash = hash_after, seal = given.seal,
        time = given.time, tenant = given.tenant, "user" = given."user",
        until = clock_timestamp() + %(seconds)s * interval '1 second'
    FROM given WHERE sessions.no = given.no AND sessions.token = given.token
        AND sessions.seq = seq_before AND sessions.hash = hash_before
        AND given.no > 0 AND given.token > 0 AND seq_after > 0 AND place > 0
    RETURNING place, sessions.no
), opened AS (
    INSERT INTO {s}.sessions (session, tenant, "user", seq, hash, seal, time, holder, until)
    SELECT session, tenant, "user", seq_after, hash_after, seal, time, %(holder)s,
        clock_timestamp() + %(seconds)s * interval '1 second'
    FROM given WHERE no = 0 ON CONFLICT DO NOTHING RETURNING session, no, token
), head AS (
    SELECT place, no FROM moved
    UNION ALL SELECT place, opened.no FROM opened JOIN given USING (session)
), added AS (
    INSERT INTO {s}.records (no, seq, time, run, kind, tenant, "user", body, hash)
    SELECT head.no, event.seq, event.time, run, kind, tenant, "user", body::text, event.hash
    FROM ROWS FROM (
        unnest(%(places)s::integer[]), unnest(%(seqs)s::integer[]), unnest(%(times)s::bigint[]),
        json_array_elements_text(%(kinds)s::json), json_array_elements(%(bodies)s::json),
        unnest(%(hashes)s::bytea[])
    ) AS event (place, seq, time, kind, body, hash)
    JOIN head USING (place) JOIN given USING (place)
    RETURNING 1
)
SELECT 1 / ((SELECT count(*) FROM added) = %(events)s)::integer,
    (SELECT json_object_agg(session, json_build_array(no, token)) FROM opened)
"""
"""Returns one row; its second value is an object `{session: [row, token]}` of opened sessions."""
_ENDED = """
WITH ended AS (
    UPDATE {s}.outcomes SET stop = given.stop, outcome = given.outcome,
        ended = clock_timestamp()
    FROM ROWS FROM (
        json_array_elements_text(%(ended)s::json), json_array_elements_text(%(stops)s::json),
        json_array_elements(%(outcomes)s::json)
    ) AS given (run, stop, outcome)
    WHERE outcomes.run = given.run AND ended IS NULL
    RETURNING outcomes.run, awaited
), """
_TOLD = f", (SELECT count(pg_notify('{OUTCOME_CHANNEL}', md5(run))) FROM ended WHERE awaited)\n"
APPEND_ENDS = APPEND_BATCHES.rstrip().replace("\nWITH ", _ENDED, 1) + _TOLD
"""The same, and outcomes of jobs (`engine.distributed.outcomes`) whose runs end with it."""


class BatchEntry(NamedTuple):
    """The part of a batch for one session.

    `row` is 0 for a session that is opened; `rows` are those of `EventChain.extend`.
    """

    session: str
    run: str
    owner: tuple[str, str]
    row: int
    token: int
    before: tuple[int, bytes]
    after: tuple[int, bytes]
    rows: list[tuple[Any, ...]]


def build_values(entries: Sequence[BatchEntry]) -> dict[str, object]:
    """Return the values of `APPEND_BATCHES`, but for `holder` and `seconds`."""
    rows = [row for entry in entries for row in entry.rows]
    places = [place for place, entry in enumerate(entries, 1) for _ in entry.rows]
    return {
        "events": len(rows),
        "nos": _numbers(entry.row for entry in entries),
        "tokens": _numbers(entry.token for entry in entries),
        "seqs_before": _numbers(entry.before[0] for entry in entries),
        "hashes_before": _hashes(entry.before[1] for entry in entries),
        "seqs_after": _numbers(entry.after[0] for entry in entries),
        "hashes_after": _hashes(entry.after[1] for entry in entries),
        "seals": _hashes(hash_chain.seal(entry.after[1]) for entry in entries),
        "ends": _numbers(entry.rows[-1][1] for entry in entries),
        "sessions": _texts(entry.session for entry in entries),
        "runs": _texts(entry.run for entry in entries),
        "tenants": _texts(entry.owner[0] for entry in entries),
        "users": _texts(entry.owner[1] for entry in entries),
        "places": _numbers(places),
        "seqs": _numbers(row[0] for row in rows),
        "times": _numbers(row[1] for row in rows),
        "kinds": _texts(row[3] for row in rows),
        "bodies": f"[{','.join([row[4] for row in rows])}]",
        "hashes": _hashes(row[5] for row in rows),
    }


def build_outcome_values(outcomes: Mapping[str, Mapping[str, Any]]) -> dict[str, object]:
    """Return the values of `APPEND_ENDS` that `APPEND_BATCHES` lacks."""
    return {
        "ended": json.dumps(list(outcomes)),
        "stops": json.dumps([outcome["stop"] for outcome in outcomes.values()]),
        "outcomes": json.dumps(list(outcomes.values())),
    }


def _numbers(values: Iterable[int]) -> str:
    return "{" + ",".join(map(str, values)) + "}"


def _hashes(values: Iterable[bytes]) -> str:
    # A backslash within an array's text is written twice.
    return "{" + ",".join(['"\\\\x' + value.hex() + '"' for value in values]) + "}"


def _texts(values: Iterable[str]) -> str:
    return json.dumps(list(values), ensure_ascii=False)
