"""The outline of a workspace: its most used definitions, as text."""

from __future__ import annotations

from collections.abc import Callable

from ferrule.toolkits.search.rows import make_printable

from .index import CodeIndex
from .ranking import WEAK, choose, measure_name, rank
from .store import Found

_CANDIDATE_FILES = 400
_HIDDEN_KINDS = frozenset({"impl", "declaration"})


def make_outline(index: CodeIndex, allows: Callable[[str], bool], tokens: int) -> str:
    """Return the most used definitions in the files that are allowed. Blocks.

    What may not be read has no part in the ranking either.
    """
    store = index.store
    known = {file.id: file for path, file in store.files().items() if allows(path)}
    if not known:
        return "no source files are in the index here"
    files = {number: file.path for number, file in known.items()}
    ranking = rank(
        {number: (file.path, file.language) for number, file in known.items()}, index.links()
    )
    best: dict[int, float] = {}
    for (file, _), value in ranking.names.items():
        best[file] = max(best.get(file, 0.0), value)
    # Each token shows at most one definition, so a few hundred files are enough.
    order = sorted(
        files, key=lambda file: (-best.get(file, 0.0), -ranking.files[file], files[file])
    )
    found = [
        one
        for one in store.definitions_of(order[:_CANDIDATE_FILES])
        if one.definition.kind not in _HIDDEN_KINDS and not _is_vague(one)
    ]
    rows: list[str] = [f"the most used definitions of {len(files)} source files:"]
    shown: list[Found] = choose(found, ranking, tokens - 20)
    path = ""
    for one in shown:
        if one.path != path:
            path = one.path
            rows += ["", make_printable(path)]
        depth = "  " if one.definition.container else ""
        rows.append(f"{one.definition.line}: {depth}{make_printable(one.definition.head)}")
    return "\n".join(rows)


def _is_vague(one: Found) -> bool:
    """Whether this is a member whose name is also that of many variables, like `value`."""
    definition = one.definition
    return bool(definition.container) and measure_name(definition.name) <= WEAK
