"""Addresses that people and strangers write: what is one, and that nothing raises anything else."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule import Agent, OpenAIChat
from ferrule.connectors.mcp import McpServer
from ferrule.core.errors import ConfigError
from ferrule.core.web_addresses import split_web_address
from ferrule.models.http.proxies import parse_proxy
from ferrule.runtime.http.server import public_address
from ferrule.storage.artifacts.objects import ObjectArtifactStore

UNREADABLE = (
    "http://[::1",
    "http://[bad]/x",
    "https://..invalid/x",
    f"https://{'a' * 64}.example/x",
    "https://example.org:x/",
    "https://example.org:70000/",
    "https://example.org:0/",
    "https:///x",
    "ftp://example.org/x",
    "example.org",
    "",
)


@pytest.mark.parametrize("url", UNREADABLE)
def test_what_is_no_address_is_said_to_be_none_by_everything_that_takes_one(url: str) -> None:
    assert split_web_address(url) is None
    with pytest.raises(ConfigError, match=r"URL|url"):
        McpServer("x", url=url or "https://")
    with pytest.raises(ConfigError):
        Agent(OpenAIChat("m", base_url=url or "https://", api_key="k")).run_sync("x")
    if url:
        with pytest.raises(ConfigError, match="address"):
            public_address("127.0.0.1", 80, url)


@pytest.mark.parametrize("url", ["http://[::1", "http://[bad]", "http://..invalid:80"])
def test_a_proxy_that_cannot_be_read_is_an_error_of_the_setting(url: str) -> None:
    with pytest.raises(ConfigError, match="proxy"):
        parse_proxy(url)


def test_a_store_that_cannot_be_read_is_an_error_of_the_setting(tmp_path: Path) -> None:
    pytest.importorskip("obstore")
    with pytest.raises(ConfigError, match="cannot be kept"):
        ObjectArtifactStore("s3://[bad")


@pytest.mark.parametrize(
    "url",
    [
        "http://[::1]:80/x",
        "https://example.org./",
        "https://ex_ample.org:443",
        "https://b\u00fccher.example/",
        "HTTP://LOCALHOST/v1",
        "https://ada:secret@example.org/",
    ],
)
def test_what_is_an_address_is_taken(url: str) -> None:
    assert split_web_address(url) is not None


@given(st.text(alphabet="htp:/[]@.%?#1a\u00fc\0 ", max_size=30).map(lambda rest: f"http://{rest}"))
def test_any_text_is_an_address_or_none(url: str) -> None:
    split_web_address(url)
