"""Files that a command names: which no tool may touch, and which are outside the workspace.

Every word that could be a path is judged in every folder that the `cd`s before it could have led
to, in all forms in which programs accept paths: plain, `--file=x`, `-fx`, `if=x`, `@x`, `host:x`.
The tables of options (`option_meanings`) say what is text: a pattern, a delimiter, a message is
not a path. What only the shell knows becomes a doubt.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from urllib.parse import unquote

from ferrule.core.lazy_patterns import compile_lazily
from ferrule.core.value_class import frozen
from ferrule.permissions.protected_names import RESERVED, SECRET, ProtectedNames

from .hazards import find_outputs
from .judged_arguments import JudgedArgument, judge_arguments
from .program_facts import (
    GIT_HARMLESS,
    INTERPRETERS,
    LISTERS,
    PRINTERS,
    SCRIPT_FIRST,
    SHELLS,
    git_verb,
    program_name,
    word_set,
    writes_files,
)
from .shell_words import ANY, BRACE, ONE, UNKNOWN, Word, could_match_name
from .syntax import CommandPart, Finding
from .working_directory import DIRECTORY_COMMANDS, absolute_folders

_DEVICES = frozenset(
    f"/dev/{name}" for name in word_set("null zero full stdin stdout stderr tty random urandom")
)
_DESCRIPTOR = compile_lazily(r"/dev/fd/[0-9]+")
_SCHEME = compile_lazily(r"(?!file:)[a-z][a-z0-9+.\-]*://", re.IGNORECASE)
_FILE_URL = compile_lazily(r"file:(?://[^/]*)?", re.IGNORECASE)
_CODE_FLAG = compile_lazily(r"-[A-Za-z]*[cerpE]|--eval|--print|--command|--execute")
_WILDCARD = compile_lazily("[\1-\3]")
_IN_CODE = compile_lazily(r"[A-Za-z0-9_./~\-]*\.?[A-Za-z0-9_./~\-]+")


def is_device(path: str) -> bool:
    """Return whether a path is a device, or a descriptor, that any command may use.

    Only a whole name counts: `/dev/fd/../cwd/x` is a file.
    """
    path = posixpath.normpath(path)
    return path in _DEVICES or _DESCRIPTOR.fullmatch(path) is not None


@frozen
class NamedPath:
    """A file name in a command, with marks (`shell_words`) for what is unknown."""

    text: str
    is_written: bool
    is_only_listed: bool = False
    """True if the program shows only its name, not its content."""
    may_be_elsewhere: bool = False
    """True if it may be on another machine or in a text: then only secret names count."""
    is_cd_target: bool = False
    """True if it is the target of a `cd`."""
    is_for_rules_only: bool = False
    """True if it names content that git keeps, which deny rules are about and nothing else."""
    may_be_from_top: bool = False
    """True if git may read it from a folder above, the top of its repository."""


def find_paths(
    parts: Sequence[CommandPart], loose: Sequence[Word], start: str
) -> Iterator[tuple[NamedPath, list[str]]]:
    """Yield everything that could be a file name, with the folders it could be relative to.

    `start` is the folder in which the command line starts.
    """
    closure = possible_folders(parts, start)
    for part in parts:
        folders = absolute_folders(part, start, closure)
        for named in _find_named_paths(part):
            if part.wrapped_program in DIRECTORY_COMMANDS:
                named = replace(named, is_cd_target=True)
            yield named, _add_parents(folders) if named.may_be_from_top else folders
    for word in loose:
        for named in _pieces(word.text, False, False):
            yield named, closure


def _add_parents(folders: Sequence[str]) -> list[str]:
    """Return the folders with all that are above them."""
    found = list(folders)
    for folder in found:
        if (parent := posixpath.dirname(folder)) != folder:
            found.append(parent)
    return list(dict.fromkeys(found))


def _find_named_paths(part: CommandPart) -> Iterator[NamedPath]:
    for redirect in part.redirects:
        yield NamedPath(redirect.target.text, redirect.write)
    texts = [word.text for word in part.words_after_wrappers]
    program = program_name(texts[0]) if texts else ""
    if program in PRINTERS:
        return
    if texts and "/" in texts[0] and not texts[0].startswith("/"):
        yield NamedPath(texts[0], False)
    if program == "git":
        yield from _find_git_paths(texts[1:])
    write = writes_files(texts)
    lists = program in LISTERS
    for text, role in _roles(part, program, texts[1:]) if texts else ():
        if role == "code":
            for token in _IN_CODE.findall(re.sub(r"[a-z+]+://\S*", "", text)):
                yield NamedPath(token, False, may_be_elsewhere=True)
        elif role != "text":
            yield from _pieces(text, write or role == "written", lists)


def _find_git_paths(rest: Sequence[str]) -> Iterator[NamedPath]:
    """Yield what git may read as a path where others would not.

    `-L1,3:path` of `log`, `rev:path` from the top of the repository, the magic of path patterns
    (`:(top)path`, `:/path`), and their wildcards, which no shell has expanded.
    """
    content = NamedPath("", False, is_for_rules_only=True)
    before = ""
    for text in rest:
        after_colon = text.partition(":")[2]
        if text.startswith("-L") or before == "-L":
            while after_colon:
                yield replace(content, text=after_colon)
                after_colon = after_colon.partition(":")[2]
        elif magic := _PATHSPEC_MAGIC.fullmatch(text):
            excludes = "exclude" in (magic[1] or "") or set(magic[2] or "") & {"!", "^"}
            if not excludes:
                path = _mark_wildcards(magic[3])
                yield replace(content, text=path, may_be_from_top=True)
        elif not text.startswith("-") and "://" not in text:
            while after_colon:
                yield replace(content, text=after_colon, may_be_from_top=True)
                after_colon = after_colon.partition(":")[2]
            if re.search(r"[*?\[]", text) and re.search(r"\w", text):
                yield replace(content, text=_mark_wildcards(text))
        before = text


def _mark_wildcards(text: str) -> str:
    """Mark the wildcards in a text that a program itself expands."""
    text = re.sub(r"\[[^\]]*\]", ONE, text)
    return text.replace("*", ANY).replace("?", ONE)


_PATHSPEC_MAGIC = compile_lazily(r":(?:\(([^)]*)\)|([/!^]+):?)(.*)", re.DOTALL)
_SHOWS_WHAT_IT_READS = compile_lazily(r"--batch(=.*|-co.*)?|--stdin", re.DOTALL)
"""Options with which git takes from its input what it shows."""


def _find_input_doubts(parts: Sequence[CommandPart]) -> Iterator[str]:
    """Yield which commands of git show what only their input names."""
    for part in parts:
        if part.wrapped_program != "git":
            continue
        texts = [word.text for word in part.words_after_wrappers]
        options = [text for text in texts[1:] if _SHOWS_WHAT_IT_READS.fullmatch(text)]
        if options and git_verb(texts) in _SHOWS:
            yield f"`git {git_verb(texts)} {options[0]}` shows what its input names"


_SHOWS = word_set("cat-file log show rev-list diff-tree whatchanged blame format-patch")


def _roles(part: CommandPart, program: str, rest: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each argument with its role: `any`, `written`, `text`, or `code` of an interpreter.

    What the tables of options do not know for sure may be a path.
    """
    if program in INTERPRETERS | SHELLS and program not in SCRIPT_FIRST:
        follows_flag = False
        for word in rest:
            yield word, "code" if follows_flag else "any"
            follows_flag = _CODE_FLAG.fullmatch(word) is not None
        return
    judged = (
        () if part.renamed or not _is_installed(part) else _judge_arguments(part, program, rest)
    )
    known: set[int] = set()
    for piece in judged:
        if piece.sure:
            known.update((piece.index, piece.value_index))
    outputs = find_outputs(program, rest)
    for index, word in enumerate(rest):
        if index not in known:
            yield word, "written" if index in outputs else "any"
    for piece in judged:
        if piece.sure and piece.value:
            is_code = piece.role == "text" and program in INTERPRETERS and piece.operand
            yield piece.value, "code" if is_code else piece.role


