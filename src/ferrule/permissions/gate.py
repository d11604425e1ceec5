"""The gate: may this call happen? Values in, a decision out; no I/O, no clock, and it never raises.

Order, the first that applies decides:

1. built-in refusals: paths outside the workspace, reserved and secret names, commands over the
   analysis limit, safe mode. Nothing lifts them.
2. deny rules. Nothing lifts them either.
3. mode `plan`: only what reads.
4. explicit ask rules. No grant, allow rule or mode lifts them; `dontAsk` turns them into a no.
5. a command that cannot be judged from its text, and critical risk: ask.
6. grants (this session's, then remembered ones) and allow rules: allow if all that the call touches
is covered.
7. mode: `acceptEdits` allows edits in the workspace, `bypassPermissions` all that is left.
8. risk: safe runs; low, medium, high ask (low until it was answered once in the session).

`dontAsk` turns every ask into a deny. `auto`, which elsewhere lets a model judge, is `acceptEdits`
here: no model decides what a model may do. Nobody can ask? Then an ask is a no
(`approval.NobodyToAsk`).

What the gate does not see: what a program does once it runs (the sandbox), what a file name points
to when it is opened (the workspace opens beneath its root), what a tool does that its author did
not declare.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

from ferrule.core.errors import ConfigError
from ferrule.core.frozen import frozen
from ferrule.tools.definition import Risk, SideEffect, Tool

from .approval_digest import digest
from .call_needs import Surroundings, build_case, refused_path
from .denied_names import Denials, created_patterns
from .grant_proposals import Offer, candidates
from .grants import Grants
from .protected_names import DEFAULT, Names
from .rule_matching import Case, Matcher, Need, normal
from .rules import Layer, Rule, RuleSet, names_tool, parse_rule
from .safe_mode import SafeMode, violations

__all__ = ["MODES", "Decision", "Gate", "Mode", "Offer", "digest", "explain", "select_mode"]

Mode = Literal["default", "acceptEdits", "plan", "auto", "dontAsk", "bypassPermissions"]
MODES: tuple[Mode, ...] = ("default", "acceptEdits", "plan", "auto", "dontAsk", "bypassPermissions")
Verdict = Literal["allow", "ask", "deny"]

_READS = (SideEffect.NONE, SideEffect.READ)
_MOST_DECISIONS = 2048
_EDITS = (SideEffect.NONE, SideEffect.READ, SideEffect.WRITE)


@frozen
class Decision:
    """What the gate says. `rule` and `layer` name what decided (`layer` is `builtin` for the gate's
    own reasons), `labels` are risk labels of commands, `offers` the answers that a person may give
    besides no.
    """

    verdict: Verdict
    reason: str
    rule: str = ""
    layer: str = ""
    labels: tuple[str, ...] = ()
    offers: tuple[Offer, ...] = ()


@frozen
class _Profile:
    """What of the rules concerns one tool. `settled` is the decision if arguments cannot change
    it.
    """

    tool: Tool
    deny: tuple[Matcher, ...]
    ask: tuple[Matcher, ...]
    allow: tuple[Matcher, ...]
    settled: Decision | None


class Gate:
    """Decides for one workspace. Immutable but for its grants; another mode or other rules are
    another gate.

    `root` is the workspace as an absolute path without symlinks, `home` stands for `~` in rules and
    commands. `names` None switches reserved and secret names off: for tests of other parts only.
    """

    def __init__(
        self,
        rules: RuleSet | None = None,
        *,
        mode: Mode = "default",
        grants: Grants | None = None,
        root: Path | None = None,
        names: Names | None = DEFAULT,
        safe_mode: SafeMode | None = None,
        home: Path | None = None,
        outside: Literal["deny", "ask"] = "deny",
    ) -> None:
        if mode not in MODES:
            raise ConfigError(
                f"mode `{mode}`: there is no such mode", hint=f"use one of {', '.join(MODES)}"
            )
        self.rules = rules or RuleSet()
        self.mode: Mode = mode
        self.grants = grants or Grants()
        self.safe_mode = safe_mode
        self.around = Surroundings(
            str(root or Path.cwd()), str(home or Path.home()), names, outside
        )
        self._profiles: dict[int, _Profile] = {}
        self._matchers: dict[Rule, Matcher] = {}
        self._decisions: dict[tuple[int, tuple[Any, ...]], tuple[tuple[Rule, ...], Decision]] = {}

    def decide(self, tool: Tool, values: Mapping[str, Any]) -> Decision:
        """Whether a call with these checked values may happen. Pure and total: a failure in here is
        a deny.
        """
        profile = self._profiles.get(id(tool))
        if profile is not None and profile.settled is not None and profile.tool is tool:
            return profile.settled
        try:
            if profile is None or profile.tool is not tool:
                profile = self._profile(tool)
            if profile.settled is not None:
                return profile.settled
            return self._remembered(profile, values)
        except Exception as error:  # noqa: BLE001  boundary: whatever breaks in here must not let a call through
            reason = f"the gate failed on this call ({type(error).__name__}: {error})"
            return Decision("deny", reason, layer="builtin")

    def _remembered(self, profile: _Profile, values: Mapping[str, Any]) -> Decision:
        """Decide, or repeat what was decided for the same subjects under the same grants."""
        tool, grants = profile.tool, self.grants.rules
        subjects = tuple(values.get(name) for name in tool.touches)
        plain = all(type(subject) is str for subject in subjects)
        known = self._decisions.get((id(tool), subjects)) if plain else None
        if known is not None and known[0] is grants:
            return known[1]
        case = build_case(tool, values, self.around)
        decision = self._judge(case, profile, (), [])
        if decision.verdict == "ask":
            decision = self._with_offers(case, profile, decision)
        if plain:
            if len(self._decisions) >= _MOST_DECISIONS:
                self._decisions.clear()
            self._decisions[id(tool), subjects] = (grants, decision)
        return decision

    def trace(self, tool: Tool, values: Mapping[str, Any]) -> list[str]:
        """Each step that led to the decision, one line each, for `ferrule policy explain`."""
        steps: list[str] = []
        try:
            case = build_case(tool, values, self.around)
            steps += [f"touches {need.kind} `{need.value}`" for need in case.needs]
            steps += [
                f"sets {given}"
                for given in dict.fromkeys(v for a in case.analyses for v in a.beside)
            ]
            steps += [f"label {label}" for label in case.labels]
            self._judge(case, self._profile(tool), (), steps)
        except Exception as error:  # noqa: BLE001  boundary: as in `decide`
            steps.append(f"the gate failed: {error}")
        decision = self.decide(tool, values)
        return [*steps, *explain(decision)]

    def hidden(self, tool: Tool | str) -> bool:
        """True if a deny rule without specifier names the tool: then the model is not shown it."""
        name = tool if isinstance(tool, str) else tool.full_name
        kinds = (
            set[str]() if isinstance(tool, str) else {touch.kind for touch in tool.touches.values()}
        )
        bare = (rule for rule in self.rules.deny if rule.specifier is None)
        return any(rule.kind in kinds if rule.kind else names_tool(rule, name) for rule in bare)

    def refuses_path(self, path: str, *, write: bool = False) -> str:
        """Why no tool may read (or write) this path: for searches and listings, which meet paths
        that no argument named. Empty if it may. Knows built-in refusals and deny rules for paths.
        """
        for why in refused_path(path, write, self.around):
            return why
        return self.denies_path(path, write)

    def denies_path(self, path: str, write: bool) -> str:
        """Which of the person's deny rules for paths refuses this one. Empty if none does."""
        case = Case(
            _NO_TOOL, "", (), named=((normal(path, self.around.root, self.around.home), write),)
        )
        for rule in self.rules.deny:
            if rule.kind in ("read", "write") and self._matcher(rule).hits(case):
                return f"denied by the rule `{rule.text}`"
        return ""

    @property
    def denials(self) -> Denials | None:
        """The deny rules for paths as commands have to keep to them; None where there are none."""
        rules = [
            rule for rule in self.rules.deny if rule.kind in ("read", "write") and rule.specifier
        ]
        if not rules:
            return None
        around = self.around
        return Denials(self.denies_path, created_patterns(rules, around.root, around.home))

    def refuses(self, path: str, write: bool) -> str:
        """`refuses_path`, for the workspace."""
        return self.refuses_path(path, write=write)

    def with_mode(self, mode: Mode) -> Gate:
        """The same rules and grants in another mode."""
        return self._changed(mode, self.grants)

    def for_session(self) -> Gate:
        """The same rules and remembered grants, and session grants of its own."""
        return self._changed(self.mode, self.grants.for_session())

    def _changed(self, mode: Mode, grants: Grants) -> Gate:
        around = self.around
        return Gate(
            self.rules, mode=mode, grants=grants, root=Path(around.root), names=around.names,
            safe_mode=self.safe_mode, home=Path(around.home), outside=around.outside,
        )  # fmt: skip

    # ---- what a person said

    def grant(self, rule: str, *, remember: bool = False) -> None:
        """Add a grant. ConfigError if it is no rule or cannot be kept."""
        if remember:
            self.grants.remember(rule)
        else:
            self.grants.grant(rule)

    def settle(
        self, tool: Tool, choice: str, grant: str = "", *, offers: Sequence[Offer] | None = None
    ) -> None:
        """Apply an answer: `session` and `remember` grant a rule; any yes to low risk holds for the
        session.

        With `offers` (those of the decision that was asked about) a grant that was not offered is
        refused with
        ConfigError: an interface must not be able to grant more than the person was shown.
        """
        if (
            grant
            and offers is not None
            and all((o.choice, o.rule) != (choice, grant) for o in offers)
        ):
            raise ConfigError(f"`{grant}` was not offered as `{choice}`", code="grant_not_offered")
        if choice in ("session", "remember") and grant:
            self.grant(grant, remember=choice == "remember")
        if choice == "once" and tool.risk == Risk.LOW:
            self.grants.grant(tool.full_name)

    # ---- the order

    def _judge(
        self, case: Case, profile: _Profile, extra: tuple[Matcher, ...], steps: list[str]
    ) -> Decision:
        for step in (self._refused, self._denied, self._planned, self._asked, self._unsure):
            decision = step(case, profile)
            steps.append(f"{step.__name__[1:]}: {decision.reason if decision else 'nothing'}")
            if decision is not None:
                return decision
        covered = self._covered(case, profile, extra)
        steps.append(f"allowed: {covered.reason if covered else 'not all of it'}")
        return covered or self._by_mode(case) or self._by_risk(case, profile)

    def _refused(self, case: Case, profile: _Profile) -> Decision | None:
        if case.refusal:
            return Decision("deny", case.refusal, layer="builtin", labels=case.labels)
        why = next(violations(self.safe_mode, case, self.around.root), "") if self.safe_mode else ""
        return Decision("deny", why, layer="builtin", labels=case.labels) if why else None

    def _denied(self, case: Case, profile: _Profile) -> Decision | None:
        for matcher in profile.deny:
            if matcher.hits(case):
                return _by(matcher.rule, "deny", "denied", case)
        return None

    def _planned(self, case: Case, profile: _Profile) -> Decision | None:
        if self.mode != "plan" or case.tool.side_effect in _READS:
            return None
        reason = f"mode plan: `{case.name}` may {case.tool.side_effect}; only what reads is allowed"
        return Decision("deny", reason, layer="builtin", labels=case.labels)

    def _asked(self, case: Case, profile: _Profile) -> Decision | None:
        for matcher in profile.ask:
            if matcher.hits(case):
                return self._ask(case, f"the rule `{matcher.rule.text}` asks", matcher.rule)
        return None

    def _unsure(self, case: Case, profile: _Profile) -> Decision | None:
        if case.unsure:
            return self._ask(case, case.unsure)
        if case.tool.risk == Risk.CRITICAL:
            return self._ask(case, f"`{case.name}` has critical risk")
        return None

    def _covered(
        self, case: Case, profile: _Profile, extra: tuple[Matcher, ...]
    ) -> Decision | None:
        used: dict[str, Rule] = {}
        for found, _ in self._covering(case, profile, extra):
            if found is None:
                return None
            used.setdefault(found.text, found)
        first = next(iter(used.values()))
        return _by(first, "allow", "allowed", case, " and ".join(f"`{text}`" for text in used))

    def _covering(
        self, case: Case, profile: _Profile, extra: tuple[Matcher, ...] = ()
    ) -> Iterator[tuple[Rule | None, Need]]:
        """The rule that covers each need, None where there is none."""
        pool = (*extra, *(self._matcher(rule) for rule in self.grants.rules), *profile.allow)
        # Where a command starts is no permission of its own: the rule for the command is. Deny
        # rules still see it.
        command = any(need.kind == "command" for need in case.needs)
        for need in case.needs:
            if command and need.kind == "read" and need.analysis is None:
                continue
            yield next((matcher.rule for matcher in pool if matcher.covers(need, case)), None), need

    def _by_mode(self, case: Case) -> Decision | None:
        if self.mode == "bypassPermissions":
            return Decision("allow", "mode bypassPermissions", layer="builtin", labels=case.labels)
        if self.mode not in ("acceptEdits", "auto") or case.tool.side_effect not in _EDITS:
            return None
        if all(need.kind in ("read", "write") for need in case.needs):
            return Decision("allow", f"mode {self.mode}: an edit in the workspace", layer="builtin")
        return None

    def _by_risk(self, case: Case, profile: _Profile) -> Decision:
        if case.tool.risk == Risk.SAFE:
            return Decision(
                "allow", f"`{case.name}` has safe risk", layer="builtin", labels=case.labels
            )
        reason = f"`{case.name}` has {case.tool.risk} risk"
        if self.rules.allow and any(need.kind == "command" for need in case.needs):
            open_needs = [need for found, need in self._covering(case, profile) if found is None]
            if open_needs:
                reason += f" and no rule allows {self._shown(open_needs[0])}"
        return self._ask(case, reason)

    def _shown(self, need: Need) -> str:
        if need.kind != "write":
            return f"`{need.value}`"
        name = need.value.removeprefix(self.around.root.rstrip("/") + "/")
        return f"to write `{name}`" if name else "to write a file that is known only when it runs"

    def _ask(self, case: Case, reason: str, rule: Rule | None = None) -> Decision:
        name, layer = (rule.text, rule.layer) if rule else ("", "builtin")
        if self.mode == "dontAsk":
            return Decision(
                "deny", f"{reason}; mode dontAsk does not ask", name, layer, case.labels
            )
        return Decision("ask", reason, name, layer, case.labels, (Offer("once", ""),))

    def _with_offers(self, case: Case, profile: _Profile, decision: Decision) -> Decision:
        """Offer only grants that would have satisfied this gate: each is tried."""
        offers = list(decision.offers)
        working: list[str] = []
        for text in (
            candidates(case, self.around.root) if not (decision.rule or case.unsure) else ()
        ):
            matcher = Matcher(parse_rule(text, layer="session"), self.around.root, self.around.home)
            if self._judge(case, profile, (matcher,), []).verdict == "allow":
                working.append(text)
        offers += [Offer("session", text) for text in working]
        offers += [Offer("remember", text) for text in working]
        return Decision(
            decision.verdict,
            decision.reason,
            decision.rule,
            decision.layer,
            decision.labels,
            tuple(offers),
        )

    # ---- preparation

    def _matcher(self, rule: Rule) -> Matcher:
        matcher = self._matchers.get(rule)
        if matcher is None:
            matcher = self._matchers[rule] = Matcher(rule, self.around.root, self.around.home)
        return matcher

    def _profile(self, tool: Tool) -> _Profile:
        kinds = {touch.kind for touch in tool.touches.values()}
        if "command" in kinds:
            kinds |= {"read", "write"}

        def concerning(rules: tuple[Rule, ...]) -> tuple[Matcher, ...]:
            return tuple(
                self._matcher(r)
                for r in rules
                if (r.kind in kinds if r.kind else names_tool(r, tool.full_name))
            )

        profile = _Profile(
            tool,
            concerning(self.rules.deny),
            concerning(self.rules.ask),
            concerning(self.rules.allow),
            None,
        )
        if not tool.touches and tool.risk == Risk.SAFE:
            # Arguments that name nothing cannot change the answer: this is the short way of every
            # safe call.
            case = Case(tool, tool.full_name, build_case(tool, {}, self.around).needs)
            decision = self._judge(case, profile, (), [])
            if decision.verdict != "ask":
                profile = _Profile(tool, profile.deny, profile.ask, profile.allow, decision)
        self._profiles[id(tool)] = profile
        return profile


