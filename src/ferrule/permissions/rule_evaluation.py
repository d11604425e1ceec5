"""The gate: evaluates the permission rules for a call. Values in, a decision out.

No I/O, no clock, and it never raises. The first step that applies decides:

1. built-in refusals: paths outside the workspace, reserved and secret names, commands over the
   analysis limit, safe mode. Nothing overrides them.
2. deny rules. Nothing overrides them either.
3. mode `plan`: only what reads is allowed.
4. explicit ask rules. No grant, allow rule or mode overrides them; `dontAsk` makes them a deny.
5. a command that cannot be judged from its text, and critical risk: ask.
6. grants (those of the session, then remembered ones) and allow rules: allow if all that the call
   touches is covered. A person can grant all commands of a session where the kernel confines them:
   then a doubt about which files a command touches is the kernel's to answer, and what
   `ONCE_ONLY` names is asked about as before.
7. mode: `acceptEdits` allows edits in the workspace, `sandboxed` also commands that the sandbox
   holds whole (not those that delete, publish or have a label of `ONCE_ONLY`),
   `bypassPermissions` all that is left.
8. reads: unless `reads="ask"`, a tool that only reads, and names what it reads, may read the
   workspace; so may a command that only reads (`command_analysis.reading_commands`), where the
   kernel confines it. Each part of a command may be allowed in its own way: `ls && make` by a rule
   for `make`, `ls > list.txt` by a rule, or a mode, for edits of `list.txt`.
9. risk: safe is allowed; low, medium and high ask (low only until it was approved once in the
   session).

`dontAsk` turns every ask into a deny. `auto`, which elsewhere lets a model decide, is `acceptEdits`
here: no model decides what a model may do. If no one can be asked, an ask is a deny
(`approvals.DenyingApprover`).

What the gate does not see: what a program does once it runs (the sandbox), what a file name points
to when it is opened (the workspace opens beneath its root), what a tool does that its author did
not declare.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

from ferrule.core.errors import ConfigError
from ferrule.core.value_class import frozen
from ferrule.core.vocabulary import (
    ApprovalChoice,
    GateVerdict,
    PermissionMode,
    Refuser,
    RuleLayer,
)
from ferrule.tools.definition import Confinement, Loading, Risk, SideEffect, Tool

from . import command_analysis
from .approvals import digest_arguments
from .call_analysis import (
    NOTHING_OPENED,
    CallContext,
    OpenedFolders,
    analyse_call,
    find_path_refusals,
)
from .grant_proposals import ONCE_ONLY, GrantOffer, comes_again, propose_all_edits, propose_grants
from .grants import Grants
from .path_denials import PathDenials, could_name, names_something_in
from .protected_names import DEFAULT_NAMES, ProtectedNames
from .rule_matching import (
    AllowRules,
    AnalysedCall,
    RequiredAccess,
    RuleMatcher,
    find_unspelled_words,
)
from .rules import PermissionRule, RuleSet, is_session_wide, matches_tool, parse_rule
from .safe_mode import SafeMode, find_violations

__all__ = [
    "MODES",
    "Decision",
    "GrantOffer",
    "PermissionGate",
    "describe_decision",
    "digest_arguments",
    "select_mode",
]

MODES: tuple[PermissionMode, ...] = get_args(PermissionMode)

_READS = (SideEffect.NONE, SideEffect.READ)
_EDIT_MODES = ("acceptEdits", "auto", "sandboxed")
_DELETING_TOOLS = ("delete_path",)
"""Tools of files that mode `sandboxed` asks about, as it does about commands that delete."""
_EDITS = (SideEffect.NONE, SideEffect.READ, SideEffect.WRITE)
_MAX_CACHED_DECISIONS = 2048


@frozen
class Decision:
    """The decision about a call.

    Attributes:
        verdict: `allow`, `ask` or `deny`.
        reason: Why, for people.
        rule: The rule that decided; empty if none did.
        layer: Where that rule comes from; `builtin` for the gate's own reasons.
        labels: Risk labels of the call's commands.
        offers: The answers besides no that a person may give.
        by_mode: Whether it is the mode that denies it.
    """

    verdict: GateVerdict
    reason: str
    rule: str = ""
    layer: RuleLayer | Literal[""] = ""
    labels: tuple[str, ...] = ()
    offers: tuple[GrantOffer, ...] = ()
    by_mode: bool = False

    @property
    def refuser(self) -> Refuser:
        """Who refuses a call that is denied."""
        if self.by_mode:
            return "mode"
        return "rule" if self.rule else "gate"


@frozen
class _Profile:
    """The rules that concern one tool, and the decision if arguments cannot change it."""

    tool: Tool
    deny: tuple[RuleMatcher, ...]
    ask: tuple[RuleMatcher, ...]
    allow: AllowRules
    fixed_decision: Decision | None


_ConcerningRules = tuple[tuple[RuleMatcher, ...], tuple[RuleMatcher, ...], AllowRules]
"""The deny, ask and allow rules that concern some tools."""


def _has_rules_for_commands(profile: _Profile) -> bool:
    """Return whether a rule could refuse or ask about a command that a doubt leaves open."""
    matchers = (*profile.deny, *profile.ask)
    return any(matcher.rule.kind not in ("read", "write") for matcher in matchers)


class Rules(Protocol):
    """What may be asked of rules: an answer changes nothing."""

    def decide(self, tool: Tool, values: Mapping[str, Any]) -> Decision:
        """Return what the rules say of a call."""
        ...

    def find_refusal(self, path: str, write: bool) -> str:
        """Return why a path of the workspace may not be read, or written; "" if it may."""
        ...


class PermissionGate:
    """Decides about the calls in one workspace.

    Immutable except for its grants and the folders that a person opens for commands: another mode
    or other rules make another gate.

    Args:
        rules: The permission rules.
        mode: The permission mode, one of `MODES`.
        grants: What a person has granted so far.
        root: The workspace, as an absolute path without symlinks; the current folder by default.
        names: Names that no tool may touch. None switches them off, for tests of other parts only.
        safe_mode: The programs and paths that safe mode allows.
        home: The folder that `~` stands for in rules and commands.
        outside: What happens to a command that names a path outside the workspace.
        reads: Whether reading a file of the workspace is a question.
        opened: Folders outside the workspace that commands may name.
        resources: What the run was given, by type: a tool says with it what confines its commands
            (`Tool.find_confinement`), where that decides. None: no run is known, and nothing
            confines.
        remember_mode: Keeps the mode that a person chose in answer to a question, for later
            sessions in this workspace. None: no question offers a mode.

    Raises:
        ConfigError: There is no such mode.
    """

    def __init__(  # noqa: PLR0913  what a gate is made of, each by name
        self,
        rules: RuleSet | None = None,
        *,
        mode: PermissionMode = "default",
        grants: Grants | None = None,
        root: Path | None = None,
        names: ProtectedNames | None = DEFAULT_NAMES,
        safe_mode: SafeMode | None = None,
        home: Path | None = None,
        outside: Literal["deny", "ask"] = "deny",
        reads: Literal["ask", "allow"] = "allow",
        opened: OpenedFolders = NOTHING_OPENED,
        resources: Mapping[type, object] | None = None,
        remember_mode: Callable[[PermissionMode], None] | None = None,
    ) -> None:
        self.reads: Literal["ask", "allow"] = reads
        self.rules = rules or RuleSet()
        self.mode: PermissionMode = select_mode(mode)
        self.grants = grants or Grants()
        self.safe_mode = safe_mode
        self.resources = resources
        self.remember_mode = remember_mode
        self.context = CallContext(
            str(root or Path.cwd()), str(home or Path.home()), names, outside, opened
        )
        self._path_denials = PathDenials(
            tuple(rule for rule in self.rules.deny if rule.kind in ("read", "write")),
            self.context.root,
            self.context.home,
        )
        self._concerning: dict[tuple[str, frozenset[str]], _ConcerningRules] = {}
        self._grant_index: tuple[tuple[PermissionRule, ...], AllowRules] = ((), self._index(()))
        self._forget_decisions()

    def _forget_decisions(self) -> None:
        self._starts: dict[int, tuple[Tool, str, tuple[str, ...]]] = {}
        self._profiles: dict[int, _Profile] = {}
        self._decisions: dict[
            tuple[int, tuple[Any, ...]], tuple[tuple[PermissionRule, ...], Decision]
        ] = {}

    def decide(self, tool: Tool, values: Mapping[str, Any]) -> Decision:
        """Decide whether a call with these validated arguments may run.

        Never raises: a failure in here is a deny.
        """
        profile = self._profiles.get(id(tool))
        try:
            if profile is None or profile.tool is not tool:
                profile = self._build_profile(tool)
            if profile.fixed_decision is not None:
                return profile.fixed_decision
            return self._decide_cached(profile, values)
        except Exception as error:  # noqa: BLE001  boundary: whatever breaks in here must not let a call through
            reason = f"the gate failed on this call ({type(error).__name__}: {error})"
            return Decision("deny", reason, layer="builtin")

    def _decide_cached(self, profile: _Profile, values: Mapping[str, Any]) -> Decision:
        """Decide, or return the decision about the same subjects under the same grants."""
        tool = profile.tool
        grants = self.grants.rules
        subjects = tuple(values.get(name) for name in tool.touches)
        # Where a command starts decides as well, and that changes; so does what it amounts to.
        is_uncertain = id(tool.handler) in self._starts or tool.command_form is not None
        if is_uncertain or not all(type(subject) is str for subject in subjects):
            return self._decide(profile, values)
        cached = self._decisions.get((id(tool), subjects))
        if cached is not None and cached[0] is grants:
            return cached[1]
        decision = self._decide(profile, values)
        if len(self._decisions) >= _MAX_CACHED_DECISIONS:
            self._decisions.clear()
        self._decisions[id(tool), subjects] = (grants, decision)
        return decision

    def start_in(self, tool: Tool, folder: str, unless: tuple[str, ...] = ()) -> None:
        """Judge commands of a tool from now on as started in a folder of the workspace.

        Args:
            tool: The tool, under whatever name; it starts its commands there.
            folder: The folder, relative to the workspace; "" is the workspace itself.
            unless: Parameters; a call that gives one of them starts elsewhere, as it says.
        """
        # The tool is kept so that the number stays its handler's.
        self._starts[id(tool.handler)] = (tool, folder, unless)

    def start_as(self, other: PermissionGate) -> None:
        """Judge commands as started where another gate of the same session has them start."""
        self._starts = other._starts

    def find_start(self, tool: Tool, values: Mapping[str, Any]) -> str:
        """Return the folder, relative to the workspace, that `start_in` gave for such a call."""
        _, folder, unless = self._starts.get(id(tool.handler), (tool, "", ()))
        return "" if any(values.get(name) for name in unless) else folder

    def locate(self, tool: Tool, values: Mapping[str, Any]) -> CallContext:
        """Return what a call is judged by: the workspace, and where its commands start."""
        start = self.find_start(tool, values)
        return replace(self.context, start=start) if start else self.context

    def _decide(self, profile: _Profile, values: Mapping[str, Any]) -> Decision:
        case = self._analyse(profile.tool, values)
        decision = self._judge(case, profile, (), [])
        if decision.verdict == "ask":
            return self._with_offers(case, profile, decision)
        return decision

    def _analyse(self, tool: Tool, values: Mapping[str, Any]) -> AnalysedCall:
        """Analyse a call; where it would be outside, with the folders that confinement gives."""
        around = self.locate(tool, values)
        case = analyse_call(tool, values, around)
        if "outside_workspace" not in case.labels and not case.refusal:
            return case
        confinement = self.find_confinement(tool)
        if confinement is None:
            return case
        opened = around.opened.add_confinement(confinement)
        around = replace(around, opened=opened, own=confinement.shared)
        return analyse_call(tool, values, around)

    def explain_steps(self, tool: Tool, values: Mapping[str, Any]) -> list[str]:
        """Return the steps that led to a decision, a line each, for `ferrule policy explain`."""
        steps: list[str] = []
        try:
            case = self._analyse(tool, values)
            steps += [f"touches {need.kind} `{need.value}`" for need in case.needs]
            variables: dict[str, None] = {}
            for analysis in case.analyses:
                variables |= dict.fromkeys(analysis.call_variables)
            steps += [f"sets {variable}" for variable in variables]
            steps += [f"label {label}" for label in case.labels]
            self._judge(case, self._build_profile(tool), (), steps)
        except Exception as error:  # noqa: BLE001  boundary: as in `decide`
            steps.append(f"the gate failed: {error}")
        decision = self.decide(tool, values)
        return [*steps, *describe_decision(decision)]

    def is_usable(self, tool: Tool, scopes: frozenset[str]) -> bool:
        """Return whether a run with these scopes may use the tool and know that it exists."""
        shown = tool.loading is not Loading.INTERNAL
        return shown and tool.scopes <= scopes and not self.is_hidden(tool)

    def is_hidden(self, tool: Tool | str) -> bool:
        """Return whether a deny rule covers every use of the tool, so that models do not see it."""
        if isinstance(tool, str):
            name = tool
            kinds = set[str]()
        else:
            name = tool.full_name
            kinds = {touch.kind for touch in tool.touches.values()}
        for rule in self.rules.deny:
            if rule.specifier is None and _concerns(rule, name, kinds):
                return True
        return False

    def find_path_refusal(self, path: str, *, write: bool = False) -> str:
        """Return why no tool may read (or write) this path; empty if one may.

        For searches and listings, which meet paths that no argument named. Knows built-in refusals
        and deny rules for paths.
        """
        names = self.context.names
        # Walks come here with every name: the same answer without looking at the root.
        is_usual = not self._path_denials.rules and _is_below_root(path)
        if is_usual and names is not None and names.check(path, write=write) is None:
            return ""
        for reason in find_path_refusals(path, write, self.context):
            return reason
        return self.find_denied_path_rule(path, write)

    def find_denied_path_rule(self, path: str, write: bool) -> str:
        """Return which deny rule for paths refuses this one; empty if none does."""
        return self._path_denials.find_refusal(path, write)

    def find_question_refusal(self, tool: Tool, values: Mapping[str, Any]) -> str:
        """Return why a handler's question is not put to a person; empty if it may be.

        In mode `dontAsk` nobody is asked. What a deny rule names cannot be opened by an answer, nor
        can a folder outside the workspace in which one names something: there, commands are not
        kept from it.
        """
        if self.mode == "dontAsk":
            return "mode dontAsk does not ask"
        case = analyse_call(tool, values, self.context)
        denied = self._check_deny_rules(case, self._build_profile(tool))
        if denied is not None:
            return denied.reason
        rules = [rule for rule in self.rules.deny if rule.kind in ("read", "write")]
        for need in case.needs:
            path = Path(need.value) if need.kind in ("read", "write") else Path(self.context.root)
            if path.is_relative_to(self.context.root):
                continue
            for rule in rules:
                if names_something_in(rule, need.value, self.context.root, self.context.home):
                    return f"the rule `{rule.text}` denies something in `{need.value}`"
        return ""

    def open_named_folders(self, tool: Tool, values: Mapping[str, Any]) -> None:
        """Let commands name the folders that a person opened by their answer to a question."""
        opened = self.context.opened
        for need in analyse_call(tool, values, self.context).needs:
            if need.kind not in ("read", "write"):
                continue
            if Path(need.value).is_relative_to(self.context.root):
                continue
            key = "writable" if need.kind == "write" else "readable"
            opened = replace(opened, **{key: (*getattr(opened, key), need.value)})
        self.context = replace(self.context, opened=opened)
        self._decisions.clear()

    @property
    def path_denials(self) -> PathDenials | None:
        """The deny rules for paths, which also bind commands; None if there are none."""
        return self._path_denials.for_commands()

    @property
    def only_lists(self) -> ProtectedNames | None:
        """The lists of names, if `find_refusal` goes by nothing else below the root; else None."""
        return None if self._path_denials.rules else self.context.names

    def find_refusal(self, path: str, write: bool) -> str:
        """Return what `find_path_refusal` returns. The form that a workspace calls."""
        return self.find_path_refusal(path, write=write)

    def find_confinement(self, tool: Tool) -> Confinement | None:
        """Return what the kernel holds a tool's commands to in this run, as the tool says."""
        return None if self.resources is None else tool.find_confinement(self.resources)

    def in_run(self, resources: Mapping[type, object]) -> PermissionGate:
        """Return this gate for runs that are given these resources. The grants are the same."""
        made = copy(self)
        made.resources = resources
        made._forget_decisions()
        return made

    def with_mode(self, mode: PermissionMode) -> PermissionGate:
        """Return a gate with the same rules and grants in another mode."""
        made = self._copy(mode, self.grants)
        made.start_as(self)
        return made

    def for_session(self) -> PermissionGate:
        """Return a gate with the same rules and remembered grants, but its own session grants."""
        return self._copy(self.mode, self.grants.for_session())

    def _copy(self, mode: PermissionMode, grants: Grants) -> PermissionGate:
        """Return a gate with the same rules, which has decided nothing yet."""
        made = copy(self)
        made.mode = select_mode(mode)
        made.grants = grants
        made._forget_decisions()
        return made

    # ---- a person's answers

    def grant(self, rule: str, *, remember: bool = False) -> None:
        """Add a grant. Raises ConfigError if it is not a rule or cannot be stored."""
        if remember:
            self.grants.remember(rule)
        else:
            self.grants.grant(rule)

    def apply_answer(
        self,
        tool: Tool,
        choice: ApprovalChoice,
        grant: str = "",
        *,
        offers: Sequence[GrantOffer] | None = None,
    ) -> None:
        """Apply a person's answer to an approval request.

        `session` and `remember` grant a rule. `mode` is kept for later sessions; who asked changes
        the mode of this one. A yes to a tool of low risk holds for the session.

        Args:
            tool: The tool that was asked about.
            choice: The answer.
            grant: The rule that was chosen.
            offers: The offers of the decision that was asked about. An interface must not be able
                to grant more than the person was shown.

        Raises:
            ConfigError: The grant is not among the offers, or cannot be stored.
        """
        offered = offers is None or any(
            (offer.choice, offer.rule) == (choice, grant) for offer in offers
        )
        if grant and not offered:
            raise ConfigError(f"`{grant}` was not offered as `{choice}`", code="grant_not_offered")
        if choice in ("session", "remember") and grant:
            self.grant(grant, remember=choice == "remember")
        if choice == "mode" and self.remember_mode is not None:
            self.remember_mode(select_mode(grant))
        if choice == "once" and tool.risk == Risk.LOW:
            self.grants.grant(tool.full_name)

    # ---- the steps of a decision, in order

    def _judge(
        self,
        case: AnalysedCall,
        profile: _Profile,
        extra: tuple[RuleMatcher, ...],
        trace: list[str],
    ) -> Decision:
        """Take the steps until one decides.

        Args:
            case: The call.
            profile: The rules that concern its tool.
            extra: Allow rules on trial.
            trace: Gets a line per step.
        """
        steps = (
            ("built-in refusals", self._check_refusals),
            ("deny rules", self._check_deny_rules),
            ("mode plan", self._check_plan_mode),
            ("ask rules", self._check_ask_rules),
        )
        for name, step in steps:
            decision = step(case, profile)
            trace.append(f"{name}: {decision.reason if decision else 'nothing'}")
            if decision is not None:
                return decision
        all_granted = self._grants_all_commands(case, extra)
        why = case.firm_doubt
        # Values come into commands as into any program, which this mode runs in the sandbox.
        if self.mode == "sandboxed" and not _has_rules_for_commands(profile):
            why = case.program_doubt
        if not all_granted:
            why = case.doubt or self._find_possible_denial(case, profile)
        doubt = self._check_doubts(case, why)
        trace.append(f"doubts: {doubt.reason if doubt else 'nothing'}")
        if doubt is not None:
            return doubt
        covered = self._check_allow_rules(case, profile, extra)
        trace.append(f"allow rules: {covered.reason if covered else 'do not cover all of it'}")
        return (
            covered
            or self._check_mode(case)
            or self._check_reads(case)
            or self._check_parts(case, profile, extra)
            or self._check_risk(case, profile)
        )

    def _check_refusals(self, case: AnalysedCall, profile: _Profile) -> Decision | None:
        reason = case.refusal
        if not reason and self.safe_mode:
            reason = next(find_violations(self.safe_mode, case, self.context.root), "")
        return self._deny(case, reason) if reason else None

    def _check_deny_rules(self, case: AnalysedCall, profile: _Profile) -> Decision | None:
        for matcher in profile.deny:
            if matcher.could_match(case):
                rule = matcher.rule
                reason = f"denied by `{rule.text}` ({rule.layer})"
                return Decision("deny", reason, rule.text, rule.layer, case.labels)
        return None

    def _check_plan_mode(self, case: AnalysedCall, profile: _Profile) -> Decision | None:
        if self.mode != "plan" or case.tool.side_effect in _READS:
            return None
        reason = f"mode plan: `{case.name}` may {case.tool.side_effect}; only what reads is allowed"
        return replace(self._deny(case, reason), by_mode=True)

    def _check_ask_rules(self, case: AnalysedCall, profile: _Profile) -> Decision | None:
        for matcher in profile.ask:
            if matcher.could_match(case):
                return self._ask(case, f"the rule `{matcher.rule.text}` asks", matcher.rule)
        return None

    def _check_doubts(self, case: AnalysedCall, doubt: str) -> Decision | None:
        if doubt:
            return self._ask(case, doubt)
        if case.tool.risk == Risk.CRITICAL:
            return self._ask(case, f"`{case.name}` has critical risk")
        return None

    def _find_possible_denial(self, case: AnalysedCall, profile: _Profile) -> str:
        """Return why a name that only the shell knows could be one that a rule names."""
        for path, is_written in case.possible_files:
            for matcher in (*profile.deny, *profile.ask):
                rule = matcher.rule
                is_about_it = rule.kind == "read" or (rule.kind == "write" and is_written)
                if (
                    is_about_it
                    and rule.specifier is not None
                    and could_name(path, rule, self.context.root, self.context.home)
                ):
                    return f"a name with wildcards or variables could be one of `{rule.text}`"
        return ""

    def _grants_all_commands(self, case: AnalysedCall, extra: tuple[RuleMatcher, ...]) -> bool:
        """Return whether a person granted all commands of the session and this is one of them."""
        if not case.analyses or ONCE_ONLY.intersection(case.labels):
            return False
        if self.mode == "sandboxed":
            return self.find_confinement(case.tool) is not None
        tried = [matcher.rule for matcher in extra if is_session_wide(matcher.rule)]
        granted = (*tried, *self._index_grants().session_wide)
        is_granted = any(matches_tool(rule, case.name) for rule in granted)
        return is_granted and self.find_confinement(case.tool) is not None

    def _check_allow_rules(
        self, case: AnalysedCall, profile: _Profile, extra: tuple[RuleMatcher, ...]
    ) -> Decision | None:
        used: dict[str, PermissionRule] = {}
        for _, rule in self._covering_rules(case, profile, extra):
            if rule is None:
                return None
            used.setdefault(rule.text, rule)
        first = next(iter(used.values()))
        texts = " and ".join(f"`{text}`" for text in used)
        reason = f"allowed by {texts} ({first.layer})"
        return Decision("allow", reason, first.text, first.layer, case.labels)

    def _covering_rules(
        self, case: AnalysedCall, profile: _Profile, extra: tuple[RuleMatcher, ...] = ()
    ) -> Iterator[tuple[RequiredAccess, PermissionRule | None]]:
        """Yield each need with the rule that covers it, or None."""
        granted = self._index_grants()
        leaves_out = case.analyses and not self._grants_all_commands(case, extra)
        has_command = any(need.kind == "command" for need in case.needs)
        for need in case.needs:
            # The rule for a command also covers the folder that it starts in, which only deny rules
            # look at.
            if has_command and need.kind == "read" and need.analysis is None:
                continue
            covering = (
                matcher.rule
                for matcher in (*extra, *granted.find(need), *profile.allow.find(need))
                if not (leaves_out and is_session_wide(matcher.rule)) and matcher.covers(need, case)
            )
            yield need, next(covering, None)

    def _check_mode(self, case: AnalysedCall) -> Decision | None:
        if self.mode == "bypassPermissions":
            return Decision("allow", "mode bypassPermissions", layer="builtin", labels=case.labels)
        if self.mode == "sandboxed" and case.analyses:
            return self._check_held_command(case)
        if self.mode == "sandboxed" and case.name.rpartition("::")[2] in _DELETING_TOOLS:
            return None
        if self.mode not in _EDIT_MODES or case.tool.side_effect not in _EDITS:
            return None
        if all(need.kind in ("read", "write") for need in case.needs):
            return Decision("allow", f"mode {self.mode}: an edit in the workspace", layer="builtin")
        return None

    def _check_held_command(self, case: AnalysedCall) -> Decision | None:
        """Allow a command that the sandbox holds whole: not one that deletes or publishes."""
        if not self._grants_all_commands(case, ()):
            return None
        for analysis in case.analyses:
            for part in analysis.parts:
                words = [word.text if word.is_known else "" for word in part.words_after_wrappers]
                if command_analysis.publishes(words):
                    return None
        return Decision(
            "allow",
            "mode sandboxed: the sandbox holds the command",
            layer="builtin",
            labels=case.labels,
        )

    def _check_reads(self, case: AnalysedCall) -> Decision | None:
        """Allow what only reads files of the workspace; what is outside was refused before."""
        if self.reads != "allow" or not case.needs:
            return None
        if case.brings_content:
            return Decision("allow", "reads only what the call brings", layer="builtin")
        if case.tool.side_effect != SideEffect.READ:
            return None
        if any(need.kind != "read" or need.analysis is not None for need in case.needs):
            return None
        return Decision("allow", "reads in the workspace", layer="builtin", labels=case.labels)

    def _check_parts(
        self, case: AnalysedCall, profile: _Profile, extra: tuple[RuleMatcher, ...]
    ) -> Decision | None:
        """Allow a confined command of which each part is allowed by itself.

        By a rule, since it only reads, or since all that it writes may be edited.
        """
        if self.reads != "allow" or not case.analyses or ONCE_ONLY.intersection(case.labels):
            return None
        held = self.find_confinement(case.tool)
        if held is None:
            return None
        rules: dict[str, None] = {}
        for need, rule in self._covering_rules(case, profile, extra):
            if rule is not None:
                rules.setdefault(f"`{rule.text}`")
            elif not self._is_free_in_sandbox(need, held):
                return None
        reason = "a command that only reads, in the sandbox"
        if rules:
            reason += f", apart from what {' and '.join(rules)} allows"
        elif any(need.kind == "write" for need in case.needs):
            reason += f", and edits as mode {self.mode} allows"
        return Decision("allow", reason, layer="builtin", labels=case.labels)

    def _is_free_in_sandbox(self, need: RequiredAccess, held: Confinement) -> bool:
        """Return whether a command may do this unasked where the kernel confines it."""
        if need.kind == "write":
            is_edit = need.value.startswith(f"{self.context.root.rstrip('/')}/")
            return is_edit and self.mode in _EDIT_MODES
        if need.part is None or need.analysis is None:
            return False
        return command_analysis.part_only_reads(need.part, need.analysis, held)

    def _check_risk(self, case: AnalysedCall, profile: _Profile) -> Decision:
        reason = f"`{case.name}` has {case.tool.risk} risk"
        if self.mode == "sandboxed" and (asked := sorted(ONCE_ONLY.intersection(case.labels))):
            reason = f"mode sandboxed asks about commands with the label {' and '.join(asked)}"
        if case.tool.risk == Risk.SAFE:
            return Decision("allow", reason, layer="builtin", labels=case.labels)
        if self.rules.allow and any(need.kind == "command" for need in case.needs):
            for need, rule in self._covering_rules(case, profile):
                if rule is None:
                    why = self._explain_uncovered(need, profile)
                    return self._ask(case, f"{reason} and {why}")
        return self._ask(case, reason)

    def _explain_uncovered(self, need: RequiredAccess, profile: _Profile) -> str:
        """Say that no rule allows a need, and which of its words would have to be in a rule."""
        why = f"no rule allows {self._describe(need)}"
        if need.part is None:
            return why
        for matcher in (*self._index_grants().find(need), *profile.allow.find(need)):
            rule = matcher.rule
            words = find_unspelled_words(rule.specifier or "", need.part)
            if words and rule.kind in ("command", ""):
                named = ", ".join(f"`{word}`" for word in words)
                return f"{why}: `{rule.text}` covers {named} only if it spells it out"
        return why

    def _describe(self, need: RequiredAccess) -> str:
        if need.kind != "write":
            return f"`{need.value}`"
        name = need.value.removeprefix(self.context.root.rstrip("/") + "/")
        return f"to write `{name}`" if name else "to write a file that is known only when it runs"

    def _deny(self, case: AnalysedCall, reason: str) -> Decision:
        return Decision("deny", reason, layer="builtin", labels=case.labels)

    def _ask(self, case: AnalysedCall, reason: str, rule: PermissionRule | None = None) -> Decision:
        name, layer = (rule.text, rule.layer) if rule else ("", "builtin")
        if self.mode == "dontAsk":
            reason = f"{reason}; mode dontAsk does not ask"
            return Decision("deny", reason, name, layer, case.labels, by_mode=True)
        return Decision("ask", reason, name, layer, case.labels, (GrantOffer("once", ""),))

    def _with_offers(self, case: AnalysedCall, profile: _Profile, decision: Decision) -> Decision:
        """Add offers of grants. Each is tried: only those that would have allowed the call stay."""
        if decision.rule or case.program_doubt:
            return decision
        proposed = propose_grants(case, self.context.root)
        wide = (*propose_all_edits(case, self.context.root), *self._propose_all_commands(case))
        working: list[str] = []
        for text in dict.fromkeys((*proposed, *wide)):
            rule = parse_rule(text, layer="session")
            matcher = RuleMatcher(rule, self.context.root, self.context.home)
            if self._judge(case, profile, (matcher,), []).verdict == "allow":
                working.append(text)
        session = [GrantOffer("session", text) for text in working]
        # Another session may be confined by less, or be about another task: nothing wide.
        remember = [
            GrantOffer("remember", text)
            for text in working
            if text in proposed and comes_again(text)
        ]
        mode = self._propose_mode(case)
        return replace(decision, offers=(*decision.offers, *session, *remember, *mode))

    def _propose_mode(self, case: AnalysedCall) -> list[GrantOffer]:
        """Return the offer of mode `sandboxed`, where the kernel confines commands and it helps."""
        if self.remember_mode is None or self.mode not in ("default", "acceptEdits", "auto"):
            return []
        if self.find_confinement(case.tool) is None:
            return []
        gate = self.with_mode("sandboxed")
        if gate._judge(case, gate._build_profile(case.tool), (), []).verdict != "allow":
            return []
        return [GrantOffer("mode", "sandboxed")]

    def _propose_all_commands(self, case: AnalysedCall) -> list[str]:
        """Return the grant of all commands of the session, where the kernel confines them."""
        if not case.analyses or ONCE_ONLY.intersection(case.labels):
            return []
        return [case.name] if self.find_confinement(case.tool) is not None else []

    # ---- preparation

    def _make_matcher(self, rule: PermissionRule) -> RuleMatcher:
        return RuleMatcher(rule, self.context.root, self.context.home)

    def _index(self, matchers: Iterable[RuleMatcher]) -> AllowRules:
        return AllowRules(matchers, self.context.root, self.context.home)

    def _index_grants(self) -> AllowRules:
        grants = self.grants.rules
        if self._grant_index[0] is not grants:
            self._grant_index = (grants, self._index(map(self._make_matcher, grants)))
        return self._grant_index[1]

    def _select_rules(self, name: str, kinds: set[str]) -> _ConcerningRules:
        """Return the rules that concern tools of a name and kinds, for this gate and its copies."""
        key = (name, frozenset(kinds))
        found = self._concerning.get(key)
        if found is None:
            deny, ask, allow = (
                [self._make_matcher(rule) for rule in rules if _concerns(rule, name, kinds)]
                for rules in (self.rules.deny, self.rules.ask, self.rules.allow)
            )
            found = (tuple(deny), tuple(ask), self._index(allow))
            if len(self._concerning) >= _MAX_CACHED_DECISIONS:
                self._concerning.clear()
            self._concerning[key] = found
        return found

    def _build_profile(self, tool: Tool) -> _Profile:
        kinds = {touch.kind for touch in tool.touches.values()}
        if "command" in kinds:
            kinds |= {"read", "write"}
        if tool.command_form is not None:
            kinds.add("command")

        deny, ask, allow = self._select_rules(tool.full_name, kinds)
        profile = _Profile(tool=tool, deny=deny, ask=ask, allow=allow, fixed_decision=None)
        if not tool.touches and tool.risk == Risk.SAFE:
            # Arguments that name nothing cannot change the decision.
            case = AnalysedCall(tool, tool.full_name, analyse_call(tool, {}, self.context).needs)
            decision = self._judge(case, profile, (), [])
            if decision.verdict != "ask":
                profile = replace(profile, fixed_decision=decision)
        self._profiles[id(tool)] = profile
        return profile


