"""Paths that no tool may follow, as data. Each has a harmless twin that must work.

id      names the row
path    what is sent. `<root>` is the workspace, `<outside>` a folder beside it, `<sibling>` a folder whose name
        begins with the workspace's, `<name>` the workspace's own name
kind    what must happen, see KINDS
source  the class of the attack: conventions §2.2 or §4.3, a defect of systems.md, DESIGN §3
twin    a file (with `/` at its end: a folder) that is like it and harmless
"""

from __future__ import annotations

from dataclasses import dataclass

KINDS = {
    "outside": "leads out of the workspace: refused before anything is opened",
    "reserved": "Ferrule's, an agent's or version control's own: refused before anything is opened",
    "secret": "may hold secrets: refused before anything is opened",
    "protected": "may be read, never written",
    "link": "a symbolic link: not followed, neither out nor in",
    "hard": (
        "a second name of a file that must not be read: not read; writing makes a new file of "
        "that name"
    ),
    "special": "a pipe, a socket or a device: neither opened nor waited for",
    "holder": (
        "a folder that holds untouchable names: neither moved nor deleted, and listed without them"
    ),
    "malformed": "no path, or one that is read as it stands: refused, or an ordinary name of the workspace",
}


@dataclass(frozen=True, slots=True)
class PathAttack:
    """One row."""

    id: str
    path: str
    kind: str
    source: str
    twin: str


_PREFIX = "CVE-2025-54794, CVE-2025-53109/53110: prefix compare"
_ESCAPE = "systems.md §1.3.1: path gate"
_DOTS = "systems.md §3.1: any text with two dots is refused"
_HOME = "$HOME-spelled paths"
_LINK_OUT = "CVE-2026-39861: symlink out"
_LINK_DENY = "CVE-2026-25724: symlink past deny"
_LINK_IN = "systems.md §1.1: any symlink on the way"
_HARD = "conventions §4.3: hard links"
_SPECIAL = "conventions §4.3: special files"
_OWN = "CBSE (Cymulate), Tracebit/Gemini: the agent's own config"
_ABSENT = "CVE-2026-25725: names before files"
_SLASH = "trailing slash in a deny path"
_FOLD = "case, \\, UNC, \\??\\ on Windows"
_SECRET = "systems.md §6.3: the same secret through every tool"
_HIDDEN = "systems.md §3.1: hidden files are searched"
_RUNS = "CVE-2025-59536, CVE-2025-54135: a repository's file that starts programs"
_DIRECTORY = "systems.md §1.1: listing `agents` itself slips through"
_TEMP = "CVE-2026-46406: predictable temporary files"
_SPELL = "DESIGN §3.4: never by comparing strings"

