"""Regular expressions that are compiled when they are first used: most processes never look for
what most of them find.
"""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast


def expression(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """What `re.compile` gives, for a module's own constants. One that cannot be compiled is found
    out at its first use.
    """
    return cast("re.Pattern[AnyStr]", _Uncompiled(text, flags))


class _Uncompiled:
    def __init__(self, text: Any, flags: int) -> None:
        self._given = text, flags

    def __getattr__(self, name: str) -> Any:
        text, flags = self._given
        value = getattr(re.compile(text, flags), name)
        # From now on it is found without coming here.
        self.__dict__[name] = value
        return value
