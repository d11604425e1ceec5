"""Names that no tool may read or write, in every spelling, and the ordinary names beside them."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferrule.permissions import protected_names as reserved
from ferrule.permissions.path_denials import OpenRefusals
from ferrule.permissions.protected_names import (
    DEFAULT_NAMES,
    PROTECTED,
    RESERVED,
    SECRET,
    ProtectedNames,
)
from ferrule.permissions.rule_evaluation import PermissionGate
from ferrule.permissions.rules import RuleSet

UNREADABLE = [
    # Ferrule's and other harnesses' own state
    "agents",
    "agents/harvey.yaml",
    "agents/sessions/a.spmd",
    ".ferrule/settings.json",
    "src/.ferrule/x",
    ".harness/tools/t.md",
    "deep/er/.harness",
    ".ferrule-tmp-0011aabb",
    # git's configuration and hooks, also those of submodules and worktrees
    ".git/config",
    ".git/config.worktree",
    ".git/hooks",
    ".git/hooks/pre-commit",
    "vendor/lib/.git/config",
    ".git/modules/lib/config",
    ".git/modules/a/modules/b/hooks/post-checkout",
    ".git/worktrees/w/config.worktree",
    ".hg/hgrc",
    # secrets (requirement 000)
    ".env",
    ".env.local",
    ".env.example",
    ".envrc",
    "deploy/production.env",
    "tls/server.pem",
    "a.key",
    "a.p12",
    "a.pfx",
    "harvey.yaml",
    "conf/harvey.yaml",
    "ferrule.yaml",
    "id_rsa",
    ".ssh/id_ed25519",
    ".ssh/config",
    "authorized_keys",
    # and more of the kind
    ".envs/.production/.postgres",
    ".netrc",
    "_netrc",
    ".pgpass",
    ".npmrc",
    ".pypirc",
    ".aws/credentials",
    ".git-credentials",
    ".docker/config.json",
    ".kube/config",
    "x.kdbx",
    *[".git/credentials", ".svn/auth/simple", "harvey.yml", "ferrule.yml", ".htpasswd", ".my.cnf"],
    *[
        "a.ppk",
        "a.jks",
        "a.keystore",
        "id_dsa",
        "id_ecdsa",
        "id_ecdsa_sk",
        "id_ed25519",
        "id_ed25519_sk",
    ],
    *[
        "authorized_keys2",
        ".gnupg",
        ".azure",
        ".config/gcloud",
        ".dockercfg",
        ".cargo/credentials.toml",
    ],
    *[".gem/credentials", ".password-store", ".vault-token", ".yarnrc.yml"],
]

OTHER_SPELLINGS = [
    # case
    ".ENV",
    ".Env.Local",
    "SERVER.PEM",
    "Agents/x",
    "AGENTS",
    ".GIT/CONFIG",
    ".Git/Hooks/pre-commit",
    # dots and spaces Windows drops
    ".env.",
    ".env ",
    "k.pem.",
    "k.pem. .",
    ".git./config",
    ".git /hooks",
    "agents./x",
    "k.pem::$DATA",
    ".env:stream",
    ".git::$INDEX_ALLOCATION/config",
    "x:y.pem",  # NTFS streams
    "GIT~1/config",
    "git~1/hooks/pre-commit",  # 8.3 short name
    "．env",
    ".ｅnv",
    "ａgents/x",
    "k．pem",
    "․env",
    ".ſſh/config",
    "sub／.env",  # NFKC and case folding
    # characters HFS+ ignores
    ".g\u200cit/config",
    ".e\u200bnv",
    "\ufeff.env",
    "id_\u2060rsa",
    ".en\ufe0fv",
    # editors' copies
    ".env~",
    "id_rsa.bak",
    ".id_rsa.swp",
    "#id_rsa#",
    "server.key.old",
    "id_ed25519~",
    "tls/k.pem.orig",
    ".ssh.bak/known",
    "sub\\.env",
    "a\\agents\\..\\.git\\config",  # a separator elsewhere
]

UNWRITABLE = [
    ".git",
    ".git/info/attributes",
    ".git/HEAD",
    ".git/objects/aa/bb",
    "vendor/.git",
    ".gitmodules",
    ".hg/store",
    ".jj/x",
    ".bashrc",
    "home/.zshrc",
    ".profile",
    ".BASHRC",
    ".mcp.json",
    ".vscode/settings.json",
    ".vscode",
    ".idea/workspace.xml",
    ".claude/settings.json",
    ".cursor/mcp.json",
    ".github/workflows/ci.yml",
    ".github/actions/x/action.yml",
    ".gitlab-ci.yml",
    "Jenkinsfile",
    ".circleci/config.yml",
    ".husky/pre-commit",
    ".pre-commit-config.yaml",
    ".devcontainer/devcontainer.json",
    "sitecustomize.py",
    "venv/lib/site-packages/evil.pth",
    ".git:x",
    ".vscode./tasks.json",
    ".Rprofile",
    ".Renviron",
    ".ghci",
    ".irbrc",
    ".pryrc",
    ".iex.exs",
    ".ocamlinit",
    ".octaverc",
    ".lldbinit",
    ".nvimrc",
    ".dir-locals.el",
    "jupyter_server_config.py",
    ".yarnrc",
    ".mvn/extensions.xml",
    ".cargo/config.toml",
    ".cargo/config",
    ".bazelrc",
    ".lefthook.yml",
    ".windsurf/x",
    ".kiro/hooks/x",
    ".opencode/x",
    "opencode.json",
    ".continue/config.yaml",
    ".roo/mcp.json",
    ".junie/x",
    ".trae/x",
    ".crush.json",
    ".aider.conf.yml",
    "my.code-workspace",
    "x.sublime-project",
    ".cirrus.yml",
    "git~1",
    *[".svn", ".bzr", ".gitconfig", ".overcommit.yml", "lefthook.yml", ".devcontainer.json"],
    *[
        ".bash_profile",
        ".bash_login",
        ".bash_logout",
        ".bash_aliases",
        ".login",
        ".zshenv",
        ".zprofile",
    ],
    *[
        ".zlogin",
        ".zlogout",
        ".kshrc",
        ".cshrc",
        ".tcshrc",
        ".config/fish",
        ".inputrc",
        ".xinitrc",
        ".xprofile",
    ],
    *[
        ".xsessionrc",
        ".pythonrc",
        ".pythonrc.py",
        ".pdbrc",
        ".gdbinit",
        ".vimrc",
        ".nvim.lua",
        ".exrc",
    ],
    *[
        ".dir-locals-2.el",
        "usercustomize.py",
        ".zed",
        ".agents",
        ".codex",
        ".gemini",
        "opencode.jsonc",
    ],
    *[
        ".qwen",
        ".gitlab-ci.yaml",
        ".gitea/workflows",
        ".forgejo/workflows",
        ".buildkite",
        ".woodpecker",
    ],
    *[".woodpecker.yml", ".woodpecker.yaml", ".drone.yml", ".travis.yml", "azure-pipelines.yml"],
    *["bitbucket-pipelines.yml", "appveyor.yml", ".appveyor.yml", ".semaphore", ".teamcity"],
]

ORDINARY = [
    "environment.py",
    "env.py",
    "env/bin",
    "my.env.md",
    "keys.md",
    "key",
    "monkey",
    "apikey.py",
    "pem.txt",
    "a.pem.md",
    "agents.py",
    "agents_list.txt",
    "AGENTS.md",
    "src/agents/x.py",
    "src/agents",
    "agents.bak",
    "agentsmith/x",
    "myagents",
    "ferrule/x",
    "ferrule.py",
    "docs/harness.md",
    ".harnessed",
    "a..b.txt",
    "..a",
    "a..",
    "...",
    "b.txt~",
    "git/config",
    "config",
    ".gitignore",
    ".gitattributes",
    ".github/ISSUE_TEMPLATE/a.md",
    ".github/dependabot.yml",
    "hooks/pre-commit",
    "id_rsa.py",
    "rsa",
    "my_id_rsa.txt",
    "harvey.yaml.md",
    "Jenkinsfile.md",
    "vscode/x",
    "model.pth",
    "bashrc",
    "a:b.txt",
    "naïve.txt",
    "日本.md",
    "README.md",
    "docs/.hidden",
    "profile",
    "package.json",
    "",
    ".dockerignore",
    "config.bak",
]


@pytest.mark.proves("reserved.unreadable")
@pytest.mark.parametrize("name", UNREADABLE)
def test_a_reserved_or_secret_name_is_neither_read_nor_written(name: str) -> None:
    assert DEFAULT_NAMES.check(name, write=False)
    assert DEFAULT_NAMES.check(name, write=True)


@pytest.mark.proves("reserved.spellings")
@pytest.mark.parametrize("name", OTHER_SPELLINGS)
def test_no_other_spelling_of_such_a_name_slips_through(name: str) -> None:
    assert DEFAULT_NAMES.check(name, write=False)


@pytest.mark.proves("reserved.protected")
@pytest.mark.parametrize("name", UNWRITABLE)
def test_a_name_that_can_start_programs_may_be_read_but_not_written(name: str) -> None:
    assert DEFAULT_NAMES.check(name, write=False) is None
    assert DEFAULT_NAMES.check(name, write=True)


@pytest.mark.parametrize("name", ORDINARY)
def test_an_ordinary_name_beside_them_is_left_alone(name: str) -> None:
    assert DEFAULT_NAMES.check(name, write=True) is None


def test_the_reason_says_what_kind_of_name_it_is_and_which_rule_matched() -> None:
    assert (
        DEFAULT_NAMES.check("agents/x", write=False)
        == "reserved: no tool may touch it (rule `/agents`)"
    )
    assert "secrets" in (DEFAULT_NAMES.check("a.pem", write=False) or "")
    assert "rule `*.pem`" in (DEFAULT_NAMES.check("a.pem", write=False) or "")
    assert "not written" in (DEFAULT_NAMES.check(".bashrc", write=True) or "")


@pytest.mark.proves("reserved.extend-only")
def test_settings_make_the_lists_longer() -> None:
    names = DEFAULT_NAMES.extend(
        reserved=("/state",), secret=("*.vault", "Ops/Tokens"), protected=("Makefile",)
    )
    assert names.check("state/x", write=False)
    assert names.check("src/state/x", write=False) is None
    assert names.check("a.VAULT", write=False)
    assert names.check("deep/ops/tokens/x", write=False)
    assert names.check("makefile", write=True)
    assert names.check("makefile", write=False) is None


_WORDS = [p.strip("/").replace("*", "x") for p in (*RESERVED, *SECRET, *PROTECTED)]
_NAMES = st.lists(
    st.one_of(st.sampled_from(_WORDS), st.text(max_size=12).filter(lambda t: "/" not in t)),
    max_size=4,
).map("/".join)
_PATTERNS = st.lists(st.text("abc.*?/_-", min_size=1, max_size=8), max_size=3).map(tuple)


@pytest.mark.proves("reserved.extend-only")
@given(_NAMES, _PATTERNS, _PATTERNS, _PATTERNS, st.booleans())
def test_no_extension_allows_a_name_that_was_refused(
    name: str,
    reserved: tuple[str, ...],
    secret: tuple[str, ...],
    protected: tuple[str, ...],
    write: bool,
) -> None:
    if DEFAULT_NAMES.check(name, write=write):
        assert ProtectedNames(reserved, secret, protected).check(name, write=write)


@given(_NAMES)
def test_what_may_not_be_read_may_not_be_written(name: str) -> None:
    if DEFAULT_NAMES.check(name, write=False):
        assert DEFAULT_NAMES.check(name, write=True)


@pytest.mark.proves("reserved.spellings")
@given(st.sampled_from(UNREADABLE), st.data())
def test_respelling_a_refused_name_keeps_it_refused(name: str, data: st.DataObject) -> None:
    def respelled(part: str) -> str:
        part = "".join(c.upper() if data.draw(st.booleans()) else c for c in part)
        wide = "".join(
            chr(ord(c) + 0xFEE0) if "!" <= c <= "~" and data.draw(st.booleans()) else c
            for c in part
        )
        assert unicodedata.normalize("NFKC", wide) == part
        return wide + data.draw(st.sampled_from(["", ".", " ", "..", ". ", "::$DATA", "\u200b"]))

    spelled = "/".join(respelled(part) for part in name.split("/"))
    assert DEFAULT_NAMES.check(spelled, write=False)


@given(_NAMES, st.booleans())
def test_what_lies_below_a_refused_name_is_refused(name: str, write: bool) -> None:
    if DEFAULT_NAMES.check(name, write=write):
        assert DEFAULT_NAMES.check(f"{name}/x", write=write)


@given(_PATTERNS, st.lists(st.text("ab./", max_size=6), max_size=3).map("/".join))
def test_quick_questions_and_the_expression_give_the_same_answer(
    patterns: tuple[str, ...], name: str
) -> None:
    quick = reserved._index_of(patterns).matches(name)
    assert quick == any(re.search(reserved._to_expression(p), name) for p in patterns)


ODD_COMPONENTS = [
    *(".git", "git~1", "GIT~1", ".Git.", ".git ", ".hg", ".ferrule", "agents", "config"),
    *("hooks", "modules", "credentials.old", ".env", ".env.local", "prod.env", "x.pem"),
    *(
        "id_rsa",
        "id_rsa~",
        "#id_rsa#",
        ".id_rsa.swp",
        "k.pem ",
        " id_rsa",
        "k.pem.",
        ".ssh.bak",
        ".aws",
        ".cargo",
    ),
    *(".config", "gcloud", ".docker", "config.json", "site-packages", "x.pth", ".vscode"),
    *("jupyter_a_config.py", ".github", "workflows", "a", "src", "x.py", "...", " "),
    *(
        ".git:x",
        ".git::$DATA",
        "a\\.git",
        "\uff0egit",
        ".g\u200dit",
        ".e\u0301nv",
        "a\uff0f.git",
    ),
    *("own", "deep", "secret-x", "wild9card"),
]
COMPONENTS = st.one_of(
    st.sampled_from(ODD_COMPONENTS),
    st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=8),
)
LISTS = [
    DEFAULT_NAMES,
    ProtectedNames(("own/deep",), ("secret-*", "**/own/x.py"), ("wild?card", "/src/*.py", "*/a")),
]


@settings(max_examples=400)
@given(
    parts=st.lists(COMPONENTS, min_size=1, max_size=5),
    names=st.sampled_from(LISTS),
    write=st.booleans(),
)
def test_the_check_of_walks_says_what_the_whole_check_says(
    parts: list[str], names: ProtectedNames, write: bool
) -> None:
    name = "/".join(parts)
    assert names.check(name, write=write) == reserved._check(names, name, write)
    gate = PermissionGate(RuleSet.parse(), root="/work", home="/home/p", names=names)
    slow = PermissionGate(
        RuleSet.parse(deny=["Read(//nowhere/at/all)"]), root="/work", home="/home/p", names=names
    )
    assert gate.find_refusal(name, write) == slow.find_refusal(name, write)


@settings(max_examples=400)
@given(
    above=st.lists(COMPONENTS, max_size=3),
    inside=st.lists(COMPONENTS, max_size=6, unique=True),
    names=st.sampled_from(LISTS),
    others=st.sampled_from(LISTS),
    write=st.booleans(),
)
def test_a_walk_skips_the_check_only_of_names_that_it_would_let_pass(
    above: list[str], inside: list[str], names: ProtectedNames, others: ProtectedNames, write: bool
) -> None:
    folder = "/".join(above)
    gate = PermissionGate(RuleSet.parse(), root="/work", home="/home/p", names=others)
    ruled = names.extend(rules=[OpenRefusals(gate.find_refusal, lists=gate.only_lists)])
    if folder and ruled.check(folder, write=write):
        return  # a walk does not enter it
    for lists in (names, ruled):
        suspicious = lists.select_suspicious(folder, inside, write=write)
        for name in inside:
            if name not in suspicious:
                assert lists.check("/".join([*above, name]), write=write) is None


PLAIN = tuple(f"file{number}.txt" for number in range(40))


@settings(max_examples=400)
@given(
    odd=st.lists(COMPONENTS, max_size=4),
    place=st.integers(0, len(PLAIN)),
    names=st.sampled_from(LISTS),
    write=st.booleans(),
)
def test_names_that_are_judged_together_are_judged_as_one_by_one(
    odd: list[str], place: int, names: ProtectedNames, write: bool
) -> None:
    inside = [*PLAIN[:place], *odd, *PLAIN[place:]]
    together = reserved._select_suspicious(names, inside, write)
    assert together == _select_one_by_one(names, inside, write)


@pytest.mark.parametrize("folder", ["", "src", "src/main"])
def test_a_walk_has_no_plain_name_checked(folder: str) -> None:
    assert list(DEFAULT_NAMES.select_suspicious(folder, [*PLAIN, ".env"])) == [".env"]


@pytest.mark.parametrize("names", LISTS)
@pytest.mark.parametrize("odd", ODD_COMPONENTS)
@pytest.mark.parametrize("write", [False, True])
def test_no_odd_name_hides_among_plain_ones(odd: str, names: ProtectedNames, write: bool) -> None:
    inside = [odd, *PLAIN]
    together = reserved._select_suspicious(names, inside, write)
    assert together == _select_one_by_one(names, inside, write)


def _select_one_by_one(names: ProtectedNames, inside: list[str], write: bool) -> list[str]:
    return [part for part in inside if not reserved._is_plain_component(names, part, write)]


@pytest.mark.parametrize("path", UNREADABLE)
def test_among_thousands_of_plain_names_none_that_may_not_be_read_is_skipped(path: str) -> None:
    plain = [f"file{number}.txt" for number in range(2500)]
    first, *others = path.split("/")
    folder = ""
    for last in (first, *others):
        suspicious = DEFAULT_NAMES.select_suspicious(folder, [*plain, last, *plain])
        if last in suspicious:
            return
        folder = f"{folder}/{last}" if folder else last
    raise AssertionError(f"`{path}` would be shown by a walk")


def test_names_are_all_checked_where_a_deny_rule_is_about_paths() -> None:
    gate = PermissionGate(RuleSet.parse(deny=["Read(private/**)"]), root="/work", home="/home/p")
    refusals = OpenRefusals(gate.find_refusal, lists=gate.only_lists)
    ruled = ProtectedNames(rules=(refusals,))
    assert ruled.select_suspicious("src", ["private", "a.py"]) == ["private", "a.py"]
