"""Reports for people: figures, tables, one page to share, and comparisons of runs. Never imports torch."""

from typing import TYPE_CHECKING

from multiguard.lazy import lazy_names

if TYPE_CHECKING:
    from multiguard.report.attack_figure import draw_attack, write_attack_table
    from multiguard.report.figures import draw_figures
    from multiguard.report.leaderboard import Leaderboard, compare_runs, write_records
    from multiguard.report.leaderboard_page import write_comparison
    from multiguard.report.page import check_gallery, write_page
    from multiguard.report.study import Study
    from multiguard.report.tables import write_tables

__all__ = [
    "Leaderboard",
    "Study",
    "check_gallery",
    "compare_runs",
    "draw_attack",
    "draw_figures",
    "write_attack_table",
    "write_comparison",
    "write_page",
    "write_records",
    "write_tables",
]

__getattr__ = lazy_names(
    __name__,
    {
        "attack_figure": ["draw_attack", "write_attack_table"],
        "figures": ["draw_figures"],
        "leaderboard": ["Leaderboard", "compare_runs", "write_records"],
        "leaderboard_page": ["write_comparison"],
        "page": ["check_gallery", "write_page"],
        "study": ["Study"],
        "tables": ["write_tables"],
    },
)
