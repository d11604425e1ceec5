"""Hot reload in the chat: before each line the folder is looked at, and a repository that changed
is shown and asked for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from ferrule.core.errors import ConfigError, FerruleError
from ferrule.runtime.hot_reload import Changed, Reloading
from ferrule.storage.trust import Trust

from .slash_commands import Chat

QUESTION = "trust it as it stands now? [y/N] "


class Fresh:
    """One chat's. `ask` puts a question to the person; EOFError is a no."""

    def __init__(
        self, chat: Chat, options: dict[str, Any], ask: Callable[[str], Awaitable[str]]
    ) -> None:
        self._chat = chat
        self._ask = ask
        self._reloading = Reloading(chat.assembly, options, interruptible=True)

    async def look(self) -> bool:
        """Bring the session up to date. False if what there was must not stay and nothing can take
        its place: then nothing may run.
        """
        say = self._chat.assembly.terminal.say
        try:
            changed = self._reloading.look()
            if changed is not None:
                if changed.asks:
                    await self._trusted(changed)
                await self._reloading.reload(self._chat.session)
        except FerruleError as error:
            hint = f"\nhint: {error.hint}" if error.hint else ""
            say(f"error: nothing was done: {error.detail}{hint}", style="red")
            return False
        return True

    async def _trusted(self, changed: Changed) -> None:
        """Ask, showing what is different; by digest, so that what was shown is what is trusted."""
        say, book = self._chat.assembly.terminal.say, Trust()
        say("! the configuration of this folder changed:", style="yellow")
        for change in book.diff(changed.seen.workspace):
            say(
                f"{change.what}: "
                f"{change.name}\n{change.diff or '  (no text to show: look at the file)'}"
            )
        try:
            answered = (await self._ask(QUESTION)).strip().lower()
        except EOFError:
            answered = ""
        if answered not in ("y", "yes"):
            say("not trusted; `ferrule trust` asks again", style="yellow")
            return
        try:
            book.trust(changed.seen.workspace, digest=changed.seen.digest)
        except ConfigError as error:
            say(f"! {error.detail}", style="yellow")
