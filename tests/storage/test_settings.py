"""Settings: every layer, every refusal, and what a repository cannot do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.core.errors import ConfigError
from ferrule.core.limits import Limits
from ferrule.storage import paths
from ferrule.storage.settings.merge import MergedSettings
from ferrule.storage.settings.mistakes import Mistakes
from ferrule.storage.settings.settings import PROJECT_FILE, Settings, load_settings, read_trusted
from ferrule.storage.settings.table import (
    ALIASES,
    OTHER_VARIABLES,
    SETTINGS,
)
from ferrule.storage.settings.values import read_own_file
from ferrule.storage.trust import ConfigurationSnapshot, TrustStore


class Case:
    """A workspace and a person's own folder, with what is written into them."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "work"
        self.root.mkdir()
        self.user_file = paths.config() / "ferrule.yaml"

    def user(self, text: str) -> Case:
        self.user_file.parent.mkdir(parents=True, exist_ok=True)
        self.user_file.write_text(text)
        return self

    def project(self, text: str, *, trusted: bool = True) -> Case:
        file = self.root / PROJECT_FILE
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        if trusted:
            TrustStore().trust(self.root)
        return self

    def load(
        self, flags: Mapping[str, Any] | None = None, environment: Mapping[str, str] | None = None
    ) -> Settings:
        return load_settings(workspace=self.root, flags=flags, environment=environment or {})


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


