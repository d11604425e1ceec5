"""All settings, each declared once: reading, documentation and flags are derived from this table.

`project` says what a trusted repository may do with a setting: set it (`free`), not touch it
(`never`), only `lower` a number, only turn it `off` or `on`, only `narrow` a list to fewer names or
a choice to one that allows nothing more, only `widen` a list, or `extend` one that collects the
names of all layers. What a repository may only tighten can still be set freely by the person in the
environment or with a flag. What of it holds without trust is in `restrictions`.

Layers, from weak to strong: default, user file, project file, environment, flags.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY
from functools import cache
from typing import Any, Literal, cast, get_args

from ferrule.core.limits import DEFAULT_TURNS, OUTPUT_CAP
from ferrule.core.value_class import frozen
from ferrule.permissions.rule_evaluation import MODES
from ferrule.permissions.safe_mode import ACTIONS, DEFAULT_PROGRAMS
from ferrule.sandbox.policy import DEFAULT_REQUIRED, Protection
from ferrule.storage.artifacts.store import MIN_THRESHOLD, THRESHOLD
from ferrule.storage.plugins.installed import find_installed_manifests
from ferrule.storage.plugins.manifests import Manifest, read_shipped_manifests

SettingKind = Literal[
    "text",
    "flag",
    "integer",
    "number",
    "seconds",
    "choice",
    "names",
    "path",
    "thinking",
    "actions",
    "models",
    "providers",
    "folders",
    "servers",
    "policy",
    "policies",
    "objects",
    "numbers",
    "members",
    "loading",
]
ProjectRight = Literal["free", "never", "lower", "off", "on", "narrow", "widen", "extend"]

ToolModeSetting = Literal["auto", "native", "constrained", "text", "commands", "none"]
"""A tool mode that is forced; `auto` chooses by what the model can do, `none` offers no tools."""
TOOL_MODES: tuple[ToolModeSetting, ...] = get_args(ToolModeSetting)
TOOL_SEARCH_CHOICES = ("auto", "on", "off", "bm25", "regex", "hybrid")
THINKING_CHOICES = ("low", "medium", "high", "max")


@frozen
class Setting:
    """One setting.

    `default` None means that none is set (no limit, all names, the provider's own).
    `flag` is the command line's, `has_variable` whether `FERRULE_<KEY>` sets it (dots become
    underscores).
    """

    _: KW_ONLY
    key: str
    kind: SettingKind
    short: str
    default: Any = None
    long: str = ""
    project: ProjectRight = "free"
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    flag: str = ""
    has_variable: bool = True

    @property
    def variable(self) -> str:
        """The environment variable's name, or "" if there is none."""
        return "FERRULE_" + self.key.upper().replace(".", "_") if self.has_variable else ""

    @property
    def is_optional(self) -> bool:
        """Whether it may have no value (`null`)."""
        return self.default is None


