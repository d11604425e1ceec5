"""Requests: a value can only ever be a value, wherever a template puts it."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest
from conftest_http import AUTH, SECRET, Service, one_tool
from hypothesis import example, given
from hypothesis import strategies as st

from ferrule.connectors.http.bodies import parse_json_template
from ferrule.connectors.http.parameters import Parameter
from ferrule.connectors.http.tools import URL_KEY
from ferrule.tools.definition import Tool

PATH = one_tool(
    "https://api.example.com/a/{{one}}/b/{{two}}.txt?q={{q?}}&fixed=1",
    "headers: {X-Note: 'n={{note?}}'}",
)
HOST = one_tool(
    "https://{{region}}.api.example.com:8443/x", top='hosts: ["*.api.example.com:8443"]'
)


def problems(tool: Tool, **arguments: Any) -> str:
    return "; ".join(tool.arguments.check(arguments).problems)


def url_of(tool: Tool, **arguments: Any) -> str:
    checked = tool.arguments.check(arguments)
    assert not checked.problems, checked.problems
    return checked.values[URL_KEY]


scalars = st.one_of(
    st.text(max_size=30),
    st.integers(),
    st.booleans(),
    st.floats(allow_nan=False, allow_infinity=False),
)


@given(scalars, scalars, scalars)
@example("../../admin", "x", "y")
@example("..", "%2e%2e%2fadmin", "a&b=c#d")
@example("a/b", "..\\..\\x", "\r\nX: y")
@example("?x=1", "#", "@evil.example.com")
@example("\ud800", ".", "")
def test_no_value_changes_host_segments_or_parameters(one: Any, two: Any, q: Any) -> None:
    checked = PATH.arguments.check({"one": one, "two": two, "q": q})
    if checked.problems:
        assert URL_KEY not in checked.values
        return
    url = checked.values[URL_KEY]
    parts = urlsplit(url)
    assert (parts.scheme, parts.netloc, parts.fragment) == ("https", "api.example.com", "")
    segments = parts.path.split("/")
    assert len(segments) == 5 and (segments[1], segments[3]) == ("a", "b")
    assert not {unquote(unquote(segment)) for segment in segments} & {".", ".."}
    assert [name for name, _ in parse_qsl(parts.query, keep_blank_values=True)] == ["q", "fixed"]
    assert url.isascii() and not any(char <= " " for char in url)
    if isinstance(q, str):
        assert dict(parse_qsl(parts.query, keep_blank_values=True))["q"] == q
        assert not isinstance(one, str) or unquote(segments[2]) == one


@pytest.mark.parametrize(
    "value",
    [
        "..",
        ".",
        "",
        "a/../b",
        "../x",
        "..%2fx",
        "%2e%2e",
        "%252e%252e",
        "..\\x",
        "a\x00b",
        "a\nb",
        "\ud800",
    ],
)
def test_a_value_that_some_server_reads_as_another_path_is_refused(value: str) -> None:
    tool = one_tool("https://api.example.com/files/{{name}}")
    assert problems(tool, name=value)
    assert url_of(tool, name="a/b c") == "https://api.example.com/files/a%2Fb%20c"
    assert url_of(tool, name="v1..2") == "https://api.example.com/files/v1..2"


@pytest.mark.parametrize(
    "value",
    [
        "evil.example.com/",
        "a@evil.example.com",
        "evil.example.com#",
        "evil.example.com?",
        "a:1",
        "a b",
        "-a",
        "ü",
        "",
    ],
)
def test_a_value_for_the_host_stays_within_the_allowed_hosts(value: str) -> None:
    assert problems(HOST, region=value)
    assert url_of(HOST, region="eu-1") == "https://eu-1.api.example.com:8443/x"
    whole = one_tool("https://{{host}}/x", top='hosts: ["a.example.com", "*.b.example.com"]')
    assert url_of(whole, host="A.example.com") == "https://a.example.com/x"
    for host in (
        "c.example.com",
        "b.example.com",
        "localhost",
        "127.0.0.1",
        "169.254.169.254",
        "a.example.com.evil.com",
    ):
        assert "none of the hosts" in problems(whole, host=host) or "cannot" in problems(
            whole, host=host
        )


@given(st.text(max_size=40))
@example("a\r\nX-Evil: 1")
@example("a\nb")
@example("\x00")
@example("a\x85b")
def test_no_value_ends_a_header(note: str) -> None:
    wrong = problems(PATH, one="1", two="2", note=note)
    assert bool(wrong) == any(not " " <= char <= "~" for char in note)


@pytest.mark.parametrize("value", ["a\r\nSet-Cookie: x=1", "a; admin=1", "a, b", "a b"])
async def test_headers_and_cookies_arrive_as_one_value(service: Service, value: str) -> None:
    tool = service.tool(
        "/x", "parameters: [{name: X-Who, in: header, from: who}, {name: who, in: cookie}]",
    )  # fmt: skip
    result = await service.call(tool, {"who": value})
    if "\r" in value:
        assert not result.success and not service.requests
        return
    (request,) = service.requests
    assert request.headers["x-who"] == value
    name, _, kept = request.headers["cookie"].partition("=")
    assert name == "who" and unquote(kept) == value and ";" not in kept and "," not in kept


JSON = '{"name": {{name}}, "note": "for {{who}}, twice \\"{{who}}\\"", "list": [{{n?}}, 1], "text": "{{n?}}"}'
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(values, st.text())
@example({"a": 1}, '", "admin": true, "x": "')
@example("{{who}}", "{{name}}")
def test_no_value_adds_to_a_json_body(name: Any, who: str) -> None:
    try:
        json.dumps([name, who], ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return
    encoded = parse_json_template(JSON).encode({"name": name, "who": who, "n": 7})
    assert encoded is not None
    assert json.loads(encoded) == {
        "name": name,
        "note": f'for {who}, twice "{who}"',
        "list": [7, 1],
        "text": "7",
    }
    less = parse_json_template(JSON).encode({"name": name, "who": who})
    assert less is not None and json.loads(less)["list"] == [1] and "text" not in json.loads(less)


@pytest.mark.parametrize(
    ("lines", "arguments", "media", "body"),
    [
        ([], {"id": 1, "a": [1], "b": None}, "application/json", '{"a":[1],"b":null}'),
        (
            ["body_template: {x: '{{a}}', y: [1, 'n {{b}}']}"],
            {"id": 1, "a": {"k": 1}, "b": 2},
            "application/json",
            '{"x":{"k":1},"y":[1,"n 2"]}',
        ),
        (["body_from: a"], {"id": 1, "a": [1, 2]}, "application/json", "[1,2]"),
        (
            ["body_type: form", "body_template: 'a={{a}}&b={{b}}'"],
            {"id": 1, "a": "x&y=z", "b": "ü"},
            "application/x-www-form-urlencoded",
            "a=x%26y%3Dz&b=%C3%BC",
        ),
        (
            ["body_type: form", "body_from: a"],
            {"id": 1, "a": {"x": "1&2", "y": ["a", "b"]}},
            "application/x-www-form-urlencoded",
            "x=1%262&y=a&y=b",
        ),
        (
            [
                "headers: {Content-Type: application/soap+xml}",
                "body_template: '<a b=\"{{a}}\">{{b}}</a>'",
            ],
            {"id": 1, "a": '"><x>', "b": "&'"},
            "application/soap+xml",
            '<a b="&quot;&gt;&lt;x&gt;">&amp;&apos;</a>',
        ),
        (
            ["body_type: text", "body_template: 'hello {{a}}'"],
            {"id": 1, "a": "wörld"},
            "text/plain; charset=utf-8",
            "hello wörld",
        ),
    ],
)
async def test_bodies(
    service: Service, lines: list[str], arguments: dict[str, Any], media: str, body: str
) -> None:
    schema = "input_schema: {type: object, properties: {id: {}, a: {}, b: {}}}"
    tool = service.tool("/things/{{id}}", schema, *lines, method="POST")
    result = await service.call(tool, arguments)
    assert result.success, result
    (request,) = service.requests
    assert (request.method, request.target, request.headers["content-type"]) == (
        "POST",
        "/things/1",
        media,
    )
    assert request.body.decode() == body


async def test_arguments_that_are_missing(service: Service) -> None:
    tool = service.tool("/x?a={{a?}}&b={{b}}", "headers: {X-C: '{{c?}}'}")
    assert (await service.call(tool, {"b": True})).success
    assert service.requests[0].target == "/x?b=true" and "x-c" not in service.requests[0].headers
    result = await service.call(tool, {})
    assert result.error_type == "validation_failed" and "b" in (result.error_message or "")
    open_ended = service.tool(
        "/x/{{a.b}}", "input_schema: {type: object, properties: {a: {type: object}}}"
    )
    result = await service.call(open_ended, {"a": {}})
    assert result.error_type == "validation_failed" and "`a.b` is required" in (
        result.error_message or ""
    )
    result = await service.call(open_ended, {"a": {"b": [1]}})
    assert "is a list" in (result.error_message or "")
    assert len(service.requests) == 1


@pytest.mark.parametrize(
    ("auth", "header", "target"),
    [
        ("{kind: bearer, secret: '${API_TOKEN}'}", ("authorization", f"Bearer {SECRET}"), "/x?a=1"),
        (
            "{kind: api_key, header: X-Key, prefix: 'v1 ', secret: '${API_TOKEN}'}",
            ("x-key", f"v1 {SECRET}"),
            "/x?a=1",
        ),
        (
            "{kind: api_key, query: key, secret: '${API_TOKEN}'}",
            None,
            "/x?a=1&key=tk-5bd1%2Fe9%2BZq%3D%3D",
        ),
        (
            "{kind: cookie, cookie: sid, secret: '${API_TOKEN}'}",
            ("cookie", f"c=2; sid={SECRET}"),
            "/x?a=1",
        ),
        (
            "{kind: basic, username: robot, secret: '${API_TOKEN}'}",
            ("authorization", "Basic cm9ib3Q6dGstNWJkMS9lOStacT09"),
            "/x?a=1",
        ),
    ],
)
async def test_auth_goes_where_it_belongs(
    service: Service, auth: str, header: tuple[str, str] | None, target: str
) -> None:
    tool = service.tool(
        "/x?a={{a}}",
        "auth_ref: me",
        "parameters: [{name: c, in: cookie}]",
        top=f"auth: {{me: {auth}}}",
    )
    checked = tool.arguments.check({"a": 1, "c": 2})
    assert SECRET not in str(checked) and "5bd1" not in str(checked)
    assert tool.preview is not None and "5bd1" not in await tool.preview(checked.values, None)
    assert (await service.call(tool, {"a": 1, "c": 2})).success
    (request,) = service.requests
    assert request.target == target
    assert header is None or request.headers[header[0]] == header[1]


async def test_a_new_secret_holds_without_a_restart_and_a_missing_one_is_a_refusal(
    service: Service,
) -> None:
    from ferrule.connectors.http import Secrets, make_tools, parse_manifest

    environment = {"API_TOKEN": "first-one"}
    text = (
        f"{AUTH}\ntools:\n  - "
        f"{{name: it, description: d, method: GET, url_template: '{service.url}/', auth_ref: token}}\n"
    )
    secrets = Secrets(environment)
    (tool,) = make_tools(
        parse_manifest(text.encode(), "a.yaml", secrets=secrets, opened_hosts=service.opens()),
        secrets,
    )
    assert (await service.call(tool)).success
    environment["API_TOKEN"] = "second-one"
    assert (await service.call(tool)).success
    assert [request.headers["authorization"] for request in service.requests] == [
        "Bearer first-one",
        "Bearer second-one",
    ]
    del environment["API_TOKEN"]
    result = await service.call(tool)
    assert result.error_type == "permission_denied" and "`token`" in (result.error_message or "")
    assert len(service.requests) == 2


async def test_an_idempotency_key_is_the_calls_own_and_the_same_for_every_attempt(
    service: Service,
) -> None:
    from ferrule.testing.http_double import Reply

    service.replies = [Reply(503), Reply(json={}), Reply(json={})]
    tool = service.tool("/orders", "idempotency_key: true", method="POST")
    session = service.session(tool)
    assert (await session.call("it")).success and (await session.call("it")).success
    first, again, other = (request.headers["idempotency-key"] for request in service.requests)
    assert first == again != other and len(first) == 32


STYLES = [
    # The table of "Style Examples" in OpenAPI 3.1: empty, text, list, object.
    ("query", "form", None, ["color=blue", "color=blue&color=black", "R=100&G=200"]),
    ("query", "form", False, ["color=blue", "color=blue,black", "color=R,100,G,200"]),
    (
        "query",
        "spaceDelimited",
        None,
        ["color=blue", "color=blue%20black", "color=R%20100%20G%20200"],
    ),
    (
        "query",
        "pipeDelimited",
        None,
        ["color=blue", "color=blue%7Cblack", "color=R%7C100%7CG%7C200"],
    ),
    ("query", "deepObject", None, ["color=blue", None, "color[R]=100&color[G]=200"]),
    ("path", "simple", None, ["blue", "blue,black", "R,100,G,200"]),
    ("path", "simple", True, ["blue", "blue,black", "R=100,G=200"]),
    ("path", "label", None, [".blue", ".blue,black", ".R,100,G,200"]),
    ("path", "label", True, [".blue", ".blue.black", ".R=100.G=200"]),
    ("path", "matrix", None, [";color=blue", ";color=blue,black", ";color=R,100,G,200"]),
    ("path", "matrix", True, [";color=blue", ";color=blue;color=black", ";R=100;G=200"]),
    ("header", "simple", None, ["blue", "blue,black", "R,100,G,200"]),
    ("header", "simple", True, ["blue", "blue,black", "R=100,G=200"]),
]


@pytest.mark.parametrize(("place", "style", "explode", "wanted"), STYLES)
def test_styles_are_those_of_the_specification(
    place: Any, style: str, explode: bool | None, wanted: list[str | None]
) -> None:
    parameter = Parameter("color", place, "color", style, explode)
    for value, text in zip(["blue", ["blue", "black"], {"R": 100, "G": 200}], wanted, strict=True):
        if text is None:
            continue
        if place == "query":
            assert (
                "&".join(parameter.encode_query(value)).replace("%5B", "[").replace("%5D", "]")
                == text
            )
        else:
            assert (
                parameter.encode_segment(value)
                if place == "path"
                else parameter.encode_header(value)
            ) == text


@given(
    st.lists(st.text(max_size=8), min_size=1, max_size=4),
    st.sampled_from(["form", "spaceDelimited", "pipeDelimited"]),
    st.booleans(),
)
def test_items_of_a_list_add_no_parameters(items: list[str], style: str, explode: bool) -> None:
    tool = one_tool(
        "https://api.example.com/x",
        f"parameters: [{{name: a, in: query, style: {style}, explode: {str(explode).lower()}}}]",
    )
    checked = tool.arguments.check({"a": items})
    if checked.problems:
        return
    pairs = parse_qsl(urlsplit(checked.values[URL_KEY]).query, keep_blank_values=True)
    assert {name for name, _ in pairs} == {"a"} and len(pairs) == (len(items) if explode else 1)
