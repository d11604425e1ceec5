"""What is Amazon's own about a request: its signature, and the frames of a streamed answer.

Both are done by `botocore` (the extra `bedrock`): credentials from wherever that library finds them
(variables, profiles, roles of a machine), Signature Version 4, and the event stream with its
checksums. It is imported when the first request is made, in a thread, since it takes a while and
may wait for the network.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from ferrule.core.calls import encode_json
from ferrule.core.errors import ProviderError
from ferrule.models.http.server_sent_events import LineSplitter

SERVICE = "bedrock"
_INSTALL = "pip install 'ferrule[bedrock]'"


def import_botocore(module: str) -> Any:
    """Import a module of botocore.

    Raises:
        ProviderError: `extra_missing`, it is not installed.
    """
    try:
        return import_module(module)
    except ImportError as problem:
        raise ProviderError(
            "models on Bedrock need botocore, which is not installed",
            code="extra_missing",
            hint=_INSTALL,
            retryable=False,
        ) from problem


def find_region() -> str:
    """Return the region that this machine names, or ""."""
    named = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if named:
        return named
    try:
        session = import_botocore("botocore.session").get_session()
    except ProviderError:
        return ""
    return str(session.get_config_variable("region") or "")


class RequestSigner:
    """Signs requests with the credentials of this machine, or with those given.

    Args:
        region: The region that requests are signed for.
        credentials: Credentials of botocore; by default looked up by the first request.
    """

    def __init__(self, region: str, credentials: Any = None) -> None:
        self._region = region
        self._credentials = credentials
        self._lock = asyncio.Lock()

    async def sign(self, url: str, body: bytes, headers: Mapping[str, str]) -> dict[str, str]:
        """Return the headers of a request, signed.

        Raises:
            ProviderError: `unauthorized`, there are no credentials; `extra_missing`.
        """
        async with self._lock:
            return await asyncio.to_thread(self._sign, url, body, headers)

    def _sign(self, url: str, body: bytes, headers: Mapping[str, str]) -> dict[str, str]:
        errors = import_botocore("botocore.exceptions")
        auth = import_botocore("botocore.auth")
        request = import_botocore("botocore.awsrequest").AWSRequest("POST", url, headers, body)
        try:
            if self._credentials is None:
                session = import_botocore("botocore.session").get_session()
                self._credentials = session.get_credentials()
            if self._credentials is None:
                raise errors.NoCredentialsError
            # Frozen for one request: a refresh in the middle would mix two keys.
            frozen = self._credentials.get_frozen_credentials()
            auth.SigV4Auth(frozen, SERVICE, self._region).add_auth(request)
        except errors.BotoCoreError as error:
            raise ProviderError(
                f"Amazon gave no credentials: {error}",
                code="unauthorized",
                hint="run `aws configure` or `aws sso login`, or set AWS_BEARER_TOKEN_BEDROCK",
                retryable=False,
            ) from error
        return dict(request.headers.items())


class FrameSplitter(LineSplitter):
    """Splits an event stream into its messages, each as a JSON array of its type and its payload.

    A message whose checksums are wrong is an error when the next bytes are asked for: what came
    before it counts.
    """

    def __init__(self, who: str) -> None:
        super().__init__()
        self._who = who
        stream = import_botocore("botocore.eventstream")
        self._buffer: Any = stream.EventStreamBuffer()
        self._broken: type[Exception] = stream.ParserError
        self._problem = ""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the messages that these bytes complete."""
        if self._problem:
            detail = f"{self._who} sent an event stream that is broken: {self._problem}"
            raise ProviderError(detail, code="not_understood", retryable=False)
        messages: list[bytes] = []
        self._buffer.add_data(data)
        try:
            for message in self._buffer:
                messages.append(_encode_message(message))
        except self._broken as problem:
            self._problem = str(problem) or type(problem).__name__
        return messages

    def close(self) -> list[bytes]:
        """Return nothing: a message that is not complete is none."""
        return []


def _encode_message(message: Any) -> bytes:
    headers: dict[str, Any] = message.headers
    kind = headers.get(":event-type") or headers.get(":exception-type") or ":error"
    return b"[" + encode_json(str(kind)).encode() + b"," + (message.payload or b"{}") + b"]"


async def find_models(address: str) -> list[str]:
    """Return an example of a model if this machine names credentials for Bedrock.

    Args:
        address: The URL that the settings name, or "".

    Raises:
        ProviderError: It names none.
    """
    variables = ("AWS_BEARER_TOKEN_BEDROCK", "AWS_ACCESS_KEY_ID", "AWS_PROFILE")
    if address or any(os.environ.get(variable) for variable in variables):
        return ["us.anthropic.claude-sonnet-5-5"]
    raise ProviderError(
        "set AWS_PROFILE or AWS_BEARER_TOKEN_BEDROCK, and AWS_REGION",
        code="unauthorized",
        hint=_INSTALL,
    )