_OWN_SETTINGS: tuple[Setting, ...] = (
    Setting(
        key="model",
        kind="text",
        project="never",
        flag="--model",
        short="The model, as `provider:model`.",
        long=(
            "Without one: the first provider whose key is set, else the best model of a running "
            "Ollama that calls tools, else the embedded `local:smollm2`. `ferrule setup` writes it."
        ),
    ),
    Setting(
        key="model_fallbacks",
        kind="names",
        default=(),
        project="never",
        flag="--fallback",
        short="Models that are tried in turn if the one before them fails.",
    ),
    Setting(
        key="model_options",
        kind="names",
        default=(),
        project="never",
        flag="--option",
        short="Options of every request, as `NAME=VALUE`: `temperature=0.2`, `top_p=0.9`.",
        long="The names are those of the settings per model; these win over them.",
    ),
    Setting(
        key="mode",
        kind="choice",
        default="default",
        choices=MODES,
        project="narrow",
        flag="--mode",
        short="When calls need approval by a person.",
        long=(
            "Deny rules and explicit ask rules apply in every mode. `sandboxed` allows edits in "
            "the folder and every command that the sandbox confines; deleting, publishing and the "
            "network ask. A repository can only choose a mode that allows nothing more."
        ),
    ),
    Setting(
        key="workspace",
        kind="path",
        flag="--workspace",
        project="never",
        short="The folder that tools work in (default: the current one).",
    ),
    Setting(
        key="limits.max_turns",
        kind="integer",
        default=DEFAULT_TURNS,
        minimum=1,
        project="lower",
        flag="--max-turns",
        short="Model answers per message; very small models have fewer by default (`local:` 10).",
        long="Reaching it is an error with its own type; the session can be resumed.",
    ),
    Setting(
        key="limits.max_calls_per_turn",
        kind="integer",
        default=15,
        minimum=1,
        project="lower",
        short="Tool calls in one answer; further ones are refused.",
    ),
    Setting(
        key="limits.max_output_bytes",
        kind="integer",
        default=OUTPUT_CAP,
        minimum=256,
        maximum=OUTPUT_CAP,
        project="lower",
        short="Bytes of one result that the model sees.",
        long=f"At most {OUTPUT_CAP}; a cut is marked.",
    ),
    Setting(
        key="limits.max_seconds",
        kind="seconds",
        minimum=0,
        project="lower",
        flag="--max-seconds",
        short="Time of a run (default: no limit).",
    ),
    Setting(
        key="limits.max_tokens",
        kind="integer",
        minimum=1,
        project="lower",
        flag="--max-tokens",
        short="Input and output tokens of a run, as the provider counts them (default: no limit).",
    ),
    Setting(
        key="limits.max_cost",
        kind="number",
        minimum=0,
        project="lower",
        flag="--max-cost",
        short="US dollars that a run may cost, its sub-agents included (default: no limit).",
        long=(
            "Prices come from `prices.yaml` in your settings folder, else from the extra `prices`; "
            "a model without a price is refused. Cached tokens have their own price."
        ),
    ),
    Setting(
        key="limits.max_calls",
        kind="integer",
        minimum=1,
        project="lower",
        flag="--max-calls",
        short="Tool calls of a run, those of its sub-agents included (default: no limit).",
    ),
    Setting(
        key="limits.user_tokens",
        kind="integer",
        minimum=0,
        project="lower",
        short="Tokens that all runs of a user may use in `limits.period_days` (default: no limit).",
        long=(
            "Counted in the journal, over all processes, before each question to a model; a run "
            "can exceed it by its last answer. A reached limit is an error of its own type."
        ),
    ),
    Setting(
        key="limits.user_cost",
        kind="number",
        minimum=0,
        project="lower",
        short="The same in US dollars.",
    ),
    Setting(
        key="limits.tenant_tokens",
        kind="integer",
        minimum=0,
        project="lower",
        short="The same for all users of a tenant together, in tokens.",
    ),
    Setting(
        key="limits.tenant_cost",
        kind="number",
        minimum=0,
        project="lower",
        short="The same for all users of a tenant together, in US dollars.",
    ),
    Setting(
        key="limits.period_days",
        kind="integer",
        default=30,
        minimum=1,
        project="never",
        short="Days that the limits of users and tenants look back on, today (UTC) included.",
    ),
    Setting(
        key="limits.warn_at",
        kind="number",
        default=0.8,
        minimum=0.01,
        maximum=1,
        project="lower",
        short="The share of a token, cost or call limit at which you are warned.",
    ),
    Setting(
        key="limits.on_limit",
        kind="choice",
        default="error",
        choices=("error", "answer"),
        flag="--on-limit",
        short=("At the turn limit: stop with an error, or ask for one last answer without tools."),
    ),
    Setting(
        key="results",
        kind="choice",
        default="value",
        choices=("value", "envelope"),
        short="What the model gets when a call succeeds: the value, or always the result object.",
    ),
    Setting(
        key="tool_mode",
        kind="choice",
        default="auto",
        choices=TOOL_MODES,
        flag="--tool-mode",
        short="How the model calls tools; `auto` asks what the model supports.",
    ),
    Setting(
        key="tools.enabled",
        kind="flag",
        default=True,
        project="off",
        flag="--tools",
        short="Whether the model gets tools at all.",
    ),
    Setting(
        key="tools.fallback",
        kind="flag",
        default=True,
        short="Whether a model that fails in one tool mode falls back to the next.",
    ),
    Setting(
        key="tools.allowed",
        kind="names",
        project="narrow",
        flag="--allow-tool",
        short="The only tools the model sees (default: all).",
    ),
    Setting(
        key="tools.denied",
        kind="names",
        default=(),
        project="extend",
        flag="--deny-tool",
        short="Tools the model does not see.",
    ),
    Setting(
        key="tools.register",
        kind="flag",
        default=False,
        project="off",
        short=("Whether scripts of tool files may add tools, hooks and agents to their session."),
        long="Each needs approval, with its whole definition, and is gone with the session.",
    ),
    Setting(
        key="tools.tool_search",
        kind="choice",
        default="auto",
        choices=TOOL_SEARCH_CHOICES,
        short=(
            "How the model finds deferred tools; `auto` lets it search if there are any, `off` "
            "sends it all tools."
        ),
        long="`bm25` and `regex` say how a query is written, `hybrid` weighs names most.",
    ),
    Setting(
        key="tools.search_mode",
        kind="choice",
        default="auto",
        choices=("auto", "native", "client"),
        short=(
            "Who searches: the provider (`native`), Ferrule (`client`), or the provider if it "
            "can (`auto`)."
        ),
    ),
    Setting(
        key="tools.search_budget",
        kind="integer",
        minimum=1,
        short=(
            "Tokens of the schemas of all found tools together, if Ferrule searches (default: no "
            "limit)."
        ),
        long="The tools found first are dropped first, and can be found again.",
    ),
    Setting(
        key="tools.errors",
        kind="choice",
        default="text",
        choices=("text", "name"),
        short=(
            "What the model reads if a tool raises an unexpected exception: its text, or only its "
            "name."
        ),
        long="With `name` the text goes to the logger `ferrule.tools`.",
    ),
    Setting(
        key="tools.defer_above",
        kind="integer",
        default=40,
        minimum=0,
        short=(
            "Number of tools above which those of MCP servers and HTTP documents are deferred, "
            "apart from those in `tools.always_loaded`."
        ),
    ),
    Setting(
        key="tools.always_loaded",
        kind="names",
        default=(),
        short="Tools that the model has from the start, even if they are deferred elsewhere.",
    ),
    Setting(
        key="tools.entries",
        kind="loading",
        default=(),
        has_variable=False,
        short=(
            "How single tools are loaded: a list of entries with `name` and `loading_mode` "
            "(`always`, `deferred`)."
        ),
    ),
    Setting(
        key="tools.profile",
        kind="choice",
        choices=("coding", "all"),
        flag="--tool-profile",
        short=(
            "Which of the shipped tools the model gets: `coding`, one per job, or `all`. Default: "
            "`coding`; `all` for an embedded model."
        ),
        long=(
            "`coding` reads, lists, searches, edits, writes, runs commands and keeps a task list. "
            "Other tools remain available to people and scripts, and the model gets one if a "
            "setting or an agent file names it."
        ),
    ),
    Setting(
        key="tools.shapes",
        kind="choice",
        default="auto",
        choices=("auto", "own", "gpt", "claude", "gemini", "qwen"),
        short=(
            "The shapes of the tools of `coding`: Ferrule's `own`, or those that a family of "
            "models was trained on. `auto`: by model."
        ),
        long=(
            "`gpt`: `apply_patch`, and with `openai-responses:` and GPT-5.1 or later `shell`. "
            "`claude`: `bash` and a text editor. `gemini`, `qwen`: the names of Gemini CLI and "
            "Qwen Code."
        ),
    ),
    Setting(
        key="tools.memory",
        kind="text",
        project="never",
        short=(
            "Whether the model has the tool `memory`: `state` keeps its notes in a folder of "
            "Ferrule's own for this workspace, an absolute path in that folder."
        ),
    ),
    Setting(
        key="tools.rereading",
        kind="choice",
        default="auto",
        choices=("auto", "short", "full"),
        short=(
            "What a model gets if it reads the same lines of a file again: `short`, only the "
            "changes, while the earlier reading is in its context; or `full`. `auto`: `short`, "
            "except for embedded models."
        ),
    ),
    Setting(
        key="tools.python",
        kind="names",
        default=(),
        project="extend",
        has_variable=False,
        short=(
            "Python files and installed modules whose `@tool` functions are tools, and whose plain "
            "functions are handlers of tool files without a script."
        ),
        long=(
            "A repository names files below its folder, which `ferrule trust` covers; you name "
            "files in or below your settings folder, or absolute ones. They run in Ferrule's own "
            "process, without a sandbox."
        ),
    ),
    Setting(
        key="tools.parallel",
        kind="flag",
        default=True,
        short=(
            "Whether calls of one answer may run together, if what their tools declare allows it; "
            "`false`: one by one, in the model's order."
        ),
    ),
    Setting(
        key="tools.join",
        kind="text",
        default="all",
        flag="--join",
        short=(
            "How many calls of one answer must succeed until the others are no longer needed: "
            "`all`, `first_success`, or a number."
        ),
    ),
    Setting(
        key="tools.required",
        kind="names",
        default=(),
        project="extend",
        flag="--require-tool",
        short=(
            "Tools that must have succeeded for a run to count as done; `a|b` asks for one of them."
        ),
    ),
    Setting(
        key="tools.policy",
        kind="policy",
        has_variable=False,
        project="never",
        short=(
            "Retries and timeouts of calls: `max_attempts`, `timeout_ms`, `retry_on`, "
            "`backoff_base_ms`, `backoff_mult`, `backoff_max_ms`."
        ),
        long="For every tool without its own; a field that is left out keeps its default.",
    ),
    Setting(
        key="tools.tool_policies",
        kind="policies",
        has_variable=False,
        project="never",
        short="The same for single tools, by name; a field left out keeps the tool's own value.",
    ),
    Setting(
        key="tools.http_manifests",
        kind="names",
        default=(),
        project="never",
        short=("Files that describe HTTP tools, besides those in `http/` of your settings folder."),
        long="A trusted repository has its own in `.ferrule/http/`.",
    ),
    Setting(
        key="tools.openapi",
        kind="servers",
        default=(),
        has_variable=False,
        project="never",
        short=(
            "OpenAPI documents whose operations are tools: a map of namespaces to entries with a "
            "`file`."
        ),
    ),
    Setting(
        key="tools.http_hosts",
        kind="names",
        default=(),
        project="never",
        short=(
            "Hosts outside the public internet, or over plain http, that HTTP tools of a "
            "repository may reach."
        ),
    ),
    Setting(
        key="tools.http_secrets",
        kind="names",
        default=(),
        project="never",
        short=(
            "Secrets that HTTP tools of a repository may use: variable names, or `secret:name`."
        ),
    ),
    Setting(
        key="permissions.deny",
        kind="names",
        default=(),
        project="extend",
        flag="--deny",
        short="Rules for calls that are refused.",
        long="`Tool` or `Tool(specifier)`; deny, then ask, then allow.",
    ),
    Setting(
        key="permissions.ask",
        kind="names",
        default=(),
        project="extend",
        flag="--ask",
        short="Rules for calls that need approval by a person.",
    ),
    Setting(
        key="permissions.allow",
        kind="names",
        default=(),
        project="extend",
        flag="--allow",
        short="Rules for calls that run without a question.",
    ),
    Setting(
        key="permissions.reads",
        kind="choice",
        default="allow",
        choices=("allow", "ask"),
        project="narrow",
        short="Whether reading files of the workspace needs approval.",
        long=(
            "This includes commands that only read, if the sandbox enforces all that is required. "
            "Protected names, deny rules and ask rules always apply."
        ),
    ),
    Setting(
        key="reserved.extend",
        kind="names",
        default=(),
        project="extend",
        short="More names that no tool may touch; the built-in list cannot be shortened.",
    ),
    Setting(
        key="secrets.extend",
        kind="names",
        default=(),
        project="extend",
        short="More file names that count as secrets; the built-in list cannot be shortened.",
    ),
    Setting(
        key="commands.safe_mode",
        kind="flag",
        default=False,
        project="on",
        flag="--safe-mode",
        short="Run only the programs of `commands.allowed_commands`.",
    ),
    Setting(
        key="commands.allowed_commands",
        kind="names",
        default=DEFAULT_PROGRAMS,
        project="narrow",
        short="The programs of safe mode, by exact name.",
    ),
    Setting(
        key="commands.run_timeout",
        kind="seconds",
        default=300.0,
        minimum=1,
        project="lower",
        short="Time of one command, if the call sets none.",
    ),
    Setting(
        key="commands.shell",
        kind="flag",
        project="off",
        short=(
            "Whether a shell may run commands: pipes, redirects, `&&`, variables. Default: if a "
            "sandbox enforces all that `sandbox.require` lists."
        ),
        long="Rules judge each part of a command line by itself. `true` allows it everywhere.",
    ),
    Setting(
        key="commands.permissions",
        kind="actions",
        default=(),
        project="never",
        has_variable=False,
        choices=ACTIONS,
        short=(
            "What is allowed below a path: `read`, `write`, `exec`, `delete`; the longest prefix "
            "decides."
        ),
    ),
    Setting(
        key="sandbox.mode",
        kind="choice",
        default="ask",
        choices=("required", "ask", "off"),
        project="narrow",
        short="What happens if this machine cannot provide the required protections.",
        long=(
            "`ask` asks a person once per session and refuses if nobody can be asked, `required` "
            "always refuses, `off` runs every command without a sandbox."
        ),
    ),
    Setting(
        key="sandbox.require",
        kind="names",
        default=tuple(str(a) for a in Protection if a in DEFAULT_REQUIRED),
        project="widen",
        choices=tuple(str(aspect) for aspect in Protection),
        short="Protections without which commands do not run.",
    ),
    Setting(
        key="sandbox.network",
        kind="names",
        default=(),
        project="narrow",
        short=("Hosts that commands may reach: `host`, `host:port` or `*.domain` (default: none)."),
    ),
    Setting(
        key="sandbox.readable",
        kind="names",
        default=(),
        project="never",
        short="Folders outside the workspace that commands may read.",
    ),
    Setting(
        key="sandbox.writable",
        kind="names",
        default=(),
        project="never",
        short="Folders outside the workspace that commands may read and write.",
    ),
    Setting(
        key="sandbox.git_hooks",
        kind="flag",
        default=True,
        project="off",
        short="Whether git runs the hooks of the repository in commands and git tools, confined.",
        long=(
            "Commands see the hooks and cannot change them, and a result names those that ran. "
            "`false`: git runs no hooks for a model."
        ),
    ),
    Setting(
        key="sandbox.memory",
        kind="integer",
        default=8192,
        minimum=16,
        project="lower",
        short="MiB of memory for all commands of a session together.",
    ),
    Setting(
        key="sandbox.processes",
        kind="integer",
        default=1024,
        minimum=4,
        project="lower",
        short="Processes that all commands of a session may have at one time.",
    ),
    Setting(
        key="sandbox.file_size",
        kind="integer",
        default=4096,
        minimum=1,
        project="lower",
        short="MiB that one file may grow to by a command.",
    ),
    Setting(
        key="network.allowed_domains",
        kind="names",
        project="narrow",
        short=(
            "Hosts that scripts of tool files, pictures from URLs and pages of screenshots may "
            "reach: `example.com` (with its subdomains), `*.example.com`, `*`."
        ),
        long=(
            "By default any host of the public internet; commands have their own `sandbox.network`."
        ),
    ),
    Setting(
        key="media.max_side",
        kind="integer",
        default=0,
        minimum=0,
        project="never",
        short="Pixels of a side to which larger pictures are scaled down; 0: none is scaled.",
        long='Needs `pip install "ferrule[pictures]"`.',
    ),
    Setting(
        key="media.ocr",
        kind="flag",
        default=False,
        project="never",
        short=(
            "Whether models that see no pictures get the text in them, read by the program "
            "`tesseract`."
        ),
    ),
    Setting(
        key="hooks.hosts",
        kind="names",
        default=(),
        project="never",
        short="Hosts that web hooks may send events to (default: none).",
    ),
    Setting(
        key="hooks.claude",
        kind="flag",
        default=True,
        project="off",
        short=(
            "Whether hooks in `~/.claude/settings.json` and, once you trust it, in a folder's own "
            "`.claude/settings.json` take effect."
        ),
    ),
    Setting(
        key="mcp_servers",
        kind="servers",
        default=(),
        has_variable=False,
        project="never",
        short=(
            "MCP servers: a map of names to entries as in `.mcp.json`, or a list of entries with "
            "a `name`."
        ),
    ),
    Setting(
        key="a2a_peers",
        kind="servers",
        default=(),
        has_variable=False,
        project="never",
        short=(
            "A2A agents: a map of names to entries with a `url`, or a list of entries with a "
            "`name`."
        ),
    ),
    Setting(
        key="serve.models",
        kind="names",
        default=(),
        project="never",
        short="Further models that the agent of `ferrule serve openai` offers to clients.",
    ),
    Setting(
        key="serve.direct_models",
        kind="names",
        default=(),
        project="never",
        short="Models that clients of `ferrule serve openai` may ask without the agent.",
        long="Rules, hooks and budgets do not apply to them, and nothing is journaled.",
    ),
    Setting(
        key="env.allow",
        kind="names",
        default=(),
        project="never",
        short="Environment variables that child processes get in addition to the usual few.",
    ),
    Setting(
        key="skills.enabled",
        kind="flag",
        default=True,
        project="off",
        short="Whether the model may use skills (`SKILL.md`).",
    ),
    Setting(
        key="instructions.enabled",
        kind="flag",
        default=True,
        project="off",
        short="Whether the model gets the text of `AGENTS.md`, yours and the repository's.",
    ),
    Setting(
        key="instructions.fallbacks",
        kind="names",
        default=("CLAUDE.md",),
        project="never",
        short="Files to read in a folder without `AGENTS.md`, such as `CLAUDE.md`, `GEMINI.md`.",
    ),
    Setting(
        key="instructions.max_bytes",
        kind="integer",
        default=32768,
        minimum=256,
        maximum=OUTPUT_CAP,
        project="lower",
        short="Bytes of all instructions together; the nearest file is cut last.",
    ),
    Setting(
        key="redaction.keys",
        kind="names",
        default=(),
        project="extend",
        short=(
            "More names of secrets to redact in what others see: events, telemetry, redacted "
            "exports."
        ),
    ),
    Setting(
        key="redaction.patterns",
        kind="names",
        default=(),
        project="extend",
        short=(
            "Regular expressions for more secrets to redact there; what matches is removed by "
            "word, or else by line."
        ),
    ),
    Setting(
        key="journal.path",
        kind="path",
        project="never",
        flag="--journal",
        short="The journal's file (default: `journal.db` in the state folder).",
        long="Or a database for many machines: `postgresql://user:${VARIABLE}@host/name`.",
    ),
    Setting(
        key="journal.durability",
        kind="choice",
        default="process",
        choices=("process", "power"),
        project="never",
        short=(
            "What a recorded event survives: the death of the process, or also a power cut "
            "(slower)."
        ),
    ),
    Setting(
        key="audit.sign",
        kind="flag",
        default=False,
        project="never",
        short=(
            "Whether each session is signed with your key when it is closed (`ferrule audit "
            "key` creates one)."
        ),
        long="Without the key nothing runs. `ferrule audit verify --key` checks the signatures.",
    ),
    Setting(
        key="context.compact",
        kind="choice",
        default="auto",
        choices=("auto", "elide", "off"),
        short=(
            "What happens when the model's context window is nearly full: old results are left "
            "out, then the model summarizes the oldest part (`auto`); only results are left out "
            "(`elide`); nothing but a notice (`off`)."
        ),
        long="The journal keeps everything, and `/uncompact` undoes it.",
    ),
    Setting(
        key="context.share",
        kind="number",
        default=0.8,
        minimum=0.2,
        maximum=0.95,
        short="The share of the context window at which that begins.",
    ),
    Setting(
        key="context.keep",
        kind="integer",
        default=8,
        minimum=1,
        short="How many of the last messages are never changed by that.",
    ),
    Setting(
        key="artifacts.threshold",
        kind="integer",
        default=THRESHOLD,
        minimum=MIN_THRESHOLD,
        maximum=OUTPUT_CAP,
        project="lower",
        short=(
            "Results of so many bytes become artifacts: the model gets a stub with a preview and "
            "can read parts."
        ),
    ),
    Setting(
        key="artifacts.store",
        kind="text",
        project="never",
        short=(
            "Where artifacts are stored: a folder, `s3://bucket/prefix`, `gs://…`, `az://…` or "
            "`postgresql://…`."
        ),
        long="By default in the state folder. Keys come from the environment.",
    ),
    Setting(
        key="artifacts.max_bytes",
        kind="integer",
        default=1 << 30,
        minimum=1 << 20,
        project="never",
        short="Bytes of all artifacts together; the oldest are removed first.",
    ),
    Setting(
        key="artifacts.days",
        kind="integer",
        default=30,
        minimum=1,
        project="never",
        short="Days after which an artifact is removed.",
    ),
    Setting(
        key="models",
        kind="models",
        default=(),
        has_variable=False,
        short='Settings for one model: `models: {"ollama:llama3.2": {…}}`.',
    ),
    Setting(
        key="providers",
        kind="providers",
        default=(),
        has_variable=False,
        project="never",
        short="Where a provider is, and which variable has its key: `providers: {openai: {…}}`.",
    ),
    Setting(
        key="folders",
        kind="folders",
        default=(),
        has_variable=False,
        project="never",
        short="What else commands may reach in one workspace: `folders: {/path: {…}}`.",
        long="Only in the person's own file; an answer `remember` about a refusal writes it there.",
    ),
)


