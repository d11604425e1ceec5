"""Manifests: what is wrong is said at once with its place, secrets are only referred to, and a
repository's file does less.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from conftest_http import AUTH, SECRET, SECRETS, one_tool, read, tools_of
from hypothesis import given, settings
from hypothesis import strategies as st

from ferrule.connectors.http import HttpToolSettings, Secrets, http_tools, load_tools
from ferrule.connectors.http.manifest import KEYS, TOOL_KEYS
from ferrule.core.errors import ConfigError
from ferrule.storage.trust import TrustStore
from ferrule.tools.definition import Loading, Risk, SideEffect

WORDS = [
    "GET",
    "{{x}}",
    "{{auth.a}}",
    "https://a.example.com/{{x}}",
    "${API_TOKEN}",
    "bearer",
    "object",
    "json",
    "\r\n",
    "it",
    "read",
    "always",
]

WHOLE = """
version: 1
namespace: shop
description: The shop.
hosts: ["*.cdn.example.com"]
policy: {max_attempts: 2}
auth:
  token: {kind: bearer, secret: "${API_TOKEN}"}
  key: {kind: api_key, header: X-Api-Key, secret: "${API_TOKEN}"}
  param: {kind: api_key, query: key, secret: "${API_TOKEN}"}
  session: {kind: cookie, cookie: sid, secret: "${API_TOKEN}"}
  old: {kind: basic, username: robot, secret: "${API_TOKEN}"}
tools:
  - name: find
    description: Finds articles.
    method: GET
    url_template: https://shop.example.com/articles?q={{q}}&limit={{limit?}}
    auth_ref: token
    tags: [articles]
    scopes: [shop.read]
    cost: low
    input_schema: '{"type": "object", "properties": {"q": {"type": "string"}, "limit": {"type": "integer"}}, "required": ["q"]}'
    output_schema: {type: array}
    examples: [{q: lamp, limit: 3}, {request: Any chairs?, arguments: {q: chair}}]
  - name: order
    description: Orders an article.
    method: POST
    url_template: https://shop.example.com/orders
    body_template: {article: "{{article}}", note: "for {{who}}"}
    auth_ref: [key, session]
    idempotency_key: true
    loading: deferred
    risk: critical
    policy: {timeout_ms: 5000}
"""


def test_a_manifest_becomes_tools() -> None:
    find, order = tools_of(WHOLE)
    assert (find.full_name, find.source, find.side_effect, find.risk) == (
        "shop::find",
        "http shop",
        SideEffect.READ,
        Risk.LOW,
    )
    assert (
        find.scopes == {"shop.read"}
        and find.annotations["tags"] == ["articles"]
        and find.is_repeatable
    )
    assert find.examples == (
        {"request": "", "arguments": {"q": "lamp", "limit": 3}},
        {"request": "Any chairs?", "arguments": {"q": "chair"}},
    )
    assert find.reliability.max_attempts == 2 and find.reliability.timeout == 30
    assert (
        order.loading is Loading.DEFERRED
        and order.risk is Risk.CRITICAL
        and order.side_effect is SideEffect.EXTERNAL
    )
    assert (
        order.is_repeatable
        and order.reliability.timeout == 5
        and order.reliability.max_attempts == 2
    )
    assert set(order.arguments.schema["properties"]) == {"article", "who"}


@pytest.mark.parametrize(
    ("method", "effect", "risk", "repeatable"),
    [
        ("GET", SideEffect.READ, Risk.LOW, True),
        ("POST", SideEffect.EXTERNAL, Risk.MEDIUM, False),
        ("PATCH", SideEffect.EXTERNAL, Risk.MEDIUM, False),
        ("PUT", SideEffect.EXTERNAL, Risk.MEDIUM, True),
        ("DELETE", SideEffect.EXTERNAL, Risk.HIGH, True),
    ],
)
def test_what_a_method_does_is_known_where_the_file_does_not_say(
    method: str, effect: SideEffect, risk: Risk, repeatable: bool
) -> None:
    tool = one_tool("https://api.example.com/x", method=method)
    assert (tool.side_effect, tool.risk, tool.is_repeatable) == (effect, risk, repeatable)


BROKEN = """\
namespace: "not a name"
colour: blue
auth:
  token: {kind: bearer, secret: sk-written-out}
  both: {kind: api_key, header: X, query: y, secret: "${API_TOKEN}"}
  gone: {kind: bearer, secret: "${NOT_THERE}"}
  empty: {kind: bearer, secret: "${EMPTY}"}