def _is_installed(part: CommandPart) -> bool:
    """Return whether a program is found on the path; another one may read arguments differently."""
    program = part.words_after_wrappers[0].text
    return "/" not in program or program.startswith(("/usr/bin/", "/bin/"))


def _judge_arguments(
    part: CommandPart, program: str, rest: Sequence[str]
) -> Sequence[JudgedArgument]:
    """Judge the arguments, up to where the shell could turn them into other words."""
    verb = ""
    start = 0
    if program == "git":
        while start < len(rest) and rest[start] in GIT_HARMLESS:
            start += 1
        verb = rest[start] if start < len(rest) else ""
        start += 1
    open_from = len(rest)
    for index, word in enumerate(part.words_after_wrappers[1:]):
        if word.splits or (word.may_be_flag and UNKNOWN in word.text):
            open_from = index
            break
    judged = judge_arguments(program, rest[start:], verb)
    if not start and open_from == len(rest):
        return judged
    found: list[JudgedArgument] = []
    for piece in judged:
        index, value_index = piece.index + start, piece.value_index + start
        sure = piece.sure and max(index, value_index) < open_from
        found.append(replace(piece, index=index, value_index=value_index, sure=sure))
    found += (
        JudgedArgument(index, index, None, "text", False, True, False)
        for index in range(min(start, len(rest)))
    )
    return found