def _freeze(value: Any) -> Any:
    return tuple(cast("list[Any]", value)) if isinstance(value, list) else value


def _name_switches(manifest: Manifest) -> str:
    """Return what switches a plugin on that is off by default, where something does."""
    names = (*manifest.when_settings, *manifest.when_own, *manifest.when_repository)
    shown = ", ".join(f"`{name}`" for name in names)
    return f"Switched on by {shown}." if shown else ""


def list_plugin_settings(manifests: Mapping[str, Manifest]) -> Iterator[Setting]:
    """Yield the rows of the plugins: one that switches each on or off, and one for each field."""
    for name, manifest in manifests.items():
        right = cast("ProjectRight", manifest.project)
        yield Setting(
            key=f"plugins.{name}",
            kind="flag",
            default=manifest.default,
            project=right,
            short=manifest.help,
            long=_name_switches(manifest),
        )
        for field, row in manifest.settings.items():
            given: dict[str, Any] = {key: _freeze(value) for key, value in row.items()}
            yield Setting(key=f"plugins.{name}.{field}", project=right, **given)


SETTINGS: tuple[Setting, ...] = (
    *_OWN_SETTINGS,
    Setting(
        key="plugins.installed",
        kind="flag",
        default=True,
        project="never",
        flag="--no-plugins",
        short="Whether plugins of other distributions are used.",
    ),
    *list_plugin_settings(read_shipped_manifests()),
)

