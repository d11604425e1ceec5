"""The methods of the agent: what an editor may request, and the sessions it has open.

Parameters are read strictly, from the JSON as it arrived: a folder or a server that is silently
dropped is not what the person asked for. Fields that the protocol reserves for others (`_meta`) and
unknown fields are ignored.

The editor's files and terminals (`fs/*`, `terminal/*`) are not used, even if it offers them. They
would be a second path to files and programs that bypasses the workspace, its reserved names, the
sandbox and the copies that a rewind needs. The price: text typed in the editor and not saved is not
seen; embed it in the prompt, or save.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, cast

from ferrule._version import __version__
from ferrule.core.errors import ConfigError, FerruleError, SessionNotFound
from ferrule.runtime.session_pool import PoolFull, SessionPool

from .conversation import Conversation, Editor, SessionBusy, open_conversation
from .history import archive_session, find_session, list_sessions
from .peer import INTERNAL, RequestRefused
from .prompts import parse_prompt
from .session_sources import SessionSource

VERSION = 1
"""Version of the protocol."""
MAX_SESSIONS = 256
"""Sessions open at a time."""

Method = Callable[["AcpAgent", Mapping[str, Any]], Awaitable[Any]]

METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INVALID_REQUEST = -32600
RESOURCE_NOT_FOUND = -32002


class AcpAgent:
    """The agent of one connection."""

    def __init__(self, source: SessionSource, editor: Editor) -> None:
        self._source = source
        self._editor = editor
        self._pool = SessionPool[str, Conversation](MAX_SESSIONS, evicts=False)
        self._opening = asyncio.Lock()
        self._is_initialized = False

    async def handle(self, method: str, params: object) -> Any:
        """Answer a request or take a notification.

        Raises:
            Refused: the request is answered with an error.
        """
        known = _METHODS.get(method)
        if known is None:
            raise RequestRefused(METHOD_NOT_FOUND, f"unknown method `{method[:80]}`")
        if params is not None and not isinstance(params, dict):
            raise RequestRefused(INVALID_PARAMS, "`params` must be an object")
        if not self._is_initialized and method != "initialize":
            raise RequestRefused(INVALID_REQUEST, "`initialize` must be the first request")
        try:
            return await known(self, cast("dict[str, Any]", params or {}))
        except SessionNotFound as error:
            raise RequestRefused(RESOURCE_NOT_FOUND, error.detail) from error
        except SessionBusy as error:
            raise RequestRefused(INVALID_REQUEST, error.detail) from error
        except ConfigError as error:
            raise RequestRefused(INVALID_PARAMS, error.detail, _error_data(error)) from error
        except FerruleError as error:
            raise RequestRefused(INTERNAL, error.detail, _error_data(error)) from error

    async def close(self) -> None:
        """End every run and close all sessions."""
        async with self._opening:
            await self._pool.close_all()

    # ---- the connection

    async def initialize(self, params: Mapping[str, Any]) -> Any:
        """Return the protocol version we speak, whatever was requested.

        An editor that does not speak it disconnects.
        """
        asked = params.get("protocolVersion")
        if type(asked) is not int or not 0 <= asked <= 65535:
            raise ConfigError("`protocolVersion` must be a number")
        self._is_initialized = True
        return {
            "protocolVersion": VERSION,
            "agentInfo": {"name": "ferrule", "title": "Ferrule", "version": __version__},
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": True, "audio": True, "embeddedContext": True},
                "mcpCapabilities": {"http": True, "sse": True},
                "sessionCapabilities": {"list": {}, "resume": {}, "close": {}, "delete": {}},
            },
            "authMethods": [],
        }

    async def authenticate(self, params: Mapping[str, Any]) -> Any:
        """Accept. There is nothing to sign in to: model keys are in the person's settings."""
        return {}

    # ---- sessions

    async def new(self, params: Mapping[str, Any]) -> Any:
        """Handle `session/new`."""
        conversation = await self._open(params)
        return {"sessionId": conversation.session.id, **conversation.state()}

    async def load(self, params: Mapping[str, Any]) -> Any:
        """Handle `session/load`: replay the history, then return the state."""
        conversation = await self._reopen(params)
        await conversation.replay()
        return conversation.state()

    async def resume(self, params: Mapping[str, Any]) -> Any:
        """Handle `session/resume`: as `load`, for an editor that already has the history."""
        conversation = await self._reopen(params)
        conversation.catch_up()
        return conversation.state()

    async def list(self, params: Mapping[str, Any]) -> Any:
        """Handle `session/list`."""
        cwd = params.get("cwd")
        cursor = params.get("cursor")
        folder = None if cwd is None else parse_folder(params)
        return list_sessions(self._source, folder, _optional(cursor, "cursor"))

    async def close_session(self, params: Mapping[str, Any]) -> Any:
        """Handle `session/close`: close the session, which stays in the journal."""
        await self._pool.close(self._find_open(params).session.id)
        return {}

    async def delete(self, params: Mapping[str, Any]) -> Any:
        """Handle `session/delete`. See `history` for what that means."""
        session = _text(params, "sessionId")
        known = self._pool.find(session)
        if known is not None:
            is_recorded = known.session.is_recorded
            await self._pool.close(session)
            if not is_recorded:
                return {}
        return {"_meta": {"ferrule/archive": str(archive_session(self._source, session))}}

    async def _open(self, params: Mapping[str, Any], session_id: str | None = None) -> Conversation:
        folder = parse_folder(params)
        servers = parse_servers(params.get("mcpServers"))
        if params.get("additionalDirectories"):
            raise ConfigError(
                "this agent works in one folder: `additionalDirectories` is not supported"
            )
        try:
            self._pool.make_room()
        except PoolFull as full:
            raise ConfigError(full.detail, hint=full.hint) from full
        conversation = await open_conversation(
            self._source, self._editor, folder=folder, servers=servers, session_id=session_id
        )
        self._pool.add(conversation.session.id, conversation)
        return conversation

    async def _reopen(self, params: Mapping[str, Any]) -> Conversation:
        """Open an earlier session. One that is open here is reopened, to replay its journal."""
        session = _text(params, "sessionId")
        folder = parse_folder(params)
        async with self._opening:
            known = self._pool.find(session)
            if known is not None:
                if known.is_busy:
                    raise SessionBusy(
                        "this session is working on a prompt; wait for it, or cancel it"
                    )
                await self._pool.close(session)
            with self._source.journal() as store:
                info = find_session(self._source, store, session)
            if info.workspace not in ("", folder):
                raise ConfigError(
                    f"this session belongs to `{info.workspace}`, and `cwd` is another folder",
                    hint="open it with the folder that `session/list` returns",
                )
            return await self._open(params, session)

    def _find_open(self, params: Mapping[str, Any]) -> Conversation:
        session = _text(params, "sessionId")
        known = self._pool.use(session)
        if known is None:
            raise SessionNotFound(f"no session `{session[:80]}` is open here; load it first")
        return known

    # ---- a session

    async def prompt(self, params: Mapping[str, Any]) -> Any:
        """Handle `session/prompt`."""
        conversation = self._find_open(params)
        return await conversation.prompt(parse_prompt(params.get("prompt")))

    async def cancel(self, params: Mapping[str, Any]) -> Any:
        """Handle `session/cancel`. It is a notification, so an unknown session is no error."""
        known = self._pool.find(str(params.get("sessionId")))
        if known is not None:
            known.stop()

    async def set_mode(self, params: Mapping[str, Any]) -> Any:
        """Handle `session/set_mode`."""
        conversation = self._find_open(params)
        conversation.set_mode(_text(params, "modeId"))
        await conversation.outbox.drain()
        return {}

    async def set_option(self, params: Mapping[str, Any]) -> Any:
        """Handle `session/set_config_option`: `mode` or `model`."""
        conversation = self._find_open(params)
        option = _text(params, "configId")
        value = _text(params, "value")
        if option == "mode":
            conversation.set_mode(value)
        elif option == "model":
            await conversation.set_model(value)
        else:
            raise ConfigError(f"unknown option `{option[:40]}`")
        await conversation.outbox.drain()
        return {"configOptions": conversation.options()}