_OUTSIDE = [
    ("parent", "..", _ESCAPE, "src/"),
    ("parent-slash", "../", _ESCAPE, "src/"),
    ("parent-dot", "./..", _ESCAPE, "./src/"),
    ("parent-file", "../outside/notes.txt", _ESCAPE, "outside/notes.txt"),
    ("parent-deep", "../../../../../../../../etc/passwd", _ESCAPE, "etc/passwd"),
    ("parent-through-folder", "src/../../outside/notes.txt", _ESCAPE, "src/../outside/notes.txt"),
    ("parent-through-nothing", "missing/../../outside/notes.txt", _ESCAPE, "missing/../src/a.txt"),
    ("parent-through-link", "link-folder-in/../../outside/notes.txt", _ESCAPE, "deep/../src/a.txt"),
    ("parent-through-file", "src/a.txt/../../../outside/notes.txt", _ESCAPE, "deep/one/../two.txt"),
    ("parent-dots", "././../outside/./notes.txt", _DOTS, "././src/./a.txt"),
    ("parent-slashes", "..//outside//notes.txt", _SPELL, "src//a.txt"),
    ("parent-returns", "../<name>/../outside/notes.txt", _SPELL, "src/../src/a.txt"),
    ("parent-and-back-secret", "../<name>/.env", _SPELL, "src/../environment.py"),
    ("parent-and-back-plain", "../<name>/src/a.txt", _SPELL, "src/a.txt"),
    ("parent-trailing", "src/../..", _SLASH, "src/.."),
    ("parent-trailing-slash", "src/../../", _SLASH, "src/deep/../"),
    ("sibling", "../<name>-evil/notes.txt", _PREFIX, "project-evil/notes.txt"),
    ("sibling-absolute", "<sibling>/notes.txt", _PREFIX, "<root>/project-evil/notes.txt"),
    ("sibling-folder", "<sibling>", _PREFIX, "<root>/src/"),
    ("sibling-glued", "<root>-evil/notes.txt", _PREFIX, "<root>/src/a.txt"),
    (
        "sibling-glued-dots",
        "<root>/../<name>-evil/notes.txt",
        _PREFIX,
        "<root>/../<name>/src/a.txt",
    ),
    ("sibling-cut", "<root>x", _PREFIX, "<root>/x.txt"),
    ("absolute", "/etc/passwd", _ESCAPE, "etc/passwd"),
    ("absolute-root", "/", _ESCAPE, "<root>/"),
    ("absolute-slashes", "//etc/passwd", _SPELL, "etc//passwd"),
    ("absolute-three", "///etc///passwd", _SPELL, "<root>///src///a.txt"),
    ("absolute-dots", "/../../etc/passwd", _ESCAPE, "<root>/../<name>/etc/passwd"),
    ("absolute-dot", "/./etc/./passwd", _SPELL, "<root>/./etc/./passwd"),
    ("absolute-outside", "<outside>/notes.txt", _ESCAPE, "<root>/outside/notes.txt"),
    ("absolute-outside-folder", "<outside>", _ESCAPE, "<root>/outside/"),
    ("absolute-outside-new", "<outside>/new.txt", _ABSENT, "<root>/outside/old.txt"),
    ("absolute-parent", "<root>/..", _PREFIX, "<root>/src/.."),
    (
        "absolute-through-root",
        "<root>/../outside/notes.txt",
        _PREFIX,
        "<root>/src/../outside/notes.txt",
    ),
    (
        "absolute-through-folder",
        "<root>/src/../../outside/notes.txt",
        _PREFIX,
        "<root>/src/../src/a.txt",
    ),
    ("absolute-upper", "/ETC/PASSWD", _FOLD, "ETC/PASSWD"),
    ("temp", "/tmp/ferrule-out", _TEMP, "tmp/ferrule-out"),
    ("var-tmp", "/var/tmp/x", _TEMP, "var/tmp/x"),
    ("shm", "/dev/shm/x", _TEMP, "dev/shm/x"),
    ("proc-environ", "/proc/self/environ", _SPECIAL, "proc/self/environ.txt"),
    ("proc-root", "/proc/self/root/etc/passwd", _LINK_OUT, "proc/self/passwd"),
    ("proc-cwd", "/proc/self/cwd/../outside/notes.txt", _LINK_OUT, "proc/cwd/notes.txt"),
    ("proc-descriptor", "/proc/self/fd/0", _SPECIAL, "proc/fd/0"),
    ("proc-memory", "/proc/self/mem", _SPECIAL, "proc/mem"),
    ("dev-descriptor", "/dev/fd/0", _SPECIAL, "dev/fd/0"),
    ("dev-terminal", "/dev/tty", _SPECIAL, "dev/tty.txt"),
    ("home", "~", _HOME, "home/"),
    ("home-file", "~/notes.txt", _HOME, "home/notes.txt"),
    ("home-key", "~/.ssh/id_rsa", _HOME, "home/ssh/id.txt"),
    ("home-user", "~root/.bashrc", _HOME, "root/bashrc"),
    ("home-inside", "./~/notes.txt", _HOME, "./home/notes.txt"),
    ("home-after-dots", "src/../~/notes.txt", _HOME, "src/../home/notes.txt"),
    ("drive", "C:\\Windows\\win.ini", _FOLD, "C/Windows/win.ini"),
    ("drive-forward", "C:/Windows/win.ini", _FOLD, "C/Windows/win.ini"),
    ("drive-bare", "c:", _FOLD, "c/x.txt"),
    ("unc", "\\\\server\\share\\x", _FOLD, "server/share/x"),
    ("device-namespace", "\\??\\C:\\x", _FOLD, "C/x.txt"),
    ("device-dots", "\\\\.\\pipe\\x", _FOLD, "pipes/x.txt"),
]

