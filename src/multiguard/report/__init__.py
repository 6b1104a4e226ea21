"""Reports for people: figures, tables, one page to share, and comparisons of runs. Never imports torch."""

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