MODEL_SETTINGS: tuple[Setting, ...] = (
    Setting(key="tools_enabled", kind="flag", project="off", short="Like `tools.enabled`."),
    Setting(
        key="max_turns",
        kind="integer",
        minimum=1,
        project="lower",
        short="Like `limits.max_turns`.",
    ),
    Setting(
        key="max_calls_per_turn",
        kind="integer",
        minimum=1,
        project="lower",
        short="Like `limits.max_calls_per_turn`.",
    ),
    Setting(
        key="max_output_bytes",
        kind="integer",
        minimum=256,
        maximum=OUTPUT_CAP,
        project="lower",
        short="Like `limits.max_output_bytes`.",
    ),
    Setting(key="tool_mode", kind="choice", choices=TOOL_MODES, short="Like `tool_mode`."),
    Setting(key="results", kind="choice", choices=("value", "envelope"), short="Like `results`."),
    Setting(
        key="num_ctx",
        kind="integer",
        minimum=256,
        short="The context window to request, in tokens (Ollama, llama.cpp).",
    ),
    Setting(
        key="temperature",
        kind="number",
        minimum=0,
        maximum=2,
        short="How random answers are (default: the provider's).",
    ),
    Setting(key="max_output_tokens", kind="integer", minimum=1, short="Tokens of one answer."),
    Setting(
        key="thinking",
        kind="thinking",
        choices=THINKING_CHOICES,
        short="Whether, or how much, the model thinks first.",
    ),
    Setting(
        key="top_p",
        kind="number",
        minimum=0,
        maximum=1,
        short="The share of likely words to sample from.",
    ),
    Setting(
        key="top_k",
        kind="integer",
        minimum=1,
        short="The number of likely words to sample from.",
    ),
    Setting(
        key="presence_penalty",
        kind="number",
        minimum=-2,
        maximum=2,
        short="Lowers the odds of words that were used.",
    ),
    Setting(
        key="frequency_penalty",
        kind="number",
        minimum=-2,
        maximum=2,
        short="Lowers the odds of words by how often they were used.",
    ),
    Setting(key="stop", kind="names", short="Texts that end an answer."),
    Setting(
        key="logit_bias",
        kind="numbers",
        minimum=-100,
        maximum=100,
        short="What is added to the odds of tokens, by their numbers: `{50256: -100}`.",
    ),
    Setting(
        key="extra",
        kind="members",
        project="never",
        short="More members of each request, in the provider's own words and unchanged.",
    ),
    Setting(
        key="service_tier",
        kind="text",
        short="How urgent requests are, in the provider's words (`flex`, `priority`).",
    ),
    Setting(
        key="cache_key",
        kind="text",
        short="Routes similar requests to the same prompt cache.",
    ),
    Setting(
        key="cache_control",
        kind="choice",
        choices=("5m", "1h"),
        short="How long marked content stays in the prompt cache, if marks are needed.",
    ),
    Setting(
        key="upload_media_from",
        kind="integer",
        minimum=0,
        short="Media of at least so many bytes are uploaded once, not sent with each turn.",
    ),
    Setting(
        key="seed",
        kind="integer",
        short="For reproducible answers, if the provider supports it.",
    ),
    Setting(key="timeout", kind="seconds", minimum=1, short="Time to wait for one answer."),
    Setting(
        key="provider_tools",
        kind="objects",
        project="never",
        short=(
            "Tools that the provider runs itself, in its own format: `[{type: web_search}]`. "
            "Neither permissions nor the sandbox apply to them."
        ),
    ),
)