_RESERVED = [
    ("ferrule", ".ferrule", _OWN, "ferrule/"),
    ("ferrule-settings", ".ferrule/ferrule.yaml", _OWN, "ferrule/settings.txt"),
    ("ferrule-new", ".ferrule/new.txt", _ABSENT, "ferrule/new.txt"),
    ("ferrule-slash", ".ferrule/", _SLASH, "ferrule/"),
    ("ferrule-dot", ".ferrule/.", _SLASH, "ferrule/."),
    ("ferrule-spelled", "./.ferrule//ferrule.yaml", _SPELL, "./ferrule//settings.txt"),
    ("ferrule-absolute", "<root>/.ferrule/ferrule.yaml", _OWN, "<root>/ferrule/settings.txt"),
    ("ferrule-dots", "src/../.ferrule/ferrule.yaml", _SPELL, "src/../ferrule/settings.txt"),
    ("ferrule-upper", ".FERRULE/ferrule.yaml", _FOLD, "FERRULE/settings.txt"),
    (
        "ferrule-invisible",
        ".fer\u200brule/ferrule.yaml",
        "relayed previews hiding part",
        "ferru\u00eble/settings.txt",
    ),
    ("ferrule-below", "src/.ferrule/tools/x.md", _OWN, "src/ferrule/tools/x.md"),
    ("ferrule-temporary", ".ferrule-tmp-0123", _TEMP, "ferrule-tmp-0123"),
    ("ferrule-space", ".ferrule /ferrule.yaml", _FOLD, "ferrule x/settings.txt"),
    ("ferrule-dot-end", ".ferrule./ferrule.yaml", _FOLD, "ferrule.d/settings.txt"),
    ("harness", ".harness/tools/x.md", _OWN, "harness/tools/x.md"),
    ("harness-new", ".harness/hooks/new.md", _ABSENT, "harness/hooks/new.md"),
    ("agents", "agents", _DIRECTORY, "src/agents/"),
    ("agents-slash", "agents/", _DIRECTORY, "src/agents/"),
    ("agents-file", "agents/harvey.yaml", _ESCAPE, "src/agents/settings.txt"),
    ("agents-plain", "agents/notes.txt", _DIRECTORY, "src/agents/notes.txt"),
    ("agents-new", "agents/new.txt", _ABSENT, "src/agents/new.txt"),
    ("agents-upper", "Agents/notes.txt", _FOLD, "src/Agents/notes.txt"),
    ("agents-dots", "src/../agents/notes.txt", _SPELL, "agents/../src/a.txt"),
    ("git-config", ".git/config", "core.hooksPath", "git/config.txt"),
    ("git-config-upper", ".GIT/CONFIG", "core.hooksPath", "GIT/CONFIG.txt"),
    ("git-config-stream", ".git::$INDEX_ALLOCATION/config", _FOLD, "git-index/config.txt"),
    ("git-config-short", "git~1/config", _FOLD, "git1/config.txt"),
    ("git-config-worktree", ".git/config.worktree", "core.hooksPath", "git/config.worktree"),
    ("git-config-below", "vendor/.git/config", "core.hooksPath", "vendor/git/config.txt"),
    ("git-config-module", ".git/modules/x/config", "core.hooksPath", "git/modules/x/config.txt"),
    ("git-hooks", ".git/hooks", "core.hooksPath", "git/hooks/"),
    ("git-hook", ".git/hooks/pre-commit", "core.hooksPath", "git/hooks/pre-commit"),
    ("git-hook-new", ".git/hooks/post-checkout", _ABSENT, "git/hooks/post-checkout"),
    (
        "git-hook-absolute",
        "<root>/.git/hooks/pre-commit",
        "core.hooksPath",
        "<root>/git/hooks/pre-commit",
    ),
    ("git-credentials", ".git/credentials", _SECRET, "git/credentials.md"),
    ("mercurial", ".hg/hgrc", "core.hooksPath", "hg/hgrc.txt"),
    ("subversion", ".svn/auth/x", _SECRET, "svn/auth/x"),
]

