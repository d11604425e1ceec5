"""The type variables of agents, sessions and results: `Agent[Deps, Output]`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    OutputT = TypeVar("OutputT", default=str, covariant=True)
    DepsT = TypeVar("DepsT", default=None)
else:
    # The defaults are for type checkers; at run time they would need a library.
    from typing import TypeVar

    OutputT = TypeVar("OutputT", covariant=True)
    DepsT = TypeVar("DepsT")
