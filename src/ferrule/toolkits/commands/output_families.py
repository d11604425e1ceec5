"""Families of programs whose output is reduced: how each is recognised and what of it is noise.

A family is recognised by lines that only its programs write, whatever started them. Only lines
known to tell of no failure are noise; a line that nobody here knows is kept. In the details of
many failures, the first ones stay whole; of the others the lines stay that give message and
location.
"""

from __future__ import annotations

import re

from ferrule.core.value_class import frozen


def _lines(*alternatives: str) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{one})" for one in alternatives))


_NOTHING = re.compile(r"(?!)")


@frozen
class OutputFamily:
    """How the output of a family of programs is read. All patterns match at the start of a line.

    Args:
        name: Name of the family, as the note on a reduced output gives it.
        evidence: A line that shows that this family wrote the output.
        noise: Lines that tell of no failure, such as a passed test.
        chatter: First lines of blocks that a blank line ends and that tell of no failure, such as
            what a test wrote to the console. A few stay.
        failure: First line of a failure's details.
        end: First line after the details of failures.
        essential: Lines of a failure that always stay. Where a failure has none of them, all of
            it stays. Where the pattern is missing, `detail` says what may go.
        detail: Lines of a failure that may go.
        location: Lines that say where, kept with `essential`; alone they are no message.
        names_next: Whether a line of noise names what the line behind it is about, and stays there.
        step: What stands before each line of the programs that this one runs.
    """

    name: str
    evidence: re.Pattern[str]
    noise: re.Pattern[str] = _NOTHING
    chatter: re.Pattern[str] = _NOTHING
    failure: re.Pattern[str] = _NOTHING
    end: re.Pattern[str] = _NOTHING
    essential: re.Pattern[str] | None = None
    location: re.Pattern[str] = _NOTHING
    detail: re.Pattern[str] = _NOTHING
    names_next: bool = False
    step: re.Pattern[str] | None = None


_FRAME = r"\s*>?\s*\d*\s*\|[\s^~_|/\\+-]*$"
"""The part of a code frame that only points at something; labels have letters and stay."""
_QUOTED = r"\s*>?\s*\d+\s*\|"
"""A line of the source in a code frame."""

