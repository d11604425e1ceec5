"""Where Gemini models are served, and what a request there is signed with.

    Gemini API    generativelanguage.googleapis.com, with an API key
    Vertex AI     the host of a region, with a project and a token, or with an API key alone

A token comes from `google-auth` (the extra `vertex`): a service account, `gcloud auth
application-default login`, the metadata server of a machine. It is fetched in a thread, since that
library waits for the network, and again before it expires.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol, cast

from ferrule.core.errors import ProviderError
from ferrule.core.value_class import frozen

GEMINI_URL = "https://generativelanguage.googleapis.com"
GEMINI_VERSION = "v1beta"
VERTEX_VERSION = "v1beta1"
_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_MULTIPLE_REGIONS = ("us", "eu")
_INSTALL = "pip install 'ferrule[vertex]'"


@frozen
class Address:
    """Where the models of a project, or of a key, are served.

    Attributes:
        provider: The provider's name in `models.registry`.
        base_url: The server.
        path: What stands between the server and the name of a resource.
        models: What stands between that and the name of a model.
        parent: The full name of what owns models and cached contents, with a slash at its end.
    """

    provider: str
    base_url: str
    path: str
    models: str
    parent: str = ""

    def model_url(self, model: str) -> str:
        """Return the URL of a model, without a method."""
        return f"{self.base_url}{self.path}{self.models}{model}"

    @property
    def caches_url(self) -> str:
        """The URL at which cached contents are made."""
        return f"{self.base_url}{self.path}cachedContents"

    def model_resource(self, model: str) -> str:
        """Return the full name of a model."""
        return f"{self.parent}{self.models}{model}"


class TokenSource(Protocol):
    """Gives tokens for requests to Google Cloud."""

    async def headers(self) -> dict[str, str]:
        """Return the headers that carry a valid token.

        Raises:
            ProviderError: `unauthorized`, none could be had.
        """
        ...


def gemini_address(base_url: str | None) -> Address:
    """Return the address of the Gemini API, or of a server that speaks it."""
    base = base_url or os.environ.get("GOOGLE_GEMINI_BASE_URL") or GEMINI_URL
    host = base.rstrip("/").removesuffix(f"/{GEMINI_VERSION}")
    return Address("google", host, f"/{GEMINI_VERSION}/", "models/")


def vertex_address(base_url: str | None, project: str, location: str) -> Address:
    """Return the address of Vertex AI.

    Args:
        base_url: Another server in front of it, or None.
        project: The project, or "" for the address that takes API keys alone.
        location: The region, or `global`.
    """
    base = base_url or os.environ.get("GOOGLE_VERTEX_BASE_URL") or _vertex_host(project, location)
    host = base.rstrip("/").removesuffix(f"/{VERTEX_VERSION}")
    parent = f"projects/{project}/locations/{location}/" if project else ""
    path = f"/{VERTEX_VERSION}/{parent}"
    return Address("vertex", host, path, "publishers/google/models/", parent)


def _vertex_host(project: str, location: str) -> str:
    if not project or location == "global":
        return "https://aiplatform.googleapis.com"
    if location in _MULTIPLE_REGIONS:
        return f"https://aiplatform.{location}.rep.googleapis.com"
    return f"https://{location}-aiplatform.googleapis.com"


class GoogleCredentials:
    """Tokens of `google-auth`.

    Args:
        credentials: Credentials of that library. Without any, those of this machine are looked up
            by the first request (application default credentials).
    """

    def __init__(self, credentials: Any = None) -> None:
        self._credentials = credentials
        self._lock = asyncio.Lock()

    async def headers(self) -> dict[str, str]:
        """Return the headers that carry a valid token. Raises ProviderError if there is none."""
        async with self._lock:
            if self._credentials is None or not self._credentials.valid:
                await asyncio.to_thread(self._refresh)
            credentials = cast("Any", self._credentials)
            headers: dict[str, str] = {"Authorization": f"Bearer {credentials.token}"}
            quota_project = getattr(credentials, "quota_project_id", None)
            if quota_project:
                headers["x-goog-user-project"] = str(quota_project)
            return headers

    def _refresh(self) -> None:
        errors = _import_google_auth("google.auth.exceptions")
        try:
            if self._credentials is None:
                find = cast("Callable[..., Any]", _import_google_auth("google.auth").default)
                self._credentials, _ = find(scopes=[_SCOPE])
            transport = _import_google_auth("google.auth.transport.requests")
            if not self._credentials.valid:
                self._credentials.refresh(transport.Request())
        except errors.GoogleAuthError as error:
            raise ProviderError(
                f"Google Cloud gave no token: {error}",
                code="unauthorized",
                hint="run `gcloud auth application-default login`, or set "
                "GOOGLE_APPLICATION_CREDENTIALS",
                retryable=False,
            ) from error


def _import_google_auth(module: str) -> Any:
    """Import a module of google-auth. Raises ProviderError if it is not installed."""
    try:
        return import_module(module)
    except ImportError as problem:
        raise ProviderError(
            "models on Vertex AI need google-auth, which is not installed, or an API key",
            code="extra_missing",
            hint=_INSTALL,
            retryable=False,
        ) from problem


async def find_vertex_models(address: str) -> list[str]:
    """Return an example of a model if this machine names a project on Vertex AI.

    Args:
        address: The URL that the settings name, or "".

    Raises:
        ProviderError: It names none.
    """
    if address or os.environ.get("GOOGLE_CLOUD_PROJECT"):
        return ["gemini-3.8-flash"]
    raise ProviderError(
        "set GOOGLE_CLOUD_PROJECT",
        code="unauthorized",
        hint=f"sign in with `gcloud auth application-default login`, and {_INSTALL}",
    )