PROVIDER_SETTINGS: tuple[Setting, ...] = (
    Setting(
        key="base_url",
        kind="text",
        project="never",
        short="The URL of the API, such as `http://localhost:11434`.",
    ),
    Setting(
        key="api_key_env",
        kind="text",
        project="never",
        short="The environment variable with the key.",
    ),
    Setting(
        key="provider_tools",
        kind="objects",
        project="never",
        short="Like a model's `provider_tools`, for models without their own.",
    ),
    Setting(
        key="ca_bundle",
        kind="path",
        project="never",
        short="Certificates to trust in addition to the system's.",
    ),
    Setting(
        key="force_native_tool_search",
        kind="flag",
        project="never",
        short=(
            "Whether the URL supports the provider's own tool search, if it has one, whatever the "
            "model is called there."
        ),
    ),
)

_OPENINGS = ("readable", "writable", "network")
FOLDER_SETTINGS: tuple[Setting, ...] = (
    *(
        Setting(
            key=key, kind="names", default=(), project="never", short=f"Adds to `sandbox.{key}`."
        )
        for key in _OPENINGS
    ),
    Setting(
        key="mode",
        kind="choice",
        default=None,
        choices=("default", "acceptEdits", "sandboxed", "plan", "dontAsk"),
        project="never",
        short="`mode` in this workspace.",
        long="Without an effect while the workspace has a configuration that is not trusted.",
    ),
)
MAP_SETTINGS: Mapping[str, tuple[Setting, ...]] = {
    "models": MODEL_SETTINGS,
    "providers": PROVIDER_SETTINGS,
    "folders": FOLDER_SETTINGS,
}
"""The settings of an entry, by the map that it is in."""

