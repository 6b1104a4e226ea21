"""Reports for people: figures, tables, one page to share, and comparisons of runs. Never imports torch."""

from typing import TYPE_CHECKING

from multiguard.lazy import lazy_names

if TYPE_CHECKING:
    from multiguard.report.config import ReportConfig
    from multiguard.report.figures import draw_attack, draw_figures
    from multiguard.report.page import write_page
    from multiguard.report.reports import Leaderboard, compare_runs, report, report_files, write_comparison
    from multiguard.report.study import Study
    from multiguard.report.tables import write_attack_table, write_tables
    from multiguard.report.words import commands_of

__all__ = [
    "Leaderboard",
    "ReportConfig",
    "Study",
    "commands_of",
    "compare_runs",
    "draw_attack",
    "draw_figures",
    "report",
    "report_files",
    "write_attack_table",
    "write_comparison",
    "write_page",
    "write_tables",
]

__getattr__ = lazy_names(
    __name__,
    {
        "reports": ["Leaderboard", "compare_runs", "report", "report_files", "write_comparison"],
        "config": ["ReportConfig"],
        "figures": ["draw_attack", "draw_figures"],
        "page": ["write_page"],
        "study": ["Study"],
        "tables": ["write_attack_table", "write_tables"],
        "words": ["commands_of"],
    },
)