_METHODS: dict[str, Method] = {
    "initialize": AcpAgent.initialize,
    "authenticate": AcpAgent.authenticate,
    "session/new": AcpAgent.new,
    "session/load": AcpAgent.load,
    "session/resume": AcpAgent.resume,
    "session/list": AcpAgent.list,
    "session/close": AcpAgent.close_session,
    "session/delete": AcpAgent.delete,
    "session/prompt": AcpAgent.prompt,
    "session/cancel": AcpAgent.cancel,
    "session/set_mode": AcpAgent.set_mode,
    "session/set_config_option": AcpAgent.set_option,
}


def parse_folder(params: Mapping[str, Any]) -> str:
    """Return `cwd` with links resolved.

    Raises:
        ConfigError: it is not the absolute path of a folder.
    """
    given = _text(params, "cwd")
    if "\0" in given or not Path(given).is_absolute():
        raise ConfigError("`cwd` must be an absolute path")
    try:
        found = Path(os.path.realpath(given, strict=True))
        if found.is_dir():
            return str(found)
    except (OSError, ValueError) as error:
        raise ConfigError(f"`cwd`: no folder `{given[:200]}`") from error
    raise ConfigError(f"`cwd`: `{given[:200]}` is not a folder")


def _text(params: Mapping[str, Any], name: str) -> str:
    value = params.get(name)
    if not isinstance(value, str) or not value:
        raise ConfigError(f"`{name}` must be a string")
    return value


