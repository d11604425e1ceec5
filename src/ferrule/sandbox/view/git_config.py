"""Git configurations without what may be secret, shown to commands instead of the real files.

These are `.git/config` and `~/.gitconfig`. The real file can hold tokens (in addresses, in headers,
in helpers), so only settings that are known to hold none are taken over: how data is stored, who
commits, what branches follow. Addresses of remotes are left out. Commands cannot write the file, so
they do not change what it makes git do; what it makes git do at all happens inside the sandbox. Of
the person's own settings only their name and address are taken, read as data: no file that these
include is opened. Format: git-config(1), of it only plain `key = value` lines.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ferrule.core.lazy_patterns import compile_lazily

LIMIT = 1024 * 1024
"""Bytes of a configuration that are looked at."""

_BOOLEAN = "true|false|yes|no|on|off|1|0"
_TEXT = r"[^\x00-\x1f\"\\;#]{1,200}"
_REFERENCE = r"[A-Za-z0-9_./*+:@-]{1,300}"

_KEPT = {
    "core.repositoryformatversion": r"[0-9]",
    "core.bare": _BOOLEAN,
    "core.filemode": _BOOLEAN,
    "core.ignorecase": _BOOLEAN,
    "core.symlinks": _BOOLEAN,
    "core.logallrefupdates": f"{_BOOLEAN}|always",
    "core.precomposeunicode": _BOOLEAN,
    "core.autocrlf": f"{_BOOLEAN}|input",
    "core.eol": "lf|crlf|native",
    "core.sparsecheckout": _BOOLEAN,
    "core.sparsecheckoutcone": _BOOLEAN,
    "core.worktree": r"[A-Za-z0-9_./-]{1,300}",
    "core.abbrev": r"[0-9]{1,2}|auto|no",
    "extensions.objectformat": "sha1|sha256",
    "extensions.compatobjectformat": "sha1|sha256",
    "extensions.refstorage": "files|reftable",
    "extensions.worktreeconfig": _BOOLEAN,
    "extensions.noop": ".{0,20}",
    "user.name": _TEXT,
    "user.email": _TEXT,
    "init.defaultbranch": _REFERENCE,
    "pull.rebase": f"{_BOOLEAN}|merges",
    "pull.ff": f"{_BOOLEAN}|only",
    "merge.conflictstyle": "merge|diff3|zdiff3",
    "branch.*.remote": r"[A-Za-z0-9_.-]{1,100}",
    "branch.*.merge": _REFERENCE,
    "branch.*.rebase": f"{_BOOLEAN}|merges",
    "remote.*.fetch": _REFERENCE,
    "submodule.*.active": _BOOLEAN,
}
"""Settings that are taken over, with the values they may have. `*` is any subsection."""

_HOOKS = {"core.hookspath": r"[A-Za-z0-9_./~-]{1,300}"}
"""Added where git may run hooks: commands can write none of the places that it names."""

_IDENTITY = {"user.name": _TEXT, "user.email": _TEXT}

_COMPARISON_SETTINGS = ("[core]", "\tcheckStat = minimal", "\ttrustctime = false")
"""Have git compare files by size and time alone, which covers share with what they mask."""

_HEADING = compile_lazily(
    r'\[\s*([A-Za-z0-9-]+)\s*(?:"([A-Za-z0-9_./+-]{1,200})")?\s*\]\s*(?:[#;].*)?'
)
_SETTING = compile_lazily(r'([A-Za-z][A-Za-z0-9-]*)\s*(?:=\s*("?)([^"]*?)\2\s*)?')


def remove_secrets(text: str, *, git_hooks: bool = False) -> str:
    """Return the settings that commands may see, as a configuration file.

    Args:
        text: The configuration.
        git_hooks: Whether git may run the hooks that it names.
    """
    kept = _KEPT | _HOOKS if git_hooks else _KEPT
    return "".join(
        line + "\n"
        for line in [*_drop_empty_sections(_select_settings(text, kept)), *_COMPARISON_SETTINGS]
    )


def extract_identity(*texts: str) -> str:
    """Return the person's name and address as a configuration file.

    Of several configuration files a later one wins. Empty where they do not say both.
    """
    found: dict[str, str] = {}
    for text in texts:
        for line in _select_settings(text, _IDENTITY):
            key, equals, value = line.strip().partition(" = ")
            if equals and value.strip('" '):
                found[key] = value
    if len(found) < 2:
        return ""
    return "[user]\n" + "".join(f"\t{key} = {found[key]}\n" for key in ("name", "email"))


def _select_settings(text: str, wanted: Mapping[str, str]) -> list[str]:
    """Return headings, and below them the wanted settings with an allowed value."""
    kept: list[str] = []
    heading = ""
    for line in text.splitlines():
        line = line.strip()
        found = _HEADING.fullmatch(line)
        if found:
            section, subsection = found[1].lower(), found[2]
            heading = section + (".*" if subsection else "")
            kept.append(f'[{section} "{subsection}"]' if subsection else f"[{section}]")
        elif line.startswith("["):
            heading = ""
        elif heading:
            kept += _select_setting(line, heading, wanted)
    return kept


def _select_setting(line: str, heading: str, wanted: Mapping[str, str]) -> list[str]:
    setting = _SETTING.fullmatch(line.partition(" #")[0].partition(" ;")[0])
    if setting is None:
        return []
    key = setting[1].lower()
    value = "true" if setting[3] is None else setting[3].strip()
    pattern = wanted.get(f"{heading}.{key}")
    if not pattern or not re.fullmatch(pattern, value, re.IGNORECASE):
        return []
    return [f'\t{key} = "{value}"' if pattern is _TEXT else f"\t{key} = {value}"]


def _drop_empty_sections(lines: list[str]) -> list[str]:
    """Leave out headings with nothing below them."""
    following = [*lines, "["][1:]
    return [
        line
        for line, after in zip(lines, following, strict=True)
        if line[0] != "[" or after[0] != "["
    ]