FAMILIES: tuple[OutputFamily, ...] = (
    OutputFamily(
        "pytest",
        evidence=_lines(
            r"=+ test session starts =+$",
            r"=+ (?:FAILURES|ERRORS|short test summary info) =+$",
            r"(?:=+ )?(?:\d+ [a-z]+, )*\d+ (?:passed|failed|errors?)\b.* in [\d.]+s\b",
        ),
        noise=_lines(
            r"\S+::.* (?:PASSED|SKIPPED|XFAIL)\b.*(?:\[ *\d+%\])?$",
            r"\[gw\d+\] (?:\[ *\d+%\] )?(?:PASSED|SKIPPED|XFAIL) ",
            r"(?:\S+\.py )?[.sx]+ *\[ *\d+%\]$",
            r"(?:plugins|cachedir): ",
        ),
        failure=_lines(r"_{3,} .+ _{3,}$"),
        end=_lines(r"={3,} .+ ={3,}$"),
        essential=_lines(r"E(?: |$)"),
        location=_lines(r"\S.*:\d+: "),
    ),
    OutputFamily(
        "unittest",
        evidence=_lines(r"Ran \d+ tests? in [\d.]+s$"),
        noise=_lines(r".* \.\.\. (?:ok|skipped .*)$", r"[.s]+$"),
        failure=_lines(r"(?:ERROR|FAIL): .+"),
        end=_lines(r"Ran \d+ tests? in "),
        detail=_lines(r"    \S", r"    [\s~^]+$", r"={20,}$", r"-{20,}$", r"Traceback \(", r"$"),
    ),
    OutputFamily(
        "jest",
        evidence=_lines(r"Tests: +.*\d+ total$", r"Test Suites: .*\d+ total$"),
        noise=_lines(r"\s+[✓√] ", r"PASS "),
        chatter=_lines(r"\s+console\.(?:log|info|debug)$"),
        failure=_lines(r"\s+● .+"),
        end=_lines(r"Test Suites: ", r"Tests: ", r"(?:PASS|FAIL) "),
        detail=_lines(_QUOTED, _FRAME, r"\s+at .*(?:node_modules/|node:)", r"\s*$"),
    ),
    OutputFamily(
        "vitest",
        evidence=_lines(r"\s*Test Files  .*\(\d+\)$"),
        noise=_lines(r"\s*[✓√] "),
        chatter=_lines(r"stdout \| "),
        failure=_lines(r"\s*FAIL  "),
        end=_lines(r"\s*Test Files  "),
        detail=_lines(_QUOTED, _FRAME, r"⎯+(?:\[\d+/\d+\])?⎯*$", r"\s*$"),
    ),
    OutputFamily(
        "go test",
        evidence=_lines(r"(?:ok  |FAIL)\t\S+\t", r"=== RUN   ", r"--- (?:PASS|FAIL): "),
        noise=_lines(
            r"=== (?:RUN|PAUSE|CONT|NAME)\b",
            r"\s*--- PASS: ",
            r"ok  \t",
            r"\?   \t.*\[no test files\]$",
        ),
        names_next=True,
    ),
    OutputFamily(
        "cargo test",
        evidence=_lines(r"test result: (?:ok|FAILED)\. "),
        noise=_lines(r"test .+ \.\.\. (?:ok|ignored.*)$", r"\s+at /rustc/"),
        failure=_lines(r"---- .+ ----$"),
        end=_lines(r"failures:$", r"test result: "),
        detail=_lines(r"note: run with `RUST_BACKTRACE", r"\s*$"),
    ),
    OutputFamily(
        "ruff",
        evidence=_lines(r"Found \d+ errors?\b.*\.$"),
        failure=_lines(r"[A-Z]+\d+ (?:\[\*\] )?\S", r"invalid-syntax: "),
        end=_lines(r"Found \d+ errors?\b"),
        detail=_lines(_QUOTED, _FRAME, r"\s*\d*\s*[-+](?: |$)", r"\s*-{3,}$", r"\s*$"),
    ),
    OutputFamily(
        "rustc",
        evidence=_lines(r"\s+--> \S+\.rs:\d+:\d+$"),
        failure=_lines(r"(?:error|warning)(?:\[\w+\])?: "),
        end=_lines(r"error: could not compile "),
        detail=_lines(_QUOTED, _FRAME, r"\s*$"),
    ),
    OutputFamily(
        "C compiler",
        evidence=_lines(r"\S+?:\d+:(?:\d+:)? (?:fatal error|error|warning): "),
        failure=_lines(r"\S+?:\d+:(?:\d+:)? (?:fatal error|error|warning): "),
        end=_lines(r"make(?:\[\d+\])?: ", r"\d+ (?:error|warning)s?\b.* generated\.$"),
        detail=_lines(_QUOTED, _FRAME),
    ),
    OutputFamily(
        "tsc",
        evidence=_lines(r"\S+:\d+:\d+ - (?:error|warning) TS\d+: "),
        failure=_lines(r"\S+:\d+:\d+ - (?:error|warning) TS\d+: "),
        end=_lines(r"Found \d+ errors?\b"),
        detail=_lines(r"\d+ ", r"\s*~+$", r"\s*$"),
    ),
    OutputFamily(
        "make",
        evidence=_lines(r"make(?:\[\d+\])?: (?:\*\*\*|Entering|Leaving|Nothing)", r"\[ *\d+%\] B"),
        noise=_lines(
            r"(?:\S*/)?(?:\S+-)?(?:g?cc|g\+\+|c\+\+|clang(?:\+\+)?)(?:-[\d.]+)? .*-c\b",
            r"make\[\d+\]: (?:Entering|Leaving) directory ",
            r"\[ *\d+%\] (?:Building|Built|Linking) ",
        ),
        names_next=True,
    ),
    OutputFamily(
        "cargo",
        evidence=_lines(r"\s+(?:Compiling|Downloaded|Checking) \S+ v\d"),
        noise=_lines(
            r"\s+(?:Compiling|Checking|Downloaded|Fresh|Locking|Adding) \S+ v\d",
            r"\s+(?:Downloading crates|Updating \S+ index|Blocking waiting)",
        ),
    ),
    OutputFamily(
        "pip",
        evidence=_lines(
            r"(?:Collecting|Requirement already satisfied:|Processing|Looking in indexes:) \S"
        ),
        noise=_lines(
            r"\s*(?:Collecting|Processing|Requirement already satisfied:|Obtaining) \S",
            r"\s*(?:Downloading|Using cached|Created wheel for|Stored in directory:) \S",
            r"Looking in (?:indexes|links): ",
            r"\s*(?:Preparing metadata|Getting requirements|Installing build dep|Building wheel)"
            r".*: (?:started|finished with status 'done')$",
            r"\s+[━╸╺ ]+ [\d.]+/",
        ),
    ),
    OutputFamily(
        "npm",
        evidence=_lines(r"npm (?:http|verbose|verb|sill|silly|info|timing|warn|WARN) "),
        noise=_lines(r"npm (?:http|verbose|verb|sill|silly|info|timing) "),
    ),
    OutputFamily(
        "apt",
        evidence=_lines(r"(?:Get|Hit|Ign):\d+ http", r"\(Reading database "),
        noise=_lines(
            r"(?:Get|Hit|Ign):\d+ ",
            r"\(Reading database ",
            r"(?:Selecting previously unselected package|Preparing to unpack|Unpacking) ",
            r"(?:Setting up|Processing triggers for) ",
        ),
    ),
    OutputFamily(
        "webpack",
        evidence=_lines(r"webpack \d+\.\d+\.\d+ compiled "),
        noise=_lines(
            r"\s+\./.* [\d.]+ (?:bytes|[KMG]iB)"
            r"(?: \[(?:built|cached|code generated|optional|not cacheable)\])+$",
            r"\s+Field '\w+' doesn't contain a valid alias configuration$",
        ),
    ),
    OutputFamily(
        "docker build",
        evidence=_lines(r"#\d+ (?:\[[^\]]+\] |sha256:|DONE )"),
        noise=_lines(
            r"#\d+ sha256:\S+(?: [\d.]+.*)?$",
            r"#\d+ (?:extracting sha256:|resolve |transferring |DONE )",
        ),
        step=re.compile(r"#\d+ \d+\.\d+ "),
    ),
)
"""The order is that of the note; an output may be of several families (make and a compiler)."""
