"""Records for the eyes of others: as they are in the journal, without the secrets in them.

Their hashes stay those of the journal. So an export of them cannot be verified or imported (its
events were changed, and say so), but whoever has the journal can show that each is the event with
that hash.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from ferrule.core.calls import compact
from ferrule.core.events import Record, Unknown, decode, encode
from ferrule.permissions.redaction import Redactor

FAILED = "audit.redaction_failed"
"""The kind of what stands in the place of an event that could not be redacted; `of` is its own
kind.
"""


def redacted(records: Iterable[Record], redactor: Redactor) -> Iterator[Record]:
    """The records with redacted events. Where that fails, an event without the payload stands in
    its place.
    """
    for record in records:
        kind, body = encode(record.event)
        try:
            text = redactor.body(record.body or compact(body))
            event = decode(kind, json.loads(text))
        except Exception as error:  # noqa: BLE001  boundary: what could not be redacted is not shown, nor what an error says of it
            event = Unknown(FAILED, {"of": kind, "error": type(error).__name__})
            text = compact(event.body)
        yield record._replace(event=event, body=text)
