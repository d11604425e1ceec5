"""Every other command: what it prints, how it ends, and that asking for help loads next to
nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from ferrule.cli.init.settings_template import render_settings
from ferrule.cli.root import COMMANDS, LazyGroup
from ferrule.cli.root import ferrule as root
from ferrule.core.errors import ProviderError
from ferrule.models.registry import list_providers
from ferrule.runtime.shared_options import SETTING_OPTIONS, common_options, server_options
from ferrule.storage.settings.settings import load_settings
from ferrule.storage.settings.table import SETTINGS
from ferrule_local.installed_models import installed_path

HEAVY = (
    "ferrule.engine",
    "ferrule.models",
    "ferrule.toolkits",
    "pydantic",
    "rich",
    "prompt_toolkit",
    "yaml",
    "asyncio",
)
SUBCOMMANDS = {
    "tools": ("list", "show", "call", "check", "test", "new", "promote", "import"),
    "policy": ("explain", "test", "lint"),
    "skills": ("list", "show", "check"),
    "a2a": ("list", "show", "approve", "revoke", "test"),
    "models": ("list", "probe", "pull"),
    "sessions": (
        "list",
        "show",
        "export",
        "verify",
        "resume",
        "salvage",
        "replay",
        "bundle",
        "import",
        "fork",
        "rewind",
        "compact",
        "restore",
        "archive",
        "to-case",
    ),
    "audit": ("verify", "explain", "calls", "export", "receipts", "key", "sign"),
}
HELP = [
    [],
    *([name] for name in COMMANDS),
    *([group, name] for group, names in SUBCOMMANDS.items() for name in names),
]


# ---- the root


def test_help_of_every_command_loads_no_engine_and_no_library() -> None:
    program = (
        "import sys, io, contextlib\nfrom ferrule.cli.exit_codes import run\n"
        f"for words in {HELP!r}:\n"
        "    with contextlib.redirect_stdout(io.StringIO()) as out:\n"
        "        assert run([*words, '--help']) == 0, words\n"
        "    assert 'Usage: ferrule' in out.getvalue(), words\n"
        # A module that is imported lazily has a place, and has not run.
        "    executed = [n for n, m in sys.modules.items() if type(m).__name__ != '_LazyModule']\n"
        f"    loaded = [name for name in executed if name.startswith({HEAVY!r})]\n"
        "    assert not loaded, (words, loaded)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr


FOR_THE_VERSION = {
    "ferrule._version",
    "ferrule.cli",
    "ferrule.cli.entry",
    "ferrule.cli.import_path",
    "ferrule.core",
    "ferrule.core.lazy_names",
}


def test_the_version_is_said_without_loading_click() -> None:
    program = (
        "import sys; sys.argv = ['ferrule', '--version']\nfrom ferrule.cli.entry import "
        "main\nmain()\n"
        "loaded = {m for m in sys.modules if m.startswith('ferrule.')}\n"
        f"assert 'click' not in sys.modules and loaded <= {FOR_THE_VERSION!r}, loaded"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("ferrule ")


def test_all_commands_are_in_the_help_and_all_help_is_tested(ferrule: Any) -> None:
    out = ferrule("--help").out
    assert all(f"\n  {name} " in out for name in COMMANDS)
    for name, inner in SUBCOMMANDS.items():
        group = root.get_command(click.Context(root), name)
        assert isinstance(group, click.Group) and set(group.commands) == set(inner)


def test_a_mistyped_command_or_option_names_the_nearest(ferrule: Any) -> None:
    ran = ferrule("sesions", "list")
    assert ran.code == 2 and "No such command 'sesions'. Did you mean 'sessions'?" in ran.err
    ran = ferrule("run", "--modle", "x")
    assert ran.code == 2 and "--model" in ran.err
    ran = ferrule("tools", "show", "raed_file")
    assert ran.code == 2 and "did you mean `read_file`" in ran.err
    assert isinstance(root, LazyGroup)


def test_the_options_are_those_of_the_table_of_settings() -> None:
    @common_options
    def probe() -> None: ...

    options = {
        option.name: option
        for option in click.command()(probe).params
        if isinstance(option, click.Option)
    }
    for setting in SETTINGS:
        if not setting.flag or setting.key == "workspace":
            continue
        name = setting.key.replace(".", "__")
        assert name in SETTING_OPTIONS, setting.key
        option = options[name]
        assert setting.flag in (*option.opts, *option.secondary_opts), setting.flag
        if setting.choices:
            kind = options[name].type
            assert isinstance(kind, click.Choice) and tuple(kind.choices) == setting.choices
    assert {setting.key.replace(".", "__") for setting in SETTINGS} >= SETTING_OPTIONS - {"plugins"}


@pytest.mark.parametrize(
    ("option", "least", "less"),
    [
        ("--max-turns", "1", "0"),
        ("--max-calls", "1", "0"),
        ("--max-tokens", "1", "0"),
        ("--max-cost", "0.000001", "0"),
        ("--port", "0", "-1"),
        ("--port", "65535", "65536"),
    ],
)
def test_an_option_takes_its_least_value_and_nothing_beyond(
    option: str, least: str, less: str
) -> None:
    @click.command()
    @common_options
    @server_options(8000)
    def probe(**options: Any) -> None:
        click.echo(options[option[2:].replace("-", "_")])

    for renamed in probe.params:
        renamed.name = str(renamed.name).removeprefix("limits__")
    taken = CliRunner().invoke(probe, [option, least])
    assert (taken.exit_code, float(taken.output)) == (0, float(least))
    refused = CliRunner().invoke(probe, [option, less])
    assert refused.exit_code == 2 and option in refused.output


def test_help_begins_with_what_is_needed_most() -> None:
    @click.command()
    @common_options
    def probe(**options: Any) -> None: ...

    assert [one.opts[-1] for one in probe.params[:4]] == ["--model", "--workspace", "-q", "--mode"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_for_this_program_and_completes(
    ferrule: Any, shell: str, environment: dict[str, str]
) -> None:
    script = ferrule("completion", shell).out
    assert "_FERRULE_COMPLETE" in script and "ferrule" in script
    words = {"COMP_WORDS": "ferrule sess", "COMP_CWORD": "sess" if shell == "fish" else "1"}
    ran = subprocess.run(
        [sys.executable, "-c", "from ferrule.cli.entry import main; main()"],
        env={**environment, "_FERRULE_COMPLETE": f"{shell}_complete", **words},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "sessions" in ran.stdout, ran.stderr


# ---- tools


def test_tools_are_listed_in_order_with_effect_and_risk(folder: Path, ferrule: Any) -> None:
    listed = ferrule("tools", "list").lines
    middle = listed.index("not offered to the model (`--tool-profile all` offers what ships):")
    offered, withheld = listed[: middle - 1], listed[middle + 1 :]
    assert (offered, withheld) == (sorted(offered), sorted(withheld))
    assert withheld[0].split()[0] == "create_dir"
    lines = sorted([*offered, *withheld])
    assert ferrule("tools", "list", "--tool-profile", "all").lines == lines
    read = next(line for line in lines if line.startswith("read_file "))
    assert read.split()[:3] == ["read_file", "read", "medium"]
    rows = json.loads(ferrule("tools", "list", "--json").out)
    assert [row["name"] for row in rows] == [line.split()[0] for line in lines]


def test_a_tool_is_shown_with_its_schema(folder: Path, ferrule: Any) -> None:
    out = ferrule("tools", "show", "insert_lines").out
    assert out.startswith("insert_lines  (python; side effect write, risk high)\n")
    schema = json.loads(out[out.index("{") : out.index("\nresult:")])
    assert "path" in schema["properties"]


def test_tools_can_be_left_out(folder: Path, ferrule: Any) -> None:
    assert [
        line.split()[0] for line in ferrule("tools", "list", "--allow-tool", "read_file").lines
    ] == ["read_file"]
    assert "read_file " not in ferrule("tools", "list", "--deny-tool", "read_file").out
    assert ferrule("tools", "list", "--no-tools").out == ""


def test_a_tool_is_called_through_the_gate_and_the_journal(folder: Path, ferrule: Any) -> None:
    write = ("tools", "call", "write_file", "path=new.txt", "content=x")
    ran = ferrule(*write)
    assert (ran.code, ran.out) == (4, "") and "permission_denied" in ran.err
    assert not (folder / "new.txt").exists()
    assert ferrule(*write, "--yes-to", "write_file").code == 0
    assert (folder / "new.txt").read_text() == "x"
    # Reading the workspace needs nobody, and a rule may ask for somebody again.
    read = ("tools", "call", "read_file", "path=note.txt")
    assert ferrule(*read, "--ask", "Read(note.txt)").code == 4
    ran = ferrule(*read)
    assert (ran.code, ran.out) == (0, "1: one\n2: two\n")
    assert (
        "read_file"
        in ferrule("sessions", "show", ferrule("sessions", "list").lines[0].split()[0]).out
    )
    ran = ferrule("tools", "call", "read_file", "path=no.txt", "--allow", "Read(**)", "--envelope")
    assert ran.code == 1 and json.loads(ran.out)["error_type"] == "not_found"


def test_values_are_typed_by_the_schema(folder: Path, ferrule: Any) -> None:
    reads = ("tools", "call", "read_file", "--allow", "Read(**)")
    (folder / "12").write_text("named by a number\n")
    assert ferrule(*reads, "path=12").out == "1: named by a number\n"
    ran = ferrule(*reads, "path=note.txt", "line_start=2")
    assert ran.out.startswith("2: two\n"), ran.err
    assert ferrule(*reads, "--json", '{"path": "note.txt"}').code == 0
    for wrong in (["path"], ["--json", "[1]"], ["--json", "{"]):
        assert ferrule(*reads, *wrong).code == 2
    both = ("tools", "call", "run_command", "--yes-to", "run_command")
    assert ferrule(*both, "command=echo 1").out == "1\n"
    assert ferrule(*both, 'command=["echo", "a b"]').out == "a b\n"


# ---- policy


def test_policy_says_step_by_step_what_would_be_decided(folder: Path, ferrule: Any) -> None:
    words = ("policy", "explain", "write_file", "path=a.txt", "content=x")
    asked = ferrule(*words)
    assert asked.code == 7 and any(line.startswith("ask:") for line in asked.lines)
    assert ferrule(*words, "--allow", "Edit(*.txt)").code == 0
    denied = ferrule(*words, "--deny", "Edit(*.txt)")
    assert denied.code == 4 and "Edit(*.txt)" in denied.out
    assert not (folder / "a.txt").exists()
    assert ferrule("policy", "explain", "write_file", "path=a.txt").code == 2


def test_expectations_are_tested_against_the_rules(folder: Path, ferrule: Any) -> None:
    cases = folder / "cases"
    cases.write_text(
        "# rules\n\nallow write_file path=a content=b\nask write_file path=c content=b # as it is\n"
        "deny read_file path=.env\n"
    )
    ran = ferrule("policy", "test", "cases", "--allow", "Edit(a)")
    assert (ran.code, ran.out, ran.err) == (0, "", "3 passed, 0 failed\n")
    ran = ferrule("policy", "test", "cases")
    assert ran.code == 1 and "cases:3: expected allow, got ask" in ran.out
    for wrong in (
        "perhaps read_file",
        "allow raed_file path=x",
        "allow read_file 'path",
        "allow read_file path",
    ):
        cases.write_text(f"\n{wrong}\n")
        ran = ferrule("policy", "test", "cases")
        assert ran.code == 2 and "cases:2:" in ran.err


def test_rules_that_cannot_work_are_reported(folder: Path, ferrule: Any, own_folders: Path) -> None:
    assert ferrule("policy", "lint").code == 0
    file = own_folders / "config/ferrule.yaml"
    file.parent.mkdir()
    file.write_text("permissions: {allow: [no_such_tool]}\n")
    ran = ferrule("policy", "lint")
    assert ran.code == 1 and "no_such_tool" in ran.out
    file.unlink()
    ran = ferrule("policy", "lint", "--allow", "raed_file")
    assert ran.code == 2 and "did you mean `read_file`?" in ran.err


# ---- models


def test_a_model_is_probed(folder: Path, ferrule: Any, script: Any) -> None:
    model = script({"say": "x"})
    out = ferrule("models", "probe", model).out
    assert "tools        yes\n" in out and "tool mode    native\n" in out
    made = json.loads(ferrule("models", "probe", model, "--json").out)
    assert (made["model"], made["tools"], made["tool_mode"]) == (model, True, "native")
    assert ferrule("models", "probe", "nobody:x").code == 2


def test_models_are_listed_with_what_is_missing(
    ferrule: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "http://127.0.0.1:9")
    out = ferrule("models", "list").out
    assert (
        "local:smollm2" in out
        and "· ollama:llama3.2" in out
        and "127.0.0.1:9" in out
        and "set OPENAI_API_KEY" in out
    )
    rows = json.loads(ferrule("models", "list", "--json").out)
    assert {row["model"].partition(":")[0] for row in rows} == list_providers().keys() - {
        "scripted"
    }
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "x")
    out = ferrule("models", "list").out
    assert "✓ openai:gpt-5.5" in out and "OPENAI_API_KEY is set" in out
    assert "· azure:DEPLOYMENT" in out and "set AZURE_OPENAI_ENDPOINT and" in out
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "https://house.openai.azure.com")
    row = next(row for row in ferrule("models", "list").lines if "azure:" in row)
    assert row.startswith("✓") and "https://house.openai.azure.com/openai/v1" in row


def test_pulling_what_is_here_gets_nothing_and_an_unknown_name_is_refused(ferrule: Any) -> None:
    ran = ferrule("models", "pull", "smollm9")
    assert ran.code == 2 and "smollm2" in ran.err
    try:
        place = installed_path("smollm2")
    except ProviderError:
        pytest.skip("the embedded model is not pulled")
    ran = ferrule("models", "pull")
    assert (ran.code, ran.out, ran.err) == (0, "", f"smollm2 is installed: {place}\n")


# ---- doctor, init, trust


def test_the_doctor_says_what_works_and_what_is_not_protected(
    ferrule: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = ferrule("doctor")
    assert ran.code == 0 and "sandbox.network" in ran.out
    findings = json.loads(ferrule("doctor", "--json").out)
    assert all(set(finding) == {"name", "level", "detail"} for finding in findings)
    assert {finding["level"] for finding in findings} <= {"ok", "note", "bad"}
    monkeypatch.setenv("FERRULE_STATE", "/proc/none")
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert ferrule("doctor").code == 1


@pytest.mark.parametrize("project", [True, False])
def test_every_line_of_the_template_can_be_uncommented(
    tmp_path: Path, own_folders: Path, project: bool
) -> None:
    text = render_settings(project=project)
    lines = text.splitlines()
    settings = [
        number
        for number, line in enumerate(lines)
        if line[:1] == "#" and line[1:2] not in (" ", "")
    ]
    assert len(settings) >= (20 if project else len(SETTINGS))
    file = own_folders / "config/ferrule.yaml"
    file.parent.mkdir()
    for number in settings:
        file.write_text("\n".join([*lines[:number], lines[number][1:], *lines[number + 1 :]]))
        load_settings(workspace=tmp_path, environment={})


def test_init_writes_once_and_never_through_a_link(
    folder: Path, ferrule: Any, tmp_path: Path, own_folders: Path
) -> None:
    file = folder / ".ferrule/ferrule.yaml"
    assert ferrule("init", "--settings-only").code == 0 and file.read_text() == render_settings(
        project=True
    )
    assert "A project can only tighten" in file.read_text()
    assert "A project" not in render_settings(project=False)
    file.write_text("mine")
    assert ferrule("init", "--settings-only").code == 2 and file.read_text() == "mine"
    assert ferrule(
        "init", "--settings-only", "--force"
    ).code == 0 and file.read_text() == render_settings(project=True)
    file.unlink()
    target = tmp_path / "elsewhere"
    file.symlink_to(target)
    assert ferrule("init", "--settings-only").code == 2
    assert ferrule("init", "--settings-only", "--force").code == 0
    assert not target.exists() and not file.is_symlink()
    file.unlink()
    file.parent.rmdir()
    file.parent.symlink_to(tmp_path)
    assert ferrule("init", "--settings-only").code == 2
    assert ferrule("init", "--user").code == 0
    assert (own_folders / "config/ferrule.yaml").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("limits.max_trns: 3\n", "ferrule.yaml:1:1: unknown setting `limits.max_trns`"),
        ("journal: {path: x}\n", "cannot be set by a repository"),
    ],
)
def test_what_would_be_wrong_with_the_settings_is_said_before_they_are_trusted(
    folder: Path, ferrule: Any, text: str, said: str
) -> None:
    file = folder / ".ferrule/ferrule.yaml"
    file.parent.mkdir()
    file.write_text(text)
    for ran in (ferrule("trust"), ferrule("trust", "--yes")):
        assert "commands will not run here with it" in ran.err and said in ran.err
    assert ferrule("trust", "--status").out == "trusted\n"


def test_trust_is_shown_given_by_content_lost_by_a_change_and_taken_back(
    folder: Path, ferrule: Any
) -> None:
    assert ferrule("trust", "--status").out == "absent\n"
    assert ferrule("trust", "--yes").code == 2
    file = folder / ".ferrule/ferrule.yaml"
    file.parent.mkdir()
    file.write_text("limits.max_turns: 3\n")
    ran = ferrule("trust")
    assert ran.code == 7 and "+limits.max_turns: 3" in ran.err
    assert ferrule("trust", "--status").out == "untrusted\n"
    assert ferrule("trust", "--yes").code == 0
    assert ferrule("trust", "--status").out == "trusted\n"
    file.write_text("limits.max_turns: 2\n\x1b[2J")
    ran = ferrule("trust")
    assert ferrule("trust", "--status").out == "changed\n"
    assert "-limits.max_turns: 3" in ran.err and "\x1b" not in ran.err
    file.write_text("limits.max_turns: 3\n")
    assert "will not run" not in ferrule("trust").err
    assert ferrule("trust", "--revoke").err.endswith("is no longer trusted\n")
    assert ferrule("trust", "--status").out == "untrusted\n"


# ---- sessions


def test_sessions_are_listed_shown_exported_and_verified(
    folder: Path, ferrule: Any, script: Any, a_call: Any
) -> None:
    assert ferrule("sessions", "list").out == ""
    model = script(a_call("list_files"), {"say": "One file."})
    ferrule("run", "-m", model, "what is\x1b[2J here?")
    line = ferrule("sessions", "list").lines[0]
    session = line.split()[0]
    assert "done" in line and " 1 run " in line and "what is\\x1b[2J here?" in line
    rows = json.loads(ferrule("sessions", "list", "--json").out)
    assert rows[0]["session"].startswith(session) and rows[0]["model"] == model
    shown = ferrule("sessions", "show", session).out
    assert "list_files" in shown and "One file." in shown
    assert ferrule("sessions", "export", session).out.startswith("# Session ")
    assert "> THE END <" in ferrule("sessions", "export", session, "--format", "spmd").out
    rows = [
        json.loads(row) for row in ferrule("sessions", "export", session, "--format", "jsonl").lines
    ]
    assert len(rows) > 5
    ran = ferrule("sessions", "export", session, "--format", "jsonl", "-o", "out.jsonl")
    assert ran.out == "" and len((folder / "out.jsonl").read_text().splitlines()) == len(rows)
    ran = ferrule("sessions", "verify", session)
    assert ran.code == 0 and "events verify" in ran.out
    assert ferrule("sessions", "show", "feedfeed").code == 2


def test_sessions_are_found_by_words_of_their_messages_and_by_folder(
    folder: Path, ferrule: Any, script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ferrule("run", "-m", script({"say": "Heron and egret."}), "which birds?")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    ferrule("run", "-m", script({"say": "Oak."}), "which trees?")
    trees, birds = ferrule("sessions", "list").lines
    assert "which trees?" in trees and str(folder) not in trees and str(elsewhere) not in trees
    assert birds.endswith(f"which birds?  ({folder})")
    assert ferrule("sessions", "list", "--search", "EGRET which").lines == [birds]
    assert ferrule("sessions", "list", "--search", f"oak {elsewhere}").lines == [trees]
    assert ferrule("sessions", "list", "--search", "oak egret").lines == []
    assert ferrule("sessions", "list", "--here").lines == [trees]


def test_a_session_that_hit_a_limit_is_resumed(
    folder: Path, ferrule: Any, script: Any, a_call: Any
) -> None:
    model = script(a_call("list_files"), {"say": "at last"})
    ferrule("run", "-m", model, "--max-turns", "1", "go")
    session = ferrule("sessions", "list").lines[0].split()[0]
    ran = ferrule("sessions", "resume", session, "-m", script({"say": "at last"}), "go", "on")
    assert (ran.code, ran.out) == (0, "at last\n")
    ran = ferrule("sessions", "resume", session, "-m", script())
    assert (ran.code, ran.out) == (0, "") and "nothing was left open" in ran.err


def test_a_damaged_session_is_named_and_the_journal_salvaged(
    folder: Path, ferrule: Any, script: Any, own_folders: Path
) -> None:
    import sqlite3

    assert ferrule("sessions", "salvage", "--yes").code == 1
    ferrule("run", "-m", script({"say": "kept"}), "one")
    ferrule("run", "-m", script({"say": "hurt"}), "two")
    hurt, kept = (line.split()[0] for line in ferrule("sessions", "list").lines)
    with closing(sqlite3.connect(own_folders / "state/journal.db")) as db, db:
        db.execute("UPDATE records SET body = replace(body, 'hurt', 'harm')")
    db.close()
    assert ferrule("sessions", "verify", hurt).code == 1
    assert ferrule("sessions", "verify", kept).code == 0
    assert ferrule("sessions", "salvage").code == 7
    ran = ferrule("sessions", "salvage", "--yes")
    assert ran.code == 0 and "lost:" in ran.err and "kept; the old file is" in ran.out
    assert ferrule("sessions", "verify", kept).code == 0


@pytest.mark.usefixtures("rust_runtimes")
def test_plugins_are_switched_on_by_settings_and_by_an_option(
    ferrule: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = ferrule("tools", "list").out
    assert "math::calc" not in usual and "run_code" not in usual
    called = ferrule(
        "tools", "call", "math::evaluate", "expression=2^10 + 1/2", "--plugin", "typed"
    )
    assert called.code == 0
    assert "1024.5" in called.out
    (folder / "a.txt").write_text("one\ntwo\n")
    script = 'len(read_file(path="a.txt"))'
    monkeypatch.setenv("FERRULE_PLUGINS", "code,git.tools=read")
    listed = ferrule("tools", "list").out
    assert "run_code" in listed and "git_status" in listed
    ran = ferrule("tools", "call", "run_code", f"code={script}", "--allow", "Read(**)")
    assert ran.code == 0, ran.err


def test_a_plugin_that_there_is_not_is_named(ferrule: Any, folder: Path) -> None:
    ran = ferrule("tools", "list", "--plugin", "tiped")
    assert ran.code == 2
    assert "`tiped`" in ran.err and "did you mean `typed`?" in ran.err
