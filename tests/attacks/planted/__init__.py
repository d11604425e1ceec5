"""Planted workspaces: what a repository brings, or a command leaves, to be believed later.

`environments` and `repositories`: what would open a folder of the person's. `own_code`: what would
replace the programs that Ferrule itself runs from. `search_paths`: programs that would be found in
place of real ones. `trusted_settings`: what would loosen the settings of a trusted repository.
`later`: what the person's own git would run. `settings_elsewhere`: the same, by settings that a
link or a variable leads to. `believing`: finders that would believe the rows of the first two, for
their controls. `opened_parts`: folders that begin in the midst of a protected name.

Each row is its name, a script, and what it does to the code as it was before the boundary was built
(commit aa1e51f3): `FAILED`, it got through there, or `CONTROL`, it was held there too and must stay
so.
"""

from __future__ import annotations

from typing import Literal

Before = Literal["failed", "control"]
FAILED: Before = "failed"
CONTROL: Before = "control"

Row = tuple[str, str, Before]
"""Name, script, and what the row did to the code before."""
