"""Configurations of git without what may be secret: what commands see in place of `.git/config` and
`~/.gitconfig`.

The real file can hold tokens (in addresses, in headers, in helpers), so only settings that are
known to hold none are taken over: how data is stored, who commits, what branches follow. Addresses
of remotes are left out. Commands cannot write the file, so what it makes git do is not changed by
them; what it makes git do at all happens inside the sandbox. Of the person's own settings only
their name and address are taken, read as
data: no file that these include is opened. Format: git-config(1), of it only plain `key = value`
    lines.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

LIMIT = 1024 * 1024
"""Bytes of a configuration that are looked at."""

_FLAG = "true|false|yes|no|on|off|1|0"
_WORDS = r"[^\x00-\x1f\"\\;#]{1,200}"
_REFERENCE = r"[A-Za-z0-9_./*+:@-]{1,300}"

_KEPT = {
    "core.repositoryformatversion": r"[0-9]",
    "core.bare": _FLAG,
    "core.filemode": _FLAG,
    "core.ignorecase": _FLAG,
    "core.symlinks": _FLAG,
    "core.logallrefupdates": f"{_FLAG}|always",
    "core.precomposeunicode": _FLAG,
    "core.autocrlf": f"{_FLAG}|input",
    "core.eol": "lf|crlf|native",
    "core.sparsecheckout": _FLAG,
    "core.sparsecheckoutcone": _FLAG,
    "core.worktree": r"[A-Za-z0-9_./-]{1,300}",
    "core.abbrev": r"[0-9]{1,2}|auto|no",
    "extensions.objectformat": "sha1|sha256",
    "extensions.compatobjectformat": "sha1|sha256",
    "extensions.refstorage": "files|reftable",
    "extensions.noop": ".{0,20}",
    "user.name": _WORDS,
    "user.email": _WORDS,
    "init.defaultbranch": _REFERENCE,
    "pull.rebase": f"{_FLAG}|merges",
    "pull.ff": f"{_FLAG}|only",
    "merge.conflictstyle": "merge|diff3|zdiff3",
    "branch.*.remote": r"[A-Za-z0-9_.-]{1,100}",
    "branch.*.merge": _REFERENCE,
    "branch.*.rebase": f"{_FLAG}|merges",
    "remote.*.fetch": _REFERENCE,
    "submodule.*.active": _FLAG,
}
"""Settings that are taken over, with the values they may have. `*` is any subsection."""

_IDENTITY = {"user.name": _WORDS, "user.email": _WORDS}

_COMPARING = ("[core]", "\tcheckStat = minimal", "\ttrustctime = false")
"""Files are told apart by size and time alone: what covers a masked file has those of the file."""

_HEADING = re.compile(r'\[\s*([A-Za-z0-9-]+)\s*(?:"([A-Za-z0-9_./+-]{1,200})")?\s*\]\s*(?:[#;].*)?')
_SETTING = re.compile(r'([A-Za-z][A-Za-z0-9-]*)\s*(?:=\s*("?)([^"]*?)\2\s*)?')


def without_secrets(text: str) -> str:
    """The settings of a configuration file that commands may see, as a configuration file."""
    return "".join(line + "\n" for line in [*_headed(_taken(text, _KEPT)), *_COMPARING])


def identity(*texts: str) -> str:
    """Name and address of the person, from configuration files of which a later one wins, as a
    configuration file.

    Empty where they do not say both.
    """
    found: dict[str, str] = {}
    for line in (line for text in texts for line in _taken(text, _IDENTITY)):
        key, equals, value = line.strip().partition(" = ")
        if equals and value.strip('" '):
            found[key] = value
    return (
        "[user]\n" + "".join(f"\t{key} = {found[key]}\n" for key in ("name", "email"))
        if len(found) == 2
        else ""
    )


def _taken(text: str, wanted: Mapping[str, str]) -> list[str]:
    """Headings, and below them the settings that are wanted and have a value that they may have."""
    kept: list[str] = []
    heading = ""
    for line in text.splitlines():
        line = line.strip()
        if found := _HEADING.fullmatch(line):
            section, subsection = found[1].lower(), found[2]
            heading = section + (".*" if subsection else "")
            kept.append(f'[{section} "{subsection}"]' if subsection else f"[{section}]")
        elif line.startswith("["):
            heading = ""
        elif heading and (
            setting := _SETTING.fullmatch(line.partition(" #")[0].partition(" ;")[0])
        ):
            key, value = setting[1].lower(), "true" if setting[3] is None else setting[3].strip()
            pattern = wanted.get(f"{heading}.{key}")
            if pattern and re.fullmatch(pattern, value, re.IGNORECASE):
                kept.append(f'\t{key} = "{value}"' if pattern is _WORDS else f"\t{key} = {value}")
    return kept


def _headed(lines: list[str]) -> list[str]:
    """Without headings that nothing stands below."""
    following = [*lines[1:], "["]
    return [
        one for one, after in zip(lines, following, strict=True) if one[0] != "[" or after[0] != "["
    ]