@pytest.mark.parametrize("place", [".ferrule", "conf", ".", "../elsewhere/.ferrule"])
def test_a_folder_of_a_repository_is_nobodys_own_settings(
    case: Case, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = case.root / place
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ferrule.yaml").write_text("sandbox:\n  mode: 'off'\n")
    link = case.root.parent / "own"
    link.symlink_to(folder)
    for named in (folder, link):
        monkeypatch.setenv("FERRULE_CONFIG", str(named))
        with pytest.raises(ConfigError) as raised:
            case.load()
        assert "are not your own" in raised.value.detail
        assert "FERRULE_CONFIG" in raised.value.hint


def test_without_any_file_the_defaults_hold_and_nothing_is_written(
    case: Case, own_folders: Path
) -> None:
    settings = case.load()
    assert settings.limits == Limits(max_turns=200)
    assert (settings.model, settings.mode, settings["results"]) == (
        "",
        "default",
        "value",
    )
    assert settings["commands.shell"] is None
    assert {key: settings[key] for key in settings.values} == {
        setting.key: setting.default
        for setting in SETTINGS
        if setting.kind not in ("models", "providers", "folders")
    }
    assert settings.journal == own_folders / "state" / "journal.db"
    assert str(settings.origin("model")) == "default"
    assert list(own_folders.iterdir()) == []


def test_the_stronger_layer_wins_and_says_where_it_stands(case: Case) -> None:
    case.user("model: openai:a\nresults: envelope\ntool_mode: text\nlimits:\n  max_turns: 9\n")
    case.project("results: value\ntool_mode: native\n")
    settings = case.load(
        {"model": "openai:d"}, {"FERRULE_MODEL": "openai:c", "FERRULE_TOOL_MODE": "none"}
    )
    assert [settings[key] for key in ("model", "tool_mode", "results", "limits.max_turns")] == [
        "openai:d",
        "none",
        "value",
        9,
    ]
    origins = [
        str(settings.origin(key)) for key in ("model", "tool_mode", "results", "limits.max_turns")
    ]
    assert origins == [
        "flags (--model)",
        "environment (FERRULE_TOOL_MODE)",
        f"project ({case.root / PROJECT_FILE}:1:10)",
        f"user ({case.user_file}:5:14)",
    ]


def test_lists_that_extend_gather_the_items_of_all_layers(case: Case) -> None:
    case.user("permissions: {deny: ['Bash(rm *)']}\nsecrets: {extend: [a.secret]}\n")
    case.project("permissions: {deny: [git_push], allow: ['Read(docs/**)']}\nsecrets: [b.secret]\n")
    settings = case.load(
        {"permissions.deny": ["write_file"]}, {"FERRULE_SECRETS_EXTEND": "c.secret, d.secret"}
    )
    assert settings["permissions.deny"] == ("Bash(rm *)", "git_push", "write_file")
    assert settings["secrets.extend"] == ("a.secret", "b.secret", "c.secret", "d.secret")
    assert [(rule.text, rule.list, rule.layer) for rule in settings.rules] == [
        ("write_file", "deny", "flags"),
        ("git_push", "deny", "project"),
        ("Read(docs/**)", "allow", "project"),
        ("Bash(rm *)", "deny", "user"),
    ]


WRONG = {
    "unknown key": (
        "limits:\n  max_turn: 3\n",
        "2:3: unknown setting `limits.max_turn`",
        "`limits.max_turns`",
    ),
    "unknown group": ("limit:\n  max_turns: 3\n", "1:1: unknown setting `limit`", ""),
    "key in the wrong group": (
        "max_turns: 3\n",
        "1:1: unknown setting `max_turns`",
        "`limits.max_turns`",
    ),
    "text for a number": (
        "limits: {max_turns: many}\n",
        "1:21: `limits.max_turns` = `many`: must be a whole number",
        "",
    ),
    "quoted number": (
        'limits: {max_turns: "3"}\n',
        "`limits.max_turns` = `3`: must be a whole number",
        "",
    ),
    "true for a number": ("limits: {max_turns: yes}\n", "= `true`: must be a whole number", ""),
    "fraction": ("limits: {max_turns: 1.5}\n", "must be a whole number", ""),
    "nothing": ("limits: {max_turns: }\n", "= `nothing`: must be a whole number", ""),
    "too low": ("limits: {max_turns: 0}\n", "must be at least 1", ""),
    "too high": ("limits: {max_output_bytes: 70000}\n", "must be at most 65536", ""),
    "no time": ("limits: {max_seconds: 0}\n", "must be more than 0", ""),
    "odd time": (
        "limits: {max_seconds: 5 weeks}\n",
        "must be seconds, or a time like `90s`, `5m`",
        "",
    ),
    "number for text": ("model: 5\n", "1:8: `model` = `5`: must be text", ""),
    "blank text": ("model: '  '\n", "must be text", ""),
    "a NUL in a text": ('journal: {path: "a\\0b"}\n', "`journal.path` holds a NUL character", ""),
    "a NUL in a list": ('sandbox: {readable: ["/a\\0b"]}\n', "holds a NUL character", ""),
    "a list in a list": (
        "permissions: {allow: [[Read]]}\n",
        "`permissions.allow` = a list: must be text",
        "",
    ),
    "an expression that is none": (
        'redaction: {patterns: ["("]}\n',
        "1:24: `redaction.patterns`: ",
        "",
    ),
    "odd choice": ("mode: yolo\n", "must be one of `default`, `acceptEdits`", ""),
    "text for a list": (
        "tools: {allowed: read_file}\n",
        "1:18: `tools.allowed` = `read_file`: must be a list",
        "",
    ),
    "number in a list": (
        "tools:\n  allowed:\n    - a\n    - 5\n",
        "4:7: `tools.allowed` = `5`: must be text",
        "",
    ),
    "text for a flag": ("tools: {enabled: maybe}\n", "must be true or false", ""),
    "value for a group": ("limits: 5\n", "1:9: `limits` must contain `key: value` lines", ""),
    "a list as file": ("- model\n", "1:1: the file must contain `key: value` lines", ""),
    "set twice": (
        "tools: {max_output_bytes: 300}\nlimits: {max_output_bytes: 400}\n",
        "2:10: `limits.max_output_bytes` is set twice",
        "1:27",
    ),
    "rule": (
        "permissions:\n  allow:\n    - Read(a)\n    - 'Bash(npm'\n",
        "4:7: rule `Bash(npm`",
        "",
    ),
    "unknown model key": (
        "models: {'ollama:x': {max_turn: 3}}\n",
        "1:23: unknown setting `models.ollama:x.max_turn`",
        "`models.ollama:x.max_turns`",
    ),
    "model key of a wrong type": (
        "models: {'ollama:x': {temperature: hot}}\n",
        "`models.ollama:x.temperature` = `hot`: must be a number",
        "",
    ),
    "models as a list": ("models: [a]\n", "`models` = a list: must contain", ""),
    "a key in a file": (
        "providers: {openai: {api_key: sk-123}}\n",
        "1:22: keys must not be written in files",
        "api_key_env",
    ),
    "odd action": (
        "commands: {permissions: {src: [fly]}}\n",
        "`commands.permissions`: found `fly`",
        "`read`, `write`",
    ),
    "broken YAML": ("model: [a\nb: c", "2:2: not YAML", ""),
}


@pytest.mark.parametrize(("text", "message", "hint"), WRONG.values(), ids=list(WRONG))
def test_a_wrong_setting_is_an_error_with_file_line_and_column(
    case: Case, text: str, message: str, hint: str
) -> None:
    case.user(text)
    with pytest.raises(ConfigError) as found:
        case.load()
    assert found.value.detail.startswith(f"{case.user_file}:") and message in found.value.detail
    assert hint in found.value.hint
    assert case.user_file.read_text() == text


@pytest.mark.parametrize(
    ("flags", "environment", "message"),
    [
        (
            {"limits.max_turns": "x"},
            {},
            "--max-turns: `limits.max_turns` = `x`: must be a whole number",
        ),
        ({"limits.max_turns": 0}, {}, "--max-turns: `limits.max_turns` = 0: must be at least 1"),
        ({"limits.max_turn": 1}, {}, "flags: unknown setting `limits.max_turn`"),
        ({"mode": ["auto"]}, {}, "--mode: `mode` = a list: must be one of"),
        ({"permissions.allow": "Bash("}, {}, "--allow: rule `Bash(`"),
        (
            {},
            {"FERRULE_COMMANDS_SHELL": "perhaps"},
            "FERRULE_COMMANDS_SHELL: `commands.shell` = `perhaps`",
        ),
        ({}, {"FERRULE_TOOLS_ALLOWED": "[a, 5]"}, "`tools.allowed` = `5`: must be text"),
    ],
)
def test_flags_and_variables_are_checked_alike(
    case: Case, flags: dict[str, Any], environment: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError) as found:
        case.load(flags, environment)
    assert message in found.value.detail


def test_text_of_flags_and_variables_becomes_values(case: Case) -> None:
    flags = {
        "limits.max_seconds": "1.5m",
        "tools.enabled": "no",
        "tools.allowed": None,
        "model": "a:1",
        "workspace": case.root,
    }
    environment = {
        "FERRULE_TOOLS_ALLOWED": '["a,b", c]',
        "FERRULE_COMMANDS_RUN_TIMEOUT": "90",
        "FERRULE_LIMITS_MAX_TOKENS": "1_000",
        "FERRULE_STATE": "/nowhere",
    }
    settings = case.load(flags, environment)
    assert settings.limits.max_seconds == 90.0 and settings.limits.max_tokens == 1000
    assert settings["tools.enabled"] is False and settings["commands.run_timeout"] == 90.0
    assert settings["tools.allowed"] == ("a,b", "c") and settings.notices == ()


def test_a_variable_that_is_nearly_a_setting_is_pointed_out(case: Case) -> None:
    notices = case.load(environment={"FERRULE_LIMITS_MAXTURNS": "3", "FERRULE_BENCH": "1"}).notices
    assert notices == (
        "FERRULE_LIMITS_MAXTURNS is not a setting; did you mean `FERRULE_LIMITS_MAX_TURNS`?",
    )


def test_the_settings_of_requirement_000_work_as_written_there(case: Case) -> None:
    case.user("""
tools:
  enabled: true
  fallback_to_natural_language: true
  max_tool_calls_per_turn: 7
  max_output_bytes: 1024
  allowed_tools:
    - read_file
    - run_command
    - search_files
models:
  llama3.2:latest:
    tools_enabled: true
    max_tool_calls_per_turn: 5
  mistral:latest:
    tools_enabled: false
    max_tool_calls_per_turn: 10
security:
  safe_mode: false
  allowed_commands: [ls]
  run_timeout: 5m
  permissions: {src: [read, write]}
""")
    settings = case.load()
    assert (settings.limits.max_turns, settings.limits.max_output_bytes) == (7, 1024)
    assert settings["tools.allowed"] == ("read_file", "run_command", "search_files")
    llama, mistral = (
        settings.for_model("ollama:llama3.2:latest"),
        settings.for_model("ollama:mistral:latest"),
    )
    assert (llama.limits.max_turns, llama.tools_enabled) == (5, True)
    assert (mistral.limits.max_turns, mistral.tools_enabled) == (10, False)
    assert settings["commands.safe_mode"] is False and settings["commands.run_timeout"] == 300.0
    assert settings["commands.permissions"] == (("src", ("read", "write")),)


def test_a_models_own_settings_hold_for_it_alone(case: Case) -> None:
    case.user("""
tool_mode: native
models:
  "ollama:small": {tool_mode: constrained, num_ctx: 8192, temperature: 0, thinking: low, timeout: 2m}
  "small": {seed: 7, num_ctx: 4096}
""")
    settings = case.load()
    own, bare, other = (
        settings.for_model(name) for name in ("ollama:small", "lmstudio:small", "ollama:big")
    )
    assert (own.tool_mode, own.num_ctx, own.temperature, own.thinking, own.timeout, own.seed) == (
        "constrained",
        8192,
        0.0,
        "low",
        120.0,
        7,
    )
    assert (bare.tool_mode, bare.num_ctx, bare.seed) == ("native", 4096, 7)
    assert (other.tool_mode, other.num_ctx, other.limits) == (
        "native",
        None,
        Limits(max_turns=200),
    )


def test_a_flag_is_stronger_than_a_models_entry_in_a_file(case: Case) -> None:
    case.user("models: {'a:b': {max_turns: 20, tool_mode: text}}")
    assert case.load().for_model("a:b").limits.max_turns == 20
    chosen = case.load({"limits.max_turns": 3, "tool_mode": "none"}).for_model("a:b")
    assert (chosen.limits.max_turns, chosen.tool_mode) == (3, "none")


def test_a_provider_is_where_the_person_says(case: Case) -> None:
    case.user(
        "providers: {openai: {base_url: 'https://gate.example/v1', api_key_env: GATE_KEY}, "
        "anthropic: {ca_bundle: ~/our.pem}}"
    )
    provider = case.load().provider("openai")
    assert (provider.base_url, provider.api_key_env, provider.ca_bundle) == (
        "https://gate.example/v1",
        "GATE_KEY",
        None,
    )
    assert case.load().provider("anthropic").ca_bundle == Path.home() / "our.pem"
    assert case.load().provider("other").base_url == ""


# ---- a repository


@pytest.mark.proves("trust.inert")
def test_an_untrusted_repository_changes_nothing_and_this_is_said(case: Case) -> None:
    case.project("model: evil:x\nplugins: {git: false}\n", trusted=False)
    settings = case.load()
    assert (settings.model, settings["plugins.git"]) == ("", True)
    assert len(settings.notices) == 1
    assert "is not trusted and has no effect" in settings.notices[0]


@pytest.mark.proves("trust.change-asks-again")
def test_a_trusted_repository_that_changed_does_nothing_again(case: Case) -> None:
    case.project("plugins: {git: false}\n")
    assert not case.load()["plugins.git"]
    case.project("plugins: {git: {tools: read}}\n", trusted=False)
    settings = case.load()
    assert settings["plugins.git"] and "was changed since" in settings.notices[0]


FORBIDDEN = {
    "model": "model: evil:x",
    "mode acceptEdits": "mode: acceptEdits",
    "mode auto": "mode: auto",
    "mode sandboxed": "mode: sandboxed",
    "mode bypass": "mode: bypassPermissions",
    "address": "providers: {openai: {base_url: 'https://evil.example'}}",
    "variable of a key": "providers: {openai: {api_key_env: AWS_SECRET_ACCESS_KEY}}",
    "journal": "journal: /tmp/elsewhere.db",
    "durability": "durability: process",
    "environment of children": "env: {allow: [AWS_SECRET_ACCESS_KEY]}",
    "workspace": "workspace: /",
    "path permissions": "commands: {permissions: {/: [read, write, exec, delete]}}",
}


@pytest.mark.proves("settings.never-from-a-repository", "gate.project-cannot-bypass")
@pytest.mark.parametrize("text", FORBIDDEN.values(), ids=list(FORBIDDEN))
def test_some_settings_never_come_from_a_repository(case: Case, text: str) -> None:
    case.project(text)
    with pytest.raises(ConfigError) as found:
        case.load()
    assert found.value.code == "setting_not_for_projects"
    assert found.value.detail.startswith(f"{case.root / PROJECT_FILE}:1:")


LOOSENED = {
    "mode: default": "mode",
    "permissions: {reads: allow}": "permissions.reads",
    "sandbox: {mode: ask}": "sandbox.mode",
    "limits: {max_turns: 50}": "limits.max_turns",
    "limits: {max_seconds: null}": "limits.max_seconds",
    "tools: {max_output_bytes: 65536}": "limits.max_output_bytes",
    "tools: {enabled: true}": "tools.enabled",
    "tools: {allowed: [read_file, run_command]}": "tools.allowed",
    "commands: {safe_mode: false}": "commands.safe_mode",
    "commands: {allowed_commands: [ls, bash]}": "commands.allowed_commands",
    "commands: {shell: true}": "commands.shell",
    "commands: {shell: null}": "commands.shell",
    "commands: {run_timeout: 1h}": "commands.run_timeout",
    "models: {'a:b': {max_turns: 50}}": "models.a:b.max_turns",
    "models: {'a:b': {tools_enabled: true}}": "models.a:b.tools_enabled",
}


@pytest.mark.proves("settings.repository-only-tightens")
def test_a_repository_cannot_open_a_shell_that_the_machine_decides_about(case: Case) -> None:
    case.project("commands: {shell: true}")
    assert case.load()["commands.shell"] is None
    case.project("commands: {shell: false}")
    assert case.load()["commands.shell"] is False


@pytest.mark.proves("settings.repository-only-tightens")
@pytest.mark.parametrize(("text", "key"), LOOSENED.items(), ids=list(LOOSENED.values()))
def test_a_repository_cannot_loosen_what_the_person_set(case: Case, text: str, key: str) -> None:
    case.user("""
mode: plan
permissions: {reads: ask}
sandbox: {mode: required}
limits: {max_turns: 5, max_seconds: 60, max_output_bytes: 1000}
tools: {enabled: false, allowed: [read_file]}
commands: {safe_mode: true, allowed_commands: [ls, cat], shell: false}
""")
    before = case.load()
    case.project(text)
    after = case.load()
    assert any(f"`{key}`" in notice and PROJECT_FILE in notice for notice in after.notices)
    kept = after.values.get(key)
    narrowed = {"tools.allowed": ("read_file",), "commands.allowed_commands": ("ls",)}
    if key.startswith("models."):
        assert after.for_model("a:b") == before.for_model("a:b")
    else:
        assert kept == narrowed.get(key, before[key])


def test_a_repository_can_tighten(case: Case) -> None:
    case.project("""
limits: {max_turns: 3, max_seconds: 30}
tools: {allowed: [read_file], denied: [write_file]}
commands: {allowed_commands: [ls], run_timeout: 10s}
models: {'a:b': {max_turns: 2, num_ctx: 4096}}
reserved: [infra]
""")
    settings = case.load()
    assert settings.notices == ()
    assert (settings.limits.max_turns, settings.limits.max_seconds) == (3, 30.0)
    assert (settings["tools.allowed"], settings["commands.allowed_commands"]) == (
        ("read_file",),
        ("ls",),
    )
    assert (
        settings.for_model("a:b").limits.max_turns == 2
        and settings.for_model("a:b").num_ctx == 4096
    )
    assert settings["reserved.extend"] == ("infra",)


numbers = st.one_of(st.none(), st.integers(1, 300))


@pytest.mark.proves("settings.repository-only-tightens")
@given(
    name=st.sampled_from(("a:b", "local:b")),
    user=numbers,
    project=numbers,
    model=numbers,
    project_model=numbers,
)
def test_adding_a_repository_never_raises_a_limit(
    name: str,
    user: int | None,
    project: int | None,
    model: int | None,
    project_model: int | None,
) -> None:
    def text(limit: int | None, own: int | None) -> bytes:
        lines = [f"limits: {{max_turns: {limit}}}"] if limit else []
        lines += [f"models: {{'{name}': {{max_turns: {own}}}}}"] if own else []
        return "\n".join(lines).encode()

    def merged(with_project: bool) -> Settings:
        layers = MergedSettings()
        layers.add_own(read_own_file(text(user, model), Path("user.yaml"), Mistakes()))
        if with_project:
            files = {PROJECT_FILE: text(project, project_model)}
            seen = ConfigurationSnapshot("/work", "trusted", "", files)
            layers.add_trusted(read_trusted(Path("/work"), seen, Mistakes()))
        return Settings(layers.values, layers.origins)

    without, with_it = merged(False), merged(True)
    assert with_it.limits.turns <= without.limits.turns
    before, after = (one.for_model(name).limits.turns for one in (without, with_it))
    assert after <= before


def test_whether_reads_ask_is_no_list_of_rules(case: Case) -> None:
    case.user("permissions: {reads: ask, deny: ['Read(x)']}\n")
    settings = case.load()
    assert settings["permissions.reads"] == "ask"
    assert [rule.text for rule in settings.rules.deny] == ["Read(x)"]


def test_turns_are_those_of_the_kind_of_model_unless_the_person_sets_them(case: Case) -> None:
    def turns() -> tuple[int, ...]:
        settings = case.load()
        return tuple(settings.for_model(name).limits.turns for name in ("local:b", "openai:b"))

    assert turns() == (10, 200)
    case.project("limits: {max_turns: 50}\n")
    assert turns() == (10, 50)
    case.user("limits: {max_turns: 60}\n")
    case.project("limits: {}\n")
    assert turns() == (60, 60)


# ---- the table


def test_names_flags_and_variables_are_unique() -> None:
    for names in (
        [setting.key for setting in SETTINGS],
        [setting.flag for setting in SETTINGS if setting.flag],
        [setting.variable for setting in SETTINGS if setting.variable],
    ):
        assert len(names) == len(set(names))
    assert set(ALIASES.values()) <= {setting.key for setting in SETTINGS}


def test_explain_lists_every_value_with_its_origin(case: Case) -> None:
    case.user("models: {'a:b': {seed: 7}}\nlimits: {max_turns: 4}\n")
    lines = {key: (value, str(origin)) for key, value, origin, _ in case.load().explain()}
    assert lines["limits.max_turns"] == (4, f"user ({case.user_file}:2:21)")
    assert lines["models.a:b.seed"] == (7, f"user ({case.user_file}:1:24)")
    assert len(lines) == len(SETTINGS) - 3 + 1


def test_an_unknown_key_asked_by_a_program_is_an_error(case: Case) -> None:
    with pytest.raises(ConfigError, match=r"limits\.max_turn"):
        case.load()["limits.max_turn"]


def test_the_workspace_is_the_one_that_the_strongest_layer_names(
    case: Case, tmp_path: Path
) -> None:
    case.user(f"workspace: {tmp_path / 'one'}")
    for name in ("one", "two", "three"):
        (tmp_path / name).mkdir()
    assert load_settings(environment={}).workspace == tmp_path / "one"
    environment = {"FERRULE_WORKSPACE": str(tmp_path / "two")}
    assert load_settings(environment=environment).workspace == tmp_path / "two"
    assert (
        load_settings(
            environment=environment, flags={"workspace": str(tmp_path / "three")}
        ).workspace
        == tmp_path / "three"
    )


def test_a_settings_file_that_cannot_be_read_is_an_error(case: Case) -> None:
    case.user_file.mkdir(parents=True)
    with pytest.raises(ConfigError, match="cannot read"):
        case.load()


def test_every_variable_of_ours_is_documented() -> None:
    """Each name in the code is a setting's, is listed for people, or is given to what is started."""
    passed_on = {
        "FERRULE_HOOKS", "FERRULE_PROJECT_DIR", "FERRULE_EVENT",
        "FERRULE_GIT_USER", "FERRULE_GIT_PASSWORD", "FERRULE_COMMAND",
        "FERRULE_PORTABLE",  # for tests: what other systems than Linux have
    }  # fmt: skip
    root = Path(__file__).parents[2]
    named: set[str] = set()
    for file in [*root.glob("src/**/*.py"), *root.glob("packages/*/src/**/*.py")]:
        named.update(re.findall(r'"(FERRULE_[A-Z_]*[A-Z])"', file.read_text(encoding="utf-8")))
    settings = {setting.variable for setting in SETTINGS}
    assert len(named) > 10
    assert named - settings - passed_on == set(OTHER_VARIABLES)