_SECRETS = [
    ("env", ".env", _ESCAPE, "environment.py"),
    ("env-slash", ".env/", _SLASH, "env/"),
    ("env-dot", "./.env", _SPELL, "./environment.py"),
    ("env-absolute", "<root>/.env", _SPELL, "<root>/environment.py"),
    ("env-local", ".env.local", _ESCAPE, "env.local.md"),
    ("env-example", ".env.example", "DESIGN §3.5: .env* as written", "example.md"),
    ("env-new", "src/.env.production", _ABSENT, "src/production.md"),
    ("env-suffix", "deploy.env", _ESCAPE, "deploy.md"),
    ("env-upper", ".ENV", _FOLD, "ENV.txt"),
    ("env-mixed", "Deploy.Env", _FOLD, "Deploy.Envelope"),
    ("env-backup", ".env~", _SECRET, "env~"),
    ("env-bak", ".env.bak", _SECRET, "env.bak"),
    ("env-folder", ".envs/notes.txt", _SECRET, "envs/notes.txt"),
    ("env-below", "src/deep/.env", _HIDDEN, "src/deep/env.txt"),
    ("env-dots", "src/deep/../../.env", _SPELL, "src/deep/../../environment.py"),
    ("env-trailing-dot", ".env.", _FOLD, "env.txt."),
    ("env-trailing-space", ".env ", _FOLD, "env x"),
    ("env-stream", ".env::$DATA", _FOLD, "env-data"),
    ("env-invisible", ".e\u200dnv", "relayed previews hiding part", "e\u00ebnv"),
    ("env-wide", "\uff0eenv", _FOLD, "\u00ebenv"),
    ("env-soft-hyphen", ".en\u00adv", "relayed previews hiding part", "en\u00edv"),
    ("pem", "k.pem", _ESCAPE, "k.txt"),
    ("pem-new", "new.pem", _ABSENT, "new-key.txt"),
    ("pem-upper", "K.PEM", _FOLD, "K.PEM.md"),
    ("pem-below", "deploy/server.pem", _SECRET, "deploy/server.txt"),
    ("pem-stream", "k.pem::$DATA", _FOLD, "k.pem-data.md"),
    ("pem-trailing-dot", "k.pem.", _FOLD, "kpem."),
    ("key", "server.key", _ESCAPE, "server.keys"),
    ("key-backup", "server.key.old", _SECRET, "server.old"),
    ("p12", "client.p12", _ESCAPE, "client.p13"),
    ("pfx", "client.pfx", _ESCAPE, "client.pfy"),
    ("jks", "store.jks", _SECRET, "store.jk"),
    ("ssh-key", "id_rsa", _ESCAPE, "id_rsa_note"),
    ("ssh-key-ed", "keys/id_ed25519", _ESCAPE, "keys/id_public"),
    ("ssh-key-backup", "id_rsa.bak", _SECRET, "id.bak"),
    ("ssh-authorized", "authorized_keys", _ESCAPE, "authorized_people"),
    ("ssh-folder", ".ssh", _SECRET, "ssh/"),
    ("ssh-file", ".ssh/config", _SECRET, "ssh/config.txt"),
    ("ssh-below", "home/.ssh/known_hosts", _SECRET, "home/ssh/known_hosts"),
    ("ssh-upper", ".SSH/config", _FOLD, "SSH/config.txt"),
    ("aws", ".aws/credentials", _SECRET, "aws/credentials.md"),
    ("kube", ".kube/config", _SECRET, "kube/config.txt"),
    ("gcloud", ".config/gcloud/x.json", _SECRET, ".config/cloud/x.json"),
    ("docker", ".docker/config.json", _SECRET, "docker/config.json"),
    ("netrc", ".netrc", _SECRET, "netrc.md"),
    ("npmrc", ".npmrc", _SECRET, "npmrc.md"),
    ("pypirc", ".pypirc", _SECRET, "pypirc.md"),
    ("pgpass", ".pgpass", _SECRET, "pgpass.md"),
    ("htpasswd", "web/.htpasswd", _SECRET, "web/htpasswd.md"),
    ("git-credentials-file", ".git-credentials", _SECRET, "git-credentials.md"),
    ("harvey-settings", "harvey.yaml", "systems.md §1.1: file-name deny list", "harvey.txt"),
    (
        "ferrule-settings-plain",
        "ferrule.yaml",
        "DESIGN §3.5: Ferrule's own settings",
        "ferrule.txt",
    ),
    (
        "ferrule-settings-below",
        "conf/ferrule.yml",
        "DESIGN §3.5: Ferrule's own settings",
        "conf/ferrule.txt",
    ),
]