tools:
  - name: one
    description: d
    method: FETCH
    url_template: https://api.example.com/{{id}}
  - name: two
    description: d
    method: GET
    url_template: https://api.example.com/{{auth.token}}
    auth_ref: tokn
  - name: three
    description: d
    method: GET
    url_template: https://api.example.com/{{idd}}
    input_schema: {type: object, properties: {id: {type: string}}}
  - name: four
    description: d
    method: GET
    url_template: https://api.example.com/x
    retries: 3
    policy: {retry_on: [sometimes]}
  - name: five
    method: GET
    url_template: https://api.example.com/x
    input_schema: '{"type": '
"""


@pytest.mark.proves("http-tools.load-errors")
def test_everything_that_is_wrong_with_a_file_is_said_at_once_with_its_place() -> None:
    secrets = Secrets({"API_TOKEN": SECRET, "EMPTY": " "})
    with pytest.raises(ConfigError) as caught:
        read(BROKEN, "bad.yaml", secrets=secrets)
    lines = caught.value.detail.splitlines()
    wanted = [
        ("bad.yaml:2:1", "`colour` is not a key of a manifest"),
        ("bad.yaml:1:12", "cannot be the name"),
        ("bad.yaml:4:10", "is written out"),
        ("bad.yaml:5:9", "`header` or `query`, one of them"),
        ("bad.yaml:6:9", "`NOT_THERE` is not set"),
        ("bad.yaml:7:10", "`${EMPTY}` is empty"),
        ("bad.yaml:11:13", "`method` is `FETCH`"),
        ("bad.yaml:16:19", "sees the arguments only"),
        ("bad.yaml:17:15", "did you mean `token`?"),
        ("bad.yaml:18:5", "did you mean `id`?"),
        ("bad.yaml:27:5", "`retries` is not a key of a tool"),
        ("bad.yaml:28:13", "found `sometimes`"),
        ("bad.yaml:29:5", "`description` is missing"),
        ("bad.yaml:32:19", "is not JSON"),
    ]
    for where, what in wanted:
        assert any(line.startswith(f"{where}: ") and what in line for line in lines), (
            where,
            what,
            lines,
        )
    assert "sk-written-out" not in caught.value.detail


@pytest.mark.proves("http-tools.load-errors")
def test_a_name_or_a_key_that_stands_twice_is_an_error() -> None:
    twice = (
        "tools:\n"
        + 2 * "  - {name: a, description: d, method: GET, url_template: 'https://x.example.com/'}\n"
    )
    with pytest.raises(ConfigError, match=r"api\.yaml:3:5: `a` is given twice \(first in line 2\)"):
        read(twice)
    with pytest.raises(ConfigError, match=r"api\.yaml:2:1: found `namespace` a second time"):
        read("namespace: a\nnamespace: b\ntools: []\n")


@pytest.mark.proves("http-tools.secrets-by-reference")
@pytest.mark.parametrize(
    "line",
    [
        "headers: {X-Api-Key: abc123def456}",
        "headers: {Authorization: Bearer abc}",
        "headers: {Authorization: 'Bearer {{token}}'}",
        "headers: {Cookie: 'sid={{sid}}'}",
        "headers: {X-Auth-Token: 'zz99'}",
        "parameters: [{name: X-Api-Key, in: header}]",
    ],
)
def test_a_secret_in_the_wrong_place_is_an_error(line: str) -> None:
    with pytest.raises(ConfigError, match="auth section"):
        one_tool("https://api.example.com/x", line)
    with pytest.raises(ConfigError, match="looks like a secret"):
        one_tool("https://api.example.com/x?api_key=abc123")


@pytest.mark.parametrize(
    ("auth", "line"),
    [
        ("{kind: api_key, header: X-Shop, secret: '${API_TOKEN}'}", "headers: {x-shop: other}"),
        (
            "{kind: api_key, header: X-Shop, secret: '${API_TOKEN}'}",
            "parameters: [{name: X-SHOP, in: header}]",
        ),
        ("{kind: bearer, secret: '${API_TOKEN}'}", "headers: {AUTHORIZATION: other}"),
        (
            "{kind: cookie, cookie: sid, secret: '${API_TOKEN}'}",
            "parameters: [{name: sid, in: cookie}]",
        ),
        ("{kind: api_key, query: k, secret: '${API_TOKEN}'}", "parameters: [{name: k, in: query}]"),
    ],
)
def test_nothing_can_take_the_place_of_what_auth_sets(auth: str, line: str) -> None:
    with pytest.raises(ConfigError, match=r"set by the auth section|cannot be set"):
        one_tool("https://api.example.com/x", line, "auth_ref: a", top=f"auth: {{a: {auth}}}")
    assert (
        one_tool("https://api.example.com/x", "auth_ref: a", top=f"auth: {{a: {auth}}}").name
        == "it"
    )


@pytest.mark.proves("http-tools.load-errors")
@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("ftp://x.example.com/", "must begin with"),
        ("https://user:pw@x.example.com/", "user name"),
        ("https://x.example.com/#part", "fragment"),
        ("https://x.example.com/{id}", "write `{{id}}`"),
        ("https://x.example.com/a/../b", "segment"),
        ("https://x.example.com/%2e%2e/b", "segment"),
        ("https://x.example.com/a b", "must be encoded"),
        ("https://x.example.com/?{{name}}=1", "must be literal"),
        ("https://x.example.com:{{port}}/", "literal number"),
        ("{{scheme}}://x.example.com/", "must begin with"),
        ("https://x.example.com/{{id", "not closed"),
        ("https://x.example.com/{{env.HOME}}", "sees the arguments only"),
        ("https://x.example.com/{{secrets.a}}", "sees the arguments only"),
        ("https://x.example.com/{{ a | upper }}", "is not a placeholder"),
        ("https://{{host}}/x", "`hosts` must say"),
        ("https://2130706433/x", "host cannot be used"),
        ("http://api.example.com/x", "plain http"),
        ("https://127.0.0.1/x", "this machine"),
        ("http://169.254.169.254/latest/meta-data/", "metadata"),
        ("https://[::1]/x", "this machine"),
        ("https://localhost/x", "this machine"),
        ("https://10.0.0.7/x", "private"),
    ],
)
def test_an_address_that_cannot_be_meant_is_an_error(url: str, why: str) -> None:
    with pytest.raises(ConfigError, match=r"api\.yaml:") as caught:
        one_tool(url)
    assert why in caught.value.detail


@pytest.mark.proves("http-tools.load-errors")
@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (["headers: {Host: other.example.com}"], "cannot be set"),
        (["headers: {Content-Length: '3'}"], "cannot be set"),
        (["headers: {Proxy-Authorization: x}"], "cannot be set"),
        (['headers: {X: "a\\r\\nY: b"}'], "line breaks"),
        (["headers: {'X Y': a}"], "not a valid header name"),
        (["body_template: '{\"a\": }'"], "not JSON"),
        (["body_template: {'{{key}}': 1}"], "only values"),
        (["body_template: {a: 1}", "body_from: a"], "one of them"),
        (["idempotent: maybe"], "true or false"),
        (["input_schema: {type: array}"], "arguments are an object"),
        (
            ["input_schema: {type: object, properties: {a: {$ref: 'https://evil.example.com/s'}}}"],
            "have to be fetched",
        ),
        (
            ["input_schema: {type: object, properties: {request url: {type: string}}}"],
            "name of an argument",
        ),
        (["examples: [{b: 1}]", "body_template: {a: '{{a}}'}"], "not an argument"),
        (
            ["examples: [{a: 1}]", "input_schema: {type: object, properties: {a: {type: string}}}"],
            "does not fit",
        ),
        (["scopes: [a]", "auth_scopes: [a]"], "the same as"),
        (["parameters: [{name: a, in: body}]"], "use one of"),
        (["parameters: [{name: a, in: query, style: matrix}]"], "use one of"),
        (["max_bytes: 99999999999"], "whole number"),
    ],
)
def test_a_key_that_cannot_be_meant_is_an_error(lines: list[str], why: str) -> None:
    with pytest.raises(ConfigError, match=r"api\.yaml:\d+:\d+: ") as caught:
        one_tool("https://api.example.com/x", *lines, method="POST")
    assert why in caught.value.detail


# ---- secrets in files


@pytest.mark.proves("http-tools.secrets-by-reference")
def test_a_secret_can_stand_in_a_file_that_only_its_owner_reads(own_folders: Path) -> None:
    folder = own_folders / "config" / "secrets"
    folder.mkdir(parents=True)
    text = """
        auth: {a: {kind: bearer, secret: "${secret:shop}"}}
        tools:
          - {name: it, description: d, method: GET, url_template: "https://api.example.com/", auth_ref: a}
        """
    with pytest.raises(ConfigError, match="`shop` cannot be read"):
        read(text, secrets=Secrets())
    (folder / "shop").write_text("open-to-others\n")
    os.chmod(folder / "shop", 0o644)
    with pytest.raises(ConfigError, match="only you can read") as caught:
        read(text, secrets=Secrets())
    assert "open-to-others" not in str(caught.value)
    os.chmod(folder / "shop", 0o600)
    assert read(text, secrets=Secrets()).tools[0].name == "it"
    assert Secrets().look_up("secret:shop") == "open-to-others"
    (folder / "link").symlink_to(folder / "shop")
    with pytest.raises(ConfigError, match="cannot be read"):
        Secrets().look_up("secret:link")


@pytest.mark.proves("http-tools.secrets-by-reference")
@pytest.mark.parametrize("value", ["", "abc", "line\nbreak", "gr\u00fc\u00dfe", "x" * 20_000])
def test_what_cannot_be_a_secret_is_found_when_the_file_is_read(value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(f"{AUTH}\ntools: []\n", secrets=Secrets({"API_TOKEN": value}))
    assert "API_TOKEN" in caught.value.detail and (not value or value not in caught.value.detail)


# ---- a repository's files

THEIRS = """
hosts: ["files.example.com"]
tools:
  - {name: it, description: d, method: GET, url_template: "https://api.example.com/"}
