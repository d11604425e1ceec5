"""Hot reload in the chat.

Before each line the folder is checked for changes. If a trusted repository's configuration changed,
the difference is shown and the person is asked whether to trust it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from ferrule.core.errors import ConfigError, FerruleError
from ferrule.runtime.hot_reload import ConfigurationChange, HotReloader
from ferrule.storage.trust import TrustStore

from .chat_state import Chat

QUESTION = "trust it as it is now? [y/N] "


class ChatReloader:
    """Reloads the configuration of one chat when files changed.

    Args:
        chat: The chat.
        options: The options that its assembly was made from.
        ask: Asks the person a question and returns what they type; EOFError means no.
    """

    def __init__(
        self, chat: Chat, options: dict[str, Any], ask: Callable[[str], Awaitable[str]]
    ) -> None:
        self._chat = chat
        self._ask = ask
        self._reloading = HotReloader(chat.assembly, options, interruptible=True)

    async def reload_changes(self) -> bool:
        """Reload what changed.

        Returns:
            False if trust was lost and the reload failed: then nothing may run.
        """
        say = self._chat.assembly.terminal.write_message
        try:
            changed = self._reloading.find_changes()
            if changed is not None:
                if changed.needs_trust:
                    await self._ask_for_trust(changed)
                await self._reloading.reload(self._chat.session)
        except FerruleError as error:
            hint = f"\nhint: {error.hint}" if error.hint else ""
            say(f"error: nothing was done: {error.detail}{hint}", style="red")
            return False
        return True

    async def _ask_for_trust(self, changed: ConfigurationChange) -> None:
        """Show what changed and ask. Trust is by digest: only what was shown becomes trusted."""
        say = self._chat.assembly.terminal.write_message
        trust = TrustStore()
        say("! the configuration of this folder changed:", style="yellow")
        for change in trust.diff(changed.repository.workspace):
            difference = change.diff or "  (not text: look at the file)"
            say(f"{change.what}: {change.name}\n{difference}")
        try:
            answer = (await self._ask(QUESTION)).strip().lower()
        except EOFError:
            answer = ""
        if answer not in ("y", "yes"):
            say("not trusted; run `ferrule trust` to be asked again", style="yellow")
            return
        try:
            trust.trust(changed.repository.workspace, digest=changed.repository.digest)
        except ConfigError as error:
            say(f"! {error.detail}", style="yellow")