def _pieces(text: str, write: bool, lists: bool) -> Iterator[NamedPath]:
    if _SCHEME.match(text) and ".." not in text.split("/"):
        # With `..` it may be a path all the same: if there is a folder `https:`, `https://../.env`
        # is `.env`.
        return
    if text.startswith("-"):
        text = _value_of_option(text)
        if not text:
            return
    if _FILE_URL.match(text):
        text = _FILE_URL.sub("", text, count=1)
        yield NamedPath(_decode_url_path(text), write, lists)
    yield NamedPath(text, write, lists)
    for match in re.finditer(r"(^|[=:@,])([^=:@,]+)", text):
        if match[2] != text:
            # After a colon it is on another machine or in a container, a revision or a volume.
            yield NamedPath(match[2], write, lists, match[1] == ":")


def _decode_url_path(path: str) -> str:
    """Return the path of a `file:` URL as a program opens it.

    Without query and fragment and with `%73` decoded; what curl expands (`{a,b}`, `[1-3]`) is
    marked, and so is what would forge a mark.
    """
    path = re.split(f"[?#{ONE}]", path, maxsplit=1)[0]
    path = re.sub(r"\{[^}]*\}|\[[^\]]*\]", BRACE, path)
    return re.sub("%0[0-3]", UNKNOWN, path) if re.search("%0[0-3]", path) else unquote(path)


def _value_of_option(text: str) -> str:
    name, equals, value = text.partition("=")
    if equals:
        return value
    return "" if name.startswith("--") else text[2:]


def judge_paths(
    parts: Sequence[CommandPart],
    loose: Sequence[Word],
    root: str,
    home: str,
    names: ProtectedNames | None,
    *,
    start: str = "",
) -> tuple[list[Finding], list[str]]:
    """Judge all file names in a command line.

    Args:
        parts: The simple commands.
        loose: Words outside simple commands.
        root: The workspace.
        home: Not used; `~` is already expanded in words.
        names: Names that no tool may touch; None for no such names.
        start: The folder in which the command line starts; by default `root`.

    Returns:
        `(findings, doubts)`: the names that may not be used, and why a person has to look.
    """
    findings: list[Finding] = []
    doubts = [*_unknown_folders(parts), *_find_input_doubts(parts)]
    for named, folders in find_paths(parts, loose, start or root or "/."):
        if named.is_for_rules_only:
            continue
        # A folder outside is judged with the `cd` that leads there.
        inside = [folder for folder in folders if not root or _is_below(folder, root)]
        found = [_judge(named, folder, root, names) for folder in inside or folders[:1]]
        refused = [finding for finding in found if finding is not None]
        protected = [finding for finding in refused if finding.label != "outside_workspace"]
        if protected or (refused and len(refused) == len(found)):
            findings.append((protected or refused)[0])
        elif refused:
            # A person can be asked about going there; a file that may be outside is not read.
            why = (
                f"`{_visible(named.text)}` could lie outside the workspace: that depends on "
                "which `cd` works; join the commands with `&&`"
            )
            findings.append(Finding("outside_workspace", why, not named.is_cd_target))
        if names is not None and not named.is_only_listed:
            pattern = _could_be_secret(named.text, names)
            if pattern:
                doubts.append(f"`{_visible(named.text)}` could name `{pattern}`")
    return list(dict.fromkeys(findings)), list(dict.fromkeys(doubts))


