"""Evaluation: cases with expectations, run many times by several models, counted and compared.

    report = await evaluate(load_cases("cases.yaml"), [Target("local:smollm2")], open_agent)

A case (`cases`) is read from a file (`case_files`) or made from a recorded session
(`recorded_cases`). A trial (`trials`) works it once through a session of an agent, in a throw-away
workspace; what happened is read from the session's events (`evidence`) and judged (`judging`,
`output_checks`, `model_judge`). A report (`report`, `report_formats`) counts the trials with
intervals (`statistics`) and can be compared with another one (`comparison`).

Modules: `call_matching`, `case_files`, `cases`, `comparison`, `evaluation`, `evidence`, `judging`,
`model_judge`, `output_checks`, `recorded_cases`, `report`, `report_formats`, `statistics`,
`trials`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ferrule.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from .case_files import CaseFile, load_cases
    from .cases import Case
    from .comparison import Comparison, compare_reports
    from .evaluation import EvaluationOptions, evaluate
    from .report import Report
    from .report_formats import format_comparison, format_report
    from .trials import Target, TrialSetup, open_agents

__all__ = [
    "Case",
    "CaseFile",
    "Comparison",
    "EvaluationOptions",
    "Report",
    "Target",
    "TrialSetup",
    "compare_reports",
    "evaluate",
    "format_comparison",
    "format_report",
    "load_cases",
    "open_agents",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".case_files": ("CaseFile", "load_cases"),
        ".cases": ("Case",),
        ".comparison": ("Comparison", "compare_reports"),
        ".evaluation": ("EvaluationOptions", "evaluate"),
        ".report_formats": ("format_comparison", "format_report"),
        ".report": ("Report",),
        ".trials": ("Target", "TrialSetup", "open_agents"),
    },
)
