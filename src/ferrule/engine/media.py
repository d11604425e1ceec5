"""Media of a session: taken in, kept as artifacts, and read again for the model.

Whatever comes in (a person's message, what a tool returned) is checked by its content
(`tools.media_types`), stored once under its hash, and is a reference from then on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from ferrule.core.errors import ConfigError, FerruleError, ProviderError, ToolFailed
from ferrule.core.identity import Identity
from ferrule.core.media import Content, Media, MediaReference, load_media
from ferrule.core.messages import AssistantMessage, Message
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.permissions.protected_names import DEFAULT_NAMES
from ferrule.storage.artifacts.store import ArtifactStore, Scope
from ferrule.tools.media_types import MAX_BYTES, MediaInvalid, detect_type

from .result_bounds import jsonable
from .threads import run_blocking


class SessionMedia:
    """The media of one session.

    Args:
        store: Where the bytes are kept.
        identity: Whose they are.
        workspace: Where paths are opened; without one, anywhere but at protected names.
    """

    def __init__(
        self, store: ArtifactStore, identity: Identity, workspace: Workspace | None
    ) -> None:
        self.store = store
        self._scope = Scope.from_identity(identity)
        self._workspace = workspace
        self._history: Sequence[Message] = ()
        self._loaded: list[Message] = []

    async def take_message(self, content: Content) -> tuple[str, tuple[MediaReference, ...]]:
        """Return a message's text and the references of its media, which are kept from now on.

        Raises:
            MediaInvalid: A medium cannot be given to a model.
            ConfigError: The content is neither text nor a list of texts and media.
        """
        if isinstance(content, Media):
            content = [content]
        return await run_blocking(lambda: self._take_message(content))

    def _take_message(self, content: Content) -> tuple[str, tuple[MediaReference, ...]]:
        text = ""
        media: list[MediaReference] = []
        for place, part in enumerate(content, 1):
            if isinstance(part, str):
                text += f"\n{part}" if text else part
            elif isinstance(part, Media):  # pyright: ignore[reportUnnecessaryIsInstance]  given by a program
                media.append(replace(self._keep(part), at=len(text)))
            else:
                raise ConfigError(
                    f"message: part {place} is {type(part).__name__}",
                    hint="a message is text, or a list of texts, `Image`, `Audio` and `Document`",
                )
        return text, tuple(media)

    async def take_result(self, value: Any) -> tuple[Any, tuple[MediaReference, ...]]:
        """Return what a tool returned as text with captions, and the references of its media.

        Raises MediaInvalid.
        """
        return await run_blocking(lambda: self._take_result(value))

    def _take_result(self, value: Any) -> tuple[Any, tuple[MediaReference, ...]]:
        parts = [value] if isinstance(value, Media) else cast("Sequence[Any]", value)
        media: list[MediaReference] = []
        shown: list[str] = []
        for part in parts:
            if isinstance(part, Media):
                media.append(self._keep(part))
                shown.append(media[-1].describe())
            else:
                shown.append(part if isinstance(part, str) else str(jsonable(part)))
        text = "\n".join(shown)
        return text, tuple([replace(one, at=len(text)) for one in media])

    def _keep(self, part: Media) -> MediaReference:
        kind = part.media_kind or "attachment"
        label = f"the {kind} `{part.name}`" if part.name else f"the {kind}"
        data = self._read(part, label)
        found = detect_type(data, label)
        if part.media_kind not in (None, found.media_kind):
            raise MediaInvalid(
                f"{label} is no {part.media_kind}: its content is {found.mime}",
                hint=f"give it as `{found.media_kind.capitalize()}`"
                if found.mime != "image/svg+xml"
                else "models take no SVG as a picture: convert it to PNG",
            )
        artifact = self.store.put(self._scope, (data,), mime=found.mime)
        return MediaReference(
            found.media_kind,
            found.mime,
            artifact.sha256,
            len(data),
            0,
            part.name,
            found.width,
            found.height,
        )

    def _read(self, part: Media, label: str) -> bytes:
        if part.data is not None:
            return part.data
        if part.artifact:
            artifact = self.store.find(self._scope, part.artifact)
            return self.store.read(self._scope, part.artifact, 0, artifact.size)
        if self._workspace is not None:
            try:
                return self._workspace.read(part.path, limit=MAX_BYTES)
            except ToolFailed as error:
                raise MediaInvalid(f"{label} cannot be read: {error.message}") from error
        path = Path(part.path)
        refusal = DEFAULT_NAMES.check(path.name, write=False)
        resolved_refusal = DEFAULT_NAMES.check(path.resolve().name, write=False)
        if refusal or resolved_refusal:
            raise MediaInvalid(f"{label} is not read: {refusal or resolved_refusal}")
        try:
            with path.open("rb") as file:
                return file.read(MAX_BYTES + 1)
        except OSError as error:
            raise MediaInvalid(f"{label} cannot be read: {error.strerror}") from error

    # ---- for the model

    def load_history(self, history: Sequence[Message]) -> Sequence[Message]:
        """Return the history with media whose bytes can be read.

        A message that was returned before is the same object again.
        """
        if history is not self._history:
            self._history = history
            self._loaded = []
        for message in history[len(self._loaded) :]:
            if not isinstance(message, AssistantMessage) and message.media:
                message = replace(
                    message, media=tuple([load_media(one, self.read) for one in message.media])
                )
            self._loaded.append(message)
        return self._loaded

    def read(self, one: MediaReference) -> bytes:
        """Return the bytes of a medium. Raises ProviderError if they are gone or were changed."""
        try:
            data = self.store.read(self._scope, one.reference, 0, one.size)
        except FerruleError as error:
            raise _missing_error(one, str(error)) from error
        if hashlib.sha256(data).hexdigest() != one.sha256:
            raise _missing_error(one, "its bytes were changed")
        return data

    def copy_from(self, one: MediaReference, read: Callable[[MediaReference], bytes]) -> None:
        """Keep a medium of an earlier conversation. Raises ConfigError if it is another one."""
        data = read(one)
        if hashlib.sha256(data).hexdigest() != one.sha256:
            raise ConfigError(f"history: the bytes of {one.describe()} are not those of its hash")
        self.store.put(self._scope, (data,), mime=one.mime)


def _missing_error(one: MediaReference, why: str) -> ProviderError:
    return ProviderError(
        f"{one.describe()} cannot be sent: {why}",
        code="media_missing",
        hint="artifacts expire: give it again",
    )
