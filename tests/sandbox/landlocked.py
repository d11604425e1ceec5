"""Runs a program under Landlock alone. As a program: `landlocked.py RECORD WORDS…`; RECORD is JSON.

`granted`: pairs of a path and words; further keys as of `landlock.Ruleset`. Says on standard error
which version was used. It gives up its capabilities first: with some of them a process sees others'
memory whatever Landlock says.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src" / "ferrule" / "sandbox"))

from inside.kernel import landlock
from inside.mediator import raw_calls

record = json.loads(sys.argv[1])
granted = [(path, tuple(words)) for path, words in record.pop("granted")]
raw_calls.keep_capabilities(0)
try:
    version = landlock.restrict(landlock.Ruleset(granted, **record))
except landlock.LandlockUnavailable as error:
    sys.exit(f"unavailable: {error}")
print(f"version {version}", file=sys.stderr, flush=True)
os.execvp(sys.argv[2], sys.argv[2:])
