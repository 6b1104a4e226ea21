"""Reports for people: figures, tables, and one page to share. Never imports torch."""

from multiguard.report.attack_figure import draw_attack, write_attack_table
from multiguard.report.figures import draw_figures
from multiguard.report.page import check_gallery, write_page
from multiguard.report.study import Study
from multiguard.report.tables import write_tables

__all__ = ["Study", "check_gallery", "draw_attack", "draw_figures", "write_attack_table", "write_page", "write_tables"]
