"""Regular expressions that are compiled on first use, since most processes use few of them."""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast


def compile_lazily(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return a pattern like `re.compile`, for module constants.

    An invalid expression raises `re.error` on first use instead of here.
    """
    return cast("re.Pattern[AnyStr]", _LazyPattern(text, flags))


class _LazyPattern:
    def __init__(self, text: Any, flags: int) -> None:
        self._text = text
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        value = getattr(re.compile(self._text, self._flags), name)
        # The next access finds the attribute without calling this method.
        self.__dict__[name] = value
        return value