_PROTECTED = [
    ("git-head", ".git/HEAD", "core.hooksPath", "git/HEAD.txt"),
    ("git-attributes-info", ".git/info/attributes", "external diff", "git/info/attributes.txt"),
    ("gitmodules", ".gitmodules", "git -C, --upload-pack", "modules.txt"),
    ("bashrc", ".bashrc", "shell rc files (conventions §4.3)", "bashrc.txt"),
    ("profile", "home/.profile", "shell rc files (conventions §4.3)", "home/profile.txt"),
    (
        "workflow",
        ".github/workflows/ci.yml",
        "CI folders (conventions §4.3)",
        ".github/issues/ci.yml",
    ),
    ("workflow-new", ".github/workflows/new.yml", _ABSENT, ".github/issues/new.yml"),
    ("gitlab", ".gitlab-ci.yml", "CI folders (conventions §4.3)", "gitlab.yml"),
    ("mcp", ".mcp.json", _RUNS, "mcp.json"),
    ("mcp-new", "src/.mcp.json", _ABSENT, "src/mcp.json"),
    ("editor-tasks", ".vscode/tasks.json", _RUNS, "vscode/tasks.json"),
    ("editor-rules", ".cursor/mcp.json", _RUNS, "cursor/mcp.json"),
    ("agent-hooks", ".claude/settings.json", _RUNS, "claude/settings.json"),
    ("python-start", "src/sitecustomize.py", "PYSEC-2026-2: .pth autorun", "src/customize.py"),
    (
        "python-path",
        "lib/site-packages/x.pth",
        "PYSEC-2026-2: .pth autorun",
        "lib/site-packages/x.py",
    ),
    ("pre-commit", ".pre-commit-config.yaml", "core.hooksPath", "pre-commit.yaml"),
]