GLOBAL_KEYS = {
    "tools_enabled": "tools.enabled",
    "max_turns": "limits.max_turns",
    "max_calls_per_turn": "limits.max_calls_per_turn",
    "max_output_bytes": "limits.max_output_bytes",
    "tool_mode": "tool_mode",
    "results": "results",
}
"""A model's own setting, and the one for all models."""

ALIASES = {
    "tools.max_tool_calls_per_turn": "limits.max_turns",
    "tools.max_output_bytes": "limits.max_output_bytes",
    "tools.allowed_tools": "tools.allowed",
    "tools.fallback_to_natural_language": "tools.fallback",
    "security.safe_mode": "commands.safe_mode",
    "security.allowed_commands": "commands.allowed_commands",
    "security.run_timeout": "commands.run_timeout",
    "security.permissions": "commands.permissions",
    "reserved": "reserved.extend",
    "secrets": "secrets.extend",
    "artifacts.heavy_output_threshold_bytes": "artifacts.threshold",
    "require_successful_tools": "tools.required",
    "tools.mcp_servers": "mcp_servers",
    "planner.max_steps": "limits.max_turns",
    "planner.parallel_tool_calls": "tools.parallel",
    "journal": "journal.path",
    "durability": "journal.durability",
}
"""Names of `harvey.yaml` and `harbor.yaml`, and short forms, that files may use."""

