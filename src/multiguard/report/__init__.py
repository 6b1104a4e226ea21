"""What was proved, for people: figures, tables, and one page to send round. Never imports torch."""

from multiguard.report.attack import draw_attack
from multiguard.report.attack_table import write_attack_table
from multiguard.report.figures import draw_figures
from multiguard.report.page.write import check_gallery, write_page
from multiguard.report.study import Study
from multiguard.report.tables import write_tables
from multiguard.report.tradeoff import draw_tradeoff

__all__ = [
    "Study",
    "check_gallery",
    "draw_attack",
    "draw_figures",
    "draw_tradeoff",
    "write_attack_table",
    "write_page",
    "write_tables",
]
