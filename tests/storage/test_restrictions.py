"""What a repository's settings restrict holds without trust, and they never allow more."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ferrule.core.errors import ConfigError
from ferrule.permissions.rule_evaluation import MODES
from ferrule.permissions.rules import RuleSet
from ferrule.storage import paths
from ferrule.storage.settings.restrictions import (
    NARROWER_CHOICES,
    RESTRICTING,
    restricts,
)
from ferrule.storage.settings.settings import PROJECT_FILE, Settings, load_settings
from ferrule.storage.settings.table import BY_KEY, MODEL_SETTINGS, SETTINGS, Setting
from ferrule.storage.trust import TrustStore
from ferrule.tools.definition import SideEffect

MODELS = ("openai:gpt", "gpt", "other:gpt")
ROWS: dict[str, Setting] = {
    **{row.key: row for row in SETTINGS if row.kind not in ("models", "providers", "folders")},
    **{f"models.*.{row.key}": row for row in MODEL_SETTINGS},
}

_PREFERENCE = "a preference: it says how something is done, not how much"
_MODEL = "chooses or instructs the model"
_PLUGIN = "adds tools, or switches off what the person's work may need"
_HIDES_OWN = "would switch off what the person wrote themselves"

NOT_RESTRICTING: Mapping[str, str] = {
    "permissions.allow": "allows calls",
    "tools.python": "runs code in Ferrule's own process",
    "plugins.files": _PLUGIN,
    "plugins.search": _PLUGIN,
    "plugins.commands": _PLUGIN,
    "plugins.git": _PLUGIN,
    "plugins.git.tools": _PLUGIN,
    "plugins.tasks": _PLUGIN,
    "plugins.clock": _PLUGIN,
    "plugins.typed": _PLUGIN,
    "plugins.index": _PLUGIN,
    "plugins.pictures": _PLUGIN,
    "plugins.code": _PLUGIN,
    "tools.profile": "may add tools",
    "tools.shapes": "may add tools",
    "tools.always_loaded": "may add tools to requests",
    "tools.entries": "may add tools to requests",
    "tools.tool_search": _PREFERENCE,
    "tools.search_mode": _PREFERENCE,
    "tools.search_budget": _PREFERENCE,
    "tools.defer_above": _PREFERENCE,
    "tools.errors": _PREFERENCE,
    "tools.fallback": _PREFERENCE,
    "tools.rereading": _PREFERENCE,
    "tools.parallel": _PREFERENCE,
    "tools.join": _PREFERENCE,
    "tools.required": "demands calls",
    "limits.on_limit": _PREFERENCE,
    "results": _PREFERENCE,
    "tool_mode": _PREFERENCE,
    "context.compact": _PREFERENCE,
    "context.share": _PREFERENCE,
    "context.keep": _PREFERENCE,
    "plugins.index.outline": _MODEL,
    "sandbox.git_hooks": "would switch off checks that the person's commits go through",
    "hooks.claude": "would switch off the person's own guards",
    "skills.enabled": _HIDES_OWN,
    "instructions.enabled": _HIDES_OWN,
    "instructions.max_bytes": _HIDES_OWN,
    "models.*.tool_mode": _PREFERENCE,
    "models.*.results": _PREFERENCE,
    "models.*.num_ctx": _MODEL,
    "models.*.temperature": _MODEL,
    "models.*.max_output_tokens": _MODEL,
    "models.*.thinking": _MODEL,
    "models.*.top_p": _MODEL,
    "models.*.top_k": _MODEL,
    "models.*.presence_penalty": _MODEL,
    "models.*.frequency_penalty": _MODEL,
    "models.*.stop": _MODEL,
    "models.*.logit_bias": _MODEL,
    "models.*.service_tier": _MODEL,
    "models.*.cache_key": _MODEL,
    "models.*.cache_control": _MODEL,
    "models.*.upload_media_from": _PREFERENCE,
    "models.*.seed": _MODEL,
    "models.*.timeout": _PREFERENCE,
}
"""Settings that wait for trust, and why."""


def test_every_setting_of_a_repository_is_said_to_restrict_or_not_to() -> None:
    settable = {key for key, row in ROWS.items() if row.project != "never"}
    assert set(RESTRICTING) | set(NOT_RESTRICTING) == settable
    assert not RESTRICTING & set(NOT_RESTRICTING)
    # What restricts has a way to be narrowed: the right of the table, or an order of its choices.
    for key in RESTRICTING:
        assert ROWS[key].project != "free" or key in NARROWER_CHOICES, key


def put(root: Path, text: str) -> None:
    file = root / PROJECT_FILE
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def load(root: Path, user: str = "", flags: Mapping[str, Any] | None = None) -> Settings:
    own = root.parent / "own.yaml"
    own.write_text(user)
    return load_settings(workspace=root, user_file=own, flags=flags, environment={})


def nested(values: Mapping[str, Any]) -> str:
    tree: dict[str, Any] = {}
    for key, value in values.items():
        if key.startswith("models."):
            _, name, last = key.split(".", 1)[0], *key.split(".", 1)[1].rsplit(".", 1)
            tree.setdefault("models", {}).setdefault(name, {})[last] = value
            continue
        *groups, last = key.split(".")
        place = tree
        for group in groups:
            # `plugins.git: true` and `plugins.git.tools: read` cannot stand together.
            if not isinstance(place.get(group), dict):
                place[group] = {}
            place = place[group]
        if not isinstance(place.get(last), dict):
            place[last] = value
    return json.dumps(tree)


NARROWED: dict[str, tuple[Any, Any]] = {
    "mode": ("plan", "plan"),
    "limits.max_turns": (3, 3),
    "limits.max_cost": (0.5, 0.5),
    "tools.enabled": (False, False),
    "tools.denied": (["run_command"], ("run_command",)),
    "tools.allowed": (["read_file"], ("read_file",)),
    "permissions.reads": ("ask", "ask"),
    "reserved.extend": (["vault"], ("vault",)),
    "secrets.extend": (["*.token"], ("*.token",)),
    "commands.safe_mode": (True, True),
    "commands.allowed_commands": (["ls"], ("ls",)),
    "commands.shell": (False, False),
    "sandbox.mode": ("required", "required"),
    "sandbox.memory": (64, 64),
    "network.allowed_domains": (["example.org"], ("example.org",)),
    "redaction.keys": (["plan"], ("plan",)),
}


@pytest.mark.parametrize("key", NARROWED)
def test_a_restriction_holds_without_trust_and_is_named(key: str, tmp_path: Path) -> None:
    root = tmp_path / "work"
    wanted, expected = NARROWED[key]
    put(root, nested({key: wanted, "model": "evil:x"}))
    found = load(root)
    assert found[key] == expected and found.origin(key).layer == "project"
    assert found.model == ""
    assert f"is not trusted and only what restricts has an effect (`{key}`)" in found.notices[-1]


def test_rules_that_deny_or_ask_hold_without_trust_and_those_that_allow_do_not(
    tmp_path: Path,
) -> None:
    root = tmp_path / "work"
    rules = {"deny": ["Read(a)"], "ask": ["Bash(b)"], "allow": ["Bash(rm:*)"]}
    put(root, json.dumps({"permissions": rules}))
    found = load(root)
    assert [(rule.text, rule.list) for rule in found.rules] == [
        ("Read(a)", "deny"),
        ("Bash(b)", "ask"),
    ]


CHANGES = {
    "a changed setting": lambda root: put(root, "model: evil:x\n"),
    "a damaged file": lambda root: put(root, "permissions: {deny: [\n"),
    "a removed file": lambda root: (root / PROJECT_FILE).unlink(),
    "a new file": lambda root: (root / "harness.md").write_text("x"),
}


@pytest.mark.proves("trust.restrictions-kept")
@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_what_was_trusted_last_restricts_after_trust_was_lost(change: Any, tmp_path: Path) -> None:
    root = tmp_path / "work"
    text = {
        "permissions": {"deny": ["Read(private/**)"], "allow": ["write_file"]},
        "limits": {"max_turns": 4},
        "tools": {"denied": ["fetch"]},
    }
    put(root, json.dumps(text))
    TrustStore().trust(root)
    assert len(load(root).rules) == 2
    change(root)
    found = load(root)
    assert found.repository.state == "changed"
    assert [rule.text for rule in found.rules] == ["Read(private/**)"]
    assert (found.limits.max_turns, found["tools.denied"]) == (4, ("fetch",))
    assert "was changed since you trusted it" in found.notices[-1]
    assert TrustStore().revoke(root)
    assert load(root).limits.max_turns == (4 if change is CHANGES["a new file"] else 200)


@pytest.mark.proves("trust.restrictions-kept")
def test_nothing_is_trusted_any_more_once_all_is_gone_and_a_person_agrees(tmp_path: Path) -> None:
    root = tmp_path / "work"
    put(root, "limits: {max_turns: 4}\n")
    store = TrustStore()
    store.trust(root)
    (root / PROJECT_FILE).unlink()
    seen = store.read(root)
    assert seen.state == "changed" and [one.what for one in store.diff(root)] == ["removed"]
    assert store.trust(root, digest=seen.digest).state == "absent"
    assert load(root).limits.max_turns == 200


@pytest.mark.proves("trust.restrictions-kept")
@pytest.mark.parametrize("damage", ["", "{", '{"a": 1}', '{".ferrule/ferrule.yaml": "eA=="}'])
def test_a_damaged_copy_of_what_was_trusted_is_an_error_that_names_it(
    damage: str, tmp_path: Path
) -> None:
    root = tmp_path / "work"
    put(root, "limits: {max_turns: 4}\n")
    TrustStore().trust(root)
    put(root, "limits: {max_turns: 5}\n")
    (copy,) = (paths.state() / "trust.json.d").iterdir()
    copy.write_text(damage)
    with pytest.raises(ConfigError, match="cannot be read") as raised:
        load(root)
    assert str(copy) in raised.value.detail and "--revoke" in (raised.value.hint or "")


BROKEN = {
    "no YAML": "permissions: {deny: [",
    "an unknown key": "nonsense: 1\npermissions: {deny: [Read(a)]}\n",
    "a wrong type": "limits: {max_turns: many}\npermissions: {deny: [Read(a)]}\n",
    "an invalid rule": "permissions: {deny: ['Read(', Read(a)]}\n",
    "a forbidden choice": "mode: bypassPermissions\npermissions: {deny: [Read(a)]}\n",
    "what only a person sets": "env: {allow: [X]}\npermissions: {deny: [Read(a)]}\n",
    "bytes": "\x00\x01",
    "a list": "[1, 2]",
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=list(BROKEN))
def test_mistakes_of_an_untrusted_repository_keep_nobody_from_working(
    text: str, tmp_path: Path
) -> None:
    root = tmp_path / "work"
    put(root, text)
    found = load(root)
    assert [rule.text for rule in found.rules] == (["Read(a)"] if "Read(a)" in text else [])
    assert found.mode == "default" and found["env.allow"] == ()


# ---- never more


POOL = ("a", "b", "*.example.org")
RULES = ("Read(a)", "Bash(ls:*)", "write_file", "Edit(b/**)", "Read")


def values_for(key: str, row: Setting) -> st.SearchStrategy[Any]:
    if key.startswith("permissions.") and row.kind == "names":
        return st.lists(st.sampled_from(RULES), max_size=3)
    match row.kind:
        case "flag":
            return st.booleans()
        case "integer" | "number" | "seconds":
            low = int(row.minimum or 1) or 1
            high = int(min(row.maximum or low + 100, low + 100))
            if row.maximum is not None and row.maximum <= 1:
                return st.floats(0.2, 0.9)
            return st.integers(low, high)
        case "choice":
            return st.sampled_from(row.choices)
        case "names":
            return st.lists(st.sampled_from(row.choices or POOL), max_size=3)
        case _:
            return st.just("x")


def texts(*, only_settable: bool) -> st.SearchStrategy[str]:
    """Settings as a file: of all kinds that a random value can be written for."""
    kinds = ("flag", "integer", "number", "seconds", "choice", "names")
    keys: dict[str, Setting] = {}
    for key, row in ROWS.items():
        if row.kind not in kinds or (only_settable and row.project == "never"):
            continue
        if key.startswith("models.*."):
            keys |= {f"models.{name}.{row.key}": row for name in MODELS}
        elif key not in ("tools.python", "model_options", "redaction.patterns"):
            keys[key] = row
    pairs = st.sampled_from(sorted(keys)).flatmap(
        lambda key: st.tuples(st.just(key), values_for(key, keys[key]))
    )
    return st.lists(pairs, max_size=10).map(dict).map(nested)


def find_wider(key: str, before: Any, now: Any, row: Setting) -> str:
    """Return what is wider than before, or ""."""
    if before == now:
        return ""
    if not restricts(key):
        return "changed"
    if key in NARROWER_CHOICES:
        return "" if now in NARROWER_CHOICES[key][before] else "a wider choice"
    rank = {False: 0, None: 1, True: 2}
    match row.project:
        case "lower":
            return "" if before is None or (now is not None and now < before) else "higher"
        case "off":
            return "" if rank[now] < rank[before] else "on"
        case "on":
            return "" if now is True else "off"
        case "narrow":
            return "" if before is None or set(now) <= set(before) else "more"
        case _:
            return "" if set(before) <= set(now) else "fewer"


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    user=texts(only_settable=False),
    trusted=st.one_of(st.none(), texts(only_settable=True)),
    project=texts(only_settable=False),
    mode=st.one_of(st.none(), st.sampled_from(MODES)),
)
def test_no_settings_of_an_untrusted_repository_allow_more(
    user: str, trusted: str | None, project: str, mode: str | None, tmp_path_factory: Any
) -> None:
    root = tmp_path_factory.mktemp("any") / "work"
    root.mkdir()
    flags = {"mode": mode}
    try:
        before = load(root, user, flags)
    except ConfigError:
        return  # what the person wrote makes no sense
    if trusted is not None:
        put(root, trusted)
        TrustStore().trust(root)
    put(root, project)
    if TrustStore().state(root) == "trusted":
        return
    now = load(root, user, flags)
    for key, row in BY_KEY.items():
        if key in before.values and not key.startswith("permissions."):
            wider = find_wider(key, before[key], now[key], row)
            assert not wider, (key, wider, before[key], now[key])
    assert set(before.rules.allow) == set(now.rules.allow)
    assert set(before.rules.deny) <= set(now.rules.deny)
    assert set(before.rules.ask) <= set(now.rules.ask)
    for name in ("openai:gpt", "other:gpt", "x:y"):
        for row in MODEL_SETTINGS:
            key = f"models.{name}.{row.key}"
            earlier = _of_model(before, name, row.key)
            later = _of_model(now, name, row.key)
            assert not find_wider(key, earlier, later, row), (key, earlier, later)


def _of_model(found: Settings, name: str, key: str) -> Any:
    chosen = found.for_model(name)
    return getattr(chosen.limits if hasattr(chosen.limits, key) else chosen, key)


def test_the_order_of_modes_is_that_of_the_gate() -> None:
    """A mode that a repository may choose without trust decides nothing more openly."""
    from ferrule.permissions.rule_evaluation import PermissionGate
    from ferrule.tools.definition import Risk, Tool, Touch

    rank = {"deny": 0, "ask": 1, "allow": 2}
    rules = RuleSet.parse(allow=["allowed"], ask=["asked"], deny=["denied"])

    def decide(mode: Any, tool: Tool) -> int:
        return rank[PermissionGate(rules, mode=mode).decide(tool, {"path": "a.txt"}).verdict]

    for effect, risk, name in itertools.product(
        SideEffect, Risk, ("allowed", "asked", "denied", "other")
    ):
        tool = Tool(
            name=name,
            description="",
            arguments=Any,  # pyright: ignore[reportArgumentType]  not looked at
            handler=lambda: None,
            side_effect=effect,
            risk=risk,
            touches={"path": Touch("read" if effect is SideEffect.READ else "write")},
        )
        for mode, narrower in NARROWER_CHOICES["mode"].items():
            for other in narrower:
                assert decide(other, tool) <= decide(mode, tool), (mode, other, effect, risk, name)
