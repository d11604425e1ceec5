"""Media of a session: taken in, kept as artifacts, and read again for the model.

Whatever comes in (a person's message, what a tool returned) is checked by its content
(`tools.media_types`), stored once under its hash, and is a reference from then on. What is at a URL
is fetched first (`engine.web`), once.

Pictures are scaled down where somebody asked for it (`pip install 'ferrule[pictures]'`). One that
turns out to be of another type, or whose pixels would fill the memory, is refused before it is
decoded. Pillow decodes in this process: whoever switches this on trusts its decoders with the
pictures.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from ferrule.core.calls import ToolResult, encode_json
from ferrule.core.errors import ConfigError, FerruleError, ProviderError, ToolFailed
from ferrule.core.identity import Identity
from ferrule.core.media import Content, Media, MediaOptions, MediaReference, load_media
from ferrule.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from ferrule.models.client import Capabilities
from ferrule.permissions.filesystem.workspace import READ_LIMIT, Workspace
from ferrule.permissions.protected_names import DEFAULT_NAMES
from ferrule.storage.artifacts.store import ArtifactStore, Scope
from ferrule.tools.context import Context
from ferrule.tools.json_conversion import to_json_value
from ferrule.tools.media_types import MAX_BYTES, MediaInvalid, MediaType, detect_type

from .threads import run_blocking

FETCH_SECONDS = 60.0
"""Time for what is at one URL."""
_OCR_TOOL = "vision::ocr"

CallTool = Callable[[str, dict[str, Any]], Awaitable[ToolResult]]
"""Calls a tool by its name with arguments, through the gate."""


class SessionMedia:
    """The media of one session.

    Args:
        store: Where the bytes are kept.
        identity: Whose they are.
        workspace: Where paths are opened; without one, anywhere but at protected names.
        options: How they are taken in.
        capabilities: Asks what the session's model can do.
    """

    def __init__(
        self,
        store: ArtifactStore,
        identity: Identity,
        workspace: Workspace | None,
        options: MediaOptions | None = None,
        capabilities: Callable[[], Awaitable[Capabilities]] | None = None,
    ) -> None:
        self.store = store
        self.options = options or MediaOptions()
        self._scope = Scope.from_identity(identity)
        self._workspace = workspace
        self._capabilities = capabilities
        self._texts: dict[str, str] = {}
        self._history: Sequence[Message] = ()
        self._loaded: list[Message] = []

    async def take_message(self, content: Content) -> tuple[str, tuple[MediaReference, ...]]:
        """Return a message's text and the references of its media, which are kept from now on.

        Raises:
            MediaInvalid: A medium cannot be given to a model.
            ConfigError: The content is neither text nor a list of texts and media.
        """
        parts: Sequence[Any] = [content] if isinstance(content, Media) else content
        parts = await self._fetch(parts)
        return await run_blocking(lambda: self._take_message(parts))

    async def _fetch(self, parts: Sequence[Any]) -> Sequence[Any]:
        """Return the parts of a message or a result, with bytes in place of addresses."""
        if not any(isinstance(part, Media) and part.url for part in parts):
            return parts
        fetched: list[Any] = []
        for part in parts:
            if isinstance(part, Media) and part.url:
                fetched.append(await self._fetch_one(part))
            else:
                fetched.append(part)
        return fetched

    async def _fetch_one(self, part: Media) -> Media:
        # Imported here: most sessions fetch nothing.
        from .web.domains import AllowedDomains
        from .web.fetch import WebClient

        client = WebClient(AllowedDomains.parse(self.options.domains))
        try:
            data = await client.download(part.url, MAX_BYTES, FETCH_SECONDS)
        except ToolFailed as error:
            raise MediaInvalid(f"{_label(part)} cannot be fetched: {error.message}") from error
        return part.with_data(data)

    def _take_message(self, content: Sequence[Any]) -> tuple[str, tuple[MediaReference, ...]]:
        text = ""
        media: list[MediaReference] = []
        for place, part in enumerate(content, 1):
            if isinstance(part, str):
                text += f"\n{part}" if text else part
            elif isinstance(part, Media):
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
        parts: Sequence[Any] = [value] if isinstance(value, Media) else value
        parts = await self._fetch(parts)
        return await run_blocking(lambda: self._take_result(parts))

    def _take_result(self, parts: Sequence[Any]) -> tuple[Any, tuple[MediaReference, ...]]:
        media: list[MediaReference] = []
        shown: list[str] = []
        for part in parts:
            if isinstance(part, Media):
                media.append(self._keep(part))
                shown.append(media[-1].describe())
            else:
                shown.append(part if isinstance(part, str) else encode_json(to_json_value(part)))
        text = "\n".join(shown)
        return text, tuple([replace(one, at=len(text)) for one in media])

    def _keep(self, part: Media) -> MediaReference:
        label = _label(part)
        data = self._read(part, label)
        found = detect_type(data, label)
        if part.media_kind not in (None, found.media_kind):
            raise MediaInvalid(
                f"{label} is no {part.media_kind}: its content is {found.mime}",
                hint=f"give it as `{found.media_kind.capitalize()}`"
                if found.mime != "image/svg+xml"
                else "models take no SVG as a picture: convert it to PNG",
            )
        max_side = part.max_side or self.options.max_side
        if max_side and max(found.width, found.height) > max_side:
            data = scale_picture(data, found, max_side, label)
            found = detect_type(data, label)
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
            return self.read_artifact(part.artifact)
        if self._workspace is not None:
            try:
                return self._workspace.read(part.path, limit=MAX_BYTES)
            except ToolFailed as error:
                raise MediaInvalid(f"{label} cannot be read: {error.message}") from error
        path = Path(part.path)
        refusal = DEFAULT_NAMES.check(path.name, write=False)
        resolved_refusal = DEFAULT_NAMES.check(Path(os.path.realpath(path)).name, write=False)
        if refusal or resolved_refusal:
            raise MediaInvalid(f"{label} is not read: {refusal or resolved_refusal}")
        try:
            with path.open("rb") as file:
                return file.read(MAX_BYTES + 1)
        except OSError as error:
            raise MediaInvalid(f"{label} cannot be read: {error.strerror}") from error

    # ---- for the model

    async def read_pictures(
        self,
        history: Sequence[Message],
        call: Callable[[str, dict[str, Any]], Awaitable[ToolResult]],
    ) -> None:
        """Have the text read in pictures that the model cannot see (`MediaOptions.ocr`).

        Args:
            history: The messages that are about to be sent.
            call: Calls a tool, through the gate.

        Raises:
            ProviderError: A picture cannot be read.
        """
        if not self.options.ocr or self._capabilities is None:
            return
        if (await self._capabilities()).vision is not False:
            return
        for message in history:
            if isinstance(message, AssistantMessage):
                continue
            for one in message.media:
                if one.media_kind == "image" and one.sha256 not in self._texts:
                    self._texts[one.sha256] = await self._read_picture(one, call)

    async def _read_picture(self, one: MediaReference, call: CallTool) -> str:
        result = await call(_OCR_TOOL, {"image": one.reference})
        if not result.success:
            raise ProviderError(
                f"{one.describe()} cannot be sent: the model sees no pictures, and its text could "
                f"not be read: {result.error_message}",
                code="media_unsupported",
                hint="choose a model with vision",
            )
        found = cast("Mapping[str, Any]", result.data)
        return str(found.get("text", "")) or "(no text was found in it)"

    def load_history(self, history: Sequence[Message]) -> Sequence[Message]:
        """Return the history with media whose bytes can be read.

        A message that was returned before is the same object again.
        """
        if history is not self._history:
            self._history = history
            self._loaded = []
        for message in history[len(self._loaded) :]:
            if not isinstance(message, AssistantMessage) and message.media:
                message = replace(message, media=tuple(self._load(message)))
            self._loaded.append(message)
        return self._loaded

    def _load(self, message: UserMessage | ToolMessage) -> Iterator[MediaReference]:
        in_result = isinstance(message, ToolMessage)
        for one in message.media:
            text = self._texts.get(one.sha256, "")
            yield load_media(one, self.read, in_result=in_result, text=text)

    def read_artifact(self, reference: str) -> bytes:
        """Return the bytes of an artifact of the session. Raises ArtifactError."""
        artifact = self.store.find(self._scope, reference)
        return self.store.read(self._scope, reference, 0, artifact.size)

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


async def read_input(name: str, context: Context) -> tuple[bytes, str]:
    """Return the bytes of a file of the workspace or an artifact (`art-…`), and its name.

    Raises:
        ToolFailed: It cannot be read, by the rules of every tool.
    """
    media = context.resources.get(SessionMedia)
    if isinstance(media, SessionMedia) and name.startswith("art-"):
        return await run_blocking(lambda: media.read_artifact(name)), name
    workspace = context.resource(Workspace)
    content = await run_blocking(lambda: workspace.read(name, limit=READ_LIMIT))
    return content, workspace.name(name)


def _label(part: Media) -> str:
    kind = part.media_kind or "attachment"
    return f"the {kind} `{part.name}`" if part.name else f"the {kind}"


def _missing_error(one: MediaReference, why: str) -> ProviderError:
    return ProviderError(
        f"{one.describe()} cannot be sent: {why}",
        code="media_missing",
        hint="artifacts expire: give it again",
    )


MAX_PIXELS = 50_000_000
"""Pixels of a picture that is decoded: 200 MB of memory."""
_FORMATS = {
    "image/png": "PNG",
    "image/jpeg": "JPEG",
    "image/webp": "WEBP",
    "image/gif": "GIF",
}


def scale_picture(data: bytes, found: MediaType, max_side: int, name: str) -> bytes:
    """Return a picture with at most so many pixels a side, upright, in its own format.

    A GIF becomes a PNG.

    Args:
        data: The picture.
        found: Its type and measures.
        max_side: The most pixels of a side.
        name: What an error calls it.

    Raises:
        ConfigError: Pillow is not installed.
        MediaInvalid: The picture has too many pixels, or cannot be decoded.
    """
    try:
        from PIL import Image, ImageOps
    except ImportError as error:
        raise ConfigError(
            "scaling pictures down needs Pillow", hint='pip install "ferrule[pictures]"'
        ) from error
    if found.width * found.height > MAX_PIXELS:
        raise MediaInvalid(
            f"{name} has {found.width} x {found.height} pixels; at most {MAX_PIXELS} are decoded "
            "to be scaled",
            hint="scale it down with another program",
        )
    form = _FORMATS[found.mime]
    try:
        with Image.open(io.BytesIO(data), formats=[form]) as picture:
            if picture.size != (found.width, found.height):
                raise MediaInvalid(f"{name} says two different sizes of itself")
            picture.draft(None, (max_side, max_side))
            upright = ImageOps.exif_transpose(picture)
            upright.thumbnail((max_side, max_side))
            written = io.BytesIO()
            upright.save(written, format="PNG" if form == "GIF" else form)
    except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError) as error:
        raise MediaInvalid(f"{name} cannot be scaled: {error}", hint="save it again") from error
    return written.getvalue()