def _is_below(folder: str, root: str) -> bool:
    return folder == root or folder.startswith(root.rstrip("/") + "/")


def _targets(part: CommandPart) -> list[Word]:
    """Return the operands of a `cd`."""
    targets: list[Word] = []
    for word in part.words_after_wrappers[1:]:
        is_option = word.is_known and word.text.startswith("-") and word.text != "-"
        if not is_option:
            targets.append(word)
    return targets


def _unknown_folders(parts: Sequence[CommandPart]) -> Iterator[str]:
    for part in parts:
        if part.wrapped_program in DIRECTORY_COMMANDS:
            targets = _targets(part)
            if len(targets) != 1 or not targets[0].is_known or targets[0].text == "-":
                yield "it changes to a folder that is known only when it runs"


def possible_folders(parts: Sequence[CommandPart], start: str) -> list[str]:
    """Return every folder that the `cd`s of these commands could lead to, in any order."""
    folders = [start]
    for part in parts:
        if part.wrapped_program not in DIRECTORY_COMMANDS:
            continue
        targets = _targets(part)
        if len(targets) == 1 and targets[0].is_known and targets[0].text != "-":
            moved = [
                posixpath.normpath(posixpath.join(folder, targets[0].text))
                for folder in folders[:8]
            ]
            folders += [folder for folder in dict.fromkeys(moved) if folder not in folders]
    return folders


def _judge(
    named: NamedPath, folder: str, root: str, names: ProtectedNames | None
) -> Finding | None:
    text = named.text
    if UNKNOWN in text:
        return _judge_tail(named, names)
    absolute = posixpath.normpath(posixpath.join(folder, text))
    if not text or is_device(absolute):
        return None
    if root and (absolute == root or absolute.startswith(root + "/")):
        name = absolute[len(root) + 1 :]
        return _find_refusal(named, name, names) if name else None
    if not root and not text.startswith("/") and ".." not in text.split("/"):
        return _find_refusal(named, posixpath.normpath(text), names)
    if not (text.startswith("/") or ".." in text.split("/") or folder != root):
        return None
    secret = _find_refusal(named, absolute.lstrip("/"), names)
    if named.may_be_elsewhere:
        return secret
    return secret or Finding(
        "outside_workspace",
        f"`{_visible(text)}` lies outside the workspace",
        place=absolute,
        is_written=named.is_written,
    )


def _judge_tail(named: NamedPath, names: ProtectedNames | None) -> Finding | None:
    """Judge the literal part of a name that contains an expansion."""
    if named.text.strip(UNKNOWN + "/") == "":
        return None
    filled = re.sub("[\0-\3]+", "x", named.text).lstrip("/")
    return _find_refusal(named, posixpath.normpath(filled), names)


def _find_refusal(named: NamedPath, name: str, names: ProtectedNames | None) -> Finding | None:
    if names is None or any(mark in name for mark in (ANY, ONE, BRACE)):
        return None
    why = names.check(name, write=named.is_written)
    if why is None:
        return None
    label = "credential_file_read" if "secret" in why and not named.is_written else ""
    verb = "is " if why.startswith(("reserved", "protected")) else ""
    return Finding(label, f"`{_visible(named.text)}` {verb}{why}")


def _could_be_secret(text: str, names: ProtectedNames) -> str | None:
    """Return a pattern of the lists that a name with wildcards could match."""
    if _WILDCARD.search(text) is None:
        return None
    components = [component for component in text.split("/") if component]
    for pattern in (*SECRET, *RESERVED, *names.secret, *names.reserved):
        wanted = [part for part in pattern.strip("/").split("/") if part != "**"]
        is_anchored = pattern.startswith("/")
        for index, component in enumerate(components):
            if _WILDCARD.search(component) is None or (is_anchored and index):
                continue
            matches_last = any(could_match_name(component, part) for part in wanted[-1:])
            if matches_last and _led_to(components[:index], wanted[:-1]):
                return pattern
    return None


def _led_to(before: Sequence[str], wanted: Sequence[str]) -> bool:
    """Return whether the components before a wildcard could match the others of a pattern."""
    return all(any(could_match_name(component, part) for component in before) for part in wanted)


def _visible(text: str) -> str:
    return text.replace(UNKNOWN, "$…").replace(ANY, "*").replace(ONE, "?").replace(BRACE, "{…}")