def _optional(value: object, name: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ConfigError(f"`{name}` must be a string")
    return value


def _error_data(error: FerruleError) -> dict[str, Any]:
    return {"code": error.code, "hint": error.hint} if error.hint else {"code": error.code}


MAX_SERVERS = 64
"""Most servers of a session."""


def parse_servers(given: object) -> dict[str, dict[str, Any]]:
    """Return the entries by name. Raises ConfigError if it is not a list of servers."""
    if given is None:
        return {}
    if not isinstance(given, list) or len(cast("list[object]", given)) > MAX_SERVERS:
        raise ConfigError(f"`mcpServers` must be a list of at most {MAX_SERVERS} servers")
    found: dict[str, dict[str, Any]] = {}
    for one in cast("list[object]", given):
        if not isinstance(one, dict):
            raise ConfigError("`mcpServers` must be a list of objects")
        fields = cast("dict[str, Any]", one)
        name = fields.get("name")
        if not isinstance(name, str) or not name or name in found:
            raise ConfigError("each server in `mcpServers` needs a unique name")
        found[name] = _entry(fields)
    return found


def _entry(fields: Mapping[str, Any]) -> dict[str, Any]:
    kind = fields.get("type")
    if kind in ("http", "sse"):
        return {
            "type": kind,
            "url": fields.get("url"),
            "headers": _parse_pairs(fields.get("headers")),
        }
    if kind not in (None, "stdio"):
        raise ConfigError(f"unsupported type of MCP server: {str(kind)[:40]!r}")
    entry: dict[str, Any] = {"command": fields.get("command"), "args": fields.get("args") or []}
    return {**entry, "env": _parse_pairs(fields.get("env"))}


def _parse_pairs(given: object) -> dict[str, str]:
    """Convert `[{"name": …, "value": …}]` to a mapping.

    A `$` in a value of the editor's is a dollar, not a variable of ours.
    """
    if given is None:
        return {}
    if not isinstance(given, list):
        raise ConfigError("`env` and `headers` must be lists of names and values")
    found: dict[str, str] = {}
    for one in cast("list[object]", given):
        pair = cast("dict[str, Any]", one) if isinstance(one, dict) else {}
        name = pair.get("name")
        value = pair.get("value")
        if not isinstance(name, str) or not isinstance(value, str):
            raise ConfigError("`env` and `headers` must be lists of names and values")
        if "${" in value:
            raise ConfigError(
                f"the value of `{name[:60]}` contains `${{`, which would be read as a variable"
            )
        found[name] = value
    return found