def _by(rule: Rule, verdict: Verdict, word: str, case: Case, shown: str = "") -> Decision:
    reason = f"{word} by {shown or f'`{rule.text}`'} ({rule.layer})"
    return Decision(verdict, reason, rule.text, rule.layer, case.labels)


def select_mode(mode: str, layer: Layer) -> Mode:
    """A mode as settings name it. ConfigError for an unknown one, and for `auto` or
    `bypassPermissions` in a project's own settings: a repository cannot decide that nobody is
    asked.
    """
    if mode not in MODES:
        raise ConfigError(
            f"mode `{mode}`: there is no such mode", hint=f"use one of {', '.join(MODES)}"
        )
    if layer in ("project", "local") and mode in ("auto", "bypassPermissions"):
        raise ConfigError(
            f"mode `{mode}` in the settings of a project is not followed",
            code="mode_from_project",
            hint="choose it on the command line or in your own settings",
        )
    return mode


def explain(decision: Decision) -> list[str]:
    """A decision in lines for a person."""
    lines = [f"{decision.verdict}: {decision.reason}"]
    if decision.rule:
        lines.append(f"rule `{decision.rule}` ({decision.layer})")
    if decision.labels:
        lines.append(f"labels: {', '.join(decision.labels)}")
    lines += [f"offer {offer.choice}: `{offer.rule}`" for offer in decision.offers if offer.rule]
    return lines


def _never(**_: object) -> None:
    return None


_NO_TOOL = Tool(name="", description="", arguments=cast("Any", None), handler=_never)