_LINKS = [
    ("link-out", "link-out", _LINK_OUT, "plain-out"),
    ("link-out-spelled", "./src/../link-out", _LINK_OUT, "./src/../plain-out"),
    ("link-out-relative", "src/link-out-relative", _LINK_OUT, "src/plain-relative"),
    ("link-folder-out", "link-folder-out", _LINK_OUT, "folder/"),
    ("link-folder-out-slash", "link-folder-out/", _SLASH, "folder/"),
    ("link-folder-out-file", "link-folder-out/notes.txt", _LINK_OUT, "folder/notes.txt"),
    ("link-folder-out-new", "link-folder-out/new.txt", _ABSENT, "folder/new.txt"),
    ("link-folder-out-below", "link-folder-out/deep/new.txt", _ABSENT, "folder/deep/new.txt"),
    ("link-sibling", "link-sibling/notes.txt", _PREFIX, "folder/notes.txt"),
    ("link-parent", "link-parent", _LINK_OUT, "folder/"),
    ("link-parent-out", "link-parent/outside/notes.txt", _LINK_OUT, "folder/outside/notes.txt"),
    ("link-root", "link-root/etc/passwd", _LINK_OUT, "folder/etc/passwd"),
    ("link-proc", "link-proc", _LINK_OUT, "plain-proc"),
    ("link-descriptor", "link-descriptor/0", _LINK_OUT, "folder/0"),
    ("link-chain", "link-chain", _LINK_OUT, "plain-chain"),
    ("link-chain-folder", "deep/link-chain/notes.txt", _LINK_OUT, "deep/chain/notes.txt"),
    ("link-env", "link-env", _LINK_DENY, "plain-env"),
    ("link-key", "docs/readme-link.md", _LINK_DENY, "docs/readme.md"),
    ("link-ferrule", "link-ferrule/ferrule.yaml", _LINK_DENY, "folder/settings.txt"),
    ("link-git", "link-git/config", _LINK_DENY, "folder/config.txt"),
    ("link-hooks", "link-hooks/pre-commit", _LINK_DENY, "folder/pre-commit"),
    ("link-hooks-new", "link-hooks/post-merge", _ABSENT, "folder/post-merge"),
    ("link-agents", "link-agents/notes.txt", _LINK_DENY, "folder/agents.txt"),
    ("link-in", "link-in", _LINK_IN, "src/a.txt"),
    ("link-folder-in", "link-folder-in/a.txt", _LINK_IN, "src/a.txt"),
    ("link-self", "link-self", _LINK_IN, "plain-self"),
    ("link-self-below", "link-self/x", _LINK_IN, "folder/x"),
    ("link-dangling-out", "link-dangling", _ABSENT, "plain-dangling"),
    ("link-dangling-env", "link-dangling-env", _ABSENT, "plain-dangling-env"),
]  # fmt: skip

_HARD_LINKS = [
    ("hard-out", "hard-out.txt", _HARD, "soft-out.txt"),
    ("hard-env", "hard-env.txt", _HARD, "soft-env.txt"),
    ("hard-key", "docs/hard-key.md", _HARD, "docs/soft-key.md"),
    ("hard-git", "src/hard-config.py", _HARD, "src/soft-config.py"),
]

_SPECIALS = [
    ("pipe", "pipe", _SPECIAL, "pipe.txt"),
    ("pipe-below", "src/pipe", _SPECIAL, "src/pipe.txt"),
    ("socket", "socket", _SPECIAL, "socket.txt"),
    ("device", "device", _SPECIAL, "device.txt"),
]

_HOLDERS = [
    (
        "holder-env",
        "holder",
        "systems.md §1.1: exec and delete permissions never enforced",
        "holder-plain/",
    ),
    ("holder-slash", "holder/", _SLASH, "holder-plain/"),
    (
        "holder-deep",
        "holder/a",
        "systems.md §1.1: exec and delete permissions never enforced",
        "holder-plain/a/",
    ),
    ("holder-git", "vendor", "core.hooksPath", "vendor-plain/"),
    ("holder-root", ".", "DESIGN §3.5: reserved and secret", "src/"),
    ("holder-root-absolute", "<root>", "DESIGN §3.5: reserved and secret", "<root>/src/"),
    ("holder-root-dots", "src/..", "DESIGN §3.5: reserved and secret", "src/deep/../"),
]

