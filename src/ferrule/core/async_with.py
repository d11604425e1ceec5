"""What is closed at the end of an `async with` block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class ClosedByAsyncWith(ABC):
    """Something that is closed at the end of an `async with` block, however it ends."""

    @abstractmethod
    async def close(self) -> None:
        """Release what it holds."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