MOVED = {
    "tools.packs": "plugins",
    "diagnostics": "plugins.diagnostics",
    "diagnostics.checkers": "plugins.diagnostics.checkers",
    "diagnostics.servers": "plugins.diagnostics.servers",
    "diagnostics.timeout": "plugins.diagnostics.timeout",
    "index": "plugins.index",
    "index.outline": "plugins.index.outline",
}
"""Settings that are fields of a plugin now; a file that has the old name is an error."""

FOREIGN = {
    "tools.built_in": (
        "tools that ship are offered without it: choose among them with `tools.allowed` and "
        "`tools.denied` (docs/from/harnesses.md)"
    ),
    "tools_policy": (
        "it is `permissions`, `tools.allowed` and `tools.denied` (docs/from/harnesses.md)"
    ),
}
"""Settings of other systems that have no single counterpart -> what to write instead."""

MODEL_ALIASES = {"max_tool_calls_per_turn": "max_turns"}

BY_KEY = {setting.key: setting for setting in SETTINGS}


@cache
def list_installed() -> Mapping[str, Setting]:
    """Return the rows of installed plugins by key. They have no values unless somebody sets them.

    Raises ConfigError for plugins that cannot be told apart.
    """
    return {setting.key: setting for setting in list_plugin_settings(find_installed_manifests())}