_MALFORMED = [
    ("empty", "", "systems.md §1.3.2: bad arguments", "src/a.txt"),
    ("blank", " ", "systems.md §1.3.2: bad arguments", "a b.txt"),
    ("nul", "src/a.txt\0.png", "DESIGN §3.4", "src/a.txt.png"),
    ("nul-env", ".env\0.txt", "DESIGN §3.4", "env.txt"),
    ("newline", "src/a.txt\n../../outside/notes.txt", "newline and |&", "src/a.txt"),
    ("newline-env", "x\n.env", "newline and |&", "x.txt"),
    ("return", "src/a.txt\r", "relayed previews hiding part", "src/a.txt"),
    ("escape", "src/\x1b[2Ka.txt", "relayed previews hiding part", "src/a.txt"),
    ("backslash", "src\\a.txt", _FOLD, "src/a.txt"),
    ("backslash-parent", "..\\outside\\notes.txt", _FOLD, "outside/notes.txt"),
    ("backslash-env", "src\\..\\.env", _FOLD, "src/env.txt"),
    (
        "percent-parent",
        "%2e%2e/outside/notes.txt",
        "argument values re-expanded as templates",
        "outside/notes.txt",
    ),
    (
        "percent-slash",
        "..%2foutside%2fnotes.txt",
        "argument values re-expanded as templates",
        "outside/notes.txt",
    ),
    ("variable-home", "$HOME/notes.txt", _HOME, "home/notes.txt"),
    ("variable-braces", "${HOME}/.ssh/id.txt", _HOME, "home/ssh/id.txt"),
    ("substitution", "$(cat .env)", "argument values re-expanded as templates", "cat.txt"),
    ("template", "{{ secrets.env }}", "argument values re-expanded as templates", "secrets.md"),
    ("url-file", "file:///etc/passwd", "systems.md §1.3.1: path gate", "etc/passwd"),
    ("url-http", "http://127.0.0.1/x", "DESIGN §3.4", "http/x.txt"),
    (
        "option",
        "--output=../outside/notes.txt",
        "--flag injection through ids beginning with -",
        "output.txt",
    ),
    ("option-short", "-rf", "--flag injection through ids beginning with -", "rf.txt"),
    ("option-file", "-f.env", "--flag injection through ids beginning with -", "f.txt"),
    ("glob", "*", "unquoted glob that expands to a flag", "star.txt"),
    ("glob-env", ".e*", "unquoted glob that expands to a flag", "e.txt"),
    ("glob-deep", "**/.env", "unquoted glob that expands to a flag", "deep/env.txt"),
    ("brace", "{.env,k.pem}", "unquoted glob that expands to a flag", "brace.txt"),
    ("dots-three", ".../outside/notes.txt", _DOTS, "a..b.txt"),
    ("dots-name", "..env", _DOTS, "x..env.txt"),
    ("pathspec-magic", ":(top).env", "git -c core.pager/…, -C", "top.txt"),
    ("pathspec-exclude", ":!src", "git -c core.pager/…, -C", "exclude.txt"),
    ("surrogate", "src/\udc80.txt", "DESIGN §3.4", "src/a.txt"),
    ("long", "x" * 5000, "systems.md §1.1: input size caps", "x.txt"),
    ("long-component", "x" * 300, "systems.md §1.1: input size caps", "x.txt"),
    ("deep", "d/" * 300 + "x", "systems.md §1.1: input size caps", "d/x"),
    ("bidi", "src/\u202etxt.a", "relayed previews hiding part", "src/a.txt"),
    ("file-as-folder", "src/a.txt/b", _ESCAPE, "src/a.txt"),
]

PATHS = [
    PathAttack(name, path, kind, source, twin)
    for kind, rows in (
        ("outside", _OUTSIDE),
        ("reserved", _RESERVED),
        ("secret", _SECRETS),
        ("protected", _PROTECTED),
        ("link", _LINKS),
        ("hard", _HARD_LINKS),
        ("special", _SPECIALS),
        ("holder", _HOLDERS),
        ("malformed", _MALFORMED),
    )
    for name, path, source, twin in rows
]
