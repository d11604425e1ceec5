"""Tables of the pages against the code: every option, error type and exit code, and no other."""

from __future__ import annotations

import ast
import dataclasses
import re
from typing import Any, get_args

import pytest
from source import ROOT

import ferrule
from ferrule.cli.exit_codes import __doc__ as exit_codes
from ferrule.connectors.a2a import configuration as a2a_entries
from ferrule.connectors.http import manifest
from ferrule.connectors.mcp import configuration as mcp_entries
from ferrule.core.calls import Refuser
from ferrule.core.errors import FerruleError
from ferrule.core.messages import REFUSED_CODE
from ferrule.engine.hooks.events import PAYLOADS
from ferrule.extensions.hooks import conditions
from ferrule.extensions.tool_files import parameters, tool_file
from ferrule.storage import AuditedCall
from ferrule.toolkits.commands import verdict
from ferrule.toolkits.commands.json_output import CommandFailed
from ferrule.toolkits.commands.policy import Behavior, CommandOptions
from ferrule.toolkits.commands.request import CommandRequest
from ferrule.toolkits.packs import RunCommandOptions, SearchOptions
from ferrule.tools.pack_options import PackOptions

KINDS = (PackOptions, SearchOptions, RunCommandOptions, Behavior)
DEFAULTS = {
    field.name: field.default
    for kind in (Behavior, CommandOptions)
    for field in dataclasses.fields(kind)
}


def table_after(page: str, mark: str) -> dict[str, list[str]]:
    """The rows of the first table behind a text, by the name in their first cell."""
    text = (ROOT / page).read_text(encoding="utf-8")
    assert mark in text, f"{page} has no {mark}"
    found: dict[str, list[str]] = {}
    for line in text.partition(mark)[2].splitlines():
        if not line.startswith("|"):
            if found:
                break
            continue
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for name in re.findall(r"`([^`]+)`", cells[0]) or re.findall(r"\d+", cells[0]):
            found[name] = cells[1:]
    return found


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_table_of_options_has_every_option_with_its_default(kind: Any) -> None:
    rows = table_after("docs/built-in-tools.md", f"<!-- options: {kind.__name__} -->")
    assert sorted(rows) == sorted(kind.__annotations__)
    for name, (default, _) in rows.items():
        shown = default.strip("`")
        if shown.isdigit() and name in DEFAULTS:
            assert int(shown) == DEFAULTS[name], name
        if shown in ("True", "False") and name in DEFAULTS:
            assert shown == str(DEFAULTS[name]), name


@pytest.mark.parametrize("kind", (parameters, tool_file), ids=lambda kind: kind.__name__)
def test_the_page_about_tool_files_has_every_key(kind: Any) -> None:
    mark = f"<!-- keys: {kind.__name__.rpartition('.')[2]}.KEYS -->"
    assert sorted(table_after("docs/write-a-tool.md", mark)) == sorted(kind.KEYS)


def test_the_page_about_packs_has_all_that_a_command_policy_gets_and_may_answer() -> None:
    text = (ROOT / "docs/built-in-tools.md").read_text(encoding="utf-8")
    section = text.partition("#### What `command_policy` gets and answers")[2].partition("```")[0]
    told, _, answers = section.partition("| answer | effect |")
    fields = {*CommandRequest().to_arguments(), "argv"}
    assert fields <= set(re.findall(r"`(\w+)`", told))
    assert set(re.findall(r'"(\w+)": ', answers)) == set(verdict._KEYS)


def test_the_page_about_the_audit_has_every_field_of_a_record() -> None:
    rows = table_after("docs/operators.md", "A record (`AuditedCall`, as JSON with `--json`)")
    fields = {field.name for field in dataclasses.fields(AuditedCall)}
    assert set(rows) == fields | {"settled_by", "schema"}
    told = rows["refused_by"][0].partition("; empty")[0]
    assert set(re.findall(r"`(\w+)`", told)) == set(get_args(Refuser))


def test_the_page_about_hooks_has_every_event_and_function_of_conditions() -> None:
    rows = table_after("docs/permissions.md", "overrides no rule.")
    assert set(rows) == {*PAYLOADS, "custom.*"}
    functions = table_after("docs/permissions.md", "comparisons, `in`, lists, and these functions:")
    assert {one.partition("(")[0] for one in functions} == set(conditions._FUNCTIONS)


def test_the_page_about_tool_search_has_every_option() -> None:
    rows = table_after(
        "docs/context.md", "| a mapping, or `ToolSearch(...)` | the fields below |\n"
    )
    assert set(rows) == {field.name for field in dataclasses.fields(ferrule.ToolSearch)}


def test_the_page_about_servers_has_every_key_of_a_manifest() -> None:
    page = "docs/tools-from-servers.md"
    assert set(table_after(page, "#### The file")) >= set(manifest.KEYS)
    told = table_after(page, "| key of a tool | content |")
    assert set(told) >= set(manifest.TOOL_KEYS)


def test_the_page_about_servers_has_every_key_of_an_entry() -> None:
    page = "docs/tools-from-servers.md"
    for mark, keys in (
        ("The keys of an entry, in your settings and in the JSON files:", mcp_entries.KEYS),
        ("| `ferrule a2a revoke weather` | withdraw the approval |\n", a2a_entries.KEYS),
    ):
        named = {one.partition(":")[0] for one in table_after(page, mark)}
        assert named >= set(keys)


def test_the_page_about_errors_has_every_type_of_error() -> None:
    rows = table_after("docs/errors.md", "| type | when |")
    assert list(rows) == [str(one) for one in ferrule.ErrorType if one != "none"]


def test_the_page_about_errors_has_every_exception_with_its_exit_code() -> None:
    rows = table_after("docs/errors.md", "| exception | exit code | when |")
    public = {
        name: value
        for name in ferrule.__all__
        if isinstance(value := getattr(ferrule, name), type)
        and issubclass(value, FerruleError)
        and value is not FerruleError
    }
    assert set(public) <= set(rows)
    for name, value in {**public, "CommandFailed": CommandFailed}.items():
        assert rows[name][0] == str(value.exit_code), name


def test_the_page_about_providers_has_every_code_of_an_error() -> None:
    rows = table_after("docs/providers.md", "| code of an error | when |")
    codes = {REFUSED_CODE}
    for file in (ROOT / "src/ferrule/models").rglob("*.py"):
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "ProviderError":
                given = {one.arg: one.value for one in call.keywords}.get("code")
                if isinstance(given, ast.Constant):
                    codes.add(str(given.value))
    assert {"timeout", "http_404"} < codes
    assert codes - {"http_404"} == set(rows) - {"http_STATUS", "http_503"}


def test_the_page_about_errors_has_every_exit_code() -> None:
    rows = table_after("docs/errors.md", "| code | meaning |")
    named = set(re.findall(r"\b(\d+) [a-zS]", (exit_codes or "").partition("Exit codes:")[2]))
    assert set(rows) >= named - {"124"}, "124 is that of the program `timeout`"
    assert {str(one.exit_code) for one in FerruleError.__subclasses__()} <= set(rows)