def find_row(key: str) -> Setting | None:
    """Return the row of a key, also of an installed plugin; None if there is none.

    Raises ConfigError for a field of a plugin whose manifest cannot be used: it may have the field.
    """
    if key in BY_KEY or not key.startswith("plugins."):
        return BY_KEY.get(key)
    row = list_installed().get(key)
    plugin = find_installed_manifests().get(key.split(".")[1])
    if row is None and plugin is not None:
        plugin.check()
    return row


def may_have_fields(key: str) -> bool:
    """Return whether a key is an installed plugin whose manifest is wrong about its fields."""
    plugin = find_installed_manifests().get(key.removeprefix("plugins."))
    return plugin is not None and bool(plugin.problems)


PLUGINS_VARIABLE = "FERRULE_PLUGINS"

OTHER_VARIABLES: Mapping[str, str] = {
    "FERRULE_STATE": "The folder of the journal, artifacts, grants and what was trusted. Default: "
    "`ferrule` in `$XDG_STATE_HOME`, or `~/.local/state/ferrule`.",
    "FERRULE_CONFIG": "The folder of your `ferrule.yaml` and `mcp.json`. Default: `ferrule` in "
    "`$XDG_CONFIG_HOME`, or `~/.config/ferrule`. A folder of a repository is refused.",
    "FERRULE_CACHE": "The folder of what can be made or downloaded again. Default: `ferrule` in "
    "`$XDG_CACHE_HOME`, or `~/.cache/ferrule`.",
    "FERRULE_MODELS": "The folder of the models of `ferrule-local`. Default: `models` in the cache "
    "folder.",
    "FERRULE_TOKEN": "The token of a server of `ferrule serve`, if no `--token-file` is given: 16 "
    "characters or more, without a space.",
    "FERRULE_DATABASE": "`--database` of `ferrule worker` and `ferrule submit`.",
    "FERRULE_ENGINE": "`--engine` of both.",
    PLUGINS_VARIABLE: "Plugins of a run, separated by commas, each as `--plugin` takes it. Empty: "
    "only those that ship.",
    "FERRULE_TRACEBACK": "With `1` an error shows the lines of code that led to it.",
}
"""Variables that are not settings, with what they are for."""
