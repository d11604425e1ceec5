"""Make the text of a tool file from a command that was run in a session.

A command is a program and its words. Words become parameters if a person says so (`name=word`),
otherwise if they are likely to vary: paths, numbers, text with blanks. The generated tool calls the
program with the words in the same places and refuses a value that would be read as an option. It
has a test that reproduces the recorded command with its recorded output.

What looks like a secret (`guards`, or the value of an option or variable with such a name) is never
written: a command that holds one is refused, and output that holds one is left out. Not protected:
a secret that nothing here recognises. The person sees the file before it is written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from ferrule.core.errors import ConfigError
from ferrule.core.identity import Identity
from ferrule.core.value_class import frozen
from ferrule.engine.hooks.events import Action, Occasion, ToolPre
from ferrule.extensions.hooks.guards import no_secrets_in_arguments
from ferrule.permissions.child_environment import is_secret_variable
from ferrule.permissions.command_analysis.analysis import analyse_command
from ferrule.permissions.command_analysis.program_facts import INTERPRETERS, RUNNERS, SHELLS

MAX_OUTPUT = 8_000
"""How many characters of output the tool returns."""
MAX_TESTED_OUTPUT = 1_500
"""How many characters of the recorded output the test contains."""
_STATUS = re.compile(r"^\[exit status -?\d+\]$", re.MULTILINE)
_NUMBER = re.compile(r"-?\d{1,15}")
_PATH = re.compile(r"(?=.*[/.])[\w@+~.][\w@+~./-]*", re.ASCII)
_UNQUOTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff]")
_SETTING = re.compile(r"(?P<before>-{1,2}[\w-]+=|[A-Za-z_]\w*=)(?P<value>.+)", re.DOTALL)


@frozen
class RecordedCommand:
    """A recorded command that succeeded.

    Attributes:
        words: The program and its arguments.
        folder: Where it started, relative to the workspace.
        timeout_ms: How long it may take.
        output: What it printed.
    """

    words: tuple[str, ...]
    folder: str
    timeout_ms: int
    output: str


@frozen
class ParameterWord:
    """A word of which a part becomes a parameter: `before` stays, `value` was recorded."""

    name: str
    value: str
    before: str = ""

    @property
    def is_number(self) -> bool:
        """Whether the value is a whole number."""
        return _NUMBER.fullmatch(self.value) is not None


Word = str | ParameterWord


def read_recorded_command(arguments: Mapping[str, Any], data: Any) -> RecordedCommand:
    """Read a command from the arguments and the result of a `run_command` call.

    Raises:
        ConfigError: The command cannot become a tool.
    """
    output = _output(data)
    words = _words(
        arguments.get("command"),
        shell=bool(arguments.get("shell") or arguments.get("mode") == "shell"),
    )
    timeout = arguments.get("timeout_ms") or 1000 * (arguments.get("timeout") or 0) or 30_000
    return RecordedCommand(words, str(arguments.get("cwd") or "."), int(timeout), output)


def _words(command: Any, *, shell: bool) -> tuple[str, ...]:
    if isinstance(command, list):
        return tuple(str(word) for word in cast("list[Any]", command))
    text = f"{command}"
    parts = analyse_command(text).parts
    words = (
        parts[0].argv
        if len(parts) == 1 and not parts[0].redirects and not parts[0].assignments
        else ()
    )
    if shell or not words or None in words:
        raise ConfigError(
            f"`{text[:200]}` is more than one program with arguments",
            hint="write it by hand: `ferrule tools new NAME`",
        )
    return tuple(word for word in words if word is not None)


def _output(data: Any) -> str:
    text, status = data, 0
    if isinstance(data, Mapping):
        record = cast("Mapping[str, Any]", data)
        text, status = (
            record.get("stdout") or record.get("output") or "",
            record.get("exit_code", 0),
        )
    if not isinstance(text, str) or status or _STATUS.search(text):
        raise ConfigError(
            "the command did not succeed",
            hint="choose one that did",
        )
    return text


# ---- what varies


def find_parameters(words: Sequence[str], chosen: Mapping[str, str]) -> tuple[Word, ...]:
    """Turn words into parameters: the `chosen` ones (name to word), or those likely to vary."""
    return _apply_choices(words, chosen) if chosen else _detect_parameters(words)


def _apply_choices(words: Sequence[str], chosen: Mapping[str, str]) -> tuple[Word, ...]:
    for name, value in chosen.items():
        if not re.fullmatch(r"[a-z][a-z0-9_]{0,39}", name):
            raise ConfigError(
                f"`{name}` cannot be the name of a parameter",
                hint="use lower-case letters, digits and `_`",
            )
        if value == words[0]:
            raise ConfigError(
                f"`{value}` is the program and cannot become a parameter",
                hint="choose one of its arguments",
            )
        if value.startswith("-"):
            raise ConfigError(
                f"`{value}` is an option and cannot become a parameter",
                hint="make its value a parameter",
            )
        if not value or not any(_part(word, value) is not None for word in words[1:]):
            raise ConfigError(
                f"`{value}` is not a word of the command", hint=f"its words: {' '.join(words[1:])}"
            )
    made: list[Word] = [words[0]]
    for word in words[1:]:
        found = [
            ParameterWord(name, value, before)
            for name, value in chosen.items()
            if (before := _part(word, value)) is not None
        ]
        made.append(found[0] if found else word)
    return tuple(made)


def _part(word: str, value: str) -> str | None:
    """Return what precedes `value` in a word: "" or `--option=`. None if it is another word."""
    if word == value:
        return ""
    found = _SETTING.fullmatch(word)
    return found["before"] if found is not None and found["value"] == value else None


def _detect_parameters(words: Sequence[str]) -> tuple[Word, ...]:
    made: list[Word] = [words[0]]
    names: dict[str, str] = {}
    runs_code = _base(words[0]) in SHELLS | INTERPRETERS | RUNNERS
    for at, word in enumerate(words[1:], 1):
        before, value = "", word
        if found := _SETTING.fullmatch(word):
            before, value = found["before"], found["value"]
        elif re.fullmatch(r"-\d+", word):
            before, value = "-", word[1:]
        kind = "" if runs_code or (not before and word.startswith("-")) else _kind(value)
        if not kind:
            made.append(word)
            continue
        name = _name(kind, before or (words[at - 1] if at > 1 else ""), value, names)
        made.append(ParameterWord(name, value, before))
    return tuple(made)


def _kind(value: str) -> str:
    if _NUMBER.fullmatch(value):
        return "number"
    if re.search(r"\s", value):
        return "text"
    return "path" if _PATH.fullmatch(value) and value.strip("./") else ""


def _name(kind: str, option: str, value: str, names: dict[str, str]) -> str:
    """Name a parameter after its option, or after its kind. Equal values get the same name."""
    if value in names:
        return names[value]
    named = option.startswith("-") and "=" not in option.rstrip("=")
    wanted = re.sub(r"\W+", "_", option.strip("-=")).lower() if named else ""
    wanted = wanted if re.fullmatch(r"[a-z][a-z0-9_]{0,39}", wanted) else kind
    name, number = wanted, 1
    while name in names.values():
        number += 1
        name = f"{wanted}_{number}"
    names[value] = name
    return name


# ---- secrets


async def find_secrets(words: Sequence[Word], output: str) -> tuple[str, bool]:
    """Look for secrets.

    Returns:
        Why the words must not be written ("" if they may), and whether the output holds what looks
        like a secret.
    """
    fixed = [word if isinstance(word, str) else f"{word.before}{word.value}" for word in words]
    why = _named_secret(fixed) or await _find_refusal({"command": fixed})
    return why, bool(await _find_refusal({"output": output}))


async def _find_refusal(values: Mapping[str, Any]) -> str:
    guard = no_secrets_in_arguments()
    answer = await guard.run(
        Occasion(
            ToolPre("promote", "run_command", values), Identity("local", "promote", "none", "none")
        )
    )
    if isinstance(answer, Action) and answer.verdict == "block":
        return answer.reason.partition(";")[0]
    return ""


def _named_secret(words: Sequence[str]) -> str:
    for at, word in enumerate(words):
        if found := _SETTING.fullmatch(word):
            option = found["before"].rstrip("=")
        elif at and words[at - 1].startswith("-") and not word.startswith("-"):
            option = words[at - 1]
        else:
            continue
        if is_secret_variable(re.sub(r"\W+", "_", option.strip("-"))):
            return f"the value of `{option}` looks like a secret"
    return ""


# ---- the file


def suggest_name(words: Sequence[Word]) -> str:
    """Make a name from the program and the first word, unless that is an option: `git_log`."""
    texts = [word for word in words if isinstance(word, str)]
    parts = [
        _base(texts[0]),
        *[word for word in texts[1:2] if re.fullmatch(r"[A-Za-z][\w-]*", word)],
    ]
    return re.sub(r"\W+", "_", "_".join(parts)).strip("_").lower()[:60] or "command"


def render_tool_file(seen: RecordedCommand, words: Sequence[Word], *, with_output: bool) -> str:
    """Return the text of the tool file. Without `with_output` the recorded output is left out."""
    parts = list({word.name: word for word in words if isinstance(word, ParameterWord)}.values())
    bare = [
        part.name
        for part in parts
        if not part.is_number
        and any(w == part and not w.before for w in words if isinstance(w, ParameterWord))
    ]
    program = str(words[0])
    arguments = {part.name: int(part.value) if part.is_number else part.value for part in parts}
    output = _shorten_output(seen.output) if with_output else "(what it said)"
    texts = [word if isinstance(word, str) else f"{word.before}<{word.name}>" for word in words]
    shown = " ".join(" ".join(texts).replace("`", "'").split())
    lines = [
        "---",
        *_parameters(parts),
        "side_effect: execute",
        f"timeout_ms: {seen.timeout_ms + 5000}",
        "script: |",
    ]
    lines += [f"  {line}" if line else "" for line in _script(seen, words, bare, program)]
    lines += [
        "examples:",
        f"  - {{ request: {_json(f'Run {shown}')}, arguments: {_json(arguments)} }}",
    ]
    lines += _tests(program, seen, arguments, bare, output)
    chosen = f", with {', '.join(f'`{part.name}`' for part in parts)} as given" if parts else ""
    return "\n".join(
        [*lines, "---", f"Run `{shown}`{chosen}.", "", "It gives back what the program says.", ""]
    )


def _parameters(parts: Sequence[ParameterWord]) -> list[str]:
    if not parts:
        return ["parameters: {}"]
    made = ["parameters:"]
    for part in parts:
        kind = "integer" if part.is_number else "string"
        description = _json(f"For example {part.value}.")
        made.append(
            f"  {part.name}: {{ type: {kind}, required: true, description: {description} }}"
        )
    return made


def _script(
    seen: RecordedCommand, words: Sequence[Word], bare: Sequence[str], program: str
) -> list[str]:
    folder = f", {_json(seen.folder)}" if seen.folder != "." else ""
    guarded = [
        f"    for word in [{', '.join(f'args[{_json(name)}]' for name in bare)}]:",
        '        if word.startswith("-"):',
        '            fail("`" + word + "` would be read as an option")',
    ]
    return [
        "def run(args):",
        *(guarded if bare else []),
        f"    words = [{', '.join(map(_render_word, words[1:]))}]",
        f"    ran = exec.run({_json(program)}, words, {seen.timeout_ms}{folder})",
        '    if not ran["ok"]:',
        '        said = ran["stderr"] or ran["stdout"]',
        (
            f'        fail({_json(program + " ended with status ")} + str(ran["exit_code"]) + ": '
            '" + string.truncate(said, 2000))'
        ),
        f'    return string.truncate(ran["stdout"], {MAX_OUTPUT})',
    ]


def _render_word(word: Word) -> str:
    if isinstance(word, str):
        return _json(word)
    value = f"args[{_json(word.name)}]"
    value = f"str({value})" if word.is_number else value
    return f"{_json(word.before)} + {value}" if word.before else value


def _tests(
    program: str,
    seen: RecordedCommand,
    arguments: Mapping[str, Any],
    bare: Sequence[str],
    output: str,
) -> list[str]:
    answer = {
        "ok": True,
        "stdout": output,
        "stderr": "",
        "exit_code": 0,
        "duration_ms": 1,
        "timed_out": False,
    }
    lines = [
        "tests:",
        "  - name: runs the command that was seen",
        f"    arguments: {_json(arguments)}",
        f"    answers: {{ exec.run: {_json(answer)} }}",
        f"    asks: {{ exec.run: {_json([program, list(seen.words[1:])])} }}",
        f"    returns: {_json(output)}",
    ]
    if bare:
        lines += [
            "  - name: takes no option in place of a value",
            f"    arguments: {_json({**arguments, bare[0]: '--option'})}",
            "    fails: would be read as an option",
        ]
    return lines


def _shorten_output(output: str) -> str:
    """Return as many whole lines of the output as a test should contain."""
    if len(output) <= MAX_TESTED_OUTPUT:
        return output
    return output[:MAX_TESTED_OUTPUT].rpartition("\n")[0] or output[:MAX_TESTED_OUTPUT]


def _json(value: Any) -> str:
    """Encode a value so that YAML and Starlark both read it: JSON, with more characters escaped."""
    return _UNQUOTABLE.sub(_escape_character, json.dumps(value, ensure_ascii=False))


def _escape_character(found: re.Match[str]) -> str:
    code = ord(found[0])
    # A lone surrogate is not a character: the bytes were not text.
    return "\\ufffd" if 0xD800 <= code < 0xE000 else f"\\u{code:04x}"


def _base(program: str) -> str:
    return program.rpartition("/")[2]
