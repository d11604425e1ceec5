"""Records to be shown to others: as in the journal, without the secrets in them.

Their hashes stay those of the journal. An export of them therefore cannot be verified or imported
(its events were changed, and say so), but whoever has the journal can show that each is the event
with that hash.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from ferrule.core.calls import encode_json
from ferrule.core.events import JournalRecord, Unknown, event_from_json, event_to_json
from ferrule.permissions.redaction import Redactor

REDACTION_FAILED = "audit.redaction_failed"
"""The kind of events that replace those that could not be redacted; `of` is the original kind."""


def redact_records(records: Iterable[JournalRecord], redactor: Redactor) -> Iterator[JournalRecord]:
    """Yield the records with redacted events.

    An event that cannot be redacted is replaced by one without its payload.
    """
    for record in records:
        kind, body = event_to_json(record.event)
        try:
            text = redactor.redact_json(record.body or encode_json(body))
            event = event_from_json(kind, json.loads(text))
        except Exception as error:  # noqa: BLE001  boundary: neither the event nor the error, which may quote it, is shown
            event = Unknown(REDACTION_FAILED, {"of": kind, "error": type(error).__name__})
            text = encode_json(event.body)
        yield record._replace(event=event, body=text)