"""


def workspace(tmp_path: Path, text: str) -> Path:
    folder = tmp_path / "clone"
    (folder / ".ferrule/http").mkdir(parents=True)
    (folder / ".ferrule/http/api.yaml").write_text(text)
    return folder


def test_a_repositorys_manifest_does_nothing_until_it_is_trusted_as_it_stands(
    tmp_path: Path,
) -> None:
    folder = workspace(tmp_path, THEIRS)
    assert load_tools(HttpToolSettings(), TrustStore().read(folder)).tools == ()
    TrustStore().trust(folder)
    assert [
        tool.name for tool in load_tools(HttpToolSettings(), TrustStore().read(folder)).tools
    ] == ["it"]
    (folder / ".ferrule/http/api.yaml").write_text(THEIRS.replace("api.example", "evil.example"))
    assert load_tools(HttpToolSettings(), TrustStore().read(folder)).tools == ()


def test_a_repository_gets_no_secret_that_the_person_did_not_name_for_it(tmp_path: Path) -> None:
    folder = workspace(tmp_path, f"{AUTH}\n{THEIRS}")
    TrustStore().trust(folder)
    refused = load_tools(HttpToolSettings(), TrustStore().read(folder), secrets=SECRETS)
    assert refused.tools == ()
    assert "may not be used by the files of a repository" in refused.notices[0]
    assert load_tools(
        HttpToolSettings(secrets=("API_TOKEN",)), TrustStore().read(folder), secrets=SECRETS
    ).tools


@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1:8080", "169.254.169.254", "[fd00::1]", "10.1.2.3"]
)
def test_a_repository_cannot_open_this_machine_or_its_network(host: str) -> None:
    text = THEIRS.replace("files.example.com", host)
    with pytest.raises(ConfigError, match="a repository cannot open that"):
        read(text, origin="repository")
    assert read(text, origin="repository", opened_hosts=[host]).tools
    assert read(text, origin="person").tools


def test_a_repository_cannot_lower_how_much_a_person_is_asked() -> None:
    with pytest.raises(ConfigError, match="cannot set the risk of a GET to `safe`"):
        read(THEIRS.replace("name: it", "risk: safe, name: it"), origin="repository")
    post = THEIRS.replace("method: GET", "method: POST, side_effect: read")
    assert read(post, origin="repository").tools[0].risk is Risk.MEDIUM
    assert read(post, origin="person").tools[0].risk is Risk.LOW
    with pytest.raises(ConfigError, match="plain http"):
        read(
            THEIRS.replace("https://api", "http://api").replace("files.", "api."),
            origin="repository",
        )


def test_a_persons_setting_does_not_reach_into_the_workspace(tmp_path: Path) -> None:
    folder = workspace(tmp_path, THEIRS)
    (folder / "api.yaml").write_text(THEIRS)
    (tmp_path / "link.yaml").symlink_to(folder / "api.yaml")
    (tmp_path / "mine.yaml").write_text(THEIRS)
    for name in ("clone/api.yaml", "link.yaml"):
        named = HttpToolSettings(manifests=(str(tmp_path / name),))
        refused = load_tools(named, TrustStore().read(folder))
        assert "is in the workspace" in refused.notices[0]
    assert load_tools(
        HttpToolSettings(manifests=(str(tmp_path / "mine.yaml"),)), TrustStore().read(folder)
    ).tools


@pytest.mark.proves("http-tools.load-errors")
@settings(max_examples=60, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.sampled_from(WORDS) | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from((*KEYS, *TOOL_KEYS)), inner, max_size=6)
        ),
        max_leaves=30,
    )
)
def test_whatever_a_manifest_holds_it_is_tools_or_an_error(content: Any) -> None:
    first = {
        "name": "it",
        "description": "d",
        "method": "POST",
        "url_template": "https://a.example.com/{{x}}",
    }
    for made in (
        content,
        {"tools": [content]},
        {"tools": [first | content] if isinstance(content, dict) else []},
    ):
        try:
            tools = http_tools({"": made} if not isinstance(made, dict) else made, secrets=SECRETS)
        except ConfigError as error:
            assert error.detail
        else:
            assert all(tool.arguments.check({"x": 1}) for tool in tools)


def test_words_of_a_file_hold_nothing_that_a_person_would_not_see() -> None:
    hidden = "de\u202escr\u200bibed"
    tool = one_tool(
        "https://a.example.com/",
        f'input_schema: {{type: object, properties: {{x: {{description: "{hidden}"}}}}}}',
    )
    assert tool.arguments.schema["properties"]["x"]["description"] == "described"


def test_a_program_can_write_a_manifest_as_a_mapping() -> None:
    made = {
        "tools": [
            {
                "name": "it",
                "description": "d",
                "method": "GET",
                "url_template": "https://api.example.com/{{id}}",
            }
        ]
    }
    (tool,) = http_tools(made)
    assert tool.arguments.schema["required"] == ["id"]
    with pytest.raises(ConfigError, match="manifest: `verb` is not a key of a tool"):
        http_tools({"tools": [{**made["tools"][0], "verb": "GET"}]})