def _is_below_root(path: str) -> bool:
    """Return whether a path is relative, in its shortest spelling, and leads nowhere else."""
    return (
        posixpath.normpath(path) == path
        and path not in (".", "..")
        and not path.startswith(("/", "~", "../"))
        and "\0" not in path
    )


def _concerns(rule: PermissionRule, tool_name: str, kinds: set[str]) -> bool:
    """Return whether a rule can be about a tool of this name that touches these kinds."""
    return rule.kind in kinds if rule.kind else matches_tool(rule, tool_name)


def select_mode(mode: str) -> PermissionMode:
    """Return the mode of this name. Raises ConfigError if there is none."""
    if mode not in MODES:
        raise ConfigError(
            f"mode `{mode}`: there is no such mode", hint=f"use one of {', '.join(MODES)}"
        )
    return mode


def describe_decision(decision: Decision) -> list[str]:
    """Return a decision as lines for a person."""
    lines = [f"{decision.verdict}: {decision.reason}"]
    if decision.rule:
        lines.append(f"rule `{decision.rule}` ({decision.layer})")
    if decision.labels:
        lines.append(f"labels: {', '.join(decision.labels)}")
    lines += [f"offer {offer.choice}: `{offer.rule}`" for offer in decision.offers if offer.rule]
    return lines
